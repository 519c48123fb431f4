"""The grader that follows the SimpleRL-Zoo and Qwen rules: where it looks, and what it is lenient about."""

from __future__ import annotations

import pytest

from searchlens.grading import NO_ANSWER, Extraction, GradedPair, simplerl
from searchlens.grading.math import Math
from searchlens.grading.simplerl import SimpleRL, SimpleRLUnits

SIMPLERL = SimpleRL()

# ---- extraction, in the published order


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (r"final answer is $4$. I hope it is correct. \boxed{5}", Extraction("4", "fallback")),
        (r"\boxed{1} and \boxed{2}. The answer is 3", Extraction("2", "boxed")),
        (r"\boxed{\frac{1}{2}} is it", Extraction(r"\frac{1}{2}", "boxed")),
        (r"\boxed{7", Extraction("7", "boxed")),  # an unclosed box holds all the rest
        (r"so $\boxed 7$.", Extraction("7", "boxed")),
        ("The answer is 4. No, the answer is: 5.", Extraction("5", "fallback")),
        ("My final answer is\n 6/", Extraction("6", "fallback")),
        ("所以答案是8。", Extraction("8。", "fallback")),
        ("we have 3 apples and 1,250 pears", Extraction("1250", "number")),
        ("x = -0.5 or so", Extraction("-0.5", "number")),
        ("no idea", NO_ANSWER),
        ("", NO_ANSWER),
        (rf"\boxed{{{'1+' * 400}1}}", NO_ANSWER),
    ],
)
def test_answers_are_looked_for_in_the_published_order(text: str, expected: Extraction) -> None:
    assert SIMPLERL.extract(text, stopped=True) == expected
    assert SIMPLERL.extract(text, stopped=False) == expected  # these rules do not ask


# ---- normal form


@pytest.mark.parametrize(
    ("answer", "form"),
    [
        (r"\dfrac{1}{2}", r"\frac{1}{2}"),
        (r"\frac12", r"\frac{1}{2}"),
        ("1/2", r"\frac{1}{2}"),
        (r"\sqrt3", r"\sqrt{3}"),
        (r"90^\circ", "90"),
        (r"\$5.00", "5"),
        (r"15\%", "15"),
        (r"5\text{ cm}", "5"),
        ("12 inches", "12"),
        ("36 square units", "36"),
        ("x = 7", "7"),
        (r"x \in [1,2]", "[1,2]"),
        ("k=3", "3"),
        (r"\text{Monday}", "Monday"),
        ("seven", "7"),
        (".5", "0.5"),
        (r"\left( 1, 2 \right)", "(1,2)"),
        (r"\{1,2\}", "1,2"),
        (r"\text{(C)}", "(C)"),
    ],
)
def test_the_normal_form(answer: str, form: str) -> None:
    assert simplerl.normalise(answer) == form


def test_units_are_kept_on_request() -> None:
    assert simplerl.normalise("12 inches", keep_units=True) == "12inches"
    assert SIMPLERL.grade([GradedPair("12", "12 inches")])[0].correct is True
    assert SimpleRLUnits().grade([GradedPair("12", "12 inches")])[0].correct is False


# ---- equality

EQUAL = [
    ("ABC", "abc"),
    ("0.33333", r"\frac{1}{3}"),
    ("100000", "100001"),  # four digits are enough
    ("0.5", "50"),  # a percentage of it
    ("50", r"0.5\%"),
    ("0.5", "0.005"),
    ("1,234", "1234"),
    (r"(1,\frac{1}{2})", "(1, 0.5)"),
    ("[1,2)", "(1,2)"),  # brackets play no part
    (r"\begin{pmatrix}1\\2\end{pmatrix}", r"\begin{pmatrix}1.0\\2\end{pmatrix}"),
    ("x=5", "5"),
    ("2x+3y=6", "6=2x+3y"),
    ("2x+3y=6", "3y-6=-2x"),
    ("x^2+2x+1", "(x+1)^2"),
    (r"2\sqrt{3}", r"\sqrt{12}"),
    (r"\sqrt{2}", "1.41421"),
]
UNEQUAL = [
    ("100000", "100100"),
    ("0.5", "5"),
    ("(1,2)", "(2,1)"),
    ("(1,2)", "(1,2,3)"),
    (r"\begin{pmatrix}1&2\\3&4\end{pmatrix}", r"\begin{pmatrix}1&2&3&4\end{pmatrix}"),
    ("x^2", "x^3"),
    ("y=2x+1", "y=2x-1"),
    ("2x+3y=6", "2x+3y=5"),
    ("5", "abc"),
    ("5", r"\frac{"),
]


def test_equality() -> None:
    pairs = [GradedPair(*pair) for pair in EQUAL + UNEQUAL]
    correct = {pair: verdict.correct for pair, verdict in zip(pairs, SIMPLERL.grade(pairs, workers=2), strict=True)}
    assert [pair for pair in EQUAL if correct[GradedPair(*pair)] is not True] == []
    assert [pair for pair in UNEQUAL if correct[GradedPair(*pair)] is not False] == []


def test_its_leniency_is_its_own() -> None:
    lenient = [GradedPair("0.5", "50"), GradedPair("100000", "100001")]
    assert [verdict.correct for verdict in SIMPLERL.grade(lenient)] == [True, True]
    assert [verdict.correct for verdict in Math().grade(lenient)] == [False, False]
