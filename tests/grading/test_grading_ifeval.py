"""IFEval's official checkers, imported past lm-eval's dependencies."""

import json
import os
import random
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from scripts import printed
from searchlens.benchmarks import Question, read
from searchlens.errors import InputError
from searchlens.grading import NO_ANSWER, Extraction, GradedPair, punkt
from searchlens.grading.ifeval import IFEval
from searchlens.grading.processes import Limits

IFEVAL = IFEval()

MISSING = [name for name in ("lm_eval", "nltk", "langdetect", "immutabledict") if find_spec(name) is None]
if not MISSING:
    try:
        punkt.check()
    except InputError as error:
        MISSING.append(str(error).splitlines()[0])
needed = pytest.mark.skipif(bool(MISSING), reason=f"not installed: {', '.join(MISSING)}; run `make setup`")


def question(*instructions: tuple[str, dict[str, Any]]) -> Question:
    names, given = [name for name, _ in instructions], [given for _, given in instructions]
    return Question("q1", "?", "", {"ifeval": {"instruction_id_list": names, "kwargs": given}})


NO_COMMA = ("punctuation:no_comma", {})
TITLE = ("detectable_format:title", {})
WORDS = ("length_constraints:number_words", {"num_words": 3, "relation": "at least"})


@needed
def test_there_are_the_25_officialcheckers_and_nothing_of_lm_eval_stays_imported() -> None:
    code = (
        "import sys\nfrom searchlens.grading import checkers\nprint(len(checkers.registry()),"
        " [name for name in sys.modules if name.startswith('lm_eval')], 'datasets' in sys.modules)"
    )
    assert printed(code) == "25 [] False"


@needed
def test_each_instruction_is_reported_strictly_and_loosely() -> None:
    gold = IFEVAL.reference(question(NO_COMMA, TITLE, WORDS))
    texts = ["<<Title>>\none two three", "one two three", "Sure, here:\n<<Title>>\none two three", "a"]
    verdicts = IFEVAL.grade([GradedPair(gold, text) for text in texts], workers=1)
    assert [verdict.form for verdict in verdicts] == ["111/111", "101/101", "011/111", "100/100"]
    assert [verdict.correct for verdict in verdicts] == [True, False, False, False]  # the strict prompt level


@needed
def test_first_and_last_lines_and_asterisks_are_what_loose_checking_forgives() -> None:
    quoted = IFEVAL.reference(question(("startend:quotation", {})))
    texts = ['"hello"', '*"hello"*', 'Sure:\n"hello"', '"hello"\nBye', 'Sure:\n"hello"\nBye', 'Sure:\nok\n"hello"\nBye']
    verdicts = IFEVAL.grade([GradedPair(quoted, text) for text in texts], workers=1)
    assert [verdict.form for verdict in verdicts] == ["1/1", "0/1", "0/1", "0/1", "0/1", "0/0"]


@needed
def test_agreement_with_lm_eval_own_scoring_on_generated_responses() -> None:
    """lm-eval's own strict and loose functions, reached in the same way as its checkers."""
    code = """
import json, random, sys
from importlib import import_module
from searchlens.grading import checkers
checkers.registry()
with checkers.packages_replaced():
    own = import_module("lm_eval.tasks.ifeval.utils")
    cases = json.load(sys.stdin)
    for names, given, text in cases:
        inp = own.InputExample(1, names, "", given)
        strict = own.test_instruction_following_strict(inp, text).follow_instruction_list
        loose = own.test_instruction_following_loose(inp, text).follow_instruction_list
        print("/".join("".join(str(int(x)) for x in each) for each in (strict, loose)))
"""
    rng = random.Random(5)
    kinds: list[tuple[str, dict[str, Any]]] = [
        *(NO_COMMA, TITLE, WORDS, ("detectable_format:json_format", {}), ("startend:quotation", {})),
        *(("change_case:english_lowercase", {}), ("change_case:english_capital", {})),
        ("keywords:frequency", {"keyword": "cat", "frequency": 2, "relation": "at least"}),
        ("length_constraints:number_sentences", {"num_sentences": 2, "relation": "less than"}),
        ("change_case:capital_word_frequency", {"capital_frequency": 1, "capital_relation": "at least"}),
        ("detectable_format:number_highlighted_sections", {"num_highlights": 1}),
        ("language:response_language", {"language": "de"}),
    ]
    lines = [
        "the cat sat on the mat.",
        "*CAT* and dog",
        "<<A cat>>",
        "Der Hund und die Katze, heute.",
        '"cat"',
        "",
        "{}",
    ]
    cases = []
    for _ in range(120):
        chosen = rng.sample(kinds, rng.randint(1, 3))
        text = "\n".join(rng.choices(lines, k=rng.randint(1, 4)))
        cases.append(([name for name, _ in chosen], [given for _, given in chosen], text))
    out = subprocess.run(
        [sys.executable, "-c", code], input=json.dumps(cases), capture_output=True, text=True, check=True
    ).stdout.splitlines()
    pairs = [GradedPair(IFEVAL.reference(question(*zip(*case[:2], strict=True))), case[2]) for case in cases]
    answered = [i for i, pair in enumerate(pairs) if IFEVAL.extract(pair.answer, True).answer is not None]
    verdicts = IFEVAL.grade([pairs[i] for i in answered], workers=2)
    assert [verdict.form for verdict in verdicts] == [out[i] for i in answered]
    assert {"0" in form.split("/")[0] for form in out} == {True, False}


