"""Readouts with their intervals, as the frames ``store.columns.POINTS`` and ``store.metrics.hits``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt
import polars as pl

from searchlens.analysis.pool import Floats
from searchlens.analysis.readouts import Metric, metrics
from searchlens.analysis.uncertainty import Interval, Resamples, wilson, with_width
from searchlens.store import columns as schemas
from searchlens.store import metrics as metric_schemas

Values = dict[str, dict[str, Floats]]
"""Readout, then metric: arrays of shape (rows, budgets)."""

_Key = tuple[str, str]
"""Metric and readout."""


class Rows(Protocol):
    """What the rows of ``Values`` stand for, as in ``SamplePool``: each question under each policy."""

    @property
    def policies(self) -> tuple[str, ...]: ...
    @property
    def questions(self) -> npt.NDArray[np.uint32]: ...
    @property
    def width(self) -> int: ...


@dataclass(frozen=True, eq=False)
class _Column:
    """One metric under one readout: arrays of shape (policies, budgets)."""

    value: Floats
    hits: Floats
    interval: Interval


def hits_frame(pool: Rows, budgets: Sequence[int], values: Values) -> pl.DataFrame:
    """``store.metrics.hits``: one row per policy, question and budget; null where ``values`` has no such metric."""
    questions = len(pool.questions)
    policy = np.repeat(np.arange(len(pool.policies)), questions * len(budgets))
    unknown = np.full((len(pool.policies) * questions, len(budgets)), np.nan)
    columns = {
        f"{metric.name}{suffix}": values[readout].get(metric.name, unknown)
        for readout, suffix in (("prefix", ""), ("expected", "_expected"))
        for metric in metrics()
        if metric.hits
    }
    frame = {
        "policy": pl.Series(pool.policies).gather(policy),
        "question": np.tile(np.repeat(pool.questions, len(budgets)), len(pool.policies)),
        "budget": np.tile(np.asarray(budgets, np.uint32), len(pool.policies) * questions),
        **{name: pl.Series(credit.ravel(), nan_to_null=True) for name, credit in columns.items()},
    }
    return pl.DataFrame(frame).cast(metric_schemas.hits())


def points_frame(
    pool: Rows, budgets: Sequence[int], values: Values, resamples: Resamples, confidence: float, *, counted: bool
) -> pl.DataFrame:
    """``store.columns.POINTS``: each policy, budget, metric and readout of ``values``, and affine metrics of these.

    ``counted``: also the metrics that may be fractional are 0 or 1 for each question.
    """
    shape = (len(pool.policies), len(pool.questions), len(budgets))
    known = metrics()
    credit = {
        (metric, readout): values[readout][metric.name].reshape(shape)
        for metric in known
        for readout in schemas.READOUTS
        if metric.name in values[readout]
    }
    counts = {metric for metric in known if metric.hits and (counted or not metric.fractional)}
    means = {key: part for key, part in credit.items() if key[0] not in counts or key[1] != "prefix"}
    columns = _averages(means, budgets, resamples, confidence, independent=pool.width == 1)
    columns |= {
        (metric.name, "prefix"): _counted(credit[metric, "prefix"], confidence)
        for metric in counts
        if (metric, "prefix") in credit
    }
    for metric in known:
        for readout in schemas.READOUTS:
            if metric.affine and (metric.of[0], readout) in columns:
                columns[metric.name, readout] = _transformed(columns[metric.of[0], readout], metric)
    order = [(metric.name, readout) for metric in known for readout in schemas.READOUTS]
    return _table(pool, budgets, {key: columns[key] for key in order if key in columns})


def _counted(credit: Floats, confidence: float) -> _Column:
    hits = credit.sum(axis=1)
    return _Column(credit.mean(axis=1), hits, wilson(hits, credit.shape[1], confidence))


def _averages(
    values: dict[tuple[Metric, str], Floats],
    budgets: Sequence[int],
    resamples: Resamples,
    confidence: float,
    *,
    independent: bool,
) -> dict[_Key, _Column]:
    """Means with bootstrap intervals, all from one matrix product, which is faster than many small ones.

    An interval of solved questions always has a width (``uncertainty.with_width``).

    A metric whose expectation over independent samples is a power of n times a constant is drawn once for all budgets.
    """
    power = {key: key[0].power if independent and key[1] == "expected" else None for key in values}
    drawn = {key: credit[:, :, :1] if power[key] is not None else credit for key, credit in values.items()}
    matrix = np.concatenate(
        [part.transpose(1, 0, 2).reshape(resamples.questions, -1) for part in drawn.values()], axis=1
    )
    ends = resamples.interval(matrix, confidence)
    columns, start = {}, 0
    for key, part in drawn.items():
        value = values[key].mean(axis=1)
        stop = start + part.shape[0] * part.shape[2]
        scale = (np.asarray(budgets) / budgets[0]) ** (power[key] or 0)
        interval = Interval(*(end[start:stop].reshape(len(value), -1) * scale for end in ends))
        if key[0].hits:
            interval = with_width(value, interval, resamples.questions, confidence, limits=(0.0, 1.0))
        columns[key[0].name, key[1]] = _Column(value, np.full(value.shape, np.nan), interval)
        start = stop
    return columns


def _transformed(column: _Column, metric: Metric) -> _Column:
    """An affine metric, from the column of the metric that it transforms."""
    ends = [metric.definition(end) for end in column.interval]
    interval = Interval(np.minimum(*ends), np.maximum(*ends))
    return _Column(metric.definition(column.value), np.full_like(column.hits, np.nan), interval)


def _table(pool: Rows, budgets: Sequence[int], columns: dict[_Key, _Column]) -> pl.DataFrame:
    policy, budget, column = np.indices((len(pool.policies), len(budgets), len(columns))).reshape(3, -1)

    def stacked(parts: list[Floats]) -> pl.Series:
        return pl.Series(np.stack(parts, axis=2).ravel(), nan_to_null=True)

    def labels(names: Sequence[str], index: npt.NDArray[np.intp]) -> pl.Series:
        return pl.Series(names).gather(index)

    parts = columns.values()
    frame = {
        "policy": labels(pool.policies, policy),
        "budget": np.asarray(budgets, np.uint32)[budget],
        "metric": labels([metric for metric, _ in columns], column),
        "readout": labels([readout for _, readout in columns], column),
        "hits": stacked([part.hits for part in parts]),
        "questions": np.full(len(policy), len(pool.questions), np.uint32),
        "value": stacked([part.value for part in parts]),
        "lo": stacked([part.interval.lo for part in parts]),
        "hi": stacked([part.interval.hi for part in parts]),
    }
    return pl.DataFrame(frame).cast(schemas.POINTS)
