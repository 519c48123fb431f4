"""Intervals: Wilson for counts, percentile bootstrap over questions for everything else.

One set of bootstrap draws serves every operating point, metric and model of a benchmark: the draws depend on the number
of questions, the number of draws and the seed alone. So any difference of two readouts is a paired contrast (paper,
section "Statistics"; the question is the unit that is resampled, with all its samples and both models' sides of it).
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from searchlens.seeds import resampler

Floats = npt.NDArray[np.float64]


class Interval(NamedTuple):
    """Lower and upper ends, same shape; NaN where the interval is undefined."""

    lo: Floats
    hi: Floats


def wilson(hits: npt.ArrayLike, n: npt.ArrayLike, confidence: float = 0.95) -> Interval:
    """Wilson score interval of a proportion.

    Parameters
    ----------
    hits : array_like of int
        Successes, 0 <= hits <= n.
    n : array_like of int
        Trials; broadcasts against ``hits``.
    confidence : float
        Nominal coverage, in (0, 1).

    Returns
    -------
    Interval
        Ends in [0, 1]. NaN where n = 0. The lower end is exactly 0 at 0 hits and the upper end exactly 1 at n hits.

    Notes
    -----
    Trials are questions, one 0/1 readout each. Samples of one question are not independent trials.

    References
    ----------
    Wilson (1927), J. Am. Stat. Assoc. 22, 209-212.
    """
    # More than a second to import.
    from statsmodels.stats.proportion import proportion_confint

    count, trials = (np.array(part, float) for part in np.broadcast_arrays(hits, n))
    with np.errstate(invalid="ignore", divide="ignore"):
        lo, hi = proportion_confint(count, trials, alpha=1 - confidence, method="wilson")
    defined = trials > 0
    lo = np.where(defined & (count == 0), 0.0, lo)
    hi = np.where(defined & (count == trials), 1.0, hi)
    return Interval(np.where(defined, lo, np.nan), np.where(defined, hi, np.nan))


@dataclass(frozen=True, eq=False)
class Resamples:
    """Bootstrap draws over questions, shared by everything that is computed on the same questions.

    Attributes
    ----------
    weights : ndarray of float32, shape (questions, draws)
        How often each question occurs in each draw; every column sums to the number of questions. Read-only.

    Notes
    -----
    Use ``Resamples.draw``. Rows of different tables are paired only if their questions are in the same order.
    """

    weights: npt.NDArray[np.float32]

    @staticmethod
    def draw(questions: int, draws: int = 2000, seed: int = 0) -> Resamples:
        """The draws for so many questions: the same object for the same arguments.

        Parameters
        ----------
        questions : int
            At least 1.
        draws : int
            At least 1.
        seed : int
            Non-negative.

        Raises
        ------
        ValueError
            Nothing to resample, or no draws.
        """
        if questions < 1 or draws < 1:
            raise ValueError(f"need at least one question and one draw, not {questions} and {draws}")
        return _draw(questions, draws, seed)

    @property
    def questions(self) -> int:
        """Number of questions."""
        return len(self.weights)

    def means(self, values: npt.ArrayLike) -> Floats:
        """Mean over the questions of each draw.

        Parameters
        ----------
        values : array_like, shape (questions, columns)
            One statistic per column.

        Returns
        -------
        ndarray, shape (columns, draws)

        Notes
        -----
        Columns are centred first, so single precision in the product costs about 1e-7 of the spread, and a column of
        zeros gives exact zeros.
        """
        centre, moved = self._moved(np.asarray(values, float))
        return centre[:, None] + moved

    def interval(self, values: npt.ArrayLike, confidence: float = 0.95) -> Interval:
        """Percentile interval of the mean over questions, column by column.

        Parameters
        ----------
        values : array_like, shape (questions, columns)
            One statistic per column, any unit. For a paired contrast, the difference per question.
        confidence : float
            Nominal coverage, in (0, 1).

        Returns
        -------
        Interval
            Ends of shape (columns,), within the column's smallest and largest value. NaN for a column that contains
            NaN, and for a single question, whose spread over questions is unknown.

        Notes
        -----
        Quantiles are interpolated linearly. Where all questions agree the interval has no width: the bootstrap cannot
        see events that never happened, so for counts near 0 or n prefer ``wilson``.

        References
        ----------
        Efron and Tibshirani (1993), An Introduction to the Bootstrap, chapter 13.
        """
        columns = np.asarray(values, float)
        if self.questions == 1:
            unknown = np.full(columns.shape[1], np.nan)
            return Interval(unknown, unknown.copy())
        centre, moved = self._moved(columns)
        ends = quantiles(moved, confidence)
        least, most = columns.min(axis=0), columns.max(axis=0)
        return Interval(*(np.clip(centre + end, least, most) for end in ends))

    def _moved(self, columns: Floats) -> tuple[Floats, npt.NDArray[np.float32]]:
        """Mean of each column and by how much each draw moves it."""
        if columns.ndim != 2 or columns.shape[0] != self.questions:
            raise ValueError(f"values have shape {columns.shape}, the draws are over {self.questions} questions")
        centre = columns.mean(axis=0)
        scaled = ((columns - centre) / self.questions).astype(np.float32)
        return centre, np.ascontiguousarray(scaled.T) @ self.weights


def quantiles(draws: npt.NDArray[np.floating], confidence: float) -> Interval:
    """The central interval of each row of ``draws`` (rows, draws), linearly interpolated; rows are sorted in place.

    The same numbers as ``numpy.quantile``, which takes seven times as long on rows of single precision.
    """
    draws.sort(axis=1)
    tail = (1 - confidence) / 2
    position = np.array([tail, 1 - tail]) * (draws.shape[1] - 1)
    below, above = np.floor(position).astype(int), np.ceil(position).astype(int)
    ends = draws[:, below] + (position - below) * (draws[:, above] - draws[:, below])
    return Interval(ends[:, 0], ends[:, 1])


@functools.lru_cache(maxsize=32)
def _draw(questions: int, draws: int, seed: int) -> Resamples:
    rng = resampler(seed, questions, draws)
    chosen = rng.integers(0, questions, size=(draws, questions))
    flat = chosen + np.arange(draws)[:, None] * questions
    counts = np.bincount(flat.ravel(), minlength=draws * questions).reshape(draws, questions)
    weights = np.ascontiguousarray(counts.T, dtype=np.float32)
    weights.flags.writeable = False
    return Resamples(weights)
