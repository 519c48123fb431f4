"""What other jobs do meanwhile, and what a disk does not do: calls that fail, files that vanish or appear."""

import errno
import os
import shutil
import stat
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from matplotlib.figure import Figure

from searchlens.cli.verify import unused
from searchlens.errors import InputError
from searchlens.plan import Grid
from searchlens.reporting.figures import style
from searchlens.reporting.tables.table import Table, part, write
from searchlens.store import files, frames, layout, leases, shards
from searchlens.store.layout import Layout
from searchlens.store.leases import SILENT_SECONDS, Leases
from searchlens.store.ranges import shards_of, uncovered

Patch = pytest.MonkeyPatch

CELL = ("toy-base", "sums")
Publish = Callable[..., shards.Shard]


def failing(number: int) -> Callable[..., None]:
    """A call that fails with this error."""

    def fail(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    return fail


def test_a_job_that_ends_while_prune_looks_left_nothing(grid: Grid, monkeypatch: Patch) -> None:
    folder = grid.scores(*CELL).with_name(".sums.parquet.0a1b2c3d.tmp")
    folder.mkdir(parents=True)
    (folder / "0.parquet").touch()
    for path in (folder / "0.parquet", folder):
        os.utime(path, (1, 1))
    assert unused(grid)["temporary file"] == [folder]
    stat = Path.stat

    def ends(path: Path, **options: Any) -> os.stat_result:
        if path == folder / "0.parquet":
            shutil.rmtree(folder)
        return stat(path, **options)

    monkeypatch.setattr(Path, "stat", ends)
    assert unused(grid)["temporary file"] == []


@pytest.mark.parametrize("moved", [".parquet", ".json"])
def test_a_shard_that_is_moved_away_while_it_is_written_is_written_again(
    grid: Grid, publish: Publish, monkeypatch: Patch, moved: str
) -> None:
    """Another job that repairs was slow, and took samples or sidecar for the damaged ones before them."""
    written, times = files.publish, list[Path]()

    def published(target: Path, write: Callable[[Path], object]) -> bool:
        is_first = written(target, write)
        if target.suffix == moved:
            times.append(target)
            if len(times) < 3:
                target.unlink()
        return is_first

    monkeypatch.setattr(files, "publish", published)
    generation = grid.jobs.generations(*CELL)[0]
    shard = publish(grid, *CELL, generation)
    assert shard.present and shards.read(shard, generation.id).height == 24
    assert not list(shard.path.parent.glob("*.unreadable"))


def test_a_shard_that_another_job_wrote_meanwhile_is_not_put_away(
    grid: Grid, publish: Publish, monkeypatch: Patch
) -> None:
    """While this one was looking at an unusable file there."""
    generation = grid.jobs.generations(*CELL)[0]
    shard = publish(grid, *CELL, generation)
    sound = shard.path.read_bytes()
    shard.path.with_suffix(".json").unlink()
    shard.path.write_bytes(b"half a shard")
    read = shards.read_unvouched

    def reading(path: Path, **options: Any) -> None:
        other = path.with_name("other")
        other.write_bytes(sound)
        other.replace(path)
        monkeypatch.setattr(shards, "read_unvouched", read)

    monkeypatch.setattr(shards, "read_unvouched", reading)
    publish(grid, *CELL, generation)
    assert shard.path.read_bytes() == sound and not list(shard.path.parent.glob("*.unreadable"))


def test_what_is_made_again_is_not_set_aside_with_what_was_damaged(
    grid: Grid, publish: Publish, monkeypatch: Patch
) -> None:
    """Another job publishes the samples as soon as their sidecar is away; this one moves the old samples alone."""
    generation = grid.jobs.generations(*CELL)[0]
    shard, claimed = publish(grid, *CELL, generation), shards._claimed

    def slowly(*arguments: Any) -> Path | None:
        found = claimed(*arguments)
        shard.path.rename(shard.path.with_suffix(".old"))
        publish(grid, *CELL, generation)
        return found

    monkeypatch.setattr(shards, "_claimed", slowly)
    (moved,) = shards.set_aside(grid.layout, [shard])
    assert moved.suffix == ".json" and uncovered(shards_of(shard.path.parent), 4) == []


def test_repair_leaves_a_shard_alone_that_another_job_publishes_meanwhile(
    grid: Grid, publish: Publish, monkeypatch: Patch
) -> None:
    """Its samples are there; its sidecar comes and its chunks go while the chunks are looked for."""
    shard = publish(grid, *CELL, grid.jobs.generations(*CELL)[0])
    sidecar = shard.path.with_suffix(".json")
    written = sidecar.read_bytes()
    sidecar.unlink()

    def looking(*_: Any) -> list[Path]:
        sidecar.write_bytes(written)
        return []

    monkeypatch.setattr(shards, "chunks_of", looking)
    assert shards.repair(grid.layout, shard.path.parent, {shard.path.name: ["another"]}) == []
    assert uncovered(shards_of(shard.path.parent), 4) == []


def test_a_folder_that_cannot_be_made_whole_is_removed(tmp_path: Path, monkeypatch: Patch) -> None:
    def failing(folder: Path) -> None:
        folder.mkdir()
        raise InputError("the disk is full")

    with monkeypatch.context() as patch, pytest.raises(InputError, match="full"):
        patch.setattr(files, "make_folder", failing)
        with files.temporary_folder(tmp_path / "x.parquet"):
            pass
    full = OSError(errno.ENOSPC, "what pyarrow says, without the name of the file")
    with pytest.raises(InputError, match=f"to {tmp_path}/x: No space left"), files.temporary_folder(tmp_path / "x"):
        raise full
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("vouched", [True, False])
def test_repair_goes_on_where_another_job_moves_what_it_looks_at(
    grid: Grid, publish: Publish, monkeypatch: Patch, vouched: bool
) -> None:
    """Both repair the store: the other one has set the sidecar aside, and now the samples."""
    generation = grid.jobs.generations(*CELL)[0]
    shard, read = publish(grid, *CELL, generation), shards.read_unvouched
    shard.path.with_suffix(".json").unlink()

    def reading(path: Path) -> Any:
        found = read(path)
        path.rename(path.with_suffix(".moved"))
        return found

    monkeypatch.setattr(shards, "read_unvouched", reading)
    hashes = {shard.path.name: [shard.sidecar["sha256"]]} if vouched else {}
    assert shards.repair(grid.layout, shard.path.parent, hashes) == []
    assert not shards_of(shard.path.parent)


def test_repair_sets_aside_what_the_disk_does_not_give_back(grid: Grid, publish: Publish, monkeypatch: Patch) -> None:
    """An error of the disk ends no run: the shard is sampled again, and its file kept."""
    shard = publish(grid, *CELL, grid.jobs.generations(*CELL)[0])
    shard.path.with_suffix(".json").unlink()

    monkeypatch.setattr(pl, "read_parquet", failing(errno.EIO))
    (moved,) = shards.repair(grid.layout, shard.path.parent, {})
    assert moved.exists() and not shard.path.exists()


def test_a_folder_of_chunks_may_vanish_while_it_is_listed(tmp_path: Path, monkeypatch: Patch) -> None:
    """The job that publishes the last chunk removes it; jobs that repair, `status` and `prune` look into it."""
    store = Layout(tmp_path)
    generation = store.generation("toy-base", "sums", "id")

    def vanishing(call: Callable[..., Any]) -> Callable[..., Any]:
        def without(path: Any = ".", *rest: Any) -> Any:
            if not isinstance(path, int) and Path(path).name == "chunks":
                shutil.rmtree(path)
            return call(path, *rest)

        return without

    found = []
    for look in (
        lambda: layout.chunks_of(generation, (0, 4)),
        lambda: layout.chunk_samples(generation),
        lambda: store.every(generation / "chunks" / "*.chunk"),
        store.temporary,
    ):
        for name in ("s00000-00004.q00000-00001.chunk", ".s00000-00004.q00001-00002.chunk.ab.tmp"):
            files.replace_text(generation / "chunks" / name, "")
        with monkeypatch.context() as patched:
            patched.setattr(os, "listdir", vanishing(os.listdir))
            patched.setattr(os, "scandir", vanishing(os.scandir))
            found.append(look())
    assert found == [[], 0, [], []]


def test_a_folder_that_others_remove_again_and_again_is_made_again(tmp_path: Path, monkeypatch: Patch) -> None:
    """Each of several jobs removes the folder of chunks when it finds it empty."""
    make_folder, made = files.make_folder, list[Path]()

    def made_and_removed(folder: Path) -> None:
        make_folder(folder)
        made.append(folder)
        if len(made) < 4:
            folder.rmdir()

    with monkeypatch.context() as patch:
        patch.setattr(files, "make_folder", made_and_removed)
        assert files.publish(tmp_path / "chunks" / "one", lambda path: path.write_text("x"))
    monkeypatch.setattr(files, "make_folder", made.append)
    with pytest.raises(InputError, match=f"cannot write to {tmp_path}/never: No such file"):
        files.publish(tmp_path / "never/target", lambda path: path.write_text("x"))


def test_without_locks_a_job_takes_itself_to_be_alone(tmp_path: Path, monkeypatch: Patch) -> None:
    """Some network file systems have none."""
    monkeypatch.setattr(files, "flock", failing(errno.ENOSYS))
    with files.alone(tmp_path / "lock") as alone:
        assert alone


def test_one_process_alone_has_a_chunk_until_it_gives_it_back_or_is_silent(tmp_path: Path, monkeypatch: Patch) -> None:
    chunk = layout.chunk(tmp_path, (0, 4), (0, 1))
    first, second, third = Leases(), Leases(), Leases()
    first._machine, synced = b"another", list[os.stat_result]()
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", lambda handle: synced.append(os.fstat(handle)))
        assert first.take(chunk) and first.take(chunk), "it has it already"
    is_lease = stat.S_ISREG(synced[-1].st_mode)
    assert is_lease and synced[-1].st_size == len(b"another"), "others on NFS would see an empty file"
    assert not second.is_free(chunk) and not second.take(chunk)
    os.utime(layout.lease(chunk, 0), (1, time.time() - SILENT_SECONDS - 1))
    first.beat()
    assert not second.take(chunk)
    first.give_back(chunk)
    assert second.is_free(chunk) and second.take(chunk) and not third.take(chunk)
    os.close(second._held.pop(layout.lease(chunk, 1)))  # as if it died here: nothing else says so
    monkeypatch.setattr(leases, "flock", failing(errno.ENOSYS))
    assert not third.take(chunk), "without locks it may live"
    os.utime(layout.lease(chunk, 1), (1, time.time() - SILENT_SECONDS - 1))
    assert third.take(chunk)
    os.utime(layout.lease(chunk, 2), (1, time.time() - 60))
    assert not second.is_free(chunk), "between two reports, also if it could not be locked when it was taken"
    third.give_back(chunk, remove=True)
    monkeypatch.undo()
    assert first.take(chunk), "a lease on a chunk that is there may be gone"
    assert [path.suffix for path in sorted(chunk.parent.iterdir())] == [".lease0", ".lease1", ".lease2"]


def test_a_process_that_died_while_it_took_a_lease_is_not_waited_for_long(tmp_path: Path) -> None:
    chunk = layout.chunk(tmp_path, (0, 4), (0, 1))
    files.publish(layout.lease(chunk, 0), lambda _: None)
    assert not Leases().is_free(chunk)
    os.utime(layout.lease(chunk, 0), (1, time.time() - 11))
    assert Leases().take(chunk)


@pytest.mark.parametrize("lacking", [os.W_OK, os.X_OK])
def test_a_folder_must_be_writable_and_searchable(tmp_path: Path, monkeypatch: Patch, lacking: int) -> None:
    files.require_writable(tmp_path)
    monkeypatch.setattr(os, "access", lambda path, mode: not mode & lacking)
    with pytest.raises(InputError, match=rf"{tmp_path}: permission denied"):
        files.require_writable(tmp_path)


def test_a_folder_that_another_job_makes_at_the_same_time_is_there(tmp_path: Path, monkeypatch: Patch) -> None:
    """A file that appears in its place is an error, which names the file."""
    make = Path.mkdir

    def second(path: Path) -> None:
        make(path)
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "mkdir", second)
        files.make_folder(tmp_path / "a" / "b")
    assert (tmp_path / "a" / "b").is_dir()

    def file_instead(path: Path) -> None:
        path.touch()
        make(path)

    monkeypatch.setattr(Path, "mkdir", file_instead)
    with pytest.raises(InputError, match=f"cannot write to {tmp_path}/c: Not a directory"):
        files.make_folder(tmp_path / "c")


