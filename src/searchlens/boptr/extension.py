"""Beyond the budgets of B: the frozen rule at b > max(B), and Base against RL at equal large budgets.

``extension`` scores the rule at the larger budgets alone; nothing is fitted or selected anew. ``large_budget`` puts the
Base envelope beside the RL curve at every budget, ``crossing`` says from which budget on Base has caught up.

Extended pools are points (policy, budget) of a landscape beyond B; only some policies may have them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from searchlens.boptr import fit
from searchlens.boptr.cohort import DenseLandscape
from searchlens.boptr.fit import Ints
from searchlens.boptr.points import Point, interval, point_counts, point_errors
from searchlens.boptr.rows import At, Predict, boptr
from searchlens.boptr.rule import Path, PoolName, Reason, Rule
from searchlens.boptr.view import Counts, View
from searchlens.policies.kinds import is_search
from searchlens.uncertainty import Floats, wilson

POOLS: tuple[PoolName, ...] = ("ar", "full")

EXTENSION = pl.Schema(
    {
        "model": pl.String(),
        "benchmark": pl.String(),
        "policy": pl.String(),
        "budgets": pl.String(),
        "path": pl.String(),
        "error": pl.Float64(),
        "lo": pl.Float64(),
        "hi": pl.Float64(),
        "reason": pl.String(),
    }
)
"""``budgets``: the b that are scored; ``path``: N-hat at these; percentage points. Benchmark null: the model's mean
over the fitted benchmarks that are extended."""

LARGE_BUDGET = pl.Schema(
    {
        "model": pl.String(),
        "benchmark": pl.String(),
        "pool": pl.String(),
        "b": pl.UInt32(),
        "questions": pl.UInt32(),
        "policy": pl.String(),
        "n": pl.UInt32(),
        "envelope": pl.Float64(),
        "envelope_lo": pl.Float64(),
        "envelope_hi": pl.Float64(),
        "rl": pl.Float64(),
        "rl_lo": pl.Float64(),
        "rl_hi": pl.Float64(),
        "difference": pl.Float64(),
        "lo": pl.Float64(),
        "hi": pl.Float64(),
        "overlap": pl.Boolean(),
        "crossing_share": pl.Float64(),
        "reason": pl.String(),
    }
)
"""Proportions. ``envelope`` is attained by ``policy`` at ``n`` <= b; its interval and that of ``rl`` are Wilson's,
``overlap`` whether these meet; ``difference`` is envelope minus RL with a paired bootstrap interval at these points.
A maximum over a pool is biased upwards, and no interval here allows for that. ``crossing_share``: share of the
bootstrap draws, the envelope taken anew in each, whose crossing budget is b."""

CROSSING = pl.Schema(
    {
        "model": pl.String(),
        "benchmark": pl.String(),
        "pool": pl.String(),
        "crossing": pl.UInt32(),
        "median": pl.UInt32(),
        "lo": pl.UInt32(),
        "hi": pl.UInt32(),
        "never": pl.Float64(),
        "largest": pl.UInt32(),
        "reason": pl.String(),
    }
)
"""k*, the smallest b with E(b) >= P_RL(b); null without a reason: Base never catches up, within ``largest``. Median and
interval over bootstrap draws, the envelope taken anew in each; they are budgets, never between two. ``never``: share of
draws in which it does not."""


# ---- the frozen rule


def extension(rule: Rule, boot: View, predict: Predict = boptr) -> pl.DataFrame:
    """Error of the frozen rule at b > max(B).

    Parameters
    ----------
    rule : Rule
        On the sample.
    boot : View
        Bootstrap view of the same cohort; paths stay those of the sample.
    predict : callable
        The row whose policy, alpha and beta are used: H5 by default.

    Returns
    -------
    polars.DataFrame
        ``EXTENSION``.

    Notes
    -----
    B is extended by doubling to the largest budget that either pi-hat has in Base or the default policy in RL, and
    N-hat is rounded and clipped to that. A budget counts where RL has it and Base has pi-hat at N-hat(b), so that a
    pool that was not extended is never scored at a clipped budget.
    """
    rows: list[dict[str, Any]] = []
    for model in rule.plan.models:
        fitted = []
        for benchmark in rule.plan.with_role("fitted", "held_out"):
            found = _extended(rule, predict, model, benchmark)
            row: dict[str, Any] = {"model": model, "benchmark": benchmark}
            if isinstance(found, Reason):
                rows.append({**row, "reason": found.code})
                continue
            errors = point_errors(boot, model, benchmark, found.points, found.budgets)
            if rule.plan.benchmarks[benchmark].role == "fitted":
                fitted.append(errors)
            rows.append({**row, **found.text(), **_valued(errors, rule.options.confidence)})
        mean = _valued(np.mean(fitted, axis=0), rule.options.confidence) if fitted else {"reason": "no_extension"}
        rows.append({"model": model, **mean})
    return pl.DataFrame(rows, EXTENSION)


@dataclass(frozen=True)
class _Extended:
    """Where the frozen rule is scored: the budgets b, and a point of Base for each."""

    budgets: list[int]
    points: list[Point]

    def text(self) -> dict[str, str]:
        path = "/".join(str(n) for _, n in self.points)
        return {"policy": self.points[0][0], "budgets": "/".join(map(str, self.budgets)), "path": path}


def _extended(rule: Rule, predict: Predict, model: str, benchmark: str) -> _Extended | Reason:
    cell = rule.cell(model, benchmark)
    if isinstance(cell, Reason):
        return cell
    path = predict(rule, At(model, benchmark))
    if isinstance(path, Reason):
        return path
    if not isinstance(path, Path) or path.alpha is None or path.beta is None:
        raise ValueError("only a row that follows the law N(b) = round_B(alpha b^beta) can be extended")
    base, rl = rule.view.cohort.base(model, benchmark), rule.view.cohort.rl(model, benchmark)
    assert base is not None
    assert rl is not None
    name = cell[0].policies[int(path.policy[0, 0])]
    theirs = _doublings(rl, rule.plan.default_policy)
    top = max(theirs[-1], _doublings(base, name)[-1])
    larger = [b for b in theirs if b > rule.plan.budgets[-1]]
    found = n_hat(float(path.alpha[0]), float(path.beta[0]), larger, top, rule.options.rounding)
    kept = [(b, (name, n)) for b, n in zip(larger, found, strict=True) if (name, n) in base.points]
    return _Extended([b for b, _ in kept], [point for _, point in kept]) if kept else Reason("no_extension")


def n_hat(alpha: float, beta: float, budgets: Sequence[int], top: int, space: str = "log2") -> list[int]:
    """round_B(alpha b^beta) at any budgets b, with B = 1, 2, 4, ..., ``top``.

    >>> n_hat(2.639, 0.6, [16, 32, 64], top=64), n_hat(16.0, 1.0, [32, 64], top=64)
    ([16, 16, 32], [64, 64])
    """
    position = np.log2(alpha) + beta * np.log2(np.array(budgets, float))
    return [2**i for i in fit.round_position(position, top.bit_length(), space).tolist()]


def _doublings(landscape: DenseLandscape, policy: str) -> list[int]:
    """1, 2, 4, ... as far as a policy was sampled at each."""
    budgets = []
    n = 1
    while (policy, n) in landscape.points:
        budgets.append(n)
        n *= 2
    return budgets


def _valued(draws: Floats, confidence: float) -> dict[str, Any]:
    lo, hi = interval(draws, confidence)
    return {"error": float(draws[0]), "lo": lo, "hi": hi}


# ---- Base and RL at equal large budgets


def large_budget(rule: Rule, boot: View) -> pl.DataFrame:
    """Base envelope and RL default curve at every budget, on the floor benchmarks (paper, same-budget comparison).

    Parameters
    ----------
    rule : Rule
        On the sample.
    boot : View
        Bootstrap view of the same cohort.

    Returns
    -------
    polars.DataFrame
        ``LARGE_BUDGET``: one row per model, benchmark, pool and budget that both sides have; one row with its reason
        where there is nothing to compare.
    """
    rows: list[dict[str, Any]] = []
    for row, found in _comparisons(rule):
        if isinstance(found, Reason):
            rows.append({**row, "reason": found.code})
            continue
        crossing = found.crossing(boot)[1:]
        for i, b in enumerate(found.budgets):
            share = float((crossing == i).mean()) if len(crossing) else None
            rows.append({**row, "b": b, **found.at(boot, i, rule.options.confidence), "crossing_share": share})
    return pl.DataFrame(rows, LARGE_BUDGET)


def crossing(rule: Rule, boot: View) -> pl.DataFrame:
    """k* of every floor benchmark. Parameters as in ``large_budget``; returns ``CROSSING``."""
    rows: list[dict[str, Any]] = []
    tail = (1 - rule.options.confidence) / 2
    for row, found in _comparisons(rule):
        if isinstance(found, Reason):
            rows.append({**row, "reason": found.code})
            continue
        at = found.crossing(boot)
        budget = dict(enumerate(found.budgets))
        row |= {"crossing": budget.get(int(at[0])), "largest": found.budgets[-1]}
        if len(at) > 1:
            ends = np.quantile(at[1:], [0.5, tail, 1 - tail], method="inverted_cdf")
            row |= dict(zip(("median", "lo", "hi"), (budget.get(int(end)) for end in ends), strict=True))
            row["never"] = float((at[1:] == len(budget)).mean())
        rows.append(row)
    return pl.DataFrame(rows, CROSSING)


@dataclass(frozen=True, eq=False)
class _Comparison:
    """Both sides of a cell at the budgets that both have, and the pool of Base by policy."""

    benchmark: str
    default: str
    base: DenseLandscape
    rl: DenseLandscape
    budgets: list[int]
    pool: dict[str, list[int]]

    def target(self, view: View) -> Counts:
        """RL default counts, shape (budgets, draws)."""
        return view.count(self.rl, self.benchmark, "P", self.default, self.budgets)

    def envelope(self, view: View) -> Counts:
        """E(b) in counts, taken anew in each draw, shape (budgets, draws)."""
        best = np.zeros((len(self.budgets), view.draws), np.float32)
        for policy, sampled in self.pool.items():
            counts = view.count(self.base, self.benchmark, "P", policy, sampled)
            for i, b in enumerate(self.budgets):
                within = [k for k, n in enumerate(sampled) if n <= b]
                if within:
                    np.maximum(best[i], counts[within].max(axis=0), out=best[i])
        return best

    def crossing(self, view: View) -> Ints:
        """Position of k* among the budgets in each draw; their number where Base never catches up."""
        caught = self.envelope(view) >= self.target(view) - fit.SAME
        found: Ints = np.where(caught.any(axis=0), caught.argmax(axis=0), len(self.budgets))
        return found

    def attained(self, b: int) -> Point:
        """The point that attains E(b) in the sample; ties to the smaller budget, then in the order of the pool."""
        points = [(policy, n) for policy, sampled in self.pool.items() for n in sampled if n <= b]
        points.sort(key=lambda point: point[1])
        solved = [self.base.credit["P"][self.base.points[point]].sum(dtype=float) for point in points]
        return points[int(np.argmax(solved))]

    def at(self, boot: View, i: int, confidence: float) -> dict[str, Any]:
        """The comparison at one budget."""
        policy, n = self.attained(self.budgets[i])
        total = boot.total(self.benchmark)
        ours = point_counts(boot, self.base, self.benchmark, [(policy, n)])[0]
        theirs = boot.count(self.rl, self.benchmark, "P", self.default, [self.budgets[i]])[0]
        ends = wilson([ours[0], theirs[0]], total, confidence)
        lo, hi = interval((ours - theirs) / total, confidence)
        return {
            "questions": int(total),
            "policy": policy,
            "n": n,
            "envelope": float(ours[0]) / total,
            "envelope_lo": float(ends.lo[0]),
            "envelope_hi": float(ends.hi[0]),
            "rl": float(theirs[0]) / total,
            "rl_lo": float(ends.lo[1]),
            "rl_hi": float(ends.hi[1]),
            "difference": float(ours[0] - theirs[0]) / total,
            "lo": lo,
            "hi": hi,
            "overlap": bool(ends.lo.max() <= ends.hi.min()),
        }


def _comparisons(rule: Rule) -> list[tuple[dict[str, Any], _Comparison | Reason]]:
    plan = rule.plan
    floor = [d for d in plan.with_role("fitted", "held_out") if rule.regime(d) == "floor"]
    return [
        ({"model": model, "benchmark": benchmark, "pool": pool}, _comparison(rule, model, benchmark, pool))
        for model in plan.models
        for benchmark in floor
        for pool in POOLS
    ]


def _comparison(rule: Rule, model: str, benchmark: str, pool: PoolName) -> _Comparison | Reason:
    cell = rule.cell(model, benchmark)
    if isinstance(cell, Reason):
        return cell
    base, rl = rule.view.cohort.base(model, benchmark), rule.view.cohort.rl(model, benchmark)
    assert base is not None
    assert rl is not None
    if pool == "full" and not any(is_search(policy) for policy in base.policies):
        return Reason("no_expanded_pool")
    members: dict[str, list[int]] = {}
    for policy, n in base.points:
        if pool == "full" or not is_search(policy):
            members.setdefault(policy, []).append(n)
    known = {n for sampled in members.values() for n in sampled}
    budgets = [b for b in _doublings(rl, rule.plan.default_policy) if b in known]
    return _Comparison(benchmark, rule.plan.default_policy, base, rl, budgets, members)
