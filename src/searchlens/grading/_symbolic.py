"""Runs in worker processes: the part of the grader ``simplerl`` that takes answers apart and asks sympy."""

from __future__ import annotations

import os
import re
from functools import lru_cache
from typing import Any

# As in ``_equality``: no gmpy2.
os.environ["SYMPY_GROUND_TYPES"] = "python"
os.environ["MPMATH_NOGMPY"] = "1"

from latex2sympy2_extended import latex2sympy
from sympy import N, simplify

from searchlens.grading import _equality  # noqa: F401 - makes the parser ready
from searchlens.grading.simplerl import close, decided

_BRACKETED = re.compile(r"[(\[](.+)[)\]]", re.DOTALL)
_MATRIX = re.compile(r"\\begin\{pmatrix\}(.*)\\end\{pmatrix\}", re.DOTALL)


def judge(gold: str, answer: str) -> bool:
    """Whether two normalised answers are equal: as strings or numbers, part by part, as equations, or symbolically."""
    known = decided(gold, answer)
    if known is not None:
        return known
    if _by_parts(gold, answer, _BRACKETED, _items) or _by_parts(gold, answer, _MATRIX, _cells):
        return True
    if gold.count("=") == answer.count("=") == 1:
        one, other = (f"{left}-({right})" for left, right in (text.split("=") for text in (gold, answer)))
        return _symbolically(one, other) or _symbolically(f"-({one})", other)
    return _symbolically(gold, answer)


def _by_parts(gold: str, answer: str, shape: re.Pattern[str], split: Any) -> bool:
    one, other = shape.fullmatch(gold), shape.fullmatch(answer)
    if not (one and other):
        return False
    ours, theirs = split(one[1]), split(other[1])
    return len(ours) == len(theirs) > 1 and all(map(judge, ours, theirs))


def _items(text: str) -> list[str]:
    return text.split(",")


def _cells(text: str) -> list[str]:
    """Cells row by row, an empty one after each row, so that matrices of different shapes differ."""
    return [cell.strip() for row in text.split(r"\\") if row.strip() for cell in f"{row}&".split("&")]


@lru_cache(maxsize=512)
def _read(text: str) -> Any:
    try:
        return latex2sympy(text)
    except Exception:  # unreadable
        return None


def _symbolically(gold: str, answer: str) -> bool:
    one, other = _read(gold), _read(answer)
    if one is None or other is None:
        return False
    for test in (_identical, _difference_vanishes, _numerically_close):
        try:
            if test(one, other):
                return True
        except MemoryError:
            raise
        except Exception:  # not comparable in this way
            continue
    return False


def _identical(gold: Any, answer: Any) -> bool:
    return bool(gold == answer)


def _difference_vanishes(gold: Any, answer: Any) -> bool:
    return bool(gold.equals(answer) or simplify(gold - answer) == 0)


def _numerically_close(gold: Any, answer: Any) -> bool:
    return close(float(N(gold)), float(N(answer)))


if judge(r"\frac{x}{2}", "0.5x") is not True:
    raise RuntimeError("latex2sympy does not work here: it does not find x/2 equal to 0.5x")
