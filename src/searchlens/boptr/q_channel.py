"""The Q channel: how far Base reaches RL's self-consistency, and along which budgets (paper, table "Q-channel rule").

    pi_Q = argmax over the AR pool of Q_B(pi, 16) - 0.5 (P_B(pi, 16) - Q_B(pi, 16)) - 0.01 C(pi),  16 the largest budget
    N^Q(b) = round_B(alpha^Q b^beta^Q),  mech_Q = 100 mean_b |Q_B(pi_Q, N^Q(b)) - Q_RL(b)|

alpha^Q is fitted to the RL curve that mech_Q is measured on: it describes a cell and transfers nothing. ``q_channel``
has one row per model, benchmark and pool:

model, group, benchmark, role, regime
    The cell.
pool
    Where the largest Q_B is looked for: ``ar``, or ``full`` with the expanded pool. pi_Q is autoregressive in both.
policy, beta_q, alpha_q, path
    pi_Q, the exponent of the benchmark (option ``q_beta``), the fitted scale and N^Q(b).
alpha_lo, alpha_hi
    The interval of alpha that gives the same path: from 0 where the path lies at the smallest budget throughout, to
    infinity where it lies at the largest. Null with ``rounding: linear``, for which it is not computed.
mech_q, lo, hi
    Percentage points; bootstrap over questions with pi_Q and N^Q kept.
recoverable
    Whether the largest Q_B of the pool is at least the largest Q_RL less ``q_tolerance``; with ``q_sides: two``, within
    ``q_tolerance`` of it.
gap, gap_lo, gap_hi
    Largest Q_RL minus largest Q_B, percentage points; paired bootstrap with both points kept. The maximum over many
    Base points is optimistic (it is chosen on the questions it is measured on), over the RL curve's five less so: the
    true gap tends to be larger than this one, and the interval does not know of it.
diagnostic
    No answer of this benchmark is voted on: Q is the correctness of the first valid sample.
rl
    RL information that the row uses.
reason
    Why nothing is defined (a code of ``rule.REASONS``), else null.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl

from searchlens.boptr import fit
from searchlens.boptr.cohort import Cohort
from searchlens.boptr.evaluate import has_expanded_pool
from searchlens.boptr.fit import Ints
from searchlens.boptr.options import REGIMES, BoptrOptions
from searchlens.boptr.points import interval
from searchlens.boptr.protocol import study_cells
from searchlens.boptr.rule import PoolName, Reason, Rule
from searchlens.boptr.selector import relative_cost
from searchlens.boptr.view import Counts, Readouts, View
from searchlens.errors import InputError

POOLS: tuple[PoolName, ...] = ("ar", "full")
RL_USED = "own cell's Q (description, not transfer)"
SCHEMA = {
    "model": pl.String(),
    "group": pl.String(),
    "benchmark": pl.String(),
    "role": pl.String(),
    "regime": pl.String(),
    "pool": pl.String(),
    "policy": pl.String(),
    "beta_q": pl.Float64(),
    "alpha_q": pl.Float64(),
    "alpha_lo": pl.Float64(),
    "alpha_hi": pl.Float64(),
    "path": pl.String(),
    "mech_q": pl.Float64(),
    "lo": pl.Float64(),
    "hi": pl.Float64(),
    "recoverable": pl.Boolean(),
    "gap": pl.Float64(),
    "gap_lo": pl.Float64(),
    "gap_hi": pl.Float64(),
    "diagnostic": pl.Boolean(),
    "rl": pl.String(),
    "reason": pl.String(),
}
SUMMARY = {
    "pool": pl.String(),
    "role": pl.String(),
    "scope": pl.String(),
    "regime": pl.String(),
    "recoverable": pl.UInt32(),
    "cells": pl.UInt32(),
    "mech_q": pl.Float64(),
}


def q_policy(base: Readouts, total: float, options: BoptrOptions) -> Ints:
    """pi_Q in every draw, ties by name.

    Parameters
    ----------
    base : Readouts
        Of a cell with an autoregressive policy.
    total : float
        Weighted number of questions.
    options : BoptrOptions
        ``q_penalty`` and ``cost_weight``; C(pi) is that of the selector.

    Returns
    -------
    ndarray of int, shape (draws,)
        Positions in the cell.
    """
    order = np.array(sorted(base.autoregressive.tolist(), key=lambda i: base.policies[i]))
    P, Q = (counts[order, -1].astype(float) / total for counts in (base.P, base.Q))
    cost = options.cost_weight * relative_cost(base)[order, None]
    chosen: Ints = order[np.round(Q - options.q_penalty * (P - Q) - cost, 9).argmax(axis=0)]
    return chosen


def voteless(cohort: Cohort, benchmark: str) -> bool:
    """Whether no answer is voted on here: Q is the correctness of the first valid sample.

    Told from the readouts of all checkpoints: with more samples the first valid one may appear, never change, so Q
    never falls. A vote takes back some lucky first samples, unless nothing is solved by anyone; then nothing is told.
    """
    budgets = cohort.plan.budgets
    found = [landscape for (_, name), landscape in cohort.landscapes.items() if name == benchmark]
    votes = [landscape.block("Q", landscape.complete(budgets), budgets) for landscape in found]
    return any(vote.any() for vote in votes) and all((np.diff(vote, axis=1) >= 0).all() for vote in votes)


def q_channel(rule: Rule, boot: View) -> pl.DataFrame:
    """The Q channel of every cell.

    Parameters
    ----------
    rule : Rule
        On the sample view.
    boot : View
        Bootstrap draws of the same cohort.

    Returns
    -------
    polars.DataFrame
        See the module.

    Raises
    ------
    InputError
        Option ``q_beta`` names a benchmark that is not in the cohort.
    """
    if unknown := set(rule.options.q_beta) - set(rule.plan.benchmarks):
        raise InputError(f"q_beta names {', '.join(sorted(unknown))}, which is not in the cohort")
    unvoted = {name: voteless(rule.view.cohort, name) for name in rule.plan.benchmarks}
    rows: list[dict[str, Any]] = []
    for model, benchmark in study_cells(rule.plan):
        described = rule.plan.benchmarks[benchmark]
        cell = {
            "model": model,
            "group": rule.plan.models[model].group,
            "benchmark": benchmark,
            "role": described.role,
            "regime": described.regime,
        }
        found = _described(rule, boot, model, benchmark)
        for pool in POOLS:
            if isinstance(found, Reason):
                rows.append({**cell, "pool": pool, "reason": found.code})
            elif pool == "full" and not has_expanded_pool(rule.view.cohort, model, benchmark):
                rows.append({**cell, "pool": pool, "reason": "no_expanded_pool"})
            else:
                reached = _recovered(rule, boot, model, benchmark, pool)
                rows.append({**cell, "pool": pool, **found, "diagnostic": unvoted[benchmark], **reached})
    return pl.DataFrame(rows, SCHEMA)


def q_summary(frame: pl.DataFrame) -> pl.DataFrame:
    """How many cells are recoverable, and mean mech_Q of those that are.

    Parameters
    ----------
    frame : polars.DataFrame
        From ``q_channel``; filter it first for the means of some models or benchmarks.

    Returns
    -------
    polars.DataFrame
        One row per pool, role of the benchmarks, scope and regime (``all`` and each regime): ``recoverable`` of
        ``cells``, and ``mech_q``, the mean over the recoverable cells (percentage points), null where there is none.
        Scope ``all`` counts every defined cell, ``voted`` those that are no mere diagnostic.
    """
    defined = frame.filter(pl.col("reason").is_null())
    scopes = {"all": defined, "voted": defined.filter(~pl.col("diagnostic"))}
    parts = []
    for scope, cells in scopes.items():
        whole = cells.with_columns(regime=pl.lit("all"))
        parts.append(pl.concat([whole, cells]).with_columns(scope=pl.lit(scope)))
    order = pl.Enum(["all", *REGIMES])
    return (
        pl.concat(parts)
        .group_by("pool", "role", "scope", pl.col("regime").cast(order))
        .agg(
            pl.col("recoverable").sum(),
            pl.len().alias("cells"),
            pl.col("mech_q").filter("recoverable").mean(),
        )
        .sort("pool", "role", "scope", "regime")
        .cast(pl.Schema(SUMMARY))
    )


# ---- one cell


def _curves(rule: Rule, model: str, benchmark: str) -> tuple[Readouts, Counts] | Reason:
    base, target = rule.view.base(model, benchmark), rule.view.target(model, benchmark, "Q")
    if base is None:
        return Reason("no_base")
    if not len(base.autoregressive):
        return Reason("policy_missing")
    return Reason("no_rl") if target is None else (base, target)


def _described(rule: Rule, boot: View, model: str, benchmark: str) -> dict[str, Any] | Reason:
    """pi_Q, N^Q and mech_Q."""
    curves = _curves(rule, model, benchmark)
    if isinstance(curves, Reason):
        return curves
    base, target = curves
    options, budgets, total = rule.options, tuple(rule.plan.budgets), rule.view.total(benchmark)
    chosen, beta = int(q_policy(base, total, options)[0]), options.q_beta.get(benchmark, 0.0)
    fitted = fit.fit_locked(base.Q[[chosen]], target, rule.lattice(beta), options.ties, beta)
    alpha, path = float(fitted.alpha[0]), [budgets[n] for n in fitted.path[:, 0]]
    log2 = options.rounding == "log2"
    low, high = fit.identified_alpha(alpha, beta, len(budgets)) if log2 else (None, None)
    landscape, there = boot.cohort.base(model, benchmark), boot.target(model, benchmark, "Q")
    assert landscape is not None and there is not None
    error = np.abs(boot.count(landscape, benchmark, "Q", base.policies[chosen], path) - there).mean(axis=0, dtype=float)
    lo, hi = interval(100 * error / total, options.confidence)
    return {
        "policy": base.policies[chosen],
        "beta_q": beta,
        "alpha_q": alpha,
        "alpha_lo": low,
        "alpha_hi": high,
        "path": "/".join(map(str, path)),
        "mech_q": 100 * float(fitted.error[0]) / total,
        "lo": lo,
        "hi": hi,
        "rl": RL_USED,
    }


def _recovered(rule: Rule, boot: View, model: str, benchmark: str, pool: PoolName) -> dict[str, Any]:
    """Whether Base reaches RL's best Q, and by how much it misses it."""
    curves = _curves(rule, model, benchmark)
    assert not isinstance(curves, Reason)
    base, target = curves
    budgets, members, options = rule.plan.budgets, base.pool(pool), rule.options
    at, n = divmod(int(base.Q[members, :, 0].argmax()), len(budgets))
    policy, best = members[at], int(target[:, 0].argmax())
    missed = float(target[best, 0] - base.Q[policy, n, 0])
    allowed = options.q_tolerance * rule.view.total(benchmark) + fit.SAME
    landscape, there = boot.cohort.base(model, benchmark), boot.target(model, benchmark, "Q")
    assert landscape is not None and there is not None
    reached = boot.count(landscape, benchmark, "Q", base.policies[policy], [budgets[n]])[0]
    scale = 100 / rule.view.total(benchmark)
    lo, hi = interval(scale * (there[best] - reached).astype(float), options.confidence)
    return {
        "recoverable": (abs(missed) if options.q_sides == "two" else missed) <= allowed,
        "gap": scale * missed,
        "gap_lo": lo,
        "gap_hi": hi,
    }
