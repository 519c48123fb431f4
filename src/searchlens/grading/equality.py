r"""Runs in worker processes: one comparison by math-verify.

Only workers import this module, because importing math-verify takes seconds.
"""

from __future__ import annotations

import logging
import os
import random
from collections.abc import Callable
from contextlib import suppress
from functools import lru_cache
from itertools import product
from typing import Any

# Set before sympy is imported. Inside a long gmpy2 call no signal is handled, so that 10^9! would not end.
os.environ["SYMPY_GROUND_TYPES"] = "python"
os.environ["MPMATH_NOGMPY"] = "1"

import sympy
from antlr4.atn.PredictionMode import PredictionMode
from latex2sympy2_extended.latex2sympy2 import PSParser, _Latex2Sympy
from latex2sympy2_extended.math_normalization import NormalizationConfig
from math_verify import LatexExtractionConfig, grader, parse, verify
from math_verify.parser import ExprExtractionConfig

from searchlens.grading import forms

_create_parser = _Latex2Sympy.create_parser

_USUAL = (
    *("7", r"\frac{1}{2}", r"3\sqrt{2}", r"2x^2+3x-5", r"\pi r^2", "x=5", "2<x<3", r"5\%", r"90^\circ", r"\text{red}"),
    *(r"(1, \frac{2}{3})", r"[1, \infty)", r"(-1,2]\cup[3,4)", r"\{1, 2\}", "1, 2"),
    r"\begin{pmatrix}1\\2\end{pmatrix}",
)


def prepare() -> None:
    """Parse usual answers once: workers inherit the cache of the parser. RuntimeError if math-verify is broken."""
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
    grader.simplify = _simplified if on else sympy.simplify


