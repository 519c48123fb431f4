"""Imported samples: what good files become, and that every wrong one is refused as a whole, with line numbers."""

import gzip
import json
import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from reading import written
from searchlens import benchmarks
from searchlens.benchmarks import Question
from searchlens.errors import InputError
from searchlens.formats import pools as spill
from searchlens.formats.documents import KnownDocuments, Match, Matcher
from searchlens.formats.pools import proposed
from searchlens.formats.readers.logged import Document, Problems
from searchlens.formats.reading import Choices, Reading
from searchlens.formats.reading import read as read_pools
from searchlens.store import shards
from searchlens.store.inputs import LONGEST
from test_benchmarks_known import as_csv

SUMS = (Question("one", "1+1?", "2"), Question("two", "2+2?", "4"))
BASE = Choices(role="base", policy="mine")


def row(question: str, sample: int, **more: Any) -> dict[str, Any]:
    return {"question": question, "sample": sample, "text": rf"\boxed{{{sample}}}", **more}


GOOD = [row(question, sample) for sample in range(2) for question in ("two", "one")]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "samples.jsonl"


Frame = tuple[Reading, pl.DataFrame]


def imported(
    path: Path, rows: Sequence[Any], questions: Sequence[Question] | None = SUMS, choices: Choices = BASE
) -> Frame:
    """What a file of one pool becomes: the reading, and the samples in the columns of the store."""
    with read_pools([written(path, rows)], questions, "math", choices) as reading:
        (pool,) = reading.pools
        return reading, pl.concat(pool.frames())


def refusal(
    path: Path, rows: Sequence[Any], questions: Sequence[Question] | None = SUMS, choices: Choices = BASE
) -> list[str]:
    """The lines of the one error that a file gives, without the path."""
    with pytest.raises(InputError) as error:
        imported(path, rows, questions, choices)
    return error.value.message.replace(str(path), "").split("\n")


def test_rows_in_any_order_become_the_store_s_columns_in_benchmark_order(path: Path) -> None:
    reading, frame = imported(path, GOOD)
    assert frame.schema == shards.SAMPLES
    assert frame.select("question", "sample").rows() == [("one", 0), ("one", 1), ("two", 0), ("two", 1)]
    assert (reading.pools[0].samples, reading.questions) == (2, SUMS)
    assert frame["finish"].unique().to_list() == [None], "how they ended is unknown"
    unknown = ("tokens", "n_tokens", "logprobs", "mean_logprob", "sampling_logprobs")
    assert frame.select(pl.col(unknown).is_null().all()).row(0) == (True,) * 5


KEPT = ("n_tokens", "mean_logprob", "tokens", "logprobs", "finish")


@pytest.mark.parametrize(
    ("more", "kept"),
    [
        ({"tokens": [5, 6], "logprob": [-1, 0], "finish": "max_tokens"}, (2, -0.5, [5, 6], [-1, 0], "length")),
        ({"tokens": 12, "logprob": -0.25}, (12, -0.25, None, None, None)),
        ({"logprob": [-1.0, -2.0]}, (2, -1.5, None, [-1.0, -2.0], None)),
        ({"tokens": 5.0, "logprob": 1e-7, "finish": None}, (5, 0.0, None, None, None)),
    ],
    ids=["lists", "counts and means", "log-probabilities alone", "as other tools write them"],
)
def test_tokens_and_log_probabilities_are_kept_and_summed_up(path: Path, more: dict[str, Any], kept: Any) -> None:
    _, frame = imported(path, [{**sample, **more} for sample in GOOD])
    assert frame.select(KEPT).rows() == [kept] * 4


def test_unknown_keys_are_named_once(path: Path) -> None:
    reading, _ = imported(path, [{**sample, "seed": 3} for sample in GOOD])
    assert reading.notes == (f"key 'seed' is not known and was left out (4 times, first in {path}:1)",)


