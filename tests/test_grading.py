"""Graders: where answers are found, what counts as equal, and that no answer can hold up a run."""

from __future__ import annotations

import subprocess
import sys
import time
from concurrent.futures.process import BrokenProcessPool

import pytest

from searchlens import grading
from searchlens.benchmarks import Question
from searchlens.errors import InputError
from searchlens.grading import NO_ANSWER, Extraction, Pair, checklist, choice
from searchlens.grading import math as math_grader
from searchlens.grading.boxed import last_boxed

# ---- extraction


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        (r"so \boxed{5}", "5"),
        (r"\boxed{ 5 }.", "5"),
        (r"\boxed {5}", "5"),
        (r"\boxed{1} then \boxed{2} done", "2"),
        (r"\boxed{\frac{1}{\sqrt{2}}}", r"\frac{1}{\sqrt{2}}"),
        (r"\boxed{\left\{1,2\right\}}", r"\left\{1,2\right\}"),
        (r"\boxed{\left\{ x \right.} end", r"\left\{ x \right."),  # an escaped brace opens nothing
        (r"\boxed{a \\} b", r"a \\"),  # a line break before the closing brace
        (r"\boxed{\boxed{7}}", "7"),
        (r"\boxed{3} and \boxedness{4}", "3"),
        ("\\boxed{1\n2}", "1\n2"),
        (r"\boxed{}", ""),
        (r"\boxed{5", None),
        (r"\boxed{1} no wait \boxed{2", None),  # the answer was being taken back
        (r"\boxed 5", None),
        (r"\boxed", None),
        ("the answer is 5", None),
        ("", None),
    ],
)
def test_the_last_box_counts_if_it_is_closed(text: str, answer: str | None) -> None:
    assert last_boxed(text) == answer


def test_only_a_box_is_a_mathematical_answer_and_a_cut_text_may_have_one() -> None:
    assert math_grader.extract(r"so \boxed{5} and then", stopped=False) == Extraction("5", "boxed")
    assert math_grader.extract("the answer is 5", stopped=True) == NO_ANSWER
    assert math_grader.extract(r"\boxed{ }", stopped=True) == NO_ANSWER


def test_an_oversized_box_is_no_answer() -> None:
    assert math_grader.extract(rf"\boxed{{{'1,' * 256}}}", stopped=True).answer == "1," * 256
    assert math_grader.extract(rf"\boxed{{{'1,' * 257}}}", stopped=True) == NO_ANSWER
    assert choice.extract(rf"\boxed{{C. {'x' * 600}}}", stopped=True) == NO_ANSWER


def test_extraction_is_linear_in_hostile_texts() -> None:
    started = time.monotonic()
    for text in (r"\boxed{" * 30_000, r"\boxedx" * 30_000, r"\boxed{" + "{" * 300_000, "answer is " * 30_000):
        assert math_grader.extract(text, stopped=True) == NO_ANSWER
        assert choice.extract(text, stopped=True) == NO_ANSWER
    assert time.monotonic() - started < 3


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (r"\boxed{C}", Extraction("C", "boxed")),
        (r"\boxed{c}", Extraction("C", "boxed")),
        (r"\boxed{(C)}", Extraction("C", "boxed")),
        (r"\boxed{\text{(C)}}", Extraction("C", "boxed")),
        (r"\boxed{\textbf{C}}", Extraction("C", "boxed")),
        (r"\boxed{C. 45}", Extraction("C", "boxed")),
        (r"\boxed{(C) 45}", Extraction("C", "boxed")),
        (r"\boxed{$C$}", Extraction("C", "boxed")),
        (
            r"\boxed{B}, because A is wrong. The answer is not D",
            Extraction("B", "boxed"),
        ),  # the box beats stray letters
        ("The answer is (B). Answer: C", Extraction("C", "fallback")),
        ("**Answer: B**", Extraction("B", "fallback")),
        ("The answer is **B**.", Extraction("B", "fallback")),
        ("the answer is a guess", NO_ANSWER),
        ("The answer is A prime number", NO_ANSWER),
        ("The answer is Carbon", NO_ANSWER),
        (r"\boxed{45} so the answer is C", NO_ANSWER),
        (r"\boxed{CD}", NO_ANSWER),
        ("A B C D", NO_ANSWER),
    ],
)
def test_letters(text: str, expected: Extraction) -> None:
    assert choice.extract(text, stopped=True) == expected


