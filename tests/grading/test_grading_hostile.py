"""What base models write cannot hang, crash or poison a verdict: a list of the worst, and a fuzz test."""

import time
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from searchlens import catalogue, grading
from searchlens.benchmarks import Question
from searchlens.grading import MAX_ANSWER, GradedPair, Grader, processes, simplerl
from searchlens.grading import math as math_grader
from searchlens.grading.choice import Choice
from searchlens.grading.math import Math
from searchlens.grading.score import SAMPLES, Rules, found_answers
from searchlens.grading.simplerl import SimpleRL, SimpleRLUnits

LIMITS = processes.Limits(cpu_seconds=0.5, wall_seconds=5.0)

TOWERS = [*("10^{10^{10}}", "9^{9^{9}}", "2^{10^10}", "2**2**2**2**9", r"\log(10^{10^{10}})", "x^" * 99 + "2")]
FACTORIALS = ["(10^9)!", "10^6!", "((10!)!)!", r"\binom{10^9}{5\cdot 10^8}", r"\frac{2^{100000000}}{3^{100000000}}"]
SERIES = [
    *(r"\sum_{k=1}^{99999} \sin k", r"\sum_{k=1}^{\infty} k^{-k}", r"\prod_{k=1}^{10^8}(1+\frac1k)"),
    *(r"\int_0^1 x^x dx", r"10^{10^8} \mod 7"),
]
NESTED = [
    "(" * 150 + "1" + ")" * 150,
    r"\frac{1}{1+" * 40 + "x" + "}" * 40,
    r"\sqrt{1+" * 30 + "x" + "}" * 30,
    "e^{" * 60 + "1" + "}" * 60,
]
LONG = [
    *("{" * 50_000 + "}" * 50_000, "{" * 100_000, "}" * 100_000, ",".join(map(str, range(10_000))), "7" * 100_000),
    *("x" * 1_000_000, r"\left(\frac{\right)\sqrt[" * 4_000, "+".join(f"x^{{{i}}}" for i in range(2_000))),
    *(" " * 1_000_000, "\n" * 100_000),
]
NEAR_THE_CAP = [
    *("7" * 500, "0." + "3" * 500, ",".join(map(str, range(130))), r"\pm" * 160, "|" * 500, "1" + "+1" * 250),
    " " * 300 + "5",
]
CHARACTERS = [
    *("\x00", "5\x00", "\u202e5\u202c", "\u200b5", "\ufeff5", "٣", "５", "\U0001f600" * 50, "−5", "½", "∞", "\r"),
    "\x1b[2J",
]
MARKERS = [
    *("gold", "~gold", "sha256:" + "0" * 64, "null", "None", "NaN", "inf", "-0", "", "-1", r"} \boxed{5"),
    *(r"\boxed{\boxed{5}}", r"\text{final answer is } $5$. I hope", "__import__('os').abort()", "<|im_end|>"),
    *("Question: 1+1? Answer: 2", "%s{0}\\"),
]
BROKEN = [
    *(r"\frac{1}{", r"\frac{}{}", r"\sqrt[", "^", "_", "&", "#", "\\", r"\begin{pmatrix}1\\2", r"\left(", "==", "1/0"),
    *(r"\frac{1}{0}", "()"),
]
HOSTILE = TOWERS + FACTORIALS + SERIES + NESTED + LONG + NEAR_THE_CAP + CHARACTERS + MARKERS + BROKEN
SURROGATES = ["\ud800", "5\udfff", "\udc80\ud800"]
"""Halves of characters, which Python strings can hold and no file can."""

FAIR = {GradedPair("2k+2", "2(k+1)"): True, GradedPair("2k+2", "2(k+2)"): False, GradedPair("(1,2)", "(1, 2)"): True}


@pytest.mark.parametrize("grader", [Math(LIMITS), SimpleRL(LIMITS), SimpleRLUnits(LIMITS)])
def test_no_hostile_answer_hangs_or_crashes_or_changes_the_verdict_on_its_neighbours(grader: Grader) -> None:
    answers = [grader.extract(rf"\boxed{{{text}}}", True).answer for text in HOSTILE + SURROGATES]
    hostile = [GradedPair("5", answer) for answer in answers if answer is not None]
    assert len(hostile) > 60
    pairs = [pair for one in hostile for pair in (one, *FAIR)]
    started = time.monotonic()
    verdicts = dict(zip(pairs, grader.grade(pairs, workers=2), strict=True))
    assert time.monotonic() - started < 60
    assert {pair: verdicts[pair].correct for pair in FAIR} == FAIR
    right = {pair.answer for pair in hostile if verdicts[pair].correct}
    assert all("5" in answer or "５" in answer for answer in right)
    assert all(verdicts[pair].key != grading.RIGHT for pair in hostile if not verdicts[pair].correct)


