"""Rows of a benchmark file in any of the formats in which the hub and the harnesses keep them."""

from __future__ import annotations

import csv
import gzip
import io
import zlib
from pathlib import Path
from typing import Any

from searchlens.benchmarks.jsonl import objects, refuse, strict_json
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
        table = _parquet(path, content)
    elif suffix == ".csv":
        table = _csv(path, content)
    elif require_parsable(content, path).lstrip(b"\xef\xbb\xbf \t\r\n")[:1] == b"[":
        table = _json_list(path, content)
    else:
        numbered, errors = objects(path, content, nan=True)
        refuse(path, errors, "it needs one JSON object per line")
        table = [row for _, row in numbered]
    if not table:
        raise InputError(f"{path} has no rows")
    return table


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
        table = strict_json(_decoded(path, content), nan=True)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path}: {error}") from None
    if not all(isinstance(row, dict) for row in table):
        raise InputError(f"{path}: must be a list of JSON objects")
    return list(table)


def _parquet(path: Path, content: bytes) -> list[dict[str, Any]]:
    from searchlens.store import parquet  # pyarrow is not needed for planning

    return [row for _, row in parquet.rows(path, content=content)]
