"""Rows of IFEval: a prompt, and the instructions that a response is checked against.

The files of the hub give each instruction the parameters of all instructions, with null for those that it does not
have, and numbers as floats. Here an instruction has its own parameters only, and whole numbers are integers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from searchlens.benchmarks.questions import Question
from searchlens.benchmarks.rows import BenchmarkFile, Layout, RawRow, Row, RowError, layout_of, tags_of
from searchlens.store.hashing import canonical

CHECK = "ifeval"
"""Name of the one check of a question. Its parameters are ``instruction_id_list`` and ``kwargs`` as published, because
an instruction may occur twice."""

LAYOUTS = (
    Layout(
        "google-research; google/IFEval",
        {"prompt": "prompt", "instructions": "instruction_id_list", "parameters": "kwargs"},
    ),
)


def read(file: BenchmarkFile) -> list[Row]:
    """Prompts with their instructions; InputError if a row lacks one set of parameters for each instruction."""
    layout_of(file, LAYOUTS)
    return file.read(_convert)


def _convert(name: str, row: RawRow) -> Row:
    prompt, names, parameters = row.get("prompt"), row.get("instruction_id_list"), row.get("kwargs")
    if not isinstance(prompt, str) or not prompt.strip():
        raise RowError("no prompt in 'prompt'")
    if not _instructions(names, parameters):
        raise RowError("needs one set of parameters in 'kwargs' for each of 'instruction_id_list'")
    given = [
        {key: _whole(value) for key, value in (each or {}).items() if value is not None} for each in parameters or ()
    ]
    check = {"instruction_id_list": names, "kwargs": given}
    return Row(Question(name, prompt, "", {CHECK: check}, tags_of(row)), prompt, canonical(check))


def _instructions(names: Any, parameters: Any) -> bool:
    both = isinstance(names, list) and isinstance(parameters, list) and len(names) == len(parameters) > 0
    return both and all(isinstance(each, Mapping | None) for each in parameters)


def _whole(given: Any) -> Any:
    return int(given) if isinstance(given, float) and given.is_integer() else given