def gzipped(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    path.write_bytes(gzip.compress("".join(json.dumps(each) + "\r\n" for each in rows).encode("utf-8-sig")))


def tabled(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    pl.DataFrame(rows).write_parquet(path)


def listed(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    path.write_text(json.dumps(rows))


@pytest.mark.parametrize(
    ("name", "write_as"),
    [("a.gz", gzipped), ("a.parquet", tabled), ("a.csv", as_csv), ("a.json", listed)],
)
def test_the_same_samples_in_another_kind_of_file_are_the_same_pool(
    tmp_path: Path, name: str, write_as: Callable[[Path, Sequence[Mapping[str, Any]]], None]
) -> None:
    rows = [{**sample, "tokens": 7, "finish": "stop", "text": "line\nwith, comma"} for sample in GOOD]
    expected, frame = imported(tmp_path / "plain.jsonl", rows)
    write_as(tmp_path / name, rows)
    with read_pools([tmp_path / name], SUMS, "math", BASE) as reading:
        (pool,) = reading.pools
        assert pool.id == expected.pools[0].id
        assert pl.concat(pool.frames()).equals(frame)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ('{"question": "one"', ":1: not JSON: Expecting ',' delimiter, column 19"),
        ('["one"]', ":1: must be a JSON object, found list"),
        ({"question": "one", "sample": 0}, ":1: key 'text' is missing"),
        (row("one", -1), ":1: 'sample' must be an integer >= 0, found -1"),
        ({**row("one", 0), "sample": True}, ":1: 'sample' must be an integer >= 0, found True"),
        ({**row("one", 0), "question": 7}, ":1: 'question' must be a question id (a string), found 7"),
        ({**row("one", 0), "text": None}, ":1: 'text' must be a string, found None"),
        (row("one", 0, tokens=1.5), ":1: 'tokens' must be a number of tokens or a list of token ids, found 1.5"),
        (row("one", 0, tokens=[1, -1]), ":1: 'tokens' must be a number of tokens or a list of token ids, found [1"),
        (
            row("one", 0, logprob=0.5),
            ":1: 'logprob' must be a natural log-probability (<= 0) or a list of them, found 0",
        ),
        (
            row("one", 0, logprob=[]),
            ":1: 'logprob' must be a natural log-probability (<= 0) or a list of them, found []",
        ),
        ('{"question": "one", "sample": 0, "text": "", "logprob": -Infinity}', ":1: -Infinity is not JSON"),
        ('{"question": "one", "question": "two", "sample": 0}', ":1: key 'question' occurs twice"),
        (r'{"question": "one", "sample": 0, "text": "\ud800"}', ":1: not JSON text: an escaped surrogate without its"),
        (row("one", 0, gold=True), ":1: 'gold' must be a string that is not empty, or a number, found True"),
        (row("one", 0, correct=2), ":1: 'correct' must be true, false, or a number from 0 to 1, found 2"),
        (row("one", 2, finish="sideways"), ":1: 'finish' must be one of stop, eos, "),
        (row("one", 0, role="both"), ":1: 'role' must be 'base' or 'rl', found 'both'"),
        (row("one", 0, tokens=[1, 2], logprob=[-1]), ":1: as many log-probabilities as tokens are needed, 2 tokens, 1"),
        (row("one", 0, tokens=2, logprob=[-1]), ":1: as many log-probabilities as tokens are needed, 2 tokens, 1"),
    ],
)
def test_a_wrong_row_is_named_with_its_line(path: Path, line: Any, expected: str) -> None:
    (found,) = [each.replace(":5:", ":1:") for each in refusal(path, [*GOOD, line])]
    assert found.startswith(expected)


def test_mistakes_are_one_line_for_each_kind_with_two_examples(path: Path) -> None:
    lines = refusal(path, [*GOOD, *({"question": "one", "sample": i} for i in range(13)), row("one", 3, tokens=-1)])
    assert lines == [
        "key 'text' is missing (13 times): :5, :6 and 11 more",
        ":18: 'tokens' must be a number of tokens or a list of token ids, found -1",
    ]


def test_a_line_that_would_fill_the_memory_is_refused(path: Path) -> None:
    written(path, GOOD)
    os.truncate(path, path.stat().st_size + LONGEST + 1)
    says = r"samples\.jsonl:5: more than 268,435,456 bytes in a line"
    with pytest.raises(InputError, match=says), read_pools([path], SUMS, "math", BASE):
        pass


def test_files_of_no_known_format_are_described(tmp_path: Path) -> None:
    other = written(tmp_path / "other.jsonl", [{"id": 1, "score": 2}])
    says = r"other\.jsonl has no format that is known: its first row has the keys id, sc"
    for path, message in ((other, says), (tmp_path / "nothing.jsonl", r"cannot read .*nothing\.jsonl")):
        with pytest.raises(InputError, match=message), read_pools([path], SUMS, "math"):
            pass


def test_a_folder_is_read_as_the_files_in_it_and_below(tmp_path: Path) -> None:
    (tmp_path / "more").mkdir()
    written(tmp_path / "part-0", GOOD[:2])
    written(tmp_path / "more/b.jsonl", GOOD[2:])
    written(tmp_path / "more/questions.jsonl", [{"question": "one", "correct": "A"}])
    (tmp_path / "more/config.json").write_text('{\n  "question": "of a setting"\n}')
    (tmp_path / "notes.txt").write_text("nothing of this")
    with read_pools([tmp_path], SUMS, "math", BASE) as reading:
        assert {file.name for file in reading.files} == {"part-0", "b.jsonl"}
        assert reading.pools[0].samples == 2


@pytest.mark.parametrize("among_others", [True, False])
@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        (
            "b.jsonl.gz",
            gzip.compress(json.dumps(GOOD[2]).encode())[:-9],
            r"b\.jsonl\.gz is damaged: Compressed file ended",
        ),
        ("b.jsonl", b'{"question": "\xe9"}\n', r"b\.jsonl:1: not UTF-8 text \(byte 14 of the line\)"),
    ],
    ids=["cut off", "other encoding"],
)
def test_a_damaged_file_in_a_folder_is_refused(
    tmp_path: Path, name: str, content: bytes, says: str, among_others: bool
) -> None:
    """Without it numbers would be those of the other files."""
    (tmp_path / name).write_bytes(content)
    if among_others:
        written(tmp_path / "a.jsonl", GOOD)
    with pytest.raises(InputError, match=says), read_pools([tmp_path], SUMS, "math", BASE):
        pass


