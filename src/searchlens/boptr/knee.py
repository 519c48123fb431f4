"""The saturation knee N*: the budget from which a curve is within tau of where it ends."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from searchlens.boptr.fit import GUARD
from searchlens.uncertainty import Floats


def knee(values: npt.ArrayLike, budgets: Sequence[int], tau: float) -> Floats:
    """N*: the smallest budget at which a curve reaches its last value less ``tau``.

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
        In [1, last budget]; between two budgets the curve is linear in log2 b. A curve that falls back counts from the
        first time it is there. NaN where any value is NaN.

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
    # A budget that is exactly tau below has reached it, whatever its rounding.
    wanted = curve[-1] - tau - GUARD
    first = (curve >= wanted).argmax(axis=0)
    before = np.maximum(first - 1, 0)
    above, below = (np.take_along_axis(curve, at[None], axis=0)[0] for at in (first, before))
    steps = np.log2(np.asarray(budgets, float))
    rise = np.where(above > below, above - below, 1.0)
    share = np.where(first == before, 0.0, (wanted - below) / rise)
    found: Floats = 2.0 ** (steps[before] + share * (steps[first] - steps[before]))
    return np.where(np.isnan(curve).any(axis=0), np.nan, found)
