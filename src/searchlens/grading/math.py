r"""Grader ``math``: the last ``\boxed{...}``, compared by math-verify.

Without a box, a finished text may say "The answer is 5" or "Answer: 5"; the last such sentence counts. The last
equation of a text, which math-verify would take, is not an answer. Two answers with the same normal form are accepted
at once. Two plain numbers that clearly differ, and two different words, are rejected at once. Everything else goes to
math-verify, gold first because its comparison is not symmetric, in worker processes that are killed at their limits.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from importlib import metadata

from searchlens.catalogue import grader
from searchlens.grading import processes
from searchlens.grading.base import MAX_ANSWER, NO_ANSWER, Extraction, GradedPair, Grader, Verdict
from searchlens.grading.finding import in_box
from searchlens.grading.rewriting import Rewriting

_LIBRARIES = ("math-verify", "latex2sympy2-extended", "sympy")


@grader("math", mathematical=True)
@dataclass(frozen=True)
class Math(Grader):
    """Boxed answers by math-verify."""

    limits: processes.Limits = processes.DEFAULT

    version = "math-3/" + "/".join(f"{name}-{metadata.version(name)}" for name in _LIBRARIES)

    def extract(self, text: str, stopped: bool) -> Extraction:
        """The content of the last box, or what a finished text without a box calls its answer; no answer if it is empty
        or longer than ``MAX_ANSWER``.
        """
        if box := in_box(text):
            return box
        sentence = _closing_sentence(text) if stopped else ""
        return Extraction(sentence, "fallback") if sentence and len(sentence) <= MAX_ANSWER else NO_ANSWER

    def grade(self, pairs: Sequence[GradedPair], *, workers: int | None = None) -> list[Verdict]:
        """Judge pairs; worker processes start only if a pair needs math-verify, which parses each gold once per worker
        if the pairs are sorted by gold.
        """
        cleaned = [GradedPair(_clean_gold(pair.gold), clean(pair.answer)) for pair in pairs]
        forms = [GradedPair(_normalise_gold(pair.gold), normalise(pair.answer)) for pair in cleaned]
        decisions = [decide(*form) for form in forms]
        outcomes = processes.judge_open("searchlens.grading.equality", cleaned, decisions, self.limits, workers)
        return [Verdict(correct, form.answer) for correct, form in zip(outcomes, forms, strict=True)]


# ---- extraction

_LAST_SENTENCE = re.compile(r".*\b[Aa]nswer(?: is\b|:)[ :*]*", re.DOTALL)
_DOLLARS = re.compile(r"\$+([^$]+)\$+|\\[(\[](.+?)\\[)\]]")
_END = re.compile(r"\.(?=\s|$)|\*\*")


def _closing_sentence(text: str) -> str:
    """The text after the last "answer is" on its line: the formula that it begins with, or all up to a full stop."""
    opening = _LAST_SENTENCE.match(text)
    rest = text[opening.end() :].split("\n", maxsplit=1)[0].strip() if opening else ""
    if formula := _DOLLARS.match(rest):
        return (formula[1] or formula[2]).strip()
    return _END.split(rest, maxsplit=1)[0].strip()


# ---- normal form

_clean = Rewriting(
    (r"\\(?:left|right)\s*\.", ""),
    (r"\\!|\\?\$", ""),
    (r"\\[,;:]|\\\s|(?<!\\)~", " "),
    (r"(?<=\d)\s*(?:\^\s*\{?\s*\\(?:circ|degree)\s*\}?|\\degree|°)\s*$", ""),
    (r"(?<![.\s])\s*\.?\s*$", ""),
    (r"^\s+", ""),
    # math-verify would read 4.5e33 as 4.5 times e times 33.
    (r"^([+-]?\d+(?:\.\d*)?)[eE](?:\+|(-))?0*(\d{1,4})$", r"\1 \\times 10^{\2\3}"),
)
_rewrite = Rewriting(
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
_INTEGER = re.compile(r"[+-]?(?:\d+|\d{1,3}(?:,\d{3})+)", re.ASCII)
_DECIMAL = re.compile(r"[+-]?(?:\d+\.\d*|\.\d+)", re.ASCII)
_RATIO = re.compile(r"([+-]?)(?:\\frac\{([+-]?\d+)\}\{(\d+)\}|(\d+)/(\d+))", re.ASCII)
_PLAIN = re.compile(r"-?\d+(?:/[1-9]\d*)?", re.ASCII)
_WORD = re.compile(r"[A-Za-z]{4,}")


def clean(answer: str) -> str:
    """An answer without what does not belong to it and what math-verify misreads: white space and spacing commands,
    currency signs, invisible delimiters, a degree sign or full stop at the end, the e of 4.5e33.
    """
    return _clean(answer)


def normalise(cleaned: str) -> str:
    r"""The normal form of a clean answer: no spaces, no sizes of brackets and fractions, no text commands; plain
    integers, decimals and fractions as reduced fractions (``1/2``); words in lower case. Equal normal forms mean equal
    answers. Different normal forms decide nothing.
    """
    answer = _rewrite(cleaned)
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


def decide(gold: str, answer: str) -> bool | None:
    """Compare normal forms; None if only math-verify can decide.

    math-verify compares numbers exactly, or rounded to six decimals and about fifteen digits if one is a decimal. Plain
    numbers below ``_PRECISE`` that differ by more than ``_CLEARLY`` are unequal in both ways.
    """
    if gold == answer:
        return True
    if _PLAIN.fullmatch(gold) and _PLAIN.fullmatch(answer):
        numbers = Fraction(gold), Fraction(answer)
        apart = abs(numbers[0] - numbers[1]) > _CLEARLY and max(map(abs, numbers)) < _PRECISE
        return False if apart else None
    # math-verify reads a bare word as a product of letters, for which "seat" equals "east".
    return False if _WORD.fullmatch(gold) and _WORD.fullmatch(answer) else None


_clean_gold = lru_cache(maxsize=1024)(clean)
_normalise_gold = lru_cache(maxsize=1024)(normalise)
