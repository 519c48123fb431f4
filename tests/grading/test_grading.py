"""Graders: where answers are found, letters, instructions, and the seam."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from pathlib import Path
from typing import get_args

import pytest

from searchlens import catalogue, grading
from searchlens.benchmarks import Question
from searchlens.benchmarks.choices import letter_of
from searchlens.benchmarks.mathematics import last_boxed
from searchlens.errors import InputError
from searchlens.grading import NO_ANSWER, Extraction, GradedPair, Grader, How, Verdict
from searchlens.grading.choice import Choice, ChoiceNarrow
from searchlens.grading.ifeval import Checklist
from searchlens.grading.math import Math, MathNarrow

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


def test_letters_are_judged_by_equality() -> None:
    verdicts = CHOICE.grade([GradedPair("C", "C"), GradedPair("C", "A")])
    assert [(verdict.correct, verdict.key) for verdict in verdicts] == [(True, "gold"), (False, "~A")]
    assert CHOICE.reference(Question("q", "?", " c")) == "C"


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
    with pytest.raises(InputError, match="question 'q' has no checks"):
        CHECKLIST.reference(Question("q", "?", "5"))


# ---- the seam


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


def test_an_unknown_kind_lists_the_known_ones() -> None:
    with pytest.raises(
        InputError,
        match=r"grader 'essay' is unknown\. Known: choice, choice-narrow, ifeval, instructions, math, math-narrow, rec",
    ):
        grading.grader("essay")
