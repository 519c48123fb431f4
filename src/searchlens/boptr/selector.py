"""The selector: which Base policy behaves, along a path of budgets, as the anchor's does along its own.

Paper, equation for the selector loss. Every array has a last axis of draws. The loss of a policy along a path is a sum
over budgets of a distance that depends on the budget alone, so one table of distances serves every path.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from searchlens.boptr.fit import Array, Ints
from searchlens.boptr.options import BoptrOptions
from searchlens.boptr.view import Counts, Readouts
from searchlens.uncertainty import Floats

CONTROLLERS = ("autoregressive", "beam", "entropy_tree", "tree", "mcts", "power")
"""Controller index of the features, AR first; divided by the largest index."""


@dataclass(frozen=True, eq=False)
class Features:
    """r(pi, n) of a pool.

    Attributes
    ----------
    ranks : tuple of k ndarrays, shape (policies, budgets, draws)
        Coordinates that depend on the budget. In the paper's rule the ranks of P, of P - Q and of Q among the ranked
        pool, in [0, 1] on the percentile scale.
    fixed : ndarray, shape (f, policies)
        Coordinates that do not. In the paper's rule ``fixed_coordinates``.
    weights : tuple of float
        W: of the k, then of the f coordinates.
    """

    ranks: tuple[Array, ...]
    fixed: Floats
    weights: tuple[float, ...]


def features(cell: Readouts, options: BoptrOptions) -> Features:
    """Selector features of every policy of a cell; policies outside the ranked pool are ranked against it."""
    ranks = tuple(rank(values, cell, options) for values in (cell.P, cell.P - cell.Q, cell.Q))
    return Features(ranks, fixed_coordinates(cell, options), options.selector_weights)


def ranked_pool(cell: Readouts, options: BoptrOptions) -> Ints:
    """Positions of the policies that are ranked (option ``selector_rank_pool``)."""
    return cell.pool("ar" if options.selector_rank_pool == "ar" else "full")


def rank(values: Counts, cell: Readouts, options: BoptrOptions) -> Array:
    """``values`` of every policy of a cell on the scale of ``selector_rank``, over the ranked pool."""
    return _SCALES[options.selector_rank](values, values[ranked_pool(cell, options)])


def fixed_coordinates(cell: Readouts, options: BoptrOptions) -> Floats:
    """Controller index in [0, 1] and scaled log cost of every policy, shape (2, policies)."""
    return np.stack([_controllers(cell), log_cost(cell, ranked_pool(cell, options))])


def prototype(found: Features, policy: Ints, path: Ints, options: BoptrOptions) -> Array:
    """r-bar of the anchor: its features along its own path.

    Parameters
    ----------
    found : Features
        Of the anchor cell.
    policy : ndarray of int, shape (draws,)
    path : ndarray of int, shape (budgets, draws)

    Returns
    -------
    ndarray, shape (k + f, budgets or 1, draws)
        The mean over budgets, or one vector for each.
    """
    draw = np.arange(path.shape[1])
    ranks = [one[policy, path, np.minimum(draw, one.shape[2] - 1)] for one in found.ranks]
    fixed = np.broadcast_to(found.fixed[:, policy][:, None, :], (len(found.fixed), *path.shape))
    whole = np.concatenate([ranks, fixed])
    return whole.mean(axis=1, keepdims=True) if options.selector_proto == "mean_over_b" else whole


def distances(found: Features, proto: Array, options: BoptrOptions) -> Array:
    """||r(pi, n) - r-bar||_W of every policy at every budget, shape (budgets, budgets of r-bar, draws, policies)."""
    policies, budgets, draws = found.ranks[0].shape
    total = np.zeros((policies, budgets, proto.shape[1], max(draws, proto.shape[2])), np.float32)
    varying = len(found.ranks)
    for i, weight in enumerate(found.weights):
        value = found.ranks[i][:, :, None] if i < varying else found.fixed[i - varying][:, None, None, None]
        gap = value - proto[i].astype(np.float32)
        total += weight * (gap * gap if options.selector_norm == "l2" else np.abs(gap))
    # Policies last: those of one operating point are read together.
    total = np.ascontiguousarray(np.moveaxis(total, 0, -1))
    return np.sqrt(total, out=total) if options.selector_norm == "l2" else total


def select(distance: Array, path: Ints, cost: Floats, candidates: Ints, names: tuple[str, ...]) -> Ints:
    """pi-hat: the candidate with the smallest loss along a path, ties by name.

    Parameters
    ----------
    distance : ndarray
        From ``distances``.
    path : ndarray of int, shape (budgets, draws)
    cost : ndarray, shape (policies,)
        lambda_cost times C(pi).
    candidates : ndarray of int
        Policies that may be chosen.
    names : tuple of str
        Of all policies.

    Returns
    -------
    ndarray of int, shape (draws,)
        Positions among all policies.
    """
    order = np.array(sorted(candidates.tolist(), key=lambda i: names[i]))
    own, draws, policies = distance.shape[1:]
    draw = np.minimum(np.arange(path.shape[1]), draws - 1)
    points = distance.reshape(-1, policies)
    loss = np.repeat(cost.astype(np.float32)[None], path.shape[1], axis=0)
    for b, n in enumerate(path):
        loss += points.take((n * own + min(b, own - 1)) * draws + draw, axis=0)
    chosen: Ints = order[np.round(loss, 5)[:, order].argmin(axis=1)]
    return chosen


def relative_cost(cell: Readouts) -> Floats:
    """C(pi): mean tokens per sample over the largest of the AR pool; 0 where any of that is unknown.

    A search costs many times a sample: beside it all that may be chosen would look equally cheap.
    """
    largest = cell.tokens[cell.autoregressive].max(initial=0.0)
    if not np.isfinite(cell.tokens[cell.autoregressive]).all() or largest <= 0:
        return np.zeros(len(cell.tokens))
    share: Floats = np.nan_to_num(cell.tokens / largest)
    return share


def log_cost(cell: Readouts, ranked: Ints) -> Floats:
    """ln(tokens per sample), min-max scaled over the ranked pool; 0 where it is constant or any of it is unknown."""
    known = np.isfinite(cell.tokens) & (cell.tokens > 0)
    if not known[ranked].all():
        return np.zeros(len(cell.tokens))
    cost = np.log(np.where(known, cell.tokens, cell.tokens[ranked].min()))
    low, span = cost[ranked].min(), np.ptp(cost[ranked])
    scaled: Floats = (cost - low) / span if span > 0 else np.zeros(len(cost))
    return scaled


def percentile_rank(values: Counts, among: Counts) -> Array:
    """(rank - 1) / (pool - 1), ascending, ties averaged, of ``values`` among a pool; 0.5 in a pool of one.

    Both have shape (policies, ...); a value that is itself in the pool is not counted against itself.
    """
    if len(among) == 1:
        return np.full(values.shape, 0.5, np.float32)
    return _below(values, among) / np.float32(len(among) - 1)


def integer_rank(values: Counts, among: Counts) -> Array:
    """Rank from 0, ties averaged."""
    return _below(values, among)


def zscore(values: Counts, among: Counts) -> Array:
    """Standardised over the pool; 0 where the pool is constant."""
    centre, spread = among.mean(axis=0), among.std(axis=0)
    scaled: Array = np.where(spread > 0, (values - centre) / np.where(spread > 0, spread, 1), 0)
    return scaled.astype(np.float32)


def _below(values: Counts, among: Counts) -> Array:
    """How many of the pool are below, halves for ties, itself not counted."""
    twice = np.zeros(values.shape, np.int16)
    for other in among:
        twice += values > other
        twice += values >= other
    return np.float32(0.5) * (twice - np.int16(1)).clip(0)


def _controllers(cell: Readouts) -> Floats:
    return np.array(
        [_controller(name) if search else 0.0 for name, search in zip(cell.policies, cell.search, strict=True)]
    )


def _controller(name: str) -> float:
    kind = next((i for i, known in enumerate(CONTROLLERS) if name.startswith(known)), len(CONTROLLERS) - 1)
    return kind / (len(CONTROLLERS) - 1)


_SCALES = {"percentile": percentile_rank, "integer": integer_rank, "zscore": zscore}
