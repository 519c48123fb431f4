"""The store must never lose, replace or mix samples, whatever is done to its files."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow.parquet as pq
import pytest

from conftest import some_samples
from searchlens.commands.prune import unused
from searchlens.commands.rerun import set_cell_aside
from searchlens.errors import InputError
from searchlens.grid import Grid
from searchlens.store import files, shards
from searchlens.store.hashing import canonical, digest
from searchlens.store.layout import chunk, shard_name
from searchlens.store.ranges import missing_ranges, shards_of

CELL = ("toy-base", "sums")
ZSTD_FRAME = b"\x28\xb5\x2f\xfd"
"""Each page is compressed by itself."""
Publish = Callable[..., shards.Shard]


def test_the_first_16_of_64_are_the_16(grid: Grid, publish: Publish) -> None:
    """Extending a stream adds ranges; its prefix is truly the prefix."""
    generation = grid.generations(*CELL)[0]
    folder = grid.folder(*CELL, generation.id)
    publish(grid, *CELL, generation, 0, 16)
    sixteen = shards.read_generation(folder, generation.id, 16)
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    publish(grid, *CELL, generation, 16, 64)
    sixty_four = shards.read_generation(folder, generation.id, 64)
    assert (
        sixty_four.filter(pl.col("sample") < 16).sort("question", "sample").equals(sixteen.sort("question", "sample"))
    )
    assert {name: (folder / name).read_bytes() for name in before} == before


def test_a_published_shard_is_never_replaced(grid: Grid, publish: Publish) -> None:
    generation = grid.generations(*CELL)[0]
    first = publish(grid, *CELL, generation)
    content = first.path.read_bytes()
    folder = grid.folder(*CELL, generation.id)
    second = shards.publish(
        folder,
        0,
        4,
        some_samples(grid, "sums", 0, 4, tag="!"),
        generation_id=generation.id,
        policies=["x"],
        provenance=shards.Provenance(9, "gpu", 2, "t"),
    )
    assert second.path.read_bytes() == content
    assert json.loads(first.path.with_suffix(".json").read_text())["policies"] == list(generation.policies)


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
    """A reader of ranges fetches the pages of one question. Both ways of writing, and all rows come back."""
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
    shards.write_parquet(frame, tmp_path / "whole", {})
    with shards._writer(tmp_path / "pieces", {}) as writer:
        for start in range(0, count, 1_000):
            writer.write_table(frame[start : start + 1_000].to_arrow().cast(writer.schema))
    for name in ("whole", "pieces"):
        assert pl.read_parquet(tmp_path / name).equals(frame)
        columns = pq.read_metadata(tmp_path / name).row_group(0)
        for i in range(columns.num_columns):
            assert columns.column(i).has_offset_index
        assert pages(tmp_path / name, "text") >= 4


def harm(shard: shards.Shard, how: str) -> None:
    content = bytearray(shard.path.read_bytes())
    if how == "truncated":
        shard.path.write_bytes(content[:-10])
    elif how == "changed":
        content[len(content) // 2] ^= 1
        shard.path.write_bytes(content)
    elif how == "missing":
        shard.path.unlink()
    elif how == "foreign":
        foreign = shard.path.parent / "foreign"
        frame = pl.read_parquet(shard.path)
        other = shards.publish(
            foreign,
            0,
            4,
            frame,
            generation_id="f" * 12,
            policies=["other"],
            provenance=shards.Provenance(1, "cpu", 1, "t"),
        )
        shutil.copy2(other.path, shard.path)
        shutil.copy2(other.path.with_suffix(".json"), shard.path.with_suffix(".json"))
        shutil.rmtree(foreign)


@pytest.mark.parametrize("how", ["truncated", "changed", "missing", "foreign"])
def test_a_harmed_shard_is_refused_by_name_and_found_by_verify(grid: Grid, publish: Publish, how: str) -> None:
    sound, harmed = grid.generations(*CELL)[:2]
    publish(grid, *CELL, sound)
    shard = publish(grid, *CELL, harmed)
    harm(shard, how)
    (why,) = (why for _, why in shards.verify(grid.layout) if why)
    assert str(shard.path) in why
    (reread,) = [s for s in shards_of(shard.path.parent) if s.path == shard.path]
    with pytest.raises(InputError) as error:
        shards.read(reread, harmed.id)
    assert str(shard.path) in str(error.value)
    assert "run snakemake again" in str(error.value)


def test_verify_accepts_a_copy_and_notes_its_times(grid: Grid, publish: Publish) -> None:
    shard = publish(grid, *CELL, grid.generations(*CELL)[0])
    os.utime(shard.path, (1, 1))
    assert [why for _, why in shards.verify(grid.layout)] == [""]
    assert json.loads(shard.path.with_suffix(".json").read_text())["mtime_ns"] == shard.path.stat().st_mtime_ns


def test_a_temporary_name_is_no_parquet_file(tmp_path: Path) -> None:
    """polars' *.parquet matches hidden files too: a half-written shard must not be read."""
    seen = []
    files.publish(tmp_path / "a.parquet", lambda path: seen.append(path.name) or (path.write_text("x") and None))
    assert not seen[0].endswith(".parquet")
    assert [path.name for path in tmp_path.iterdir()] == ["a.parquet"]


