"""Writing files: errors of the disk are one line, modes follow the umask, half a table or figure is never seen."""

from __future__ import annotations

import errno
import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest
from matplotlib.figure import Figure

from searchlens.errors import InputError
from searchlens.reporting.figures import style
from searchlens.reporting.tables.table import Table, part, write
from searchlens.store import files


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


@pytest.mark.parametrize("lacking", [os.W_OK, os.X_OK])
def test_a_folder_must_be_writable_and_searchable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lacking: int
) -> None:
    files.require_writable(tmp_path)
    monkeypatch.setattr(os, "access", lambda path, mode: not mode & lacking)
    with pytest.raises(InputError, match=rf"{tmp_path}: permission denied"):
        files.require_writable(tmp_path)


def test_a_folder_that_another_job_makes_at_the_same_time_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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


def test_a_folder_that_is_always_removed_is_an_error_in_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = []
    monkeypatch.setattr(files, "make_folder", made.append)
    with pytest.raises(InputError, match=f"cannot write to {tmp_path}/never: No such file"):
        files.publish(tmp_path / "never/target", lambda path: path.write_text("x"))
    assert len(made) > 1


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


def test_a_file_system_without_folders_to_sync_is_no_failing_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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


def test_files_and_folders_are_moved_and_removed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever comes second finds nothing, and it is no error; another disk is copied to."""

    def another_disk(*_: object) -> None:
        raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))

    source, target = tmp_path / "source", tmp_path / "folder/target"
    for how in ("rename", "copy"):
        source.write_text(how)
        with monkeypatch.context() as patch:
            if how == "copy":
                patch.setattr(Path, "replace", another_disk)
            assert files.move(source, target)
        assert target.read_text() == how and not source.exists()
    assert not files.move(source, target)
    (tmp_path / "tree/below").mkdir(parents=True)
    files.remove([target, tmp_path / "tree", tmp_path / "never"])
    assert [path.name for path in tmp_path.iterdir()] == ["folder"] and not target.exists()
    files.remove([target])


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


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO])
@pytest.mark.parametrize("call", ["fsync", "link", "rename", "replace", "open", "mkdir"])
def test_an_error_of_any_call_names_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, number: int
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    target = tmp_path / "folder" / "target"
    for how in (files.publish, files.replace):
        with monkeypatch.context() as patch:
            patch.setattr(os, call, fail)
            try:
                how(target, lambda path: path.write_text("x"))
            except InputError as error:
                assert str(tmp_path / "folder") in error.message and os.strerror(number) in error.message
                assert error.hint
        target.unlink(missing_ok=True)
    assert not target.parent.exists() or not list(target.parent.iterdir())


def test_a_file_that_another_job_uses_up_at_once_was_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of jobs of one pool: a chunk is published in a shard, and removed with its folder, as soon as it is there."""
    target = tmp_path / "chunks" / "target"
    remove_quietly = files._remove_quietly

    def used_up(temporary: Path) -> None:
        remove_quietly(temporary)
        shutil.rmtree(target.parent)

    monkeypatch.setattr(files, "_remove_quietly", used_up)
    assert files.publish(target, lambda path: path.write_text("x"))
    assert not target.parent.exists()


def test_a_table_or_figure_that_cannot_be_finished_leaves_the_older_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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
