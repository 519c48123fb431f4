"""The selector: the Base policy whose behaviour along a path of budgets is nearest to that of the anchor's policy.

Paper, equation for the selector loss. Arrays have a last axis of draws. The loss of a policy along a path is a sum over
budgets of distances, each of which depends on one budget of the path only; so one table of distances serves all paths.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from searchlens.analysis.uncertainty import Floats
from searchlens.boptr.fit import SAME, Array, Ints
from searchlens.boptr.view import Counts, Readouts
from searchlens.catalogue import declared
from searchlens.config.boptr import BoptrOptions

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


def features(cell: Readouts, options: BoptrOptions) -> Features:
    """Selector features of every policy of a cell; a policy outside the ranked pool is ranked against it."""
    ranks = tuple(rank(values, cell, options) for values in (cell.P, cell.P - cell.Q, cell.Q))
    return Features(ranks, fixed_coordinates(cell, options), WEIGHTS)


def ranked_pool(cell: Readouts, options: BoptrOptions) -> Ints:
    """Positions of the policies that are ranked (option ``selector_rank_pool``)."""
    return cell.pool("ar" if options.selector_rank_pool == "ar" else "full")


def rank(values: Counts, cell: Readouts, options: BoptrOptions) -> Array:
    """``values`` of every policy of a cell on the scale of ``selector_rank``, over the ranked pool."""
    return _SCALES[options.selector_rank](values, values[ranked_pool(cell, options)])


def fixed_coordinates(cell: Readouts, options: BoptrOptions) -> Floats:
    """Controller index in [0, 1] and scaled log cost of every policy, shape (2, policies)."""
    stated = {name: item.options.get("index", FARTHEST) for name, item in declared("controller").items()}
    controllers = np.array([stated.get(name, FARTHEST) for name in cell.controllers]) / FARTHEST
    return np.stack([controllers, log_cost(cell, ranked_pool(cell, options))])


def prototype(r: Features, policy: Ints, path: Ints, options: BoptrOptions) -> Array:
    """r-bar: features of the anchor cell along one of its paths, shape (k + f, 1 or budgets, draws).

    The mean over budgets, or one vector per budget (option ``selector_proto``). ``policy`` has the shape (draws,),
    ``path`` (budgets, draws).
    """
    draw = np.arange(path.shape[1])
    ranks = [coordinate[policy, path, np.minimum(draw, coordinate.shape[2] - 1)] for coordinate in r.ranks]
    along_path = np.concatenate([ranks, np.broadcast_to(r.fixed[:, policy][:, None, :], (len(r.fixed), *path.shape))])
    return along_path.mean(axis=1, keepdims=True) if options.selector_proto == "mean_over_b" else along_path


def distances(r: Features, proto: Array, options: BoptrOptions) -> Array:
    """||r(pi, n) - r-bar||_W of every policy at every budget, shape (budgets, budgets of r-bar, draws, policies)."""
    policies, budgets, draws = r.ranks[0].shape
    total = np.zeros((policies, budgets, proto.shape[1], max(draws, proto.shape[2])), np.float32)
    varying = len(r.ranks)
    for i, weight in enumerate(r.weights):
        value = r.ranks[i][:, :, None] if i < varying else r.fixed[i - varying][:, None, None, None]
        gap = value - proto[i].astype(np.float32)
        total += weight * (gap * gap if options.selector_norm == "l2" else np.abs(gap))
    # Policies last in memory, because ``select`` reads those of one operating point together.
    total = np.ascontiguousarray(np.moveaxis(total, 0, -1))
    return np.sqrt(total, out=total) if options.selector_norm == "l2" else total


def select(distance: Array, path: Ints, cost: Floats, candidates: Ints, names: tuple[str, ...]) -> Ints:
    """pi-hat: the candidate with the smallest loss along a path, shape (budgets, draws); ties by name.

    ``distance`` is from ``distances``, ``cost`` is ``COST_WEIGHT`` times C(pi). Positions among all policies, shape
    (draws,).
    """
    order = np.array(sorted(candidates.tolist(), key=lambda i: names[i]))
    vectors, draws, policies = distance.shape[1:]
    draw = np.minimum(np.arange(path.shape[1]), draws - 1)
    points = distance.reshape(-1, policies)
    loss = np.repeat(cost.astype(np.float32)[None], path.shape[1], axis=0)
    for b, n in enumerate(path):
        loss += points.take((n * vectors + min(b, vectors - 1)) * draws + draw, axis=0)
    chosen: Ints = order[np.round(loss, 5)[:, order].argmin(axis=1)]
    return chosen


def relative_cost(cell: Readouts) -> Floats:
    """C(pi): mean tokens per sample, divided by the largest of the AR pool; 0 for all if any of the AR pool is unknown.

    The largest of the full pool would be a search, next to which all candidates would look equally cheap.
    """
    largest = cell.tokens[cell.autoregressive].max(initial=0.0)
    if not np.isfinite(cell.tokens[cell.autoregressive]).all() or largest <= 0:
        return np.zeros(len(cell.tokens))
    share: Floats = np.nan_to_num(cell.tokens / largest)
    return share


def log_cost(cell: Readouts, ranked: Ints) -> Floats:
    """ln(tokens per sample), min-max scaled over the ranked pool; 0 for all if constant or if any is unknown."""
    defined = np.isfinite(cell.tokens) & (cell.tokens > 0)
    if not defined[ranked].all():
        return np.zeros(len(cell.tokens))
    cost = np.log(np.where(defined, cell.tokens, cell.tokens[ranked].min()))
    low, span = cost[ranked].min(), np.ptp(cost[ranked])
    scaled: Floats = (cost - low) / span if span > 0 else np.zeros(len(cost))
    return scaled


def percentile_rank(values: Counts, among: Counts) -> Array:
    """(rank - 1) / (pool size - 1) of ``values`` in a pool, ascending, ties averaged; 0.5 in a pool of one.

    Both have shape (policies, ...). A policy of the pool is not compared with itself.
    """
    if len(among) == 1:
        return np.full(values.shape, 0.5, np.float32)
    return integer_rank(values, among) / np.float32(len(among) - 1)


def integer_rank(values: Counts, among: Counts) -> Array:
    """Rank in a pool from 0, ascending, ties averaged: policies of the pool below each value, but itself not at all.

    Values within ``SAME`` are tied, and count one half. Otherwise the ranks of P - Q at one sample, where P = Q, would
    be those of rounding errors in expectations.
    """
    twice = np.zeros(values.shape, np.int16)
    for other in among:
        twice += values > other + np.float32(SAME)
        twice += values >= other - np.float32(SAME)
    return np.float32(0.5) * (twice - np.int16(1)).clip(0)


def zscore(values: Counts, among: Counts) -> Array:
    """Values in standard deviations of the pool from its mean; 0 if the pool is constant (within ``SAME``)."""
    centre, spread = among.mean(axis=0), among.std(axis=0)
    scaled: Array = np.where(spread > SAME, (values - centre) / np.where(spread > SAME, spread, 1), 0)
    return scaled.astype(np.float32)


_SCALES = {"percentile": percentile_rank, "integer": integer_rank, "zscore": zscore}
