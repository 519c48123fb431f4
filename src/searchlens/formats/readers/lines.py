"""JSON lines of other tools' logs: one object a line, read one after the other, with messages that name the line.

Other tools write bare NaN, repeat keys and cut characters in two, so this is more tolerant than the reader of our own
format.
"""

from __future__ import annotations

import codecs
import gzip
import io
import json
import os
import re
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import IO, Any, Literal, cast

import pyarrow as pa

from searchlens.errors import InputError
from searchlens.formats.readers.logged import Notes
from searchlens.store import inputs
from searchlens.store.inputs import DIGITS, LONGEST, Unpacked, require_at_most, require_no_stream, require_parsable

Kind = Literal["gzip", "zstd", "zip", "parquet", "utf-16", "text"]

_MAGIC: dict[bytes, Kind] = {
    b"\x1f\x8b": "gzip",
    b"\x28\xb5\x2f\xfd": "zstd",
    b"PK\x03\x04": "zip",
    b"PK\x05\x06": "zip",
    b"PAR1": "parquet",
    **dict.fromkeys((b"\xff\xfe", b"\xfe\xff"), "utf-16"),
}
_UNPACKED: dict[str, Callable[[str], Any]] = {
    "gzip": gzip.open,
    "zstd": lambda path: pa.CompressedInputStream(pa.OSFile(os.fsencode(path)), "zstd"),
    "utf-16": lambda path: pa.transcoding_input_stream(pa.OSFile(os.fsencode(path)), "utf-16", "utf-8"),
}


def kind(path: Path) -> Kind:
    """What a file is, by its first bytes; an ``InputError`` if it cannot be read."""
    try:
        with require_no_stream(path).open("rb") as file:
            head = file.read(4)
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from None
    return next((name for magic, name in _MAGIC.items() if head.startswith(magic)), "text")


@contextmanager
def opened(path: Path) -> Iterator[IO[bytes]]:
    """The bytes of a file, decompressed while they are read; text in UTF-16 with its mark becomes UTF-8. An
    ``InputError`` if it cannot be read, or its compressed content ends early or is damaged.
    """
    unpack = _UNPACKED.get(kind(path))
    try:
        if unpack is None:
            with path.open("rb") as file:
                yield file
        else:
            with unpack(str(path)) as stream:
                yield io.BufferedReader(Unpacked(path, stream.read), 1 << 20)
    except (EOFError, zlib.error, pa.ArrowException, UnicodeDecodeError, OSError) as error:
        reason = getattr(error, "strerror", None)  # of the system; not of gzip and Arrow, where a stream ends early
        if reason:
            raise InputError(f"cannot read {path}: {reason}") from None
        raise InputError(f"{path} is damaged: {error}", "copy it again") from None


_BOM = b"\xef\xbb\xbf"
LOOKED_AT = 100
"""Lines that are looked at to find a first object."""

Object = dict[str, Any]


def raw(path: Path) -> Iterator[tuple[int, bytes]]:
    """Number (from 1) and bytes of each line that is not blank; the mark at the beginning of some files is left out. An
    ``InputError`` if the file cannot be read, or is beyond a bound of ``store.inputs``.
    """
    with opened(path) as file:
        number = 0
        while line := file.readline(LONGEST + 1):
            number += 1
            require_at_most(LONGEST, len(line), "bytes in a line", f"{path}:{number}")
            if number == 1:
                line = line.removeprefix(_BOM)
            # No JSON has a bare return in it: it ends a line, as on old Macs.
            parts = [part + b"\n" for part in line.split(b"\r")] if b"\r" in line.rstrip() else [line]
            require_parsable(line, f"{path}:{number}")
            yield from ((number + place, part) for place, part in enumerate(parts) if not part.isspace())
            number += len(parts) - 1


