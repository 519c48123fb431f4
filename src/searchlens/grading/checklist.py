"""Grader ``instructions``: a finished response passes all checks of its question, or it does not.

The whole text is the answer. Nothing can be voted on, and a response that was cut off by the token limit has no answer.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from searchlens.benchmarks import Question
from searchlens.catalogue import grader
from searchlens.errors import InputError
from searchlens.grading import NO_ANSWER, Extraction, GradedPair, Grader, Verdict, instructions
from searchlens.store.hashing import canonical, file_sha256

# The checks are plain code, so the hash of their source is their version.
_SOURCE = file_sha256(Path(instructions.__file__))


@grader("instructions", votes=False)
class Checklist(Grader):
    """Runs the checks of ``searchlens.grading.instructions``."""

    version = f"instructions-1/{_SOURCE[:12]}"

    def reference(self, question: Question) -> str:
        """The checks, as canonical JSON. Raises InputError if the question has none."""
        if not question.checks:
            raise InputError(
                f"question {question.id!r} has no checks", "the grader instructions needs `checks` in every row"
            )
        return canonical(question.checks)

    def extract(self, text: str, stopped: bool) -> Extraction:
        """The stripped text of a finished response."""
        return Extraction(text.strip(), "whole") if stopped else NO_ANSWER

    def grade(self, pairs: Sequence[GradedPair], *, workers: int | None = None) -> list[Verdict]:  # noqa: ARG002
        """Run the checks, in this process. Raises InputError if one is unknown, or its parameters do not fit it."""
        verdicts = []
        for gold, answer in pairs:
            try:
                verdicts.append(Verdict(instructions.passes(json.loads(gold), answer), ""))
            except (TypeError, KeyError) as error:
                raise InputError(
                    f"checks {gold} cannot be run: {error}", "correct them in the benchmark file"
                ) from None
        return verdicts
