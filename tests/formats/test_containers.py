"""Containers: a sample of the damage of ``containers.py``, headers that count, and small files that hold too much."""

import gzip
import json
import lzma
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from conftest import write_checkpoint
from containers import imported, members, packed_zstd, questions, recorded
from reading import LOGS, read
from searchlens import grading
from searchlens.benchmarks import Question
from searchlens.errors import InputError
from searchlens.formats.documents import differing_golds
from searchlens.store.checkpoints import require_whole
from searchlens.store.inputs import CHOICES
from test_fuzz import own_process
from test_readers_harnesses import archive

FIRST = "samples/sums/sum-a.json_epoch_1.json"
LAST = "samples/sums/sum-b.json_epoch_3.json"


def test_a_sample_of_damaged_containers_is_read_as_before_or_refused_in_a_line() -> None:
    done = own_process("containers.py", "--step", "400")
    counts = json.loads(done.stdout.splitlines()[-1])
    assert done.returncode == 0, done.stdout
    assert counts["containers"] > 500
    assert (counts["tracebacks"], counts["not as expected"]) == (0, 0)
    assert min(counts["refused"], counts["read"]) > 20, "some damage is harmless"


def test_the_guard_notices_what_it_looks_for() -> None:
    """A reader that raises, one that names no file, and one that reads less than there was."""
    code = """
import pathlib, tempfile
from conftest import write_checkpoint
from containers import Container, outcome
from searchlens.errors import InputError
def refuse(path): raise InputError("it is damaged")
def fail(path): raise ValueError(path.name)
path = pathlib.Path(tempfile.mkdtemp()) / "x.gz"
for read in (fail, refuse, lambda path: [1]):
    print(outcome(Container("gz", "x", path, read, "count", b""), b"", [1, 2]).problem)
"""
    said = own_process("-c", code).stdout.splitlines()
    assert said == ["traceback", "the file is not named", "2 rows were 1, or others"]


# ---- what a header counts


def headed(change: Callable[[dict[str, Any]], object]) -> dict[str, bytes]:
    """A sound log with another header."""
    content = members(LOGS / "inspect/draws.eval")
    header = json.loads(content["header.json"])
    change(header)
    return content | {"header.json": json.dumps(header).encode()}


def test_a_missing_member_is_named_and_the_option_partial_reads_the_others(tmp_path: Path) -> None:
    content = members(LOGS / "inspect/draws.eval")
    del content[LAST]
    path = archive(tmp_path / "log.eval", content)
    with pytest.raises(InputError, match=rf"counts 6 samples, but it has 5; {LAST} is missing"):
        read("inspect", path)
    drawn, notes = read("inspect", path, partial="yes")
    assert len(drawn) == 5
    assert any("without all samples that its header counts was read as far as it goes" in note for note in notes)


@pytest.mark.parametrize("name", [b"samplex/sums/sum-b.json_epoch_3.json", b"samples/sums/sum-b.json_epoch_3.jsox"])
def test_a_member_that_is_renamed_in_the_directory_is_missing(tmp_path: Path, name: bytes) -> None:
    path = archive(tmp_path / "log.eval", members(LOGS / "inspect/draws.eval"))
    content = path.read_bytes()
    place = content.rindex(LAST.encode())
    path.write_bytes(content[:place] + name + content[place + len(name) :])
    with pytest.raises(InputError, match=rf"{LAST} is missing"):
        read("inspect", path)


@pytest.mark.parametrize("name", ["samples/sums/sum-c.json_epoch_3.json", "samples/sums/sum-b.json_epoch_4.json"])
def test_a_member_under_the_name_of_another_is_refused_with_both_names(tmp_path: Path, name: str) -> None:
    content = members(LOGS / "inspect/draws.eval")
    content[name] = content.pop(LAST)
    path = archive(tmp_path / "log.eval", content)
    for wishes in ({}, {"partial": "yes"}):
        with pytest.raises(InputError, match=rf"{name}: it holds the sample of {LAST}"):
            read("inspect", path, **wishes)


def test_counts_of_logs_that_stopped_early_or_took_some_questions_are_kept_to(tmp_path: Path) -> None:
    early = headed(lambda header: header["results"].update(early_stopping={"manager": "x"}, completed_samples=5))
    some = headed(lambda header: (header["eval"]["config"].update(limit=1), header["results"].update(total_samples=3)))
    for number, content in enumerate((early, some)):
        del content[LAST]
        assert len(read("inspect", archive(tmp_path / f"{number}.eval", content))[0]) == 5
    less = {name: value for name, value in some.items() if "sum-b" not in name and "epoch_2" not in name}
    with pytest.raises(InputError, match=r"its header counts 3 samples, but it has 2\nHint"):
        read("inspect", archive(tmp_path / "less.eval", less))
    bare = headed(lambda header: header.update(results=None))
    assert len(read("inspect", archive(tmp_path / "bare.eval", bare))[0]) == 6
    del bare[FIRST]
    with pytest.raises(InputError, match=rf"{FIRST} is missing"):
        read("inspect", archive(tmp_path / "bare.eval", bare))


# ---- small files that hold too much


@contextmanager
def refused(message: str) -> Iterator[None]:
    """Within two seconds of processor time, in a message of one line."""
    begin = time.process_time()
    with pytest.raises(InputError, match=message) as error:
        yield
    assert time.process_time() - begin < 2
    assert "\n" not in error.value.message


