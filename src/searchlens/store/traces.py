"""Records of searches in files: one for each shard of which searches were recorded, under the shard's name.

A record is no sample: it can be made again (``searchlens trace``), so a file is replaced by one that holds more runs.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import polars as pl

from searchlens.errors import InputError
from searchlens.store import files
from searchlens.store.columns import TRACES
from searchlens.store.files import file_sha256, read_json
from searchlens.store.frames import DAMAGED, read_unvouched
from searchlens.store.layout import shard_name
from searchlens.store.shards import Provenance

log = logging.getLogger(__name__)

VERSION = 1
"""Of the columns and kinds of rows (docs/data.md)."""

_PAGE_BYTES = 65536  # so that a reader of byte ranges need not fetch all runs for one


def write(rows: pl.DataFrame, path: Path) -> None:
    """Write rows; zstd level 3. There are few, so statistics of columns would be a good part of the file."""
    rows.select(TRACES.names()).cast(TRACES).write_parquet(  # type: ignore[arg-type]  # a schema is a mapping
        path,
        compression="zstd",
        compression_level=3,
        statistics=False,
        data_page_size=_PAGE_BYTES,
        metadata={"searchlens.trace": str(VERSION)},
    )


def publish(
    folder: Path,
    start: int,
    stop: int,
    rows: pl.DataFrame,
    *,
    generation_id: str,
    policies: Iterable[str],
    provenance: Provenance,
) -> Path:
    """Publish what was recorded of the searches of samples [start, stop), with a sidecar; returns the path.

    Rows have the columns of ``TRACES``. Runs that an older file has and the new rows have not stay in it. The sidecar
    is removed first and written last, so that a file without one is known to be from a job that was killed meanwhile.
    """
    target = folder / shard_name(start, stop)
    merged = rows
    if (older := found(target, " and will be replaced")) is not None:
        merged = pl.concat([older.join(rows, on=["question", "run"], how="anti"), rows])
    merged = merged.sort("question", "run", "row")
    target.with_suffix(".json").unlink(missing_ok=True)
    files.replace(target, lambda path: write(merged, path))
    sidecar = {
        "version": VERSION,
        "generation": generation_id,
        "policies": list(policies),
        "start": start,
        "stop": stop,
        **totals(merged),
        "bytes": target.stat().st_size,
        "sha256": file_sha256(target),
        **{key: getattr(provenance, key) for key in ("device", "engine", "host", "commit", "config", "finished")},
    }
    files.replace_text(target.with_suffix(".json"), json.dumps(sidecar, indent=1))
    if sidecar["cut"]:
        log.warning(
            "%s: the records of %d of %d runs are not whole (kind cut)", target, sidecar["cut"], sidecar["runs"]
        )
    return target


def totals(rows: pl.DataFrame) -> dict[str, int]:
    """What a sidecar says of the rows: their number, runs, questions, runs whose record is not whole, and costs."""
    return {
        "rows": rows.height,
        "runs": rows.select("question", "run").n_unique(),
        "questions": rows["question"].n_unique(),
        "cut": rows.filter(kind="cut").height,
        "requests": int(rows["requests"].sum()),
        "generated": int(rows["generated"].sum()),
    }


def found(path: Path, then: str) -> pl.DataFrame | None:
    """The rows of a file, which its sidecar need not describe yet; None if there is none, or it is damaged.

    ``then`` says what becomes of a damaged one.
    """
    try:
        content = read_unvouched(path)
    except FileNotFoundError:  # also if another job has just moved it
        return None
    if content and content[0].schema == TRACES:
        return content[0]
    log.warning("%s is damaged%s", path, then)
    return None


def read(path: Path) -> pl.DataFrame:
    """One file, checked against its sidecar. Raises InputError if it is missing, changed, or of another version."""
    if not path.exists():
        raise _damaged(path, "it is missing")
    sidecar: dict[str, Any] = read_json(path.with_suffix(".json"))
    if file_sha256(path) != sidecar.get("sha256"):
        raise _damaged(path, "its sha256 is not the one in its sidecar (bytes were changed)")
    content = files.read_bytes(path)
    try:
        rows = pl.read_parquet(content)
    except DAMAGED as error:
        raise _damaged(path, f"it is not readable Parquet ({str(error).splitlines()[0]})") from None
    if rows.schema != TRACES or sidecar.get("version") != VERSION:
        raise _damaged(path, f"its version is {sidecar.get('version')!r}, this searchlens reads {VERSION}")
    if different := [name for name, value in totals(rows).items() if sidecar.get(name) != value]:
        raise _damaged(path, f"its sidecar gives other numbers of {', '.join(different)}")
    return rows


def _damaged(path: Path, why: str) -> InputError:
    return InputError(f"record of searches {path} cannot be used: {why}", "delete it; `searchlens trace` records again")
