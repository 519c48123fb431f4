r"""Mathematical answers: the last ``\boxed{...}``, compared through math-verify.

Without a box, a finished text may say "The answer is 5" or "Answer: 5", and the last such sentence counts; the last
equation in sight, which math-verify would take, is no answer. Two answers with the same normal form are accepted at
once; two plain numbers that are clearly apart, and two words, are rejected at once; everything else goes to
math-verify, gold first (its comparison is not symmetric), in worker processes that are killed when they exceed their
limit.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache
from importlib.metadata import version

from searchlens.benchmarks import Question
from searchlens.benchmarks.boxed import last_boxed
from searchlens.grading import MAX_ANSWER, NO_ANSWER, Extraction, Pair, Verdict, _workers
from searchlens.grading._workers import Limits
from searchlens.grading.size import oversized

_LIBRARIES = ("math-verify", "latex2sympy2-extended", "sympy")
GRADER_VERSION = "math-3/" + "/".join(f"{name}-{version(name)}" for name in _LIBRARIES)
VOTES = True


def reference(question: Question) -> str:
    """The gold answer."""
    return question.gold


_LAST_SENTENCE = re.compile(r".*\b[Aa]nswer(?: is\b|:)[ :*]*", re.DOTALL)
_DOLLARS = re.compile(r"\$+([^$]+)\$+|\\[(\[](.+?)\\[)\]]")
_END = re.compile(r"\.(?=\s|$)|\*\*")


def extract(text: str, stopped: bool) -> Extraction:
    """The content of the last box, or what a finished text without one calls its answer; none if empty or beyond
    ``MAX_ANSWER``.
    """
    if "\\boxed" in text:
        box = last_boxed(text)
        return Extraction(box, "boxed") if box and len(box) <= MAX_ANSWER else NO_ANSWER
    said = _said(text) if stopped else ""
    return Extraction(said, "fallback") if said and len(said) <= MAX_ANSWER else NO_ANSWER


def _said(text: str) -> str:
    """What follows the last "answer is" on its line: the formula it opens with, or else all up to a full stop."""
    opening = _LAST_SENTENCE.match(text)
    said = text[opening.end() :].split("\n", maxsplit=1)[0].strip() if opening else ""
    if formula := _DOLLARS.match(said):
        return (formula[1] or formula[2]).strip()
    return _END.split(said, maxsplit=1)[0].strip()


# ---- normal form

_CLEANED = [
    (re.compile(pattern), replacement)
    for pattern, replacement in (
        (r"\\(?:left|right)\s*\.", ""),
        (r"\\!|\\?\$", ""),
        (r"\\[,;:]|\\\s|(?<!\\)~", " "),
        (r"(?<=\d)\s*(?:\^\s*\{?\s*\\(?:circ|degree)\s*\}?|\\degree|°)\s*$", ""),
        (r"(?<![.\s])\s*\.?\s*$", ""),
        (r"^\s+", ""),
        # math-verify would read 4.5e33 as 4.5 times e times 33.
        (r"^([+-]?\d+(?:\.\d*)?)[eE](?:\+|(-))?0*(\d{1,4})$", r"\1 \\times 10^{\2\3}"),
    )
]
_REWRITES = [
    (re.compile(pattern), replacement)
    for pattern, replacement in (
        (r"\\(?:left|right)(?![A-Za-z])", ""),
        (r"\\[dt]frac", r"\\frac"),
        (r"\\(?:text|textbf|textrm|textit|mathrm|mathbf|mbox)\s*\{([^{}]*)\}", r"\1"),
        (r"\\%", "%"),
        (r"−", "-"),
        (r"(?<=\d)\{?,\}?(?=\d{3}(?!\d))", ","),
        (r"\\frac\s*(\d)\s*(\d)", r"\\frac{\1}{\2}"),
        (r"\\sqrt\s*(\d)", r"\\sqrt{\1}"),
        (r"(?<=\d)\s+(?=\d)", "\x00"),  # "1 1/2" is not "11/2"
        (r"\s+", ""),
        (r"\x00", " "),
    )
]
_INTEGER = re.compile(r"[+-]?(?:\d+|\d{1,3}(?:,\d{3})+)", re.ASCII)
_DECIMAL = re.compile(r"[+-]?(?:\d+\.\d*|\.\d+)", re.ASCII)
_RATIO = re.compile(r"([+-]?)(?:\\frac\{([+-]?\d+)\}\{(\d+)\}|(\d+)/(\d+))", re.ASCII)
_PLAIN = re.compile(r"-?\d+(?:/[1-9]\d*)?", re.ASCII)
_WORD = re.compile(r"[A-Za-z]{4,}")


def clean(answer: str) -> str:
    """An answer without what is no part of it, and what math-verify stumbles over: white space and spacing commands,
    currency signs, invisible delimiters, a degree sign or full stop at the end, the e of a computer's notation.
    """
    for pattern, replacement in _CLEANED:
        answer = pattern.sub(replacement, answer)
    return answer


def normalise(cleaned: str) -> str:
    r"""A clean answer without what never matters: spaces, sizes of brackets and fractions, text commands. Plain
    integers, decimals and fractions become reduced fractions (``1/2``), words lower case. Equal results mean equal
    answers; different results mean nothing.
    """
    answer = cleaned
    for pattern, replacement in _REWRITES:
        answer = pattern.sub(replacement, answer)
    number = _number(answer)
    if number is not None:
        return str(number)
    return answer.lower() if _WORD.fullmatch(answer) else answer


def _number(text: str) -> Fraction | None:
    if len(text) > MAX_ANSWER:
        return None
    if _INTEGER.fullmatch(text) or _DECIMAL.fullmatch(text):
        return Fraction(text.replace(",", ""))
    if (match := _RATIO.fullmatch(text)) and int(match[3] or match[5]):
        ratio = Fraction(int(match[2] or match[4]), int(match[3] or match[5]))
        return -ratio if match[1] == "-" else ratio
    return None


_CLEARLY = Fraction(1, 100_000)
_PRECISE = 10**9


def _decided(gold: str, answer: str) -> bool | None:
    """What normal forms alone decide; None when math-verify has to.

    math-verify compares numbers exactly, or rounded to six decimals and some fifteen digits where one is a decimal:
    plain numbers below ``_PRECISE`` that are ``_CLEARLY`` apart are unequal either way.
    """
    if gold == answer:
        return True
    if _PLAIN.fullmatch(gold) and _PLAIN.fullmatch(answer):
        one, other = Fraction(gold), Fraction(answer)
        apart = abs(one - other) > _CLEARLY and max(abs(one), abs(other)) < _PRECISE
        return False if apart else None
    # math-verify reads a bare word as a product of letters, so that "seat" would equal "east": here it does not.
    return False if _WORD.fullmatch(gold) and _WORD.fullmatch(answer) else None


# ---- judging


def grade(pairs: Sequence[Pair], limits: Limits = _workers.DEFAULT, workers: int | None = None) -> list[Verdict]:
    """Judge pairs; worker processes start only when some pair needs math-verify.

    Parameters
    ----------
    pairs : sequence of Pair
        Best sorted by gold, which is then parsed once per worker.
    limits : Limits
    workers : int, optional
        Processes, >= 1; by default one per available core.
    """
    cleaned = [Pair(_clean_gold(pair.gold), clean(pair.answer)) for pair in pairs]
    forms = [Pair(_normalised_gold(pair.gold), normalise(pair.answer)) for pair in cleaned]
    found = [_decided(*form) for form in forms]
    open_ = [i for i, outcome in enumerate(found) if outcome is None and not oversized(cleaned[i].answer)]
    if open_:
        judged = _workers.judge("searchlens.grading._equality", [cleaned[i] for i in open_], limits, workers)
        for i, outcome in zip(open_, judged, strict=True):
            found[i] = outcome
    return [Verdict(correct, form.answer) for correct, form in zip(found, forms, strict=True)]


_clean_gold = lru_cache(maxsize=1024)(clean)
_normalised_gold = lru_cache(maxsize=1024)(normalise)
