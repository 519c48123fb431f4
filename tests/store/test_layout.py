"""Where files are: as docs/data.md and results/README.md say; and each is found again by who lists or parses it."""

from __future__ import annotations

import itertools
import re
from pathlib import Path

import pytest

from searchlens.errors import InputError
from searchlens.store import layout as names
from searchlens.store.layout import CONTENT, GRADER, Layout, shard_name

ROOT = Path(__file__).parents[2]
LAYOUT = Layout(Path("results"))
CELL, PAIR = ("<checkpoint>", "<benchmark>"), ("<pair>", "<benchmark>")
SHARD = shard_name(0, 16)
FIGURES, TABLES = ("svg", "pdf", "png", "csv"), ("csv", "md", "tex", "html")


def written() -> set[str]:
    """The paths that the code gives to what docs/data.md lists, under the names that it uses."""
    at = LAYOUT
    paths = [
        *(at.generation(*CELL, "<id>") / SHARD, at.traces(*CELL, "<id>") / SHARD),
        *(at.recorded(*CELL, "<id>"), at.compared(*CELL), at.manifest(*CELL, "pool-<hash>")),
        *(at.job_record(*CELL, "pool-<hash>"), at.snapshot("<fingerprint>"), at.verdicts("<benchmark>") / "*.parquet"),
        *(at.scores(*CELL), at.agreement(*CELL), at.landscape(*CELL) / GRADER, at.landscape(*CELL) / CONTENT),
        *(at.landscape_frame(*CELL, frame) for frame in ("points", "hits", "classes", "votes")),
        *(at.recovery_frame(*PAIR, "*"), at.recovery(*PAIR) / CONTENT, at.readings_frame("*")),
        *(at.likelihood_frame(*PAIR, "texts"), at.likelihood_frame(*PAIR, "summary"), at.boptr_frame("<name>")),
        *(at.figure(*PAIR, "<name>", suffix) for suffix in FIGURES),
        *(at.boptr_figure("<name>", suffix) for suffix in FIGURES),
        *(at.table("<name>", suffix) for suffix in TABLES),
        *(at.report, at.explorer, at.headline, at.hashes / "<key>", at.sources, at.failures("<job>", "*.json")),
    ]
    return {str(path.relative_to("results")) for path in paths}


def documented() -> set[str]:
    """What the first table of docs/data.md lists, ``{a,b}`` written out."""
    page = (ROOT / "docs/data.md").read_text("utf-8").split("\n## ")[0]
    found: set[str] = set()
    for line in page.splitlines():
        for text in re.findall(r"`([^`]+)`", line.split("|")[1] if line.startswith("| `") else ""):
            begin, *rest = re.split(r"\{(.+)\}", text)
            found |= {f"{begin}{suffix}" for suffix in rest[0].split(",")} if rest else {begin}
    return found


def test_files_are_where_the_documentation_says() -> None:
    """Other programs read them by these names; tables of equivalence and optional figures are cases of ``<name>``."""
    cases = {text for text in documented() if "udf_" in text or text.startswith((".", "<study.readouts>"))}
    assert documented() - cases - {"figures/boptr/<name>/"} == written()


def test_other_files_are_where_their_pages_say() -> None:
    record = LAYOUT.import_record("<benchmark>", "<pair>", "<role>", "<policy>")
    assert f"`{record.relative_to('results')}`" in (ROOT / "docs/import.md").read_text("utf-8")
    table = (ROOT / "results/README.md").read_text("utf-8")
    others = [
        *(record, LAYOUT.imported_questions("b"), LAYOUT.lock("c", "b", "pool-0"), LAYOUT.timing("score", "c", "b")),
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
    paths += [at.lock(*parts) for parts in itertools.permutations("abc")]
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


def test_readouts_and_what_they_were_drawn_from_lie_beside_each_other() -> None:
    path = names.readouts(Path("kept"), "c", "b")
    assert (path, names.readouts_sidecar(path)) == (Path("kept/c/b.arrow.xz"), Path("kept/c/b.json"))


def test_what_is_set_aside_keeps_its_place() -> None:
    """Without the name of the store, as the checkpoint is the first thing to look for."""
    shard, scores = LAYOUT.generation("c", "b", "id") / SHARD, LAYOUT.traces("c", "b", "id") / SHARD
    assert LAYOUT.aside("now", shard) == Path("results/aside/now/c/b/id") / SHARD
    assert LAYOUT.aside("now", scores) == Path("results/aside/now/traces/c/b/id") / SHARD
