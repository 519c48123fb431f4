r"""Mathematical answers: the last ``\boxed{...}``, compared through math-verify.

Only a box is an answer: without one, math-verify would take the last equation in sight. Two answers that are the same
after normalisation, or equal as plain rational numbers, are accepted at once; two integers, or two words, are decided
at once either way; everything else goes to math-verify, gold first (its comparison is not symmetric), in worker
processes that are killed when they exceed their limit.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from importlib.metadata import version
from multiprocessing import get_context

from searchlens.benchmarks import Question
from searchlens.grading import MAX_ANSWER, NO_ANSWER, Extraction, Pair, Verdict, verdict
from searchlens.grading.boxed import last_boxed

_LIBRARIES = ("math-verify", "latex2sympy2-extended", "sympy")
GRADER_VERSION = "math-1/" + "/".join(f"{name}-{version(name)}" for name in _LIBRARIES)
VOTES = True


@dataclass(frozen=True, slots=True)
class Limits:
    """What judging one pair may take.

    Attributes
    ----------
    phase_seconds : int
        For parsing an expression, and for each comparison; >= 1.
    pair_seconds : float
        For the pair as a whole, by killing the worker: ends what an alarm cannot interrupt.
    memory_bytes : int
        Address space of a worker.
    """

    phase_seconds: int = 5
    pair_seconds: float = 21.0
    memory_bytes: int = 4 * 2**30


def reference(question: Question) -> str:
    """The gold answer."""
    return question.gold


def extract(text: str, stopped: bool) -> Extraction:  # noqa: ARG001 - a box counts in an unfinished text too
    """The content of the last box; none if empty or beyond ``MAX_ANSWER``."""
    box = last_boxed(text)
    return Extraction(box, "boxed") if box and len(box) <= MAX_ANSWER else NO_ANSWER


# ---- normal form

_REWRITES = [
    (re.compile(pattern), replacement)
    for pattern, replacement in (
        (r"\\(?:left|right)(?![A-Za-z])", ""),
        (r"\\[dt]frac", r"\\frac"),
        (r"\\(?:text|textbf|textrm|textit|mathrm|mathbf|mbox)\s*\{([^{}]*)\}", r"\1"),
        (r"\^\s*\{?\s*\\(?:circ|degree)\s*\}?|°", ""),
        (r"\\!", ""),
        (r"\\[,;:]|\\\s|\\?\$|(?<!\\)~", " "),
        (r"\\%", "%"),
        (r"−", "-"),
        (r"(?<=\d)\{?,\}?(?=\d{3}(?!\d))", ","),
        (r"\\frac\s*(\d)\s*(\d)", r"\\frac{\1}{\2}"),
        (r"\\sqrt\s*(\d)", r"\\sqrt{\1}"),
        (r"(?<=\d)\s+(?=\d)", "\x00"),  # "1 1/2" is not "11/2"
        (r"\s+", ""),
        (r"\x00", " "),
        (r"\.$", ""),
    )
]
_INTEGER = re.compile(r"[+-]?(?:\d+|\d{1,3}(?:,\d{3})+)")
_DECIMAL = re.compile(r"[+-]?(?:\d+\.\d*|\.\d+)")
_RATIO = re.compile(r"([+-]?)(?:\\frac\{([+-]?\d+)\}\{(\d+)\}|(\d+)/(\d+))")
_WORD = re.compile(r"[A-Za-z]{4,}")


def normalise(answer: str) -> str:
    r"""An answer without what never matters: spacing, sizes of brackets and fractions, text commands, degree signs,
    currency signs, a final full stop. Plain integers, decimals and fractions become reduced fractions (``1/2``), words
    lower case. Equal results mean equal answers; different results mean nothing.
    """
    for pattern, replacement in _REWRITES:
        answer = pattern.sub(replacement, answer)
    number = _number(answer)
    if number is not None:
        return str(number)
    return answer.lower() if _WORD.fullmatch(answer) else answer


def _number(text: str) -> Fraction | None:
    if _INTEGER.fullmatch(text) or _DECIMAL.fullmatch(text):
        return Fraction(text.replace(",", ""))
    if (match := _RATIO.fullmatch(text)) and int(match[3] or match[5]):
        ratio = Fraction(int(match[2] or match[4]), int(match[3] or match[5]))
        return -ratio if match[1] == "-" else ratio
    return None


def _decided(gold: str, answer: str) -> bool | None:
    """What normal forms alone decide; None when math-verify has to."""
    if gold == answer:
        return True
    both_integers = _INTEGER.fullmatch(gold) and _INTEGER.fullmatch(answer)
    # math-verify reads a bare word as a product of letters, so that "seat" would equal "east".
    both_words = _WORD.fullmatch(gold) and _WORD.fullmatch(answer)
    return False if both_integers or both_words else None


# ---- judging


def grade(pairs: Sequence[Pair], limits: Limits | None = None, workers: int | None = None) -> list[Verdict]:
    """Judge pairs; worker processes start only when some pair needs math-verify.

    Parameters
    ----------
    pairs : sequence of Pair
        Best sorted by gold, which is then parsed once per worker.
    limits : Limits, optional
    workers : int, optional
        Processes, >= 1; by default one per available core.
    """
    golds = lru_cache(maxsize=1024)(normalise)
    forms = [(golds(pair.gold), normalise(pair.answer)) for pair in pairs]
    decided = [_decided(gold, answer) for gold, answer in forms]
    open_pairs = [pair for pair, outcome in zip(pairs, decided, strict=True) if outcome is None]
    judged = iter(_verify_all(open_pairs, limits or Limits(), workers) if open_pairs else ())
    outcomes = [(outcome, False) if outcome is not None else next(judged) for outcome in decided]
    return [verdict(correct, form, gave_up) for (correct, gave_up), (_, form) in zip(outcomes, forms, strict=True)]


def _verify_all(pairs: list[Pair], limits: Limits, workers: int | None) -> list[tuple[bool | None, bool]]:
    from pebble import ProcessPool

    from searchlens.grading import equality

    # Workers fork from a clean server that has imported math-verify: forking from here could inherit held locks.
    context = get_context("forkserver")
    context.set_forkserver_preload(["searchlens.grading.equality"])
    count = min(workers or len(os.sched_getaffinity(0)), len(pairs))
    pool = ProcessPool(count, context=context, initializer=equality.prepare, initargs=(limits.memory_bytes,))
    try:
        phase = [limits.phase_seconds] * len(pairs)
        golds, answers = [pair.gold for pair in pairs], [pair.answer for pair in pairs]
        results = pool.map(equality.equal, golds, answers, phase, timeout=limits.pair_seconds).result()
        return [_next_outcome(results) for _ in pairs]
    finally:
        pool.stop()  # not close: an interrupted run must not wait for what is queued
        pool.join()


def _next_outcome(results: Iterator[bool | None]) -> tuple[bool | None, bool]:
    """The next result; a worker that was killed, or died for lack of memory, leaves its pair undecided.

    Workers that cannot start at all are an error, so that a broken installation never passes for hard answers.
    """
    from pebble import ProcessExpired

    try:
        correct = next(results)
    except (TimeoutError, ProcessExpired, MemoryError):
        return None, True
    return correct, correct is None
