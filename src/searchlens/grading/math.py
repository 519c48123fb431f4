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
from functools import lru_cache
from importlib import metadata
from typing import NamedTuple

from searchlens.benchmarks import scientific
from searchlens.catalogue import grader
from searchlens.grading import forms, processes
from searchlens.grading.base import MAX_ANSWER, NO_ANSWER, Extraction, GradedPair, Grader, Verdict
from searchlens.grading.finding import closing_sentence, found, in_closed_box, in_words, is_blank, statement
from searchlens.grading.rewriting import Rewriting
from searchlens.grading.spelling import spelled
from searchlens.grading.units import unified


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
        return in_words(closing_sentence(text)) if stopped else NO_ANSWER

    def grade(self, pairs: Sequence[GradedPair], *, workers: int | None = None) -> list[Verdict]:
        """Judge pairs; worker processes start only if a pair needs math-verify, which parses each gold once per worker
        if the pairs are sorted by gold.
        """
        prepared = [_prepared(*pair) for pair in pairs]
        cleaned = [GradedPair(pair.gold, pair.answer) for pair in prepared]
        decisions = [pair.verdict for pair in prepared]
        outcomes = processes.judge_open("searchlens.grading.equality", cleaned, decisions, self.limits, workers)
        return [processes.verdict(correct, pair.form) for correct, pair in zip(outcomes, prepared, strict=True)]


@grader("math-narrow", mathematical=True)
class MathNarrow(Math):
    """Finds answers by the narrow rule."""

    version = _version("math-5-narrow")
    extract = Math.guide


# ---- normal form

_OPERATORS = "and|or|mod|pi|plus|minus|times|over|to|by|if|when|where|for|in|half|squared|cubed|percent"
_SCALES = "dozen|hundred|thousand|million|billion|trillion"


def _fraction(match: re.Match[str]) -> str:
    """A repeating decimal (digits before the point, digits behind it, repeated digits) as a fraction."""
    whole, once, again = match[1], match[2], match[3] or match[4]
    nines = 10 ** len(again) - 1
    value = Fraction(int(f"0{whole}{once}") * nines + int(again), nines * 10 ** len(once))
    return rf"\frac{{{value.numerator}}}{{{value.denominator}}}"


def _dotted(match: re.Match[str]) -> str:
    """Repeated digits with a dot on the first and the last one under one bar."""
    between = (match[2] or "").partition("\\dot")[0]
    return rf"\overline{{{match[1]}{between}{match[3] or ''}}}"


_TURNED = r"(?s)^.*\\(?:sin|cos|tan|cot|sec|csc)(?![A-Za-z]).*$"
_ANGLE = re.compile(r"(\d+(?:\.\d+)?|\\theta|x)\s*(?:\^\s*\{?\s*\\(?:circ|degree)\s*\}?|\\degree)")


def _radians(match: re.Match[str]) -> str:
    """An expression with a trigonometric function, with its degrees in radians."""
    return _ANGLE.sub(r"(\\frac{\1\\pi}{180})", match[0])


