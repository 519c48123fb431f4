r"""Recognises answers that are too large to compute by their text.

``10^{10^{10}}`` and ``(10^9)!`` cannot be written out, and trying costs a second each. An answer that is not recognised
here reaches a limit of the worker that judges it, so that this list need not be complete.
"""

from __future__ import annotations

import re
from math import comb, lgamma, log, log10

DEEPEST = 25
"""Largest depth of nested brackets."""
LARGEST_EXPONENT = 100_000
LARGEST_FACTORIAL = 10_000
MOST_TERMS = 100_000

_INTEGER = re.compile(r"\d+(?:,\d{3})*")
_POWER = re.compile(r"(\d+)\s*\^\s*\{?\s*(\d+)")
_FACTORIAL = re.compile(r"(\d+)\s*!")
_RAISED = re.compile(r"(?:\^|\*\*)\s*(?:\{|\()?")
_FACTORIAL_OF_GROUP = re.compile(r"[({]([^(){}]*(?:\{[^(){}]*\}[^(){}]*)*)[)}]\s*!")
_POWER_OF_SUM = re.compile(r"\(([^()^]*)\)\s*\^\s*\{?\s*(\d{1,6})")
_BINOMIAL = re.compile(r"binom\s*\{([^{}]*(?:\{[^{}]*\}[^{}]*)*)\}\s*\{([^{}]*(?:\{[^{}]*\}[^{}]*)*)\}")


def oversized(answer: str) -> bool:
    """Whether an answer is nested deeper than ``DEEPEST``, holds a power, factorial or binomial coefficient of plain
    numbers beyond the largest ones computed, or a power of a sum that multiplies out to more than ``MOST_TERMS``.
    """
    return (
        _depth(answer) > DEEPEST
        or any(_exceeds(operand, LARGEST_EXPONENT) for operand in _exponents(answer))
        or any(_exceeds(number, LARGEST_FACTORIAL) for number in _FACTORIAL.findall(answer))
        or any(_exceeds(group, LARGEST_FACTORIAL) for group in _FACTORIAL_OF_GROUP.findall(answer))
        or any(_exceeds(" ".join(pair), LARGEST_EXPONENT) for pair in _BINOMIAL.findall(answer))
        or any(_terms(inside, int(power)) > MOST_TERMS for inside, power in _POWER_OF_SUM.findall(answer))
    )


def _terms(inside: str, power: int) -> int:
    others = len(re.findall(r"(?<=[^\s+-])\s*[+-]", inside))
    return comb(power + others, others)


def _depth(text: str) -> int:
    depth = deepest = 0
    for character in text:
        if character in "{([":
            depth += 1
            deepest = max(deepest, depth)
        elif character in "})]":
            depth -= 1
    return deepest


def _exponents(text: str) -> list[str]:
    """The operand of each ``^``: a bracketed group, or the digits or single character after it."""
    return [_operand(text, match.end(), bracketed=match[0][-1] in "{(") for match in _RAISED.finditer(text)]


def _operand(text: str, start: int, *, bracketed: bool) -> str:
    if not bracketed:
        digits = _INTEGER.match(text, start)
        return digits[0] if digits else text[start : start + 1]
    depth = 1
    for end in range(start, len(text)):
        depth += (text[end] in "{(") - (text[end] in "})")
        if depth == 0:
            return text[start:end]
    return text[start:]


def _exceeds(text: str, bound: int) -> bool:
    """Whether a number in ``text``, or a power or factorial of plain numbers, is larger than ``bound``."""
    if any(len(number) > 12 or int(number.replace(",", "")) > bound for number in _INTEGER.findall(text)):
        return True
    powers = any(int(power) * log10(max(int(base), 1)) > log10(bound) for base, power in _POWER.findall(text))
    return powers or any(lgamma(int(number) + 1) > log(bound) for number in _FACTORIAL.findall(text))
