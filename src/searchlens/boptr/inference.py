"""From errors of cells to statements about rows of a table: means over cells, intervals, tests over models.

Everything here works on plain arrays. ``Errors`` are the errors of one row in percentage points: for each cell, an
array over the draws of a bootstrap over questions, of which draw 0 is the sample. There are two kinds of uncertainty:
the bootstrap over questions takes the measured models as given, the tests over models do not (``docs/power.md``).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.special import erf, ndtr, stdtrit
from scipy.stats import t as student

from searchlens.analysis.classes import effective
from searchlens.analysis.uncertainty import Floats, Interval, with_width
from searchlens.seeds import resampler

Errors = Mapping[tuple[str, str], Floats]
"""(model, benchmark) to errors in percentage points, shape (draws,)."""
Kind = Literal["percentile", "centred"]
SAME = 1e-5
"""Percentage points below which two errors are the same: they are kept in single precision."""
EXACT_MODELS = 20
"""Enumerate all sign flips up to this many models and sample beyond; each further model doubles 0.5 s and 0.2 GiB."""


# ---- rows of a table


def macro(errors: Errors) -> Floats:
    """Mean over models of each model's mean over its cells, per draw: how the paper averages."""
    return np.asarray(np.mean(list(by_model(errors).values()), axis=0))


def by_model(errors: Errors) -> dict[str, Floats]:
    """Each model's mean over its cells, per draw; a ValueError if there are no cells."""
    if not errors:
        raise ValueError("no cells to average")
    models = dict.fromkeys(model for model, _ in errors)
    return {name: np.mean([cell for (model, _), cell in errors.items() if model == name], axis=0) for name in models}


# ---- bias of absolute errors


def corrected(differences: npt.ArrayLike) -> Floats:
    """Error of a cell without the bias of absolute values, per draw, from its signed gaps, shape (budgets, draws).

    Nearly unbiased for mean_b |d_b|; may be slightly negative near zero. Use with ``interval(kind="centred")``. With
    fewer than three draws the noise is unknown, and the plain error is returned. Draw 0 is the sample.

    Bootstrap bias correction, 2|x| - f(x). Here x = d + noise of standard error s (estimated by the standard deviation
    over the draws), and f(x) is the mean of |x + noise| for normal noise. The plain |x| is too large by up to 0.80 s
    (at d = 0) and never too small, so the bias of a mean over many cells does not average out. The corrected value is
    off by 0.47 s at d = 0 and by -0.09 s at d = 1.5 s; averaged over d, by nothing. A path that was chosen on the same
    questions has a second bias, downwards, which stays: see ``refitted``, and ``docs/validation.md`` for coverage.

    Efron and Tibshirani (1993), An Introduction to the Bootstrap, chapter 10.
    """
    signed = np.asarray(differences, float)
    known = signed.shape[1] > 2
    return folded(signed, signed[:, 1:].std(axis=1, ddof=1) if known else np.zeros(len(signed)))


def folded(differences: npt.ArrayLike, error: npt.ArrayLike, skip: npt.ArrayLike | None = None) -> Floats:
    """``corrected`` for differences, shape (budgets, draws), whose standard errors, shape (budgets,), are known.

    ``skip``: budgets to leave out of the mean, shape (budgets, 1) or (budgets, draws); NaN in a draw that skips all.
    """
    size = np.abs(np.asarray(differences, float))
    noise = np.broadcast_to(np.asarray(error, float)[:, None], size.shape)
    z = np.divide(size, noise, out=np.full(size.shape, np.inf), where=noise > 0)
    expected = size * erf(z / np.sqrt(2)) + 2 * noise * np.exp(-(z**2) / 2) / np.sqrt(2 * np.pi)
    counted = np.ones(size.shape) if skip is None else ~np.broadcast_to(np.asarray(skip, bool), size.shape)
    with np.errstate(invalid="ignore"):
        return np.asarray(((2 * size - expected) * counted).sum(axis=0) / counted.sum(axis=0))


