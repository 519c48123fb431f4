"""IFEval: a response follows all instructions of its prompt, by the official checkers, or it does not.

The whole text is the answer, finished or not, as in the official evaluation; that an unfinished one is no valid answer
for the first-finish readout is recorded with the sample. ``correct`` is the strict prompt-level verdict. A verdict's
form says which instructions were followed, strictly and loosely (``_checkers.judge``); ``accuracies`` reads it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version

from searchlens.benchmarks import Question
from searchlens.errors import InputError
from searchlens.grading import NO_ANSWER, Extraction, Pair, Verdict, _workers, punkt
from searchlens.grading._workers import Limits

CHECK = "ifeval"
"""Name of the one check of a question; its parameters are ``instruction_id_list`` and ``kwargs``, as published."""

LIMITS = Limits(cpu_seconds=20.0, wall_seconds=60.0)
"""A response is up to a hundred times as long as a mathematical answer."""

VOTES = False


def _version(name: str) -> str:
    try:
        return f"{name}-{version(name)}"
    except PackageNotFoundError:
        return f"{name}-none"


GRADER_VERSION = "/".join(
    ["ifeval-1", *map(_version, ("lm-eval", "nltk", "langdetect")), f"punkt-{punkt.FILES['ortho_context.tab'][:8]}"]
)


def reference(question: Question) -> str:
    """The instructions and their parameters, as canonical JSON.

    Raises
    ------
    InputError
        The question has none, an instruction is unknown or lacks a parameter, or the checkers are not installed.
    """
    from searchlens.grading import _checkers

    spec = (question.checks or {}).get(CHECK)
    if not spec:
        raise InputError(
            f"question {question.id!r} has no instructions", f"the ifeval grader needs `{CHECK}` in checks"
        )
    gold = json.dumps(spec, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    try:
        _checkers.checkers(gold)
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(f"question {question.id!r}: {error}", "correct its row in the benchmark file") from None
    return gold


def extract(text: str, stopped: bool) -> Extraction:  # noqa: ARG001 - an unfinished response is checked as it is
    """The text, unless it is blank."""
    return Extraction(text, "whole") if text.strip() else NO_ANSWER


def grade(pairs: Sequence[Pair], limits: Limits = LIMITS, workers: int | None = None) -> list[Verdict]:
    """Run the checkers in worker processes.

    Parameters
    ----------
    pairs : sequence of Pair
    limits : Limits
    workers : int, optional
        Processes, >= 1; by default one per available core.
    """
    found = _workers.judge("searchlens.grading._responses", pairs, limits, workers) if pairs else []
    return [Verdict(None, "") if form is None else Verdict("0" not in form.split("/")[0], form) for form in found]


@dataclass(frozen=True)
class Accuracies:
    """The four accuracies of IFEval, each in [0, 1]."""

    prompt_strict: float
    prompt_loose: float
    instruction_strict: float
    instruction_loose: float


def accuracies(forms: Iterable[str]) -> Accuracies:
    """Shares of prompts all of whose instructions were followed, and of instructions followed.

    Parameters
    ----------
    forms : iterable of str
        ``Verdict.form`` of each response; blank responses and undecided ones as a form of zeros.

    Raises
    ------
    ValueError
        There are none.
    """
    strict, loose = zip(*(form.split("/") for form in forms), strict=True)
    return Accuracies(*map(_prompts, (strict, loose)), *map(_instructions, (strict, loose)))


def _prompts(vectors: Sequence[str]) -> float:
    return sum("0" not in vector for vector in vectors) / len(vectors)


def _instructions(vectors: Sequence[str]) -> float:
    return sum(vector.count("1") for vector in vectors) / sum(map(len, vectors))
