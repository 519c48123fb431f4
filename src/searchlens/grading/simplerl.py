r"""Mathematical answers by the rules of the SimpleRL-Zoo and Qwen2.5-Math evaluations, to compare with their numbers.

More lenient than the grader ``math``: a text without any stated answer still gives its last number; a number also
counts when it is a hundred times too large or too small; decimals need four digits only. Written from a description of
those rules, so single answers may come out otherwise; answers beyond ``MAX_ANSWER`` are none here.

References
----------
Yang et al. (2024), Qwen2.5-Math technical report, arXiv:2409.12122; Zeng et al. (2025), SimpleRL-Zoo, arXiv:2503.18892.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from math import isclose

from searchlens.benchmarks import Question
from searchlens.grading import MAX_ANSWER, NO_ANSWER, Extraction, How, Pair, Verdict, _workers
from searchlens.grading._workers import Limits
from searchlens.grading.size import oversized

GRADER_VERSION = "simplerl-1"
VOTES = True
TOLERANCE = 1e-4
"""Relative difference of numbers that count as equal."""


def reference(question: Question) -> str:
    """The gold answer."""
    return question.gold


# ---- where the answer is

_HOPED = re.compile(r"final answer is \$(.*?)\$\. I hope", re.DOTALL)
_SAID = ("he answer is", "final answer is", "答案是")
_NUMBER = re.compile(r"-?\d*\.?\d+", re.ASCII)


def extract(text: str, stopped: bool) -> Extraction:  # noqa: ARG001 - these rules do not ask
    """The first that there is of: "final answer is $...$. I hope"; the last box, closed or not; what follows the last
    "the answer is"; the last number.
    """
    raw, how = _found(text)
    answer = " ".join(raw.split()).removeprefix(":").removesuffix(".").removesuffix("/").strip()
    return Extraction(answer, how) if answer and len(answer) <= MAX_ANSWER else NO_ANSWER


def _found(text: str) -> tuple[str, How]:
    if hoped := _HOPED.search(text):
        return hoped[1], "fallback"
    if "boxed" in text:
        return _box(text.rpartition("boxed")[2]), "boxed"
    for phrase in _SAID:
        if phrase in text:
            return text.rpartition(phrase)[2], "fallback"
    numbers = _NUMBER.findall(text.replace(",", ""))
    return (numbers[-1], "number") if numbers else ("", "none")


def _box(rest: str) -> str:
    """What is in the braces that open here; all the rest when they are not closed."""
    if not rest.startswith("{"):
        return rest.split("$", maxsplit=1)[0]
    depth = 0
    for brace in re.finditer(r"[{}]", rest):
        depth += 1 if brace[0] == "{" else -1
        if depth == 0:
            return rest[1 : brace.start()]
    return rest[1:]


# ---- normal form

_UNITS = (
    r"(?:square |cubic |sq\.? |cu\.? )?"
    r"(?:units?|degrees?|deg|cm|mm|km|dm|m|meters?|metres?|inch(?:es)?|in|feet|foot|ft|yards?|miles?|mph|km/h|kmph|"
    r"seconds?|secs?|minutes?|mins?|hours?|hrs?|days?|weeks?|months?|years?|grams?|g|kg|pounds?|lbs?|ounces?|oz|"
    r"liters?|litres?|gallons?|dollars?|cents?|rupees?|rs|percent|points?|students?|people|men|women|apples|coins|"
    r"tickets|tiles|marbles|cubes|sides|edges|ways|outfits|pieces|nickels|dimes|pennies|quarters)"
    r"(?:\s*\^\s*\{?\d\}?)?"
)
_WORDS = {
    word: str(value)
    for value, word in enumerate(
        ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"]
    )
}
_TRAILING_TEXT = re.compile(r"(?<=.)\\(?:text|mbox)\s*\{[^{}]*\}(?:\^\{?\d\}?)?$", re.DOTALL)
_TRAILING_UNIT = re.compile(rf"(?<=[\d}}\s)])\s*{_UNITS}\.?$")
_REWRITES = [
    (re.compile(pattern), replacement)
    for pattern, replacement in (
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
]


def normalise(answer: str, *, units: bool = True) -> str:
    """The string that is compared, and voted on; ``units``: a unit at the end is dropped."""
    answer = " ".join(answer.split()).rstrip(".")
    if units:
        answer = _TRAILING_UNIT.sub("", _TRAILING_TEXT.sub("", answer).strip()) or answer
    for pattern, replacement in _REWRITES:
        answer = pattern.sub(replacement, answer)
    return _WORDS.get(answer.lower(), answer)


# ---- judging


def number(text: str) -> float | None:
    """A plain number, commas as thousands separators; None for anything else."""
    try:
        return float(text.replace(",", "")) if re.fullmatch(r"[-+.,\deE]+", text, re.ASCII) else None
    except ValueError:
        return None


def close(gold: float, answer: float) -> bool:
    """Equal within ``TOLERANCE``, where either may be a percentage."""
    return any(isclose(answer, candidate, rel_tol=TOLERANCE) for candidate in (gold / 100, gold, gold * 100))


def decided(gold: str, answer: str) -> bool | None:
    """What two normalised strings alone decide; None when they have to be taken apart."""
    if gold.lower() == answer.lower():
        return True
    one, other = number(gold), number(answer)
    return close(one, other) if one is not None and other is not None else None


def grade(
    pairs: Sequence[Pair], limits: Limits = _workers.DEFAULT, workers: int | None = None, *, units: bool = True
) -> list[Verdict]:
    """Judge pairs; worker processes start only when some pair needs symbolic comparison.

    Parameters
    ----------
    pairs : sequence of Pair
    limits : Limits
        Reaching them counts as wrong in the published evaluations; here it is unknown, which is not correct either.
    workers : int, optional
        Processes, >= 1; by default one per available core.
    units : bool
        As in ``normalise``.
    """
    forms = [Pair(normalise(pair.gold, units=units), normalise(pair.answer, units=units)) for pair in pairs]
    found = [decided(*form) for form in forms]
    open_ = [i for i, outcome in enumerate(found) if outcome is None and not oversized(forms[i].answer)]
    if open_:
        judged = _workers.judge("searchlens.grading._symbolic", [forms[i] for i in open_], limits, workers)
        for i, outcome in zip(open_, judged, strict=True):
            found[i] = outcome
    return [Verdict(correct, form.answer) for correct, form in zip(found, forms, strict=True)]
