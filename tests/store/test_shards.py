"""The store must never lose, replace or mix samples, whatever is done to its files."""

import hashlib
import json
import os
import shutil
from collections.abc import Callable
from itertools import chain
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow.parquet as pq
import pytest

from conftest import Make, Raw, some_samples
from searchlens.cli.verify import unused
from searchlens.errors import InputError
from searchlens.plan import Grid
from searchlens.store import files, shards
from searchlens.store.files import canonical, digest, file_sha256
from searchlens.store.layout import chunk, shard_name
from searchlens.store.ranges import shards_of, uncovered

CELL = ("toy-base", "sums")
ZSTD_FRAME = b"\x28\xb5\x2f\xfd"
"""Each page is compressed by itself."""
Publish = Callable[..., shards.Shard]


def test_the_same_samples_give_the_same_bytes(grid: Grid, tmp_path: Path) -> None:
    """Provenance stays out of the content, so sampling again can be compared byte for byte."""
    for name, seconds in (("a", 1.0), ("b", 2.0)):
        shards.publish(
            tmp_path / name,
            0,
            4,
            some_samples(grid, "sums", 0, 4),
            generation_id="x" * 12,
            policies=[name],
            provenance=shards.Provenance(seconds, name, 1, "t"),
        )
    assert (tmp_path / "a/s00000-00004.parquet").read_bytes() == (tmp_path / "b/s00000-00004.parquet").read_bytes()


def pages(path: Path, name: str) -> int:
    """Data pages of a column, counted in its chunk: of texts of this size, one each 64 kB before compression."""
    group = pq.read_metadata(path).row_group(0)
    column = next(group.column(i) for i in range(group.num_columns) if group.column(i).path_in_schema == name)
    start = column.data_page_offset
    return path.read_bytes()[start : start + column.total_compressed_size].count(ZSTD_FRAME)


def test_shards_have_small_pages_and_an_index_of_them(tmp_path: Path) -> None:
    """A reader of ranges fetches the pages of one question, and all rows come back."""
    count = 4_000
    frame = pl.DataFrame(
        {
            **{name: pl.Series([None] * count, dtype=kind) for name, kind in shards.SAMPLES.items()},
            "question": [f"q{i // 16}" for i in range(count)],
            "sample": [i % 16 for i in range(count)],
            "text": [f"{i} " * 80 for i in range(count)],
            "tokens": [list(range(i % 70)) for i in range(count)],
        },
        schema=shards.SAMPLES,
    )
    path = tmp_path / "pieces"
    with shards._writer(path, {}) as writer:
        for start in range(0, count, 1_000):
            writer.write_table(frame[start : start + 1_000].to_arrow().cast(writer.schema))
    assert pl.read_parquet(path).equals(frame)
    columns = pq.read_metadata(path).row_group(0)
    for i in range(columns.num_columns):
        assert columns.column(i).has_offset_index
    assert pages(path, "text") >= 4


def test_verify_accepts_a_copy_and_notes_its_times(grid: Grid, publish: Publish) -> None:
    shard = publish(grid, *CELL, grid.jobs.generations(*CELL)[0])
    os.utime(shard.path, (1, 1))
    assert [why for _, why in shards.verify(grid.layout)] == [""]
    sidecar = shard.path.with_suffix(".json")
    assert json.loads(sidecar.read_text())["mtime_ns"] == shard.path.stat().st_mtime_ns
    written = sidecar.stat().st_ino
    assert [why for _, why in shards.verify(grid.layout)] == [""]
    assert sidecar.stat().st_ino == written, "what is right is not written again"


def test_a_temporary_name_is_no_parquet_file(tmp_path: Path) -> None:
    """polars' *.parquet matches hidden files too: a half-written shard must not be read."""
    seen = []
    files.publish(tmp_path / "a.parquet", lambda path: seen.append(path.name) or (path.write_text("x") and None))
    assert not seen[0].endswith(".parquet")
    assert [path.name for path in tmp_path.iterdir()] == ["a.parquet"]


def test_prune_lists_what_no_configuration_names(raw: Raw, make_grid: Make, publish: Publish) -> None:
    before = make_grid(raw)
    for generation in before.jobs.generations(*CELL):
        publish(before, *CELL, generation)
    raw["pools"]["three"].remove("temp_0.5")
    (gone,) = unused(make_grid(raw))["generation folder"]
    assert gone.name == before.jobs.generations(*CELL)[0].id
    assert unused(before)["generation folder"] == []