def test_files_that_are_left_out_of_a_folder_are_noted(tmp_path: Path) -> None:
    written(tmp_path / "a.jsonl", GOOD)
    written(tmp_path / "c.jsonl", [{"prompt": 1, "completion": 2}])
    (tmp_path / "more").mkdir()
    (tmp_path / "more/b.jsonl").touch()
    (tmp_path / "more/head.csv").write_text("question,sample,text\n")
    written(tmp_path / "more/other.jsonl", [{"prompt": 1, "completion": 2}])
    with read_pools([tmp_path], SUMS, "math", BASE) as reading:
        what = "a file has no samples of this format"
        assert list(reading.notes) == [
            f"{what}: its first row has the keys prompt, completion ({tmp_path / 'c.jsonl'})",
            f"{what}: it is empty ({tmp_path / 'more/b.jsonl'})",
            f"{what}: no row of it can be read ({tmp_path / 'more/head.csv'})",
        ]


def test_a_file_twice_is_refused(tmp_path: Path) -> None:
    files = [written(tmp_path / name, GOOD) for name in ("a.jsonl", "b.jsonl")]
    with pytest.raises(InputError, match="a sample occurs twice"), read_pools(files, SUMS, "math"):
        pass


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([*GOOD, GOOD[0]], "question 'two', sample 0: a sample occurs twice, :1, :5"),
        (GOOD[:3], "question 'one': every question needs samples 0 to 1; choose --failed drop (as many samples of"),
        (GOOD[::2], "question 'one': a question of the benchmark has no samples (--subset NAME"),
        ([*GOOD[:3], {**GOOD[3], "gold": "5"}],
         ":4: a gold of the log is not the benchmark's, question 'one': '5' in the log, '2' here"),
        ([*GOOD[:3], {**GOOD[3], "tokens": 5}],
         ":1: key 'tokens' is missing here but given on other rows; give it on all or none"),
        ([*GOOD, row("one", 2, finish="error"), row("two", 2)], "question 'one', sample 2: a request failed; choose"),
        ([*GOOD, row("one", 2**21)], ":5: a sample is numbered above a million, found 2097152"),
    ],
)  # fmt: skip
def test_rows_that_do_not_make_a_pool_are_refused(path: Path, rows: list[Any], expected: str) -> None:
    (found,) = refusal(path, rows)
    assert found.startswith(expected)


UNEVEN = [*(row("one", i) for i in range(3)), row("two", 0, finish="failed", text=""), row("two", 1), row("two", 2)]


@pytest.mark.parametrize(
    ("failed", "rows", "samples", "two"),
    [
        ("drop", UNEVEN, 2, [(0, r"\boxed{1}", None), (1, r"\boxed{2}", None)]),
        ("wrong", UNEVEN[:-1], 3, [(0, "", "failed"), (1, r"\boxed{1}", None), (2, "", "failed")]),
    ],
)
def test_failed_and_missing_samples_are_dropped_or_count_as_wrong(
    path: Path, failed: str, rows: list[Any], samples: int, two: list[Any]
) -> None:
    reading, frame = imported(path, rows, choices=Choices(failed=failed))
    assert reading.pools[0].samples == samples
    assert frame.filter(question="two").select("sample", "text", "finish").rows() == two
    assert frame.filter(question="one")["text"].to_list() == [rf"\boxed{{{i}}}" for i in range(samples)]


