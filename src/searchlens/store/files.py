"""Files that appear whole: a reader never sees half of one, and a writer never replaces another's."""

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

_UNWRITABLE = "make the results folder writable, or set `results` to another one"


def require_writable(folder: Path) -> None:
    """Check that ``folder`` can be made and written to, without making it.

    Raises
    ------
    InputError
        A file stands in its way, or permission is missing.
    """
    there = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    if not there.is_dir() or not os.access(there, os.W_OK | os.X_OK):
        why = "permission denied" if there.is_dir() else "it is a file"
        raise InputError(f"cannot write to the results folder {folder}: {there}: {why}", _UNWRITABLE)


def _temporary(target: Path) -> Path:
    """A name beside ``target`` that no glob for its suffix matches."""
    try:
        try:
            handle, name = _open_beside(target)
        except FileNotFoundError:  # another job has just removed the folder, which was empty
            handle, name = _open_beside(target)
    except OSError as error:
        raise InputError(f"cannot write to {target.parent}: {error.strerror}", _UNWRITABLE) from None
    os.close(handle)
    return Path(name)


def _open_beside(target: Path) -> tuple[int, str]:
    target.parent.mkdir(parents=True, exist_ok=True)
    return tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.", suffix=".tmp")


def _write(target: Path, write: Callable[[Path], None]) -> Path:
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


def publish(target: Path, write: Callable[[Path], None]) -> bool:
    """Make ``target`` appear whole, unless it exists already.

    Parameters
    ----------
    target : Path
    write : callable
        Given a temporary path beside ``target``, writes the content there.

    Returns
    -------
    bool
        False when somebody else published first; theirs stays.
    """
    temporary = _write(target, write)
    try:
        os.link(temporary, target)
    except FileExistsError:
        return False
    finally:
        temporary.unlink(missing_ok=True)
    return True


def replace(target: Path, write: Callable[[Path], None]) -> None:
    """Make ``target`` appear whole, in place of what was there: for derived files, whose name is not their content."""
    _write(target, write).replace(target)


def replace_text(target: Path, text: str) -> None:
    """``replace`` for a text file."""

    def write(path: Path) -> None:
        path.write_text(text)

    replace(target, write)


def read_json(path: Path) -> Any:
    """A JSON file; damage is an ``InputError`` that names it."""
    try:
        return json.loads(path.read_text())
    except (ValueError, UnicodeDecodeError) as error:
        raise InputError(
            f"{path} is damaged: {error}", "`searchlens verify` lists what is damaged; delete this file and run again"
        ) from None


@contextmanager
def alone(lock: Path) -> Iterator[bool]:
    """Hold a lock file for the duration, if nobody else does. It ends with the process, however it ends.

    A hint and no more: a file system may know no locks, and one that outlives its node is held for ever. What must not
    happen twice needs ``publish``.

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