def refitted(fixed: npt.ArrayLike, plain: npt.ArrayLike, in_draw: npt.ArrayLike, in_sample: npt.ArrayLike) -> Floats:
    """Corrected draws of a cell, moved by the optimism of a path that was chosen on the same questions.

    ``fixed`` and ``plain``: corrected and plain errors of the path that the sample chose, shape (draws,). ``in_draw``
    and ``in_sample``: plain errors of the path that each of the first n draws chose, in that draw and in the sample,
    shape (n,); entry 0 of both is the error of the sample's path, NaN where a draw chose no path. Equal to ``fixed`` if
    every draw chooses the sample's path, NaN if none chose one. Use with ``interval(kind="centred")``.

    Bootstrap estimate of optimism. A path that is chosen on some questions has a smaller error on these than on others.
    The difference is estimated by that between a draw, on which the path is chosen, and the sample; the same difference
    of the sample's path is subtracted, to remove noise. Resampling takes the differences between paths from the sample,
    where they are exaggerated, so a part of the bias stays. For the best of all points at every budget (the per-budget
    oracles) too much of it stays for an interval.

    Efron (1983), J. Am. Stat. Assoc. 78, 316-331.
    """
    draws, error, inside, outside = (np.asarray(part, float) for part in (fixed, plain, in_draw, in_sample))
    optimism = ((outside - error[0]) - (inside - error[: len(inside)]))[1:]
    defined = optimism[~np.isnan(optimism)]
    if not defined.size:
        return np.full(draws.shape, np.nan)
    return np.asarray(draws + defined.mean())


def iterated(
    error: float, shift: npt.ArrayLike, nested: npt.ArrayLike, in_draw: npt.ArrayLike, in_sample: npt.ArrayLike
) -> Floats:
    """Error of a path that was chosen on the same questions, without its biases, then the same plus noise, (1 +
    draws,).

    ``error``: plain, of the sample's path in the sample. ``shift``: plain error of the path that each draw chose, in
    the sample minus in that draw. ``nested``: the same one level below, of the path that a draw from a draw chose.
    ``in_draw`` and ``in_sample``: errors of each draw's path in that draw and in the sample, ``folded``. NaN is left
    out.

    The bias of the plain error, absolute values and choice together, is estimated by that in the draws, -mean(shift).
    Draws know the truth only from the sample, where paths differ more than in truth and few errors are small. So they
    show too little of both biases, and draws from draws show even less: -mean(nested). What is lost from the first to
    the second level is added to the first (iterated bootstrap). One draw from each draw is enough for a mean. The noise
    is that of a draw's error around the error of its own path in the sample: the estimand is the error of the path that
    was chosen, whichever it is.

    Davison and Hinkley (1997), Bootstrap Methods and their Application, section 3.9; Hall and Martin (1988), Biometrika
    75, 661-671.
    """
    first, second = np.asarray(shift, float), np.asarray(nested, float)
    noise = np.asarray(in_draw, float) - np.asarray(in_sample, float)
    if np.isnan(first).all():
        return np.full(1 + len(first), np.nan)
    estimate = error + 2 * np.nanmean(first) - (np.nanmean(second) if not np.isnan(second).all() else np.nanmean(first))
    around = np.nan_to_num(noise - np.nanmean(noise)) if not np.isnan(noise).all() else np.zeros(len(noise))
    return np.concatenate([[estimate], estimate + around])


def freedom(values: npt.ArrayLike) -> float:
    """Degrees of freedom of the variance of a mean over questions, by its kurtosis.

    2 n m / (n - m) with m = (sum of squares)^2 / (sum of fourth powers) of the centred values: about n if they are
    normal, few if few questions differ from the rest. From 1 to n - 1; 1 if nothing varies.

    Satterthwaite (1946), Biometrics Bull. 2, 110-114; the variance of a sample variance is (kurtosis - 1) / n.
    """
    x = np.asarray(values, float)
    n, m = len(x), float(effective(x - x.mean()))
    if n < 3 or not m:
        return 1.0
    return float(np.clip(2 * n * m / (n - m) if m < n else n - 1, 1, n - 1))


def interval(
    draws: npt.ArrayLike, confidence: float = 0.95, kind: Kind = "percentile", freedom: float = math.inf
) -> Interval:
    """Interval of a row from its bootstrap draws, shape (..., 1 + draws), of which entry 0 is the point estimate.

    ``percentile``: quantiles of the draws, as in the paper; for absolute errors they lie too high and may exclude the
    point. ``centred``: the point give or take a quantile of the distance of draws from their mean, for ``corrected``
    errors. Unlike quantiles on either side it is not short where the estimate is near 0; with ``freedom``, the degrees
    of freedom of the variance, it has the tails that Student's quantile has as a normal one. NaN with fewer than two
    draws after the point, and if any draw is NaN. Without width if all draws are equal.
    """
    values = np.asarray(draws, float)
    point, drawn = values[..., 0], values[..., 1:]
    if drawn.shape[-1] < 2:
        return Interval(np.full(point.shape, np.nan), np.full(point.shape, np.nan))
    tail = (1 - confidence) / 2
    if kind == "percentile":
        lo, hi = np.quantile(drawn, [tail, 1 - tail], axis=-1)
        return Interval(lo, hi)
    if math.isfinite(freedom):
        tail = float(ndtr(stdtrit(max(freedom, 1), tail)))
    half = np.quantile(np.abs(drawn - drawn.mean(axis=-1, keepdims=True)), 1 - 2 * tail, axis=-1)
    return Interval(point - half, point + half)


