"""Atomic writing of files: a reader never sees an unfinished file, and ``publish`` never replaces one."""

from __future__ import annotations

import errno
import json
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from fcntl import LOCK_EX, LOCK_NB, flock
from pathlib import Path
from typing import Any

from searchlens.errors import InputError
from searchlens.store.inputs import require_no_stream

_UNWRITABLE = "make the results folder writable, or set `results` to another one"


def require_writable(folder: Path) -> None:
    """Check that ``folder`` can be created and written to, without creating it.

    Raises
    ------
    InputError
        There is a file at its path or above, or permission is missing.
    """
    existing = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    if not existing.is_dir() or not os.access(existing, os.W_OK | os.X_OK):
        why = "permission denied" if existing.is_dir() else "it is a file"
        raise InputError(f"cannot write to the results folder {folder}: {existing}: {why}", _UNWRITABLE)


def _temporary(target: Path) -> Path:
    """A file next to ``target`` whose name no glob for the suffix matches."""
    try:
        try:
            handle, name = _open_next_to(target)
        except FileNotFoundError:  # another job has just removed the empty folder
            handle, name = _open_next_to(target)
    except OSError as error:
        raise InputError(f"cannot write to {target.parent}: {error.strerror}", _UNWRITABLE) from None
    os.close(handle)
    return Path(name)


def _open_next_to(target: Path) -> tuple[int, str]:
    target.parent.mkdir(parents=True, exist_ok=True)
    return tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.", suffix=".tmp")


def _write(target: Path, write: Callable[[Path], object]) -> Path:
    temporary = _temporary(target)
    try:
        write(temporary)
        with temporary.open("rb") as stream:
            os.fsync(stream.fileno())
        temporary.chmod(0o644)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    return temporary


def publish(target: Path, write: Callable[[Path], object]) -> bool:
    """Write ``target`` atomically, unless it exists already.

    Parameters
    ----------
    target : Path
    write : callable
        Writes the content to the path that it is called with, a temporary one next to ``target``.

    Returns
    -------
    bool
        False if another process published first; its file stays.
    """
    temporary = _write(target, write)
    try:
        os.link(temporary, target)
    except FileExistsError:
        return False
    finally:
        temporary.unlink(missing_ok=True)
    return True


def replace(target: Path, write: Callable[[Path], object]) -> None:
    """Write ``target`` atomically, also in place of an older file: for derived files, whose content can change."""
    _write(target, write).replace(target)


def replace_text(target: Path, text: str) -> None:
    """``replace`` for a text file."""

    def write(path: Path) -> None:
        path.write_text(text, encoding="utf-8")

    replace(target, write)


def read_json(path: Path) -> Any:
    """Read a JSON file; an ``InputError`` that names the file if it cannot be read or is damaged."""
    try:
        return json.loads(require_no_stream(path).read_text("utf-8"))
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise InputError(
            f"{path} is damaged: {error}", "`searchlens verify` lists all damaged files; delete this file and run again"
        ) from None


@contextmanager
def alone(lock: Path) -> Iterator[bool]:
    """Hold a lock file within a ``with`` block, unless another process holds it. Every end of the process frees it.

    The lock is only a hint: some file systems have no locks, and on others the lock of a node that died stays for ever.
    Work that must not happen twice needs ``publish``.

    Yields
    ------
    bool
        False while another process holds it.

    Raises
    ------
    InputError
        The folder cannot be written to.
    """
    try:
        lock.parent.mkdir(parents=True, exist_ok=True)
        stream = lock.open("w")
    except OSError as error:
        raise InputError(f"cannot write to {lock.parent}: {error.strerror}", _UNWRITABLE) from None
    with stream:
        try:
            flock(stream, LOCK_EX | LOCK_NB)
            free = True
        except OSError as error:
            free = error.errno not in _HELD
        yield free


_HELD = (errno.EWOULDBLOCK, errno.EACCES)
