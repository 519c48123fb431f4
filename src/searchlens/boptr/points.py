"""Single operating points of a cell, at budgets of any size, on any view: counts, errors and intervals.

To score the sample's path in every draw, its few points are enough; the rest of the landscape is not read.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from searchlens.boptr import inference
from searchlens.boptr.cohort import DenseLandscape
from searchlens.boptr.inference import ErrorDraws
from searchlens.boptr.rule import Path, Rule
from searchlens.boptr.view import Counts, Readouts, View
from searchlens.uncertainty import Floats, Interval, quantiles, wilson, with_width

Point = tuple[str, int]
"""Policy and budget."""


def operating_points(rule: Rule, base: Readouts, path: Path) -> list[Point]:
    """The points of a path in draw 0, one for each budget of B."""
    policy = np.broadcast_to(path.policy, path.budget.shape)
    return [(base.policies[i], rule.plan.budgets[n]) for i, n in zip(policy[:, 0], path.budget[:, 0], strict=True)]


def point_counts(view: View, landscape: DenseLandscape, benchmark: str, points: Sequence[Point]) -> Counts:
    """Solved questions at each point, shape (points, draws)."""
    return np.concatenate([view.count(landscape, benchmark, "P", policy, [n]) for policy, n in points])


def point_errors(view: View, model: str, benchmark: str, points: Sequence[Point], budgets: Sequence[int]) -> ErrorDraws:
    """mech_P of points of Base, one per budget of the RL default curve.

    Parameters
    ----------
    model, benchmark : str
        A cell that has both sides.
    points : sequence of (policy, budget)
        One for each of ``budgets``.
    budgets : sequence of int
        Any budgets that RL was sampled at.

    Returns
    -------
    ErrorDraws
        Corrected for the bias of absolute values, not for any choice of the points.

    Raises
    ------
    KeyError
        A point was not sampled.
    """
    base, rl = both_sides(view, model, benchmark)
    target = view.count(rl, benchmark, "P", view.plan.default_policy, budgets)
    total = view.total(benchmark)
    return ErrorDraws.of(100 / total * (point_counts(view, base, benchmark, points) - target), total)


def both_sides(view: View, model: str, benchmark: str) -> tuple[DenseLandscape, DenseLandscape]:
    """The Base and the RL landscape of a cell that has both (``Rule.cell``)."""
    base, rl = view.cohort.base(model, benchmark), view.cohort.rl(model, benchmark)
    assert base is not None and rl is not None
    return base, rl


def difference_interval(
    draws: Floats, questions: float, confidence: float, limits: tuple[float, float] = (-100.0, 100.0)
) -> tuple[float | None, float | None]:
    """Percentile interval of a difference of readouts over the draws of a view, whose entry 0 is the sample.

    Returns
    -------
    (float, float)
        It contains the difference and has a width (``uncertainty.with_width``, also for ``limits``). None, as frames
        hold it, if undefined.
    """
    ends = with_width(draws[0], inference.interval(draws, confidence), questions, confidence, limits)
    return inference.defined(ends.lo), inference.defined(ends.hi)


def readout_interval(boot: View, counts: Counts, benchmark: str, confidence: float) -> Interval:
    """Intervals of single readouts, as proportions.

    Parameters
    ----------
    boot : View
        Bootstrap draws.
    counts : ndarray, shape (points, draws)
        Solved questions at each point, from this view (``point_counts``).

    Returns
    -------
    Interval
        Of each point. Prefix readouts are counts and have Wilson intervals. Expected ones are means of shares, and have
        percentiles of the bootstrap over questions, with a width where no draw differs (``uncertainty.with_width``).
    """
    total = boot.total(benchmark)
    if boot.cohort.readout == "prefix":
        return wilson(counts[:, 0], total, confidence)
    shares = counts.astype(float) / total
    return with_width(shares[:, 0], quantiles(shares[:, 1:], confidence), total, confidence, (0.0, 1.0))


def budgets_text(points: Sequence[Point]) -> str:
    """Budgets of points, such as ``2/4/8/8/16``."""
    return "/".join(str(n) for _, n in points)
