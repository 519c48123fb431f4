"""Graders of instructions: a response follows all of its question, or not. The whole text is the answer.

``instructions`` runs the checks of ``grading.instructions``: plain code, so the hash of their source is its version. A
response that was cut off by the token limit has no answer.

``ifeval`` runs the official checkers of IFEval. There a response counts whether it is finished or not, as in the
official evaluation. Whether it is finished is recorded with the sample, for the first-finish estimate. ``correct`` is
the strict prompt-level verdict. The form of a verdict holds which instructions were followed, strictly and loosely
(``checkers.judge``).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from searchlens.benchmarks import Question
from searchlens.catalogue import grader
from searchlens.errors import InputError
from searchlens.grading import NO_ANSWER, Extraction, GradedPair, Grader, Verdict, checkers, processes
from searchlens.grading.instructions import passes
from searchlens.grading.punkt import FILES
from searchlens.store.files import canonical, file_sha256

LIMITS = processes.Limits(cpu_seconds=20.0, wall_seconds=60.0)
"""Longer than for mathematical answers, because a response is up to a hundred times as long."""


def _library(name: str) -> str:
    try:
        return f"{name}-{metadata.version(name)}"
    except metadata.PackageNotFoundError:
        return f"{name}-none"


@grader("ifeval", votes=False)
@dataclass(frozen=True)
class IFEval(Grader):
    """Runs the official checkers in worker processes."""

    limits: processes.Limits = LIMITS

    version = "/".join(
        ["ifeval-1", *map(_library, ("lm-eval", "nltk", "langdetect")), f"punkt-{FILES['ortho_context.tab'][:8]}"]
    )

    def reference(self, question: Question) -> str:
        """Instructions and parameters, as canonical JSON; InputError if one is unknown, or a parameter is missing."""
        spec = (question.checks or {}).get("ifeval")
        if not spec:
            raise InputError(
                f"question {question.id!r} has no instructions", "the grader ifeval needs `ifeval` in checks"
            )
        gold = canonical(spec)
        try:
            checkers.of_prompt(gold)
        except (ValueError, KeyError, TypeError) as error:
            raise InputError(f"question {question.id!r}: {error}", "correct its row in the benchmark file") from None
        return gold

    def extract(self, text: str, stopped: bool) -> Extraction:  # noqa: ARG002 - unfinished responses count
        """The text, unless it is blank."""
        return Extraction(text, "whole") if text.strip() else NO_ANSWER

    def grade(self, pairs: Sequence[GradedPair], *, workers: int | None = None) -> list[Verdict]:
        """Run the checkers in worker processes."""
        forms = processes.judge("searchlens.grading.responses", pairs, self.limits, workers)
        return [
            Verdict("0" not in form.split("/")[0], form)
            if isinstance(form, str)
            else Verdict(None, "", is_lasting=form is not processes.INTERRUPTED)
            for form in forms
        ]


@grader("instructions", votes=False)
class Checklist(Grader):
    """Runs the checks of ``searchlens.grading.instructions``."""

    version = f"instructions-1/{file_sha256(Path(__file__).with_name('instructions.py'))[:12]}"

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
                verdicts.append(Verdict(passes(json.loads(gold), answer), ""))
            except (TypeError, KeyError) as error:
                raise InputError(
                    f"checks {gold} cannot be run: {error}", "correct them in the benchmark file"
                ) from None
        return verdicts
