"""Rows of IFEval: a prompt, and the instructions that a response is checked against.

The hub's files give each instruction every parameter of all, null where it has none, and numbers as floats; here an
instruction has its own parameters only, and whole numbers are integers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from searchlens.benchmarks import Question
from searchlens.benchmarks.families import Family
from searchlens.benchmarks.rows import Layout, Row, canonical, layout_of, refuse_rows, tags_of

CHECK = "ifeval"
"""Name of the one check of a question; its parameters are ``instruction_id_list`` and ``kwargs``, as published, because
an instruction may occur twice."""

LAYOUTS = (
    Layout(
        "google-research; google/IFEval",
        {"prompt": "prompt", "instructions": "instruction_id_list", "parameters": "kwargs"},
    ),
)


def read(path: Path, rows: Sequence[Mapping[str, Any]], family: Family, start: int) -> list[Row]:
    """Prompts with their instructions.

    Raises
    ------
    InputError
        Unknown layout, or rows without prompt, or with other than one set of parameters for each instruction.
    """
    layout_of(path, rows, LAYOUTS)
    found, errors = [], []
    for number, row in enumerate(rows, start=1):
        prompt, names, parameters = row.get("prompt"), row.get("instruction_id_list"), row.get("kwargs")
        if not isinstance(prompt, str) or not prompt.strip():
            errors.append((number, "no prompt in 'prompt'"))
        elif not _instructions(names, parameters):
            errors.append((number, "needs one set of parameters in 'kwargs' for each of 'instruction_id_list'"))
        else:
            check = {"instruction_id_list": names, "kwargs": [_own(each or {}) for each in parameters or ()]}
            question = Question(f"{family.name}-{start + number:04d}", prompt, "", {CHECK: check}, tags_of(row))
            found.append(Row(question, prompt, canonical(check)))
    refuse_rows(path, errors)
    return found


def _instructions(names: Any, parameters: Any) -> bool:
    both = isinstance(names, list) and isinstance(parameters, list) and len(names) == len(parameters) > 0
    return both and all(isinstance(each, Mapping | None) for each in parameters)


def _own(parameters: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _whole(given) for name, given in parameters.items() if given is not None}


def _whole(given: Any) -> Any:
    return int(given) if isinstance(given, float) and given.is_integer() else given
