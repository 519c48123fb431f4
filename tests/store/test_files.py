"""Writing files: errors of the disk are one line, modes follow the umask, half a table or figure is never seen."""

from __future__ import annotations

import errno
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from searchlens.errors import InputError
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
