"""Rows of a benchmark file in any of the formats in which the hub and the harnesses keep them."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

from searchlens.benchmarks.jsonl import objects, refuse, strict_json
from searchlens.errors import InputError

SUFFIXES = (".parquet", ".jsonl", ".json", ".csv")
"""In the order of preference where a folder has the same split twice."""


def rows(path: Path, content: bytes) -> list[dict[str, Any]]:
    """Rows of a file, as its suffix says.

    Parquet, comma-separated values with a head, JSON lines, or one JSON list; the last two may also bear each other's
    suffix.

    Raises
    ------
    InputError
        Not one of these, not readable as what its suffix says, or without rows.
    """
    if path.suffix not in SUFFIXES:
        raise InputError(f"{path}: cannot read a file of type {path.suffix!r}", f"known: {', '.join(SUFFIXES)}")
    if path.suffix == ".parquet":
        found = _parquet(path, content)
    elif path.suffix == ".csv":
        found = _csv(path, content)
    elif content.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] == b"[":
        found = _json_list(path, content)
    else:
        numbered, errors = objects(path, content, nan=True)
        refuse(path, errors, "it needs one JSON object per line")
        found = [row for _, row in numbered]
    if not found:
        raise InputError(f"{path} has no rows")
    return found


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


def _json_list(path: Path, content: bytes) -> list[dict[str, Any]]:
    try:
        found = strict_json(_decoded(path, content), nan=True)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path}: {error}") from None
    if not all(isinstance(row, dict) for row in found):
        raise InputError(f"{path}: must be a list of JSON objects")
    return list(found)


def _parquet(path: Path, content: bytes) -> list[dict[str, Any]]:
    from pyarrow import ArrowInvalid, BufferReader, parquet

    try:
        found: list[dict[str, Any]] = parquet.read_table(BufferReader(content)).to_pylist()
    except ArrowInvalid as error:
        raise InputError(f"{path}: not a parquet file: {error}") from None
    return found