@pytest.mark.long
def test_long_texts_are_searched_in_linear_time() -> None:
    texts = [
        *LONG,
        *(text * 20_000 for text in (r"\boxed{", r"\boxed", "answer is ", "Answer: ", "he answer is", "1,", ".", "$")),
        *(
            text * 20_000
            for text in ("answer\n", "answer is (", "answer is $", "#", "*", "I choose ", "(", "answer: \n")
        ),
    ]
    texts += [rf"\boxed{{{text}" for text in LONG]
    started = time.process_time()
    for text in texts:
        for kind in catalogue.declared("grader"):
            extraction = grading.grader(kind).extract(text, True)
            assert extraction.how == "whole" or len(extraction.answer or "") <= MAX_ANSWER
    assert time.process_time() - started < 20


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One table of verdicts for all examples, as in a results folder."""
    return tmp_path_factory.mktemp("verdicts") / "sums"


QUESTIONS = (Question("q", "?", "5"), Question("r", "?", r"\frac{\sqrt{3}}{2}"))
FAIR_TEXTS = {r"\boxed{5.0}": ("q", True), r"\boxed{6}": ("q", False), r"\boxed{\sqrt{3}/2}": ("r", True)}

PIECES = st.sampled_from(
    [
        *"0123456789{}()[]^_+-*/=<>,.!|&#%$~\\ \n\x00xy",
        *(r"\boxed{", r"\frac", r"\sqrt", r"\left", r"\right", r"\text{", r"\pi", "^{", "The answer is ", "Answer: "),
        *(TOWERS + FACTORIALS + BROKEN + MARKERS + CHARACTERS),
    ]
)
TEXT = st.one_of(
    st.text(st.characters(codec="utf-8"), max_size=60),
    st.lists(PIECES, max_size=25).map("".join),
    st.lists(PIECES, max_size=12).map("".join).map(lambda inside: rf"so \boxed{{{inside}}}"),
    st.tuples(PIECES, st.integers(1, 400)).map(lambda repeated: rf"\boxed{{{repeated[0] * repeated[1]}}}"),
)


@settings(max_examples=25, derandomize=True, database=None, deadline=None, suppress_health_check=list(HealthCheck))
@given(texts=st.lists(TEXT, min_size=1, max_size=12), stopped=st.booleans())
def test_any_text_is_scored_and_fair_answers_beside_it_keep_their_verdicts(
    table: Path, monkeypatch_module: None, texts: list[str], stopped: bool
) -> None:
    given_texts = [(text, question) for text in texts for question in ("q", "r")]
    given_texts += [(text, question) for text, (question, _) in FAIR_TEXTS.items()]
    rows = [
        {"policy": "p", "question": q, "sample": i, "run": i, "text": text, "tokens": 1, "generated": 1, "score": 0.0}
        | {"stopped": stopped}
        for i, (text, q) in enumerate(given_texts)
    ]
    answers = found_answers(pl.DataFrame(rows, schema=SAMPLES), "math")
    scored = Rules(QUESTIONS, "math", table, workers=1).scored(answers)
    by_sample = dict(scored.scores.select("sample", "correct").iter_rows())
    fair = {text: by_sample[i] for i, (text, _) in enumerate(given_texts) if text in FAIR_TEXTS}
    assert fair == {text: correct for text, (_, correct) in FAIR_TEXTS.items()}
    assert scored.scores.height == len(given_texts)
    assert (scored.scores["correct"] <= (scored.scores["answer"] == 0)).all()
    again = Rules(QUESTIONS, "math", table, workers=1).scored(answers)
    assert again.scores.equals(scored.scores)  # the table returns what was judged
    assert again.summary.pairs_graded == 0


@pytest.fixture(scope="module")
def monkeypatch_module() -> Any:
    """Short limits: what is decided in half a second is all that the test is about."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(grading, "grader", lambda _: Math(LIMITS))
        yield


@settings(max_examples=300, derandomize=True, database=None, deadline=None)
@given(st.one_of(TEXT, st.text(max_size=80)))
def test_extraction_and_normal_forms_take_any_string(text: str) -> None:
    """Halves of surrogate pairs included."""
    for grader in (Math(), SimpleRL(), Choice()):
        extraction = grader.extract(text, True)
        assert (extraction.answer is None) == (extraction.how in ("none", "withdrawn"))
    cleaned = math_grader.clean(text[:MAX_ANSWER])
    form = math_grader.normalise(cleaned)
    assert math_grader.decide(form, form) is True
    assert isinstance(simplerl.normalise(text[:MAX_ANSWER]), str)


REPEATED = [
    *(r"\pm ", r"\pm 1,", "3 h ", "mm ", r"\text{mm}\text{ mm}", "m^2 m ", "1 m **", "{a}", "(1,", r"\sqrt("),
    *(r"{1\over ", "f(2)="),
]


@pytest.mark.parametrize("piece", REPEATED)
def test_rules_before_the_workers_end_soon_for_every_string(piece: str) -> None:
    """No limit guards them: a pattern that backtracks for minutes would stop the run."""
    text = (piece * MAX_ANSWER)[: MAX_ANSWER - 1] + "!"
    started = time.process_time()
    for pair in ((text, "5 m"), ("5 m", text), (text, text[:-1])):
        math_grader._prepared(*pair)
    assert time.process_time() - started < 5
