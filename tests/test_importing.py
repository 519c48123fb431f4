"""Imported samples: what a good file becomes, and that every wrong one is refused as a whole, with line numbers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from searchlens import benchmarks
from searchlens.benchmarks import Question
from searchlens.errors import InputError
from searchlens.grading.score import score_samples
from searchlens.readers.own import ImportedSamples, read_samples
from searchlens.store import shards

SUMS = (Question("one", "1+1?", "2"), Question("two", "2+2?", "4"))


def row(question: str, sample: int, **more: Any) -> dict[str, Any]:
    return {"question": question, "sample": sample, "text": rf"\boxed{{{sample}}}", **more}


GOOD = [row(question, sample) for sample in range(2) for question in ("two", "one")]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "samples.jsonl"


def imported(path: Path, rows: list[Any], questions: tuple[Question, ...] | None = SUMS) -> ImportedSamples:
    path.write_text("".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in rows))
    return read_samples(path, questions)


def refusal(path: Path, rows: list[Any], questions: tuple[Question, ...] | None = SUMS) -> list[str]:
    """The lines of the one error that a file gives, without the path."""
    with pytest.raises(InputError) as error:
        imported(path, rows, questions)
    assert "nothing was imported" in error.value.hint
    return error.value.message.replace(str(path), "").split("\n")


def test_rows_in_any_order_become_the_store_s_columns_in_benchmark_order(path: Path) -> None:
    pool = imported(path, GOOD)
    assert pool.frame.schema == shards.SAMPLES
    assert pool.frame.select("question", "sample").rows() == [("one", 0), ("one", 1), ("two", 0), ("two", 1)]
    assert (pool.samples, pool.questions) == (2, SUMS)
    assert pool.frame["finish"].unique().to_list() == [None], "how they ended is unknown"
    unknown = ("tokens", "n_tokens", "logprobs", "mean_logprob", "sampling_logprobs")
    assert pool.frame.select(pl.col(unknown).is_null().all()).row(0) == (True,) * 5


def test_token_ids_and_log_probabilities_are_kept_and_summed_up(path: Path) -> None:
    more = {"tokens": [5, 6, 7], "logprob": [-1, -0.5, 0], "finish": "length"}
    frame = imported(path, [{**sample, **more} for sample in GOOD]).frame
    assert frame["tokens"].to_list() == [[5, 6, 7]] * 4
    assert frame["logprobs"].to_list() == [[-1.0, -0.5, 0.0]] * 4
    assert frame.select("n_tokens", "mean_logprob", "finish").unique().rows() == [(3, -0.5, "length")]


def test_counts_and_means_do_without_lists(path: Path) -> None:
    frame = imported(path, [{**sample, "tokens": 12, "logprob": -0.25} for sample in GOOD]).frame
    assert frame.select("n_tokens", "mean_logprob", "tokens", "logprobs").unique().rows() == [(12, -0.25, None, None)]
    only_logprobs = imported(path, [{**sample, "logprob": [-1.0, -2.0]} for sample in GOOD]).frame
    assert only_logprobs.select("n_tokens", "mean_logprob").unique().rows() == [(2, -1.5)]


def test_a_benchmark_of_one_s_own_is_built_from_the_rows(path: Path) -> None:
    rows = [row("b", 0, gold=4.0, prompt="2+2?"), row("b", 1), row("a", 0, gold="2"), row("a", 1, gold="2")]
    pool = imported(path, rows, None)
    assert pool.questions == (Question("a", "a", "2"), Question("b", "2+2?", "4"))
    assert imported(path, rows[::-1], None).frame.equals(pool.frame)
    saved = path.with_name("own.jsonl")
    saved.write_text(benchmarks.dumps(pool.questions))
    assert benchmarks.load(saved) == pool.questions


def test_imported_samples_are_scored_like_our_own(path: Path, tmp_path: Path) -> None:
    rows = [row("a", 0, gold="0"), row("a", 1), row("a", 2, text="none")]
    pool = imported(path, rows, None)
    samples = pool.frame.select(
        pl.lit("mine").alias("policy"),
        "question",
        "sample",
        "run",
        "text",
        pl.col("n_tokens").alias("tokens"),
        "generated",
        (pl.col("finish") == "stop").alias("stopped"),
        "score",
    )
    scores = score_samples(samples, pool.questions, "math", tmp_path / "verdicts").scores
    assert scores.select("correct", "answer", "tokens").rows() == [(True, 0, None), (False, 1, None), (False, -1, None)]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ('{"question": "one"', ":1: not JSON: Expecting ',' delimiter at column 19"),
        ('["one"]', ":1: must be a JSON object, found list"),
        ({"question": "one", "sample": 0}, ":1: key 'text' is missing"),
        (
            row("one", 0, id=3),
            ":1: key 'id' is unknown; allowed: question, sample, text, tokens, logprob, finish, gold, prompt",
        ),
        (row("one", -1), ":1: 'sample' must be an integer >= 0, found -1"),
        ({**row("one", 0), "sample": True}, ":1: 'sample' must be an integer >= 0, found True"),
        ({**row("one", 0), "question": 7}, ":1: 'question' must be a question id (a string), found 7"),
        ({**row("one", 0), "text": None}, ":1: 'text' must be a string, found None"),
        (row("one", 0, tokens=1.5), ":1: 'tokens' must be a number of tokens or a list of token ids, found 1.5"),
        (
            row("one", 0, tokens=[1, -1]),
            ":1: 'tokens' must be a number of tokens or a list of token ids, found [1, -1]",
        ),
        (
            row("one", 0, logprob=0.5),
            ":1: 'logprob' must be a natural log-probability (<= 0) or a list of them, found 0.5",
        ),
        (
            row("one", 0, logprob=[]),
            ":1: 'logprob' must be a natural log-probability (<= 0) or a list of them, found []",
        ),
        ('{"question": "one", "sample": 0, "text": "", "logprob": -Infinity}', ":1: -Infinity is not JSON"),
        (row("one", 0, finish="eos"), ":1: 'finish' must be 'stop' or 'length', found 'eos'"),
        (row("one", 0, gold=True), ":1: 'gold' must be a string that is not empty, or a number, found True"),
        (row("one", 0, tokens=[1, 2], logprob=[-1]), ":1: there are 2 tokens but 1 log-probabilities"),
        (row("one", 0, tokens=2, logprob=[-1]), ":1: there are 2 tokens but 1 log-probabilities"),
    ],
)
def test_a_wrong_row_is_named_with_its_line(path: Path, line: Any, expected: str) -> None:
    assert refusal(path, [line, *GOOD]) == [expected]


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([*GOOD, "", row("three", 0)], [":6: question 'three' is not in the benchmark; its ids are like 'one', 'two'"]),
        ([*GOOD, GOOD[0]], [":5: sample 0 of question 'two' occurs already on line 1"]),
        (GOOD[:3], [": question 'one': sample 1 is missing; every question needs samples 0 to 1"]),
        (
            [*GOOD, row("one", 4)],
            [
                ": question 'one': sample 2 and 1 more are missing; every question needs samples 0 to 4",
                ": question 'two': sample 2 and 2 more are missing; every question needs samples 0 to 4",
            ],
        ),
        (GOOD[::2], [": question 'one' of the benchmark has no samples"]),
        ([*GOOD[:3], {**GOOD[3], "gold": "5"}], [":4: gold '5' is not the benchmark's, '2'"]),
        ([*GOOD[:3], {**GOOD[3], "tokens": 5}],
         [":1: key 'tokens' is missing here but given on other lines; give it on all or none"]),
    ],
)  # fmt: skip
def test_rows_that_do_not_make_a_pool_are_refused(path: Path, rows: list[Any], expected: list[str]) -> None:
    assert refusal(path, rows) == expected


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([row("a", 0)], ":1: question 'a' has no gold on any line; a benchmark of your own needs one"),
        ([row("a", 0, gold="1"), row("a", 1, gold="2")], ":2: gold '2' differs from '1' on line 1"),
        ([row("a", 0, gold="1", prompt="p"), row("a", 1, prompt="q")], ":2: prompt 'q' differs from 'p' on line 1"),
        ([row("a", 0, gold="1", prompt="p"), row("b", 0, gold="1", prompt="p")],
         ":2: questions 'a' and 'b' have the same prompt"),
    ],
)  # fmt: skip
def test_rows_that_do_not_make_a_benchmark_are_refused(path: Path, rows: list[Any], expected: str) -> None:
    assert refusal(path, rows, None) == [expected]


def test_ten_errors_are_listed_and_the_rest_counted(path: Path) -> None:
    lines = refusal(path, [{"question": "one", "sample": i} for i in range(13)])
    assert lines[0] == ":1: key 'text' is missing"
    assert lines[9] == ":10: key 'text' is missing"
    assert lines[10:] == ["… and 3 more errors"]


def test_a_missing_or_empty_file_is_refused(path: Path) -> None:
    with pytest.raises(InputError, match=r"cannot read .*samples\.jsonl"):
        read_samples(path, SUMS)
    with pytest.raises(InputError, match="is empty"):
        imported(path, [], SUMS)


def test_the_documented_examples_are_accepted(path: Path) -> None:
    document = Path(__file__).parent.parent / "docs" / "import.md"
    lines = [line.strip() for line in document.read_text().splitlines() if line.startswith('    {"')]
    known = (Question("sum-1", "1+1?", "2"), Question("sum-2", "2+2?", "4"))
    assert imported(path, lines[:4], known).samples == 2
    assert [question.gold for question in imported(path, lines[4:], None).questions] == ["Paris", "7"]