def test_the_same_texts_under_two_seeds_are_no_draws(path: Path) -> None:
    texts = {name: f"{name} " * 300 for name in ("one", "two")}
    rows = [row(name, sample, text=texts[name]) for name in texts for sample in range(2)]
    rows += [row(name, 2, text=f"other {texts[name]}") for name in texts]
    (found,) = refusal(path, rows)
    assert found == "samples 0 and 1 have the same texts in all questions, so they are no two draws"
    rows[0]["text"] += "."
    by_chance = [row(name, sample, text="4") for name in ("one", "two") for sample in range(3)]
    for some in (rows, by_chance):
        assert imported(path, some)[0].pools[0].samples == 3


def test_several_models_and_policies_are_pools_of_their_own(path: Path) -> None:
    rows = [
        {**sample, "model": model, "policy": policy, "role": role}
        for model, role in (("a", "base"), ("b", "rl"))
        for policy in ("greedy", "temp_1.0")
        for sample in GOOD
    ]
    with read_pools([written(path, rows)], SUMS, "math") as reading:
        found = [(pool.stream.model, pool.role, pool.policy, pool.samples) for pool in reading.pools]
    assert found == [(m, r, p, 2) for m, r in (("a", "base"), ("b", "rl")) for p in ("greedy", "temp_1.0")]


@pytest.mark.parametrize("questions", [None, "known"])
def test_a_pool_that_is_sorted_outside_of_memory_is_the_same(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, questions: str | None
) -> None:
    monkeypatch.setattr(spill, "MEMORY", 20_000)
    names = [f"q{(7 * i) % 50}" for i in range(50)]
    known = tuple(Question(name, f"{name}?", "1") for name in names) if questions else None
    rows = [
        row(name, (sample + i) % 8, text=f"{name} {sample} " * 20, gold="1", tokens=list(range(i % 3 + 1)))
        for sample in range(8)
        for i, name in enumerate(names)
    ]
    folder = tmp_path / "spilled"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    with read_pools([written(path, rows)], known, "math", BASE) as reading:
        assert len(list(folder.glob("*/*.arrow"))) > 3, "several runs were written"
        pieces = list(reading.pools[0].frames())
        assert len(pieces) > 3
    assert not list(folder.iterdir()), "nothing is left"
    monkeypatch.setattr(spill, "MEMORY", 2**30)
    _, whole = imported(path, rows[::-1], known)
    assert pl.concat(pieces).equals(whole)
    assert whole["question"].unique(maintain_order=True).to_list() == (names if questions else sorted(names))


def test_a_benchmark_of_one_s_own_is_built_from_the_rows(path: Path) -> None:
    rows = [row("b", 0, gold=4.0, prompt="2+2?"), row("b", 1), row("a", 0, gold="2"), row("a", 1, gold="2")]
    reading, frame = imported(path, rows, None)
    assert reading.questions == (Question("a", "a", "2"), Question("b", "2+2?", "4"))
    assert imported(path, rows[::-1], None)[1].equals(frame)
    saved = path.with_name("own.jsonl")
    saved.write_text(benchmarks.dumps(reading.questions))
    assert benchmarks.read([saved]).questions == reading.questions


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([row("a", 0)], ":1: a question has no gold on any row; a benchmark of your own needs one, question 'a'"),
        ([row("a", 0, gold="1"), row("a", 1, gold="2")],
         ":2: a gold differs from that of an earlier row, '2', not '1' as in :1"),
        ([row("a", 0, gold="1", prompt="p"), row("a", 1, prompt="q")],
         ":2: a prompt differs from that of an earlier row, 'q', not 'p' as in :1"),
        ([row("a", 0, gold="1", prompt="p"), row("b", 0, gold="1", prompt="p")],
         ":2: questions have the same prompt, 'a' and 'b'"),
    ],
)  # fmt: skip
def test_rows_that_do_not_make_a_benchmark_are_refused(path: Path, rows: list[Any], expected: str) -> None:
    assert refusal(path, rows, None) == [expected]


