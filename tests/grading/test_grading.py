"""Graders: where answers are found, letters, instructions, and the seam."""

import hashlib
import json
import os
import random
import re
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, get_args

import pytest

from scripts import loaded
from searchlens import benchmarks, catalogue, grading
from searchlens.benchmarks import Question
from searchlens.benchmarks.choices import letter_of
from searchlens.benchmarks.mathematics import last_boxed
from searchlens.errors import InputError
from searchlens.grading import NO_ANSWER, Extraction, GradedPair, Grader, How, Verdict, simplerl
from searchlens.grading.choice import Choice, ChoiceNarrow
from searchlens.grading.ifeval import Checklist
from searchlens.grading.math import Math, MathNarrow
from searchlens.grading.simplerl import SimpleRL, SimpleRLUnits

MATH, CHOICE, CHECKLIST = Math(), Choice(), Checklist()


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
    assert CHOICE.extract("The answer is C", stopped=False) == NO_ANSWER
    assert CHOICE.extract(r"\boxed{C} because", stopped=False) == Extraction("C", "boxed")


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("The answer is 5.", "5"),
        ("The answer is 4. No, the answer is 5.", "5"),
        ("So the final answer is: $\\frac{1}{2}$. I hope it is correct.", r"\frac{1}{2}"),
        ("The answer is:\n5", "5"),
        ("The answer is:\n" + "we go on and on " * 9, None),  # a long line is no answer
        ("The answer is $5 per day and $8 in all.", "$5 per day and $8 in all"),  # no formula between two prices
        (r"\(5\) is more than \(4\)", None),
        ("The answer is " + "7" * 600, None),
    ],
)
def test_a_closing_sentence_of_a_finished_text_is_a_fallback(text: str, answer: str | None) -> None:
    """Beside those of ``tests/data/phrasings.jsonl``."""
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
        *((gold, "C") for gold in ("Option C", "answer: (C)", "The correct answer is C", "(C) 45", "C. no", "C) so")),
        *((gold, None) for gold in ("K", "CD", "C D", "C and D", "(C) and (D)", "(C) (D)", "C, D", "(C), D", "C or D")),
        *((gold, None) for gold in ("2", "²", "", "()", "C_2", "C'", r"\overline{C}", "f(C)", "C(D)", "option")),
    ],
)
def test_golds_of_choice_are_letters_whatever_stands_around_them(gold: str, letter: str | None) -> None:
    assert letter_of(gold) == letter
    assert Choice().reference(Question("q", "", gold)) == (letter or gold.strip().upper())


def test_texts_and_positions_of_choices_are_letters() -> None:
    choices = ("[1,2]", "(1,2)", "5", "yes  no")
    read = [letter_of(text, choices) for text in ("(1,2)", " 5 ", "yes no", "D", "(D)", "E", "3")]
    assert read == ["B", "C", "D", "D", "D", None, None]
    assert [letter_of(text, ("x", "y")) for text in ("0", "1", "2", "(B)", "(C)")] == ["A", "B", None, "B", None]
    assert letter_of("x", ("x", "x")) is None, "two choices are the same"


def test_an_oversized_box_is_no_answer() -> None:
    assert MATH.extract(rf"\boxed{{{'1,' * 256}}}", stopped=True).answer == "1," * 256
    assert MATH.extract(rf"\boxed{{{'1,' * 257}}}", stopped=True) == NO_ANSWER
    assert CHOICE.extract(rf"\boxed{{C. {'x' * 600}}}", stopped=True) == NO_ANSWER


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
        (r"Answer: $\text{B}$", Extraction("B", "fallback")),
        ("Answer: $B", Extraction("B", "fallback")),
        (r"\boxed{B}, because A is wrong. The answer is not D", Extraction("B", "boxed")),
        ("The answer is (B). Answer: C", Extraction("C", "fallback")),
        ("**Answer: B**", Extraction("B", "fallback")),
        ("The answer is **B**.", Extraction("B", "fallback")),
        (r"\boxed{45} so the answer is C", Extraction("C", "fallback")),  # a box without a letter is no box
        ("\\boxed{B} holds.\n\nAnswer: C", Extraction("C", "fallback")),
        (r"\boxed{CD}", NO_ANSWER),
    ],
)
def test_letters(text: str, expected: Extraction) -> None:
    assert CHOICE.extract(text, stopped=True) == expected


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
    with pytest.raises(InputError, match="question 'q' has no checks"):
        CHECKLIST.reference(Question("q", "?", "5"))


