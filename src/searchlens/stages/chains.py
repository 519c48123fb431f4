"""The chains of power sampling in a study, from the details of its samples."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import polars as pl

from searchlens.health.mixing import CHAINS, DETAILS
from searchlens.store import shards
from searchlens.store.layout import Layout
from searchlens.store.ranges import shards_of

if TYPE_CHECKING:
    from searchlens.grid.needs import CellSamples


def chains(cells: Iterable[CellSamples], layout: Layout) -> pl.DataFrame:
    """``CHAINS``: one row per chain that a study has the samples of.

    Chains without these numbers are left out: those of recorded cells and of policies without steps.
    """
    parts = [CHAINS.to_frame()]
    for cell in cells:
        for stream in cell.streams:
            if cell.readouts or stream.controller != "power":
                continue
            folder = layout.generation(cell.checkpoint, cell.benchmark, stream.id)
            for shard in shards_of(folder):
                if shard.present:
                    rows = shards.read(shard, stream.id, ["question", "details"])
                    where = {"checkpoint": cell.checkpoint, "benchmark": cell.benchmark, "policy": stream.policies[0]}
                    parts.append(_of_samples(rows.with_columns(**{key: pl.lit(name) for key, name in where.items()})))
    return pl.concat(parts)


def _of_samples(samples: pl.DataFrame) -> pl.DataFrame:
    values = {name: pl.col("details").str.json_path_match(f"$.{name}").cast(pl.Float64) for name in DETAILS}
    return samples.with_columns(**values).select(CHAINS.names()).cast(CHAINS).drop_nulls()
