"""Where files are: as docs/columns.md and results/README.md say; and each is found again by who lists or parses it."""

import errno
import itertools
import os
import re
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from searchlens.errors import InputError
from searchlens.store import files
from searchlens.store import layout as names
from searchlens.store.layout import CONTENT, GRADER, Layout, shard_name

ROOT = Path(__file__).parents[2]
LAYOUT = Layout(Path("results"))
CELL, PAIR = ("<checkpoint>", "<benchmark>"), ("<pair>", "<benchmark>")
SHARD = shard_name(0, 16)
FIGURES, TABLES = ("svg", "pdf", "png", "csv"), ("csv", "md", "tex", "html")


def written() -> set[str]:
    """The paths that the code gives to what docs/columns.md lists, under the names that it uses."""
    at = LAYOUT
    paths = [
        *(at.generation(*CELL, "<id>") / SHARD, at.traces(*CELL, "<id>") / SHARD),
        *(at.recorded(*CELL, "<id>"), at.compared(*CELL), at.manifest(*CELL, "pool-<hash>")),
        *(at.job_record(*CELL, "pool-<hash>"), at.snapshot("<fingerprint>"), at.verdicts("<benchmark>") / "*.parquet"),
        *(at.scores(*CELL), at.agreement(*CELL), at.landscape(*CELL) / GRADER, at.landscape(*CELL) / CONTENT),
        *(at.landscape_frame(*CELL, frame) for frame in ("points", "hits", "classes", "votes")),
        *(at.recovery_frame(*PAIR, "*"), at.recovery(*PAIR) / CONTENT, at.measures_frame("*")),
        *(at.likelihood_frame(*PAIR, "texts"), at.likelihood_frame(*PAIR, "summary"), at.boptr_frame("<name>")),
        *(at.figure(*PAIR, "<name>", suffix) for suffix in FIGURES),
        *(at.boptr_figure("<name>", suffix) for suffix in FIGURES),
        *(at.table("<name>", suffix) for suffix in TABLES),
        *(at.report, at.explorer, at.headline, at.hashes / "<key>", at.failures("<job>", "*.json")),
    ]
    return {str(path.relative_to("results")) for path in paths}


def documented() -> set[str]:
    """What the first table of docs/columns.md lists, ``{a,b}`` written out."""
    page = (ROOT / "docs/columns.md").read_text("utf-8").split("\n## ")[1]
    found: set[str] = set()
    for line in page.splitlines():
        for text in re.findall(r"`([^`]+)`", line.split("|")[1] if line.startswith("| `") else ""):
            begin, *rest = re.split(r"\{(.+)\}", text)
            found |= {f"{begin}{suffix}" for suffix in rest[0].split(",")} if rest else {begin}
    return found


def test_files_are_where_the_documentation_says() -> None:
    """Other programs read them by these names; tables of equivalence and optional figures are cases of ``<name>``."""
    cases = {text for text in documented() if "udf_" in text or text.startswith((".", "<study.recorded_counts>"))}
    assert documented() - cases - {"figures/boptr/<name>/"} == written()


def test_other_files_are_where_their_pages_say() -> None:
    record = LAYOUT.import_record("<benchmark>", "<pair>", "<role>", "<policy>")
    assert f"`{record.relative_to('results')}`" in (ROOT / "docs/import.md").read_text("utf-8")
    table = (ROOT / "results/README.md").read_text("utf-8")
    others = [
        *(record, LAYOUT.imported_questions("b"), LAYOUT.timing("score", "c", "b")),
        *(LAYOUT.aside("now", LAYOUT.scores("c", "b")), LAYOUT.study_figure("power", "svg"), LAYOUT.headline),
    ]
    for path in others:
        assert f"`{path.relative_to('results').parts[0]}" in table, path
    assert LAYOUT.study_figure("power", "svg").parent == LAYOUT.boptr_figure("power", "svg").parents[1]
    assert LAYOUT.timing("score", "c", "b") == Path("results/benchmarks/score/c/b.tsv")
    assert names.log("score", "c", "b") == Path("logs/score/c/b.log")
    assert LAYOUT.timing("tables") == Path("results/benchmarks/tables.tsv") and names.log("tables").stem == "tables"


