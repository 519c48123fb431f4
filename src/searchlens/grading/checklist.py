"""Instruction following: a finished response passes all checks of its question, or it does not.

The whole text is the answer. Nothing can be voted on; a response that ran into the token limit is no valid answer.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path

from searchlens.benchmarks import Question, checks_text
from searchlens.errors import InputError
from searchlens.grading import NO_ANSWER, Extraction, Pair, Verdict, instructions

# The checks are plain code, so their source is their version: a changed check can never meet an old verdict.
_SOURCE = hashlib.sha256(Path(instructions.__file__).read_bytes()).hexdigest()
GRADER_VERSION = f"instructions-1/{_SOURCE[:12]}"
VOTES = False


def reference(question: Question) -> str:
    """The checks, as canonical JSON.

    Raises
    ------
    InputError
        The question has none.
    """
    if not question.checks:
        raise InputError(f"question {question.id!r} has no checks", "the instructions grader needs them in every row")
    return checks_text(question)


def extract(text: str, stopped: bool) -> Extraction:
    """The stripped text, when it is finished."""
    return Extraction(text.strip(), "whole") if stopped else NO_ANSWER


def grade(pairs: Sequence[Pair], *, workers: int | None = None) -> list[Verdict]:  # noqa: ARG001 - needs none
    """Run the checks.

    Raises
    ------
    InputError
        A check is unknown, or its parameters do not fit it.
    """
    return [Verdict(_passes(pair), "") for pair in pairs]


def _passes(pair: Pair) -> bool:
    try:
        return instructions.passes(json.loads(pair.gold), pair.answer)
    except (TypeError, KeyError) as error:
        raise InputError(f"checks {pair.gold} cannot be run: {error}", "correct them in the benchmark file") from None