@needed
def test_detected_languages_do_not_change_from_run_to_run() -> None:
    gold = IFEVAL.reference(question(("language:response_language", {"language": "es"})))
    verdicts = IFEVAL.grade([GradedPair(gold, "ok la casa")] * 30, workers=2)  # unseeded, one in seven says so
    assert len({verdict.form for verdict in verdicts}) == 1


@needed
@pytest.mark.parametrize(
    ("instruction", "message"),
    [
        (("keywords:rhyme", {}), "question 'q1': unknown instruction 'keywords:rhyme'"),
        (("length_constraints:number_words", {"relation": "at least"}), r"needs \['num_words', 'relation'\]"),
        (("length_constraints:number_words", {"num_words": 0, "relation": "at least"}), "none zero or empty"),
        (("keywords:existence", {"keywords": []}), "none zero or empty"),
        (("punctuation:no_comma", {"n": 3}), r"needs \[\]"),
    ],
)
def test_a_parameter_that_would_be_drawn_at_random_is_an_input_error(
    instruction: tuple[str, dict[str, Any]], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        IFEVAL.reference(question(instruction))


@needed
def test_nulls_of_the_hub_layout_count_as_absent() -> None:
    every = {"num_words": None, "relation": None, "keywords": None}
    gold = IFEVAL.reference(question(("punctuation:no_comma", every)))
    assert IFEVAL.grade([GradedPair(gold, "yes")])[0].correct is True


def test_a_question_needs_instructions_and_a_response_is_checked_as_it_is() -> None:
    """Also an unfinished one; a blank one is none."""
    with pytest.raises(InputError, match="question 'q' has no instructions"):
        IFEVAL.reference(Question("q", "?", "5"))
    assert IFEVAL.extract(" yes\n", stopped=False) == Extraction(" yes\n", "whole")
    assert IFEVAL.extract(" \n", stopped=True) == NO_ANSWER


@needed
def test_a_response_that_takes_too_long_is_unknown() -> None:
    gold = IFEVAL.reference(
        question(("change_case:capital_word_frequency", {"capital_frequency": 1, "capital_relation": "at least"}))
    )
    pairs = [GradedPair(gold, "A. " * 500_000), GradedPair(gold, "A b")]
    verdicts = IFEval(Limits(cpu_seconds=0.5, wall_seconds=10.0)).grade(pairs, workers=1)
    assert [verdict.correct for verdict in verdicts] == [None, True]


@pytest.mark.skipif(find_spec("nltk") is None, reason="nltk is not installed")
@pytest.mark.parametrize(("damage", "message"), [(False, "are not installed"), (True, "the pinned one is")])
def test_data_that_are_missing_or_others_are_a_hard_error_that_says_how_to_get_them(
    tmp_path: Path, damage: bool, message: str
) -> None:
    if damage:
        for name in punkt.FILES:
            path = tmp_path / "tokenizers/punkt_tab/english" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("something else")
    code = f"import nltk\nnltk.data.path[:] = [{str(tmp_path)!r}]\nfrom searchlens.grading import punkt\npunkt.check()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert message in done.stderr
    assert "python -m searchlens.grading.punkt" in done.stderr


@needed
@pytest.mark.skipif("SEARCHLENS_BENCHMARKS" not in os.environ, reason="SEARCHLENS_BENCHMARKS is not set")
def test_every_published_prompt_has_all_parameters_of_its_instructions() -> None:
    questions = read([Path(os.environ["SEARCHLENS_BENCHMARKS"]) / "ifeval.jsonl"], "ifeval").questions
    used = {name for each in map(IFEVAL.reference, questions) for name in json.loads(each)["instruction_id_list"]}
    assert (len(questions), len(used)) == (541, 25)
