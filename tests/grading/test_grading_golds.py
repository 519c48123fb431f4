"""Golds of real benchmark files are right in other spellings, and wrong with a digit, sign, entry or row changed.

A small part of ``validation/graders.py``, on files in the folder that SEARCHLENS_BENCHMARKS names.
"""

from __future__ import annotations

import importlib.util
import os
import random
import sys
from pathlib import Path
from types import ModuleType

import pytest

from searchlens import benchmarks
from searchlens.grading import GradedPair
from searchlens.grading.choice import Choice

REAL = os.environ.get("SEARCHLENS_BENCHMARKS", "")
SEED, GOLDS = 20, 6
"""Golds of each file, drawn with this seed."""
ELSEWHERE = {"mmlu_stem.jsonl": "its golds are letters", "ifeval.jsonl": "it has checks in place of golds"}
"""Files whose golds are not for grader ``math``."""
KNOWN_ERRORS = {
    (r"(-\infty, 0) \cup\{1\}.", r"(-\infty, 0) \cup\{1\}.."): "the gold itself ends in a full stop",
}
"""Gold and answer of the one error that docs/grading.md counts."""
pytestmark = pytest.mark.skipif(not REAL, reason="SEARCHLENS_BENCHMARKS names no folder of real benchmark files")


@pytest.fixture(scope="module")
def script() -> ModuleType:
    path = Path(__file__).parents[2] / "validation" / "graders.py"
    spec = importlib.util.spec_from_file_location("validation_graders", path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules["validation_graders"] = module
    spec.loader.exec_module(module)
    return module


def test_every_file_of_golds_is_graded(script: ModuleType) -> None:
    """A file that nothing here reads would pass unnoticed."""
    graded = {*script.FILES.values(), *(name for name, _ in script.WORD_PROBLEMS.values())}
    there = {path.name for path in Path(REAL).iterdir() if path.suffix in (".json", ".jsonl", ".csv")}
    assert there <= graded | {*ELSEWHERE, "gpqa_diamond.csv"}


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


def test_letters_of_a_file_are_right_and_other_letters_wrong(script: ModuleType) -> None:
    path = Path(REAL) / "mmlu_stem.jsonl"
    if not path.exists():
        pytest.skip(f"{path.name} is not in SEARCHLENS_BENCHMARKS")
    choice = Choice()
    questions = benchmarks.load(path, family="mmlu_stem")
    for question in random.Random(SEED).sample(questions, 30):
        gold = choice.reference(question)
        other = "ABCD"[("ABCD".index(gold) + 1) % 4]
        texts = [text % letter for letter in (gold, f"({gold})", other) for text in script.TEXTS]
        answers = [choice.extract(text, True).answer for text in texts]
        verdicts = choice.grade([GradedPair(gold, str(answer)) for answer in answers])
        assert [verdict.correct for verdict in verdicts] == [True] * 2 * len(script.TEXTS) + [False] * len(script.TEXTS)