def test_a_closing_sentence_needs_a_finished_text_and_a_box_does_not() -> None:
    assert choice.extract("The answer is C", stopped=False) == NO_ANSWER
    assert choice.extract(r"\boxed{C} because", stopped=False) == Extraction("C", "boxed")


def test_letters_are_judged_by_equality() -> None:
    found = grading.grade("choice", [Pair("C", "C"), Pair("C", "A")])
    assert [(verdict.correct, verdict.key) for verdict in found] == [(True, "gold"), (False, "~A")]
    assert choice.reference(Question("q", "?", " c")) == "C"


# ---- mathematical equality

EQUAL = [
    (r"\frac{1}{2}", "0.5"),
    (r"\frac12", "1/2"),
    (r"\frac{2}{4}", r"\dfrac{1}{2}"),
    ("5", r"5\text{ cm}"),
    (r"5 \text{ cm}", "5"),
    (r"90^\circ", "90"),
    (r"10\%", "10"),
    (r"10\%", "0.1"),
    ("0.15", r"15\%"),
    (r"\{1,2\}", r"\{2,1\}"),
    ("1,2", "2, 1"),
    ("(3,4]", "(3, 4]"),
    (r"\left(3, \frac{\pi}{2}\right)", r"(3,\pi/2)"),
    ("x=5", "5"),
    ("1,234", "1234"),
    (r"1{,}000", "1000"),
    (r"10,\!080", "10080"),
    (r"\$3", "3"),
    ("3", "3."),
    ("3", "3.0"),
    ("025", "25"),
    ("2k+2", "2(k+1)"),
    ("(a+5)(b+2)", "(b+2)(a+5)"),
    (r"\text{Evelyn}", "evelyn"),
    (r"\text{(C)}", "C"),
    ("Tuesday", "Tuesday."),
]
UNEQUAL = [
    ("5", "6"),
    ("1,234", "1.234"),
    ("(1,2)", "(2,1)"),
    ("(3,4]", "[3,4]"),
    ("1/3", "0.333"),
    ("1 1/2", "11/2"),  # a mixed number is not what is left without its space
    (r"\text{east}", "seat"),  # not a product of letters
    ("2k+2", "2k+1"),
    (r"\sqrt{2}", "1.4"),
    ("5", "abc"),
]


@pytest.fixture(scope="module")
def judged() -> dict[Pair, grading.Verdict]:
    """All pairs of the tables, judged in one go: starting workers takes longer than judging."""
    pairs = [Pair(*pair) for pair in EQUAL + UNEQUAL]
    return dict(zip(pairs, math_grader.grade(pairs, workers=2), strict=True))


@pytest.mark.parametrize("pair", EQUAL)
def test_equal_answers(judged: dict[Pair, grading.Verdict], pair: tuple[str, str]) -> None:
    assert judged[Pair(*pair)] == grading.Verdict(True, "gold")


@pytest.mark.parametrize("pair", UNEQUAL)
def test_unequal_answers(judged: dict[Pair, grading.Verdict], pair: tuple[str, str]) -> None:
    verdict = judged[Pair(*pair)]
    assert (verdict.correct, verdict.timeout) == (False, False)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (r"\dfrac{3}{4}", "3/4"),
        (r"\left( 1, 2 \right)", "(1,2)"),
        ("007", "7"),
        ("2.50", r"\frac{5}{2}"),
        (r"80^{\circ}", "80"),
        (r"\text{Monday}", "monday."),
        ("-1/2", r"-\frac12"),
        (r"\sqrt2", r"\sqrt{2}"),
        ("−3", "-3"),
    ],
)
def test_wrong_answers_that_are_the_same_share_a_class(one: str, other: str) -> None:
    assert math_grader.normalise(one) == math_grader.normalise(other)


