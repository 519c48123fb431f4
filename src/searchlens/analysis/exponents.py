"""Which exponents the samples allow: confidence sets for alpha and beta of N_base = alpha * b^beta, without rounding.

If the law holds for a policy of Base, the moments g_i(b) = P_base,i(2^x_b) - P_rl,i(b), x_b = log2 alpha + beta log2 b,
have mean 0 over questions at every b. The Anderson-Rubin statistic J = g' V^-1 g, V the covariance of the mean over
questions, tests that at one (policy, alpha, beta) at a time; the set holds all that are not rejected. It stays valid
where the exponent is hardly identified: there it is wide. It may also be empty: then no power law fits.

A law is tested only if at least ``FEWEST_MOMENTS`` of its moments rest on enough questions. One that is not tested is
in no set: nothing speaks against it, but nothing for it either.

The set of beta takes the smallest J over alpha, and fitting alpha costs one degree of freedom.

N can be read up to the samples of Base. Where a law has more, it says only that RL solves no less than the whole pool.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl
from scipy import special

from searchlens.analysis.classes import Pool, effective, knots
from searchlens.analysis.uncertainty import Floats

RIDGE = 1e-5
"""Added to the variance over questions of every moment, so that V stays invertible where every question is solved.

Neighbouring moments are so alike that the least variance of a combination of them is about 3e-5. With more than that
the test rejects too seldom, with far less too often where few questions decide (docs/validation.md)."""
FEWEST, FEWEST_SHARE = 20, 1 / 10
"""A moment is left out if it rests on fewer than this many questions (``effective``) and on less than this share of
them. Such a moment is skewed, as where RL and Base leave two or three questions unsolved, and the test would reject too
often."""
FEWEST_MOMENTS = 2
"""A law is tested if so many of its moments are used: with one, some alpha would do for every beta."""
DIGITS = 9
"""To which positions are rounded, so that one on a knot takes that knot alone."""
HARDLY = 2
"""Hardly any law fits if the best has a p-value of less than so many times that at which laws are rejected."""


@dataclass(frozen=True, eq=False)
class Lattice:
    """The grid of (log2 alpha, beta), alpha the slower index, and the positions x_b that each gives."""

    log2_alpha: Floats
    beta: Floats
    """``log2_alpha``, ``beta``: shapes (alphas,) and (betas,)."""

    @property
    def shape(self) -> tuple[int, int]:
        """Numbers of alphas and betas."""
        return len(self.log2_alpha), len(self.beta)

    @cache  # noqa: B019  (two lattices live as long as the module)
    def weights(
        self, budgets: tuple[int, ...], largest: int
    ) -> tuple[Floats, npt.NDArray[np.int64], npt.NDArray[np.intp]]:
        """Weights of P at the ``knots`` that interpolate it, linearly in log2 k, at 2^x_b, clipped to the pool.

        First the weights, shape (laws, budgets, knots), of the laws that differ: many points of the lattice have the
        same x_b, clipped to the pool. Then, shape (laws, budgets), 1 if 2^x_b is more than the pool, -1 if it is less
        than one sample, otherwise 0. Last which law each point of the lattice has.
        """
        at = self.log2_alpha[:, None, None] + self.beta[None, :, None] * np.log2(budgets)
        position = np.log2(knots(largest))
        last, near = position[-1], 10.0**-DIGITS
        at = np.where(at > last + near, last + 1, np.where(at < -near, -1, at)).reshape(-1, len(budgets))
        x, law = np.unique(at.round(DIGITS), axis=0, return_inverse=True)
        outside = (x > last + near).astype(int) - (x < -near)
        x = np.clip(x, 0, last)
        weights = np.zeros((*x.shape, len(position)))
        if largest == 1:
            return weights + 1, outside, law.ravel()
        above = np.maximum(np.searchsorted(position, x - near), 1)
        share = ((x - position[above - 1]) / (position[above] - position[above - 1])).round(DIGITS)
        np.put_along_axis(weights, above[..., None] - 1, (1 - share)[..., None], axis=2)
        np.put_along_axis(weights, above[..., None], share[..., None], axis=2)
        return weights, outside, law.ravel()


GRID = Lattice(np.arange(-20, 101) / 20, np.arange(81) / 50)
"""log2 alpha from -1 to 5 by 0.05, beta from 0 to 1.6 by 0.02."""

COARSE = Lattice(np.arange(-10, 51) / 10, np.arange(29) / 20)
"""Of the point estimate: log2 alpha from -1 to 5 by 0.1, beta from 0 to 1.4 by 0.05."""


@dataclass(frozen=True, eq=False)
class Test:
    """The law under one policy, tested at every point of a lattice."""

    policy: str
    pool: int
    """Samples of Base, the largest N that can be read."""
    j: Floats
    """Non-negative. Shape (alphas, betas)."""
    moments: npt.NDArray[np.int64]
    """Budgets b that rest on enough questions, from 0. Shape (alphas, betas)."""
    log_p: Floats
    """Logarithm of the p-value; NaN where the law is not tested, because too few moments could be used. Shape (alphas,
    betas)."""
    log_p_fitted: Floats
    """The same with one degree of freedom less, for the alpha that fits a beta best (``profile``). Shape (alphas,
    betas)."""
    misfit: Floats
    """Mean over b of the absolute mean moment: how far the law is off, a proportion. Shape (alphas, betas)."""

    @property
    def tested(self) -> npt.NDArray[np.bool_]:
        """Whether the law was tested, shape (alphas, betas)."""
        return self.moments >= FEWEST_MOMENTS

    @property
    def likely(self) -> Floats:
        """``log_p_fitted``, with -inf in place of NaN."""
        return np.where(self.tested, self.log_p_fitted, -np.inf)


def test(base: Pool, rl: Pool, budgets: Sequence[int], *, grid: Lattice = GRID) -> Test:
    """Test the law under one policy, at every point of a lattice; with as many budgets as questions or more no law is.

    Mean and covariance of the moments at every (alpha, beta) follow from the mean and covariance of P_base at the knots
    and of P_rl, because the interpolation is linear. J is referred to Hotelling's T-squared, that is to F with as many
    degrees of freedom as moments, rather than to chi square: V is estimated from the questions. The smallest J over
    alpha has one degree less: exactly so if the moments are linear in alpha and normal, and in the linear model with
    homoskedastic errors no more often too large where alpha is hardly identified. N beyond the pool or below 1 makes an
    inequality, which counts only where it is violated (``_binding``). An equality there, with P at the end of the pool,
    would reject N = 2b where both sides have as many samples. validation/exponents.py measures the size of the test.

    Anderson and Rubin (1949), Ann. Math. Stat. 20, 46-63; Stock and Wright (2000), Econometrica 68, 1055-1096;
    Hotelling (1931), Ann. Math. Stat. 2, 360-378; Guggenberger, Kleibergen, Mavroeidis and Chen (2012), Econometrica
    80, 2649-2666 (the smallest J over a parameter that is fitted).
    """
    size = len(budgets)
    ours, theirs = base.solved(knots(base.samples)), rl.solved(budgets)
    curves, questions = np.concatenate([ours, theirs], axis=1), len(ours)
    at_base, outside, law = grid.weights(tuple(budgets), base.samples)
    minus = np.broadcast_to(-np.eye(size), (len(at_base), size, size))
    combine = np.concatenate([at_base, minus], axis=2)
    moments = combine @ curves.mean(axis=0)
    half = (combine.reshape(-1, combine.shape[2]) @ np.cov(curves.T, ddof=min(1, questions - 1))).reshape(combine.shape)
    variance = half @ combine.transpose(0, 2, 1)
    usable = _usable(ours, theirs, at_base) & (size < questions)
    used = _binding(moments, variance, usable, outside)
    j = questions * (moments * _scaled(moments, variance, used)).sum(axis=1)
    count, known = usable.sum(axis=1), used.sum(axis=1)
    log_p, fitted = (np.where(count >= FEWEST_MOMENTS, _log_p(j, n, questions), np.nan) for n in (known, known - 1))
    found = (j, count, log_p, fitted, np.abs(moments).mean(axis=1))
    return Test(base.policy, base.samples, *(each[law].reshape(grid.shape) for each in found))


def _usable(ours: Floats, theirs: Floats, at_base: Floats) -> npt.NDArray[np.bool_]:
    """Whether the moments rest on enough questions, shape (pairs, budgets).

    A moment between two budgets of Base is as good as the worse of them.
    """
    fewest = min(FEWEST, FEWEST_SHARE * len(ours))
    enough = np.stack([effective(ours - column[:, None]) for column in theirs.T]) >= fewest
    if enough.all():
        return np.ones(at_base.shape[:2], bool)
    return np.logical_not(((at_base > 0) & ~enough).any(axis=2))


def _scaled(moments: Floats, variance: Floats, used: npt.NDArray[np.bool_]) -> Floats:
    """V^-1 g of the moments that are used, 0 for the others, shape (laws, budgets)."""
    ridge = np.eye(used.shape[1]) * np.where(used, RIDGE, 1)[:, None, :]
    masked = variance * (used[:, :, None] & used[:, None, :]) + ridge
    return np.asarray(np.linalg.solve(masked, np.where(used, moments, 0)[..., None])[..., 0], float)


def _binding(
    moments: Floats, variance: Floats, usable: npt.NDArray[np.bool_], outside: npt.NDArray[np.int64]
) -> npt.NDArray[np.bool_]:
    """Usable moments without those outside of the pool that agree with the law, shape (laws, budgets).

    Where N is beyond the pool, a law says only that RL solves no less than the whole pool; where N is below 1, no more
    than one sample. A moment counts if it contradicts that beyond what the others, with which it is correlated, let
    expect. Then a true law is rejected at most as often as without inequalities (docs/validation.md).
    """
    kept: npt.NDArray[np.bool_] = usable & (outside == 0)
    for b in np.flatnonzero(outside.any(axis=0)):
        at = np.flatnonzero(outside[:, b] * usable[:, b])
        rest = moments[at, b] - (variance[at, b] * _scaled(moments[at], variance[at], kept[at])).sum(axis=1)
        kept[at, b] = np.sign(rest) == outside[at, b]
    return kept


def _log_p(j: Floats, moments: npt.NDArray[np.int64], questions: int) -> Floats:
    count = np.maximum(moments, 1)
    ratio = j * (questions - count) / (count * max(questions - 1, 1))
    with np.errstate(divide="ignore"):
        log_p: Floats = np.log(special.fdtrc(count, questions - count, np.maximum(ratio, 0)))
    return log_p


def least_error(base: Sequence[Pool], rl: Pool, budgets: Sequence[int], weights: Floats) -> tuple[Floats, Floats]:
    """log2 alpha and beta of the least mean absolute error over b, of any of these policies, in each draw."""
    grid = COARSE
    target = rl.solved(budgets).T @ weights / len(weights)
    least = np.full(weights.shape[1], np.inf)
    chosen = np.zeros(weights.shape[1], int)
    for pool in base:
        curve = pool.solved(knots(pool.samples)).T @ weights / len(weights)
        at_base, _, law = grid.weights(tuple(budgets), pool.samples)
        error = np.zeros((len(at_base), weights.shape[1]))
        for b, row in enumerate(target):
            gap = at_base[:, b] @ curve - row
            error += np.abs(gap, out=gap)
        error = error[law]
        best = error.argmin(axis=0)
        value = error[best, np.arange(len(best))]
        chosen, least = np.where(value < least, best, chosen), np.minimum(value, least)
    return grid.log2_alpha[chosen // len(grid.beta)], grid.beta[chosen % len(grid.beta)]


EXPONENTS = pl.Schema(
    {
        **dict.fromkeys(("empty", "hardly", "testable"), pl.Boolean()),
        **dict.fromkeys(("pool_min", "pool_max"), pl.UInt32()),
        **dict.fromkeys(("untested", "beta_lo", "beta_hi", "p", "j"), pl.Float64()),
        "moments": pl.UInt32(),
        "best_policy": pl.String(),
        **dict.fromkeys(("log2_alpha", "beta", "misfit"), pl.Float64()),
        **dict.fromkeys(("beta_l1", "beta_l1_lo", "beta_l1_hi", "log2_alpha_l1"), pl.Float64()),
    }
)
"""``beta_lo`` to ``beta_hi``: hull of the betas in the set; null if there are none. ``untested``: share of the laws,
that is of points of the grid under each policy, that are not tested; ``testable``: whether any is; ``empty``: some are
tested, and all of these rejected; ``hardly``: not empty, but small because hardly any law fits (``HARDLY``).
``pool_min`` to ``pool_max``: samples of the policies, up to which N is read. ``p``, ``j``,
``moments``, ``best_policy``, ``log2_alpha`` and ``beta``: where p is largest; null if nothing is tested. ``misfit``:
the least of any law. The columns ``l1``: least mean absolute error, percentiles over draws that choose again."""


def profile(tests: Sequence[Test]) -> Floats:
    """Largest p-value at each beta, over the tested alphas and policies; NaN if none is; shape (betas,)."""
    largest = np.exp(np.max([test.likely.max(axis=0) for test in tests], axis=0))
    return np.where(np.any([test.tested.any(axis=0) for test in tests], axis=0), largest, np.nan)


def undecided(tests: Sequence[Test]) -> npt.NDArray[np.bool_]:
    """Whether some law with each beta is not tested, so that the beta cannot be rejected; shape (betas,)."""
    return np.asarray(np.any([~test.tested.all(axis=0) for test in tests], axis=0))


def exponent_set(tests: Sequence[Test], level: float) -> dict[str, object]:
    """The set of betas that are tested and not rejected, and the best point of all policies: columns of ``EXPONENTS``.

    A beta is in the set if some law with it, of any alpha and policy, is tested and not rejected. If the true law is
    tested, the set contains its beta with the nominal coverage or more. It need not if the true law is one of those
    that the samples cannot test: ``untested`` says how many there are.
    """
    inside = GRID.beta[profile(tests) >= 1 - level]
    testable = any(bool(test.tested.any()) for test in tests)
    lo, hi = (float(inside.min()), float(inside.max())) if len(inside) else (None, None)
    best = max(tests, key=lambda test: float(test.likely.max()))
    found: dict[str, object] = {
        "empty": testable and not len(inside),
        "hardly": bool(len(inside)) and float(np.exp(best.likely.max())) < HARDLY * (1 - level),
        "pool_min": min(test.pool for test in tests),
        "pool_max": max(test.pool for test in tests),
        "testable": testable,
        "untested": 1 - float(np.mean([test.tested for test in tests])),
        "beta_lo": lo,
        "beta_hi": hi,
        "misfit": min(float(test.misfit.min()) for test in tests),
    }
    if not testable:
        return found | dict.fromkeys(("p", "j", "moments", "best_policy", "log2_alpha", "beta"))
    at = np.unravel_index(best.likely.argmax(), best.likely.shape)
    return found | {
        "p": float(np.exp(best.likely[at])),
        "j": float(best.j[at]),
        "moments": int(best.moments[at]),
        "best_policy": best.policy,
        "log2_alpha": float(GRID.log2_alpha[at[0]]),
        "beta": float(GRID.beta[at[1]]),
    }


JOINT = pl.Schema(
    {
        "left_out": pl.String(),
        "pairs": pl.UInt32(),
        "joined": pl.List(pl.String()),
        **dict.fromkeys(("empty", "testable"), pl.Boolean()),
        **dict.fromkeys(("beta_lo", "beta_hi"), pl.Float64()),
    }
)
"""``joined``: the ``pairs`` in number on which the set rests. ``testable``: whether any of them tests any beta."""


def joint_sets(
    profiles: Mapping[str, Floats], open_betas: Mapping[str, npt.NDArray[np.bool_]], level: float
) -> pl.DataFrame:
    """Betas that one exponent common to several pairs may have: ``JOINT``, of all pairs, then without each of them.

    Pairs have their ``profile`` and ``undecided`` betas, of tests on the same benchmark. A beta is in the set if some
    pair tests it and no pair rejects it at (1 - level) / pairs (Bonferroni). That holds for any dependence between
    pairs, which share questions and sometimes a Base. Unlike in the set of one pair, a beta is rejected only if every
    law with it is tested: over several pairs the true law of one or the other is often not.
    """
    groups = [(None, list(profiles)), *((name, [other for other in profiles if other != name]) for name in profiles)]
    records: list[dict[str, object]] = []
    for left_out, members in groups[: None if len(profiles) > 1 else 1]:
        found = np.array([profiles[name] for name in members])
        untested = np.isnan(found)
        still = np.array([open_betas[name] for name in members])
        kept = (still | (found >= (1 - level) / len(members))).all(axis=0) & ~untested.all(axis=0)
        inside = GRID.beta[kept]
        lo, hi = (float(inside.min()), float(inside.max())) if len(inside) else (None, None)
        testable = not untested.all()
        record = {"left_out": left_out, "pairs": len(members), "joined": members, "testable": testable}
        records.append({**record, "empty": testable and not len(inside), "beta_lo": lo, "beta_hi": hi})
    return pl.DataFrame(records, JOINT)


WIDE = 1.0
"""Width of a set of exponents from which on the exponent is not identified."""


def of_exponents(row: Mapping[str, Any]) -> str:
    """Why the exponents of a row of ``EXPONENTS``, or of Nones, are no answer; empty if they are."""
    if row["empty"]:
        return "no power law that was tested fits"
    if row["testable"] is False:
        return "too few questions"
    if row["hardly"]:
        return "hardly any law fits"
    if row["beta_lo"] is not None and row["beta_hi"] - row["beta_lo"] >= WIDE:
        return "not identified"
    return ""
