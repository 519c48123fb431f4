"""Files: written atomically, read patiently, and hashed.

A reader never sees an unfinished file, and ``publish`` never replaces one.

What was written is on the disk before its name is, and the name is before the function returns: file, then folder, are
synced. Every call that changes something on disk is one of ``os``, so that a test can let each of them fail.

Nothing is called damaged that was not read: what the disk answers in place of content stays an ``OSError``, which ends
the command. Standard library only, because the planner imports it.
"""

from __future__ import annotations

import errno
import hashlib
import itertools
import json
import os
import re
import shutil
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from fcntl import LOCK_EX, LOCK_NB, flock
from functools import partial
from pathlib import Path
from stat import S_IMODE
from typing import Any, TypeVar

from searchlens.errors import InputError, one_line
from searchlens.store.inputs import require_no_stream
from searchlens.store.layout import Layout

T = TypeVar("T")

_UNWRITABLE = "make the results folder writable, or set `results` to another one"
_FULL = "free some space, or raise the quota, and run the same command again: what is finished is kept"
_FAILING = "look after the disk, then run the same command again: what is finished is kept"

_HINTS = {
    **dict.fromkeys((errno.ENOSPC, errno.EDQUOT, errno.EFBIG), _FULL),
    **dict.fromkeys((errno.EROFS, errno.EACCES, errno.EPERM, errno.ENOTDIR), _UNWRITABLE),
}

WRONG_NAMES = {errno.ENAMETOOLONG: "give a shorter name", errno.EISDIR: "name a file, not a folder"}
"""What the system answers to a wrong name, with hints."""

_NOT_READ = {
    **WRONG_NAMES,
    **dict.fromkeys((errno.EACCES, errno.EPERM), "ask its owner for access, then run the same command again"),
    **dict.fromkeys(
        (errno.EMFILE, errno.ENFILE), "raise the limit of open files (ulimit -n), and run the same command again"
    ),
}

_PASSING = (errno.ESTALE, errno.EIO, errno.ENOTCONN)
"""What file systems answer while a server is away."""

WAITS = (0.5, 1, 2, 4, 8, 16)
"""Seconds before a read is tried again."""

_MEETINGS = 10
"""How often a folder is made again that other jobs remove as soon as it is empty."""

_NO_FOLDER_SYNC = (errno.EINVAL, errno.ENOTSUP, errno.EBADF)
"""What file systems answer that keep no folders to sync."""


def require_writable(folder: Path) -> None:
    """Raise InputError if a folder cannot be created or written to; it is not created."""
    existing = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    if not existing.is_dir() or not os.access(existing, os.W_OK | os.X_OK):
        why = "permission denied" if existing.is_dir() else "it is a file"
        raise InputError(f"cannot write to the results folder {folder}: {existing}: {why}", _UNWRITABLE)


def of_system(error: Exception) -> OSError | None:
    """An error of the operating system in its own words: libraries have others, or the number in their text alone."""
    if isinstance(error, OSError) and error.errno:
        return OSError(error.errno, os.strerror(error.errno), error.filename)
    found = re.search(r"\(os error (\d+)\)(?:: (.+))?", str(error))
    return OSError(int(found[1]), os.strerror(int(found[1])), found[2]) if found else None


def unread(error: OSError) -> InputError:
    """What is said of a file that the system did not give, and what to do."""
    hint = _NOT_READ.get(error.errno or 0, _FAILING)
    return InputError(f"cannot use {one_line(str(error.filename))}: {error.strerror}", hint)


def _unwritable(path: Path, error: OSError) -> InputError:
    return InputError(f"cannot write to {path}: {error.strerror}", _HINTS.get(error.errno or 0, _FAILING))


def patiently(path: Path, read: Callable[[], T]) -> T:
    """What a function reads, tried again for half a minute while its server is away. An OSError names the path."""
    waits = iter(WAITS)
    while True:
        try:
            return read()
        except OSError as error:
            error.filename = error.filename or str(path)
            wait = next(waits, None) if error.errno in _PASSING else None
            if wait is None:
                raise
        time.sleep(wait)


