"""Column names and types of the tables that pass between stages (``docs/data.md`` says what they mean)."""

import polars as pl

METRICS = ("P", "Q", "B", "T")

SCORES = pl.Schema(
    {
        "policy": pl.String(),
        "question": pl.UInt32(),
        "sample": pl.UInt32(),
        "correct": pl.Boolean(),
        "answer": pl.Int32(),
        "tokens": pl.UInt32(),
        "stopped": pl.Boolean(),
        "score": pl.Float32(),
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

HITS = pl.Schema(
    {
        "policy": pl.String(),
        "question": pl.UInt32(),
        "budget": pl.UInt32(),
        **{metric: pl.Boolean() for metric in METRICS},
        **{f"{metric}_expected": pl.Float32() for metric in METRICS},
    }
)