def objects(path: Path, notes: Notes, keys: Sequence[str] = (), format_name: str = "") -> Iterator[tuple[str, Object]]:
    """Place and object of each line that is not blank, with ``keys``; errors as of the functions here."""
    for number, line in raw(path):
        place, row = f"{path}:{number}", parsed(path, number, line, notes)
        required(row, keys, place, format_name)
        yield place, row


def parsed(path: Path, number: int, line: bytes, notes: Notes) -> Object:
    """The object of one line. Escaped halves of characters become U+FFFD, which is noted. An ``InputError``, which
    quotes nothing, if the line is no UTF-8, no JSON, or no object.
    """
    try:
        text = str(line, "utf-8")
        row = json.loads(text)
    except UnicodeDecodeError as error:
        raise InputError(f"{path}:{number}: not UTF-8 text (byte {error.start} of the line)") from None
    except json.JSONDecodeError as error:
        if not line.endswith(b"\n"):
            what = f"{path}:{number}: the file ends in the middle of this line (not JSON: {error.msg})"
            raise InputError(what, "copy it again, or wait until its run is done") from None
        what = f"{path}:{number}: not JSON: {error.msg} at column {error.colno}"
        raise InputError(what, "write one JSON object on each line") from None
    except RecursionError:
        raise InputError(f"{path}:{number}: JSON that is nested too deeply") from None
    except ValueError:
        raise InputError(f"{path}:{number}: a whole number of more than {DIGITS:,} digits") from None
    if not isinstance(row, dict):
        what = f"{path}:{number}: {named(row)} instead of a JSON object"
        raise InputError(what, "write one JSON object on each line")
    if b"\\u" in line and (b"\\ud" in line or b"\\uD" in line):
        row = whole_characters(row, f"{path}:{number}", notes)
    notes.at(f"{path}:{number}", row)
    return cast("Object", row)


def whole(path: Path, notes: Notes) -> Object:
    """The object of a small JSON file, such as the results beside samples; an ``InputError`` if it is none."""
    with opened(path) as file:
        try:
            found = json.loads(require_parsable(inputs.whole(file.read, path), path))
        except (ValueError, RecursionError):
            raise InputError(f"{path} is no JSON") from None
    if not isinstance(found, dict):
        raise InputError(f"{path}: {named(found)} instead of a JSON object")
    notes.at(str(path), found)
    return found