def zipped(path: Path, *parts: bytes) -> Path:
    with gzip.open(path, "wb", 6) as file:
        for part in parts:
            file.write(part)
    return path


MANY = [b"[]," * 2**18] * 318
BLANK = [b"\n" * 2**20] * 380


@pytest.mark.long
def test_gzip_that_unpacks_to_very_much_is_refused(tmp_path: Path) -> None:
    nested = zipped(tmp_path / "nested.jsonl.gz", b'{"question":[', *MANY, b"[]]}\n")
    blank = zipped(tmp_path / "blank.jsonl.gz", *BLANK)
    table = zipped(tmp_path / "blank.csv.gz", b"question,sample,text\n", *BLANK)
    spaces = zipped(tmp_path / "spaces.json.gz", b'{"status":"success","version":2,"eval":{},', *[b" " * 2**20] * 380)
    for path in (blank, table, spaces):
        with refused(rf"{path.name}: more than 262,144 blanks in a row"):
            imported("own")(path)
    with refused(r"nested\.jsonl\.gz(:1)?: more than [\d,]+ (bytes when it is unpacked|values of JSON)"):
        imported("own")(nested)
    for path in (nested, blank):
        with refused(rf"{path.name}: more than [\d,]+ (bytes when it is unpacked|values of JSON|blanks)"):
            questions(path)


def test_zstd_that_unpacks_to_very_much_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl.zst"
    path.write_bytes(packed_zstd(b'{"a":"' + b"x" * 2**27))
    with refused(r"log\.jsonl\.zst: more than 67,108,864 bytes when it is unpacked"):
        imported("own")(path)


def test_a_log_that_asks_for_very_many_samples_is_refused(tmp_path: Path) -> None:
    content = headed(lambda header: header["plan"]["config"].update(n=10**9))
    with refused(rf"log\.eval: more than {CHOICES:,} choices of a request \(n\)"):
        read("inspect", archive(tmp_path / "log.eval", content))


def test_a_member_of_very_many_values_or_levels_is_refused(tmp_path: Path) -> None:
    content = members(LOGS / "inspect/draws.eval")
    for value, message in (
        (b"".join([b'{"id":[', *MANY[:80], b"[]]}"]), "more than 16,777,216 values of JSON"),
        (b'{"id":' + b"[" * 10**6 + b"]" * 10**6 + b"}", "nested too deeply"),
        (b'{"id":' + b"9" * 5000 + b"}", "more than 4,300 digits"),
    ):
        with refused(rf"{FIRST}.*{message}"):
            read("inspect", archive(tmp_path / "log.eval", content | {FIRST: value}))


def test_parquet_of_very_many_rows_is_refused(tmp_path: Path) -> None:
    column = pa.DictionaryArray.from_arrays(pa.array([0] * 10**7, pa.int8()), pa.array(["q"]))
    pq.write_table(pa.table({"question": column, "text": column}), tmp_path / "rows.parquet", compression="zstd")
    for reads in (imported("own"), questions):
        with refused(r"rows\.parquet: more than [\d,]+ rows"):
            reads(tmp_path / "rows.parquet")


def test_counts_that_unpack_to_very_much_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "cell.arrow.xz"
    with lzma.open(path, "wb", preset=0) as file:
        for _ in range(260):
            file.write(b"\0" * 2**20)
    with refused(r"cell\.arrow\.xz: more than 268,435,456 bytes when it is unpacked"):
        recorded(path)


@pytest.mark.parametrize(
    "steps",
    [
        [{"type": "Replace", "pattern": {"String": "e"}, "content": "e" * 50}] * 5,
        [{"type": "Sequence", "normalizers": [{"type": "Replace", "pattern": {"Regex": "."}, "content": "ee" * 200}]}],
    ],
)
def test_a_tokenizer_that_makes_far_more_of_a_text_is_refused(tmp_path: Path, steps: list[Any]) -> None:
    folder = tmp_path / "model"
    write_checkpoint(folder, "x")
    require_whole(folder, embedded=False)
    content = json.loads((folder / "tokenizer.json").read_text())
    content["normalizer"] = {"type": "Sequence", "normalizers": steps}
    (folder / "tokenizer.json").write_text(json.dumps(content))
    with refused(r"tokenizer\.json: more than 256 letters for one by its replacements"):
        require_whole(folder, embedded=False)


@pytest.mark.parametrize("name", ["math", "math-narrow", "simplerl"])
def test_a_gold_of_very_many_digits_is_refused(name: str) -> None:
    grader = grading.grader(name)
    assert grader.reference(Question("q", "x", "9" * 4300))
    for gold in ("9" * 4301, "1/" + "9" * 5000, ":".join(["9" * 5000] * 3)):
        with refused("question 'q': more than 4,300 digits in a number of its gold"):
            grader.reference(Question("q", "x", gold))


def test_a_gold_of_very_many_digits_in_a_log_is_another_gold() -> None:
    code = """
from searchlens.benchmarks import Question
from searchlens.formats.documents import differing_golds
if __name__ == "__main__":
    print(differing_golds([Question("q", "x", "7")], [(0, "9" * 5000)], "math") == [(0, "9" * 5000)])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=120)
    assert done.stdout.strip() == "True", done.stderr
    assert differing_golds([Question("q", "x", "7")], [], "math") == []
