"""Intervals: Wilson for counts, percentile bootstrap over questions for everything else.

One set of bootstrap draws serves every operating point, metric and model of a benchmark, because it depends only on the
number of questions, the number of draws and the seed. So every difference of two estimates is a paired contrast. The
unit of resampling is the question, with all its samples and both sides of every pair (paper, section "Statistics").
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from statistics import NormalDist
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from searchlens.seeds import resampler

Floats = npt.NDArray[np.float64]


class Interval(NamedTuple):
    """Lower and upper ends, of the same shape; NaN if the interval is undefined."""

    lo: Floats
    hi: Floats


def wilson(hits: npt.ArrayLike, n: npt.ArrayLike, confidence: float = 0.95) -> Interval:
    """Wilson score intervals of proportions: ``hits`` of ``n`` trials, which are broadcast together.

    Ends in [0, 1]; NaN if n = 0. At 0 hits the lower end is exactly 0, at n hits the upper end is exactly 1.

    Trials must be independent: questions with one 0/1 estimate each, never several samples of one question. Coverage is
    close to nominal also for small n and for proportions near 0 and 1. Wilson (1927), J. Am. Stat. Assoc. 22, 209-212.
    """
    # Takes most of a second of CPU time to import, and most users of this module need no Wilson interval.
    from statsmodels.stats.proportion import proportion_confint

    count, trials = (np.array(part, float) for part in np.broadcast_arrays(hits, n))
    with np.errstate(invalid="ignore", divide="ignore"):
        lo, hi = proportion_confint(count, trials, alpha=1 - confidence, method="wilson")
    defined = trials > 0
    lo = np.where(defined & (count == 0), 0.0, lo)
    hi = np.where(defined & (count == trials), 1.0, hi)
    return Interval(np.where(defined, lo, np.nan), np.where(defined, hi, np.nan))


def clopper_pearson(hits: npt.ArrayLike, n: npt.ArrayLike, confidence: float = 0.95) -> Interval:
    """Clopper-Pearson intervals of proportions: either end fails with probability (1 - confidence) / 2 at most.

    ``hits`` of ``n`` independent trials, 0 <= hits <= n; an effective number need not be whole. ``confidence`` is that
    of both ends together. Ends in [0, 1]. Clopper and Pearson (1934), Biometrika 26, 404-413.
    """
    from statsmodels.stats.proportion import proportion_confint  # as in wilson

    count, trials = (np.array(part, float) for part in np.broadcast_arrays(hits, n))
    with np.errstate(invalid="ignore", divide="ignore"):
        return Interval(*proportion_confint(count, trials, alpha=1 - confidence, method="beta"))


def unseen(questions: npt.ArrayLike, confidence: float = 0.95) -> Floats:
    """What 0 events in N questions, N > 0, leave open: the upper end of the Wilson interval of 0 out of N.

    Proportions; the end that ``wilson`` gives, without its import.
    """
    z2 = NormalDist().inv_cdf((1 + confidence) / 2) ** 2
    return np.asarray(z2 / (np.asarray(questions, float) + z2))


def with_width(
    value: npt.ArrayLike,
    ends: Interval,
    questions: npt.ArrayLike,
    confidence: float = 0.95,
    limits: tuple[float, float] = (-1.0, 1.0),
) -> Interval:
    """Bootstrap intervals that contain their estimates and always have a width.

    ``ends`` are of the shape of ``value``; NaN stays NaN. ``questions``, the positive number behind each estimate, is
    broadcast. ``limits`` are the smallest and largest possible value of the statistic, in its own unit: one question in
    N that is different changes it by at most ``max(limits) / N``. An interval without a width becomes the estimate give
    or take ``max(limits) * unseen(questions)``, cut at the limits. Any other is kept, and moved up or down to its
    estimate where it excludes it.

    Draws only repeat what occurred in the sample. Where every question agrees, for example because both sides solve the
    same ones, all draws are equal, though another set of questions might have exceptions. What N questions without an
    exception say about these is the Wilson interval of 0 out of N.
    """
    point = np.asarray(value, float)
    flat = ends.hi - ends.lo <= _FLAT * max(limits)
    half = max(limits) * unseen(questions, confidence)
    low, high = np.clip(point - half, *limits), np.clip(point + half, *limits)
    lo, hi = np.where(flat, low, ends.lo), np.where(flat, high, ends.hi)
    return Interval(np.minimum(lo, point), np.maximum(hi, point))


_FLAT = 1e-7
"""Draws that differ by less than this share of the unit differ by rounding."""


def without_rounding(ends: Interval, unit: npt.ArrayLike = 1.0) -> Interval:
    """The interval, with ends of 0 where they differ from 0 by rounding alone: who leads is read off their signs.

    ``ends`` are quantiles of draws that were summed in single precision; ``unit``, of their shape or (), is the range
    of what was averaged over questions.

    >>> without_rounding(Interval(np.array([-0.015]), np.array([-5.6e-9]))).hi
    array([0.])
    """
    limit = _FLAT * np.asarray(unit, float)
    return Interval(*(np.where(np.abs(end) <= limit, 0.0, end) for end in ends))


@dataclass(frozen=True, eq=False)
class Resamples:
    """Bootstrap draws over questions, shared by all statistics on the same questions; made by ``Resamples.draw``.

    Two statistics are paired only if their questions are in the same order.
    """

    weights: npt.NDArray[np.float32]
    """How often each question occurs in each draw; every column sums to the number of questions. Read-only. Shape
    (questions, draws), of float32."""

    @staticmethod
    @functools.lru_cache(maxsize=32)
    def draw(questions: int, draws: int, seed: int) -> Resamples:
        """The draws for a number of questions; equal arguments give the same object.

        ValueError if there are no questions, or no draws. The seed is not negative.
        """
        if questions < 1 or draws < 1:
            raise ValueError(f"need at least one question and one draw, not {questions} and {draws}")
        rng = resampler(seed, questions, draws)
        chosen = rng.integers(0, questions, size=(draws, questions))
        flat = chosen + np.arange(draws)[:, None] * questions
        counts = np.bincount(flat.ravel(), minlength=draws * questions).reshape(draws, questions)
        weights = np.ascontiguousarray(counts.T, dtype=np.float32)
        weights.flags.writeable = False
        return Resamples(weights)

    @property
    def questions(self) -> int:
        """Number of questions."""
        return len(self.weights)

    def means(self, values: npt.ArrayLike) -> Floats:
        """Mean over the questions of each draw, shape (columns, draws), of values of shape (questions, columns).

        Columns are centred first. So single precision in the product costs about 1e-7 of the spread, and a constant
        column gives its value exactly.
        """
        centre, shift = self._centred(np.asarray(values, float))
        return centre[:, None] + shift

    def interval(self, values: npt.ArrayLike, confidence: float = 0.95) -> Interval:
        """Percentile interval of the mean over questions, column by column.

        ``values`` have shape (questions, columns): one statistic per column, in any unit; for a paired contrast, the
        difference of each question. Ends of shape (columns,) lie between the column's smallest and largest value. They
        are NaN for a column that contains NaN, and with a single question, which has no spread; without width if all
        questions are equal. Quantiles are interpolated linearly.

        The bootstrap does not allow for events that did not occur in the sample; for counts near 0 or n prefer
        ``wilson``. Efron and Tibshirani (1993), An Introduction to the Bootstrap, chapter 13.
        """
        columns = np.asarray(values, float)
        if self.questions == 1:
            unknown = np.full(columns.shape[1], np.nan)
            return Interval(unknown, unknown.copy())
        centre, shift = self._centred(columns)
        ends = quantiles(shift, confidence)
        least, most = columns.min(axis=0), columns.max(axis=0)
        return without_rounding(Interval(*(np.clip(centre + end, least, most) for end in ends)), most - least)

    def _centred(self, columns: Floats) -> tuple[Floats, npt.NDArray[np.float32]]:
        """Mean of each column, and the shift of it in each draw."""
        if columns.ndim != 2 or columns.shape[0] != self.questions:
            raise ValueError(f"values have shape {columns.shape}, the draws are over {self.questions} questions")
        centre = columns.mean(axis=0)
        scaled = ((columns - centre) / self.questions).astype(np.float32)
        return centre, np.ascontiguousarray(scaled.T) @ self.weights


def holm(p_values: npt.ArrayLike) -> Floats:
    """Holm's adjusted p-values, of the same shape; NaN, which does not count among the hypotheses, for NaN.

    Holm (1979), Scand. J. Stat. 6, 65-70.

    >>> holm([0.01, 0.04, float("nan")])
    array([0.02, 0.04,  nan])
    """
    from statsmodels.stats.multitest import multipletests  # as in ``wilson``

    p = np.array(p_values, float)
    tested = ~np.isnan(p)
    if tested.any():
        p[tested] = multipletests(p[tested], method="holm")[1]
    return p


def quantiles(draws: npt.NDArray[np.floating], confidence: float) -> Interval:
    """Central interval of each row of draws, linearly interpolated: the ends, shape (rows,), of ``confidence``.

    Draws have shape (rows, draws), without NaN, which would count as the largest ones, and are sorted in place along
    each row. The numbers are those of ``numpy.quantile``, which takes seven times as long in single precision.
    """
    draws.sort(axis=1)
    tail = (1 - confidence) / 2
    position = np.array([tail, 1 - tail]) * (draws.shape[1] - 1)
    below, above = np.floor(position).astype(int), np.ceil(position).astype(int)
    ends = draws[:, below] + (position - below) * (draws[:, above] - draws[:, below])
    return Interval(ends[:, 0], ends[:, 1])