@dataclass(frozen=True, eq=False)
class ErrorDraws:
    """An error in the sample (entry 0) and in the draws of a bootstrap over questions, percentage points."""

    plain: npt.NDArray[np.floating]
    corrected: npt.NDArray[np.floating]
    """``plain``, ``corrected``: the error with its path held fixed, and the same without its biases (``corrected``,
    ``refitted``). The number of draws may differ. Shape (1 + draws,)."""
    questions: float
    """Number of questions behind the error; of a mean over cells the smallest."""
    freedom: float = math.inf
    """Degrees of freedom of its variance (``freedom``); infinite if unknown."""

    @staticmethod
    def of(gaps: npt.ArrayLike, questions: float) -> ErrorDraws:
        """The error of a cell from its signed gaps, shape (budgets, draws); corrected for absolute values alone."""
        signed = np.asarray(gaps, float)
        return ErrorDraws(np.abs(signed).mean(axis=0), corrected(signed), questions)

    @staticmethod
    def mean(errors: Sequence[ErrorDraws]) -> ErrorDraws:
        """The mean of the errors of some cells, draw by draw."""
        plain, of_corrected = (
            np.mean(sides, axis=0) for sides in zip(*((e.plain, e.corrected) for e in errors), strict=True)
        )
        return ErrorDraws(plain, of_corrected, min(error.questions for error in errors))

    def minus(self, other: ErrorDraws) -> ErrorDraws:
        """The difference of two errors on the same questions, draw by draw."""
        plain, of_corrected = self.plain - other.plain, self.corrected - other.corrected
        return ErrorDraws(plain, of_corrected, min(self.questions, other.questions))

    def columns(self, confidence: float, limits: tuple[float, float] = (0.0, 100.0)) -> dict[str, Any]:
        """Columns ``error``, ``lo``, ``hi``, ``corrected``, ``lo_corrected`` and ``hi_corrected`` of a frame.

        ``lo`` to ``hi`` is the paper's percentile interval, which may exclude ``error``. ``lo_corrected`` to
        ``hi_corrected`` contains ``corrected``, has a width (``uncertainty.with_width``) and is cut at ``limits``,
        which only ``corrected`` may exceed.
        """
        centred = interval(self.corrected, confidence, "centred", self.freedom)
        within = Interval(*(np.clip(end, *limits) for end in centred))
        ends = with_width(self.corrected[0], within, self.questions, confidence, limits)
        values = (self.plain[0], *interval(self.plain, confidence), self.corrected[0], *ends)
        return {name: defined(value) for name, value in zip(ERROR_COLUMNS, values, strict=True)}


ERROR_COLUMNS = ("error", "lo", "hi", "corrected", "lo_corrected", "hi_corrected")


def defined(value: Any) -> float | None:
    """A number as frames hold it: null if undefined."""
    return float(value) if value is not None and np.isfinite(value) else None


# ---- over models


def sign_flip_test(differences: npt.ArrayLike, flips: int = 100_000) -> float:
    """Two-sided sign-flip test that the mean over models is zero; exact if their differences are symmetric and
    independent.

    The p-value: share of flips whose mean is at least as far from 0 as the observed one, which counts as a flip. So
    never below 0.05 with fewer than 6 models. 1 if all differences are zero. NaN without models, or if one is NaN. With
    more than ``EXACT_MODELS`` models ``flips`` random flips are drawn, otherwise all 2^n are enumerated.
    """
    values = np.asarray(differences, float)
    n = len(values)
    if n == 0 or np.isnan(values).any():
        return float("nan")
    observed = abs(values.sum()) - 1e-9 * np.abs(values).sum()
    if n <= EXACT_MODELS:
        signs = 1 - 2 * (np.arange(2**n)[:, None] >> np.arange(n) & 1).astype(np.int8)
        return float((np.abs(signs @ values) >= observed).mean())
    signs = resampler(0, n, flips).choice(np.array([-1, 1], np.int8), (flips, n))
    return float((1 + (np.abs(signs @ values) >= observed).sum()) / (1 + flips))


class OverBoth(NamedTuple):
    """A mean over models, for other models and other questions of the same kinds."""

    lo: float
    hi: float
    """``lo``, ``hi``: interval around the mean."""
    p: float
    """Two-sided, that the mean is zero."""
    spread: float
    """Standard deviation between models that noise of questions and samples does not explain; 0 if it explains all."""


