"""Hits of the Base and the RL checkpoint of a pair on the same questions, as dense arrays."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

import numpy as np
import numpy.typing as npt
import polars as pl

from searchlens.catalogue import declared
from searchlens.errors import InputError
from searchlens.landscape.points import Landscape
from searchlens.schemas.columns import READOUTS
from searchlens.uncertainty import Floats

ROUNDING = 1e-7
"""Proportions that differ by less are equal: expectations have single precision, and one question weighs far more."""

Point = tuple[str, int]
"""Policy and budget."""


@dataclass(frozen=True, eq=False)
class Curves:
    """One metric and readout of one checkpoint, at the points that have one."""

    points: list[Point]
    """List of (policy, budget). Operating points in the order of the landscape."""
    credit: Floats
    """Readout of each question, in [0, 1]. Shape (points, questions)."""

    @property
    def values(self) -> Floats:
        """Mean over questions of each point; sums of 0/1 are exact, so equal counts give equal values."""
        mean: Floats = self.credit.sum(axis=1) / self.credit.shape[1]
        return mean

    def index(self) -> dict[Point, int]:
        """Position of each point."""
        return {point: i for i, point in enumerate(self.points)}


def compared(base: Landscape, rl: Landscape, default_policy: str) -> list[tuple[str, str]]:
    """Metric and readout of every comparison: metrics declared as ``compared``, as far as both landscapes know them.

    Of the default policy, if a side has it: the expected vote of a pool of more than 512 samples is null.
    """
    of_default = pl.col("policy") == default_policy
    counted = of_default | ~of_default.any()  # ``target`` says where it is missing
    keys = [
        set(side.points.filter(counted).drop_nulls("value").select("metric", "readout").iter_rows())
        for side in (base, rl)
    ]
    everything = product(declared("metric", compared=True), READOUTS)
    return [key for key in everything if key in keys[0] & keys[1]]


def compared_prefixes(base: Landscape, rl: Landscape, default_policy: str) -> list[str]:
    """Metrics of every comparison of prefix readouts."""
    return [metric for metric, readout in compared(base, rl, default_policy) if readout == "prefix"]


def read(base: Landscape, rl: Landscape, metric: str, readout: str) -> tuple[Curves, Curves]:
    """Curves of both checkpoints, questions in the same order; an InputError if these differ."""
    of_base, of_rl = (np.unique(landscape.hits["question"].to_numpy()) for landscape in (base, rl))
    if not np.array_equal(of_base, of_rl):
        odd = np.setxor1d(of_base, of_rl)[0]
        raise InputError(
            f"recovery: Base has {len(of_base)} questions and RL {len(of_rl)}; question {odd} is in only one of them",
            "score both checkpoints on the same benchmark",
        )
    column = metric if readout == "prefix" else f"{metric}_expected"
    return _curves(base.hits, column, of_base), _curves(rl.hits, column, of_base)


def _curves(hits: pl.DataFrame, column: str, questions: npt.NDArray[np.uint32]) -> Curves:
    names = hits["policy"].unique(maintain_order=True).to_list()
    policy = hits["policy"].cast(pl.Enum(names)).to_physical().to_numpy().astype(np.int64)
    budgets, budget = np.unique(hits["budget"].to_numpy(), return_inverse=True)
    codes, point = np.unique(policy * len(budgets) + budget, return_inverse=True)
    credit = np.full((len(codes), len(questions)), np.nan)
    credit[point, np.searchsorted(questions, hits["question"].to_numpy())] = hits[column].cast(pl.Float64).to_numpy()
    known = ~np.isnan(credit).any(axis=1)  # a search whose width does not divide a budget has no expectation there
    points = [(names[code // len(budgets)], int(budgets[code % len(budgets)])) for code in codes[known].tolist()]
    return Curves(points, credit[known])


def target(rl: Curves, default_policy: str) -> tuple[list[int], Floats]:
    """Budgets of the RL target curve, increasing, and its credit, shape (budgets, questions)."""
    at = sorted((budget, i) for i, (policy, budget) in enumerate(rl.points) if policy == default_policy)
    if not at:
        names = ", ".join(dict.fromkeys(policy for policy, _ in rl.points))
        raise InputError(f"recovery: RL has no samples of the default policy {default_policy!r}; it has {names}")
    return [budget for budget, _ in at], rl.credit[[i for _, i in at]]
