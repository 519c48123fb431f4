"""The Q channel: whether Base reaches RL's self-consistency, and along which budgets (paper, table "Q-channel rule").

    pi_Q = argmax over the AR pool of Q_B(pi, 16) - 0.5 (P_B(pi, 16) - Q_B(pi, 16)) - 0.01 C(pi),  16 the largest budget
    N^Q(b) = round_B(alpha^Q b^beta^Q),  mech_Q = 100 mean_b |Q_B(pi_Q, N^Q(b)) - Q_RL(b)|

alpha^Q is fitted to the very RL curve that mech_Q is measured on, so it describes a cell and transfers nothing. One
record per model, benchmark and ``pool``, in which the largest Q_B is taken; pi_Q (``policy``) is autoregressive in
both.

``beta_q``, ``alpha_q``, ``path``: the exponent of the benchmark (option ``q_beta``), the fitted scale and N^Q(b).
``alpha_lo`` to ``alpha_hi``: the interval of alpha with the same path, null with ``rounding: linear``, for which it is
not computed. ``mech_q`` to ``hi_corrected``: as ``error`` and what follows it in ``transfer.ERRORS``, with pi_Q and N^Q
fixed; ``corrected`` also for the optimism of alpha^Q, which is fitted again in up to ``REFITS`` draws.

``recoverable``: whether the largest Q_B of the pool is at least the largest Q_RL minus ``TOLERANCE``; with ``q_sides:
two``, whether it is within ``TOLERANCE`` of it. That rests on ``policies``, the size of the pool, and on ``questions``:
the largest of more policies is larger by chance, too, and fewer questions leave more to chance. ``gap``: largest Q_RL
minus largest Q_B, percentage points; paired bootstrap with both points fixed. Both maxima are optimistic, because they
are chosen on the questions they are measured on; that over the many points of Base more than that over the few of RL.
So the true gap tends to be larger, which the interval does not take into account. ``diagnostic``: whether the benchmark
has no vote: then Q is the correctness of the first valid sample. ``rl``: the RL information that is used.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import polars as pl

from searchlens.boptr import fit, inference
from searchlens.boptr.cohort import Cohort
from searchlens.boptr.evaluate import has_expanded_pool
from searchlens.boptr.fit import Ints
from searchlens.boptr.inference import ErrorDraws
from searchlens.boptr.protocol import study_cells
from searchlens.boptr.rows import difference_interval
from searchlens.boptr.rule import Columns, Found, PoolName, Reason, Rule, records, schema
from searchlens.boptr.selector import COST_WEIGHT, relative_cost
from searchlens.boptr.view import Counts, Readouts, View
from searchlens.catalogue import frame
from searchlens.config.boptr import REGIMES
from searchlens.errors import InputError

POOLS: tuple[PoolName, ...] = ("ar", "full")
RL_USED = "own cell's Q (description, not transfer)"
SCHEMA = schema(
    "model group benchmark role regime pool policy beta_q alpha_q alpha_lo alpha_hi path mech_q lo hi corrected "
    "lo_corrected hi_corrected recoverable policies questions gap gap_lo gap_hi diagnostic rl reason",
    rl=pl.String,
)
PENALTY = 0.5
"""Weight of P - Q in the choice of pi_Q (printed)."""
TOLERANCE = 0.05
"""A cell is recoverable if Base's best Q reaches RL's best Q up to this difference."""
REFITS = 1000
"""Most bootstrap draws in which alpha^Q is fitted again."""
SUMMARY = schema("pool role scope regime recoverable cells mech_q", recoverable=pl.UInt32)


def q_policy(base: Readouts, total: float) -> Ints:
    """pi_Q in every draw, ties by name; C(pi) is that of the selector."""
    order = np.array(sorted(base.autoregressive.tolist(), key=lambda i: base.policies[i]))
    P, Q = (counts[order, -1].astype(float) / total for counts in (base.P, base.Q))
    cost = COST_WEIGHT * relative_cost(base)[order, None]
    chosen: Ints = order[np.round(Q - PENALTY * (P - Q) - cost, 9).argmax(axis=0)]
    return chosen


def voteless(cohort: Cohort, benchmark: str) -> bool:
    """Whether a benchmark has no vote, so that Q is the correctness of the first valid sample.

    This is inferred from the prefix readouts of all checkpoints, whatever readout is used otherwise. Without a vote Q
    never falls: with more samples a first valid one may appear, but not change. A vote overrules some correct first
    samples. False if no question is solved at all.
    """
    landscapes = [landscape for (_, name), landscape in cohort.landscapes.items() if name == benchmark]
    solved = any(landscape.credit["Q"].any() for landscape in landscapes)
    return solved and not any(landscape.votes_fall for landscape in landscapes)


@frame("qchannel")
def q_channel(rule: Rule, boot: View) -> pl.DataFrame:
    """The Q channel of every cell; an InputError if option ``q_beta`` names a benchmark that is not in the cohort."""
    if unknown := set(rule.options.q_beta) - set(rule.plan.benchmarks):
        raise InputError(f"q_beta names {', '.join(sorted(unknown))}, which is not in the cohort")
    unvoted = {name: voteless(rule.view.cohort, name) for name in rule.plan.benchmarks}
    rows: list[tuple[Columns, Found]] = []
    for model, benchmark in study_cells(rule.plan):
        of_cell, curves = rule.plan.benchmarks[benchmark], rule.cell(model, benchmark, "Q")
        cell = {"model": model, "group": rule.plan.models[model].group, "benchmark": benchmark}
        cell |= {"role": of_cell.role, "regime": of_cell.regime}
        if isinstance(curves, Reason):
            rows += [({**cell, "pool": pool}, curves) for pool in POOLS]
            continue
        known = {**_fitted(rule, boot, model, benchmark, *curves), "diagnostic": unvoted[benchmark]}
        rows.append(({**cell, "pool": "ar"}, known | _recovered(rule, boot, model, benchmark, "ar", *curves)))
        expanded = has_expanded_pool(rule.view.cohort, model, benchmark)
        found = known | _recovered(rule, boot, model, benchmark, "full", *curves) if expanded else None
        rows.append(({**cell, "pool": "full"}, found or Reason("no_expanded_pool")))
    return records(SCHEMA, rows)


@frame("q_summary", of=("qchannel",))
def q_summary(frame: pl.DataFrame) -> pl.DataFrame:
    """Number of recoverable cells, and the mean mech_Q of these.

    One record per pool, role of the benchmarks, scope and regime (``all`` and each regime): ``recoverable`` of
    ``cells``, and ``mech_q``, the mean over the recoverable cells in percentage points, null if there is none. Scope
    ``all`` counts every defined cell, ``voted`` only those of benchmarks with a vote.
    """
    defined = frame.filter(pl.col("reason").is_null())
    parts = []
    for scope, cells in {"all": defined, "voted": defined.filter(~pl.col("diagnostic"))}.items():
        parts.append(pl.concat([cells.with_columns(regime=pl.lit("all")), cells]).with_columns(scope=pl.lit(scope)))
    return (
        pl.concat(parts)
        .group_by("pool", "role", "scope", pl.col("regime").cast(pl.Enum(["all", *REGIMES])))
        .agg(
            pl.col("recoverable").sum(),
            pl.len().alias("cells"),
            pl.col("mech_q").filter("recoverable").mean(),
        )
        .sort("pool", "role", "scope", "regime")
        .cast(SUMMARY)
    )


# ---- one cell


def _fitted(rule: Rule, boot: View, model: str, benchmark: str, base: Readouts, target: Counts) -> dict[str, Any]:
    """Columns of pi_Q, N^Q and mech_Q."""
    options, budgets, total = rule.options, tuple(rule.plan.budgets), rule.view.total(benchmark)
    chosen, beta = int(q_policy(base, total)[0]), options.q_beta.get(benchmark, 0.0)
    best = fit.fit_locked(base.Q[[chosen]], target, rule.lattice(beta), options.ties, beta)
    alpha, path = float(best.alpha[0]), [budgets[n] for n in best.path[:, 0]]
    log2 = options.rounding == "log2"
    low, high = fit.identified_alpha(alpha, beta, len(budgets)) if log2 else (None, None)
    error = _error_draws(rule, boot, model, benchmark, base.policies[chosen], path).columns(options.confidence)
    return {
        "policy": base.policies[chosen],
        "beta_q": beta,
        "alpha_q": alpha,
        "alpha_lo": low,
        "alpha_hi": high,
        "path": "/".join(map(str, path)),
        "mech_q": error.pop("error"),
        **error,
        "rl": RL_USED,
    }


def _error_draws(rule: Rule, boot: View, model: str, benchmark: str, policy: str, path: Sequence[int]) -> ErrorDraws:
    """mech_Q of the sample's path in every draw, corrected for the optimism of its scale as well."""
    budgets, total, beta = tuple(rule.plan.budgets), boot.total(benchmark), rule.options.q_beta.get(benchmark, 0.0)
    curve, target = _on_draws(boot, model, benchmark, policy, budgets)
    steps = [budgets.index(n) for n in path]
    fixed = ErrorDraws.of(100 / total * (curve[steps] - target), total)
    some = slice(min(REFITS, rule.options.draws) + 1)
    again = fit.fit_locked(curve[None, :, some], target[:, some], rule.lattice(beta), rule.options.ties, beta)
    in_draw = again.error.astype(float)
    in_sample = np.abs(curve[again.path, 0] - target[:, :1]).mean(axis=0, dtype=float)
    scale = 100 / total
    refitted = inference.refitted(fixed.corrected, fixed.plain, scale * in_draw, scale * in_sample)
    return ErrorDraws(fixed.plain, refitted, total)


