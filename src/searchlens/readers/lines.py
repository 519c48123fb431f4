"""JSON lines of other tools' logs: one object a line, read one after the other, with messages that name the line.

Other tools write bare NaN, repeat keys and cut characters in two, so this is more tolerant than the reader of our own
format.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any, cast

from searchlens.errors import InputError
from searchlens.readers.logged import Notes
from searchlens.readers.opening import kind, opened
from searchlens.store import inputs
from searchlens.store.inputs import DIGITS, LONGEST, require_at_most, require_parsable

_BOM = b"\xef\xbb\xbf"
_LOOKED_AT = 100
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


def objects(path: Path, notes: Notes) -> Iterator[tuple[int, Object]]:
    """Number (from 1) and object of each line that is not blank; errors as of ``raw`` and ``parsed``."""
    for number, line in raw(path):
        yield number, parsed(path, number, line, notes)


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
            hint = "copy it again, or wait until its run is done; nothing was imported"
            raise InputError(what, hint) from None
        what = f"{path}:{number}: not JSON: {error.msg} at column {error.colno}"
        raise InputError(what, "each line is one JSON object; nothing was imported") from None
    except RecursionError:
        raise InputError(f"{path}:{number}: JSON that is nested too deeply") from None
    except ValueError:
        raise InputError(f"{path}:{number}: a whole number of more than {DIGITS:,} digits") from None
    if not isinstance(row, dict):
        what = f"{path}:{number}: {named(row)} instead of a JSON object"
        raise InputError(what, "each line is one JSON object; nothing was imported")
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
            raise InputError(f"{path} is no JSON", "nothing was imported") from None
    if not isinstance(found, dict):
        raise InputError(f"{path}: {named(found)} instead of a JSON object", "nothing was imported")
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


def required(row: Object, keys: tuple[str, ...], place: str, format_name: str) -> None:
    """Refuse a row without some keys, of another format or version; the message names the missing key and those that
    are there.
    """
    for key in keys:
        if key not in row:
            there = ", ".join(list(row)[:8]) or "none"
            raise InputError(
                f"{place}: no key {key!r}, which every line of {format_name} has; its keys: {there}",
                "were files of two formats joined? Nothing was imported",
            )


def first_object(path: Path) -> Object | None:
    """The first object with any key in a file of lines, to tell its format; None if it is no such file."""
    status = path.stat()
    return _first_object(path, status.st_size, status.st_mtime_ns)


def has_keys(path: Path, keys: Iterable[str]) -> bool:
    """Whether the first object of a file of lines has all these keys."""
    row = first_object(path)
    return row is not None and all(key in row for key in keys)


@lru_cache(maxsize=2)
def _first_object(path: Path, _size: int, _changed: int) -> Object | None:
    try:
        if kind(path) in ("zip", "parquet"):
            return None
        for looked_at, (_, line) in enumerate(raw(path)):
            row = json.loads(line)
            if not isinstance(row, dict) or looked_at > _LOOKED_AT:
                return None
            if row:
                return row
    except (InputError, ValueError, RecursionError):
        pass
    return None
