"""Graders: where answers are found, what counts as equal, and that no answer can hold up a run."""

from __future__ import annotations

import hashlib
import json
import os
import random
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from searchlens import catalogue, grading
from searchlens.benchmarks import Question
from searchlens.benchmarks.choices import letter_of
from searchlens.benchmarks.mathematics import last_boxed
from searchlens.errors import InputError
from searchlens.grading import NO_ANSWER, Extraction, GradedPair, Grader, How, Verdict, processes
from searchlens.grading import math as math_grader
from searchlens.grading.choice import Choice, ChoiceNarrow
from searchlens.grading.ifeval import Checklist
from searchlens.grading.math import Math, MathNarrow
from searchlens.grading.processes import Limits, oversized

MATH, CHOICE, CHECKLIST = Math(), Choice(), Checklist()

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


def test_a_cut_text_may_have_a_box_and_a_box_wins_even_when_it_is_not_closed() -> None:
    assert MATH.extract(r"so \boxed{5} and then", stopped=False) == Extraction("5", "boxed")
    assert MATH.extract("the answer is 5", stopped=False) == NO_ANSWER
    assert MATH.extract(r"\boxed{ }", stopped=True) == NO_ANSWER
    assert MATH.extract(r"the answer is 5, \boxed{", stopped=True) == NO_ANSWER  # taken back


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("The answer is 5.", "5"),
        ("The answer is 4. No, the answer is 5.", "5"),
        ("So the final answer is: $\\frac{1}{2}$. I hope it is correct.", r"\frac{1}{2}"),
        ("**Answer:** 3.5 and so on. Really", "3.5 and so on"),
        ("Final Answer: \\( x = 2 \\).\nThank you.", "x = 2"),
        ("the answer is 7\nQuestion: what is 8?", "7"),
        ("The answer is", None),
        ("The answer is:\n5", "5"),
        ("The answer is:\n" + "we go on and on " * 9, None),  # a long line is no answer
        ("The answer is $5 per day and $8 in all.", "$5 per day and $8 in all"),  # no formula between two prices
        (r"\(5\) is more than \(4\)", None),
        ("we get 5 = 5", None),  # the last equation in sight is not stated as an answer
        ("answers: 5", None),
        ("The answer is " + "7" * 600, None),
    ],
)
def test_a_closing_sentence_of_a_finished_text_is_a_fallback(text: str, answer: str | None) -> None:
    assert MATH.extract(text, stopped=True) == (Extraction(answer, "fallback") if answer else NO_ANSWER)


LOOP = r"First $2+3$. " + r"So the answer is $\boxed{\frac{1}{5}}$. Wait, we check \{again\}: " * 3


@pytest.mark.parametrize("cut", range(LOOP.index("}}$") + 2, len(LOOP)))
def test_a_text_that_repeats_its_answer_states_it_wherever_it_is_cut(cut: int) -> None:
    """Models that do not stop are cut inside a box more often than those that do."""
    found = MATH.extract(LOOP[:cut], stopped=False)
    assert found.answer == r"\frac{1}{5}"
    assert found.how == ("boxed" if last_boxed(LOOP[:cut]) else "kept")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (r"\boxed{5} so \boxed{5", Extraction("5", "kept")),
        (r"\boxed{5} so \boxed{ ", Extraction("5", "kept")),
        (r"\boxed{5} so \boxed", Extraction("5", "kept")),
        (r"\boxed{57} so \boxed{5", Extraction("57", "kept")),
        (r"\boxed{4} then \boxed{5} so \boxed{5", Extraction("5", "kept")),
        (r"\boxed{5} so \boxed{6", Extraction(None, "withdrawn")),
        (r"\boxed{5} so \boxed{57", Extraction(None, "withdrawn")),
        (r"\boxed{4} then \boxed{5} so \boxed{4", Extraction(None, "withdrawn")),
        (r"\boxed{5} so \boxed{5 and on", Extraction(None, "withdrawn")),
        (r"so \boxed{5", NO_ANSWER),  # no box was closed before
        (r"\boxed{\boxed{5", NO_ANSWER),
        (r"\boxed{} so \boxed{", NO_ANSWER),
    ],
)
def test_an_open_box_keeps_the_answer_that_it_repeats_and_withdraws_any_other(text: str, expected: Extraction) -> None:
    assert MATH.extract(text, stopped=False) == expected


