"""Fits of N(b) = round_B(alpha b^beta) to an RL curve: grids, rounding, ties and what a fit identifies.

All estimates have a last axis of draws, so one implementation fits the sample and every bootstrap draw. Estimates are
sums over questions, not proportions: first-k ones are whole counts, so their equal errors are exactly equal; sums of
expectations are equal within ``SAME``. Budgets are powers of two from 1, and the position of a budget
n on the budget axis is log2 n.

The second half is the selector: the Base policy whose behaviour along a path of budgets is nearest to that of the
anchor's policy (paper, equation for the selector loss). The loss of a policy along a path is a sum over budgets of
distances, each of which depends on one budget of the path only; so one table of distances serves all paths.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from searchlens.analysis.uncertainty import Floats
from searchlens.boptr.view import CellCounts, Counts
from searchlens.catalogue import declared

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
"""The same for sums of interpolated estimates (float64), among fits that are tied already: with one policy these are
computed from the same numbers, so that only the rounding of these sums is left."""


ALPHAS = tuple(2.0 ** (np.arange(-10, 21) / 5))
"""The grid of alpha, which contains every fitted alpha that the paper prints."""
BETAS = tuple(np.arange(13) / 10)
"""The grid of beta."""


def round_position(position: npt.ArrayLike, levels: int) -> Ints:
    """Nearest allowed budget of 1, 2, 4, ... (``levels`` of them), as its position on the budget axis; clipped to it.

    ``position`` is log2 of the unrounded budget. The nearest is taken in log2, as the paper's numbers force it
    (docs/reading-the-paper.md); exact halves go up.
    """
    nearest = np.floor(np.clip(np.asarray(position, float), 0, levels - 1) + 0.5 + GUARD)
    return np.asarray(np.clip(nearest, 0, levels - 1).astype(np.int64))


def identified_alpha(alpha: float, beta: float, levels: int) -> tuple[float, float]:
    """The interval of alpha, open above, that gives the same path N(b) at this beta.

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
    weights: Floats
    """Weights of P at the allowed budgets that interpolate it in log2 at the unrounded one, clipped to the budget axis.
    Shape (pairs, budgets, budgets)."""
    paths: Ints
    """Distinct rounded paths, as positions. Shape (paths, budgets)."""
    path: Ints
    """Index into ``paths`` of the path of each pair. Shape (pairs,)."""


@functools.lru_cache(maxsize=64)
def lattice(alphas: tuple[float, ...], betas: tuple[float, ...], levels: int) -> Lattice:
    """The lattice of two grids over ``levels`` budgets."""
    alpha, beta = (part.ravel() for part in np.meshgrid(alphas, betas, indexing="ij"))
    raw = np.log2(alpha)[:, None] + beta[:, None] * np.arange(levels)
    paths, path = np.unique(round_position(raw, levels), axis=0, return_inverse=True)
    position = np.clip(raw, 0, levels - 1)[..., None]
    weights = np.maximum(0, 1 - np.abs(position - np.arange(levels)))
    return Lattice(alpha, beta, weights, paths, path.ravel())


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


def fit_locked(P: Array, R: Array, grid: Lattice, beta_g: float = 0.0) -> Fit:
    """R1: the best (alpha, beta, policy) with one policy for all budgets (paper, table of regime discovery).

    R2 is the same fit with the default policy as the only one. A fit at a fixed beta has a lattice with one beta. ``P``
    has the shape (policies, budgets, draws), ``R``, RL counts under the default policy, (budgets, draws). There is
    always a fit; ``error`` says how well it explains the curve.

    Of equal errors, the smallest with P interpolated in log2 at the unrounded, clipped budget counts; then the beta
    nearest to the regime's ``beta_g``, the larger alpha, the earlier policy of the pool, the smaller beta. The first
    and the last of the lattice are not what the paper prints (docs/reading-the-paper.md).
    """
    total = path_errors(errors(P, R), grid.paths)
    best = total.min(axis=(0, 1))
    tied = _tied(total, best)

    def interpolated_error(pairs: Ints, at: slice) -> Floats:
        gaps = grid.weights[pairs] @ P[tied.policy[at], :, tied.draw[at]].T.astype(float) - R[:, tied.draw[at]]
        errors: Floats = np.abs(gaps, out=gaps).sum(axis=1)
        return errors

    pair, policy = _settled(tied, grid, beta_g, interpolated_error)
    return Fit(grid.alpha[pair], grid.beta[pair], policy, grid.paths[grid.path[pair]].T, best / P.shape[1])


def fit_free(P: Array, R: Array, grid: Lattice, beta_g: float = 0.0) -> Fit:
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

    pair, _ = _settled(tied, grid, beta_g, interpolated_error)
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


def _settled(tied: _Tied, grid: Lattice, beta_g: float, interpolated_error: _InterpolatedError) -> tuple[Ints, Ints]:
    """The pair and the policy of every draw, ties decided as ``fit_locked`` says."""
    distance = np.round(np.abs(grid.beta - beta_g), 9)
    preferred = np.lexsort((grid.beta, -grid.alpha, distance))
    pair, tie = _nearest(tied, grid, preferred, interpolated_error)
    policy, draw = tied.policy[tie], tied.draw[tie]
    order = np.lexsort((grid.beta[pair], policy, -grid.alpha[pair], distance[pair], draw))
    chosen = order[np.flatnonzero(np.diff(draw[order], prepend=-1))]
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


# ---- the selector

FARTHEST = 5
"""Largest index of a controller, and that of one that declares none. Feature ctrl is the index / 5."""