def test_a_file_system_without_folders_to_sync_is_no_failing_one(tmp_path: Path, monkeypatch: Patch) -> None:
    """Some network file systems refuse to sync a folder; a file that they cannot sync is an error."""
    sync = os.fsync

    def fail(handle: int, number: int = errno.EINVAL) -> None:
        if stat.S_ISDIR(os.fstat(handle).st_mode):
            raise OSError(number, os.strerror(number))
        sync(handle)

    monkeypatch.setattr(os, "fsync", fail)
    assert files.publish(tmp_path / "new/target", lambda path: path.write_text("x"))
    assert not files.publish(tmp_path / "new/target", lambda path: path.write_text("y"))
    assert (tmp_path / "new/target").read_text() == "x"
    monkeypatch.setattr(os, "fsync", lambda handle: fail(handle, errno.EIO))
    with pytest.raises(InputError, match="Input/output error"):
        files.publish(tmp_path / "new/other", lambda path: path.write_text("x"))


def test_files_and_folders_are_moved_and_removed_once(tmp_path: Path, monkeypatch: Patch) -> None:
    """Whoever comes second finds nothing, and it is no error; another disk is copied to."""
    source, target = tmp_path / "source", tmp_path / "folder/target"
    for how in ("rename", "copy"):
        source.write_text(how)
        with monkeypatch.context() as patch:
            if how == "copy":
                patch.setattr(Path, "replace", failing(errno.EXDEV))
            assert files.move(source, target)
        assert target.read_text() == how and not source.exists()
    assert not files.move(source, target)
    (tmp_path / "tree/below").mkdir(parents=True)
    files.remove([target, tmp_path / "tree", tmp_path / "never"])
    assert [path.name for path in tmp_path.iterdir()] == ["folder"] and not target.exists()
    files.remove([target])


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO])
@pytest.mark.parametrize("call", ["fsync", "link", "rename", "replace", "open", "mkdir"])
def test_an_error_of_any_call_names_the_file(tmp_path: Path, monkeypatch: Patch, call: str, number: int) -> None:
    target = tmp_path / "folder" / "target"
    for how in (files.publish, files.replace):
        with monkeypatch.context() as patch:
            patch.setattr(os, call, failing(number))
            try:
                how(target, lambda path: path.write_text("x"))
            except InputError as error:
                assert str(tmp_path / "folder") in error.message and os.strerror(number) in error.message
                assert error.hint
        target.unlink(missing_ok=True)
    assert not target.parent.exists() or not list(target.parent.iterdir())