def test_an_open_box_keeps_or_withdraws_a_letter_too() -> None:
    assert CHOICE.extract(r"\boxed{\text{C}} so \boxed{\text{", stopped=False) == Extraction("C", "kept")
    assert CHOICE.extract(r"\boxed{C} so \boxed{D", stopped=False) == Extraction(None, "withdrawn")
    assert CHOICE.extract(r"\boxed{45} so \boxed{4", stopped=False) == NO_ANSWER


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The answer is 5.", Extraction("5", "fallback")),
        ("**Answer:** 3.5 and so on. Really", Extraction("3.5 and so on", "fallback")),
        (r"The answer is \(x\).", Extraction("x", "fallback")),
        (r"\boxed{1} and \boxed{2}", Extraction("2", "boxed")),
        (r"\boxed{5} so \boxed{5", Extraction(None, "withdrawn")),
        (r"\boxed{5} so \boxed{6", Extraction(None, "withdrawn")),
        (r"\boxed{5", NO_ANSWER),
        (r"\boxed 5", NO_ANSWER),
        (r"\fbox{5}", NO_ANSWER),
        ("The answer is:\n5", NO_ANSWER),
        ("ANSWER: 5", NO_ANSWER),
        ("**Final Answer**: 5", NO_ANSWER),
        ("#### 5", NO_ANSWER),
        ("5", NO_ANSWER),
    ],
)
def test_the_narrow_rule_finds_what_it_always_found_and_searches_go_by_it(text: str, expected: Extraction) -> None:
    """Searches draw tokens by what they read: a text of an id must not be drawn in two ways."""
    assert MathNarrow().extract(text, stopped=True) == MATH.guide(text, stopped=True) == expected


@pytest.mark.parametrize(
    ("text", "letter"),
    [("The answer is (C).", "C"), (r"\boxed{\text{C}}", "C"), ("ANSWER: C", None), ("(C)", None), ("I choose C", None)],
)
def test_the_narrow_rule_for_letters(text: str, letter: str | None) -> None:
    assert ChoiceNarrow().extract(text, stopped=True).answer == CHOICE.guide(text, stopped=True).answer == letter


@pytest.mark.parametrize(
    ("gold", "letter"),
    [
        *((gold, "C") for gold in ("C", "c", " C\n", "(C)", "C)", "C.", "(C).", "[C]", "{C}", "<C>", "**C**", "$C$")),
        *((gold, "C") for gold in (r"\text{(C)}", r"\boxed{C}", r"$\boxed{\textbf{(C)}}$", r"\(C\)", r"\{C\}")),
        *(
            (gold, "C")
            for gold in ("Option C", "answer: (C)", "The correct answer is C", "(C) 45", "C. no", "C) and so")
        ),
        *((gold, None) for gold in ("K", "CD", "C D", "C and D", "(C) and (D)", "(C) (D)", "C, D", "(C), D", "C or D")),
        *(
            (gold, None)
            for gold in ("2", "²", "", "()", "C_2", "C'", r"\overline{C}", "f(C)", "C(D)", "option", "see C")
        ),
    ],
)
def test_golds_of_choice_are_letters_whatever_stands_around_them(gold: str, letter: str | None) -> None:
    assert letter_of(gold) == letter
    assert Choice().reference(Question("q", "", gold)) == (letter or gold.strip().upper())


def test_texts_and_positions_of_choices_are_letters() -> None:
    choices = ("[1,2]", "(1,2)", "5", "yes  no")
    assert [letter_of(text, choices) for text in ("(1,2)", " 5 ", "yes no", "D", "(D)", "E", "3")] == [
        *("B", "C", "D", "D", "D"),
        *(None, None),
    ]
    assert [letter_of(text, ("x", "y")) for text in ("0", "1", "2", "(B)", "(C)")] == ["A", "B", None, "B", None]
    assert letter_of("x", ("x", "x")) is None, "two choices are the same"