def test_prune_lists_old_temporary_files_and_no_young_ones(grid: Grid) -> None:
    """A young one may be under the pen of a running job."""
    folder = grid.folder(*CELL, "0" * 12)
    folder.mkdir(parents=True)
    *old, young = (folder / f".s00000-00004.parquet.{end}" for end in ("Tv5ddf", "a.tmp", "b.tmp"))  # rsync's, ours
    for path in (*old, young):
        path.touch()
    for path in old:
        os.utime(path, (1, 1))
    assert unused(grid)["temporary file"] == old


def test_prune_lists_what_a_killed_job_was_putting_together(grid: Grid) -> None:
    """Not what a running one is: its folder is old, and what it has just written in it is not."""
    output, results = grid.scores(*CELL), grid.layout.results
    scored = output.with_name(".sums.parquet.0a1b2c3d.tmp")
    spilled = grid.layout.generations / ".import.x_1a2b3c.tmp"
    derived, page = output.with_name(".sums.parquet.12345678.tmp"), results / ".report.html.0a1b2c3d.tmp"
    with files.temporary_folder(output) as running:
        for folder in (scored, spilled, running):
            folder.mkdir(parents=True, exist_ok=True)
            for name in ("0.parquet", ".1.parquet.0a1b2c3d.tmp"):
                (folder / name).touch()
        derived.touch()
        page.touch()
        for path in sorted(results.rglob("*"), reverse=True):
            os.utime(path, (1, 1))
        (running / "0.parquet").touch()
        left = sorted([scored, spilled, derived, page])
        assert list(chain(*unused(grid).values())) == left
        files.remove(left)
        assert sorted(output.parent.iterdir()) == [running]
        os.utime(running / "0.parquet", (1, 1))
        assert list(chain(*unused(grid).values())) == [running]
    assert not page.exists() and not list(grid.layout.generations.iterdir())


def test_repair_leaves_a_shard_to_the_job_that_is_publishing_it(grid: Grid, publish: Publish) -> None:
    """While its chunks are there, that job is about to write the sidecar, with what it knows of the sampling."""
    generation = grid.jobs.generations(*CELL)[0]
    shard = publish(grid, *CELL, generation)
    folder, sidecar = shard.path.parent, shard.path.with_suffix(".json")
    sidecar.unlink()
    part = chunk(folder, (0, 4), (0, 6))
    part.parent.mkdir()
    part.touch()
    assert shards.repair(grid.layout, folder, {}) == []
    assert not sidecar.exists()
    part.unlink()
    assert shards.repair(grid.layout, folder, {}) == []
    assert uncovered(shards_of(folder), 4) == []


def rows(start: int, stop: int, questions: int = 3) -> pl.DataFrame:
    """Samples [start, stop) of some questions, with nothing in them but their counts."""
    keys = [(f"q{q}", sample) for q in range(questions) for sample in range(start, stop)]
    counts = {"n_tokens": [2 + s for _, s in keys], "generated": [5 + s for _, s in keys], "requests": [1] * len(keys)}
    empty = {name: pl.Series([None] * len(keys), dtype=kind) for name, kind in shards.SAMPLES.items()}
    asked = {"question": [q for q, _ in keys], "sample": [s for _, s in keys], "run": [s for _, s in keys]}
    return pl.DataFrame({**empty, **asked, **counts}, schema=shards.SAMPLES)


