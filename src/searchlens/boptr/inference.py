"""From errors per cell to statements about rows: means over cells, intervals, tests over models.

Everything here works on plain arrays. ``Errors`` are the errors of one row of a table in percentage points, one array
per cell along the draws of a bootstrap over questions; draw 0 is the sample. Two kinds of uncertainty are kept apart:
the bootstrap over questions conditions on the models that were measured, the tests over models do not
(``docs/power.md``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
from scipy.special import erf

from searchlens.seeds import resampler
from searchlens.uncertainty import Floats, Interval

Errors = Mapping[tuple[str, str], Floats]
"""(model, benchmark) to errors, shape (draws,)."""
Kind = Literal["percentile", "centred"]
EXACT_MODELS = 20
"""Up to so many models, sign flips are enumerated."""


# ---- rows of a table


def macro(errors: Errors) -> Floats:
    """Mean over models of each model's mean over its cells, per draw: the paper's means.

    Raises
    ------
    ValueError
        There are no cells.
    """
    return np.asarray(np.mean(list(by_model(errors).values()), axis=0))


def micro(errors: Errors) -> Floats:
    """Mean over cells, per draw.

    Raises
    ------
    ValueError
        There are no cells.
    """
    _refuse_nothing(errors)
    return np.asarray(np.mean(list(errors.values()), axis=0))


def by_model(errors: Errors) -> dict[str, Floats]:
    """Each model's mean over its cells, per draw.

    Raises
    ------
    ValueError
        There are no cells.
    """
    _refuse_nothing(errors)
    models = dict.fromkeys(model for model, _ in errors)
    return {name: np.mean([found for (model, _), found in errors.items() if model == name], axis=0) for name in models}


def common(a: Errors, b: Errors) -> tuple[Errors, Errors]:
    """Both rows on the cells that both of them have; rows on different cells are not comparable."""
    return {cell: a[cell] for cell in a if cell in b}, {cell: b[cell] for cell in a if cell in b}


def _refuse_nothing(errors: Errors) -> None:
    if not errors:
        raise ValueError("no cells to average")


# ---- bias of absolute errors


def corrected(differences: npt.ArrayLike, skip: npt.ArrayLike | None = None) -> Floats:
    """Error of a cell with the bias of absolute values removed, per draw.

    Parameters
    ----------
    differences : array_like, shape (budgets, draws)
        Predicted minus true curve, signed, percentage points; draw 0 is the sample.
    skip : array_like of bool, shape (budgets, 1) or (budgets, draws), optional
        Budgets that do not count.

    Returns
    -------
    ndarray, shape (draws,)
        Nearly unbiased for mean_b |d_b|; may be slightly negative near zero. Goes with ``interval(kind="centred")``.
        With fewer than three draws the noise is unknown and nothing is corrected.

    Notes
    -----
    The bootstrap's own correction, 2|x| - f(x): x = d + noise of standard error s (the standard deviation over the
    draws), f(x) the mean of |x + noise| for normal noise. |x| itself is too large by up to 0.80 s, at d = 0, always
    upwards, so that a mean over many cells does not cover the truth. The corrected value is off by 0.47 s at 0 and
    -0.09 s at 1.5 s, by nothing on average over d. Choosing the path on the same questions adds a bias downwards that
    stays: see ``refitted``, and ``docs/power.md`` for the coverage of all.

    References
    ----------
    Efron and Tibshirani (1993), An Introduction to the Bootstrap, chapter 10.
    """
    signed = np.asarray(differences, float)
    size = np.abs(signed)
    if signed.shape[1] > 2:
        size = _debiased(size, signed[:, 1:].std(axis=1, ddof=1, keepdims=True))
    if skip is None:
        return np.asarray(size.mean(axis=0))
    kept = ~np.broadcast_to(np.asarray(skip, bool), size.shape)
    return np.asarray((size * kept).sum(axis=0) / kept.sum(axis=0))


def _debiased(size: Floats, error: Floats) -> Floats:
    z = np.divide(size, error, out=np.full(size.shape, np.inf), where=error > 0)
    folded = size * erf(z / np.sqrt(2)) + 2 * error * np.exp(-(z**2) / 2) / np.sqrt(2 * np.pi)
    return np.asarray(2 * size - folded)


def refitted(fixed: npt.ArrayLike, plain: npt.ArrayLike, in_draw: npt.ArrayLike, in_sample: npt.ArrayLike) -> Floats:
    """Corrected draws of a cell, moved to where the error lies once the choice of the path is corrected for, too.

    Parameters
    ----------
    fixed, plain : array_like, shape (draws,)
        Corrected (``corrected``) and plain errors of the path that the sample chose.
    in_draw, in_sample : array_like, shape (some draws,)
        Plain errors of the path that each draw chose, for the first so many draws: in that draw, and in the sample.
        Entry 0 of both is the sample's own error. NaN where a draw chose no path.

    Returns
    -------
    ndarray, shape (draws,)
        ``fixed`` shifted by the optimism of the choice. Goes with ``interval(kind="centred")``. ``fixed`` itself for a
        path that no draw changes. NaN if no draw chose a path.

    Notes
    -----
    Bootstrap estimate of optimism: a path looks better on the questions it was chosen on than on others, by as much as
    it looks better, against the path of the sample, in a draw it was chosen on than in the sample. Resampling knows the
    differences between paths only from the sample, where they look larger, so that a part of the bias stays; the choice
    of the best of all points at every budget (oracles by budget) keeps too much of it for an interval.

    References
    ----------
    Efron (1983), J. Am. Stat. Assoc. 78, 316-331.
    """
    moved, kept, seen, held = (np.asarray(one, float) for one in (fixed, plain, in_draw, in_sample))
    gaps = (held - kept[0]) - (seen - kept[: len(seen)])
    known = gaps[1:][~np.isnan(gaps[1:])]
    if not known.size:
        return np.full(moved.shape, np.nan)
    return np.asarray(moved + known.mean())


def interval(draws: npt.ArrayLike, confidence: float = 0.95, kind: Kind = "percentile") -> Interval:
    """Interval of a row from its bootstrap draws.

    Parameters
    ----------
    draws : array_like, shape (..., 1 + draws)
        Entry 0 is the point estimate and no part of the quantiles.
    confidence : float
        Nominal coverage, in (0, 1).
    kind : {"percentile", "centred"}
        ``percentile``: quantiles of the draws, the paper's intervals; for absolute errors they lie too high and may
        exclude the point. ``centred``: quantiles of the draws about their mean, laid around the point; for draws of
        ``corrected`` errors.

    Returns
    -------
    Interval
        NaN with fewer than two draws besides the point, and where a draw is NaN.
    """
    values = np.asarray(draws, float)
    point, drawn = values[..., 0], values[..., 1:]
    if drawn.shape[-1] < 2:
        return Interval(np.full(point.shape, np.nan), np.full(point.shape, np.nan))
    tail = (1 - confidence) / 2
    lo, hi = np.quantile(drawn, [tail, 1 - tail], axis=-1)
    if kind == "percentile":
        return Interval(lo, hi)
    move = point - drawn.mean(axis=-1)
    return Interval(lo + move, hi + move)


# ---- over models


def sign_flip_test(differences: npt.ArrayLike, flips: int = 100_000, seed: int = 0) -> float:
    """Two-sided p-value that the mean over models is zero, by flipping each model's sign.

    Parameters
    ----------
    differences : array_like, shape (models,)
        One number per model, for example the difference of its mean errors under two tiers.
    flips, seed : int
        Random flips with more than ``EXACT_MODELS`` models; with fewer, all 2^n are enumerated.

    Returns
    -------
    float
        At least 2 / 2^n: with fewer than 6 models it cannot fall below 0.05. 1 where all differences are zero; NaN
        without models.

    Notes
    -----
    Exact if the differences are symmetric about zero under the null hypothesis and independent between models.
    """
    values = np.asarray(differences, float)
    n = len(values)
    if n == 0 or np.isnan(values).any():
        return float("nan")
    observed = abs(values.sum()) - 1e-9 * np.abs(values).sum()
    if n <= EXACT_MODELS:
        signs = 1 - 2 * (np.arange(2**n)[:, None] >> np.arange(n) & 1).astype(np.int8)
        return float((np.abs(signs @ values) >= observed).mean())
    rng = resampler(seed, n, flips)
    signs = rng.choice(np.array([-1, 1], np.int8), (flips, n))
    return float((1 + (np.abs(signs @ values) >= observed).sum()) / (1 + flips))


def model_bootstrap(
    differences: npt.ArrayLike, draws: int = 10_000, seed: int = 0, confidence: float = 0.95
) -> tuple[float, float]:
    """Percentile interval of the mean over models, by resampling models.

    Returns
    -------
    tuple of float
        Lower and upper end; NaN with fewer than two models.

    Notes
    -----
    Too short with few models: at 7 normal differences the nominal 95% interval covers about 87%.
    """
    values = np.asarray(differences, float)
    n = len(values)
    if n < 2:
        return float("nan"), float("nan")
    rng = resampler(seed, n, draws)
    tail = (1 - confidence) / 2
    lo, hi = np.quantile(values[rng.integers(0, n, (draws, n))].mean(axis=1), [tail, 1 - tail])
    return float(lo), float(hi)


def holm(p_values: npt.ArrayLike) -> Floats:
    """Holm's adjusted p-values, in the given order.

    A NaN stays NaN and is not counted among the hypotheses.

    References
    ----------
    Holm (1979), Scand. J. Stat. 6, 65-70.
    """
    p = np.array(p_values, float)
    tested = np.flatnonzero(~np.isnan(p))
    order = tested[np.argsort(p[tested], kind="stable")]
    factors = len(order) - np.arange(len(order))
    p[order] = np.minimum(np.maximum.accumulate(p[order] * factors), 1)
    return p


def permutation_p(statistic: npt.ArrayLike) -> float:
    """p-value of the true pairing among re-pairings, where smaller is better.

    Parameters
    ----------
    statistic : array_like, shape (permutations,)
        Entry 0 is the true pairing, which counts among the permutations; NaN elsewhere is left out.

    Returns
    -------
    float
        Share of pairings with a statistic at most the true one, ties included. NaN if the true one is NaN.
    """
    values = np.asarray(statistic, float)
    if np.isnan(values[0]):
        return float("nan")
    known = values[~np.isnan(values)]
    return float((known <= values[0] + 1e-9 * abs(values[0])).mean())


# ---- two rows


@dataclass(frozen=True)
class Contrast:
    """Difference of two rows on the cells that both have.

    Attributes
    ----------
    difference : float
        Mean of the first minus mean of the second, percentage points; NaN without common cells.
    lo, hi : float
        Paired bootstrap over questions, given these models.
    p : float
        Sign-flip test over models.
    models, cells : int
        In common.
    differing : int
        Cells in which the two errors are not the same.
    """

    difference: float
    lo: float
    hi: float
    p: float
    models: int
    cells: int
    differing: int


def contrast(
    a: Errors,
    b: Errors,
    confidence: float = 0.95,
    kind: Kind = "percentile",
    mean: Callable[[Errors], Floats] = macro,
) -> Contrast:
    """Compare two rows whose draws are the same bootstrap.

    Parameters
    ----------
    a, b : Errors
        Cells that only one of them has are left out.
    confidence, kind
        Of the interval, see ``interval``.
    mean : callable
        ``macro`` or ``micro``.
    """
    ours, theirs = common(a, b)
    if not ours:
        nan = float("nan")
        return Contrast(nan, nan, nan, nan, models=0, cells=0, differing=0)
    gaps = {cell: ours[cell] - theirs[cell] for cell in ours}
    models = by_model(gaps)
    draws = mean(gaps)
    lo, hi = interval(draws, confidence, kind)
    return Contrast(
        difference=float(draws[0]),
        lo=float(lo),
        hi=float(hi),
        p=sign_flip_test([found[0] for found in models.values()]),
        models=len(models),
        cells=len(gaps),
        differing=sum(abs(float(gap[0])) > 1e-9 for gap in gaps.values()),
    )