def test_the_page_describes_every_grader_and_every_way_in_which_an_answer_is_found() -> None:
    """The configuration refers to it for the names."""
    page = (Path(__file__).parents[2] / "docs" / "grading.md").read_text()
    graders = page.partition("## Unknown verdicts")[0]
    assert [kind for kind in catalogue.declared("grader") if f"`{kind}`" not in graders] == []
    table = page.partition("## How the answer was found")[2].partition("\n## ")[0]
    assert sorted(get_args(How)) == sorted(re.findall(r"^\| `(\w+)` \| (?:yes|no)", table, re.MULTILINE))


def test_versions_by_which_verdicts_are_stored_stay_what_they_were() -> None:
    """A changed one would judge every answer of every study again; two graders with one would mix their verdicts."""
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
    assert [kind for kind in catalogue.declared("grader") if not grading.votes(kind)] == ["ifeval", "instructions"]
    mathematical = list(catalogue.declared("grader", mathematical=True))
    assert mathematical == ["math", "math-narrow", "simplerl", "simplerl-units"]


def test_a_grader_without_a_version_has_the_hash_of_its_file() -> None:
    class Plain(Grader):
        def extract(self, text: str, stopped: bool) -> Extraction:
            return NO_ANSWER

        def grade(self, pairs: Sequence[GradedPair], *, workers: int | None = None) -> list[Verdict]:
            return []

    assert Plain().version == f"Plain/{hashlib.sha256(Path(__file__).read_bytes()).hexdigest()[:12]}"


# ---- Tables of answers and of phrasings that the graders have to get right, in ``tests/data``
#
# ``answers.jsonl``: golds of all kinds, each with right answers in other spellings and with wrong answers that are
# nearly right. ``phrasings.jsonl``: ends of texts as evaluation harnesses ask for them or as models write them, with
# the answer that they state under ``math`` and under ``choice`` (null: none; ``-``: not a text for this grader).


DATA = Path(__file__).parents[1] / "data"
ANSWERS: list[dict[str, Any]] = [json.loads(line) for line in (DATA / "answers.jsonl").read_text().splitlines()]
PHRASINGS: list[dict[str, Any]] = [json.loads(line) for line in (DATA / "phrasings.jsonl").read_text().splitlines()]
CODE = re.compile(r"`([^`]+)`")
CASES = [
    (group["kind"], GradedPair(group["gold"], answer), side == "right")
    for group in ANSWERS
    for side in ("right", "wrong")
    for answer in group[side]
]


@pytest.fixture(scope="module")
def misjudged() -> list[tuple[str, GradedPair]]:
    """Judged in one go: starting workers takes longer than judging."""
    verdicts = Math().grade([pair for _, pair, _ in CASES], workers=2)
    return [
        (kind, pair)
        for (kind, pair, right), verdict in zip(CASES, verdicts, strict=True)
        if verdict.correct is not right
    ]


@pytest.mark.parametrize("kind", sorted({kind for kind, _, _ in CASES}))
def test_answers_are_judged_as_the_table_says(misjudged: list[tuple[str, GradedPair]], kind: str) -> None:
    assert [pair for other, pair in misjudged if other == kind] == []


@pytest.mark.parametrize("kind", ["math", "choice"])
def test_answers_are_found_where_models_write_them(kind: str) -> None:
    grader = {"math": Math(), "choice": Choice()}[kind]
    asked = [(row["text"], row[kind]) for row in PHRASINGS if row[kind] != "-"]
    assert [(text, answer) for text, answer in asked if grader.extract(text, stopped=True).answer != answer] == []