def test_no_two_things_have_one_path() -> None:
    """Two names that are joined by another character than a slash are still told apart."""
    at = LAYOUT
    of = (at.generation, at.traces, at.recorded)
    paths = [each(*parts) for each in of for parts in itertools.permutations("abc")]
    paths += [at.import_record(*parts) for parts in itertools.permutations("abcd")]
    cells = (at.scores, at.agreement, at.compared, at.landscape, at.recovery, at.likelihood)
    paths += [each(*parts) for each in cells for parts in itertools.permutations("ab")]
    assert len(set(paths)) == len(paths)


def test_what_is_listed_is_what_was_written(tmp_path: Path) -> None:
    """Files of each kind, among others with names that are like theirs."""
    at = Layout(tmp_path)
    with pytest.raises(InputError, match="it has none of generations"):
        at.require_results()
    shard, manifest = at.generation("c", "b", "id") / SHARD, at.manifest("c", "b", "pool-0123abcd")
    later = [at.manifest("c", "b", "pool-0123abcd", fill) for fill in (2, 10)]
    other = at.manifest("c", "b", "pool-ffffffff", 1)
    record = at.import_record("b", "p", "base", "greedy")
    frames = [at.scores("c", "b"), at.landscape_frame("c", "b", "hits"), at.boptr_frame("errors")]
    temporary = shard.with_name(f".{SHARD}.0a1b.tmp")
    trace = at.trace_of(shard)
    odd = [shard.with_suffix(".unreadable"), manifest.with_name("pool-0123abcd.json.unreadable")]
    for path in (shard, shard.with_suffix(".json"), trace, manifest, *later, other, record, *frames, temporary, *odd):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    at.require_results()
    assert (at.shards(), at.sidecars()) == ([shard], [shard.with_suffix(".json")])
    assert (at.trace_files(), at.temporary(), at.import_records()) == ([trace], [temporary], [record])
    assert at.manifests() == sorted([manifest, *later, other])
    assert at.latest_manifests() == sorted([later[1], other]), "the tenth repair is later than the second"
    assert sorted(at.derived()) == sorted(frames)


@pytest.mark.parametrize("fill", [0, 1, 12])
def test_a_name_is_read_as_it_was_written(fill: int) -> None:
    path = LAYOUT.manifest("c", "b", "pool-0123abcd", fill)
    assert names.parse_manifest(path) == ("pool-0123abcd", fill)
    shard = LAYOUT.generations / shard_name(fill, 100_000)
    assert names.parse_shard(shard) == names.parse_sidecar(shard.with_suffix(".json")) == (fill, 100_000)
    assert names.parse_shard(shard.with_suffix(".unreadable")) is names.parse_shard(shard.with_suffix(".json")) is None
    assert names.parse_sidecar(shard) is names.parse_manifest(shard) is None


def test_chunks_are_counted_and_found_by_their_shard(tmp_path: Path) -> None:
    """A shard of samples 4 to 8 is told from one of samples 8 to 16, also while both are under way."""
    assert names.chunks_of(tmp_path, (4, 8)) == [] and names.chunk_samples(tmp_path) == 0
    parts = [names.chunk(tmp_path, samples, (0, 5)) for samples in ((4, 8), (8, 16))]
    parts[0].parent.mkdir()
    for path in (*parts, names.chunk_trace(parts[0]), parts[0].with_name("other")):
        path.touch()
    assert names.chunks_of(tmp_path, (4, 8)) == [parts[0], names.chunk_trace(parts[0])]
    assert names.chunk_samples(tmp_path) == 4 * 5 + 8 * 5


def test_counts_and_what_they_were_drawn_from_lie_beside_each_other() -> None:
    path = names.recorded_counts(Path("kept"), "c", "b")
    assert (path, names.counts_sidecar(path)) == (Path("kept/c/b.arrow.xz"), Path("kept/c/b.json"))


def test_what_is_set_aside_keeps_its_place() -> None:
    """Without the name of the store, as the checkpoint is the first thing to look for."""
    shard, scores = LAYOUT.generation("c", "b", "id") / SHARD, LAYOUT.traces("c", "b", "id") / SHARD
    assert LAYOUT.aside("now", shard) == Path("results/aside/now/c/b/id") / SHARD
    assert LAYOUT.aside("now", scores) == Path("results/aside/now/traces/c/b/id") / SHARD