_clean = Rewriting(
    (r"\\(?:left|right)\s*\.", ""),
    (r"\\[bB]igg?[lrm]?(?![A-Za-z])", ""),
    (r"\\!|\\?\$|[€£]", ""),
    (r"^\s*\\\((.*)\\\)\s*$", r"\1"),
    (r"\\\\\s*\[\s*-?[\d.]+\s*(?:pt|em|ex|mm|cm|in)\s*\]", r"\\\\ "),
    (r"(?<=\d)\\[,;:](?=\d{3}(?!\d))", ""),
    # A pair of backslashes ends a row of a matrix, so that the second one does not begin a command.
    (r"(\\\\|\\~)|\\[,;:]|\\\s|~", lambda match: match[1] or " "),
    (r",(?=\s*\\\\)", ""),  # at the end of a row of cases
    (r"(?i)(?<=\d)\s*(?:\\text\s*\{\s*percent\s*\}|percent)\s*\.?\s*$", r"\\%"),
    (r"\\[hv]?phantom\s*\{[^{}]*\}", ""),
    (r"\\(?:boldsymbol|bm|pmb)\s*(?:\{([^{}]*)\}|(\\[A-Za-z]+|\w))", r"\1\2"),
    (r"\\varnothing(?![A-Za-z])", r"\\emptyset"),
    (r"(?<=[\w)}])\*\*(-?\d+|[A-Za-z])(?!\w)", r"^{\1}"),
    (r"\\dot\s*\{?(\d)\}?((?:\d*)\\dot\s*\{?(\d)\}?)?", _dotted),
    (r"(\d*)\.(\d*)\\(?:overline|bar)\s*(?:\{(\d+)\}|(\d))", _fraction),
    (r"(?<![\w.])(\d*)\.(\d*)\((\d+)\)(?!\w)()", _fraction),
    (_TURNED, _radians),
    (r"(?<=\d)\s*(?:\^\s*\{?\s*\\(?:circ|degree)\s*\}?|\\degree|°)\s*$", ""),
    (
        r"(?<=[\w)}\]!])\s*\\(?:text|mbox|mathrm|textrm)\s*\{(?!\s*(?:and|or|if|for)\b)[^{}\d]*\}(?:\s*\^\s*(?:\d|\{\d\}))?\s*$",
        "",
    ),
    (r"(?<![.\s])\s*\.?\s*$", ""),
    (r"^\s+", ""),
    (rf"(?i)^([+-]?[\d,]*\.?\d+)\s+(?!.*\b(?:{_OPERATORS}|{_SCALES})\b)[a-z]{{3,}}(?:\s+[a-z]+){{0,3}}$", r"\1"),
    (r"^([+-]?\d+)\s+(\d+)/(\d+)$", r"\1\\frac{\2}{\3}"),
    (r"^\](?=[^\[\]()]*,[^\[\]()]*[\[\])]$)", "("),  # ]0,1[ is (0,1)
    (r"(?<=[^\[\]()])\[$", ")"),
)
_SIMPLE = re.compile(r"-?(?:\d{1,18}|\d{1,3}(?:,\d{3}){1,5})(?:\.\d{1,9})?", re.ASCII)
"""Numbers as most answers are, with which nothing is to be done."""
_SHORT = 19
_SPACED_COMMA = re.compile(r"(?<=\d)(?:\s*,\s+|\s+,\s*)(?=\d{3}(?!\d))")
_rewrite = Rewriting(
    (r"\\(?:left|right)(?![A-Za-z])", ""),
    (r"\\[dtc]frac", r"\\frac"),
    (r"\\(?:text|textbf|textrm|textit|mathrm|mathbf|mbox)\s*\{([^{}]*)\}", r"\1"),
    (r"\\%", "%"),
    (r"−", "-"),
    (r"(?<=\d)\{,\}(?=\d{3}(?!\d))", ","),
    # "1, 234" is a list, "1,234" a number; in brackets both are lists.
    (r"^[^(\[{]*$", lambda match: _SPACED_COMMA.sub(",\x00", match[0])),
    (r"\\frac\s*(\d)\s*(\d)", r"\\frac{\1}{\2}"),
    (r"\\sqrt\s*(\d)", r"\\sqrt{\1}"),
    (r"(?<=\d)\s+(?=\d)", "\x00"),  # "1 1/2" is not "11/2"
    (r"\s+", ""),
    (r"\x00", " "),
)
_INTEGER = re.compile(r"[+-]?(?:\d+|\d{1,3}(?:,\d{3})+)", re.ASCII)
_DECIMAL = re.compile(r"[+-]?(?:\d+\.\d*|\.\d+)", re.ASCII)
_RATIO = re.compile(r"([+-]?)(?:\\frac\{([+-]?\d+)\}\{(\d+)\}|(\d+)/(\d+))", re.ASCII)
_MIXED = re.compile(r"([+-]?)(\d+)\\frac\{(\d+)\}\{(\d+)\}", re.ASCII)
_SCIENTIFIC = re.compile(
    r"([+-]?(?:\d+(?:\.\d*)?|\.\d+))\\(?:times|cdot)10\^(?:\{([+-]?\d{1,2})\}|(\d{1,2}))", re.ASCII
)
# Python reads no number of more digits than 4,300.
_PLAIN = re.compile(r"-?\d{1,4300}(?:/[1-9]\d{0,4299})?", re.ASCII)
_OPTION = re.compile(r"\([A-J]\)")
_WORD = re.compile(r"[A-Za-z]{4,}|(?i:yes|no|odd)")
_PARTS = re.compile(r"\d{1,2000}(?:\.\d{1,2000})?(?::\d{1,2000}(?:\.\d{1,2000})?){2,}", re.ASCII)
_IN_BASE = re.compile(r"(\d+)_\{?(\d+)\}?", re.ASCII)


