"""Benchmarks: questions with what decides whether an answer to them is right.

One module per family of benchmark files, named in ``FAMILIES``; each offers ``read(path, content)``. Everything here is
standard library, because the planner imports it many times.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

from searchlens.errors import InputError

FAMILIES: dict[str, str] = {"jsonl": "searchlens.benchmarks.jsonl"}
"""Family to the module that reads it. A module offers ``read(path: Path, content: bytes) -> tuple[Question, ...]``."""


@dataclass(frozen=True, slots=True)
class Question:
    """One item of a benchmark.

    Attributes
    ----------
    id : str
        Unique within the benchmark.
    text : str
        What is asked, without any prompt template.
    gold : str
        The right answer; empty when ``checks`` decide instead.
    checks : mapping or None
        Name of a check to its parameters, for graders that run checks on the text.
    tags : mapping
        Free, for people: level, subject.
    """

    id: str
    text: str
    gold: str
    checks: Mapping[str, Any] | None = None
    tags: Mapping[str, Any] = field(default_factory=dict)


def load(
    path: Path, *, expected_sha256: str | None = None, limit: int | None = None, family: str = "jsonl"
) -> tuple[Question, ...]:
    """Read a benchmark file.

    Parameters
    ----------
    path : Path
    expected_sha256 : str, optional
        64 hexadecimal digits of the file's bytes.
    limit : int, optional
        Keep the first so many questions, >= 1.
    family : str
        Key of ``FAMILIES``.

    Raises
    ------
    InputError
        The file is missing or not what was declared, a row is wrong (all rows are reported, with line numbers), or
        there are fewer questions than ``limit``.
    """
    content = _content(path)
    if expected_sha256 is not None:
        _check_hash(path, content, expected_sha256)
    if family not in FAMILIES:
        raise InputError(f"benchmark family {family!r} is unknown; known: {', '.join(sorted(FAMILIES))}")
    questions: tuple[Question, ...] = import_module(FAMILIES[family]).read(path, content)
    if limit is not None and not 1 <= limit <= len(questions):
        raise InputError(
            f"{path} has {len(questions)} questions, {limit} are asked for", "lower `questions`, or drop it"
        )
    return questions[:limit]


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise InputError(f"cannot read benchmark file {path}: {error.strerror}") from None


def _check_hash(path: Path, content: bytes, expected: str) -> None:
    found = hashlib.sha256(content).hexdigest()
    if found != expected:
        rows = sum(1 for line in content.splitlines() if line.strip())
        raise InputError(
            f"benchmark file {path} changed: its sha256 is {found} ({rows} rows), expected {expected}",
            "restore the file; or, if the change is meant, declare the new sha256 (nothing sampled so far is lost, "
            "and questions that changed are sampled anew)",
        )


def _canonical(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def content_hash(questions: Iterable[Question]) -> str:
    """sha256 over everything in the questions, in their order, whatever the layout of the file they came from."""
    return hashlib.sha256(_canonical([asdict(question) for question in questions]).encode()).hexdigest()


def asked_hash(questions: Iterable[Question]) -> str:
    """sha256 over ids and texts alone: what decides the samples. A corrected gold does not change it."""
    return hashlib.sha256(_canonical([[question.id, question.text] for question in questions]).encode()).hexdigest()


def checks_text(question: Question) -> str:
    """The checks as canonical JSON; empty when there are none."""
    return _canonical(question.checks) if question.checks else ""


def dumps(questions: Iterable[Question]) -> str:
    """The questions as text of the family ``jsonl``; reading it back gives equal questions."""
    return "".join(json.dumps(_row(question), ensure_ascii=False) + "\n" for question in questions)


def _row(question: Question) -> dict[str, Any]:
    row: dict[str, Any] = {"id": question.id, "question": question.text, "gold": question.gold}
    if question.checks is not None:
        row["checks"] = question.checks
    if question.tags:
        row["tags"] = question.tags
    return row
