"""The project's own benchmark format, and a reader of JSON lines whose errors name the line.

One question per line: ``{"id": ..., "question": ..., "gold": ..., "checks": {...}, "tags": {...}}``. ``checks`` and
``tags`` are optional. The gold of a row with checks may be empty.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from searchlens.benchmarks.questions import Question
from searchlens.errors import InputError

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
            rows.append((number, _object(line_text, nan)))
        except (ValueError, RecursionError) as error:
            errors.append((number, str(error)))
    if not rows and not errors:
        raise InputError(f"{path} is empty", "it needs one JSON object per line")
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


def _object(text: str, nan: bool) -> dict[str, Any]:
    value = strict_json(text, nan=nan)
    if not isinstance(value, dict):
        raise ValueError(f"must be a JSON object, found {type(value).__name__}")
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


def read(path: Path, content: bytes) -> tuple[Question, ...]:
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
                what = f"id {_short(value)}" if key == "id" else "the question"
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


def _short(value: str) -> str:
    return repr(value if len(value) <= 60 else value[:57] + "…")