def clean(answer: str) -> str:
    """An answer without what does not belong to it and what math-verify misreads: white space and spacing commands,
    currency signs, sizes of brackets, invisible delimiters, a degree sign, full stop or plain unit at the end, the e of
    4.5e33. Rows and columns of matrices stay.
    """
    if _SIMPLE.fullmatch(answer):
        return answer
    return scientific.in_latex(_clean(spelled(answer)))


def normalise(cleaned: str) -> str:
    r"""The normal form of a clean answer: no spaces, no sizes of brackets and fractions, no text commands; plain
    integers, decimals, fractions, mixed numbers and powers of ten as reduced fractions (``1/2``); words in lower case.
    Equal normal forms mean equal answers. Different normal forms decide nothing.
    """
    if cleaned.isascii() and cleaned.isdigit() and len(cleaned) < _SHORT:
        return str(int(cleaned))
    answer = _rewrite(cleaned)
    if (word := _same_word(answer)) is not None:
        return word
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
    if (match := _MIXED.fullmatch(text)) and int(match[3]) < int(match[4]):
        mixed = int(match[2]) + Fraction(int(match[3]), int(match[4]))
        return -mixed if match[1] == "-" else mixed
    if match := _SCIENTIFIC.fullmatch(text):
        return Fraction(match[1]) * Fraction(10) ** int(match[2] or match[3])
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
    if _WORD.fullmatch(gold) and answer.isalpha():
        return False
    if _OPTION.fullmatch(gold):
        return answer.strip("()").upper() == gold.strip("()")
    return _decide_notation(gold, answer)


def _decide_notation(gold: str, answer: str) -> bool | None:
    """Compare percentages, ratios of three and more parts, and numerals with a base; None for anything else.

    A percentage also equals the number without the sign, whichever of the two has it.
    """
    if gold.endswith("%") or answer.endswith("%"):
        return _same_share(gold, answer) or None
    if _PARTS.fullmatch(gold) and _PARTS.fullmatch(answer):
        parts, others = ([Fraction(part) for part in text.split(":")] for text in (gold, answer))
        return [part * sum(others) for part in parts] == [other * sum(parts) for other in others]
    if (numeral := _IN_BASE.fullmatch(gold)) and (other := _IN_BASE.fullmatch(answer)):
        return numeral.groups() == other.groups()
    return None


def _same_share(gold: str, answer: str) -> bool:
    """Whether percentages are equal, or a percentage and a number: 12.5% equals 12.5 and 0.125."""
    ours, theirs = (_number(text.removesuffix("%")) for text in (gold, answer))
    if ours is None or theirs is None:
        return False
    if gold.endswith("%") and answer.endswith("%"):
        return ours == theirs
    share, number = (ours, theirs) if gold.endswith("%") else (theirs, ours)
    # A gold below 1 is a share already: 0.4 is 40%.
    return number == share / 100 or (number == share and (gold.endswith("%") or abs(number) >= 1))


# ---- both sides

_NOTHING = re.compile(
    r"(?i)(?:thereare|thereis)?(?:no)(?:solutions?)(?:exists?)?|none|(?:the)?(?:emptyset|nullset)|\\\{\\\}|\\emptyset|\\varnothing"
)
_ALL = re.compile(r"(?i)(?:[a-z]\\in)?\\mathbb\{?R\}?|(?:all|every)(?:the)?real(?:number)?s?|\(-\\infty,\+?\\infty\)")
_NUMERALS = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"]
_LEADING = re.compile(r"(?i)^\s*(?:\\text\s*\{)?\s*(?:an?|the|on|in|it is|is)\s+(?=[a-z]{3,}[\s}]*$)")
_SCALED = re.compile(r"([+-]?[\d.,]+)\s*(?:\\text\s*\{)?\s*(thousand|million|billion|trillion)\s*\}?(.*)", re.DOTALL)
_POWERS = {"thousand": 3, "million": 6, "billion": 9, "trillion": 12}
_DOTS = re.compile(r"[\d}]\s*(?:\\(?:ldots|dots|cdots)|\.\.\.)\s*")


