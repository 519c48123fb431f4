"""A JSON text too large to hold: its members and entries are taken one after the other."""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from searchlens.errors import InputError
from searchlens.readers.lines import whole_characters
from searchlens.readers.logged import Notes
from searchlens.readers.opening import opened
from searchlens.store.inputs import LONGEST, require_parsable

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
        return InputError(f"{self._path} is no whole JSON text: {what}", "copy it again; nothing was imported")


@contextmanager
def walked(path: Path, notes: Notes) -> Iterator[JsonText]:
    """A JSON file, compressed or not, to walk through."""
    with opened(path) as file:
        yield JsonText(path, file, notes)
