r"""Graders ``math`` and ``math-narrow``: the last ``\boxed{...}``, compared by math-verify.

Without a box, a finished text may say "The answer is 5" or "**Final Answer**: 5"; the last such place counts
(``grading.finding``). The last equation of a text, which math-verify would take, is not an answer. Two answers with the
same normal form are accepted at once. Two plain numbers that clearly differ, and two different words, are rejected at
once. Everything else goes to math-verify, gold first because its comparison is not symmetric, in worker processes that
are killed at their limits.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from importlib import metadata

from searchlens.catalogue import grader
from searchlens.grading import MAX_ANSWER, NO_ANSWER, Extraction, GradedPair, Grader, Verdict, forms, processes, units
from searchlens.grading.finding import closing_sentence, found, in_closed_box, is_blank, stated, statement
from searchlens.grading.spelling import DEGREES, Rewriting, spelled


def _version(rules: str) -> str:
    libraries = ("math-verify", "latex2sympy2-extended", "sympy")
    return "/".join([rules, *(f"{name}-{metadata.version(name)}" for name in libraries)])


@grader("math", mathematical=True)
@dataclass(frozen=True)
class Math(Grader):
    """Boxed and stated answers by math-verify."""

    limits: processes.Limits = processes.DEFAULT

    version = _version("math-6")

    def extract(self, text: str, stopped: bool) -> Extraction:
        """The content of the last box or boxes, or what a finished text without one, or behind it, calls its answer."""
        return found(text, stopped, statement, is_blank)

    def guide(self, text: str, stopped: bool) -> Extraction:
        """By the narrow rule."""
        if box := in_closed_box(text):
            return box
        return stated(closing_sentence(text)) if stopped else NO_ANSWER

    def grade(self, pairs: Sequence[GradedPair], *, workers: int | None = None) -> list[Verdict]:
        """Judge pairs; worker processes start only if a pair needs math-verify, which parses each gold once per worker
        if the pairs are sorted by gold.
        """
        prepared = [_prepared(*pair) for pair in pairs]
        cleaned = [GradedPair(*sides) for *sides, _, _ in prepared]
        decided = [(verdict, form) for *_, form, verdict in prepared]
        return processes.verdicts("searchlens.grading.equality", cleaned, decided, self.limits, workers)


@grader("math-narrow", mathematical=True)
class MathNarrow(Math):
    """Finds answers by the narrow rule."""

    version = _version("math-5-narrow")
    extract = Math.guide


# ---- normal form

_OPERATORS = "and|or|mod|pi|plus|minus|times|over|to|by|if|when|where|for|in|half|squared|cubed|percent|dozen"
_OPERATORS += "|hundred|thousand|[a-z]*illion"
_clean = Rewriting(
    (r"\\?\$|[€£]", ""),
    (rf"(?<=\d)\s*{DEGREES}\s*$", ""),
    (rf"(?<=[\w)}}\]!])\s*\\text\{{(?!\s*(?:{_OPERATORS})\b)[^{{}}\d]*\}}(?:\s*\^\s*(?:\d|\{{\d\}}))?\s*$", ""),
    (rf"(?i)^([+-]?[\d,]*\.?\d+)\s+(?!.*\b(?:{_OPERATORS})\b)[a-z]{{3,}}(?:\s+[a-z]+){{0,3}}$", r"\1"),
)
_SIMPLE = re.compile(r"-?(?:\d{1,18}|\d{1,3}(?:,\d{3}){1,5})(?:\.\d{1,9})?", re.ASCII)
"""Numbers as most answers are, with which nothing is to be done."""
_SHORT = 19
_rewrite = Rewriting(
    (r"\\text\{([^{}]*)\}", r"\1"),
    (r"\\%", "%"),
    (r"(?<=\d)(?:\s*,\s+|\s+,\s*)(?=\d{3}(?!\d))", ",\x00"),  # "1, 234" is a list, "1,234" a number
    (r"(?<=\d)\s+(?=\d)", "\x00"),  # "1 1/2" is not "11/2"
    (r"\s+", ""),
    (r"\x00", " "),
)
_NUMBER = re.compile(r"[+-]?(?:(?:\d+|\d{1,3}(?:,\d{3})+)(?:\.\d*)?|\.\d+)", re.ASCII)
_RATIO = re.compile(r"([+-]?)(\d*)\\frac\{([+-]?\d+)\}\{(\d+)\}", re.ASCII)
# Python reads no number of more digits than 4,300.
_PLAIN = re.compile(r"-?\d{1,4300}(?:/[1-9]\d{0,4299})?", re.ASCII)
_OPTION = re.compile(r"\([A-J]\)")
_WORD = re.compile(r"[A-Za-z]{4,}|(?i:yes|no|odd)")
_PARTS = re.compile(r"\d{1,2000}(?:\.\d{1,2000})?(?::\d{1,2000}(?:\.\d{1,2000})?){2,}", re.ASCII)
_IN_BASE = re.compile(r"(\d+)_\{?(\d+)\}?", re.ASCII)


def clean(answer: str) -> str:
    """An answer in one spelling, without currency signs, and without a degree sign or unit at the end."""
    return answer if _SIMPLE.fullmatch(answer) else _clean(spelled(answer))


def normalise(cleaned: str) -> str:
    r"""The normal form of a clean answer: no spaces and no text commands; plain integers, decimals, fractions and mixed
    numbers as reduced fractions (``1/2``); words in lower case. Equal normal forms mean equal answers. Different normal
    forms decide nothing.
    """
    if cleaned.isascii() and cleaned.isdigit() and len(cleaned) < _SHORT:
        return str(int(cleaned))
    answer = _rewrite(cleaned)
    number = _number(answer)
    if number is not None:
        return str(number)
    return answer.lower() if _WORD.fullmatch(answer) else answer


def _number(text: str) -> Fraction | None:
    if len(text) > MAX_ANSWER:
        return None
    if _NUMBER.fullmatch(text) or _PLAIN.fullmatch(text):
        return Fraction(text.replace(",", ""))
    match = _RATIO.fullmatch(text)
    if match is None or not int(match[4]):
        return None
    whole, ratio = int(match[2] or 0), Fraction(int(match[3]), int(match[4]))
    if match[2] and not 0 < ratio < 1:
        return None
    return -(whole + ratio) if match[1] == "-" else whole + ratio


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
    if _WORD.fullmatch(gold) and answer.isalpha():
        return False
    if _OPTION.fullmatch(gold):
        return answer.strip("()").upper() == gold.strip("()")
    return _decide_notation(gold, answer)


def _decide_notation(gold: str, answer: str) -> bool | None:
    """Compare percentages, ratios of three and more parts, and numerals with a base; None for anything else."""
    if gold.endswith("%") or answer.endswith("%"):
        return _same_share(gold, answer) or None
    if _PARTS.fullmatch(gold) and _PARTS.fullmatch(answer):
        parts, others = ([Fraction(part) for part in text.split(":")] for text in (gold, answer))
        return [part * sum(others) for part in parts] == [other * sum(parts) for other in others]
    if numeral := _IN_BASE.fullmatch(answer):
        other = _IN_BASE.fullmatch(f"{gold}_10" if _PLAIN.fullmatch(gold) else gold)
        return numeral.groups() == other.groups() if other else None
    return None


def _same_share(gold: str, answer: str) -> bool:
    """Whether percentages are equal, or a percentage and a number: 12.5% equals 12.5 and 0.125."""
    ours, theirs = (_number(text.removesuffix("%")) for text in (gold, answer))
    if ours is None or theirs is None:
        return False
    # A gold below 1 is a share already: 0.4 is 40%.
    if ours == theirs:
        return gold.endswith("%") or abs(ours) >= 1
    shares = [number / 100 if text.endswith("%") else number for text, number in ((gold, ours), (answer, theirs))]
    return shares[0] == shares[1]


# ---- both sides

_RULES = (
    *(forms.times_of_day, forms.residues, forms.cut_short, forms.repeats_lost, units.unified),
    *(forms.derivatives, forms.vectors, forms.values, forms.with_names, forms.plus_minus),
)
"""Each gives a verdict, or both sides as the next one takes them."""


def _prepared(gold: str, answer: str) -> tuple[str, str, str, bool | None]:
    """Both sides as the workers compare them, the form by which the answer votes, and the verdict if it is clear."""
    if _SIMPLE.fullmatch(gold) and _SIMPLE.fullmatch(answer):
        form = normalise(answer)
        return gold, answer, form, decide(normalise(gold), form)
    ours, theirs, form = spelled(gold), spelled(answer), normalise(clean(answer))
    for rule in _RULES:
        outcome = rule(ours, theirs)
        if isinstance(outcome, bool):
            return ours, theirs, form, outcome
        ours, theirs = outcome
    ours, theirs = _clean(ours), _clean(theirs)
    return ours, theirs, form, decide(normalise(ours), normalise(theirs))
