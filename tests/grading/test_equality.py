"""Mathematical equality: what counts as equal, shortcuts against math-verify, and that no answer holds up a run."""

import json
import os
import random
import re
import signal
import subprocess
import sys
import threading
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from scripts import printed
from searchlens import grading
from searchlens.grading import GradedPair, processes
from searchlens.grading import math as math_grader
from searchlens.grading.math import Math
from searchlens.grading.processes import Limits, oversized

MATH = Math()

EQUAL = [
    (r"\frac{1}{2}", "0.5"),
    (r"\frac12", "1/2"),
    (r"\frac{2}{4}", r"\dfrac{1}{2}"),
    ("5", r"5\text{ cm}"),
    (r"5 \text{ cm}", "5"),
    (r"90^\circ", "90"),
    (r"\{1,2\}", r"\{2,1\}"),
    ("1,2", "2, 1"),
    ("(3,4]", "(3, 4]"),
    (r"\left(3, \frac{\pi}{2}\right)", r"(3,\pi/2)"),
    (r"1{,}000", "1000"),
    (r"10,\!080", "10080"),
    (r"\$3", "3"),
    ("3", "3."),
    ("3", "3.0"),
    ("025", "25"),
    ("2k+2", "2(k+1)"),
    (r"-2 \times 10^{-7}", "$-2e-07$"),
    ("4500", "4.5e3"),
    ("2e", "2e"),
    (r"(3,\infty)", "x > 3"),
    (r"(-\infty,-1)\cup(1,\infty)", r"x<-1 \text{ or } x>1"),
    ("5", r"\(5\)"),
]
UNEQUAL = [
    ("(3,4]", "[3,4]"),
    ("1/3", "0.333"),
    ("2k+2", "2k+1"),
    ("5", "abc"),
    (r"4.6 \times 10^{-24}", r"2.6 \times 10^{-24}"),  # not both 0, as rounded to six decimals
    (r"1.3 \times 10^{-27}", r"1.3 \times 16^{-27}"),
    (r"\frac{1}{3} E_{1}+\frac{2}{3} E_{2}", r"\frac{1}{1} E_{1}+\frac{2}{3} E_{4}"),  # not both the 2/3 inside
    ("10\\%", "1000"),
    (r"(3,\infty)", r"x \ge 3"),
]


def test_equal_and_unequal_answers() -> None:
    """Beside those of ``tests/data/answers.jsonl``."""
    pairs = [GradedPair(*pair) for pair in EQUAL + UNEQUAL]
    verdicts = MATH.grade(pairs, workers=2)
    judged = {pair: (each.correct, each.key) for pair, each in zip(pairs, verdicts, strict=True)}
    assert [pair for pair in EQUAL if judged[GradedPair(*pair)] != (True, grading.RIGHT)] == []
    assert [pair for pair in UNEQUAL if judged[GradedPair(*pair)][0] is not False] == []


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
    pairs = [GradedPair("", "compute"), GradedPair("", "end")]
    assert processes.judge("uninterruptible", pairs, limits, 1) == [None, True]


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
    assert printed(code) == "[True, False, False] False"


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


STAGES = """
import json, sys
from sympy import srepr
from searchlens.grading import equality

def parsed(answer):
    readings = equality.parsed.__wrapped__(answer)
    return [srepr(reading) if hasattr(reading, "free_symbols") else reading for reading in readings]

def judged(pair):
    return equality.judge(*pair)

asked = json.load(sys.stdin)
for stages in (False, True):
    equality.hasten(on=stages)
    print(json.dumps([str(globals()[sys.argv[1]](one)) for one in asked]))
"""


def in_stages(how: str, asked: list[Any]) -> set[str]:
    """What is said of each, which is the same with and without a quick first stage."""
    command = [sys.executable, "-c", STAGES, how]
    done = subprocess.run(command, input=json.dumps(asked), capture_output=True, text=True, check=True)
    plain, hastened = map(json.loads, done.stdout.splitlines())
    assert [each for each, one, two in zip(asked, plain, hastened, strict=True) if one != two] == []
    return set(plain)


def test_parsing_in_two_stages_reads_what_parsing_in_one_reads() -> None:
    lines, spans = st.tuples(LINE, LINE).map("=".join), st.tuples(SPAN, SPAN).map(r"\cup".join)
    answers = drawn(st.one_of(ANSWER, lines, spans), 150)
    answers += ["x^2-3x+2", "1<x<2", r"\{1,2,3\}", "1,2", "(1,2", r"\frac{1}{", "x^", "y=2x^2+1", r"5\%", r"\pm 3", ""]
    answers += [r"\begin{pmatrix}1&2\\3&4\end{pmatrix}", r"(-\infty,-1)\cup(1,\infty)", r"|x|<2", "[0,1)", "a#b"]
    assert len(in_stages("parsed", [*answers, r"\binom{5}{2}"])) > 100


def test_differences_that_are_clearly_not_zero_need_no_simplification() -> None:
    surds = st.tuples(SURD, st.sampled_from("+-"), SURD).map("".join)
    squares = st.tuples(LINE, LINE).map(lambda two: f"({two[0]})({two[1]})")
    pairs = drawn(st.one_of(st.tuples(surds, surds), st.tuples(squares, squares), st.tuples(surds, DECIMAL)), 60)
    pairs += [(r"\sqrt{3+2\sqrt{2}}", r"1+\sqrt{2}"), ("(x+2)^2", "x^2+4x+4"), ("(x+2)^2", "x^2+4x+5")]
    pairs += [(r"\sqrt{2}x", "1.5x"), (r"\frac{x^2-1}{x-1}", "x+1"), (r"\sin^2 x+\cos^2 x", "1")]
    pairs += [("e^{x+1}", r"e\cdot e^x"), (r"\frac{2}{x}", r"\frac{1}{x}"), (r"2\sqrt{3}", r"\sqrt{12}")]
    pairs += [(r"\frac{1}{\sqrt{2}}", r"\frac{\sqrt{2}}{2}"), (r"\sqrt{2}", "1.414214"), (r"\pi", r"\frac{355}{113}")]
    assert in_stages("judged", pairs) == {"True", "False"}


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