def test_an_oversized_box_is_no_answer() -> None:
    assert MATH.extract(rf"\boxed{{{'1,' * 256}}}", stopped=True).answer == "1," * 256
    assert MATH.extract(rf"\boxed{{{'1,' * 257}}}", stopped=True) == NO_ANSWER
    assert CHOICE.extract(rf"\boxed{{C. {'x' * 600}}}", stopped=True) == NO_ANSWER


def test_extraction_is_linear_in_hostile_texts() -> None:
    started = time.process_time()
    parts = (
        r"\boxed{",
        r"\boxedx",
        "answer is ",
        "answer\n",
        "answer is (",
        "answer is $",
        "#",
        "$",
        "*",
        "I choose ",
        "(",
    )
    for text in (*(part * 30_000 for part in parts), r"\boxed{" + "{" * 300_000, "answer:" + " \n" * 30_000):
        for grader in (MATH, CHOICE):
            assert "7" not in (grader.extract(text, stopped=True).answer or "")
            assert "7" not in (grader.guide(text, stopped=True).answer or "")
    assert time.process_time() - started < 10  # quadratic time would be minutes


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
        (r"\boxed{\textbf{(C) }45}", Extraction("C", "boxed")),
        (r"\boxed{\text{Option C}}", Extraction("C", "boxed")),
        (r"\boxed{C, 45}", Extraction("C", "boxed")),
        (r"\boxed{A, C}", NO_ANSWER),  # two letters are no choice
        (r"\boxed{(A) and (C)}", NO_ANSWER),
        ("The correct choice is D.", Extraction("D", "fallback")),
        ("The correct answer is option (B), not A.", Extraction("B", "fallback")),
        ("Therefore option D is correct.", Extraction("D", "fallback")),
        (r"Answer: $\text{B}$", Extraction("B", "fallback")),
        ("Answer: $B", Extraction("B", "fallback")),
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
        (r"\boxed{45} so the answer is C", Extraction("C", "fallback")),  # a box without a letter is no box
        ("\\boxed{B} holds.\n\nAnswer: C", Extraction("C", "fallback")),
        (r"\boxed{CD}", NO_ANSWER),
        ("A B C D", NO_ANSWER),
    ],
)
def test_letters(text: str, expected: Extraction) -> None:
    assert CHOICE.extract(text, stopped=True) == expected


def test_a_closing_sentence_needs_a_finished_text_and_a_box_does_not() -> None:
    assert CHOICE.extract("The answer is C", stopped=False) == NO_ANSWER
    assert CHOICE.extract(r"\boxed{C} because", stopped=False) == Extraction("C", "boxed")


def test_letters_are_judged_by_equality() -> None:
    verdicts = CHOICE.grade([GradedPair("C", "C"), GradedPair("C", "A")])
    assert [(verdict.correct, verdict.key) for verdict in verdicts] == [(True, "gold"), (False, "~A")]
    assert CHOICE.reference(Question("q", "?", " c")) == "C"


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
    (r"4.5 \times 10^{33}", "4.5e33"),
    (r"4.5 \times 10^{33}", "4.5E+033"),
    (r"-2 \times 10^{-7}", "$-2e-07$"),
    ("4500", "4.5e3"),
    ("2e", "2e"),
    (r"(3,\infty)", "x > 3"),
    (r"(-\infty,-1)\cup(1,\infty)", r"x<-1 \text{ or } x>1"),
    ("5", r"\(5\)"),
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
    (r"4.5 \times 10^{33}", "4.5e32"),
    (r"4.5 \times 10^{33}", "4.5e-33"),
    (r"4.6 \times 10^{-24}", r"2.6 \times 10^{-24}"),  # not both 0, as rounded to six decimals
    (r"1.3 \times 10^{-27}", r"1.3 \times 16^{-27}"),
    (r"\frac{1}{3} E_{1}+\frac{2}{3} E_{2}", r"\frac{1}{1} E_{1}+\frac{2}{3} E_{4}"),  # not both the 2/3 inside
    ("10\\%", "1000"),
    ("(1,2)", "1<x<2"),  # may be a point
    (r"(3,\infty)", r"x \ge 3"),
]