def put(folder: Path, frame: pl.DataFrame, start: int = 0, stop: int = 4, *, parts: int = 0) -> shards.Shard:
    """Publish a frame, as a whole or in pieces, under the name of a range."""
    known = {"generation_id": folder.name, "policies": ["p"], "provenance": shards.Provenance(1.0, "cpu", 1, "t")}
    if parts:
        size = -(-frame.height // parts)
        pieces = [frame[place : place + size] for place in range(0, frame.height, size)]
        return shards.publish(folder, start, stop, lambda: pieces, **known)
    return shards.publish(folder, start, stop, frame, **known)


def test_pieces_are_described_as_the_whole_is(tmp_path: Path) -> None:
    """The same counts, rows and costs, of which none is known but what the samples say."""
    whole, pieces = put(tmp_path / "a" / "id", rows(0, 4)), put(tmp_path / "b" / "id", rows(0, 4), parts=5)
    assert (whole.sidecar["rows"], whole.sidecar["requests"]) == (12, 12)
    assert (whole.sidecar["tokens"], whole.sidecar["generated"]) == (3 * (2 + 3 + 4 + 5), 3 * (5 + 6 + 7 + 8))
    assert (whole.sidecar["prefilled"], whole.sidecar["reused"], whole.sidecar["gpu_seconds"]) == (0, 0, 0)
    own = {"bytes", "mtime_ns", "sha256"}
    assert {k: v for k, v in whole.sidecar.items() if k not in own} == {
        k: v for k, v in pieces.sidecar.items() if k not in own
    }
    assert shards.read(pieces, "id").equals(shards.read(whole, "id"))


@pytest.mark.parametrize("parts", [0, 3])
@pytest.mark.parametrize(
    "there",
    [
        *("the same", "fewer rows", "another generation", "damaged", "without a sidecar"),
        "half of one, without a sidecar",
    ],
)
def test_what_lies_there_stays_if_it_is_whole_and_is_put_away_otherwise(tmp_path: Path, there: str, parts: int) -> None:
    """Another job may have published first. It is kept as it is, with the counts that it has."""
    folder, longer = tmp_path / "id", rows(0, 4).with_columns(n_tokens=pl.lit(9, pl.UInt32))
    target = folder / shard_name(0, 4)
    first = put(folder, rows(0, 4, 2) if there == "fewer rows" else rows(0, 4))
    if there == "another generation":
        put(tmp_path / "other", rows(0, 4))
        shutil.copy(tmp_path / "other" / target.name, target)
        target.with_suffix(".json").unlink()
    elif there == "damaged":
        content = bytearray(target.read_bytes())
        content[len(content) // 3] ^= 1
        target.write_bytes(content)
    elif there == "without a sidecar":
        target.with_suffix(".json").unlink()
    elif there == "half of one, without a sidecar":
        target.with_suffix(".json").unlink()
        target.write_bytes(b"half a shard")
    before = target.read_bytes()
    found = put(folder, longer, parts=parts)
    # in pieces the number of rows is not known before they are written
    stays = there in ("the same", "without a sidecar") or (there == "fewer rows" and parts > 0)
    if stays:
        assert target.read_bytes() == before and found.sidecar["tokens"] == first.sidecar["tokens"]
        assert not target.with_suffix(".unreadable").exists()
    else:
        assert found.sidecar["tokens"] == 12 * 9 and shards.read(found, "id").height == 12
        assert target.with_suffix(".unreadable").read_bytes() == before
        had_one = there in ("fewer rows", "damaged")
        assert target.with_suffix(".json.unreadable").exists() == had_one


def rewrite(samples: pl.DataFrame, path: Path, metadata: dict[str, str]) -> None:
    """Rows as a shard has them, with any metadata."""
    with shards._writer(path, metadata) as writer:
        writer.write_table(samples.to_arrow().cast(writer.schema))


def described(shard: shards.Shard) -> shards.Shard:
    """The shard, with a sidecar that fits its file."""
    stat = shard.path.stat()
    fits = {"sha256": file_sha256(shard.path), "bytes": stat.st_size, "mtime_ns": stat.st_mtime_ns}
    shard.path.with_suffix(".json").write_text(json.dumps({**shard.sidecar, **fits}))
    (again,) = shards_of(shard.path.parent)
    return again


def rewritten(shard: shards.Shard, **metadata: str) -> shards.Shard:
    """The shard, written again with other metadata."""
    known = pl.read_parquet_metadata(shard.path)
    rewrite(pl.read_parquet(shard.path), shard.path, {**known, **metadata})
    return described(shard)


@pytest.mark.parametrize(
    ("metadata", "says"),
    [
        ({"searchlens.schema": "1"}, "its schema version is '1', this searchlens reads 2"),
        ({"searchlens.schema": "3"}, "its schema version is '3', this searchlens reads 2"),
        ({"searchlens.generation": "other"}, r"belongs to generation 'other', not 'id' \(foreign\)"),
        ({"searchlens.range": "4-8"}, "it holds the samples 4-8, not those of its name"),
    ],
)
def test_a_file_that_says_it_is_another_is_refused(tmp_path: Path, metadata: dict[str, str], says: str) -> None:
    shard = rewritten(put(tmp_path / "id", rows(0, 4)))
    assert shards.read(shard, "id").height == 12
    with pytest.raises(InputError, match=says):
        shards.read(rewritten(shard, **metadata), "id")


@pytest.mark.parametrize(
    "samples",
    [
        lambda: pl.concat([rows(4, 8)[1:], rows(4, 8)[1:2]]),
        lambda: pl.concat([rows(4, 8)[1:], rows(5, 6)[:1]]),
        lambda: pl.concat([rows(4, 7), rows(6, 7)]),
        lambda: rows(3, 7),
        lambda: rows(5, 9),
    ],
    ids=["one twice", "one twice for another", "the last twice", "earlier", "later"],
)
def test_samples_that_are_not_all_there_are_not_read(tmp_path: Path, samples: Callable[[], pl.DataFrame]) -> None:
    """As many rows as are due, in a file that its sidecar describes, but not each sample once."""
    shard = put(tmp_path / "id", samples(), 4, 8)
    with pytest.raises(InputError, match="it has not each sample 4 to 8 of its questions once"):
        shards.read(shard, "id")
    assert shards.read(shard, "id", ["text"]).height == 12, "a reader of other columns cannot know"


def test_a_sidecar_that_fits_makes_no_shard_of_other_bytes(tmp_path: Path) -> None:
    shard = put(tmp_path / "id", rows(0, 4))
    shard.path.write_bytes(b"no Parquet")
    with pytest.raises(InputError, match="it is not readable Parquet"):
        shards.read(described(shard), "id")


def test_a_shard_whose_sidecar_is_of_another_is_set_aside_with_it(grid: Grid, publish: Publish) -> None:
    """A copy under a wrong name; of what lies beside it nothing is touched."""
    sound, harmed = (publish(grid, *CELL, generation) for generation in grid.jobs.generations(*CELL)[:2])
    sidecar = harmed.path.with_suffix(".json")
    sidecar.write_text(json.dumps({**harmed.sidecar, "start": 4}))
    moved = shards.repair(grid.layout, harmed.path.parent, {})
    assert sorted(path.name for path in moved) == [sidecar.name, harmed.path.name]
    assert list(harmed.path.parent.iterdir()) == [] and sound.path.exists()


def test_whoever_lost_imported_samples_is_told_to_import_them_again(tmp_path: Path) -> None:
    """No engine can draw them again."""
    for engine, hint in (("imported", "import it again"), ("vllm 0.32", "`searchlens run` samples ")):
        folder = tmp_path / engine.split()[0] / "id"
        shards.publish(
            folder, 0, 4, rows(0, 4), generation_id="id", policies=[], provenance=shards.Provenance(1, "cpu", 1, engine)
        )
        (shard,) = shards_of(folder)
        shard.path.write_bytes(b"x")
        for read in (lambda shard=shard: shards.read(shard, "id"), lambda f=folder: shards.read_generation(f, 9)):
            with pytest.raises(InputError) as error:
                read()
            assert error.value.hint is not None and error.value.hint.startswith(hint)


def test_of_shards_that_overlap_each_sample_is_read_once(tmp_path: Path) -> None:
    """As after ``samples`` was raised while a job ran. Nothing is read of a shard beyond what is asked for."""
    folder = tmp_path / "id"
    for start, stop in ((0, 4), (2, 6), (6, 8), (8, 12)):
        put(folder, rows(start, stop), start, stop)
    assert [(shard.start, shard.stop) for shard in shards_of(folder)] == [(0, 4), (2, 6), (6, 8), (8, 12)]
    (folder / shard_name(8, 12)).write_bytes(b"damaged, and not needed")
    found = shards.read_generation(folder, 7, ["question", "sample"])
    assert found.sort("question", "sample").equals(rows(0, 7).select("question", "sample").sort("question", "sample"))


def test_a_sidecar_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    """It is not taken for a missing one, whose samples would be drawn again."""
    sidecar = tmp_path / "id" / "s00000-00004.json"
    sidecar.mkdir(parents=True)
    with pytest.raises(IsADirectoryError, match=str(sidecar)):
        shards_of(tmp_path / "id")


@pytest.mark.parametrize("change", [lambda content: content[:-1], lambda content: content + b"x"])
def test_a_shard_of_another_size_is_missing_whatever_its_time(tmp_path: Path, change: Callable[[bytes], bytes]) -> None:
    """A plan hashes only what has another time; a copy that was broken off may have kept it."""
    shard = put(tmp_path / "id", rows(0, 4))
    time = shard.path.stat().st_mtime_ns
    shard.path.write_bytes(change(shard.path.read_bytes()))
    os.utime(shard.path, ns=(time, time))
    assert uncovered(shards_of(tmp_path / "id"), 4) == [(0, 4)]


@pytest.mark.parametrize("harm", ["a column of another type", "another generation", "a sample twice"])
def test_what_is_no_whole_shard_gets_no_sidecar(grid: Grid, publish: Publish, harm: str) -> None:
    """Nobody knows what it is, so it is set aside and sampled again."""
    shard = publish(grid, *CELL, grid.jobs.generations(*CELL)[0])
    known, samples = pl.read_parquet_metadata(shard.path), pl.read_parquet(shard.path)
    if harm == "a column of another type":
        samples.with_columns(pl.col("n_tokens").cast(pl.Int64)).write_parquet(shard.path, metadata=known)
    elif harm == "another generation":
        rewrite(samples, shard.path, {**known, "searchlens.generation": "other"})
    else:
        rewrite(pl.concat([samples[1:], samples[1:2]]), shard.path, known)
    shard.path.with_suffix(".json").unlink()
    assert [path.name for path in shards.repair(grid.layout, shard.path.parent, {})] == [shard.path.name]
    assert uncovered(shards_of(shard.path.parent), 4) == [(0, 4)]


def test_missing_ranges_by_hand(tmp_path: Path) -> None:
    folder = tmp_path / "id"
    for start, stop in ((2, 4), (6, 8), (7, 9), (12, 14)):
        put(folder, rows(start, stop), start, stop)
    assert uncovered(shards_of(folder), 16) == [(0, 2), (4, 6), (9, 12), (14, 16)]
    assert uncovered(shards_of(folder), 13, 3) == [(4, 6), (9, 12)] and uncovered(shards_of(folder), 5, 4) == [(4, 5)]
    assert uncovered(shards_of(folder), 8, 6) == [] == uncovered(shards_of(folder), 0)
    assert uncovered([], 3) == [(0, 3)] == uncovered(shards_of(tmp_path / "absent"), 3)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"start": 4}, "its sidecar is of samples 4 to 4 of generation 'id'"),
        ({"stop": 8}, "its sidecar is of samples 0 to 8 of generation 'id'"),
        ({"generation": "other"}, "its sidecar is of samples 0 to 4 of generation 'other'"),
        ({"rows": "12"}, "its sidecar has rows: '12'"),
        ({"policies": "p"}, "its sidecar has policies: 'p'"),
        ({"sha256": None}, "its sidecar has sha256: None"),
        ({"gpu_seconds": 0.5, "policies": [], "finished": ""}, ""),
    ],
)
def test_a_sidecar_that_does_not_fit_says_where(tmp_path: Path, change: dict[str, Any], says: str) -> None:
    shard = put(tmp_path / "id", rows(0, 4))
    shard.path.with_suffix(".json").write_text(json.dumps({**shard.sidecar, **change}))
    (found,) = shards_of(tmp_path / "id")
    assert found.flaw == says and found.present == (not says)


