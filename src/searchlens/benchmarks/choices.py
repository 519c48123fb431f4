"""Rows of multiple-choice benchmarks: the choices follow the question as ``A) ...``, and the gold is a letter.

Published orders are kept, because choices such as "both A and B" refer to them. GPQA has none (its file puts the right
choice first): there the choices are permuted by a seed of the question's own, so that neither the place of a row nor
how many are used changes anything.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from math import isnan
from pathlib import Path
from typing import Any

from searchlens.benchmarks import Question
from searchlens.benchmarks.families import Family
from searchlens.benchmarks.rows import Layout, Row, layout_of, refuse_rows, tags_of, text_of, value

LETTERS = "ABCDEFGHIJ"

_APART = ("right", "wrong_1", "wrong_2", "wrong_3")
LAYOUTS = (
    Layout(
        "GPQA on the hub",
        {
            "question": "Question",
            "right": "Correct Answer",
            **{f"wrong_{i}": f"Incorrect Answer {i}" for i in (1, 2, 3)},
        },
    ),
    Layout("MMLU on the hub; Qwen2.5-Math harness", {"question": "question", "choices": "choices", "gold": "answer"}),
    Layout("DeepSeek-Math harness", {"question": "question", "choices": "options", "gold": "answer"}),
)


def read(path: Path, rows: Sequence[Mapping[str, Any]], family: Family, start: int) -> list[Row]:
    """Questions with lettered choices.

    Raises
    ------
    InputError
        Unknown layout, or rows without question, choices or a gold among them; all are named.
    """
    layout = layout_of(path, rows, LAYOUTS)
    found, errors = [], []
    for number, row in enumerate(rows, start=1):
        question = text_of(value(row, layout.fields["question"]))
        choices, right = _choices(row, layout)
        if question is None:
            errors.append((number, f"no question in {layout.fields['question']!r}"))
        elif not 2 <= len(choices) <= len(LETTERS) or not all(choices):
            errors.append((number, f"needs 2 to {len(LETTERS)} choices, none of them empty; found {len(choices)}"))
        elif right is None or not 0 <= right < len(choices):
            errors.append((number, f"no choice in {layout.fields.get('gold')!r}: a letter, or a position from 0"))
        else:
            found.append(_row(f"{family.name}-{start + number:04d}", question, choices, right, family, row))
    refuse_rows(path, errors)
    return found


def _choices(row: Mapping[str, Any], layout: Layout) -> tuple[list[str], int | None]:
    """The choices as the file orders them, and the position of the right one."""
    if "right" in layout.fields:
        return [text_of(value(row, layout.fields[part])) or "" for part in _APART], 0
    found = value(row, layout.fields["choices"])
    choices = [_choice(choice) for choice in found] if isinstance(found, list) else []
    return choices, _position(value(row, layout.fields["gold"]))


def _choice(found: Any) -> str:
    """The text of a choice; NaN is what pandas makes of "None", and writes in its place."""
    return "None" if found is None or (isinstance(found, float) and isnan(found)) else str(found).strip()


def _position(gold: Any) -> int | None:
    text = str(gold).strip().upper()
    if len(text) != 1:
        return None
    return int(text) if text.isdecimal() else LETTERS.index(text) if text in LETTERS else None


def permutation(question: str, choices: Sequence[str]) -> list[int]:
    """Positions of the choices in an order that depends on question and choices alone, each order as likely."""
    keys = [hashlib.sha256(f"{question}\0{choice}".encode()).digest() for choice in choices]
    return sorted(range(len(choices)), key=keys.__getitem__)


def _row(name: str, question: str, choices: list[str], right: int, family: Family, row: Mapping[str, Any]) -> Row:
    order = permutation(question, choices) if family.permuted else list(range(len(choices)))
    lines = [f"{letter}) {choices[position]}" for letter, position in zip(LETTERS, order, strict=False)]
    tags = tags_of(row)
    if family.permuted:
        tags["order"] = "".join(str(position) for position in order)  # of the file's choices, as they are shown
    wording = "\n".join([question, *sorted(choices)])
    shown = Question(name, "\n".join([f"{question}\n", *lines]), LETTERS[order.index(right)], tags=tags)
    return Row(shown, wording, choices[right])