@pytest.fixture(scope="module")
def judged() -> dict[GradedPair, grading.Verdict]:
    """All pairs of the tables, judged in one go: starting workers takes longer than judging."""
    pairs = [GradedPair(*pair) for pair in EQUAL + UNEQUAL]
    return dict(zip(pairs, MATH.grade(pairs, workers=2), strict=True))


@pytest.mark.parametrize("pair", EQUAL)
def test_equal_answers(judged: dict[GradedPair, grading.Verdict], pair: tuple[str, str]) -> None:
    assert (judged[GradedPair(*pair)].correct, judged[GradedPair(*pair)].key) == (True, grading.RIGHT)


@pytest.mark.parametrize("pair", UNEQUAL)
def test_unequal_answers(judged: dict[GradedPair, grading.Verdict], pair: tuple[str, str]) -> None:
    assert judged[GradedPair(*pair)].correct is False


def form(answer: str) -> str:
    return math_grader.normalise(math_grader.clean(answer))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (r"\left. 126 \right.", "126"),
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
    assert form(one) == form(other)


@pytest.mark.parametrize(
    ("one", "other"), [("1 1/2", "11/2"), ("12", "1,2"), ("50%", "50"), ("x", "X"), ("1/0", "0"), ("5 cm", "5")]
)
def test_the_normal_form_keeps_apart_what_may_differ(one: str, other: str) -> None:
    assert form(one) != form(other)


LIMITED = Limits(cpu_seconds=0.5, wall_seconds=5.0)


def test_an_answer_that_takes_too_long_is_unknown_and_spares_its_neighbours() -> None:
    slow = GradedPair("5", r"\sum_{k=1}^{99999} \sin k")  # small to look at
    verdicts = Math(LIMITED).grade([slow, GradedPair("2k+2", "2(k+1)")], workers=1)
    assert [verdict.correct for verdict in verdicts] == [None, True]
    assert verdicts[0].key == r"~\sum_{k=1}^{99999}\sink"


def test_a_worker_that_cannot_be_interrupted_is_killed_and_its_pair_is_unknown() -> None:
    """One that waits may be a node's fault; one that computes or crashes is the pair's."""
    limits = Limits(cpu_seconds=0.2, wall_seconds=2.0)
    pairs = [GradedPair("", answer) for answer in ("sleep", "die", "crash", "end")]
    assert processes.judge("uninterruptible", pairs, limits, 1) == [processes.INTERRUPTED, None, None, True]
    limits = Limits(cpu_seconds=0.2, wall_seconds=60.0)
    assert processes.judge("uninterruptible", [GradedPair("", "compute"), GradedPair("", "end")], limits, 1) == [
        None,
        True,
    ]


def children(parent: int) -> list[int]:
    return [int(pid) for task in Path(f"/proc/{parent}/task").glob("*/children") for pid in task.read_text().split()]


def test_workers_that_are_killed_at_random_lose_no_verdict() -> None:
    """As by the out-of-memory killer or by scancel, at any moment: idle, starting, or judging."""
    pairs, ended, draw = [GradedPair("", f"{i}") for i in range(1000)], threading.Event(), random.Random(3)

    def kill() -> None:
        while not ended.wait(0.3 + draw.random()):
            servers = children(os.getpid())
            if workers := [worker for server in servers for worker in children(server)]:
                with suppress(ProcessLookupError):
                    os.kill(draw.choice(workers), draw.choice([signal.SIGKILL, signal.SIGTERM]))

    killer = threading.Thread(target=kill)
    killer.start()
    try:
        assert processes.judge("uninterruptible", pairs, Limits(), 2) == [True] * 1000
    finally:
        ended.set()
        killer.join()


def test_memory_of_a_worker_is_capped() -> None:
    limits = Limits(cpu_seconds=5.0, memory_bytes=2**30)
    pairs = [GradedPair("", "grow"), GradedPair("", "end")]
    assert processes.judge("uninterruptible", pairs, limits, 1) == [None, True]


def test_workers_that_cannot_start_are_an_error_and_not_an_undecided_answer() -> None:
    with pytest.raises(BrokenProcessPool):
        processes.judge("no_such_module", [GradedPair("2k+2", "2(k+1)")], Limits(), 1)