class _Prepared(NamedTuple):
    gold: str
    answer: str
    form: str
    verdict: bool | None


def _same_word(answer: str) -> str | None:
    """One word for the words that mean the same."""
    if not answer or answer[0].isdigit():
        return None
    if _NOTHING.fullmatch(answer):
        return r"\emptyset"
    if _ALL.fullmatch(answer):
        return r"\mathbb{R}"
    word = answer.lower()
    if word in _NUMERALS:
        return str(_NUMERALS.index(word))
    return r"\infty" if word in ("infinity", "infinite", r"+\infty") else None


@lru_cache(maxsize=2048)
def _spelled_gold(gold: str) -> str:
    return _tidy(gold)


def _tidy(text: str) -> str:
    text = _LEADING.sub(r"", spelled(text)).rstrip("}") if _LEADING.match(text) else spelled(text)
    if (match := _SCALED.fullmatch(text)) is not None:
        return rf"{match[1].replace(',', '')} \times 10^{{{_POWERS[match[2]]}}} {match[3]}"
    return text


def _prepared(gold: str, answer: str) -> _Prepared:
    """Both sides as the workers compare them, the form by which the answer votes, and the verdict if it is clear."""
    if _SIMPLE.fullmatch(gold) and _SIMPLE.fullmatch(answer):
        form = normalise(answer)
        return _Prepared(gold, answer, form, decide(_normalise_gold(gold), form))
    cleaned = GradedPair(_clean_gold(gold), clean(answer))
    form = normalise(cleaned.answer)
    if decide(_normalise_gold(cleaned.gold), form) and not _looks_alike(gold, answer):
        return _Prepared(*cleaned, form, True)
    ours, theirs = _spelled_gold(gold), _tidy(answer)
    verdict = _as_a_whole(ours, theirs)
    if verdict is not None:
        return _Prepared(ours, theirs, form, verdict)
    united = unified(ours, theirs)
    if united.verdict is not None:
        return _Prepared(ours, theirs, form, united.verdict)
    ours, theirs = forms.vectors(*forms.derivatives(united.gold, united.answer))
    same = forms.values(ours, theirs)
    if isinstance(same, bool):
        return _Prepared(ours, theirs, form, same)
    ours, theirs = forms.with_names(*same)
    ours, theirs = _clean_gold(forms.alternatives(ours)), clean(forms.alternatives(theirs))
    decision = decide(_normalise_gold(ours), _scaled(normalise(theirs), united.factor))
    if decision is None and united.factor != 1:
        theirs = rf"\frac{{{united.factor.numerator}}}{{{united.factor.denominator}}}({theirs})"
    return _Prepared(ours, theirs, form, decision)


def _looks_alike(gold: str, answer: str) -> bool:
    """Whether cleaning may have dropped what tells the two apart: money, degrees and the like."""
    return gold != answer and bool(_DROPPED.search(gold) and _DROPPED.search(answer))


_DROPPED = re.compile(r"[€£%°]|\\[$%]|circ|degree|[A-Za-z]{2}")


def _scaled(form: str, factor: Fraction) -> str:
    return str(Fraction(form) * factor) if factor != 1 and _PLAIN.fullmatch(form) else form if factor == 1 else ""


def _as_a_whole(gold: str, answer: str) -> bool | None:
    for rule in (forms.times_of_day, forms.residues):
        if (verdict := rule(gold, answer)) is not None:
            return verdict
    if _DOTS.search(answer) and answer.rstrip().endswith(("dots", "...")) and not _DOTS.search(gold):
        return False
    if forms.repeats_lost(gold, answer):
        return False
    if _PLAIN.fullmatch(_normalise_gold(_clean_gold(gold))) and (
        numeral := _IN_BASE.fullmatch(normalise(clean(answer)))
    ):
        return False if numeral[2] != "10" else None
    return None


_clean_gold = lru_cache(maxsize=1024)(clean)
_normalise_gold = lru_cache(maxsize=1024)(normalise)
