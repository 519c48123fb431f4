"""Parquet files of other tools: their columns, and their rows batch by batch."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from searchlens.errors import InputError
from searchlens.store.inputs import ROWS, require_at_most

_DAMAGED = (pa.ArrowException, OSError, ValueError, OverflowError)
"""What pyarrow raises of a file that is no sound Parquet; the last two of names, texts and dates in it."""

Columns = Sequence[str] | None
Content = bytes | None
_ROWS = 256
"""Rows that are Python objects at a time."""


def columns_of(path: Path) -> tuple[str, ...]:
    """Names of a Parquet file's columns; none if it is another file, or broken."""
    try:
        return tuple(pq.read_schema(pa.OSFile(os.fsencode(path))).names)
    except _DAMAGED:
        return ()


def batches(path: Path, columns: Columns = None, content: Content = None) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Number of the first row (from 0) and rows, a few at a time, of a file, or of its ``content`` in memory.

    In ``columns``, ``a.b`` is field b of the struct a; those that the file does not have are left out. Raises
    InputError if the file is damaged, or has fewer rows than it says.
    """
    source = pa.OSFile(os.fsencode(path)) if content is None else pa.BufferReader(content)
    with _sound(path), pq.ParquetFile(source, page_checksum_verification=True) as file:
        stated, first = file.metadata.num_rows, 0
        require_at_most(max(ROWS, 64 * path.stat().st_size), stated, "rows", path)
        there = {leaf for column in file.schema_arrow for leaf in _leaves(column, "")}
        wanted = None if columns is None else [column for column in columns if column in there]
        for batch in file.iter_batches(_ROWS, columns=wanted):
            yield first, batch
            first += len(batch)
        if first != stated:
            raise OSError(f"it says that it has {stated:,} rows, and has {first:,}")


@contextmanager
def _sound(path: Path) -> Iterator[None]:
    try:
        yield
    except _DAMAGED as error:
        what = str(error).partition("\n")[0]
        raise InputError(f"{path} is no sound Parquet file: {what}", "copy it again; nothing was read") from None


def rows(path: Path, columns: Columns = None, content: Content = None) -> Iterator[tuple[str, dict[str, Any]]]:
    """Place, for messages, and content of each row; parameters and errors as of ``batches``."""
    with _sound(path):
        for first, batch in batches(path, columns, content):
            for position, row in enumerate(batch.to_pylist()):
                yield f"{path}, row {first + position + 1}", row


def _leaves(field: pa.Field, prefix: str) -> Iterator[str]:
    """Names of a field and of the fields of a struct in it."""
    name = f"{prefix}{field.name}"
    yield name
    if pa.types.is_struct(field.type):
        for inner in field.type:
            yield from _leaves(inner, f"{name}.")


def lists_of_lists(array: pa.Array) -> list[list[list[Any]]]:
    """A column of lists of lists of numbers as Python lists; much faster than Arrow's own, which boxes every number."""
    kinds = array.type, getattr(array.type, "value_type", None)
    if not all(isinstance(kind, (pa.ListType, pa.LargeListType)) for kind in kinds):
        return [value or [] for value in array.to_pylist()]
    inner = array.flatten()
    return _cut(array, _cut(inner, inner.flatten().to_numpy(zero_copy_only=False).tolist()))


def _cut(array: pa.Array, values: list[Any]) -> list[list[Any]]:
    """Values of a flattened list array, put back into their lists; a null is an empty list."""
    edges = accumulate((length or 0 for length in array.value_lengths().to_pylist()), initial=0)
    return [values[start:stop] for start, stop in pairwise(edges)]
