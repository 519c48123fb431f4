"""Column names and types of the frames that pass between stages (docs/data.md describes them)."""

from __future__ import annotations

from typing import Any

import polars as pl

from searchlens.catalogue import declared

READOUTS = ("prefix", "expected")

PLAIN = "Q_plain"
"""The vote over plain strings: a column of ``VOTES``, and a metric among the points of ``COMPACT``."""

SCORES = pl.Schema(
    {
        "policy": pl.String(),
        "question": pl.UInt32(),
        "sample": pl.UInt32(),
        "run": pl.UInt32(),
        "correct": pl.Boolean(),
        "answer": pl.Int32(),
        "tokens": pl.UInt32(),
        "generated": pl.UInt32(),
        "stopped": pl.Boolean(),
        "score": pl.Float32(),
    }
)

GRADED = pl.Schema(
    {
        **SCORES,
        "finished": pl.Boolean(),
        "unknown": pl.Boolean(),
        "extraction": pl.String(),
        "plain": pl.Int32(),
        "checks": pl.String(),
    }
)
"""What scoring writes: what the landscape needs, and how the grader came to it."""

VOTES = pl.Schema(
    {
        "policy": pl.String(),
        "budget": pl.UInt32(),
        "readout": pl.String(),
        "Q": pl.Float64(),
        PLAIN: pl.Float64(),
    }
)

POINTS = pl.Schema(
    {
        "policy": pl.String(),
        "budget": pl.UInt32(),
        "metric": pl.String(),
        "readout": pl.String(),
        "hits": pl.UInt32(),
        "questions": pl.UInt32(),
        "value": pl.Float64(),
        "lo": pl.Float64(),
        "hi": pl.Float64(),
    }
)


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
        "metric": pl.Enum([*recorded(), PLAIN]),
        "readout": pl.Enum(READOUTS),
        "budget": pl.UInt32(),
        "value": pl.Float32(),
        "lo": pl.Float32(),
        "hi": pl.Float32(),
    }
)

COMPACT = pl.Schema(
    {
        "policy": pl.String(),
        "samples": pl.UInt32(),
        "width": pl.UInt32(),
        "budgets": pl.List(pl.UInt32()),
        "question": pl.List(pl.UInt32()),
        **{metric: pl.List(pl.UInt16()) for metric in recorded(hits=True)},
        "classes": pl.List(pl.Categorical()),
        **{f"{metric}_expected": pl.List(pl.Float32()) for metric in recorded(compared=True)},
        "points": pl.List(pl.Struct(COMPACT_POINT)),
    }
)
"""Compact readouts: one row per policy."""

SAME_POLICY = pl.Schema(
    {
        "metric": pl.String(),
        "readout": pl.String(),
        "policy": pl.String(),
        "budget": pl.UInt32(),
        "base": pl.Float64(),
        "rl": pl.Float64(),
        "gap": pl.Float64(),
        "lo": pl.Float64(),
        "hi": pl.Float64(),
    }
)

COUNTS = pl.Schema(
    {
        "metric": pl.String(),
        "readout": pl.String(),
        "budget": pl.UInt32(),
        "ahead": pl.UInt32(),
        "policies": pl.UInt32(),
        "ahead_without_default": pl.UInt32(),
        "policies_without_default": pl.UInt32(),
    }
)

SUPPORT = pl.Schema(
    {
        "metric": pl.String(),
        "readout": pl.String(),
        "budget": pl.UInt32(),
        "rl": pl.Float64(),
        "rl_lo": pl.Float64(),
        "rl_hi": pl.Float64(),
        "envelope": pl.Float64(),
        "envelope_policy": pl.String(),
        "envelope_budget": pl.UInt32(),
        "low": pl.Float64(),
        "gap": pl.Float64(),
        "gap_lo": pl.Float64(),
        "gap_hi": pl.Float64(),
        "optimism": pl.Float64(),
        "inside": pl.Boolean(),
    }
)

_MATCH = {
    "target_budget": pl.UInt32(),
    "target": pl.Float64(),
    "policy": pl.String(),
    "budget": pl.UInt32(),
    "value": pl.Float64(),
    "error": pl.Float64(),
}

NEAR_MATCH = pl.Schema({"metric": pl.String(), **_MATCH})

PATH = pl.Schema({"metric": pl.String(), "kind": pl.String(), **_MATCH})

COORDINATES = ("P", "Q", "T", "D", "C")
"""Metrics of the behaviour signature z(u)."""

GEOMETRY = pl.Schema(
    {
        "model": pl.String(),
        "policy": pl.String(),
        "budget": pl.UInt32(),
        **{coordinate: pl.Float64() for coordinate in COORDINATES},
    }
)