def test_a_shard_is_adopted_only_as_the_manifests_know_it(grid: Grid, publish: Publish) -> None:
    """What lost its sidecar is described anew if it is whole, and is what a manifest vouches for where one does."""
    shard = publish(grid, *CELL, grid.jobs.generations(*CELL)[0])
    sidecar, name = shard.path.with_suffix(".json"), shard.path.name
    for hashes, adopted in (((), True), ((shard.sidecar["sha256"], "f" * 64), True), (("f" * 64,), False)):
        sidecar.unlink()
        moved = shards.repair(grid.layout, shard.path.parent, {name: hashes})
        assert (moved == [], sidecar.exists()) == (adopted, adopted)
        if adopted:
            found = json.loads(sidecar.read_text())
            assert all(found[key] == shard.sidecar[key] for key in ("rows", "tokens", "sha256"))
            cost = found["wall_seconds"], found["device_count"], found["device"]
            assert cost == (0, 0, "unknown"), "no cost is made up"
    assert moved[0].name == name and not shard.path.exists()


def test_a_question_without_samples_has_none(grid: Grid, publish: Publish) -> None:
    """A page asks for one question; that a shard does not have it is no damage."""
    generation = grid.jobs.generations(*CELL)[0]
    shard = publish(grid, *CELL, generation)
    assert shards.read(shard, generation.id, questions=["nobody asked this"]).is_empty()


def test_equal_names_in_any_script_give_equal_ids() -> None:
    """Ids of stored samples are hashes of this text: UTF-8, keys sorted, no spaces."""
    assert canonical({"b": "é", "a": [1, "数"]}) == '{"a":[1,"数"],"b":"é"}'
    assert digest("数", 12) == hashlib.sha256(b'"\xe6\x95\xb0"').hexdigest()[:12]
