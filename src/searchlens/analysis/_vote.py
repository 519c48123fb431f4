"""Majority vote: over the first samples of the stream, and its exact expectation over all subsets of the pool."""

from __future__ import annotations

from typing import TypeVar

import numpy as np
import numpy.typing as npt
from scipy.special import comb

from searchlens.analysis.pool import Bools, Budgets, Floats, Ints, SamplePool

VOTE_POOL_LIMIT = 512
"""Largest pool whose expected vote is computed; the exact value for a larger one takes too long."""

_Integer = TypeVar("_Integer", bound=np.integer)

_WORK = 1 << 21
"""Most numbers in one array of the dynamic programme (16 MiB), to bound its memory."""


def class_sizes(pool: SamplePool, budget: int) -> Ints:
    """Votes among the first ``budget`` samples, in the column of the earliest sample of each class; 0 elsewhere."""
    rows, samples = pool.valid.shape
    votes = (pool.first + np.arange(rows)[:, None] * samples)[:, :budget][pool.valid[:, :budget]]
    return np.bincount(votes, minlength=rows * samples).reshape(rows, samples)


def prefix_vote(pool: SamplePool, budget: int, *, shared: bool) -> Floats:
    """Credit of the vote over the first ``budget`` samples, shape (rows,); 0 where no answer is valid.

    ``shared``: on a tie, the share of tied classes that are right. Otherwise the class seen earliest wins a tie.
    """
    votes = class_sizes(pool, budget)
    if shared:
        top = (votes == votes.max(axis=1, keepdims=True)) & (votes > 0)
        share: Floats = (top & pool.correct).sum(axis=1) / np.maximum(top.sum(axis=1), 1)
        return share
    winner = votes.argmax(axis=1)[:, None]
    won = np.take_along_axis(pool.correct, winner, axis=1) & (np.take_along_axis(votes, winner, axis=1) > 0)
    return won[:, 0].astype(float)


def expected_vote(pool: SamplePool, budgets: Budgets) -> Floats:
    """Mean credit of the vote over all subsets of each size, ties shared, shape (rows, budgets).

    The value depends on a row only through the sizes of its right and wrong classes, its signature, so it is computed
    once per signature. NaN for pools larger than ``VOTE_POOL_LIMIT``.
    """
    rows, samples = pool.valid.shape
    if samples > VOTE_POOL_LIMIT:
        return np.full((rows, len(budgets)), np.nan)
    votes = class_sizes(pool, samples)
    signature = np.sort((votes * 2 + (pool.correct & (votes > 0))).astype(np.uint16), axis=1)[:, ::-1]
    distinct, which = unique_rows(signature)
    return vote_of_signatures((distinct >> 1).astype(np.int64), (distinct & 1).astype(bool), samples, budgets)[which]


def vote_of_signatures(sizes: Ints, right: Bools, samples: int, budgets: Budgets) -> Floats:
    """Expected credit of the vote in subsets of a pool, for given class sizes: shape (signatures, budgets).

    ``sizes``, shape (signatures, classes), has the votes for each class, 0 for padding; the other samples of the pool
    cast no vote.

    Sum over right classes j and winning counts M of: C(c_j, M) ways to get M votes from j, times the ways in which
    every other class k has at most M votes, t - 1 of them exactly M, weighted by the credit 1/t. With 1/t the integral
    of y^(t-1) over y in [0, 1], the latter is the coefficient of x^(n-M) in

        integral of (1 + x)^blanks * prod_k [ sum_{i<M} C(c_k, i) x^i + y C(c_k, M) x^M ] dy,

    a polynomial in y, which Gauss-Legendre quadrature integrates exactly. A class smaller than M cannot tie, so its
    factor is (1 + x)^c_k and joins the blanks. All terms are positive: nothing cancels.
    """
    row, column = np.nonzero(right & (sizes > 0))
    others = sizes[row].copy()
    votes = others[np.arange(len(row)), column]
    others[np.arange(len(row)), column] = 0
    tasks, which = unique_rows(np.column_stack([votes, -np.sort(-others, axis=1)]).astype(np.int16))
    value = _credit(tasks[:, 0].astype(np.int64), tasks[:, 1:].astype(np.int64), samples, budgets)
    credit = np.zeros((len(sizes), len(budgets)))
    np.add.at(credit, row, value[which])
    return np.minimum(credit, 1.0)


def _credit(votes: Ints, others: Ints, samples: int, budgets: Budgets) -> Floats:
    """Expected credit of a right class of size ``votes`` against ``others`` (descending), shape (tasks, budgets)."""
    choose = comb(np.arange(samples + 1)[:, None], np.arange(samples + 1)[None, :]).astype(float)
    total = np.zeros((len(votes), len(budgets)))
    for top in range(1, int(votes.max(initial=0)) + 1):
        open_ = np.flatnonzero(votes >= top)
        rivals = np.where(others[open_] >= top, others[open_], 0)
        rivals = rivals[:, : int((rivals > 0).sum(axis=1).max(initial=0))]
        rest = samples - votes[open_] - rivals.sum(axis=1)
        cases, which = unique_rows(np.column_stack([rivals, rest]).astype(np.int16))
        ways = _ways(cases[:, :-1].astype(np.int64), cases[:, -1].astype(np.int64), top, choose, budgets)
        total[open_] += choose[votes[open_], top][:, None] * ways[which]
    credit: Floats = total / choose[samples, list(budgets)]
    return credit


def _ways(rivals: Ints, rest: Ints, top: int, choose: Floats, budgets: Budgets) -> Floats:
    """The integral of ``vote_of_signatures`` for each case: ways to draw the other n - top samples of a subset.

    Shape (cases, budgets).
    """
    degree = max(budgets) - top
    ways = np.zeros((len(rest), len(budgets)))
    if degree < 0:
        return ways
    node, weight = np.polynomial.legendre.leggauss(rivals.shape[1] // 2 + 1)
    node, weight = (node + 1) / 2, weight / 2
    reached = [(i, n - top) for i, n in enumerate(budgets) if n >= top]
    step = max(1, _WORK // (len(node) * (degree + 1)))
    for start in range(0, len(rest), step):
        chunk = slice(start, start + step)
        factor = np.repeat(choose[rest[chunk], None, : degree + 1], len(node), axis=1)
        for k in range(rivals.shape[1]):
            active = np.flatnonzero(rivals[chunk, k])
            factor[active] = _times(factor[active], choose[rivals[chunk, k][active]], node, top)
        for i, power in reached:
            ways[chunk, i] = factor[:, :, power] @ weight
    return ways


def _times(factor: Floats, coefficients: Floats, node: Floats, top: int) -> Floats:
    """Product with sum_{i<top} c_i x^i + y c_top x^top, truncated; ``factor`` is (cases, nodes, powers)."""
    product = factor.copy()
    powers = factor.shape[2]
    for i in range(1, min(top, powers - 1) + 1):
        scale = coefficients[:, i, None, None] * (node[None, :, None] if i == top else 1.0)
        product[:, :, i:] += scale * factor[:, :, : powers - i]
    return product


def unique_rows(rows: npt.NDArray[_Integer]) -> tuple[npt.NDArray[_Integer], npt.NDArray[np.intp]]:
    """Distinct rows and, for each row, which of them it is."""
    packed = np.ascontiguousarray(rows).view(np.dtype((np.void, rows.shape[1] * rows.dtype.itemsize)))[:, 0]
    _, index, inverse = np.unique(packed, return_index=True, return_inverse=True)
    return rows[index], inverse
