"""Recorded counts of a cell on disk: everything in graded samples that the analysis of a study reads.

The file is an Arrow table in an xz stream, one row for each policy: ``COMPACT``, and the sidecars of the policy's
shards as JSON texts. ``polars.read_ipc(lzma.open(path).read())`` reads it.

Here are also the columns of other frames that depend on the declared metrics (docs/columns.md describes them).
"""

from __future__ import annotations

import io
import json
import lzma
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa

from searchlens.catalogue import declared
from searchlens.errors import InputError
from searchlens.store import files
from searchlens.store.columns import ESTIMATORS, PLAIN
from searchlens.store.files import canonical
from searchlens.store.frames import DAMAGED
from searchlens.store.inputs import whole
from searchlens.store.layout import counts_sidecar
from searchlens.store.provenance import Judge


def hits() -> pl.Schema:
    """One row per policy, question and budget; two columns for each metric declared with ``hits=True``."""
    metrics = declared("metric", hits=True)
    prefix = {
        name: pl.Float32() if declaration.options.get("fractional") else pl.Boolean()
        for name, declaration in metrics.items()
    }
    keys = {"policy": pl.String(), "question": pl.UInt32(), "budget": pl.UInt32()}
    return pl.Schema({**keys, **prefix, **{f"{name}_unbiased": pl.Float32() for name in metrics}})


def recorded(**options: Any) -> tuple[str, ...]:
    """Metrics of recorded counts, or those of them that are declared with these options.

    Extensions have none: the format of the file does not depend on the extensions in use.
    """
    metrics = declared("metric", recorded=True, **options)
    return tuple(name for name, declaration in metrics.items() if not declaration.is_extension)


COMPACT_POINT = pl.Schema(
    {
        "metric": pl.String(),
        "estimator": pl.Enum(ESTIMATORS),
        "budget": pl.UInt32(),
        **dict.fromkeys(("value", "lo", "hi"), pl.Float32()),
    }
)


def compact(named: Sequence[str]) -> pl.Schema:
    """Recorded counts, one row per policy, whose points name these metrics: each file says which it holds."""
    return pl.Schema(
        {
            "policy": pl.String(),
            "samples": pl.UInt32(),
            "width": pl.UInt32(),
            "budgets": pl.List(pl.UInt32()),
            "question": pl.List(pl.UInt32()),
            **{metric: pl.List(pl.UInt16()) for metric in recorded(hits=True) if metric in named},
            "classes": pl.List(pl.Categorical()),
            "wrong_key": pl.List(pl.UInt32()),
            **{f"{metric}_unbiased": pl.List(pl.Float32()) for metric in recorded(compared=True) if metric in named},
            "points": pl.List(pl.Struct({**COMPACT_POINT, "metric": pl.Enum(named)})),
        }
    )


COMPACT = compact([*recorded(), PLAIN])
"""Recorded counts as they are written today."""


# ---- the file

_SIDECAR_KEYS = (
    *("rows", "tokens", "generated", "requests", "prefilled", "reused", "mean_running", "wall_seconds", "gpu_seconds"),
    *("device", "device_count", "engine", "version", "commit", "config"),
)
"""What is stored of the sidecar of a shard: the cost of its samples, and the software and device that drew them."""

SCHEMA = pl.Schema({**COMPACT, "shards": pl.List(pl.String())})

Sidecars = Mapping[str, Iterable[Mapping[str, Any]]]
"""Policy to the sidecars of its shards."""


def write(
    counts: pl.DataFrame, sidecars: Sidecars, target: Path, drawn_from: Mapping[str, str], judge: Judge | None = None
) -> None:
    """Publish the counts of a cell, as ``analysis.compact`` returns them, and a JSON file next to them.

    A shard that several policies share is listed under one of them. The JSON file has what they were ``drawn_from``
    (``Grid.counts_from``), and the judge of the samples.
    """
    texts = [[_short(sidecar) for sidecar in sidecars.get(name, ())] for name in counts["policy"]]
    frame = counts.with_columns(shards=pl.Series(texts, dtype=SCHEMA["shards"]))
    stream = io.BytesIO()
    frame.write_ipc(stream, compression="uncompressed")
    packed = lzma.compress(stream.getvalue(), preset=9 | lzma.PRESET_EXTREME)
    files.replace(target, lambda path: path.write_bytes(packed))
    entries = {**drawn_from, **({"grader": vars(judge)} if judge and judge.version else {})}
    files.replace_text(counts_sidecar(target), json.dumps(entries, indent=1) + "\n")


def _short(sidecar: Mapping[str, Any]) -> str:
    """The JSON text of a sidecar, times to the millisecond."""
    entries = {key: sidecar[key] for key in _SIDECAR_KEYS if key in sidecar}
    return canonical({key: round(value, 3) if isinstance(value, float) else value for key, value in entries.items()})


def read(path: Path) -> pl.DataFrame:
    """The counts of a cell: ``SCHEMA``, without metrics that were not recorded. InputError if damaged or unknown."""
    content = files.read_bytes(path)
    try:
        with lzma.open(io.BytesIO(content)) as file:
            table = pa.ipc.open_file(whole(file.read, path)).read_all()
        table.validate(full=True)  # where bits are flipped, polars may end the process
        frame = pl.DataFrame(pl.from_arrow(table))
    except (*DAMAGED, lzma.LZMAError, EOFError) as error:
        what = str(error).partition("\n")[0]
        hint = "copy the file again, or delete it to sample the cell"
        raise InputError(f"cannot read the recorded counts {path}: {what}", hint) from None
    if "wrong_key" not in frame.columns:  # recorded before it was
        frame = frame.with_columns(wrong_key=pl.lit(None, SCHEMA["wrong_key"]))
    named = _named(frame.schema.get("points"))
    schema = {**compact(named), "shards": SCHEMA["shards"]}
    if not set(named) <= set(_named(SCHEMA["points"])) or dict(frame.schema) != schema:
        raise InputError(
            f"recorded counts {path} were written by another version of searchlens",
            "record them again with this version: searchlens record",
        )
    return frame.select(*schema)


def _named(points: pl.DataType | None) -> list[str]:
    """The metrics that the points of a file may name; none if the column has another type."""
    match points:
        case pl.List(inner=pl.Struct(fields=[pl.Field(dtype=pl.Enum(categories=names)), *_])):
            return list(names)
    return []


def sidecars(counts: pl.DataFrame) -> dict[str, list[dict[str, Any]]]:
    """Sidecars of the shards of each policy in a result of ``read``; a shared shard is listed under one policy."""
    rows = counts.select("policy", "shards").iter_rows()
    return {policy: [json.loads(text) for text in shards] for policy, shards in rows}
