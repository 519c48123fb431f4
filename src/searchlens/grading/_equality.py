r"""Runs in worker processes: one comparison through math-verify.

Nothing outside of workers imports this: math-verify takes seconds to import.
"""

from __future__ import annotations

import logging
import os
from functools import lru_cache
from itertools import product
from typing import Any

# Before sympy is imported: inside one long gmpy2 call no signal is handled, so 10^9! would not end.
os.environ["SYMPY_GROUND_TYPES"] = "python"
os.environ["MPMATH_NOGMPY"] = "1"

from antlr4.atn.PredictionMode import PredictionMode
from latex2sympy2_extended.latex2sympy2 import PSParser, _Latex2Sympy
from math_verify import grader, parse, verify
from sympy import Expr, Integer, Poly, PolynomialError, simplify

_create_parser = _Latex2Sympy.create_parser


_USUAL = (
    *("7", r"\frac{1}{2}", r"3\sqrt{2}", r"2x^2+3x-5", r"\pi r^2", "x=5", "2<x<3", r"5\%", r"90^\circ", r"\text{red}"),
    *(
        r"(1, \frac{2}{3})",
        r"[1, \infty)",
        r"(-1,2]\cup[3,4)",
        r"\{1, 2\}",
        "1, 2",
        r"\begin{pmatrix}1\\2\end{pmatrix}",
    ),
)


def prepare() -> None:
    """Parse the usual kinds of answers once: the parser learns from what it meets, and each worker inherits that.

    Raises
    ------
    RuntimeError
        math-verify is broken.
    """
    logging.getLogger("math_verify").setLevel(logging.CRITICAL)  # limits are ours, and are counted
    hasten()
    # A parser that does not fit its runtime fails on everything, and would make every answer wrong.
    if judge(r"\frac{1}{2}+x", "x+0.5") is not True:
        raise RuntimeError("math-verify does not work here: it does not find 1/2+x equal to x+0.5")
    for answer in _USUAL:
        judge(r"\sqrt{3}+x", answer)


def hasten(*, on: bool = True) -> None:
    """Replace the two slowest parts of math-verify by faster ones with the same results, or put them back."""
    _Latex2Sympy.create_parser = _two_stage_parser if on else _create_parser
    grader.simplify = _simplified if on else simplify


def _two_stage_parser(self: Any, latex: str) -> Any:
    """A parser that predicts with SLL first, and with LL only where that finds a syntax error.

    The grammar needs full-context prediction, which ANTLR never caches, at every bracket; for tuples and intervals it
    is nine tenths of all time. SLL prediction gives the same tree or a syntax error.

    References
    ----------
    Parr, Harwell, Fisher (2014), Adaptive LL(*) parsing: the power of dynamic analysis, section 3.2 (two-stage).
    """
    parser = _create_parser(self, latex)
    parser._interp.predictionMode = PredictionMode.SLL

    def math() -> Any:
        try:
            return PSParser.math(parser)
        except Exception:  # the only kind that its listener raises
            return _create_parser(self, latex).math()

    parser.math = math
    return parser


def _simplified(difference: Any) -> Any:
    """``simplify`` of a difference, of which only whether it is zero matters: a number that is clearly not, and a
    polynomial with rational coefficients, need no search for a simpler form.
    """
    if isinstance(difference, Expr):
        if not difference.free_symbols:
            value = difference.evalf(15)
            if value.is_number and abs(value) > 1e-6:
                return value
        elif (polynomial := _polynomial(difference)) is not None:
            return Integer(0 if polynomial.is_zero else 1)
    return simplify(difference)


def _polynomial(expression: Any) -> Any:
    try:
        polynomial = Poly(expression, *expression.free_symbols)
    except PolynomialError:
        return None
    return polynomial if polynomial.domain.is_ZZ or polynomial.domain.is_QQ else None


@lru_cache(maxsize=512)
def parsed(text: str) -> tuple[Any, ...]:
    """Readings of an answer, best first; none when it cannot be read."""
    try:
        return tuple(parse(f"\\boxed{{{text}}}", parsing_timeout=None, raise_on_error=True))
    except Exception:  # unreadable: sympy and the parser raise nearly anything
        return ()


def _same(gold: Any, answer: Any) -> bool:
    try:
        return bool(verify(gold, answer, timeout_seconds=None, raise_on_error=True))
    except MemoryError:
        raise
    except Exception:  # not comparable
        return False


def judge(gold: str, answer: str) -> bool:
    """Whether an answer equals the gold one; both LaTeX, without a box.

    The comparison is not symmetric: ``1<x<2`` accepts ``(1,2)``, but not the other way round.
    """
    # One comparison at a time: an error in the first must not hide that the second would succeed.
    return any(_same(*readings) for readings in product(parsed(gold), parsed(answer)))


prepare()  # in the server that the workers fork from
