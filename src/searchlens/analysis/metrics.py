"""The metrics of the landscape, each declared once.

There are three ways to declare a metric (``points.Metric`` lists the options):

``@metric(name, title=..., per_sample="sum")``, or ``"mean"``
    A function of a pool that returns a number for each sample, shape (rows, samples). The metric is their sum or mean
    over n samples.
``@metric(name, title=..., of=("P", "Q"))``
    A function of the estimates of other metrics. It is applied to their first-k estimates and to their expectations.
``@metric(name, title=...)``
    A class with static methods ``first_k`` and ``unbiased``, or without ``unbiased`` where there is no closed form.
    Arguments: the pool, budgets n as an array of int, and ``LandscapeOptions``. Result: shape (rows, budgets).

A row is one question under one policy. NaN means that an estimate is unknown.
"""

from __future__ import annotations

import numpy as np

from searchlens.analysis.pool import (
    Bools,
    Floats,
    Ints,
    SamplePool,
    class_sizes,
    expected_best,
    expected_vote,
    first_best,
    missed,
    prefix_vote,
)
from searchlens.catalogue import metric
from searchlens.config.landscape import LandscapeOptions


@metric("P", title="pass@k", hits=True, compared=True, drawn=True, recorded=True)
class Solved:
    """Whether any of the n samples is right; expected: the unbiased pass@k (Chen et al. 2021, section 2.1)."""

    @staticmethod
    def first_k(pool: SamplePool, budgets: Ints, options: LandscapeOptions) -> Bools:
        """Any of the first n."""
        return pool.correct.cumsum(axis=1)[:, budgets - 1] > 0

    @staticmethod
    def unbiased(pool: SamplePool, budgets: Ints, options: LandscapeOptions) -> Floats:
        """One minus the share of subsets without a right sample."""
        share: Floats = 1 - missed(pool.samples, budgets)[pool.correct.sum(axis=1)]
        return share


@metric("Q", title="self-consistency", hits=True, fractional=True, compared=True, drawn=True, recorded=True)
class MajorityVote:
    """Whether the most frequent valid answer of the n is right; 0 if no answer is valid."""

    @staticmethod
    def first_k(pool: SamplePool, budgets: Ints, options: LandscapeOptions) -> Floats:
        """Ties as ``options.ties`` says."""
        shared = options.ties == "fractional"
        return np.stack([prefix_vote(pool, n, shared=shared) for n in budgets], axis=1)

    @staticmethod
    def unbiased(pool: SamplePool, budgets: Ints, options: LandscapeOptions) -> Floats:
        """Tied answers share; NaN for pools of more than 512 samples."""
        return expected_vote(pool, budgets)


@metric("B", title="best-of-N", hits=True, recorded=True)
class BestOfN:
    """Whether the sample with the highest score of the n is right, valid or not; NaN where scores are unknown."""

    @staticmethod
    def first_k(pool: SamplePool, budgets: Ints, options: LandscapeOptions) -> Floats:
        """Ties go to the earlier sample."""
        return first_best(-pool.score, pool.correct, budgets)

    @staticmethod
    def unbiased(pool: SamplePool, budgets: Ints, options: LandscapeOptions) -> Floats:
        """Ties share."""
        return expected_best(-pool.score, pool.correct, budgets)


@metric("T", title="first finish", hits=True, recorded=True)
class FirstToFinish:
    """Whether the first of the n that finishes with a valid answer is right; 0 if none does."""

    @staticmethod
    def first_k(pool: SamplePool, budgets: Ints, options: LandscapeOptions) -> Floats:
        """Ties go to the earlier sample."""
        return first_best(_finish_key(pool, options), pool.finished & pool.correct, budgets)

    @staticmethod
    def unbiased(pool: SamplePool, budgets: Ints, options: LandscapeOptions) -> Floats:
        """Ties share."""
        return expected_best(_finish_key(pool, options), pool.finished & pool.correct, budgets)


@metric("D", title="diversity, P - Q", of=("P", "Q"), recorded=True)
def diversity(solved: Floats, vote: Floats) -> Floats:
    """What a vote loses of the questions that any sample solves."""
    return solved - vote


@metric("distinct", title="distinct answers", recorded=True)
class Distinct:
    """Number of different valid answers among the n."""

    @staticmethod
    def first_k(pool: SamplePool, budgets: Ints, options: LandscapeOptions) -> Ints:
        """Among the first n."""
        is_new = (pool.first == np.arange(pool.samples)) & pool.valid
        seen: Ints = is_new.cumsum(axis=1)[:, budgets - 1]
        return seen

    @staticmethod
    def unbiased(pool: SamplePool, budgets: Ints, options: LandscapeOptions) -> Floats:
        """Sum over answers of the probability that a subset contains one."""
        present = 1 - missed(pool.samples, budgets)
        sizes = class_sizes(pool, pool.samples)
        return np.stack([column[sizes].sum(axis=1) for column in present.T], axis=1)


@metric("C", title="generated tokens per question", per_sample="sum", recorded=True)
def cost(pool: SamplePool) -> Floats:
    """Tokens drawn, whether returned or not."""
    return pool.spent


@metric("valid", title="share of samples with a valid answer", per_sample="mean", recorded=True)
def valid(pool: SamplePool) -> Bools:
    """Whether the sample states an answer."""
    return pool.valid


@metric("stopped", title="share of samples that ended by a stop token", per_sample="mean", recorded=True)
def stopped(pool: SamplePool) -> Bools | Floats:
    """Whether the sample ended by itself, before the token limit; NaN where that is unknown."""
    return pool.stopped


@metric("truncated", title="share of samples cut off by the token limit", of=("stopped",), affine=True, recorded=True)
def truncated(share: Floats) -> Floats:
    """The complement of ``stopped``."""
    return 1 - share


def _finish_key(pool: SamplePool, options: LandscapeOptions) -> Floats:
    """What the first to finish has least of: generated tokens, or nothing (then order decides); inf if unfinished.

    NaN if it is not known how the samples ended, or if it is generated tokens and they are unknown.
    """
    key = pool.tokens if options.first_finish == "shortest" else np.zeros_like(pool.tokens)
    key = np.where(np.isnan(pool.stopped), np.nan, key)
    return np.where(pool.finished | np.isnan(key), key, np.inf)