# ---- Writing files: errors of the disk are one line, modes follow the umask, half a table or figure is never seen


@pytest.mark.parametrize(("umask", "mode"), [(0o077, 0o600), (0o022, 0o644), (0o002, 0o664)])
def test_files_have_the_mode_that_the_umask_says(tmp_path: Path, umask: int, mode: int) -> None:
    """A shared group folder, and a private one; also where a library puts a file of its own in the place of ours."""

    def moved_there(path: Path) -> None:
        other = tmp_path / "other"
        other.touch(0o600)
        other.rename(path)

    before = os.umask(umask)
    try:
        files.replace_text(tmp_path / "replaced", "x")
        files.publish(tmp_path / "published", lambda path: path.write_text("x"))
        files.replace(tmp_path / "moved", moved_there)
        with files.alone(tmp_path / "lock") as free:
            assert free
    finally:
        os.umask(before)
    assert {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()} == dict.fromkeys(
        ("replaced", "published", "moved", "lock"), mode
    )


@pytest.mark.parametrize("mode", [0o644, 0o755])
def test_a_file_in_place_of_the_results_folder_is_named(tmp_path: Path, mode: int) -> None:
    """Also one that could be run, which the system calls writable and searchable as it does a folder."""
    (tmp_path / "results").write_text("a file")
    (tmp_path / "results").chmod(mode)
    for folder in (tmp_path / "results", tmp_path / "results" / "below"):
        with pytest.raises(InputError, match=rf"{folder}: {tmp_path}/results: it is a file") as error:
            files.require_writable(folder)
        assert error.value.hint == files._UNWRITABLE
    files.require_writable(tmp_path / "absent" / "below")
    assert not (tmp_path / "absent").exists()


@pytest.mark.parametrize(
    ("number", "hint"),
    [(errno.ENOSPC, "free some space"), (errno.EACCES, "make the results folder writable"), (errno.EIO, "look after")],
)
def test_the_hint_is_that_of_the_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, hint: str) -> None:
    """A full disk is no failing one. Libraries in Rust say the number in their text alone."""
    for error in (OSError(number, "in other words"), RuntimeError(f"cannot write (os error {number})")):
        found = files._unwritable(tmp_path, files.of_system(error) or OSError())
        assert found.hint is not None and found.hint.startswith(hint)
        assert found.message == f"cannot write to {tmp_path}: {os.strerror(number)}"


def test_an_error_of_the_writer_itself_is_raised_as_it_is(tmp_path: Path) -> None:
    """Only what the disk says becomes a message about the disk."""

    def write(path: Path) -> None:
        path.write_text("half")
        raise ValueError("not of the disk")

    for how in (files.publish, files.replace):
        with pytest.raises(ValueError, match="not of the disk"):
            how(tmp_path / "target", write)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("content", [b"{", b"[" * 100_000, b"\xff", b""])
def test_json_that_is_none_is_one_line(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a.json").write_bytes(content)
    with pytest.raises(InputError, match=r"a\.json is damaged"):
        files.read_json(tmp_path / "a.json")
    with pytest.raises(InputError, match=r"cannot read .*b\.json: No such file"):
        files.read_json(tmp_path / "b.json")


FULL = """
import resource, signal, sys
from pathlib import Path
import polars as pl, pyarrow.parquet as pq
from searchlens.errors import InputError
from searchlens.store import files
frame = pl.DataFrame({"a": list(range(10_000))})
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (1_000, 1_000))
writers = [
    frame.write_parquet,
    frame.write_csv,
    lambda path: pq.write_table(frame.to_arrow(), path),
    lambda path: path.write_text("x" * 5_000),
]
for writer in writers:
    for how in (files.publish, files.replace):
        try:
            how(Path(sys.argv[1], "target"), writer)
        except InputError as error:
            print(error.message, "|", error.hint)
"""


def test_a_full_disk_is_one_line_whoever_writes(tmp_path: Path) -> None:
    """polars and pyarrow raise errors of their own; their numbers are in the text alone."""
    run = [sys.executable, "-c", FULL, str(tmp_path)]
    said = subprocess.run(run, capture_output=True, text=True, check=True).stdout.splitlines()
    assert len(said) == 8
    for line in said:
        assert line.startswith(f"cannot write to {tmp_path}/target: File too large | free some space")
    assert list(tmp_path.iterdir()) == []
