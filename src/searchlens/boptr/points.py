"""Single operating points of a cell, at budgets of any size, on any view: counts, errors and intervals.

To score the sample's path in every draw, its few points are enough; the rest of the landscape is not read.
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
    """The points of a path in draw 0, one for each budget of B."""
    policy = np.broadcast_to(path.policy, path.budget.shape)
    return [(base.policies[i], rule.plan.budgets[n]) for i, n in zip(policy[:, 0], path.budget[:, 0], strict=True)]


def point_counts(view: View, landscape: DenseLandscape, benchmark: str, points: Sequence[Point]) -> Counts:
    """Solved questions at each point, shape (points, draws)."""
    return np.concatenate([view.count(landscape, benchmark, "P", policy, [n]) for policy, n in points])


def point_errors(view: View, model: str, benchmark: str, points: Sequence[Point], budgets: Sequence[int]) -> Floats:
    """mech_P of points of Base, one per budget of the RL default curve, in percentage points.

    Parameters
    ----------
    view : View
    model, benchmark : str
        A cell that has both sides.
    points : sequence of (policy, budget)
        One for each of ``budgets``.
    budgets : sequence of int
        Any budgets that RL was sampled at.

    Returns
    -------
    ndarray, shape (draws,)

    Raises
    ------
    KeyError
        A point was not sampled.
    """
    base, rl = both_sides(view, model, benchmark)
    target = view.count(rl, benchmark, "P", view.plan.default_policy, budgets)
    gap = np.abs(point_counts(view, base, benchmark, points) - target)
    error: Floats = 100 * gap.mean(axis=0, dtype=float) / view.total(benchmark)
    return error


def both_sides(view: View, model: str, benchmark: str) -> tuple[DenseLandscape, DenseLandscape]:
    """The Base and the RL landscape of a cell that has both (``Rule.cell``)."""
    base, rl = view.cohort.base(model, benchmark), view.cohort.rl(model, benchmark)
    assert base is not None and rl is not None
    return base, rl


def interval(draws: Floats, confidence: float) -> tuple[float | None, float | None]:
    """Percentile interval of a statistic over the draws of a view; None, as frames hold it, if undefined."""
    lo, hi = (float(end) for end in inference.interval(draws, confidence))
    return (None, None) if np.isnan(lo) else (lo, hi)


def error_and_interval(draws: Floats, confidence: float) -> dict[str, float | None]:
    """Columns ``error``, ``lo`` and ``hi`` of an error over the draws of a view."""
    lo, hi = interval(draws, confidence)
    return {"error": float(draws[0]), "lo": lo, "hi": hi}


def budgets_text(points: Sequence[Point]) -> str:
    """Budgets of points, such as ``2/4/8/8/16``."""
    return "/".join(str(n) for _, n in points)