def _two_stage_parser(self: Any, latex: str) -> Any:
    """A parser that predicts with SLL first, and again with LL only after a syntax error.

    The grammar needs full-context (LL) prediction at every bracket. ANTLR never caches that, and it takes nine tenths
    of the time of tuples and intervals. SLL prediction gives the same tree or a syntax error (Parr, Harwell, Fisher
    (2014), Adaptive LL(*) parsing: the power of dynamic analysis, section 3.2).
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
    if isinstance(difference, sympy.Expr):
        if not difference.free_symbols:
            value = difference.evalf(15)
            # Decimals that cancel leave their rounding error, which grows with them.
            if value.is_number and abs(value) > 1e-6 * max([1, *(abs(term.evalf(3)) for term in difference.args)]):
                return value
        else:
            with suppress(sympy.PolynomialError):
                polynomial = sympy.Poly(difference, *difference.free_symbols)
                if polynomial.domain.is_ZZ or polynomial.domain.is_QQ:
                    return sympy.Integer(0 if polynomial.is_zero else 1)
    return sympy.simplify(difference)


_WHOLE = (
    # Its units are letters such as t and c, so that t/3 would be 1/3.
    LatexExtractionConfig(
        normalization_config=NormalizationConfig(
            basic_latex=True, units=False, malformed_operators=True, nits=True, boxed="all"
        )
    ),
    ExprExtractionConfig(),
)


@lru_cache(maxsize=512)
def parsed(text: str) -> tuple[Any, ...]:
    """The expressions that an answer can be read as, best first; empty if it cannot be parsed.

    Only the whole answer is read: of an expression that it does not know, math-verify would take a number inside.
    """
    try:
        box = f"\\boxed{{{text}}}"
        return tuple(parse(box, _WHOLE, extraction_mode="first_match", parsing_timeout=None, raise_on_error=True))
    except Exception:  # sympy and the parser raise nearly any class
        return ()


def _tried(rule: Callable[[Any, Any], bool], gold: Any, answer: Any) -> bool:
    """What a rule says; False if it does not apply to the two."""
    try:
        return rule(gold, answer)
    except MemoryError:
        raise
    except Exception:  # sympy raises nearly any class
        return False


def _same(gold: Any, answer: Any) -> bool:
    if not verify(gold, answer, timeout_seconds=None, raise_on_error=True):
        return False
    if any(not isinstance(side, str) and side.has(sympy.zoo, sympy.nan) for side in (gold, answer)):
        return bool(gold == answer)
    return not _tried(_tiny_and_apart, gold, answer)


def _tiny_and_apart(gold: Any, answer: Any) -> bool:
    """Whether two different numbers are so small that math-verify, which rounds to six decimals, takes both for 0."""
    if gold.free_symbols or answer.free_symbols:
        return False
    values = [reading.doit().evalf(15) for reading in (gold, answer)]
    if not all(value.is_number and value.is_finite for value in values):
        return False
    size = max(abs(value) for value in values)
    return bool(0 < size < 1e-4 and abs(values[0] - values[1]) > 1e-6 * size)


def _same_range(gold: Any, answer: Any) -> bool:
    """Whether two sides describe one range of one variable, of which at least one is an inequality. Two finite numbers
    in round brackets may be a point, so that inequalities do not count for them.
    """
    if isinstance(gold, sympy.Interval) and gold.is_open and gold.measure != sympy.oo:
        return False
    if not any(reading.atoms(sympy.Rel) for reading in (gold, answer)):
        return False
    names = [reading.free_symbols for reading in (gold, answer)]
    if max(map(len, names)) != 1 or (all(names) and names[0] != names[1]):
        return False
    return bool(_range(gold) == _range(answer))


def _range(reading: Any) -> Any:
    """The set of numbers that an interval, an inequality or a list of them describes."""
    if isinstance(reading, sympy.Interval | sympy.Union):
        return reading
    if isinstance(reading, sympy.Eq) and isinstance(reading.rhs, sympy.Set):
        return reading.rhs
    return sympy.Union(*map(_range, reading.args)) if isinstance(reading, sympy.FiniteSet) else reading.as_set()


# ---- a second reading

_NO_VALUES = (sympy.nan, sympy.zoo, sympy.true, sympy.false)
_INEXACT = (sympy.Float, sympy.floor, sympy.ceiling, sympy.Mod)
"""What values at points do not tell apart."""


def _same_otherwise(gold: Any, answer: Any) -> bool:
    """Whether two sides are equal with i as the imaginary unit, real odd roots, and everything evaluated."""
    seconds = [
        side.xreplace({symbol: sympy.I for symbol in side.free_symbols if symbol.name == "i"}).doit()
        for side in (gold, answer)
    ]
    if not any(side.has(sympy.I) for side in seconds):
        seconds = [sympy.real_root(side) for side in seconds]
    if all(isinstance(side, sympy.Expr) and not side.has(*_NO_VALUES, *_INEXACT) for side in seconds):
        return _same_values(*seconds)
    if seconds == [gold, answer] or any(side.has(*_NO_VALUES) for side in seconds):
        return False
    return _same(*seconds)


_POINTS = 9
_VALID = 4


def _same_values(gold: Any, answer: Any) -> bool:
    """Whether two exact expressions have equal values at points of both signs, wherever one of them is real."""
    symbols = sorted(gold.free_symbols | answer.free_symbols, key=str)
    is_complex = gold.has(sympy.I) or answer.has(sympy.I)
    draw, agreeing = random.Random(1), 0
    for place in range(_POINTS if symbols else 1):
        signs = (1,) if place < _VALID else (-1, 1)
        point = {symbol: draw.choice(signs) * sympy.Float(draw.uniform(0.1, 3), 120) for symbol in symbols}
        one, other = (side.evalf(120, subs=point) for side in (gold, answer))
        if not all(value.is_number and value.is_finite for value in (one, other)):
            continue
        if not symbols or is_complex or one.is_real or other.is_real:
            size = max(abs(one), abs(other))
            # Of very large and small values so many digits may not tell them apart.
            if one != other and not (1e-40 < size < 1e40 and abs(one - other) <= sympy.Float("1e-100") * size):
                return False
            agreeing += 1
    return agreeing >= (_VALID if symbols else 1)


def judge(gold: str, answer: str) -> bool:
    """Whether an answer equals the gold answer; both in LaTeX, without a box.

    The comparison is not symmetric: gold ``1<x<2`` accepts ``(1,2)``, gold ``(1,2)`` does not accept ``1<x<2``.
    """
    if (ours := forms.cases(gold)) and (theirs := forms.cases(answer)):
        # The values under equal conditions are equal, in any order.
        return len(ours) == len(theirs) and all(
            any(
                all(one == other or judge(one, other) for one, other in zip(row, other_row, strict=True))
                for other_row in theirs
            )
            for row in ours
        )
    # Compared one by one, because an error in the first comparison must not hide a success of the second.
    readings = list(product(parsed(gold), parsed(answer)))
    return any(_tried(rule, *pair) for rule in (_same, _same_range, _same_otherwise) for pair in readings)


prepare()  # in the server that the workers are forked from
