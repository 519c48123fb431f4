"""Rows of a file, one after the other: JSON lines, a JSON list, CSV or Parquet, compressed or not."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, cast

from searchlens.benchmarks.files import distinct, refuse_constant
from searchlens.errors import InputError
from searchlens.formats.readers.lines import kind, opened, raw
from searchlens.formats.readers.logged import Problems
from searchlens.store import parquet
from searchlens.store.inputs import require_parsable, whole

Row = tuple[str, dict[str, Any]]
"""Place, for messages, and content of a row."""


def rows(path: Path, problems: Problems) -> Iterator[Row]:
    """The rows of a file, without holding it in memory; lines that are not rows are counted as problems. An
    ``InputError`` if the file cannot be read, or is an archive.
    """
    what = kind(path)
    if what == "zip":
        raise InputError(f"{path} is a zip archive, not a file of rows", "unpack it, or name the log that it is")
    if what == "parquet":
        for place, row in parquet.rows(path):
            yield place, {key: value for key, value in row.items() if value is not None}
        return
    with opened(path) as file:
        first = _first_byte(file)
        if first == b"[":
            yield from _list(path, file, problems)
        elif first != b"{" and any(suffix in (".csv", ".tsv") for suffix in path.suffixes[-2:]):
            yield from _csv(path, file)
        else:
            yield from _lines(path, problems)


def first_row(path: Path) -> dict[str, Any] | None:
    """The first row of a file, to tell what it is; None if it has none that can be read."""
    try:
        return next((row for _, row in rows(path, Problems())), None)
    except InputError:
        return None


_DECODER = json.JSONDecoder(object_pairs_hook=distinct, parse_constant=refuse_constant)


def _first_byte(file: IO[bytes]) -> bytes:
    """The first byte that is neither a byte order mark nor white space; nothing is taken from the file."""
    return cast("io.BufferedReader", file).peek(4096).lstrip(b"\xef\xbb\xbf \t\r\n")[:1]


def _lines(path: Path, problems: Problems) -> Iterator[Row]:
    for number, line in raw(path):
        place = f"{path}:{number}"
        try:
            text = line.decode().strip()
            row = _DECODER.decode(text)
            if b"\\u" in line and "\\ud" in text.lower():
                json.dumps(row, ensure_ascii=False).encode()
        except UnicodeDecodeError as error:
            raise InputError(f"{place}: not UTF-8 text (byte {error.start} of the line)") from None
        except UnicodeEncodeError:
            problems.add("not JSON text: an escaped surrogate without its partner", place)
        except json.JSONDecodeError as error:
            problems.add(f"not JSON: {error.msg}", place, f"column {error.colno}")
        except (ValueError, RecursionError) as error:
            problems.add(str(error), place)
        else:
            if isinstance(row, dict):
                yield place, row
            else:
                problems.add("must be a JSON object", place, f"found {type(row).__name__}")


def _list(path: Path, file: IO[bytes], problems: Problems) -> Iterator[Row]:
    try:
        table = _DECODER.decode(require_parsable(whole(file.read, path), path).decode("utf-8-sig").strip())
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path}: {error}", "a JSON list of objects, or one JSON object per line") from None
    for number, row in enumerate(table, start=1):
        if isinstance(row, dict):
            yield f"{path}, row {number}", row
        else:
            problems.add("must be a JSON object", f"{path}, row {number}", f"found {type(row).__name__}")


def _csv(path: Path, file: IO[bytes]) -> Iterator[Row]:
    text = io.TextIOWrapper(file, encoding="utf-8-sig", newline="")
    try:
        reader = csv.DictReader(text, delimiter="\t" if ".tsv" in path.suffixes else ",", restkey="(beyond the head)")
        for number, row in enumerate(reader, start=1):
            yield (
                f"{path}, row {number}",
                {key: _cell(key, value) for key, value in row.items() if value not in ("", None)},
            )
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: not UTF-8 text (byte {error.start})") from None
    except csv.Error as error:
        raise InputError(f"{path}: not comma-separated values: {error}") from None
    finally:
        text.detach()


_AS_TEXT = ("question", "text", "gold", "prompt", "policy", "role", "model", "finish", "answer")
"""Columns whose cells are text, even where they look like a number."""


def _cell(key: str, value: Any) -> Any:
    """The cell of a table of text: a number, a list or true, where it reads as one."""
    if key in _AS_TEXT or not isinstance(value, str):
        return value
    try:
        return json.loads(value.lower() if value in ("True", "False") else value)
    except ValueError:
        return value