def test_a_file_that_another_job_uses_up_at_once_was_written(tmp_path: Path, monkeypatch: Patch) -> None:
    """Of jobs of one pool: a chunk is published in a shard, and removed with its folder, as soon as it is there."""
    target = tmp_path / "chunks" / "target"
    remove_quietly = files._remove_quietly

    def used_up(temporary: Path) -> None:
        remove_quietly(temporary)
        shutil.rmtree(target.parent)

    monkeypatch.setattr(files, "_remove_quietly", used_up)
    assert files.publish(target, lambda path: path.write_text("x"))
    assert not target.parent.exists()


def test_a_table_or_figure_that_cannot_be_finished_leaves_the_older_one(tmp_path: Path, monkeypatch: Patch) -> None:
    """A crash while one is written: the file is the old one, and whole."""
    frame = pl.DataFrame({"a": [1]})
    table, figure = Table(data=frame, parts=[part([{"a": "1"}])]), Figure()
    paths = [*write(table, tmp_path / "table"), *style.save(figure, tmp_path / "figure", frame)]
    before = [path.read_bytes() for path in paths]

    def fail(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", fail)
    for again in (lambda: write(table, tmp_path / "table"), lambda: style.save(figure, tmp_path / "figure", frame)):
        with pytest.raises(KeyboardInterrupt):
            again()
    assert [path.read_bytes() for path in paths] == before
    assert len(list(tmp_path.iterdir())) == len(paths)


def test_what_cannot_be_written_to_is_verified_too(grid: Grid, publish: Publish, monkeypatch: Patch) -> None:
    """A shared archive: the new times of a copy are not noted, and nothing is called damaged."""
    shard = publish(grid, *CELL, grid.jobs.generations(*CELL)[0])
    os.utime(shard.path, (1, 1))
    before = shard.path.with_suffix(".json").read_bytes()
    monkeypatch.setattr(os, "access", lambda *_: False)
    assert [why for _, why in shards.verify(grid.layout)] == [""]
    assert shard.path.with_suffix(".json").read_bytes() == before


def test_a_reader_names_a_file_that_the_disk_does_not_give_back(
    tmp_path: Path, grid: Grid, publish: Publish, monkeypatch: Patch
) -> None:
    """Of a shard it says nothing of the bytes."""
    path = tmp_path / "a.parquet"
    frames.write_frame(pl.DataFrame({"a": [1, 2, 3]}), path, 2)
    shard = publish(grid, *CELL, grid.jobs.generations(*CELL)[0])
    with monkeypatch.context() as patch:
        patch.setattr(pl, "read_parquet", failing(errno.EIO))
        with pytest.raises(InputError, match=r"a\.parquet is not readable Parquet \(.*Input/output error\)\n"):
            frames.read_frame(path, "score")
        patch.setattr(shards, "file_sha256", failing(errno.EIO))
        with pytest.raises(OSError, match="Input/output error"):
            shards.read(shard, shard.path.parent.name)
    assert shards.read(shard, shard.path.parent.name).height == 24


def test_a_server_that_is_away_for_a_moment_is_waited_for(tmp_path: Path, monkeypatch: Patch) -> None:
    path, waits = tmp_path / "here", list[float]()
    path.write_bytes(b"content")
    answers = [OSError(errno.ESTALE, "Stale file handle"), OSError(errno.EIO, "Input/output error")]

    def read(_: Path) -> bytes:
        if answers:
            raise answers.pop()
        return b"content"

    monkeypatch.setattr(Path, "read_bytes", read)
    monkeypatch.setattr(files.time, "sleep", waits.append)
    assert files.read_bytes(path) == b"content"
    assert waits == [0.5, 1]
    answers = [OSError(errno.ESTALE, "Stale file handle") for _ in range(9)]
    with pytest.raises(OSError, match="here") as caught:
        files.read_bytes(path)
    assert sum(waits[2:]) == 31.5, "half a minute"
    said = str(files.unread(caught.value))
    assert said.startswith(f"cannot use {path}: Stale file handle\nHint: look after the disk")
    answers = [PermissionError(errno.EACCES, "Permission denied")]
    with pytest.raises(PermissionError):
        files.read_bytes(path)
