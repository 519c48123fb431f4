"""Where the samples of a study come from, and what they took."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import polars as pl

from searchlens.store.provenance import JOINED
from searchlens.tables._table import Table

_NAMED = ("devices", "engines", "hosts", "versions", "commits", "configs")
_SHORT = 12  # digits of a commit in print


def provenance(spent: Mapping[str, Mapping[str, Any]], made: Mapping[str, Any]) -> Table:
    """One row per checkpoint that was sampled: machines, versions, configurations and time.

    Parameters
    ----------
    spent : mapping
        Checkpoint to ``searchlens.store.provenance.spent`` of its shards.
    made : mapping
        ``searchlens.store.provenance.made``: what made the tables themselves, said in a note.
    """
    rows = [
        {
            "checkpoint": checkpoint,
            "shards": one["shards"],
            "samples": one["samples"],
            "generated_M": one["generated"] / 1e6,
            **{key: JOINED.join(one[key]) for key in _NAMED},
            "wall_h": one["wall_seconds"] / 3600,
            "gpu_h": one["gpu_seconds"] / 3600,
        }
        for checkpoint, one in spent.items()
    ]
    schema = {
        "checkpoint": pl.String(),
        "shards": pl.Int64(),
        "samples": pl.Int64(),
        "generated_M": pl.Float64(),
        **dict.fromkeys(_NAMED, pl.String()),
        "wall_h": pl.Float64(),
        "gpu_h": pl.Float64(),
    }
    data = pl.DataFrame(rows, schema)
    text = data.select(
        "checkpoint",
        pl.col("shards").cast(pl.String),
        pl.col("samples").cast(pl.String),
        pl.col("generated_M").map_elements("{:.3g}".format, pl.String).alias("generated (M)"),
        pl.col("devices").alias("device"),
        pl.col("engines").alias("engine"),
        pl.col("hosts").alias("host"),
        pl.col("versions").alias("searchlens"),
        pl.col("commits").map_elements(_short, pl.String).alias("commit"),
        pl.col("configs").alias("configuration"),
        pl.col("wall_h").map_elements("{:.3g}".format, pl.String).alias("wall h"),
        pl.col("gpu_h").map_elements("{:.3g}".format, pl.String).alias("GPU h"),
    )
    versions = ", ".join(f"{name} {number}" for name, number in made["versions"].items())
    by = f", commit {_short(made['commit'])}" if made["commit"] else ""
    note = f"Tables: {versions}{by}; configuration {made['config']}; on {made['host']}, {made['finished']}."
    return Table(data, text, notes=(note,))


def _short(commits: str) -> str:
    parts = (commit.partition("-") for commit in commits.split(JOINED))
    return JOINED.join(f"{name[:_SHORT]}{dash}{dirty}" for name, dash, dirty in parts)