WEIGHTS = (1.0, 1.0, 1.0, 0.5, 0.2)
"""W of the paper's rule: rank of P, rank of P - Q, rank of Q, controller, log cost (printed)."""
COST_WEIGHT = 0.01
"""lambda_cost, the weight of C(pi) (printed)."""


@dataclass(frozen=True, eq=False)
class Features:
    """r(pi, n) of a pool."""

    ranks: tuple[Array, ...]
    """K arrays. Coordinates that depend on the budget. In the paper's rule the ranks of P, of P - Q and of Q in the
    ranked pool, in [0, 1] on the percentile scale. Shape (policies, budgets, draws)."""
    fixed: Floats
    """Coordinates that do not. In the paper's rule ``fixed_coordinates``. Shape (f, policies)."""
    weights: tuple[float, ...]
    """W: weights of the k, then of the f coordinates."""


def features(cell: CellCounts) -> Features:
    """Selector features of every policy of a cell, ranked among the autoregressive ones."""
    ranks = tuple(percentile_rank(values, values[cell.autoregressive]) for values in (cell.P, cell.P - cell.Q, cell.Q))
    return Features(ranks, fixed_coordinates(cell), WEIGHTS)


def fixed_coordinates(cell: CellCounts) -> Floats:
    """Controller index in [0, 1] and scaled log cost of every policy, shape (2, policies)."""
    stated = {name: item.options.get("index", FARTHEST) for name, item in declared("controller").items()}
    controllers = np.array([stated.get(name, FARTHEST) for name in cell.controllers]) / FARTHEST
    return np.stack([controllers, log_cost(cell, cell.autoregressive)])


def prototype(r: Features, policy: Ints, path: Ints) -> Array:
    """r-bar: features of the anchor cell, averaged over budgets along one of its paths, shape (k + f, draws).

    ``policy`` has the shape (draws,), ``path`` (budgets, draws).
    """
    draw = np.arange(path.shape[1])
    ranks = [coordinate[policy, path, np.minimum(draw, coordinate.shape[2] - 1)] for coordinate in r.ranks]
    along_path = np.concatenate([ranks, np.broadcast_to(r.fixed[:, policy][:, None, :], (len(r.fixed), *path.shape))])
    return np.asarray(along_path.mean(axis=1))


def distances(r: Features, proto: Array) -> Array:
    """||r(pi, n) - r-bar||_W, weighted squares, of every policy at every budget, shape (budgets, draws, policies)."""
    policies, budgets, draws = r.ranks[0].shape
    total = np.zeros((policies, budgets, max(draws, proto.shape[1])), np.float32)
    for value, of_proto, weight in zip((*r.ranks, *r.fixed[:, :, None, None]), proto, r.weights, strict=True):
        gap = value - of_proto.astype(np.float32)
        total += weight * (gap * gap)
    # Policies last in memory, because ``select`` reads those of one operating point together.
    total = np.ascontiguousarray(np.moveaxis(total, 0, -1))
    rooted: Array = np.sqrt(total, out=total)
    return rooted


def select(distance: Array, path: Ints, cost: Floats, candidates: Ints, names: tuple[str, ...]) -> Ints:
    """pi-hat: the candidate with the smallest loss along a path, shape (budgets, draws); ties by name.

    ``distance`` is from ``distances``, ``cost`` is ``COST_WEIGHT`` times C(pi). Positions among all policies, shape
    (draws,).
    """
    order = np.array(sorted(candidates.tolist(), key=lambda i: names[i]))
    draws, policies = distance.shape[1:]
    draw = np.minimum(np.arange(path.shape[1]), draws - 1)
    points = distance.reshape(-1, policies)
    loss = np.repeat(cost.astype(np.float32)[None], path.shape[1], axis=0)
    for n in path:
        loss += points.take(n * draws + draw, axis=0)
    chosen: Ints = order[np.round(loss, 5)[:, order].argmin(axis=1)]
    return chosen


def relative_cost(cell: CellCounts) -> Floats:
    """C(pi): mean tokens per sample, divided by the largest of the AR pool; 0 for all if any of the AR pool is unknown.

    The largest of the full pool would be a search, next to which all candidates would look equally cheap.
    """
    largest = cell.tokens[cell.autoregressive].max(initial=0.0)
    if not np.isfinite(cell.tokens[cell.autoregressive]).all() or largest <= 0:
        return np.zeros(len(cell.tokens))
    share: Floats = np.nan_to_num(cell.tokens / largest)
    return share


def log_cost(cell: CellCounts, ranked: Ints) -> Floats:
    """ln(tokens per sample), min-max scaled over the ranked pool; 0 for all if constant or if any is unknown."""
    defined = np.isfinite(cell.tokens) & (cell.tokens > 0)
    if not defined[ranked].all():
        return np.zeros(len(cell.tokens))
    cost = np.log(np.where(defined, cell.tokens, cell.tokens[ranked].min()))
    low, span = cost[ranked].min(), np.ptp(cost[ranked])
    return (cost - low) / span if span > 0 else np.zeros(len(cost))


def percentile_rank(values: Counts, among: Counts) -> Array:
    """(rank - 1) / (pool size - 1) of ``values`` in a pool, ascending, ties averaged; 0.5 in a pool of one.

    Both have shape (policies, ...). A policy of the pool is not compared with itself. Values within ``SAME`` are tied,
    and count one half. Otherwise the ranks of P - Q at one sample, where P = Q, would be those of rounding errors in
    expectations.
    """
    if len(among) == 1:
        return np.full(values.shape, 0.5, np.float32)
    twice = np.zeros(values.shape, np.int16)
    for other in among:
        twice += values > other + np.float32(SAME)
        twice += values >= other - np.float32(SAME)
    return np.float32(0.5) * (twice - np.int16(1)).clip(0) / np.float32(len(among) - 1)