def _recovered(
    rule: Rule, boot: View, model: str, benchmark: str, pool: PoolName, base: Readouts, target: Counts
) -> dict[str, Any]:
    """Columns of whether Base reaches RL's best Q, and of the gap."""
    budgets, members, options = rule.plan.budgets, base.pool(pool), rule.options
    at, n = divmod(int(fit.first_least(-base.Q[members, :, 0].ravel())), len(budgets))
    policy, best = members[at], int(fit.first_least(-target[:, 0]))
    gap = float(target[best, 0] - base.Q[policy, n, 0])
    allowed = TOLERANCE * rule.view.total(benchmark) + fit.SAME
    reached, on_draws = _on_draws(boot, model, benchmark, base.policies[policy], [budgets[n]])
    total = rule.view.total(benchmark)
    scale = 100 / total
    lo, hi = difference_interval(scale * (on_draws[best] - reached[0]).astype(float), total, options.confidence)
    return {
        "recoverable": (abs(gap) if options.q_sides == "two" else gap) <= allowed,
        "policies": len(members),
        "questions": round(total),
        "gap": scale * gap,
        "gap_lo": lo,
        "gap_hi": hi,
    }


def _on_draws(boot: View, model: str, benchmark: str, policy: str, budgets: Sequence[int]) -> tuple[Counts, Counts]:
    """Q counts of a policy of Base at budgets, and of the RL target at those of B, in every draw."""
    landscape, target = boot.cohort.base(model, benchmark), boot.target(model, benchmark, "Q")
    assert landscape is not None and target is not None
    return boot.count(landscape, benchmark, "Q", policy, budgets), target
