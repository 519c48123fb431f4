"""Fits of N(b) = round_B(alpha b^beta) to an RL curve: grids, rounding, ties and what a fit identifies.

All readouts have a last axis of draws, so one implementation fits the sample and every bootstrap draw. Readouts are
sums over questions, not proportions: prefix readouts are whole counts, so their equal errors are exactly equal; sums of
expectations are equal within ``SAME``. Budgets are powers of two from 1, and the position of a budget
n on the budget axis is log2 n.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from searchlens.analysis.uncertainty import Floats
from searchlens.config.boptr import Ties

Array = npt.NDArray[np.floating]
Ints = npt.NDArray[np.int64]

GUARD = 1e-9
"""Added before rounding. Exact halves occur on the grids (alpha = 2^(k/5), beta in steps of 0.1); they must go up even
if the floating-point value lies just below."""
SAME = 1e-3
"""Questions. Sums (float32) that differ by at most this are tied. It is more than rounding errors, some 1e-4 in sums of
1000 questions. Between counts there is no difference as small; between expectations one says nothing, since one sample
that turns out otherwise changes an expectation by more."""
CLOSE = 1e-4
"""The same for sums of interpolated readouts (float64), among fits that are tied already: with the same policy they are
computed from the same numbers, so that only the rounding of these sums is left."""


def alpha_grid(low: int = -10, high: int = 20) -> Floats:
    """2^(k/5) for k from ``low`` to ``high``; contains every fitted alpha that the paper prints."""
    return 2.0 ** (np.arange(low, high + 1) / 5)


def beta_grid(top: float = 1.2) -> Floats:
    """0, 0.1, ..., ``top``."""
    return np.arange(round(top * 10) + 1) / 10


def round_position(position: npt.ArrayLike, levels: int, space: str = "log2") -> Ints:
    """Nearest allowed budget of 1, 2, 4, ... (``levels`` of them), as its position on the budget axis; clipped to it.

    ``position`` is log2 of the unrounded budget, ``space`` the scale on which the nearest is taken. Exact halves go up.
    """
    x = np.clip(np.asarray(position, float), 0, levels - 1)
    if space == "log2":
        nearest = np.floor(x + 0.5 + GUARD)
    else:
        below = np.floor(x + GUARD)
        nearest = below + (2.0**x - 2.0**below >= 2.0 ** (below - 1) - GUARD)
    rounded: Ints = np.clip(nearest, 0, levels - 1).astype(np.int64)
    return rounded


def identified_alpha(alpha: float, beta: float, levels: int) -> tuple[float, float]:
    """The interval of alpha, open above, that gives the same path N(b) at this beta, with rounding in log2.

    From 0 if every N(b) is the smallest budget, to inf if every one is the largest.
    """
    slope = beta * np.arange(levels)
    at = round_position(np.log2(alpha) + slope, levels)
    above, below = at > 0, at < levels - 1
    low = 2.0 ** np.max(at[above] - 0.5 - slope[above]) if above.any() else 0.0
    high = 2.0 ** np.min(at[below] + 0.5 - slope[below]) if below.any() else np.inf
    return float(low), float(high)


def boundary_distance(alpha: float, beta: float, levels: int) -> float:
    """How far log2 alpha can move before any N(b) changes, at this beta; inf with a single allowed budget."""
    low, high = identified_alpha(alpha, beta, levels)
    centre = np.log2(alpha)
    down = centre - np.log2(low) if low > 0 else np.inf
    up = np.log2(high) - centre if np.isfinite(high) else np.inf
    return float(max(0.0, min(down, up)))


@dataclass(frozen=True, eq=False)
class Lattice:
    """Every (alpha, beta) of the grids with its path of budgets."""

    alpha: Floats
    beta: Floats
    """``alpha``, ``beta``: in increasing order of alpha, then of beta. Shape (pairs,)."""
    below: Ints
    """Position of the largest allowed budget that is at most the unrounded one, clipped to the budget axis. Shape
    (pairs, budgets)."""
    share: Floats
    """Distance in log2 from there to the unrounded budget, in [0, 1). Shape (pairs, budgets)."""
    paths: Ints
    """Distinct rounded paths, as positions. Shape (paths, budgets)."""
    path: Ints
    """Index into ``paths`` of the path of each pair. Shape (pairs,)."""
    members: Ints
    """Pairs sorted by path; those of path j are ``members[start[j]:start[j + 1]]``. Shape (pairs,)."""
    start: Ints
    """Shape (paths + 1,)."""

    @functools.cached_property
    def weights(self) -> Floats:
        """Weights of P at the allowed budgets that interpolate it at the unrounded one: (pairs, budgets, budgets)."""
        position = (self.below + self.share)[..., None]
        weights: Floats = np.maximum(0, 1 - np.abs(position - np.arange(position.shape[1])))
        return weights


@functools.lru_cache(maxsize=64)
def lattice(alphas: tuple[float, ...], betas: tuple[float, ...], levels: int, space: str = "log2") -> Lattice:
    """The lattice of two grids over ``levels`` budgets."""
    alpha, beta = (part.ravel() for part in np.meshgrid(alphas, betas, indexing="ij"))
    raw = np.log2(alpha)[:, None] + beta[:, None] * np.arange(levels)
    paths, path = np.unique(round_position(raw, levels, space), axis=0, return_inverse=True)
    path = path.ravel()
    members = np.argsort(path, kind="stable")
    start = np.searchsorted(path[members], np.arange(len(paths) + 1))
    position = np.clip(raw, 0, levels - 1)
    below = position.astype(np.int64)
    return Lattice(alpha, beta, below, position - below, paths, path, members, start)


@dataclass(frozen=True, eq=False)
class Fit:
    """The best (alpha, beta, policy) of every draw."""

    alpha: Floats
    beta: Floats
    """``alpha``, ``beta``: shape (draws,)."""
    policy: Ints
    """Index into the pool that was fitted; one per budget if it was free to differ between budgets. Shape (draws,) or
    (budgets, draws)."""
    path: Ints
    """N(b), as positions on the budget axis. Shape (budgets, draws)."""
    error: Floats
    """Mean absolute error over budgets, in questions. Shape (draws,)."""


def first_least(values: Array) -> Ints:
    """Index along the first axis of the first of all values that are tied for the least (``SAME``)."""
    first: Ints = (values <= values.min(axis=0) + SAME).argmax(axis=0)
    return first


def errors(P: Array, R: Array) -> Array:
    """|P(pi, n) - R(b)| for every target budget, shape (policies, budgets, target budgets, draws)."""
    # Budgets come first in memory, because ``path_errors`` adds point by point.
    gap: Array = np.subtract(P.transpose(1, 0, 2)[:, None], R[:, None], order="C")
    return np.abs(gap, out=gap).transpose(2, 0, 1, 3)


def path_errors(error: Array, paths: Ints) -> Array:
    """Sum over b of ``error[pi, N(b), b]`` for every path, shape (paths, policies, draws)."""
    points = np.ascontiguousarray(error.transpose(1, 2, 0, 3))
    total: Array = points[paths[:, 0], 0]
    for i, path in enumerate(paths):
        for b, n in enumerate(path[1:], start=1):
            total[i] += points[n, b]
    return total


def fit_locked(
    P: Array,
    R: Array,
    grid: Lattice,
    ties: Ties = "interpolated",
    beta_g: float = 0.0,
) -> Fit:
    """R1: the best (alpha, beta, policy) with one policy for all budgets (paper, table of regime discovery).

    R2 is the same fit with the default policy as the only one. A fit at a fixed beta has a lattice with one beta. ``P``
    has the shape (policies, budgets, draws), ``R``, RL counts under the default policy, (budgets, draws). There is
    always a fit; ``error`` says how well it explains the curve.

    ``ties`` decides between equal errors. ``interpolated``: the smallest error with P interpolated in log2 at the
    unrounded, clipped budget; then the beta nearest to the regime's ``beta_g``, the larger alpha, the earlier policy of
    the pool, the smaller beta. Otherwise the first, last or middle one in the order of the lattice, then of the pool.
    """
    total = path_errors(errors(P, R), grid.paths)
    best = total.min(axis=(0, 1))
    tied = _tied(total, best)

    def interpolated_error(pairs: Ints, at: slice) -> Floats:
        gaps = grid.weights[pairs] @ P[tied.policy[at], :, tied.draw[at]].T.astype(float) - R[:, tied.draw[at]]
        errors: Floats = np.abs(gaps, out=gaps).sum(axis=1)
        return errors

    pair, policy = _settled(tied, ties, grid, beta_g, interpolated_error)
    return Fit(grid.alpha[pair], grid.beta[pair], policy, grid.paths[grid.path[pair]].T, best / P.shape[1])


def fit_free(P: Array, R: Array, grid: Lattice, ties: Ties = "interpolated", beta_g: float = 0.0) -> Fit:
    """R0: the best (alpha, beta) if the policy may differ between budgets; parameters as in ``fit_locked``."""
    error = errors(P, R)
    total = path_errors(error.min(axis=0, keepdims=True), grid.paths)
    best = total.min(axis=(0, 1))
    tied = _tied(total, best)

    def interpolated_error(pairs: Ints, at: slice) -> Floats:
        weights, counts = grid.weights[pairs], P[:, :, tied.draw[at]].astype(float)
        total = np.zeros((len(weights), counts.shape[2]))
        for b, target in enumerate(R[:, tied.draw[at]]):
            gap = weights[:, b] @ counts - target
            total += np.abs(gap, out=gap).min(axis=0)
        return total

    pair, _ = _settled(tied, ties, grid, beta_g, interpolated_error)
    path = grid.paths[grid.path[pair]].T
    at = np.arange(path.shape[1])
    policy = np.stack([first_least(error[:, path[b], b, at]) for b in range(len(path))])
    return Fit(grid.alpha[pair], grid.beta[pair], policy, path, best / P.shape[1])


def best_by_beta(P: Array, R: Array, grid: Lattice) -> tuple[Floats, Array]:
    """Betas of the lattice, and the smallest R1 error at each, in questions, shape (betas, draws)."""
    total = path_errors(errors(P, R), grid.paths).min(axis=1)
    betas = np.unique(grid.beta)
    least = np.stack([total[np.unique(grid.path[grid.beta == beta])].min(axis=0) for beta in betas])
    return betas, least.astype(float) / P.shape[1]


class _Tied(NamedTuple):
    """Every (path, policy) that has the least error of a draw, as three arrays of indices, in the order of paths."""

    path: Ints
    policy: Ints
    draw: Ints


_InterpolatedError = Callable[[Ints, slice], Floats]
"""From pairs of the lattice and a range of ties to errors with P interpolated, shape (pairs, ties)."""


def _tied(total: Array, best: Array) -> _Tied:
    # On several axes ``numpy.nonzero`` takes ten times as long.
    return _Tied(*np.unravel_index(np.flatnonzero(total <= best + SAME), total.shape))


def _settled(
    tied: _Tied, ties: Ties, grid: Lattice, beta_g: float, interpolated_error: _InterpolatedError
) -> tuple[Ints, Ints]:
    """The pair and the policy of every draw, ties decided as ``fit_locked`` says."""
    if ties == "interpolated":
        distance = np.round(np.abs(grid.beta - beta_g), 9)
        preferred = np.lexsort((grid.beta, -grid.alpha, distance))
        pair, tie = _nearest(tied, grid, preferred, interpolated_error)
        policy, draw = tied.policy[tie], tied.draw[tie]
        order = np.lexsort((grid.beta[pair], policy, -grid.alpha[pair], distance[pair], draw))
    else:
        pair, tie = _expand(grid, tied.path)
        policy, draw = tied.policy[tie], tied.draw[tie]
        order = np.lexsort((policy, pair, draw))
    first = np.flatnonzero(np.diff(draw[order], prepend=-1))
    end = np.append(first[1:], len(order))
    chosen = order[{"last": end - 1, "median": (first + end - 1) // 2}.get(ties, first)]
    return pair[chosen], policy[chosen]


def _nearest(tied: _Tied, grid: Lattice, preferred: Ints, interpolated_error: _InterpolatedError) -> tuple[Ints, Ints]:
    """Ties with the least interpolated error of their draw: the most preferred pair of each, and its index in ``tied``.

    ``preferred``: all pairs of the lattice, the most preferred first.
    """
    ends = np.searchsorted(tied.path, np.arange(len(grid.paths) + 1))
    least = np.full(tied.draw.max() + 1, np.inf)
    parts = []
    for path in np.unique(tied.path):
        at, pairs = slice(*ends[path : path + 2]), preferred[grid.path[preferred] == path]
        error = interpolated_error(pairs, at)
        np.minimum.at(least, tied.draw[at], error.min(axis=0))
        parts.append((at, pairs, error))
    pair, is_least = np.empty(len(tied.path), int), np.empty(len(tied.path), bool)
    for at, pairs, error in parts:
        equal = error <= least[tied.draw[at]] + CLOSE
        pair[at], is_least[at] = pairs[equal.argmax(axis=0)], equal.any(axis=0)
    return pair[is_least], np.flatnonzero(is_least)


def _expand(grid: Lattice, path: Ints) -> tuple[Ints, Ints]:
    """Every pair of every entry of ``path``, and the index of that entry."""
    count = grid.start[path + 1] - grid.start[path]
    entry = np.repeat(np.arange(len(path)), count)
    within = np.arange(len(entry)) - np.repeat(np.cumsum(count) - count, count)
    return grid.members[grid.start[path][entry] + within], entry
