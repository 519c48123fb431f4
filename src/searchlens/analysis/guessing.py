"""What guessing alone would solve, and pass@k corrected for it.

For lettered options that follows from their number. For open answers it is measured: ``luck`` is pass@k of the same
samples, graded against the golds of other questions.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import polars as pl

from searchlens.analysis.class_pools import Pool
from searchlens.analysis.measures import LUCK, MEASURES, WITHOUT_LUCK, compared, frame
from searchlens.analysis.pool import missed
from searchlens.analysis.uncertainty import Floats, Interval, Resamples, with_width, without_rounding


def chance(options: npt.ArrayLike) -> Floats:
    """Probability g that a guess is right: 1 / options; 0 for a question without options.

    >>> chance([4, 8, 0]).tolist()
    [0.25, 0.125, 0.0]
    """
    number = np.asarray(options, float)
    found: Floats = np.divide(1.0, number, out=np.zeros_like(number), where=number > 0)
    return found


def null(guess: Floats, budgets: Sequence[int]) -> Floats:
    """pass@k of guessing alone, 1 - (1 - g)^k; shape (questions, budgets)."""
    return np.asarray(1 - (1 - guess[:, None]) ** np.asarray(budgets))


def luck(pool: Pool, budgets: Sequence[int]) -> Floats:
    """pass@k of the same samples if each question had the gold of another one: shape (questions, budgets).

    1 - C(n - l, k) / C(n, k), l the lucky samples, which the pool must know. Where its mean is near pass@k, pass@k
    shows no knowledge of the questions, only of what answers are like. Not to be subtracted from pass@k: a sample that
    knows the answer does not guess besides (``beside_luck``).
    """
    if pool.lucky is None:
        raise ValueError(f"lucky samples of {pool.policy} are unknown")
    return 1 - pool.rows(lambda n: missed(n, list(budgets)), pool.lucky)


def beside_luck(base: Pool, rl: Pool, budgets: Sequence[int], resamples: Resamples, confidence: float) -> pl.DataFrame:
    """Luck of both sides and of their difference, and pass@k without it: 1 - (1 - P) / (1 - L).

    ``MEASURES``, without rows if lucky samples are unknown; budgets above a pool are left out. P, pass@k, and L, luck,
    of both sides are drawn together. Of means over questions, also below 0; null if L is 1.

    Assumption: a question is solved if it is known or met by luck, independently of each other, and luck is alike on
    known and unknown questions: (1 - P) = (1 - known) (1 - L). It fails where a model repeats one answer to what it
    knows: such samples are hardly ever lucky, L is too small for its other questions, and too little is taken away.
    """
    ks = [k for k in budgets if k <= min(base.samples, rl.samples)]
    if base.lucky is None or rl.lucky is None or not ks:
        return pl.DataFrame(schema=MEASURES)
    ours, theirs = luck(base, ks), luck(rl, ks)
    columns = np.hstack([base.solved(ks), rl.solved(ks), ours, theirs])
    means = np.column_stack([columns.mean(axis=0), resamples.means(columns)])
    solved, lucky = means.reshape(2, 2, len(ks), -1)
    known = 1 - np.divide(1 - solved, 1 - lucky, out=np.full_like(solved, np.nan), where=lucky < 1)
    every = np.concatenate([known, known[1:] - known[:1]])
    ends = np.quantile(every[..., 1:], [(1 - confidence) / 2, (1 + confidence) / 2], axis=2)
    if len(columns) == 1:
        ends[:] = np.nan  # one question has no spread
    within = with_width(every[..., 0], without_rounding(Interval(*ends)), len(columns), confidence)
    plain = compared(LUCK, ours, theirs, resamples, confidence, ks=ks)
    return pl.concat([plain, frame(WITHOUT_LUCK, every[..., 0], within, ks=ks)])


def corrected(pool: Pool, guess: Floats, budgets: Sequence[int]) -> Floats:
    """pass@k without what guessing adds: 1 - [C(n - c, k) / C(n, k)] / (1 - g)^k, shape (questions, budgets).

    Also negative: a question that is solved less often than by guessing is not cut at 0, so that means stay unbiased.
    Unbiased if a sample either knows the answer, with some probability, or else guesses evenly: then it is wrong with
    probability (1 - known) (1 - g), and the result is the pass@k of knowing. Where a model avoids or prefers wrong
    options, it is not. The divisor (1 - g)^k makes it useless at large k: of four options it is 0.32 at k = 4 and 0.01
    at k = 16.

    The correction for guessing of multiple-choice tests (Lord and Novick 1968, Statistical Theories of Mental Test
    Scores), applied to the probability that all of k samples are wrong.
    """
    return np.asarray(1 - (1 - pool.solved(budgets)) / (1 - guess[:, None]) ** np.asarray(budgets))
