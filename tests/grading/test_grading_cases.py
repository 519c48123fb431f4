"""Tables of answers and of phrasings that the graders have to get right, in ``tests/data``.

``answers.jsonl``: golds of all kinds, each with right answers in other spellings and with wrong answers that are nearly
right. ``phrasings.jsonl``: ends of texts as evaluation harnesses ask for them or as models write them, with the answer
that they state under ``math`` and under ``choice`` (null: none; ``-``: not a text for this grader).
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from searchlens.grading import GradedPair
from searchlens.grading.choice import Choice
from searchlens.grading.math import Math

DATA = Path(__file__).parents[1] / "data"
ANSWERS: list[dict[str, Any]] = [json.loads(line) for line in (DATA / "answers.jsonl").read_text().splitlines()]
PHRASINGS: list[dict[str, Any]] = [json.loads(line) for line in (DATA / "phrasings.jsonl").read_text().splitlines()]
CODE = re.compile(r"`([^`]+)`")
CASES = [
    (group["kind"], GradedPair(group["gold"], answer), side == "right")
    for group in ANSWERS
    for side in ("right", "wrong")
    for answer in group[side]
]


@pytest.fixture(scope="module")
def misjudged() -> list[tuple[str, GradedPair]]:
    """Judged in one go: starting workers takes longer than judging."""
    verdicts = Math().grade([pair for _, pair, _ in CASES], workers=2)
    return [
        (kind, pair)
        for (kind, pair, right), verdict in zip(CASES, verdicts, strict=True)
        if verdict.correct is not right
    ]


def test_the_table_is_large_and_has_as_many_wrong_answers_as_right_ones() -> None:
    right = sum(right for _, _, right in CASES)
    assert len(CASES) == len(set(CASES)) >= 400
    assert 0.4 < right / len(CASES) < 0.6


@pytest.mark.parametrize("kind", sorted({kind for kind, _, _ in CASES}))
def test_answers_are_judged_as_the_table_says(misjudged: list[tuple[str, GradedPair]], kind: str) -> None:
    assert [pair for other, pair in misjudged if other == kind] == []


@pytest.mark.parametrize("kind", ["math", "choice"])
def test_answers_are_found_where_models_write_them(kind: str) -> None:
    grader = {"math": Math(), "choice": Choice()}[kind]
    asked = [(row["text"], row[kind]) for row in PHRASINGS if row[kind] != "-"]
    assert [(text, answer) for text, answer in asked if grader.extract(text, stopped=True).answer != answer] == []


def test_the_page_lists_the_phrasings_by_harness() -> None:
    page = (Path(__file__).parents[2] / "docs" / "grading.md").read_text()
    table = page.partition("| harness or habit | texts |")[2].partition("\n\n")[0]
    rows = [line.split("|")[1:3] for line in table.splitlines()[2:]]
    listed = {(harness.strip(), text.replace("⏎", "\n")) for harness, texts in rows for text in CODE.findall(texts)}
    stating = {(row["harness"], row["text"]) for row in PHRASINGS if row["math"] or row["choice"]}
    assert len(listed) > 25
    assert sorted(listed - stating) == []
    assert {harness for harness, _ in listed} == {harness for harness, _ in stating} - {"no answer"}