def over_both(differences: Sequence[npt.ArrayLike], confidence: float = 0.95) -> OverBoth:
    """Mean over models if both the models and the questions could have been others.

    ``differences`` has one entry per model, percentage points: its difference in the sample, then in the draws of one
    bootstrap over questions that the models share. All NaN with fewer than two models, if a number is NaN, and if all
    differences are one number other than zero, whose spread between models is then unknown (numbers within ``SAME``
    count as one). If all are zero p is 1 and the interval has no width.

    Hierarchical model with crossed effects: d_m = mu + u_m + e_m, u_m the effect of the pair, e_m the noise of
    questions and decoding. Pairs share questions, so that e_m and e_m' covary; the draws give their covariances. With
    S^2 the variance of d_m over models and C the mean covariance of two models over draws,
    Var(mean) = S^2 / M + max(0, C): the first term holds the spread of pairs and the noise of each, the second what
    all share. The interval is Student's, with degrees of freedom after Satterthwaite, M - 1 if C is 0. Then it is the
    paired t test over models. ``spread`` is sqrt(S^2 - mean noise variance + C), if that is positive.

    Owen (2007), Ann. Appl. Stat. 1, 386-411 (crossed random effects); Satterthwaite (1946), Biometrics Bull. 2,
    110-114.
    """
    values = np.asarray(differences, float)
    unknown = OverBoth(*[float("nan")] * 4)
    if len(values) < 2 or np.isnan(values).any():
        return unknown
    sample, models = values[:, 0], len(values)
    mean = float(sample.mean())
    if np.ptp(sample) <= SAME:
        return OverBoth(mean, mean, 1.0, 0.0) if abs(mean) <= SAME else unknown
    covariance = np.cov(values[:, 1:]) if values.shape[1] > 2 else np.zeros((models, models))
    noise = float(np.trace(covariance)) / models
    shared = float(covariance.sum() - np.trace(covariance)) / (models * (models - 1))
    between = float(sample.var(ddof=1))
    variance = between / models + max(0.0, shared)
    freedom = (models - 1) * (variance / (between / models)) ** 2
    reach = float(student.ppf((1 + confidence) / 2, freedom)) * math.sqrt(variance)
    p = 2 * float(student.sf(abs(mean) / math.sqrt(variance), freedom))
    return OverBoth(mean - reach, mean + reach, p, math.sqrt(max(0.0, between - noise + shared)))


def model_bootstrap(
    differences: npt.ArrayLike, draws: int = 10_000, seed: int = 0, confidence: float = 0.95
) -> tuple[float, float]:
    """Percentile interval of the mean over models, by resampling models; NaN with fewer than two models.

    Too short with few models: the nominal 95% interval of 7 normal differences covers 87%.
    """
    values = np.asarray(differences, float)
    n = len(values)
    if n < 2:
        return float("nan"), float("nan")
    tail = (1 - confidence) / 2
    lo, hi = np.quantile(values[resampler(seed, n, draws).integers(0, n, (draws, n))].mean(axis=1), [tail, 1 - tail])
    return float(lo), float(hi)


def permutation_p(statistic: npt.ArrayLike) -> float:
    """p-value of the true pairing among all pairings; a smaller statistic is better.

    Share of pairings with a statistic of at most the true one (entry 0), ties included; so at least 1 / permutations.
    NaN if the true one is NaN; NaN in other entries is left out.
    """
    values = np.asarray(statistic, float)
    if np.isnan(values[0]):
        return float("nan")
    defined = values[~np.isnan(values)]
    return float((defined <= values[0] + 1e-9 * abs(values[0])).mean())


# ---- two rows

_EQUAL = 1e-4
"""Errors in percentage points that differ by at most this are equal: sums of expectations, in single precision, that
should agree differ by less, and one question of 10,000 makes a hundred times as much."""


def differing(gaps: Errors) -> int:
    """Number of cells in which two errors differ, from their differences."""
    return sum(abs(float(gap[0])) > _EQUAL for gap in gaps.values())


def paired(gaps: Errors, confidence: float, kind: Kind = "percentile") -> tuple[float, Interval]:
    """Mean (``macro``) of the differences of two rows, and its interval of the paired bootstrap over questions.

    The models are taken as given. NaN if the difference is 0 in every draw, as it is if both rows predict the same:
    then there is nothing to be uncertain about.
    """
    draws = macro(gaps)
    ends = interval(draws, confidence, kind)
    nothing = np.array(np.nan)
    return float(draws[0]), Interval(nothing, nothing) if np.abs(draws).max() <= _EQUAL else ends
