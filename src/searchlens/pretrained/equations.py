"""Simple equations in texts of a model, such as "3 + 4 = 7", and whether they are true."""

from __future__ import annotations

import re
from collections.abc import Iterator

_EQUATION = re.compile(
    r"(?<![\d.])(?<![-+*/x])(?<![-+*/x] )"  # the end of a longer expression is not read
    r"(\d+(?:\.\d+)?) ?([-+*/x]) ?\$?(\d+(?:\.\d+)?) ?= ?\$?(\d+(?:\.\d+)?)(?![\d.]*[-+*/\d])"
)


def equations(text: str) -> Iterator[bool]:
    """Whether each equation of two numbers is true, results rounded to cents; what is not of that form is left out."""
    return (_is_true(*equation) for equation in _EQUATION.findall(text))


def _is_true(left: str, sign: str, right: str, result: str) -> bool:
    a, b = float(left), float(right)
    if sign == "/" and b == 0:
        return False
    value = {"+": a + b, "-": a - b, "*": a * b, "x": a * b, "/": a / b if b else 0.0}[sign]
    return abs(value - float(result)) < 0.006
