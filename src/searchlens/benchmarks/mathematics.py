r"""Rows of mathematical benchmarks: a question and a gold in LaTeX, in any of the layouts in which they circulate.

Golds are rewritten where math-verify would misread them: it takes ``4.5e33`` for 4.5 times e times 33.
"""

from __future__ import annotations

import re
from math import isnan
from typing import Any

from searchlens.benchmarks.boxed import last_boxed
from searchlens.benchmarks.questions import Question
from searchlens.benchmarks.rows import BenchmarkFile, Layout, RawRow, Row, RowError, layout_of, tags_of, text_of, value

_NUMBER = re.compile(r"(?<![\w.\\])(\d+(?:\.\d*)?|\.\d+)[eE]([+-]?\d{1,4})(?!\w|\.\d)", re.ASCII)


def in_latex(text: str) -> str:
    r"""The text with every number such as ``4.5e33`` or ``.5E-3`` as ``4.5 \times 10^{33}`` or ``0.5 \times 10^{-3}``.

    Whole numbers of more than four digits in the exponent, and numbers next to a letter, stay.
    """
    return _NUMBER.sub(_written_out, text) if "e" in text or "E" in text else text


def _written_out(number: re.Match[str]) -> str:
    mantissa = f"0{number[1]}" if number[1].startswith(".") else number[1]
    return rf"{mantissa} \times 10^{{{int(number[2])}}}"


def _layout(source: str, question: str, gold: str, boxed: bool = False) -> Layout:
    return Layout(source, {"question": question, "gold": gold}, boxed)


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
"""Templates in which SimpleRL and SimpleRL-Zoo store the questions of their training prompts."""


def read(file: BenchmarkFile, *, integer: bool = False, without_gold: bool = False) -> list[Row]:
    """Questions with their golds; rows without one are left out with ``without_gold``, otherwise InputError."""
    layout = layout_of(file, LAYOUTS)

    def convert(name: str, row: RawRow) -> Row | None:
        question = _question(row, layout)
        gold = gold_text(value(row, layout.fields["gold"]), layout.boxed, multiple=bool(row.get("is_multiple_answer")))
        if integer and gold is not None:
            gold = _integer(gold)
        if question is None:
            raise RowError(f"no question in {layout.fields['question']!r}")
        if gold is not None:
            return Row.of(Question(name, question, gold, tags=_tags(row)))
        if without_gold:
            return None
        raise RowError(f"no {'integer ' if integer else ''}gold in {layout.fields['gold']!r}")

    return file.read(convert)


def _question(row: RawRow, layout: Layout) -> str | None:
    text = text_of(value(row, layout.fields["question"]))
    if text is None:
        return None
    for template in _TEMPLATES:
        if match := template.search(text):
            text = match["question"].strip()
            break
    context = text_of(row.get("context"))  # OlympiadBench: facts that the question uses
    return f"{context}\n{text}" if context else text


def gold_text(content: Any, boxed: bool = False, *, multiple: bool = False) -> str | None:
    """A gold answer as LaTeX without dollar signs or box; None if there is none, or its box is not closed.

    The content is a string, a number, or a list of these. ``boxed``: the answer is the last box of the text.
    ``multiple``: there are several answers, in any order; they are separated by a comma and a space.
    """
    if isinstance(content, list):
        parts = [gold_text(part, boxed) for part in content]
        content = ", ".join(part for part in parts if part)
    elif boxed and isinstance(content, str):
        content = last_boxed(content)
    if isinstance(content, float):
        content = None if isnan(content) else int(content) if content.is_integer() else content
    if content is None or isinstance(content, bool):
        return None
    text = re.sub(r"(?<!\\)\$", "", str(content)).strip()
    if multiple:
        text = ", ".join(part.strip() for part in _split(text))
    return _readable(text) or None


def _readable(text: str) -> str:
    text = in_latex(text)
    text = re.sub(r"\bnp\.(?=[a-z])", r"\\", text)
    return re.sub(r"(?<=\d)\.(?=/\d)", "", text)


def _split(text: str) -> list[str]:
    """The parts between commas outside of brackets."""
    parts, depth = [""], 0
    for letter in text:
        depth += (letter in "([{") - (letter in ")]}")
        if letter == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += letter
    return parts


def _integer(gold: str) -> str | None:
    """``025`` and ``27.0`` as ``25`` and ``27``; None for anything but an integer."""
    return str(int(match[1])) if (match := re.fullmatch(r"([+-]?\d{1,18})(?:\.0*)?", gold)) else None


def _tags(row: RawRow) -> dict[str, Any]:
    tags = tags_of(row)
    for tag, name in (("unit", "unit"), ("tolerance", "error"), ("answer_type", "answer_type")):
        if text := text_of(row.get(name)):
            tags[tag] = text
    return tags | ({"multiple": True} if row.get("is_multiple_answer") else {})
