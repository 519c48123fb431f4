"""Records of searches in files: one for each shard of which searches were recorded, under the shard's name.

A record is no sample: it can be made again (``searchlens trace``), so a file is replaced by one that holds more runs.
"""

from __future__ import annotations

import logging
from pathlib import Path

import polars as pl

from searchlens.errors import InputError
from searchlens.store import files
from searchlens.store.columns import TRACES
from searchlens.store.frames import read_unvouched, write_checked
from searchlens.store.layout import shard_name

log = logging.getLogger(__name__)

VERSION = "1"
"""Of the columns and kinds of rows (docs/columns.md)."""


def write(rows: pl.DataFrame, path: Path) -> None:
    """Write rows; of the columns of ``TRACES`` and in their order."""
    content = rows.select(TRACES.names()).cast(TRACES)  # type: ignore[arg-type]  # a schema is a mapping
    write_checked(content, path, {"searchlens.trace": VERSION}, is_indexed=True)


def publish(folder: Path, start: int, stop: int, rows: pl.DataFrame) -> Path:
    """Publish what was recorded of the searches of samples [start, stop); returns the path.

    Rows have the columns of ``TRACES``. Runs that an older file has and the new rows have not stay in it.
    """
    target = folder / shard_name(start, stop)
    merged = rows
    if (older := found(target, " and will be replaced")) is not None:
        merged = pl.concat([older.join(rows, on=["question", "run"], how="anti"), rows])
    merged = merged.sort("question", "run", "row")
    files.replace(target, lambda path: write(merged, path))
    if cut := merged.filter(kind="cut").height:
        runs = merged.select("question", "run").n_unique()
        log.warning("%s: the records of %d of %d runs are not whole (kind cut)", target, cut, runs)
    return target


def found(path: Path, then: str) -> pl.DataFrame | None:
    """The rows of a file; None if there is none, or it is damaged. ``then`` says what becomes of a damaged one."""
    try:
        content = read_unvouched(path)
    except FileNotFoundError:  # also if another job has just moved it
        return None
    if content and content[0].schema == TRACES:
        return content[0]
    log.warning("%s is damaged%s", path, then)
    return None


def read(path: Path) -> pl.DataFrame:
    """The rows of a file. Raises InputError if it is missing, damaged, or of another version."""
    rows, metadata = (path.exists() and read_unvouched(path)) or (None, {})
    version = metadata.get("searchlens.trace")
    if rows is not None and rows.schema == TRACES and version == VERSION:
        return rows
    why = f"its version is {version!r}, this searchlens reads {VERSION}" if rows is not None else "it is damaged"
    why = why if path.exists() else "it is missing"
    hint = "delete it; `searchlens trace` records again"
    raise InputError(f"record of searches {path} cannot be used: {why}", hint)
