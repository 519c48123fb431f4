"""Runs in worker processes: the part of the grader ``simplerl`` that parses answers and compares them by sympy."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any

# As in ``equality``: no gmpy2.
os.environ["SYMPY_GROUND_TYPES"] = "python"
os.environ["MPMATH_NOGMPY"] = "1"

from latex2sympy2_extended import latex2sympy
from sympy import N, simplify

from searchlens.grading import equality  # noqa: F401 - its import prepares the parser
from searchlens.grading.simplerl import close, decide

_BRACKETED = re.compile(r"[(\[](.+)[)\]]", re.DOTALL)
_MATRIX = re.compile(r"\\begin\{pmatrix\}(.*)\\end\{pmatrix\}", re.DOTALL)


def judge(gold: str, answer: str) -> bool:
    """Whether two normalised answers are equal: as strings or numbers, part by part, as equations, or symbolically."""
    decision = decide(gold, answer)
    if decision is not None:
        return decision
    if _by_parts(gold, answer, _BRACKETED, lambda text: text.split(",")) or _by_parts(gold, answer, _MATRIX, _cells):
        return True
    if gold.count("=") == answer.count("=") == 1:
        ours, theirs = (f"{left}-({right})" for left, right in (text.split("=") for text in (gold, answer)))
        return _equal(ours, theirs) or _equal(f"-({ours})", theirs)
    return _equal(gold, answer)


def _by_parts(gold: str, answer: str, shape: re.Pattern[str], split: Any) -> bool:
    match, answer_match = shape.fullmatch(gold), shape.fullmatch(answer)
    if not (match and answer_match):
        return False
    ours, theirs = split(match[1]), split(answer_match[1])
    return len(ours) == len(theirs) > 1 and all(map(judge, ours, theirs))


def _cells(text: str) -> list[str]:
    """Cells row by row, with an empty cell after each row, so that matrices of different shapes differ."""
    return [cell.strip() for row in text.split(r"\\") if row.strip() for cell in f"{row}&".split("&")]


_TESTS: tuple[Callable[[Any, Any], bool], ...] = (
    lambda gold, answer: bool(gold == answer),
    lambda gold, answer: bool(gold.equals(answer) or simplify(gold - answer) == 0),
    lambda gold, answer: close(float(N(gold)), float(N(answer))),
)


@lru_cache(maxsize=512)
def _parse(text: str) -> Any:
    try:
        return latex2sympy(text)
    except Exception:  # not an expression
        return None


def _equal(gold: str, answer: str) -> bool:
    """Whether sympy finds two expressions equal; False if one cannot be parsed."""
    expressions = _parse(gold), _parse(answer)
    if expressions[0] is None or expressions[1] is None:
        return False
    for test in _TESTS:
        try:
            if test(*expressions):
                return True
        except MemoryError:
            raise
        except Exception:  # this test does not apply to them
            continue
    return False


if judge(r"\frac{x}{2}", "0.5x") is not True:
    raise RuntimeError("the installed latex2sympy is broken: it does not find x/2 equal to 0.5x")