KNOWN = (
    Question("k-1", "What is $1+1$?", "2", tags={"source_id": "test/1.json"}),
    Question("k-2", "What is the sum of all the even divisors of $12$?", "24", tags={"source_id": "test/2.json"}),
    Question("k-3", "Which is even?\n\nA) three\nB) four\nC) five", "B", tags={"source_id": "test/3.json"}),
)


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        (Document("k-2"), Match(1, "id", {})),
        (Document("test/2.json"), Match(1, "id", {})),
        (Document(17, is_index=True, prompt="  What is  $1+1$? "), Match(0, "text", {})),
        (Document(prompt="what is 1 + 1"), Match(0, "text", {})),
        (Document(prompt="Solve. What is the sum of all the even divisors of $12$? Box it.", is_templated=True),
         Match(1, "containment", {})),
        (Document("test/3.json", choices=("five", "three", "four")), Match(2, "id", {"A": "C", "B": "A", "C": "B"})),
        (Document(prompt="Which is even?", choices=("three", "four", "five")), Match(2, "text", {})),
        (Document("test/3.json"), "it has letters, but not the choices that they are of"),
        (Document("test/3.json", choices=("three", "four", "six")),
         "its choices are not those of the question"),
        (Document("k-1", prompt="What is the sum of all the even divisors of $12$?"),
         "its id is that of one question, its text that of another"),
        (Document(1, is_index=True), "neither its id nor its text is that of a question of the benchmark"),
        (Document(prompt="Nothing of this", is_templated=True), "its prompt contains no question"),
    ],
)  # fmt: skip
def test_documents_are_found_by_id_text_or_containment(document: Document, expected: object) -> None:
    assert Matcher(KNOWN).match(document) == expected


def test_an_index_counts_only_on_demand() -> None:
    assert Matcher(KNOWN, "index").match(Document(1, is_index=True)) == Match(1, "index", {})
    assert isinstance(Matcher(KNOWN, "index").match(Document(3, is_index=True)), str)


@pytest.mark.parametrize(
    ("document", "says"),
    [
        (Document("test/2.json", gold=("48/2",)), []),
        (Document("test/2.json", gold=(r"The divisors add up to \boxed{24}.",)), []),
        (Document("test/2.json", gold=("25",)), ["'25' in the log, '24' here"]),
        (Document("test/3.json", choices=("five", "three", "four"), gold=("C",)), []),
        (Document("test/3.json", choices=("five", "three", "four"), gold=("four",)), []),
        (Document("test/3.json", choices=("five", "three", "four"), gold=("2",)), []),
        (Document("test/3.json", choices=("five", "three", "four"), gold=("(A)",)), ["'C' in the log, 'B' here"]),
        (Document("test/3.json", choices=("five", "three", "four"), gold=("A",)), ["'C' in the log, 'B' here"]),
    ],
)
def test_golds_of_the_log_are_compared_by_the_grader(document: Document, says: list[str]) -> None:
    grader = "choice" if document.choices else "math"
    documents, problems = KnownDocuments(KNOWN), Problems()
    documents.locate(document, "log:1")
    documents.check(problems, grader)
    assert [line.split(": ")[-1] for line in problems.lines] == says


def test_two_documents_that_are_one_question_are_refused() -> None:
    documents, problems = KnownDocuments(KNOWN), Problems()
    documents.locate(Document("k-1"), "log:1")
    documents.locate(Document("test/1.json"), "log:2")
    documents.check(problems, "math")
    (line,) = problems.lines
    assert line == (
        "question 'k-1': two documents of the log are the same question of the benchmark,"
        " 'k-1' (log:1) and 'test/1.json' (log:2)"
    )


def test_golds_are_not_quoted_where_terms_forbid_it() -> None:
    documents, problems = KnownDocuments(KNOWN, quotes=False), Problems()
    documents.locate(Document("k-1", gold=("7",)), "log:1")
    documents.check(problems, "math")
    assert problems.lines == ["log:1: a gold of the log is not the benchmark's, question 'k-1'"]


@pytest.mark.parametrize(
    ("asked", "name", "unstated"),
    [
        ({"temperature": 0}, "greedy", ()),
        ({"do_sample": False, "temperature": 0.7}, "greedy", ()),
        ({"temperature": 1.0, "top_p": 1.0, "top_k": -1, "min_p": 0.0, "repetition_penalty": 1.0}, "temp_1.0", ()),
        ({"temperature": 0.6, "top_p": 0.95}, "topp0.95_t0.6", ("top_k", "min_p", "repetition_penalty")),
        ({"temperature": 1, "top_k": 20.0, "top_p": None}, "topk20_t1.0", ("top_p", "min_p", "repetition_penalty")),
        ({"top_p": 0.9}, "", ()),
        ({"temperature": "hot"}, "", ()),
    ],
)
def test_policies_are_proposed_from_what_was_asked(asked: dict[str, Any], name: str, unstated: tuple[str]) -> None:
    proposal = proposed(asked)
    assert (proposal.name, proposal.unstated) == (name, unstated)
    assert bool(proposal.why) == (not name)
