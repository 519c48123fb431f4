"""Rows of a benchmark file in any of the formats of the hub and the harnesses, and questions in the project's own.

The own format has one question per line: ``{"id": ..., "question": ..., "gold": ..., "checks": {...}, "tags": {...}}``.
``checks`` and ``tags`` are optional. The gold of a row with checks may be empty. Errors name the line.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from searchlens.benchmarks.questions import Question
from searchlens.errors import InputError
from searchlens.store.inputs import Unpacked, require_no_stream, require_parsable, whole

SUFFIXES = (".parquet", ".jsonl", ".json", ".csv")
"""Formats by preference, for a folder that has the same split in several."""

PACKED = ".gz"
"""Suffix of a file that is compressed by gzip, after the suffix of its format."""


def read_bytes(path: Path) -> bytes:
    """What a benchmark file holds, decompressed with the suffix ``.gz``; InputError if it is not whole."""
    try:
        if path.suffix != PACKED:
            return require_no_stream(path).read_bytes()
        with gzip.open(require_no_stream(path)) as file:
            return whole(io.BufferedReader(Unpacked(path, file.read), 1 << 20).read, path)
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise InputError(f"benchmark file {path} is not a whole gzip file: {error}", "restore the file") from None
    except OSError as error:
        raise InputError(f"cannot read benchmark file {path}: {error.strerror}") from None


def rows(path: Path, content: bytes) -> list[dict[str, Any]]:
    """Rows of a file, read by its suffix; ``content`` is what ``read_bytes`` returns.

    The formats are Parquet, comma-separated values with a header, JSON lines, and one JSON list. A file with the suffix
    of JSON lines may hold a list, and the other way round. Raises InputError if the suffix is unknown, the content is
    not what the suffix says, or there are no rows.
    """
    suffix = path.with_suffix("").suffix if path.suffix == PACKED else path.suffix
    if suffix not in SUFFIXES:
        raise InputError(f"{path}: cannot read a file of type {path.suffix!r}", f"known: {', '.join(SUFFIXES)}")
    if suffix == ".parquet":
        from searchlens.store import parquet  # pyarrow is not needed for planning

        table = [row for _, row in parquet.rows(path, content=content)]
    elif suffix == ".csv":
        table = _csv(path, content)
    elif require_parsable(content, path).lstrip(b"\xef\xbb\xbf \t\r\n")[:1] == b"[":
        try:
            table = strict_json(_decoded(path, content), nan=True)
        except (ValueError, RecursionError) as error:
            raise InputError(f"{path}: {error}") from None
        if not all(isinstance(row, dict) for row in table):
            raise InputError(f"{path}: must be a list of JSON objects")
    else:
        numbered, errors = objects(path, content, nan=True)
        refuse(path, errors, "write one JSON object per line")
        table = [row for _, row in numbered]
    if not table:
        raise InputError(f"{path} has no rows")
    return list(table)


def _decoded(path: Path, content: bytes) -> str:
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: not UTF-8 text (byte {error.start})") from None


def _csv(path: Path, content: bytes) -> list[dict[str, Any]]:
    try:
        return list(csv.DictReader(io.StringIO(_decoded(path, content), newline=""), restkey="(beyond the head)"))
    except csv.Error as error:
        raise InputError(f"{path}: not comma-separated values: {error}") from None


# ---- JSON lines

SHOWN = 10
"""Largest number of errors listed in one message."""

KEYS: dict[str, type] = {"id": str, "question": str, "gold": str, "checks": dict, "tags": dict}
REQUIRED = ("id", "question", "gold")


def objects(
    path: Path, content: bytes, *, nan: bool = False
) -> tuple[list[tuple[int, dict[str, Any]]], list[tuple[int, str]]]:
    """Parse JSON lines, one object each, without blank ones; returns objects and errors, with lines from 1.

    ``nan``: accept NaN and infinities, which are not JSON, but which Python writes. Raises InputError if the content is
    not UTF-8, or blank lines only.
    """
    try:
        # Not splitlines, which would split a JSON string at U+2028.
        lines = content.decode("utf-8-sig").split("\n")
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise InputError(f"{path}:{line}: not UTF-8 text (byte {error.start})") from None
    rows: list[tuple[int, dict[str, Any]]] = []
    errors: list[tuple[int, str]] = []
    for number, line_text in enumerate(lines, start=1):
        if not line_text.strip():
            continue
        try:
            value = strict_json(line_text, nan=nan)
        except (ValueError, RecursionError) as error:
            errors.append((number, str(error)))
            continue
        if isinstance(value, dict):
            rows.append((number, value))
        else:
            errors.append((number, f"must be a JSON object, found {type(value).__name__}"))
    if not rows and not errors:
        raise InputError(f"{path} is empty", "write one JSON object per line")
    return rows, errors


def strict_json(text: str, *, nan: bool = False) -> Any:
    """A JSON value; ValueError for repeated keys, lone surrogates and, unless ``nan``, NaN or infinities."""
    try:
        value = json.loads(text, object_pairs_hook=distinct, parse_constant=float if nan else refuse_constant)
    except json.JSONDecodeError as error:
        raise ValueError(f"not JSON: {error.msg} at column {error.colno}") from None
    if "\\ud" in text.lower() and any(
        "\ud800" <= letter <= "\udfff" for letter in json.dumps(value, ensure_ascii=False)
    ):
        raise ValueError("not JSON text: an escaped surrogate without its partner")
    return value


def distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """The members of a JSON object, whose keys must differ."""
    content = dict(pairs)
    if len(content) != len(pairs):
        keys = [key for key, _ in pairs]
        raise ValueError(f"key {next(key for key in keys if keys.count(key) > 1)!r} occurs twice")
    return content


def refuse_constant(name: str) -> None:
    """Refuse NaN and infinities."""
    raise ValueError(f"{name} is not JSON")


def refuse(path: Path, errors: Iterable[tuple[int | None, str]], hint: str) -> None:
    """Raise one ``InputError`` with the first ``SHOWN`` errors by line, those without a line last; if there is any."""
    ordered = sorted(errors, key=lambda item: (item[0] is None, item[0] or 0))
    if not ordered:
        return
    lines = [f"{path}:{line}: {what}" if line else f"{path}: {what}" for line, what in ordered[:SHOWN]]
    if len(ordered) > SHOWN:
        lines.append(f"… and {len(ordered) - SHOWN} more errors")
    raise InputError("\n".join(lines), hint)


def questions(path: Path, content: bytes) -> tuple[Question, ...]:
    """Questions of a file in the project's own format.

    Raises InputError for invalid JSON, missing or unknown keys, wrong types, a question with neither gold nor checks,
    an id or a question text that occurs twice, or an empty file.
    """
    rows, errors = objects(path, content)
    seen: dict[tuple[str, str], int] = {}
    for line, row in rows:
        errors += [(line, what) for what in _row_errors(row)]
        for key in ("id", "question"):
            if isinstance(value := row.get(key), str) and (first := seen.setdefault((key, value), line)) != line:
                # The question is not quoted, because a file may hold questions that must not be shown in plain text.
                shown = value if len(value) <= 60 else value[:57] + "…"
                what = f"id {shown!r}" if key == "id" else "the question"
                errors.append((line, f"{what} occurs already on line {first}"))
    refuse(path, errors, f"a row has {', '.join(REQUIRED)} and may have checks and tags (docs/add-a-benchmark.md)")
    return tuple(
        Question(row["id"], row["question"], row["gold"], row.get("checks"), row.get("tags", {})) for _, row in rows
    )


def _row_errors(row: dict[str, Any]) -> list[str]:
    errors = [f"key {key!r} is missing" for key in REQUIRED if key not in row]
    errors += [f"key {key!r} is unknown" for key in row if key not in KEYS]
    errors += [
        f"{key!r} must be {'a string' if kind is str else 'an object'}, found {type(row[key]).__name__}"
        for key, kind in KEYS.items()
        if key in row and not isinstance(row[key], kind)
    ]
    errors += [f"{key!r} is empty" for key in ("id", "question") if row.get(key) == ""]
    if row.get("gold") == "" and not row.get("checks"):
        errors.append("'gold' is empty and there are no checks")
    if isinstance(checks := row.get("checks"), dict):
        errors += [
            f"check {name!r} must be an object of parameters" for name, p in checks.items() if not isinstance(p, dict)
        ]
    return errors
