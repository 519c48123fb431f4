"""Where the samples of a study come from, and what they took."""

from __future__ import annotations

import polars as pl

from searchlens.catalogue import table
from searchlens.reporting.tables.study import StudyContext
from searchlens.reporting.tables.table import Part, Table
from searchlens.store.provenance import JOINED

_JOINED_KEYS = ("devices", "engines", "hosts", "versions", "commits", "configs")
_SHORT = 12
"""Printed digits of a commit."""
_SCHEMA = {
    "checkpoint": pl.String(),
    "shards": pl.Int64(),
    "samples": pl.Int64(),
    "generated_M": pl.Float64(),
    **dict.fromkeys(_JOINED_KEYS, pl.String()),
    "wall_h": pl.Float64(),
    "gpu_h": pl.Float64(),
}


@table("provenance", stage="study")
def provenance(context: StudyContext) -> Table:
    """One row per checkpoint that was sampled: machines, versions, configurations and time."""
    rows = [
        {
            "checkpoint": checkpoint,
            "shards": spent["shards"],
            "samples": spent["samples"],
            "generated_M": spent["generated"] / 1e6,
            **{key: JOINED.join(spent[key]) for key in _JOINED_KEYS},
            "wall_h": spent["wall_seconds"] / 3600,
            "gpu_h": spent["gpu_seconds"] / 3600,
        }
        for checkpoint, spent in context.spent.items()
    ]
    data = pl.DataFrame(rows, _SCHEMA)
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
    made = context.made
    versions = ", ".join(f"{name} {number}" for name, number in made["versions"].items())
    commit = f", commit {_short(made['commit'])}" if made["commit"] else ""
    note = f"Tables: {versions}{commit}; configuration {made['config']}; on {made['host']}, {made['finished']}."
    return Table(data, [Part(text)], [note])


def _short(commits: str) -> str:
    """The commits with their first digits only; what follows a hyphen, such as "dirty", stays."""
    parts = (commit.partition("-") for commit in commits.split(JOINED))
    return JOINED.join(f"{digits[:_SHORT]}{hyphen}{suffix}" for digits, hyphen, suffix in parts)
