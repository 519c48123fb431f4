r"""Runs in worker processes: one comparison by math-verify.

Only workers import this module, because importing math-verify takes seconds.
"""

from __future__ import annotations

import logging
import os
from functools import lru_cache
from itertools import product
from typing import Any

# Set before sympy is imported. Inside a long gmpy2 call no signal is handled, so that 10^9! would not end.
os.environ["SYMPY_GROUND_TYPES"] = "python"
os.environ["MPMATH_NOGMPY"] = "1"

from antlr4.atn.PredictionMode import PredictionMode
from latex2sympy2_extended.latex2sympy2 import PSParser, _Latex2Sympy
from math_verify import grader, parse, verify
from sympy import And, Expr, FiniteSet, Integer, Interval, Poly, PolynomialError, Union, oo, simplify
from sympy.core.relational import Relational

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
    """Parse the usual kinds of answers once: the parser caches its predictions, and each worker inherits the cache.

    Raises
    ------
    RuntimeError
        math-verify is broken.
    """
    logging.getLogger("math_verify").setLevel(logging.CRITICAL)  # it would warn of each limit reached; ours are counted
    hasten()
    # A parser that does not fit its runtime fails on every answer, so that every answer would be wrong.
    if judge(r"\frac{1}{2}+x", "x+0.5") is not True:
        raise RuntimeError("the installed math-verify is broken: it does not find 1/2+x equal to x+0.5")
    for answer in _USUAL:
        judge(r"\sqrt{3}+x", answer)


def hasten(*, on: bool = True) -> None:
    """Replace the two slowest parts of math-verify by faster ones with the same results, or restore them."""
    _Latex2Sympy.create_parser = _two_stage_parser if on else _create_parser
    grader.simplify = _simplified if on else simplify


def _two_stage_parser(self: Any, latex: str) -> Any:
    """A parser that predicts with SLL first, and again with LL only after a syntax error.

    The grammar needs full-context (LL) prediction at every bracket. ANTLR never caches that, and it takes nine tenths
    of the time of tuples and intervals. SLL prediction gives the same tree or a syntax error.

    References
    ----------
    Parr, Harwell, Fisher (2014), Adaptive LL(*) parsing: the power of dynamic analysis, section 3.2 (two-stage).
    """
    parser = _create_parser(self, latex)
    parser._interp.predictionMode = PredictionMode.SLL

    def math() -> Any:
        try:
            return PSParser.math(parser)
        except Exception:  # its listener raises no other class
            return _create_parser(self, latex).math()

    parser.math = math
    return parser


def _simplified(difference: Any) -> Any:
    """``simplify`` of a difference, of which only matters whether it is zero. A number that clearly is not zero, and a
    polynomial with rational coefficients, need no search for a simpler form.
    """
    if isinstance(difference, Expr):
        if not difference.free_symbols:
            value = difference.evalf(15)
            # Decimals that cancel leave their rounding error, which grows with them.
            if value.is_number and abs(value) > 1e-6 * max([1, *(abs(term.evalf(3)) for term in difference.args)]):
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
    """The expressions that an answer can be read as, best first; empty if it cannot be parsed.

    Only the whole answer is read: of an expression that it does not know, math-verify would take a number inside.
    """
    try:
        box = f"\\boxed{{{text}}}"
        return tuple(parse(box, extraction_mode="first_match", parsing_timeout=None, raise_on_error=True))
    except Exception:  # sympy and the parser raise nearly any class
        return ()


def _same(gold: Any, answer: Any) -> bool:
    try:
        if verify(gold, answer, timeout_seconds=None, raise_on_error=True):
            return not _tiny_and_apart(gold, answer)
        return _same_range(gold, answer)
    except MemoryError:
        raise
    except Exception:  # the two cannot be compared
        return False


def _tiny_and_apart(gold: Any, answer: Any) -> bool:
    """Whether two different numbers are so small that math-verify, which rounds to six decimals, takes both for 0."""
    if not (isinstance(gold, Expr) and isinstance(answer, Expr)) or gold.free_symbols or answer.free_symbols:
        return False
    values = [reading.evalf(15) for reading in (gold, answer)]
    size = max(abs(value) for value in values)
    return bool(0 < size < 1e-4 and abs(values[0] - values[1]) > 1e-6 * size)


def _same_range(gold: Any, answer: Any) -> bool:
    """Whether inequalities in one variable describe the interval, or union of intervals, that the gold answer is. Two
    finite numbers in round brackets may be a point, so that inequalities do not count for them.
    """
    if not isinstance(gold, Interval | Union) or (isinstance(gold, Interval) and gold.is_open and gold.measure != oo):
        return False
    parts = answer.args if isinstance(answer, FiniteSet) else (answer,)
    if not all(isinstance(part, Relational | And) for part in parts):
        return False
    return bool(Union(*(part.as_set() for part in parts)) == gold)


def judge(gold: str, answer: str) -> bool:
    """Whether an answer equals the gold answer; both in LaTeX, without a box.

    The comparison is not symmetric: gold ``1<x<2`` accepts ``(1,2)``, gold ``(1,2)`` does not accept ``1<x<2``.
    """
    # Compared one by one, because an error in the first comparison must not hide a success of the second.
    return any(_same(*readings) for readings in product(parsed(gold), parsed(answer)))


prepare()  # in the server that the workers are forked from
