r"""Graders ``simplerl`` and ``simplerl-units``: the rules of the SimpleRL-Zoo and Qwen2.5-Math evaluations.

They serve to compare with published numbers. They are more lenient than the grader ``math``: a text without a stated
answer gives its last number, a number also counts if it is a hundred times too large or too small, and decimals need
only four digits. Written from a description of those rules, so that single answers may be judged differently; answers
longer than ``MAX_ANSWER`` are no answers here.

Yang et al. (2024), Qwen2.5-Math technical report, arXiv:2409.12122; Zeng et al. (2025), SimpleRL-Zoo, arXiv:2503.18892.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from math import isclose
from typing import ClassVar

from searchlens.catalogue import grader
from searchlens.grading import MAX_ANSWER, NO_ANSWER, Extraction, GradedPair, Grader, How, Verdict, processes
from searchlens.grading.spelling import NUMERALS, Rewriting

TOLERANCE = 1e-4
"""Relative difference of numbers that count as equal."""


@grader("simplerl", mathematical=True)
@dataclass(frozen=True)
class SimpleRL(Grader):
    """Drops a unit at the end of an answer."""

    limits: processes.Limits = processes.DEFAULT
    """The published evaluations count an answer that reaches their limit as wrong; here it is unknown."""

    version = "simplerl-1"
    keep_units: ClassVar[bool] = False

    def extract(self, text: str, stopped: bool) -> Extraction:  # noqa: ARG002 - these rules do not depend on it
        """The first of these that the text has: "final answer is $...$. I hope"; the last box, closed or not; the text
        after the last "the answer is"; the last number.
        """
        raw, how = _find(text)
        answer = " ".join(raw.split()).removeprefix(":").removesuffix(".").removesuffix("/").strip()
        return Extraction(answer, how) if answer and len(answer) <= MAX_ANSWER else NO_ANSWER

    def grade(self, pairs: Sequence[GradedPair], *, workers: int | None = None) -> list[Verdict]:
        """Judge pairs; worker processes start only if a pair needs a symbolic comparison."""
        forms = [GradedPair(*(normalise(text, keep_units=self.keep_units) for text in pair)) for pair in pairs]
        decided = [(decide(*form), form.answer) for form in forms]
        return processes.verdicts("searchlens.grading.symbolic", forms, decided, self.limits, workers)


@grader("simplerl-units", mathematical=True)
class SimpleRLUnits(SimpleRL):
    """Keeps units, for benchmarks in which they matter (Minerva)."""

    version = "simplerl-1-units"
    keep_units = True


# ---- where the answer is

_FINAL = re.compile(r"final answer is \$(.*?)\$\. I hope", re.DOTALL)
_PHRASES = ("he answer is", "final answer is", "答案是")
_NUMBER = re.compile(r"-?\d*\.?\d+", re.ASCII)


def _find(text: str) -> tuple[str, How]:
    if final := _FINAL.search(text):
        return final[1], "fallback"
    _, boxed, rest = text.rpartition("boxed")
    if boxed and not rest.startswith("{"):
        return rest.split("$", maxsplit=1)[0], "boxed"
    if boxed:  # everything, if the braces that open here are not closed
        depth, end = 0, len(rest)
        for brace in re.finditer(r"[{}]", rest):
            depth += 1 if brace[0] == "{" else -1
            if depth == 0:
                end = brace.start()
                break
        return rest[1:end], "boxed"
    for phrase in _PHRASES:
        if phrase in text:
            return text.rpartition(phrase)[2], "fallback"
    numbers = _NUMBER.findall(text.replace(",", ""))
    return (numbers[-1], "number") if numbers else ("", "none")


# ---- normal form

_UNITS = (
    r"(?:square |cubic |sq\.? |cu\.? )?"
    r"(?:units?|degrees?|deg|cm|mm|km|dm|m|meters?|metres?|inch(?:es)?|in|feet|foot|ft|yards?|miles?|mph|km/h|kmph|"
    r"seconds?|secs?|minutes?|mins?|hours?|hrs?|days?|weeks?|months?|years?|grams?|g|kg|pounds?|lbs?|ounces?|oz|"
    r"liters?|litres?|gallons?|dollars?|cents?|rupees?|rs|percent|points?|students?|people|men|women|apples|coins|"
    r"tickets|tiles|marbles|cubes|sides|edges|ways|outfits|pieces|nickels|dimes|pennies|quarters)"
    r"(?:\s*\^\s*\{?\d\}?)?"
)
_WORDS = {word: str(value) for value, word in enumerate(NUMERALS)}
_TRAILING_TEXT = re.compile(r"(?<=.)\\(?:text|mbox)\s*\{[^{}]*\}(?:\^\{?\d\}?)?$", re.DOTALL)
_TRAILING_UNIT = re.compile(rf"(?<=[\d}}\s)])\s*{_UNITS}\.?$")
_rewrite = Rewriting(
    (r"\\!|\\left(?![a-z])|\\right(?![a-z])|\\[,;:] ?|\\mathbf(?![a-z])|[\"']", ""),
    (
        r"\\(?:begin|end)\{(?:array|bmatrix|matrix)\}(?:\{[lcr]*\})?",
        lambda m: f"\\{m[0][1:].split('{')[0]}{{pmatrix}}",
    ),
    (r"\\[td]frac", r"\\frac"),
    (r"\\neq(?![a-z])", r"\\ne"),
    (r"\\leq(?![a-z])", r"\\le"),
    (r"\\geq(?![a-z])", r"\\ge"),
    (r"\\([{}])", r"\1"),
    (r"\^\s*\{?\s*\\circ\s*\}?|\\degree|°", ""),
    (r"\\?\$|\\?%|\\text(?:normal|bf|it|rm)?(?![a-z])|\\mathrm(?![a-z])|\\mbox(?![a-z])", ""),
    (r"(?:^|(?<=[\s,(\[]))[xyz](?:\s*=|\s*\\in\s|\s*\\to\s)", ""),
    (r"(?<!\\)\binfinity\b|(?<!\\)\binf\b", r"\\infty"),
    (r"(?:(?<=[\s{])|^)\.(?=\d)", "0."),
    (r"(\d)\.0+(?!\d)", r"\1"),
    (r"\\sqrt\s*([^{\[\s\\])", r"\\sqrt{\1}"),
    (r"\\frac\s*(\d)\s*(\d)", r"\\frac{\1}{\2}"),
    (r"\\frac\s*(\d)\s*\{", r"\\frac{\1}{"),
    (r"(\\frac\s*\{[^{}]*\})\s*(\d)", r"\1{\2}"),
    (r"\s+", ""),
    (r"^\{([^{}]*)\}$", r"\1"),
    (r"^(-?\d+)/(-?\d+)$", r"\\frac{\1}{\2}"),
    (r"^[a-zA-Z]{1,2}=(?=[^=]+$)", ""),
    (r"\.$", ""),
)


def normalise(answer: str, *, keep_units: bool = False) -> str:
    """The string that is compared and voted on; without a unit at its end, unless ``keep_units``."""
    answer = " ".join(answer.split()).rstrip(".")
    if not keep_units:
        answer = _TRAILING_UNIT.sub("", _TRAILING_TEXT.sub("", answer).strip()) or answer
    answer = _rewrite(answer)
    return _WORDS.get(answer.lower(), answer)


# ---- judging


def number(text: str) -> float | None:
    """A plain number, with commas as thousands separators; None for anything else."""
    try:
        return float(text.replace(",", "")) if re.fullmatch(r"[-+.,\deE]+", text, re.ASCII) else None
    except ValueError:
        return None


def close(gold: float, answer: float) -> bool:
    """Equal within ``TOLERANCE``; either of the two may be a percentage."""
    return any(isclose(answer, candidate, rel_tol=TOLERANCE) for candidate in (gold / 100, gold, gold * 100))


def decide(gold: str, answer: str) -> bool | None:
    """Compare two normalised strings as text or numbers; None if they have to be parsed."""
    if gold.lower() == answer.lower():
        return True
    gold_number, answer_number = number(gold), number(answer)
    if gold_number is None or answer_number is None:
        return None
    return close(gold_number, answer_number)
