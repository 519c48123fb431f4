"""Benchmark files: what is accepted, and that every wrong row is named with its line."""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from searchlens import benchmarks
from searchlens.benchmarks import Question
from searchlens.errors import InputError

GOOD = {"id": "a", "question": "What is 1+1?", "gold": "2"}
OTHER = {"id": "b", "question": "What is 2+2?", "gold": "4", "tags": {"level": 1}}


def lines(*rows: object) -> str:
    return "".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "sums.jsonl"


def test_rows_become_questions_in_file_order(path: Path) -> None:
    path.write_text(lines(GOOD, "", {**OTHER, "gold": "", "checks": {"count": {"n": 2}}}))
    assert benchmarks.load(path) == (
        Question("a", "What is 1+1?", "2"),
        Question("b", "What is 2+2?", "", {"count": {"n": 2}}, {"level": 1}),
    )
    assert [question.id for question in benchmarks.load(path, limit=1)] == ["a"]


def test_written_questions_read_back_equal(path: Path) -> None:
    questions = (
        Question("é", "line\u2028break \\frac{1}{2}", "2"),
        Question("b", "?", "", {"first": {"word": "x"}}, {"k": 1}),
    )
    path.write_text(benchmarks.dumps(questions))
    assert benchmarks.load(path) == questions


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ("{", ":2: not JSON: Expecting property name enclosed in double quotes at column 2"),
        ("[1]", ":2: must be a JSON object, found list"),
        ('{"id": "b", "id": "c", "question": "?", "gold": "1"}', ":2: key 'id' occurs twice"),
        ('{"id": "b", "question": "?", "gold": NaN}', ":2: NaN is not JSON"),
        (
            '{"id": "b", "question": "\\ud800", "gold": "1"}',
            ":2: not JSON text: an escaped surrogate without its partner",
        ),
        ({"id": "b", "gold": "4"}, ":2: key 'question' is missing"),
        ({**OTHER, "answer": "4"}, ":2: key 'answer' is unknown"),
        ({**OTHER, "gold": 4}, ":2: 'gold' must be a string, found int"),
        ({**OTHER, "gold": ""}, ":2: 'gold' is empty and there are no checks"),
        ({**OTHER, "id": ""}, ":2: 'id' is empty"),
        ({**OTHER, "checks": {"count": 3}}, ":2: check 'count' must be an object of parameters"),
        ({**OTHER, "id": "a"}, ":2: id 'a' occurs already on line 1"),
        ({**OTHER, "question": GOOD["question"]}, ":2: the question occurs already on line 1"),
    ],
)
def test_a_wrong_row_is_named_with_its_line(path: Path, row: object, expected: str) -> None:
    path.write_text(lines(GOOD, row))
    with pytest.raises(InputError) as error:
        benchmarks.load(path)
    assert error.value.message == f"{path}{expected}"


def test_all_errors_come_at_once_the_first_ten_by_line(path: Path) -> None:
    path.write_text(lines(*({"id": f"q{i}"} for i in range(6))))
    with pytest.raises(InputError) as error:
        benchmarks.load(path)
    messages = error.value.message.split("\n")
    assert messages[:2] == [f"{path}:1: key 'question' is missing", f"{path}:1: key 'gold' is missing"]
    assert len(messages) == 11
    assert messages[-1] == "… and 2 more errors"


@pytest.mark.parametrize(
    ("content", "expected"),
    [(b"", "is empty"), (b"\n \n", "is empty"), (b'{"id": "a"}\n\xff\n', ":2: not UTF-8 text (byte 12)")],
)
def test_a_file_without_rows_or_text_is_refused(path: Path, content: bytes, expected: str) -> None:
    path.write_bytes(content)
    with pytest.raises(InputError, match=re.escape(expected)):
        benchmarks.load(path)


def test_a_missing_file_is_refused(path: Path) -> None:
    with pytest.raises(InputError, match=r"cannot read benchmark file .*sums\.jsonl: No such file"):
        benchmarks.load(path)


def test_an_edited_file_is_refused_with_both_ways_out(path: Path) -> None:
    path.write_text(lines(GOOD, OTHER))
    declared = hashlib.sha256(path.read_bytes()).hexdigest()
    assert len(benchmarks.load(path, expected_sha256=declared)) == 2
    path.write_text(lines(GOOD))
    with pytest.raises(InputError) as error:
        benchmarks.load(path, expected_sha256=declared)
    sha256 = hashlib.sha256(path.read_bytes()).hexdigest()
    assert error.value.message == f"benchmark file {path} changed: its sha256 is {sha256} (1 row), expected {declared}"
    assert "restore the file" in error.value.hint
    assert "declare the new sha256" in error.value.hint


def test_more_questions_than_there_are_is_refused(path: Path) -> None:
    path.write_text(lines(GOOD))
    with pytest.raises(InputError, match="has 1 question, 2 are asked for"):
        benchmarks.load(path, limit=2)


def test_an_unknown_family_lists_the_known_ones(path: Path) -> None:
    path.write_text(lines(GOOD))
    with pytest.raises(InputError, match=r"family 'csv' is unknown. Known: aime, aime24, .*jsonl"):
        benchmarks.load(path, family="csv")


def test_the_content_hash_sees_content_and_order_but_not_layout(path: Path) -> None:
    path.write_text(lines(GOOD, OTHER))
    first = benchmarks.load(path)
    path.write_text(lines(dict(reversed(GOOD.items())), "", OTHER))
    assert benchmarks.content_hash(benchmarks.load(path)) == benchmarks.content_hash(first)
    changed = [first[::-1], first[:1], (replace(first[0], gold="3"), first[1]), (replace(first[0], text="?"), first[1])]
    assert len({benchmarks.content_hash(questions) for questions in (first, *changed)}) == 5


def test_a_corrected_gold_asks_the_same_questions() -> None:
    question = Question("a", "?", "2")
    assert benchmarks.asked_hash([question]) == benchmarks.asked_hash([replace(question, gold="3")])
    assert benchmarks.asked_hash([question]) != benchmarks.asked_hash([replace(question, text="??")])
    assert benchmarks.asked_hash([question]) != benchmarks.asked_hash([replace(question, id="b")])


def test_planning_imports_nothing_heavy() -> None:
    modules = "searchlens.benchmarks.prompts, searchlens.benchmarks.listing, searchlens.grading"
    code = f"import sys, {modules}; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {"pyarrow", "huggingface_hub", "polars", "numpy", "sympy", "math_verify", "pebble"} & set(loaded)