def test_gmpy2_is_never_imported_by_a_worker(tmp_path: Path) -> None:
    """In a long call into it no signal is handled, so that 10^9! would not end before the worker is killed."""
    (tmp_path / "gmpy2.py").write_text("raise SystemExit('gmpy2 was imported')")
    path = "import sys; sys.path.insert(0, sys.argv[1]); "
    ours, theirs = "from searchlens.grading import equality, symbolic", "import sympy"
    runs = [
        subprocess.run([sys.executable, "-c", path + code, str(tmp_path)], capture_output=True, text=True, check=False)
        for code in (ours, theirs)
    ]
    assert (runs[0].returncode, runs[0].stderr) == (0, "")
    assert "gmpy2 was imported" in runs[1].stderr  # as sympy does by itself


def test_easy_answers_need_no_workers_and_no_math_verify() -> None:
    code = (
        "import sys\nfrom searchlens.grading import GradedPair, grader, processes\n"
        "processes.ProcessPool = None\n"
        "verdicts = grader('math').grade([GradedPair('5', '5.'), GradedPair('5', '6'), GradedPair('east', 'west')])\n"
        "print([verdict.correct for verdict in verdicts], 'sympy' in sys.modules)"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out == "[True, False, False] False\n"


# ---- shortcuts, against math-verify itself

WHOLE = st.integers(-10_000, 10_000).map(str)
DECIMAL = st.decimals(-1000, 1000, places=3).map(str)
RATIO = st.tuples(st.integers(-99, 99), st.integers(1, 99)).map(lambda r: rf"\frac{{{r[0]}}}{{{r[1]}}}")
NUMBER = st.one_of(WHOLE, DECIMAL, RATIO, st.just("0.333333"), st.just("1/3"), st.just("1,234"), st.just("1234.0"))
SURD = st.tuples(WHOLE, st.integers(2, 99)).map(lambda r: rf"{r[0]}\sqrt{{{r[1]}}}")
LINE = st.tuples(WHOLE, WHOLE).map(lambda r: f"{r[0]}x+{r[1]}")
PARTS = st.tuples(
    st.sampled_from("(["), NUMBER, st.sampled_from([NUMBER, SURD]).flatmap(lambda s: s), st.sampled_from(")]")
)
SPAN = PARTS.map(lambda p: rf"{p[0]}{p[1]}, {p[2]}{p[3]}")
ANSWER = st.one_of(NUMBER, SURD, LINE, SPAN)
SPELL = st.sampled_from(
    ["{}", " {} ", "{}.", r"\left. {} \right.", "${}$", r"\!{}", r"{}^\circ", r"\text{{}}{}", r"{}\;", "{{{}}}"]
)


def drawn(strategy: st.SearchStrategy[Any], count: int) -> list[Any]:
    """The same examples every time; no shrinking, because they are judged together."""
    examples: list[Any] = []

    @settings(max_examples=count, derandomize=True, database=None, deadline=None, phases=[Phase.generate])
    @given(strategy)
    def collect(example: Any) -> None:
        examples.append(example)

    collect()
    return list(dict.fromkeys(examples))


def test_what_is_decided_without_math_verify_is_decided_as_it_would() -> None:
    respelled = st.tuples(ANSWER, SPELL, SPELL).map(lambda d: GradedPair(d[1].format(d[0]), d[2].format(d[0])))
    pairs = drawn(respelled, 400) + drawn(st.tuples(NUMBER, NUMBER).map(lambda d: GradedPair(*d)), 400)
    pairs = [GradedPair(*map(math_grader.clean, pair)) for pair in pairs]
    shortcut = [math_grader.decide(*map(math_grader.normalise, pair)) for pair in pairs]
    chosen = [i for i, outcome in enumerate(shortcut) if outcome is not None]
    assert {True, False} == {shortcut[i] for i in chosen}
    assert len(chosen) > 500
    verified = processes.judge("searchlens.grading.equality", [pairs[i] for i in chosen], Limits(5.0), 2)
    assert [
        (pairs[i], shortcut[i]) for i, outcome in zip(chosen, verified, strict=True) if shortcut[i] != outcome
    ] == []


def test_answers_of_one_normal_form_have_one_verdict_by_math_verify() -> None:
    drawings = drawn(st.tuples(ANSWER, ANSWER, SPELL), 150)
    spelled = [(gold, answer, math_grader.clean(spelling.format(answer))) for gold, answer, spelling in drawings]
    same = [(gold, *both) for gold, *both in spelled if len(set(map(math_grader.normalise, both))) == 1]
    assert len(same) > 100
    pairs = [GradedPair(gold, answer) for gold, *both in same for answer in both]
    outcomes = processes.judge("searchlens.grading.equality", pairs, Limits(5.0), 2)
    assert [texts for texts, one, other in zip(same, outcomes[::2], outcomes[1::2], strict=True) if one != other] == []


ENTRY = st.one_of(st.integers(-9, 20).map(str), st.sampled_from([r"\frac{1}{2}", "-1/5", "x", "2y", "100", "345"]))
SPACE = st.sampled_from(["", " ", "  ", "\n"])
SHAPES = {
    "pmatrix": ("&", r"\begin{pmatrix}", r"\end{pmatrix}"),
    "bmatrix": ("&", r"\begin{bmatrix}", r"\end{bmatrix}"),
    "array": ("&", r"\left(\begin{array}{ccc}", r"\end{array}\right)"),
    "cases": ("&", r"\begin{cases}", r"\end{cases}"),
    "aligned": ("&=", r"\begin{aligned}", r"\end{aligned}"),
    "point": (",", "(", ")"),
}


@st.composite
def table_pairs(draw: st.DrawFn) -> tuple[str, str]:
    """Two tables of one shape in different spacing, with the same cells, the same in another order, or one changed."""
    kind = draw(st.sampled_from(sorted(SHAPES)))
    columns = 2 if kind == "aligned" else draw(st.integers(2 if kind == "point" else 1, 3))
    rows = 1 if kind == "point" else draw(st.integers(2, 3))
    cells = [draw(ENTRY) for _ in range(rows * columns)]
    other = draw(st.sampled_from([cells, cells, cells[::-1], [*cells[:-1], "7"]]))
    return written(draw, kind, cells, columns), written(draw, kind, other, columns)


def written(draw: st.DrawFn, kind: str, cells: list[str], columns: int) -> str:
    between, begin, end = SHAPES[kind]
    spaced = [f"{draw(SPACE)}{cell}{draw(SPACE)}" for cell in cells]
    lines = [between.join(spaced[i : i + columns]) for i in range(0, len(spaced), columns)]
    return begin + r"\\".join(lines) + end


def test_cleaning_tables_never_changes_what_math_verify_says() -> None:
    """Rows are separated by two backslashes, of which the second, with a space behind it, is no spacing command."""
    raw = [GradedPair(*pair) for pair in drawn(table_pairs(), 120)]
    cleaned = [GradedPair(*map(math_grader.clean, pair)) for pair in raw]
    before, after = (processes.judge("searchlens.grading.equality", pairs, Limits(5.0), 2) for pairs in (raw, cleaned))
    assert {True, False} <= set(before)
    assert [pair for pair, one, other in zip(raw, before, after, strict=True) if one != other] == []


LISTS = ["100, 200", "1, 234", "32, 349", "1 , 234, 567", r"10,\ 100", r"3,\,141"]


@pytest.mark.parametrize("text", LISTS)
def test_a_list_never_equals_an_integer(text: str) -> None:
    digits = re.sub(r"\D", "", text)
    pairs = [(text, digits), (digits, text), (text, f"{int(digits):,}"), (f"{int(digits):,}", text)]
    assert [verdict.correct for verdict in MATH.grade([GradedPair(*pair) for pair in pairs])] == [False] * 4


PARSED = """
import json, sys
from sympy import srepr
from searchlens.grading import equality
equality.hasten(on=sys.argv[1] == "two")
for answer in json.load(sys.stdin):
    readings = equality.parsed.__wrapped__(answer)
    print([srepr(reading) if hasattr(reading, "free_symbols") else reading for reading in readings])
"""


def test_parsing_in_two_stages_reads_what_parsing_in_one_reads() -> None:
    answers = drawn(
        st.one_of(ANSWER, st.tuples(LINE, LINE).map("=".join), st.tuples(SPAN, SPAN).map(r"\cup".join)), 150
    )
    answers += [
        r"x^2-3x+2",
        "1<x<2",
        r"\{1,2,3\}",
        "1,2",
        "(1,2",
        r"\frac{1}{",
        "x^",
        r"\begin{pmatrix}1&2\\3&4\end{pmatrix}",
    ]
    answers += [
        r"(-\infty,-1)\cup(1,\infty)",
        "y=2x^2+1",
        r"5\%",
        r"\pm 3",
        r"|x|<2",
        r"\binom{5}{2}",
        "[0,1)",
        "a#b",
        "",
    ]
    one, two = (
        subprocess.run(
            [sys.executable, "-c", PARSED, stages],
            input=json.dumps(answers),
            capture_output=True,
            text=True,
            check=True,
        ).stdout.splitlines()
        for stages in ("one", "two")
    )
    assert len(one) == len(answers)
    assert [answer for answer, before, after in zip(answers, one, two, strict=True) if before != after] == []


COMPARED = """
import json, sys
from searchlens.grading import equality
equality.hasten(on=sys.argv[1] == "two")
for pair in json.load(sys.stdin):
    print(equality.judge(*pair))
"""


def test_differences_that_are_clearly_not_zero_need_no_simplification() -> None:
    surds = st.tuples(SURD, st.sampled_from("+-"), SURD).map("".join)
    squares = st.tuples(LINE, LINE).map(lambda two: f"({two[0]})({two[1]})")
    pairs = drawn(st.one_of(st.tuples(surds, surds), st.tuples(squares, squares), st.tuples(surds, DECIMAL)), 60)
    pairs += [
        (r"\sqrt{3+2\sqrt{2}}", r"1+\sqrt{2}"),
        ("(x+2)^2", "x^2+4x+4"),
        ("(x+2)^2", "x^2+4x+5"),
        (r"\sqrt{2}x", "1.5x"),
    ]
    pairs += [
        (r"\frac{x^2-1}{x-1}", "x+1"),
        (r"\sin^2 x+\cos^2 x", "1"),
        ("e^{x+1}", r"e\cdot e^x"),
        (r"\frac{2}{x}", r"\frac{1}{x}"),
    ]
    pairs += [
        (r"2\sqrt{3}", r"\sqrt{12}"),
        (r"\frac{1}{\sqrt{2}}", r"\frac{\sqrt{2}}{2}"),
        (r"\sqrt{2}", "1.414214"),
        (r"\pi", r"\frac{355}{113}"),
    ]
    plain, hastened = (
        subprocess.run(
            [sys.executable, "-c", COMPARED, how], input=json.dumps(pairs), capture_output=True, text=True, check=True
        ).stdout.splitlines()
        for how in ("one", "two")
    )
    assert [pair for pair, before, after in zip(pairs, plain, hastened, strict=True) if before != after] == []
    assert set(plain) == {"True", "False"}


@pytest.mark.parametrize(
    "answer",
    [
        *(r"10^{10^{10}}", "9^{9^{9}}", "2^{10^10}", "2**100000000", "(10^9)!", "1000000!", "((10!)!)!"),
        *(r"\binom{10^9}{5\cdot 10^8}", r"\frac{2^{100000000}}{3^{100000000}}", r"\sum_{k=1}^{10^9} \sin k"),
        *("(" * 40 + "1" + ")" * 40, "{" * 400, r"\frac{1}{1+" * 30, "(x+y+z+w+1)^{200}"),
    ],
)
def test_what_cannot_be_written_out_is_unknown_without_trying(answer: str) -> None:
    assert oversized(answer)
    assert MATH.grade([GradedPair("5", answer)])[0].correct is None
    assert MATH.grade([GradedPair(answer, f"{answer}.")])[0].correct is True  # the right answer may be as large


@pytest.mark.parametrize(
    "answer",
    [
        *("2^{2004}", "10^{100}", "2^{2^{3}}", "x^{2^{n}}", "100!", "(3!)!", "n!", r"\binom{100}{50}", "(1+x)^{100}"),
        *("e^{-x^2}", "x^{-1}", "1,234,567", "(a+b+c)^{4}", "7" * 500, r"3^{\frac{1}{3}}", "((([1])))", "0.333..."),
    ],
)
def test_what_can_be_computed_is_not_taken_for_too_large(answer: str) -> None:
    assert not oversized(answer)


# ---- instructions

CHECKED = Question("q", "List two.", "", {"count": {"n": 2, "separator": ", "}})


def test_a_finished_text_passes_or_fails_as_a_whole() -> None:
    gold = CHECKLIST.reference(CHECKED)
    assert CHECKLIST.extract(" cat, dog\n", stopped=True) == Extraction("cat, dog", "whole")
    assert CHECKLIST.extract("cat, dog", stopped=False) == NO_ANSWER
    verdicts = CHECKLIST.grade([GradedPair(gold, "cat, dog"), GradedPair(gold, "cat")])
    assert [verdict.correct for verdict in verdicts] == [True, False]


@pytest.mark.parametrize(
    ("checks", "message"),
    [({"rhyme": {}}, "unknown instruction check 'rhyme'"), ({"count": {"many": 2}}, "cannot be run: .*many")],
)
def test_checks_that_cannot_be_run_are_an_input_error(checks: dict[str, object], message: str) -> None:
    gold = CHECKLIST.reference(Question("q", "?", "", checks))
    with pytest.raises(InputError, match=message):
        CHECKLIST.grade([GradedPair(gold, "cat")])


def test_a_question_without_checks_is_refused() -> None:
    with pytest.raises(InputError, match="question 'q' has no checks"):
        CHECKLIST.reference(Question("q", "?", "5"))


# ---- the seam


def test_every_grader_has_a_version_of_its_own() -> None:
    kinds = catalogue.declared("grader")
    versions = {grading.grader(kind).version for kind in kinds}
    assert len(versions) == len(kinds) == 9
    assert "math-verify-" in MATH.version


def test_the_page_describes_every_grader() -> None:
    """The configuration refers to it for the names."""
    page = (Path(__file__).parents[2] / "docs" / "grading.md").read_text().partition("## Unknown verdicts")[0]
    assert [kind for kind in catalogue.declared("grader") if f"`{kind}`" not in page] == []


def test_the_page_describes_every_way_in_which_an_answer_is_found() -> None:
    page = (Path(__file__).parents[2] / "docs" / "grading.md").read_text()
    table = page.partition("## How the answer was found")[2].partition("\n## ")[0]
    assert sorted(get_args(How)) == sorted(re.findall(r"^\| `(\w+)` \| (?:yes|no)", table, re.MULTILINE))


def test_versions_by_which_verdicts_are_stored_stay_what_they_were() -> None:
    """A changed version would judge every answer of every study again."""
    starts = {kind: grading.grader(kind).version.split("/")[0] for kind in catalogue.declared("grader")}
    assert starts == {
        "choice": "choice-4",
        "choice-narrow": "choice-4-narrow",
        "ifeval": "ifeval-1",
        "instructions": "instructions-1",
        "math": "math-6",
        "math-narrow": "math-5-narrow",
        "recorded": "recorded",
        "simplerl": "simplerl-1",
        "simplerl-units": "simplerl-1-units",
    }


def test_only_instructions_cannot_be_voted_on_and_formulas_are_mathematical() -> None:
    assert [kind for kind in catalogue.declared("grader") if not grading.votes(kind)] == ["instructions", "ifeval"]
    assert list(catalogue.declared("grader", mathematical=True)) == [
        "math",
        "math-narrow",
        "simplerl",
        "simplerl-units",
    ]


def test_a_grader_without_a_version_has_the_hash_of_its_file() -> None:
    class Plain(Grader):
        def extract(self, text: str, stopped: bool) -> Extraction:
            return NO_ANSWER

        def grade(self, pairs: Sequence[GradedPair], *, workers: int | None = None) -> list[Verdict]:
            return []

    assert Plain().version == f"Plain/{hashlib.sha256(Path(__file__).read_bytes()).hexdigest()[:12]}"


def test_an_unknown_kind_lists_the_known_ones() -> None:
    with pytest.raises(
        InputError,
        match=r"grader 'essay' is unknown\. Known: choice, choice-narrow, ifeval, instructions, math, math-narrow, rec",
    ):
        grading.grader("essay")
