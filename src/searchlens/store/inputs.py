"""Files that users name: read only if they are files, because a pipe never ends, and up to bounds.

A small file may ask for any memory or time, by what it unpacks to, by many short values, or by a number in a header.
Standard library only, because the planner imports it.
"""

from __future__ import annotations

import io
import stat
from collections.abc import Callable
from pathlib import Path

from searchlens.errors import InputError

Read = Callable[[int], bytes]

LONGEST = 256 * 2**20  # bytes of a line, of a member of an archive, and of a file that is unpacked to be read whole
VALUES = 2**24  # values in JSON that is parsed at once: one of three letters, such as ``[],``, takes 64 bytes of memory
ROWS = 2**20  # rows of a small Parquet file
CHOICES = 2**14  # samples that one request asks for
DIGITS = 4300  # of a whole number; Python reads no longer one
_RATIO = 512  # of what a file becomes by unpacking to its size, beyond the first 64 MB
_BLANKS = 2**18  # bytes in a row that are unpacked and blank

_KINDS = {
    stat.S_IFIFO: "a named pipe",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFSOCK: "a socket",
}

_ENCODINGS = {
    b"\xff\xfe": "UTF-16",
    b"\xfe\xff": "UTF-16",
    b"\x1f\x8b": "a file compressed by gzip",
    b"\x28\xb5\x2f\xfd": "a file compressed by zstd",
    b"PK": "a zip archive",
    b"PAR1": "a Parquet file",
    b"\x89PNG": "an image",
    b"%PDF": "a PDF file",
}
"""What a file seems to be that is not text in UTF-8, by its first bytes."""


def require_no_stream(path: Path) -> Path:
    """The path; InputError if a pipe, a socket or a device is there. What is not there is left to who reads it."""
    try:
        kind = _KINDS.get(stat.S_IFMT(path.stat().st_mode))
    except (OSError, ValueError):  # not there, no name that a file can have
        return path
    if kind:
        raise InputError(f"cannot read {path}: it is {kind}", "name a file; a pipe's content can be saved in one")
    return path


def require_at_most(most: int, found: int, what: str, place: object) -> None:
    """Refuse a file in which there is more of something than a bound, which the message names."""
    if found > most:
        hint = "was it damaged, or made to fill the memory? If it is right, divide or unpack it yourself"
        raise InputError(f"{place}: more than {most:,} {what}", hint)


def require_parsable(text: bytes, place: object) -> bytes:
    """The text of a JSON value, unless it has more than ``VALUES`` in it."""
    require_at_most(VALUES, sum(map(text.count, b",[{")) if len(text) > VALUES else 0, "values of JSON", place)
    return text


def whole(read: Read, path: Path) -> bytes:
    """What a file holds that has to be in memory as a whole, up to ``LONGEST`` bytes."""
    content = read(LONGEST + 1)
    require_at_most(LONGEST, len(content), "bytes when it is unpacked", path)
    return content


class Unpacked(io.RawIOBase):
    """What is unpacked of a compressed file, piece by piece; refused once it is far too much for the file, or blank."""

    def __init__(self, path: Path, read: Read) -> None:
        self._path, self._read, self._count, self._blanks = path, read, 0, 0
        self._most = max(2**26, _RATIO * path.stat().st_size)

    def readable(self) -> bool:
        """It is."""
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        """Fill a buffer as far as there is content."""
        content = self._read(len(buffer))
        buffer[: len(content)] = content
        self._count += len(content)
        self._blanks = self._blanks + len(content) if content.isspace() else 0
        require_at_most(_BLANKS, self._blanks, "blanks in a row", self._path)
        require_at_most(self._most, self._count, "bytes when it is unpacked", self._path)
        return len(content)


def read_text(path: Path) -> str:
    """A file's text in UTF-8; an InputError says where it is not, and what it seems to be. OSError if there is none."""
    try:
        return require_no_stream(path).read_text("utf-8")
    except UnicodeDecodeError as error:
        content, place = bytes(error.object), f"byte {error.start + 1} is {error.object[error.start]:#x}"
        seems = (f"; it seems to be {name}" for magic, name in _ENCODINGS.items() if content.startswith(magic))
        raise InputError(f"{path} is not text in UTF-8: {place}{next(seems, '')}", "save it as UTF-8") from None
