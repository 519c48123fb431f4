"""Where Base overtakes RL: the budget from which RL no longer solves more questions than Base does at the same cost.

Cost is a number of samples, or of generated tokens: then one sample of RL is worth as many samples of Base as it has
mean tokens in units of Base's (``exchange``). Both curves are means over subsets of the pools, at real numbers of
samples, so that no sample is left out.
"""

from __future__ import annotations

import math

import numpy as np
import polars as pl

from searchlens.readings.equivalents import SAME, tails
from searchlens.readings.pool import Pool, effective
from searchlens.uncertainty import Floats, Resamples

CROSSINGS = pl.Schema(
    {
        "exchange": pl.Float64(),
        "state": pl.String(),
        **dict.fromkeys(("crossing", "lo", "hi"), pl.Float64()),
        **dict.fromkeys(("lo_open", "hi_open"), pl.Boolean()),
        **dict.fromkeys(("first", "last"), pl.Float64()),
    }
)
"""In samples of RL. ``exchange``: samples of Base that cost as much as one of RL. ``first`` to ``last``: where both
pools can be read. ``state``: ``below`` if RL is nowhere above Base there, ``above`` if Base is nowhere above RL later;
then ``crossing`` is null. An end of the interval that lies there is ``first`` or ``last``, and ``lo_open`` or
``hi_open`` is set."""
STEPS = 8
"""Positions at which the curves are compared, in an octave; in between the difference is interpolated."""


def crossing(base: Pool, rl: Pool, resamples: Resamples, confidence: float, *, exchange: float = 1.0) -> pl.DataFrame:
    """The budget of RL from which on Base solves as much at the same cost: ``CROSSINGS``, one row.

    ``exchange``: samples of Base that cost as much as one of RL, taken as known. No row if there is no budget at which
    both pools can be read. With D(b) = P_rl(b) - P_base(exchange * b) the crossing is the last b with D > 0, if D < 0
    later. ``lo`` is an expanded percentile (``equivalents.tails``) of the last b with D above half a question, ``hi``
    of the last b with D above minus half a question: where both solve nearly all questions to the end, the samples
    cannot show which is ahead, and ``hi_open`` is set. Coverage: validation/equivalents.py.
    """
    first, last = max(0.0, -math.log2(exchange)), min(math.log2(rl.samples), math.log2(base.samples / exchange))
    if not last > first:
        return pl.DataFrame(schema=CROSSINGS)
    x = np.linspace(first, last, max(math.ceil(STEPS * (last - first)), 1) + 1)
    gaps = rl.solved(_within(2**x, rl)) - base.solved(_within(exchange * 2**x, base))
    weights = np.concatenate([np.ones((resamples.questions, 1), np.float32), resamples.weights], axis=1)
    curves = gaps.T @ weights / resamples.questions
    half = 0.5 / resamples.questions
    found = float(last_positive(x, curves[:, :1] - SAME)[0])
    if math.isfinite(found) and not (curves[x > found, 0] < -SAME).any():
        found = math.inf
    at = float(np.clip(found, first, last))
    share = float(tails(confidence, effective(gaps[:, [int(np.abs(x - at).argmin())]]))[0])
    low, high = (np.clip(last_positive(x, curves[:, 1:] + shift), first, last) for shift in (-half, half))
    lo, hi = min(float(np.quantile(low, share)), at), max(float(np.quantile(high, 1 - share)), at)
    inside = math.isfinite(found)
    record = {
        "exchange": exchange,
        "state": "within" if inside else "below" if found < 0 else "above",
        "crossing": float(2**at) if inside else None,
        "lo": float(2**lo),
        "hi": float(2**hi),
        "lo_open": lo <= first,
        "hi_open": hi >= last,
        "first": float(2**first),
        "last": float(2**last),
    }
    return pl.DataFrame([record], CROSSINGS)


def _within(samples: Floats, pool: Pool) -> list[float]:
    """Numbers of samples, without the rounding errors that would put the first and last outside of the pool."""
    clipped: list[float] = np.clip(samples, 1, pool.samples).tolist()
    return clipped


def last_positive(x: Floats, gaps: Floats) -> Floats:
    """Where curves, shape (positions, draws), cease to be positive for the last time, interpolated linearly.

    -inf if a curve is nowhere positive, inf if it is at the last position.
    """
    positive = gaps > 0
    last = len(x) - 1 - positive[::-1].argmax(axis=0)
    low = np.minimum(last, len(x) - 2)
    at = np.arange(gaps.shape[1])
    before, after = gaps[low, at], gaps[low + 1, at]
    drop = before - after
    share = np.divide(before, drop, out=np.zeros_like(before), where=drop > 0)
    found = x[low] + np.clip(share, 0, 1) * (x[low + 1] - x[low])
    found = np.where(last == len(x) - 1, np.inf, found)
    result: Floats = np.where(positive.any(axis=0), found, -np.inf)
    return result
