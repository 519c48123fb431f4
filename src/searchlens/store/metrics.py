"""Column names and types of the frames whose columns depend on the declared metrics (docs/data.md describes them)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import polars as pl

from searchlens.catalogue import declared
from searchlens.store.columns import PLAIN, READOUTS


def hits() -> pl.Schema:
    """One row per policy, question and budget; two columns for each metric declared with ``hits=True``."""
    metrics = declared("metric", hits=True)
    prefix = {
        name: pl.Float32() if declaration.options.get("fractional") else pl.Boolean()
        for name, declaration in metrics.items()
    }
    keys = {"policy": pl.String(), "question": pl.UInt32(), "budget": pl.UInt32()}
    return pl.Schema({**keys, **prefix, **{f"{name}_expected": pl.Float32() for name in metrics}})


def recorded(**options: Any) -> tuple[str, ...]:
    """Metrics of compact readouts, or those of them that are declared with these options.

    Extensions have none: the format of the file does not depend on the extensions in use.
    """
    metrics = declared("metric", recorded=True, **options)
    return tuple(name for name, declaration in metrics.items() if not declaration.is_extension)


COMPACT_POINT = pl.Schema(
    {
        "metric": pl.String(),
        "readout": pl.Enum(READOUTS),
        "budget": pl.UInt32(),
        "value": pl.Float32(),
        "lo": pl.Float32(),
        "hi": pl.Float32(),
    }
)


def compact(named: Sequence[str]) -> pl.Schema:
    """Compact readouts, one row per policy, whose points name these metrics: each file says which it holds."""
    return pl.Schema(
        {
            "policy": pl.String(),
            "samples": pl.UInt32(),
            "width": pl.UInt32(),
            "budgets": pl.List(pl.UInt32()),
            "question": pl.List(pl.UInt32()),
            **{metric: pl.List(pl.UInt16()) for metric in recorded(hits=True) if metric in named},
            "classes": pl.List(pl.Categorical()),
            "lucky": pl.List(pl.UInt32()),
            **{f"{metric}_expected": pl.List(pl.Float32()) for metric in recorded(compared=True) if metric in named},
            "points": pl.List(pl.Struct({**COMPACT_POINT, "metric": pl.Enum(named)})),
        }
    )


COMPACT = compact([*recorded(), PLAIN])
"""Compact readouts as they are written today."""