def test_setting_aside_keeps_the_files(grid: Grid, publish: Publish) -> None:
    generations = grid.generations(*CELL)
    for generation in generations:
        publish(grid, *CELL, generation)
    _, moved = set_cell_aside(grid, *CELL, "temp_0.5")
    assert len(moved) == 2
    assert all(path.exists() for path in moved)
    assert [bool(missing_ranges(grid.folder(*CELL, g.id), g.samples)) for g in generations] == [
        True,
        False,
        False,
        False,
    ]


def test_prune_lists_what_no_configuration_names(
    raw: dict[str, Any], make_grid: Callable[[dict[str, Any]], Grid], publish: Publish
) -> None:
    before = make_grid(raw)
    for generation in before.generations(*CELL):
        publish(before, *CELL, generation)
    raw["pools"]["three"].remove("temp_0.5")
    after = make_grid(raw)
    (gone,) = unused(after).generations
    assert gone.name == before.generations(*CELL)[0].id
    assert unused(before).generations == []


def test_prune_lists_old_temporary_files_and_no_young_ones(grid: Grid) -> None:
    """A young one may be under the pen of a running job."""
    folder = grid.folder(*CELL, "0" * 12)
    folder.mkdir(parents=True)
    old, young = folder / ".s00000-00004.parquet.a.tmp", folder / ".s00000-00004.parquet.b.tmp"
    for path in (old, young):
        path.touch()
    os.utime(old, (1, 1))
    assert unused(grid).temporary == [old]


def test_a_shard_that_was_left_without_its_sidecar_is_taken_over(grid: Grid, publish: Publish) -> None:
    """A job was killed between the two: what lies there is described as it is, not as what was drawn since."""
    generation = grid.generations(*CELL)[0]
    first = publish(grid, *CELL, generation)
    content, sidecar = first.path.read_bytes(), first.path.with_suffix(".json")
    sidecar.unlink()
    longer = some_samples(grid, "sums", 0, 4).with_columns(n_tokens=pl.lit(9, pl.UInt32()))
    again = shards.publish(
        grid.folder(*CELL, generation.id),
        0,
        4,
        longer,
        generation_id=generation.id,
        policies=["x"],
        provenance=shards.Provenance(1, "cpu", 1, "t"),
    )
    assert first.path.read_bytes() == content
    assert again.sidecar["tokens"] == first.sidecar["tokens"]
    assert missing_ranges(first.path.parent, 4) == []


def test_a_shard_without_a_sidecar_that_cannot_be_used_makes_way(grid: Grid, publish: Publish) -> None:
    generation = grid.generations(*CELL)[0]
    target = grid.folder(*CELL, generation.id) / shard_name(0, 4)
    target.parent.mkdir(parents=True)
    target.write_bytes(b"half a shard")
    publish(grid, *CELL, generation)
    assert (
        missing_ranges(target.parent, 4) == [] and shards.read_generation(target.parent, generation.id, 4).height == 24
    )
    assert target.with_suffix(".unreadable").read_bytes() == b"half a shard"


def test_repair_leaves_a_shard_to_the_job_that_is_publishing_it(grid: Grid, publish: Publish) -> None:
    """While its chunks are there, that job is about to write the sidecar, with what it knows of the sampling."""
    generation = grid.generations(*CELL)[0]
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
    assert missing_ranges(folder, 4) == []


def test_repair_sets_aside_what_the_disk_does_not_give_back(
    grid: Grid, publish: Publish, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An error of the disk ends no run: the shard is sampled again, and its file kept."""
    shard = publish(grid, *CELL, grid.generations(*CELL)[0])
    shard.path.with_suffix(".json").unlink()

    def failing(*_: object, **__: object) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(shards.pl, "read_parquet", failing)
    (moved,) = shards.repair(grid.layout, shard.path.parent, {})
    assert moved.exists() and not shard.path.exists()


def test_a_question_without_samples_has_none(grid: Grid, publish: Publish) -> None:
    """A page asks for one question; that a shard does not have it is no damage."""
    generation = grid.generations(*CELL)[0]
    shard = publish(grid, *CELL, generation)
    assert shards.read(shard, generation.id, questions=["nobody asked this"]).is_empty()


def test_equal_names_in_any_script_give_equal_ids() -> None:
    """Ids of stored samples are hashes of this text: UTF-8, keys sorted, no spaces."""
    assert canonical({"b": "é", "a": [1, "数"]}) == '{"a":[1,"数"],"b":"é"}'
    assert digest("数", 12) == hashlib.sha256(b'"\xe6\x95\xb0"').hexdigest()[:12]


def test_an_unwritable_results_folder_is_named(tmp_path: Path) -> None:
    blocked = tmp_path / "results"
    blocked.write_text("a file where a folder should be")
    with pytest.raises(InputError, match="cannot write to"):
        files.replace_text(blocked / "sub" / "x.json", "{}")
