"""Equations in texts of a model, such as "3 + 4 = 7" or "9 red apples minus 2 = 7", and whether they are true."""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Iterator
from itertools import pairwise

_SPELLED = {
    r"(?<=\d),(?=\d{3}(?!\d))|\$": "",
    r"(?<![a-z])(?:x|times|multiplied by)(?![a-z])|×": "*",
    r"\bplus\b": "+",
    r"\bminus\b|−": "-",
    r"\bdivided by\b|÷": "/",
    r"\bequals\b": "=",
    r"(?<=\d)(?: [a-z']+){1,2}(?= ?[-+*/=])": "",  # what is counted, as in "9 red apples -"
}
_NUMBER = r"\(*\d+(?:\.\d+)?\)*"
_SIDE = rf"{_NUMBER}(?: ?[-+*/] ?{_NUMBER})*"
_EQUATION = re.compile(rf"(?<![\d.a-z%(])(?<![-+*/])(?<![-+*/] )(?>{_SIDE}(?: ?= ?{_SIDE})+)(?! ?[-+*/(])")
"""A whole one: the end or the beginning of a longer expression is not read."""
_OPERATORS = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv}


def equations(text: str) -> Iterator[bool]:
    """Whether each equation of two or more numbers is true, results rounded to cents; other forms are left out.

    Of "2 * 3 = 6 + 1 = 7" each sign is an equation, and the first is false. One or two words may follow a number.
    """
    text = text.lower()
    for pattern, sign in _SPELLED.items():
        text = re.sub(pattern, sign, text)
    for found in _EQUATION.findall(text):
        for sides in pairwise(side.strip() for side in found.split("=")):
            if any(re.search("[-+*/]", side) for side in sides):
                try:
                    left, right = (_value(ast.parse(side, mode="eval").body) for side in sides)
                    yield abs(left - right) < 0.006
                except ZeroDivisionError:
                    yield False
                except (SyntaxError, ValueError, OverflowError, RecursionError):
                    continue  # a bracket is open, or a number has no value


def _value(node: ast.expr) -> float:
    if isinstance(node, ast.BinOp):
        return float(_OPERATORS[type(node.op)](_value(node.left), _value(node.right)))
    return float(ast.literal_eval(node))
