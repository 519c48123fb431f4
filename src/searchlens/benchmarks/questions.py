"""Questions, their hashes, and how they are written to a file."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from searchlens.store.hashing import canonical, digest


@dataclass(frozen=True, slots=True)
class Question:
    """One item of a benchmark."""

    id: str
    """Unique within the benchmark."""
    text: str
    """The question, without any prompt template."""
    gold: str
    """The right answer; empty if ``checks`` decide instead."""
    checks: Mapping[str, Any] | None = None
    """Name of a check to its parameters, for graders that run checks on the text."""
    tags: Mapping[str, Any] = field(default_factory=dict)
    """Information for readers, such as level and subject. No code depends on it."""


def content_hash(questions: Iterable[Question]) -> str:
    """sha256 of everything in the questions, in their order, whatever the layout of their file."""
    return digest([asdict(question) for question in questions], 64)


def asked_hash(questions: Iterable[Question]) -> str:
    """sha256 of ids and texts, which decide the samples. A corrected gold does not change it."""
    return digest([[question.id, question.text] for question in questions], 64)


def checks_text(question: Question) -> str:
    """The checks as canonical JSON; empty if there are none."""
    return canonical(question.checks) if question.checks else ""


def dumps(questions: Iterable[Question]) -> str:
    """The questions as text of the family ``jsonl``. Reading the text gives equal questions."""
    return "".join(json.dumps(_row(question), ensure_ascii=False) + "\n" for question in questions)


def _row(question: Question) -> dict[str, Any]:
    row: dict[str, Any] = {"id": question.id, "question": question.text, "gold": question.gold}
    if question.checks is not None:
        row["checks"] = question.checks
    if question.tags:
        row["tags"] = question.tags
    return row
