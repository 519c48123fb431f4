"""How reliably questions are solved: Cover@tau, G-Pass@k, mG-Pass@k and pass^k.

pass@k asks whether any of k samples is right. These ask how many of them are.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy import stats

from searchlens.analysis.class_pools import Pool
from searchlens.analysis.uncertainty import Floats

SLACK = 1e-9
"""A share of samples that misses its threshold by less meets it: 0.05 of 20 samples is 1 sample."""


def cover(pool: Pool, taus: Sequence[float]) -> Floats:
    """Cover@tau: whether at least a share tau of a question's samples is right; 0 or 1, shape (questions, taus).

    The pool has as many samples of every question. The share c / n stands for the chance of a right answer; with few
    samples it is noisy, and a tau below 1 / n asks for one right sample. pass@k is the integral over tau of Cover@tau
    times k (1 - tau)^(k - 1). arXiv:2510.08325 (2025).
    """
    return (pool.correct[:, None] >= _whole(taus, pool.samples)).astype(float)


def g_pass(pool: Pool, k: int, taus: Sequence[float]) -> Floats:
    """G-Pass@k at tau: probability that at least ceil(tau k) of k samples are right, the mean over all k-subsets.

    Shape (questions, taus). tau = 1 is pass^k, C(c, k) / C(n, k): all of k samples are right; a tau of 1 / k or less is
    pass@k. Liu et al. (2024), arXiv:2412.13147; Yao et al. (2024), arXiv:2406.12045 (pass^k).
    """
    _check(pool, k)
    return _at_least(pool, k, _whole(taus, k))


def mg_pass(pool: Pool, k: int) -> Floats:
    """mG-Pass@k: twice the integral of G-Pass@k over tau from 0.5 to 1, as (2 / k) times the sum over i of G-Pass@k at
    tau = i / k, i from ceil(k / 2) + 1 to k.

    Shape (questions, 1), from 0 to 1 - 1 / k for odd k, to 1 for even k; k is at least 2, because with one sample the
    sum has no term. Liu et al. (2024), arXiv:2412.13147.
    """
    _check(pool, k)
    if k < 2:
        raise ValueError("mG-Pass@k needs k of at least 2")
    terms = np.arange(-(-k // 2) + 1, k + 1, dtype=float)
    total: Floats = 2 / k * _at_least(pool, k, terms).sum(axis=1, keepdims=True)
    return total


def _at_least(pool: Pool, k: int, right: Floats) -> Floats:
    def table(n: int) -> Floats:
        return np.asarray(stats.hypergeom.sf(right[None, :] - 1, n, np.arange(n + 1)[:, None], k))

    return pool.rows(table, pool.correct)


def _whole(taus: Sequence[float], samples: int) -> Floats:
    """Right samples that a share of ``samples`` asks for."""
    if not all(0 < tau <= 1 for tau in taus):
        raise ValueError(f"thresholds {list(taus)} are not all in (0, 1]")
    return np.ceil(np.asarray(taus) * samples - SLACK)


def _check(pool: Pool, k: int) -> None:
    if not 1 <= k <= pool.samples:
        raise ValueError(f"k = {k} is not in [1, {pool.samples}]")


def entropy(pool: Pool) -> Floats:
    """Entropy of the answers to each question in nats, plain and corrected: shape (questions, 2).

    Plain is -sum f log f over the shares f of the classes; samples without an answer are one class. It is too low by
    about (K - 1) / (2 n), K the number of classes that occur, which the second adds (Miller and Madow). K counts only
    what occurred, so that this is too low, too, where most samples have answers of their own: neither can exceed log n
    by much.

    Miller (1955), Note on the bias of information estimates; Wu et al. (2025), arXiv:2507.14843 (entropy of answers).
    """
    sizes, _ = pool.sizes
    counted = np.column_stack([sizes, pool.samples - pool.answered])
    shares = counted / pool.samples
    plain = -(shares * np.log(np.where(counted > 0, shares, 1))).sum(axis=1)
    return np.column_stack([plain, plain + ((counted > 0).sum(axis=1) - 1) / (2 * pool.samples)])