def read_bytes(path: Path) -> bytes:
    """The content of a file, in which parsers meet no disk; a file that is cut meanwhile ends no process.

    Raises InputError if it is no file, and OSError if it is not there, or cannot be read.
    """
    return patiently(path, require_no_stream(path).read_bytes)


def entries(folder: Path) -> list[Path]:
    """What is in a folder, sorted; nothing if there is none. Raises OSError if it cannot be read."""
    try:
        return patiently(folder, lambda: sorted(folder.iterdir()))
    except (FileNotFoundError, NotADirectoryError):
        return []


@contextmanager
def _named(path: Path) -> Iterator[None]:
    """Turn errors of the operating system into an ``InputError`` that names a path."""
    try:
        yield
    except OSError as error:
        raise _unwritable(path, error) from None


def _sync_folder(folder: Path) -> None:
    """Sync a folder; one that another job has removed meanwhile has no names left to keep."""
    try:
        handle = os.open(folder, os.O_RDONLY)
    except FileNotFoundError:
        return
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno not in _NO_FOLDER_SYNC:
            raise
    finally:
        os.close(handle)


def make_folder(folder: Path) -> None:
    """Create a folder, and those above it, so that they outlast a power failure; InputError if it cannot be created."""
    absent = []
    for path in (folder, *folder.parents):
        if path.is_dir():
            break
        absent.append(path)
    with _named(folder):
        for path in reversed(absent):
            try:
                path.mkdir()
            except FileExistsError:
                if path.is_file():
                    raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path) from None
            _sync_folder(path.parent)


def _temporary(target: Path) -> Path:
    """Create a file next to ``target`` whose name no glob for the suffix matches; its mode follows the umask."""
    path = target.with_name(f".{target.name}.{os.urandom(4).hex()}.tmp")
    for left in reversed(range(_MEETINGS)):
        make_folder(target.parent)
        try:
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o666))
            break
        except OSError as error:
            _remove_quietly(path)
            is_gone = isinstance(error, FileNotFoundError)  # another job has just removed the empty folder
            if not (is_gone and left):
                raise _unwritable(target.parent, error) from None
    return path


def _write(target: Path, write: Callable[[Path], object]) -> Path:
    temporary = _temporary(target)
    try:
        mode = temporary.stat().st_mode
        write(temporary)
        if temporary.stat().st_mode != mode:  # safetensors puts a file of its own there, for its owner alone
            temporary.chmod(S_IMODE(mode))
        with temporary.open("rb") as stream:
            os.fsync(stream.fileno())
    except BaseException as error:
        _remove_quietly(temporary)
        found = of_system(error) if isinstance(error, Exception) else None
        if found and found.filename in (None, str(temporary)):  # otherwise of what the writing function reads
            raise _unwritable(target, found) from None
        raise
    return temporary


def _remove_quietly(path: Path) -> None:
    """Remove a temporary file; one that stays does no harm, and ``prune`` finds it."""
    with suppress(OSError):
        path.unlink()


def publish(target: Path, write: Callable[[Path], object]) -> bool:
    """Write ``target`` atomically, by a function of a temporary path next to it, unless it exists already.

    False if another process published first; its file stays. Raises InputError if the disk is full or fails, or
    permission is missing.
    """
    temporary = _write(target, write)
    is_first = False
    try:
        with _named(target), suppress(FileExistsError):
            os.link(temporary, target)
            is_first = True
    finally:
        _remove_quietly(temporary)
    with _named(target):
        _sync_folder(target.parent)  # also of a file of another process, which may have died before it did so
    return is_first


def replace(target: Path, write: Callable[[Path], object]) -> None:
    """Write ``target`` as ``publish``, also in place of an older file: for derived files, whose content can change."""
    temporary = _write(target, write)
    try:
        with _named(target):
            temporary.replace(target)
            _sync_folder(target.parent)
    except BaseException:
        _remove_quietly(temporary)
        raise