def whole_characters(value: Any, place: str, notes: Notes) -> Any:
    """A JSON value in which halves of characters are replaced by U+FFFD; no text with one could be stored."""
    text = json.dumps(value, ensure_ascii=False)
    try:
        text.encode()
    except UnicodeEncodeError:
        notes.add("halves of characters were replaced by U+FFFD", place)
        return json.loads(text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace"))
    return value


def named(value: Any) -> str:
    """What kind of JSON a value is, for messages."""
    names = {dict: "an object", list: "a list", str: "a string", bool: "true or false", type(None): "null"}
    return names.get(type(value), "a number")


def text_after(line: bytes, key: str) -> str | None:
    """The string that the last ``key`` of a line has, found without parsing the line; None if there is none.

    Quotes within texts are escaped, so that no text can be taken for a key.
    """
    for separator in (b'": "', b'":"'):
        mark = b'"' + key.encode() + separator
        start = line.rfind(mark)
        if start >= 0:
            start += len(mark)
            end = line.find(b'"', start)
            found = line[start:end]
            if b"\\" in found:
                return str(json.JSONDecoder().raw_decode(line[start - 1 :].decode())[0])
            return found.decode()
    return None


def required(row: Object, keys: Sequence[str], place: str, format_name: str) -> None:
    """Refuse a row without some keys, of another format or version; the message names the missing key and those that
    are there.
    """
    for key in keys:
        if key not in row:
            there = ", ".join(list(row)[:8]) or "none"
            raise InputError(
                f"{place}: no key {key!r}, which every line of {format_name} has; its keys: {there}",
                "divide it if files of two formats were joined",
            )


def first_object(path: Path) -> Object | None:
    """The first object with any key in a file of lines, to tell its format; None if it is no such file."""
    status = path.stat()
    return _first_object(path, status.st_size, status.st_mtime_ns)


@lru_cache(maxsize=2)
def _first_object(path: Path, _size: int, _changed: int) -> Object | None:
    try:
        if kind(path) in ("zip", "parquet"):
            return None
        for looked_at, (_, line) in enumerate(raw(path)):
            row = json.loads(line)
            if not isinstance(row, dict) or looked_at > LOOKED_AT:
                return None
            if row:
                return row
    except (InputError, ValueError, RecursionError):
        pass
    return None


_CHUNK = 1 << 20
_SPACE = re.compile(r"[ \t\r\n]*")


class JsonText:
    """Walks through a JSON text; in memory is the value that is being read, and no more. Halves of characters that were
    replaced are noted.

    Bare NaN and infinities are accepted, because Python writes them.
    """

    def __init__(self, path: Path, file: IO[bytes], notes: Notes) -> None:
        self._path, self._file, self._notes = path, file, notes
        self._decode = codecs.getincrementaldecoder("utf-8-sig")().decode
        self._scan = json.JSONDecoder().raw_decode
        self._buffer, self._at, self._ended = "", 0, False

    def peek(self) -> str:
        """The next character that is no white space; empty at the end of the text."""
        while True:
            if space := _SPACE.match(self._buffer, self._at):
                self._at = space.end()
            if self._at < len(self._buffer) or self._ended:
                return self._buffer[self._at : self._at + 1]
            self._fill()

    def value(self) -> Any:
        """The next value, whole; an ``InputError`` if it is no JSON, the text ends within it, or it is longer than
        ``LONGEST``.
        """
        self.peek()
        while True:
            try:
                value, end = self._scan(self._buffer, self._at)
            except (ValueError, RecursionError) as error:
                if self._ended:
                    raise self._broken(str(error)) from None
            else:
                if end < len(self._buffer) or self._ended:
                    start, self._at = self._at, end
                    has_half = any(self._buffer.find(half, start, end) >= 0 for half in ("\\ud", "\\uD"))
                    return whole_characters(value, str(self._path), self._notes) if has_half else value
            if len(self._buffer) - self._at > LONGEST:
                raise self._broken(f"a value of more than {LONGEST // 2**20} MB, or one that is broken")
            self._fill()

    def members(self) -> Iterator[str]:
        """The keys of an object; the value of each must be taken before the next key is."""
        self._take("{")
        while self.peek() != "}":
            key = self.value()
            if not isinstance(key, str):
                raise self._broken("a key that is no string")
            self._take(":")
            yield key
            if self.peek() != "}":
                self._take(",")
        self._at += 1

    def entries(self) -> Iterator[Any]:
        """The entries of a list."""
        self._take("[")
        while self.peek() != "]":
            yield self.value()
            if self.peek() != "]":
                self._take(",")
        self._at += 1

    def _take(self, wanted: str) -> None:
        found = self.peek()
        if found != wanted:
            raise self._broken(f"{found!r} where {wanted!r} is expected" if found else "it ends too early")
        self._at += 1

    def _fill(self) -> None:
        rest = self._buffer[self._at :]
        content = require_parsable(self._file.read(max(_CHUNK, len(rest))), self._path)
        self._ended = not content
        try:
            self._buffer, self._at = rest + self._decode(content, self._ended), 0
        except UnicodeDecodeError:
            raise InputError(f"{self._path}: not UTF-8 text") from None

    def _broken(self, what: str) -> InputError:
        return InputError(f"{self._path} is no whole JSON text: {what}", "copy it again")


@contextmanager
def walked(path: Path, notes: Notes) -> Iterator[JsonText]:
    """A JSON file, compressed or not, to walk through."""
    with opened(path) as file:
        yield JsonText(path, file, notes)