@pytest.mark.parametrize(
    ("one", "other"), [("1 1/2", "11/2"), ("12", "1,2"), ("50%", "50"), ("x", "X"), ("1/0", "0"), ("5 cm", "5")]
)
def test_the_normal_form_keeps_apart_what_may_differ(one: str, other: str) -> None:
    assert math_grader.normalise(one) != math_grader.normalise(other)


def test_hostile_answers_end_in_time_as_unknown_and_spare_their_neighbours() -> None:
    limits = math_grader.Limits(phase_seconds=1, pair_seconds=5.0)
    hostile = [Pair("5", r"10^{10^{10}}"), Pair("5", r"(10^9)!")]
    fine = Pair("2k+2", "2(k+1)")
    started = time.monotonic()
    found = math_grader.grade([*hostile, fine], limits, workers=2)
    assert time.monotonic() - started < 15
    assert [(verdict.correct, verdict.timeout) for verdict in found] == [(None, True), (None, True), (True, False)]
    assert found[0].key == "~10^{10^{10}}"


def test_a_worker_that_ignores_its_alarm_is_killed_and_its_pair_is_unknown() -> None:
    limits = math_grader.Limits(phase_seconds=30, pair_seconds=5.0)
    found = math_grader.grade([Pair("5", r"10^{10^{10}}"), Pair("2k+2", "2(k+1)")], limits, workers=1)
    assert [verdict.correct for verdict in found] == [None, True]


def test_workers_that_cannot_start_are_an_error_and_not_an_undecided_answer() -> None:
    with pytest.raises(BrokenProcessPool):
        math_grader.grade([Pair("2k+2", "2(k+1)")], math_grader.Limits(memory_bytes=2**20), workers=1)


def test_easy_answers_need_no_workers_and_no_math_verify() -> None:
    code = (
        "import sys\nfrom searchlens.grading import Pair, grade\n"
        "found = grade('math', [Pair('5', '5.'), Pair('5', '6'), Pair('east', 'west')])\n"
        "print([v.correct for v in found], 'sympy' in sys.modules or 'pebble' in sys.modules)"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out == "[True, False, False] False\n"


# ---- instructions

CHECKED = Question("q", "List two.", "", {"count": {"n": 2, "separator": ", "}})


def test_a_finished_text_passes_or_fails_as_a_whole() -> None:
    gold = checklist.reference(CHECKED)
    assert checklist.extract(" cat, dog\n", stopped=True) == Extraction("cat, dog", "whole")
    assert checklist.extract("cat, dog", stopped=False) == NO_ANSWER
    found = grading.grade("instructions", [Pair(gold, "cat, dog"), Pair(gold, "cat")])
    assert [verdict.correct for verdict in found] == [True, False]


@pytest.mark.parametrize(
    ("checks", "message"),
    [({"rhyme": {}}, "unknown instruction check 'rhyme'"), ({"count": {"many": 2}}, "cannot be run: .*many")],
)
def test_checks_that_cannot_be_run_are_an_input_error(checks: dict[str, object], message: str) -> None:
    gold = checklist.reference(Question("q", "?", "", checks))
    with pytest.raises(InputError, match=message):
        grading.grade("instructions", [Pair(gold, "cat")])


def test_a_question_without_checks_is_refused() -> None:
    with pytest.raises(InputError, match="question 'q' has no checks"):
        checklist.reference(Question("q", "?", "5"))


# ---- the seam


def test_every_kind_is_a_grader_with_a_version_of_its_own() -> None:
    versions = {grading.grader(kind).GRADER_VERSION for kind in grading.KINDS}
    assert len(versions) == len(grading.KINDS)
    assert "math-verify-" in math_grader.GRADER_VERSION


def test_an_unknown_kind_lists_the_known_ones() -> None:
    with pytest.raises(InputError, match="grader 'essay' is unknown; known: choice, instructions, math"):
        grading.grader("essay")