def test_the_page_shows_phrasings_that_are_tried() -> None:
    """Texts of the list, or their ends."""
    page = (Path(__file__).parents[2] / "docs" / "graders.md").read_text()
    shown = CODE.findall(page.partition("every text is a test.")[2].partition("\n\n")[0])
    texts = [row["text"] for row in PHRASINGS if row["math"] or row["choice"]]
    assert len(shown) > 5 and [each for each in shown if not any(each in text for text in texts)] == []


# ---- The grader that follows the SimpleRL-Zoo and Qwen rules: where it looks, and what it is lenient about


SIMPLERL = SimpleRL()


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


# ---- Golds of real benchmark files are right in other spellings, and wrong with a digit, sign, entry or row changed
#
# A small part of ``validation/graders.py``, on files in the folder that SEARCHLENS_BENCHMARKS names.


REAL = os.environ.get("SEARCHLENS_BENCHMARKS", "")
SEED, GOLDS = 20, 6
"""Golds of each file, drawn with this seed."""
ELSEWHERE = {"mmlu_stem.jsonl": "its golds are letters", "ifeval.jsonl": "it has checks in place of golds"}
"""Files whose golds are not for grader ``math``."""
KNOWN_ERRORS = {
    (r"(-\infty, 0) \cup\{1\}.", r"(-\infty, 0) \cup\{1\}.."): "the gold itself ends in a full stop",
}
"""Gold and answer of the one error that docs/graders.md counts."""
real = pytest.mark.skipif(not REAL, reason="SEARCHLENS_BENCHMARKS names no folder of real benchmark files")


@pytest.fixture(scope="module")
def script() -> ModuleType:
    return loaded("validation/graders.py")


@real
def test_every_file_of_golds_is_graded(script: ModuleType) -> None:
    """A file that nothing here reads would pass unnoticed."""
    graded = {*script.FILES.values(), *(name for name, _ in script.WORD_PROBLEMS.values())}
    there = {path.name for path in Path(REAL).iterdir() if path.suffix in (".json", ".jsonl", ".csv")}
    assert there <= graded | {*ELSEWHERE, "gpqa_diamond.csv"}


@real
def test_golds_of_every_file_are_right_and_mutated_golds_wrong(script: ModuleType) -> None:
    cases = []
    for group, golds in script.golds_of(Path(REAL)):
        distinct = sorted(set(golds))
        some = random.Random(SEED).sample(distinct, min(GOLDS, len(distinct)))
        cases += [*script.mutated_cases(group, some), *script.text_cases(group, some)]
    misjudged = [
        (case.group, "rejected" if case.right else "accepted", *case.pair)
        for case, verdict in zip(cases, script.ours(cases), strict=True)
        if verdict != case.right and case.pair not in KNOWN_ERRORS
    ]
    assert misjudged == []
    assert {case.right for case in cases} == {True, False}
    assert len(cases) > 100


@real
def test_letters_of_a_file_are_right_and_other_letters_wrong(script: ModuleType) -> None:
    path = Path(REAL) / "mmlu_stem.jsonl"
    if not path.exists():
        pytest.skip(f"{path.name} is not in SEARCHLENS_BENCHMARKS")
    choice = Choice()
    questions = benchmarks.read([path], family="mmlu_stem").questions
    for question in random.Random(SEED).sample(questions, 30):
        gold = choice.reference(question)
        other = "ABCD"[("ABCD".index(gold) + 1) % 4]
        texts = [text % letter for letter in (gold, f"({gold})", other) for text in script.TEXTS]
        answers = [choice.extract(text, True).answer for text in texts]
        verdicts = choice.grade([GradedPair(gold, str(answer)) for answer in answers])
        assert [verdict.correct for verdict in verdicts] == [True] * 2 * len(script.TEXTS) + [False] * len(script.TEXTS)
