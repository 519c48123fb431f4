"""Named operating points of a cell, at budgets of any size, on any view: counts, errors and intervals.

A path of the sample that is kept in every draw needs its own few points alone, not the whole landscape.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from searchlens.boptr import inference
from searchlens.boptr.cohort import DenseLandscape
from searchlens.boptr.rule import Path, Rule
from searchlens.boptr.view import Counts, Readouts, View
from searchlens.uncertainty import Floats

Point = tuple[str, int]
"""Policy and budget."""


def operating_points(rule: Rule, base: Readouts, path: Path) -> list[Point]:
    """The points of a path in the first draw, one for each budget of B."""
    policy = np.broadcast_to(path.policy, path.budget.shape)
    return [(base.policies[i], rule.plan.budgets[n]) for i, n in zip(policy[:, 0], path.budget[:, 0], strict=True)]


def point_counts(view: View, landscape: DenseLandscape, benchmark: str, points: Sequence[Point]) -> Counts:
    """Solved questions at each point, shape (points, draws)."""
    return np.concatenate([view.count(landscape, benchmark, "P", policy, [n]) for policy, n in points])


def point_errors(view: View, model: str, benchmark: str, points: Sequence[Point], budgets: Sequence[int]) -> Floats:
    """mech_P in percentage points of points of Base against the RL default curve at ``budgets``, shape (draws,).

    Parameters
    ----------
    view : View
    model, benchmark : str
        A cell that has both sides.
    points : sequence of (policy, budget)
        One for each of ``budgets``.
    budgets : sequence of int
        Of any size that RL was sampled at.

    Raises
    ------
    KeyError
        A point that was not sampled.
    """
    base, rl = view.cohort.base(model, benchmark), view.cohort.rl(model, benchmark)
    assert base is not None
    assert rl is not None
    target = view.count(rl, benchmark, "P", view.plan.default_policy, budgets)
    gap = np.abs(point_counts(view, base, benchmark, points) - target)
    error: Floats = 100 * gap.mean(axis=0, dtype=float) / view.total(benchmark)
    return error


def interval(draws: Floats, confidence: float) -> tuple[float | None, float | None]:
    """Percentile interval of a statistic over the draws of a view, as frames hold it: None where it is not defined."""
    lo, hi = (float(end) for end in inference.interval(draws, confidence))
    return (None, None) if np.isnan(lo) else (lo, hi)
