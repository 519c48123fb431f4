"""The saturation knee N*: the budget at which a curve comes within tau of its last value."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from searchlens.boptr.fit import GUARD
from searchlens.uncertainty import Floats

TAU = 0.02
"""Tolerance of N* in the main rows, as a proportion (printed)."""


def knee(values: npt.ArrayLike, budgets: Sequence[int], tau: float) -> Floats:
    """N*: the smallest budget at which a curve reaches its last value minus ``tau``.

    Parameters
    ----------
    values : array_like, shape (budgets, ...)
        Proportions in [0, 1] at increasing budgets; any trailing axes, such as draws.
    budgets : sequence of int
        Powers of two from 1.
    tau : float
        Tolerance, at least 0, in the unit of ``values``.

    Returns
    -------
    ndarray, shape (...)
        In [1, last budget]; between two budgets the curve is linear in log2 b. For a curve that falls again, the first
        time counts. 1 for a constant curve. NaN if any value of the curve is NaN.

    Notes
    -----
    Paper, appendix on the RL-information frontier: "the smallest budget within tau of the per-cell ceiling,
    log2-interpolated".

    Examples
    --------
    >>> float(knee([0.2, 0.4, 0.6, 0.6], [1, 2, 4, 8], tau=0.1).round(3))
    2.828
    """
    curve = np.asarray(values, float)
    # GUARD: a value exactly tau below the last has reached it, whatever its floating-point error.
    level = curve[-1] - tau - GUARD
    first = (curve >= level).argmax(axis=0)
    before = np.maximum(first - 1, 0)
    above, below = (np.take_along_axis(curve, at[None], axis=0)[0] for at in (first, before))
    steps = np.log2(np.asarray(budgets, float))
    rise = np.where(above > below, above - below, 1.0)
    share = np.where(first == before, 0.0, (level - below) / rise)
    budget: Floats = 2.0 ** (steps[before] + share * (steps[first] - steps[before]))
    return np.where(np.isnan(curve).any(axis=0), np.nan, budget)
