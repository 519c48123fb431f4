"""Numbers of both sides of a pair and of their difference, with paired intervals: rows of frame ``measures``."""

from __future__ import annotations

import numpy as np
import polars as pl

from searchlens.analysis.uncertainty import Floats, Interval, Resamples, with_width

BASE, RL, DIFFERENCE = "Base", "RL", "RL - Base"
PASS, GUESS_NULL, LUCK, WITHOUT_LUCK = "pass@k", "guess null", "luck", "luck-corrected pass@k"
"""The measure that is of the questions alone, the same for both sides; pass@k against the golds of other questions."""

MEASURES = pl.Schema(
    {
        "measure": pl.String(),
        "k": pl.UInt32(),
        "tau": pl.Float64(),
        "side": pl.String(),
        **dict.fromkeys(("value", "lo", "hi"), pl.Float64()),
    }
)
"""``k`` and ``tau`` are null for a measure that has none."""


def compared(
    measure: str,
    base: Floats,
    rl: Floats,
    resamples: Resamples,
    confidence: float,
    *,
    most: float = 1.0,
    ks: list[int] | None = None,
    taus: list[float] | None = None,
) -> pl.DataFrame:
    """Means over questions of Base, of RL, and of their difference: ``MEASURES``, three rows for each column.

    A column of a side, shape (questions, columns), that contains NaN is not known: its rows have no value. ``most`` is
    the largest possible value of a question, the smallest being 0: the width of an interval where all questions agree.
    ``ks`` and ``taus`` have one entry per column. Intervals are percentile bootstrap, never without a width.
    """
    values = np.concatenate([base, rl, rl - base], axis=1)
    means, columns = values.mean(axis=0), base.shape[1]
    lo, hi = (ends.reshape(3, columns) for ends in resamples.interval(values, confidence))
    means = means.reshape(3, columns)
    ends = [
        with_width(mean, Interval(*pair), len(values), confidence, limit)
        for mean, *pair, limit in zip(means, lo, hi, [(0.0, most), (0.0, most), (-most, most)], strict=True)
    ]
    return frame(measure, means, Interval(*map(np.stack, zip(*ends, strict=True))), ks=ks, taus=taus)


def frame(
    measure: str, values: Floats, ends: Interval, *, ks: list[int] | None = None, taus: list[float] | None = None
) -> pl.DataFrame:
    """Rows of Base, RL and their difference, from arrays of shape (3, columns); NaN is null."""
    records = [
        {
            "measure": measure,
            "k": ks[column] if ks else None,
            "tau": taus[column] if taus else None,
            "side": side,
            "value": float(values[i, column]),
            "lo": float(ends.lo[i, column]),
            "hi": float(ends.hi[i, column]),
        }
        for column in range(values.shape[1])
        for i, side in enumerate((BASE, RL, DIFFERENCE))
    ]
    return pl.DataFrame(records, MEASURES).with_columns(pl.col("value", "lo", "hi").fill_nan(None))
