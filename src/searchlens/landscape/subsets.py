"""The first n samples of a stream, and all n-subsets of a pool."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from searchlens.landscape.pool import Bools, Floats, Ints


def missed(samples: int, budgets: Sequence[float] | Ints) -> Floats:
    """Probability that an n-subset of N samples contains none of c given samples: row c, column n.

    C(N - c, n) / C(N, n). Between whole numbers it is the product over i < c of (N - n - i) / (N - i), cut at 0. For
    whole n its mean over samples is (1 - p)^n. For any other n in [1, N] it is nearly the binomial series of (1 - p)^n
    up to p^N, which is at most 0.0016 off for N = 16 and 0.0003 for N = 64. Chen et al. (2021), arXiv:2107.03374,
    section 2.1.
    """
    n, c = np.asarray(budgets, float)[None, :], np.arange(samples, dtype=float)[:, None]
    steps = np.maximum(samples - n - c, 0) / (samples - c)
    return np.vstack([np.ones((1, len(budgets))), np.cumprod(steps, axis=0)])


def first_best(key: Floats, credit: Bools, budgets: Ints) -> Floats:
    """Credit of the sample with the smallest key among the first n; ties go to the earlier sample.

    0 or 1, shape (rows, budgets); NaN in rows whose first key is NaN.
    """
    best = np.stack([key[:, :n].argmin(axis=1) for n in budgets], axis=1)
    return _where_known(key, np.take_along_axis(credit, best, axis=1))


def expected_best(key: Floats, credit: Bools, budgets: Ints) -> Floats:
    """Mean over all n-subsets of the credit of the sample with the smallest key, equal keys being equally likely.

    Shape (rows, budgets); NaN in rows whose first key is NaN. The r-th smallest of N is the smallest of the subset in
    C(N-1-r, n-1) of C(N, n) cases. Within a group of equal keys samples are exchangeable, so each earns the group's
    mean credit.
    """
    rows, samples = key.shape
    order = np.argsort(key, axis=1)
    ranked = np.take_along_axis(key, order, axis=1)
    opens = np.ones(key.shape, dtype=bool)
    opens[:, 1:] = ranked[:, 1:] != ranked[:, :-1]
    start = np.flatnonzero(opens)
    length = np.diff(start, append=rows * samples)
    total = np.add.reduceat(np.take_along_axis(credit, order, axis=1).ravel().astype(float), start)
    shared = np.repeat(total / length, length).reshape(rows, samples)
    rank = np.arange(samples, dtype=float)[:, None]
    earned: Floats = shared @ (missed(samples, budgets)[:-1] * budgets.astype(float) / (samples - rank))
    return _where_known(key, np.minimum(earned, 1.0))


def _where_known(key: Floats, values: npt.NDArray[Any]) -> Floats:
    """Undefined for the rows of a policy whose keys are unknown."""
    return np.where(np.isnan(key[:, :1]), np.nan, values)
