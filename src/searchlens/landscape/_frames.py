"""Readouts with their intervals, as the frames of ``schemas.POINTS`` and ``schemas.HITS``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
import numpy.typing as npt
import polars as pl

from searchlens.landscape._pool import Floats
from searchlens.schemas import HITS, METRICS, POINTS
from searchlens.uncertainty import Interval, Resamples, wilson

ALL_METRICS = (*METRICS, "D", "distinct", "C", "valid", "stopped", "truncated")
READOUTS = ("prefix", "expected")
Values = dict[str, dict[str, Floats]]
"""Readout, then metric: arrays of shape (rows, budgets)."""

_POWER = {"C": 1, "valid": 0, "stopped": 0}
"""These expectations over independent samples are this power of n times a constant: one bootstrap for all budgets."""


class Rows(Protocol):
    """Whose rows ``Values`` are, as in ``Pool``: each question under each policy."""

    @property
    def policies(self) -> tuple[str, ...]: ...
    @property
    def questions(self) -> npt.NDArray[np.uint32]: ...
    @property
    def width(self) -> int: ...


@dataclass(frozen=True, eq=False)
class _Column:
    """One metric under one readout: arrays of shape (policies, budgets)."""

    metric: str
    readout: str
    value: Floats
    hits: Floats
    interval: Interval


def hits_frame(pool: Rows, budgets: Sequence[int], values: Values) -> pl.DataFrame:
    """One row per policy, question and budget."""
    questions = len(pool.questions)
    policy = np.repeat(np.arange(len(pool.policies)), questions * len(budgets))
    names = {metric: ("prefix", metric) for metric in METRICS}
    names |= {f"{metric}_expected": ("expected", metric) for metric in METRICS}
    frame = {
        "policy": pl.Series(pool.policies).gather(policy),
        "question": np.tile(np.repeat(pool.questions, len(budgets)), len(pool.policies)),
        "budget": np.tile(np.asarray(budgets, np.uint32), len(pool.policies) * questions),
        **{
            name: pl.Series(values[readout][metric].ravel(), nan_to_null=True)
            for name, (readout, metric) in names.items()
        },
    }
    return pl.DataFrame(frame).cast(HITS)


def points_frame(
    pool: Rows, budgets: Sequence[int], values: Values, resamples: Resamples, confidence: float, *, counted: bool
) -> pl.DataFrame:
    """One row per policy, budget, metric and readout of ``values``; ``truncated`` comes with ``stopped``.

    ``counted``: the prefix vote is 0 or 1 for each question.
    """
    shape = (len(pool.policies), len(pool.questions), len(budgets))
    keys = [(m, readout) for m in ALL_METRICS if m != "truncated" for readout in READOUTS if m in values[readout]]
    solved = {(metric, readout): values[readout][metric].reshape(shape) for metric, readout in keys}
    counts = {(metric, "prefix") for metric in METRICS if counted or metric != "Q"}
    power = {} if pool.width > 1 else _POWER
    averages = _averages({key: solved[key] for key in keys if key not in counts}, budgets, resamples, confidence, power)
    columns = [_counted(*key, solved[key], confidence) if key in counts else averages[key] for key in keys]
    columns += [_complement(averages[key], "truncated") for key in keys if key[0] == "stopped"]
    return _table(pool, budgets, columns)


def _counted(metric: str, readout: str, credit: Floats, confidence: float) -> _Column:
    hits = credit.sum(axis=1)
    return _Column(metric, readout, credit.mean(axis=1), hits, wilson(hits, credit.shape[1], confidence))


def _averages(
    values: dict[tuple[str, str], Floats],
    budgets: Sequence[int],
    resamples: Resamples,
    confidence: float,
    powers: Mapping[str, int],
) -> dict[tuple[str, str], _Column]:
    """Bootstrap everything in one product: many small ones are slower by far where cores are shared."""
    power = {key: powers.get(key[0]) if key[1] == "expected" else None for key in values}
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
        columns[key] = _Column(*key, value, np.full(value.shape, np.nan), interval)
        start = stop
    return columns


def _complement(column: _Column, metric: str) -> _Column:
    interval = Interval(1 - column.interval.hi, 1 - column.interval.lo)
    return replace(column, metric=metric, value=1 - column.value, interval=interval)


def _table(pool: Rows, budgets: Sequence[int], columns: list[_Column]) -> pl.DataFrame:
    policy, budget, column = np.indices((len(pool.policies), len(budgets), len(columns))).reshape(3, -1)

    def stacked(parts: list[Floats]) -> pl.Series:
        return pl.Series(np.stack(parts, axis=2).ravel(), nan_to_null=True)

    def labels(names: Sequence[str], index: npt.NDArray[np.intp]) -> pl.Series:
        return pl.Series(names).gather(index)

    frame = {
        "policy": labels(pool.policies, policy),
        "budget": np.asarray(budgets, np.uint32)[budget],
        "metric": labels([part.metric for part in columns], column),
        "readout": labels([part.readout for part in columns], column),
        "hits": stacked([part.hits for part in columns]),
        "questions": np.full(len(policy), len(pool.questions), np.uint32),
        "value": stacked([part.value for part in columns]),
        "lo": stacked([part.interval.lo for part in columns]),
        "hi": stacked([part.interval.hi for part in columns]),
    }
    return pl.DataFrame(frame).cast(POINTS)