@contextmanager
def temporary_folder(target: Path) -> Iterator[Path]:
    """A folder beside ``target`` for what is put together there, removed in the end; InputError as ``publish``."""
    folder = target.with_name(f".{target.name}.{os.urandom(4).hex()}.tmp")
    try:
        make_folder(folder)
        yield folder
    except Exception as error:
        if (found := of_system(error)) and found.filename is None and found.errno in _HINTS:  # of a file in it
            raise _unwritable(target, found) from None
        raise
    finally:
        with suppress(OSError):  # one that stays does no harm but take space
            shutil.rmtree(folder, ignore_errors=True)


def replace_text(target: Path, text: str) -> None:
    """``replace`` for a text file."""
    replace(target, lambda path: path.write_text(text, encoding="utf-8"))


def move(source: Path, target: Path) -> bool:
    """Move a file; False if it is gone, because another process was first. Raises InputError as ``publish``."""
    make_folder(target.parent)
    with _named(target):
        try:
            source.replace(target)
        except FileNotFoundError:
            return False
        except OSError as error:
            if error.errno != errno.EXDEV:
                raise
            shutil.move(source, target)
        for folder in (target.parent, source.parent):
            _sync_folder(folder)
    return True


def link(source: Path, target: Path) -> None:
    """Give a file a second name, unless that exists: a copy if it is on another disk, or of another user."""
    make_folder(target.parent)
    try:
        os.link(source, target)
    except FileExistsError:
        return
    except OSError:
        publish(target, partial(shutil.copy2, source))
    _sync_folder(target.parent)


def aside(layout: Layout, paths: Iterable[Path]) -> list[Path]:
    """Move those of some files and folders that exist into ``aside/<time>-<process>/``; returns their new paths."""
    stamp = f"{time.strftime('%Y%m%dT%H%M%S')}-{os.getpid()}"  # no other process has a name in it
    targets = ((path, _unused(layout.aside(stamp, path))) for path in paths)
    return [target for path, target in targets if path.exists() and move(path, target)]


def _unused(path: Path) -> Path:
    """A path, with a number behind it where one of its name was set aside within the same second."""
    numbered = (path.with_name(f"{path.name}.{count}") for count in itertools.count(2))
    return next(one for one in itertools.chain([path], numbered) if not one.exists())


def remove(paths: Iterable[Path]) -> None:
    """Remove files and whole folders, InputError if the disk does not; one that is gone already is no error."""
    for path in paths:
        with _named(path), suppress(FileNotFoundError):
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink()


def read_json(path: Path) -> Any:
    """Read a JSON file; InputError if it is missing, a folder, or damaged, OSError if it cannot be read."""
    try:
        return json.loads(read_bytes(path).decode("utf-8"))
    except (FileNotFoundError, IsADirectoryError, NotADirectoryError) as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise InputError(
            f"{path} is damaged: {error}", "`searchlens verify --repair` sets damaged files aside; then run again"
        ) from None


@contextmanager
def alone(lock: Path) -> Iterator[bool]:
    """Hold a lock file within a ``with`` block; False while another process holds it. A process that ends frees it.

    The lock is only a hint: some file systems have no locks, and on others the lock of a node that died stays for ever.
    Work that must not happen twice needs ``publish``. Raises InputError if the folder cannot be written to.
    """
    make_folder(lock.parent)
    with _named(lock):
        try:
            handle = os.open(lock, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o666)
        except PermissionError:  # of another user, who lets others read it
            handle = os.open(lock, os.O_RDONLY | os.O_CLOEXEC)
    try:
        try:
            flock(handle, LOCK_EX | LOCK_NB)
            free = True
        except OSError as error:
            free = error.errno not in _HELD
        yield free
    finally:
        os.close(handle)


_HELD = (errno.EWOULDBLOCK, errno.EACCES)


# ---- hashes


def canonical(value: Any) -> str:
    """JSON with sorted keys and no spaces: equal values give equal text."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def digest(value: Any, length: int) -> str:
    """The first ``length`` hexadecimal digits of the sha256 of ``canonical(value)``."""
    return hashlib.sha256(canonical(value).encode("utf-8", "surrogatepass")).hexdigest()[:length]


def file_sha256(path: Path) -> str:
    """sha256 of a file's bytes, read in pieces."""

    def read() -> str:
        with path.open("rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()

    return patiently(require_no_stream(path), read)
