r"""Rows of mathematical benchmarks: a question and a gold in LaTeX, under any of the names they circulate with.

Golds are brought into a form that math-verify reads as what is meant: ``4.5e33`` would be 4.5 times e times 33.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from math import isnan
from pathlib import Path
from typing import Any

from searchlens.benchmarks import Question
from searchlens.benchmarks.boxed import last_boxed
from searchlens.benchmarks.families import Family
from searchlens.benchmarks.rows import Layout, Row, layout_of, refuse_rows, tags_of, text_of, value


def _layout(where: str, question: str, gold: str, boxed: bool = False) -> Layout:
    return Layout(where, {"question": question, "gold": gold}, boxed)


LAYOUTS = (
    _layout("SimpleRL-Zoo parquet", "extra_info.question", "reward_model.ground_truth"),
    _layout("verl parquet", "prompt", "reward_model.ground_truth"),
    _layout("SimpleRL v0", "question", "gt_answer"),
    _layout("evalchemy", "problem", "expected_answer"),
    _layout("OlympiadBench", "question", "final_answer"),
    _layout("MATH-500; Qwen2.5-Math harness", "problem", "answer"),
    _layout("Minerva in the Qwen2.5-Math harness; math-ai/aime24", "problem", "solution", boxed=True),
    _layout("math-ai on the hub", "question", "answer"),
    _layout("Open-Reasoner-Zero", "prompt", "final_answer"),
    _layout("power sampling", "prompt", "answer"),
)

_TEMPLATES = (
    re.compile(
        r"<\|im_start\|>user\n(?P<question>.*?)"
        r"(?:\s*Please reason step by step, and put your final answer within \\boxed\{\}\.)?\s*<\|im_end\|>",
        re.DOTALL,
    ),
    re.compile(r"Question:\n(?P<question>.*)\nAnswer:\nLet's think step by step\.", re.DOTALL),
)
"""Training prompts that SimpleRL and SimpleRL-Zoo store with their template around the question."""

_SCIENTIFIC = re.compile(r"([+-]?(?:\d+\.?\d*|\.\d+))[eE]([+-]?\d{1,4})")


def read(path: Path, rows: Sequence[Mapping[str, Any]], family: Family, start: int) -> list[Row]:
    """Questions with their golds; rows without a gold are left out where the family says that they occur.

    Raises
    ------
    InputError
        Unknown layout, or rows without question or readable gold; all are named.
    """
    layout = layout_of(path, rows, LAYOUTS)
    found, errors = [], []
    for number, row in enumerate(rows, start=1):
        question = _question(row, layout)
        gold = gold_text(value(row, layout.fields["gold"]), layout.boxed, multiple=bool(row.get("is_multiple_answer")))
        if family.kind == "integer" and gold is not None:
            gold = _integer(gold)
        if question is None:
            errors.append((number, f"no question in {layout.fields['question']!r}"))
        elif gold is not None:
            name = f"{family.name}-{start + number:04d}"
            found.append(Row(Question(name, question, gold, tags=_tags(row)), question, gold))
        elif not family.without_gold:
            kind = "integer gold" if family.kind == "integer" else "gold"
            errors.append((number, f"no {kind} in {layout.fields['gold']!r}"))
    refuse_rows(path, errors)
    return found


def _question(row: Mapping[str, Any], layout: Layout) -> str | None:
    text = text_of(value(row, layout.fields["question"]))
    if text is None:
        return None
    for template in _TEMPLATES:
        if match := template.search(text):
            text = match["question"].strip()
            break
    context = text_of(row.get("context"))  # of OlympiadBench: what the question builds on
    return f"{context}\n{text}" if context else text


def gold_text(found: Any, boxed: bool = False, *, multiple: bool = False) -> str | None:
    """A gold answer as LaTeX without dollar signs or box.

    Parameters
    ----------
    found : Any
        A string, a number, or a list of such.
    boxed : bool
        It is the last box of the text.
    multiple : bool
        It is several answers in any order, which are then kept apart by a comma and a space.

    Returns
    -------
    str or None
        None where there is none, or an unclosed box.
    """
    if isinstance(found, list):
        parts = [gold_text(part, boxed) for part in found]
        found = ", ".join(part for part in parts if part)
    elif boxed and isinstance(found, str):
        found = last_boxed(found)
    if isinstance(found, float):
        found = None if isnan(found) else int(found) if found.is_integer() else found
    if found is None or isinstance(found, bool):
        return None
    text = re.sub(r"(?<!\\)\$", "", str(found)).strip()
    if multiple:
        text = ", ".join(part.strip() for part in _split(text))
    return _readable(text) or None


def _readable(text: str) -> str:
    if match := _SCIENTIFIC.fullmatch(text):
        return rf"{match[1]} \times 10^{{{int(match[2])}}}"
    text = re.sub(r"\bnp\.(?=[a-z])", r"\\", text)
    return re.sub(r"(?<=\d)\.(?=/\d)", "", text)


def _split(text: str) -> list[str]:
    """Parts between commas that no bracket encloses."""
    parts, depth = [""], 0
    for letter in text:
        depth += (letter in "([{") - (letter in ")]}")
        if letter == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += letter
    return parts


def _integer(gold: str) -> str | None:
    """``025`` and ``27.0`` as ``25`` and ``27``; None for what is no integer."""
    return str(int(match[1])) if (match := re.fullmatch(r"([+-]?\d{1,18})(?:\.0*)?", gold)) else None


def _tags(row: Mapping[str, Any]) -> dict[str, Any]:
    tags = tags_of(row)
    for tag, name in (("unit", "unit"), ("tolerance", "error"), ("answer_type", "answer_type")):
        if text := text_of(row.get(name)):
            tags[tag] = text
    return tags | ({"multiple": True} if row.get("is_multiple_answer") else {})
