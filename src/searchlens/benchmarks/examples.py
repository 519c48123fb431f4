"""Worked examples: questions with their answers, written out, that a prompt shows before the question it asks.

A model that was only pretrained goes on with a text. It learns from the examples in what form an answer is wanted; one
that was trained to answer seldom needs them. Which examples a prompt shows is decided here and in ``generate``, never
by an engine, so that Base and RL of a pair are shown the same ones.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from searchlens.benchmarks.jsonl import objects, refuse
from searchlens.errors import InputError
from searchlens.store.hashing import digest
from searchlens.store.inputs import require_no_stream

KEYS = ("question", "answer")
_FORMAT = "a worked example has question and answer, two texts (docs/add-a-benchmark.md)"


@dataclass(frozen=True, slots=True)
class Example:
    """A question, and its answer as a model is to write it."""

    question: str
    answer: str


@dataclass(frozen=True, slots=True)
class WorkedExamples:
    """The examples of a benchmark, and how many of them a prompt shows."""

    known: tuple[Example, ...]
    """At least ``count`` of them."""
    count: int
    """Examples in a prompt, >= 1."""
    seed: int | None = None
    """None: every prompt shows the first ``count``, in their order. A number: each question has ``count`` of its own,
    drawn by this seed and the id of the question."""

    @property
    def description(self) -> dict[str, Any]:
        """Everything that decides which examples a prompt shows, as plain JSON types."""
        shown = self.known if self.seed is not None else self.known[: self.count]
        described: dict[str, Any] = {"texts": digest([[each.question, each.answer] for each in shown], 16)}
        return described | {"count": self.count} | ({} if self.seed is None else {"seed": self.seed})

    def usable(self, question: str) -> tuple[Example, ...]:
        """The examples that a question may be asked with: all but the question itself."""
        return tuple(each for each in self.known if plain(each.question) != plain(question))


def read(path: Path, count: int, seed: int | None = None) -> WorkedExamples:
    """Read worked examples from a file of JSON lines with the keys ``question`` and ``answer``, for ``WorkedExamples``.

    Raises InputError if the file cannot be read, a row is not two texts, a question occurs twice, or there are too few
    examples: with a seed, one more than ``count`` is needed, because a question is not shown its own answer.
    """
    try:
        content = require_no_stream(path).read_bytes()
    except OSError as error:
        raise InputError(f"cannot read the worked examples {path}: {error.strerror}") from None
    rows, errors = objects(path, content)
    seen: dict[str, int] = {}
    for line, row in rows:
        bad = [key for key in KEYS if not isinstance(row.get(key), str) or not row[key].strip()]
        errors += [(line, f"{key!r} must be a text that is not empty") for key in bad]
        errors += [(line, f"key {key!r} is unknown") for key in row if key not in KEYS]
        if "question" not in bad and (first := seen.setdefault(plain(row["question"]), line)) != line:
            errors.append((line, f"the question occurs already on line {first}"))
    refuse(path, errors, _FORMAT)
    needed = count if seed is None else count + 1
    if len(rows) < needed:
        why = "" if seed is None else ", because a question is never shown its own answer"
        raise InputError(
            f"{path} has {len(rows)} worked examples, {needed} are needed for count {count}{why}",
            "lower `count`, or add examples",
        )
    return WorkedExamples(
        tuple(Example(row["question"].strip(), row["answer"].strip()) for _, row in rows), count, seed
    )


def require_others(path: Path, examples: WorkedExamples, questions: Iterable[str]) -> None:
    """Raise InputError, which names the line, if an example that every prompt shows is a question that is asked."""
    asked = {plain(text) for text in questions}
    shown: Sequence[Example] = examples.known[: examples.count] if examples.seed is None else ()
    for place, each in enumerate(shown, start=1):
        if plain(each.question) in asked:
            raise InputError(
                f"{path}: worked example {place} is a question of the benchmark, whose answer it would give away",
                "take examples from other questions, such as a training split; or set `drawn: true`, by which no "
                "question is shown its own answer",
            )


def plain(text: str) -> str:
    """Letters and digits only: spacing, punctuation and signs differ between files of the same wording."""
    return "".join(letter for letter in unicodedata.normalize("NFKC", text).lower() if letter.isalnum())
