"""Beyond the budgets of B: the frozen rule at b > max(B), and Base against RL at equal large budgets.

``extension`` scores the rule at the larger budgets only; nothing is fitted or selected again. ``large_budget`` compares
the Base envelope with the RL curve at every budget, ``crossing`` gives the budget from which Base is never behind.

Larger budgets are points (policy, budget) of a landscape like all others; not every policy needs to have them.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from searchlens.boptr import fit
from searchlens.boptr.cohort import DenseLandscape
from searchlens.boptr.fit import Ints
from searchlens.boptr.inference import ErrorDraws
from searchlens.boptr.rows import (
    At,
    Point,
    boptr,
    both_sides,
    budgets_text,
    difference_interval,
    point_counts,
    point_errors,
    readout_interval,
)
from searchlens.boptr.rule import Columns, Find, PoolName, Reason, Rule, attempt, records, schema
from searchlens.boptr.view import Counts, View
from searchlens.catalogue import frame
from searchlens.search.kinds import is_search

POOLS: tuple[PoolName, ...] = ("ar", "full")

EXTENSION = schema("model benchmark policy budgets path error lo hi corrected lo_corrected hi_corrected reason")
"""Percentage points, as ``transfer.ERRORS`` but corrected for the bias of absolute values alone, since nothing is
chosen at these budgets. ``budgets``: the b that are scored; ``path``: N-hat at these. Benchmark null: the mean over the
model's fitted benchmarks with larger budgets."""

LARGE_BUDGET = schema(
    "model benchmark pool b questions policy n envelope envelope_lo envelope_hi rl rl_lo rl_hi rl_minus_best lo hi "
    "overlap crossing_share tie_share reason",
    n=pl.UInt32,
)
"""Proportions. ``envelope``: the largest P of the pool up to budget b, attained by ``policy`` at ``n`` <= b. It and
``rl`` have the intervals of ``rows.readout_interval``; ``overlap``: whether these meet. ``rl_minus_best``: RL minus
envelope, with a paired bootstrap interval (``lo``, ``hi``) at these two points. A maximum over a pool is biased
upwards, which no interval here takes into account. ``crossing_share`` and ``tie_share``: share of the bootstrap draws
whose k* and whose first tie is b, with the envelope of each draw."""

CROSSING = schema(
    "model benchmark pool crossing share median lo hi never tie tie_share largest reason",
    lo=pl.UInt32,
    hi=pl.UInt32,
    largest=pl.UInt32,
)
"""``crossing``: k*, the budget at which Base overtakes for good: the smallest b with E(b') >= P_RL(b') at every
compared b' from b to ``largest``. Null without a reason: Base is behind at ``largest``. ``share``: share of the
bootstrap draws with the same answer, the envelope taken again in each. ``median``, ``lo``, ``hi``: over the draws and
the sample; always budgets, or null for no crossing. ``never``: share of draws without a crossing. ``tie``: the smallest
b with E(b) >= P_RL(b), after which Base may fall behind again; ``tie_share``: share of draws with the same. The reason
``no_difference``: both solve equally many questions at every budget, mostly none, and nothing crosses."""


# ---- the frozen rule


@frame("extension")
def extension(rule: Rule, boot: View) -> pl.DataFrame:
    """Error of the frozen rule at b > max(B); the paths are those of H5 on the sample.

    B is extended by doubling to the larger of two budgets: the largest of pi-hat in Base and the largest of the default
    policy in RL. N-hat is rounded and clipped to that range. A budget b is scored if RL has it and Base has pi-hat at
    N-hat(b), so a pool without larger budgets is never scored at a clipped one.
    """
    confidence = rule.options.confidence
    rows: list[Columns] = []
    for model in rule.plan.models:
        fitted = []
        for benchmark in rule.plan.with_role("fitted", "held_out"):
            cell, points = {"model": model, "benchmark": benchmark}, attempt(_larger, rule, model, benchmark)
            if isinstance(points, Reason):
                rows.append({**cell, "reason": points.code})
                continue
            errors = point_errors(boot, model, benchmark, list(points.values()), list(points))
            fitted += [errors] if rule.plan.benchmarks[benchmark].role == "fitted" else []
            policy, _ = next(iter(points.values()))
            text = {"budgets": "/".join(map(str, points)), "path": budgets_text(list(points.values()))}
            rows.append({**cell, "policy": policy, **text, **errors.columns(confidence)})
        mean = ErrorDraws.mean(fitted).columns(confidence) if fitted else {"reason": "no_extension"}
        rows.append({"model": model, **mean})
    return pl.DataFrame(rows, EXTENSION)


def _larger(rule: Rule, model: str, benchmark: str) -> dict[int, Point]:
    """Where the frozen rule is scored: budgets b, and a point of Base for each."""
    (readouts, _), (base, rl) = rule.cell(model, benchmark), both_sides(rule.view, model, benchmark)
    path = boptr(rule, At(model, benchmark))
    assert path.alpha is not None and path.beta is not None
    name = readouts.policies[int(path.policy[0, 0])]
    of_rl = _doublings(rl, rule.plan.default_policy)
    top = max(of_rl[-1], _doublings(base, name)[-1])
    larger = [b for b in of_rl if b > rule.plan.budgets[-1]]
    n = n_hat(float(path.alpha[0]), float(path.beta[0]), larger, top, rule.options.rounding)
    points = {b: (name, n_b) for b, n_b in zip(larger, n, strict=True) if (name, n_b) in base.points}
    if not points:
        raise Reason("no_extension")
    return points


def n_hat(alpha: float, beta: float, budgets: Sequence[int], top: int, space: str = "log2") -> list[int]:
    """round_B(alpha b^beta) at any budgets b, with B = 1, 2, 4, ..., ``top``.

    >>> n_hat(2.639, 0.6, [16, 32, 64], top=64), n_hat(16.0, 1.0, [32, 64], top=64)
    ([16, 16, 32], [64, 64])
    """
    position = np.log2(alpha) + beta * np.log2(np.array(budgets, float))
    return [2**i for i in fit.round_position(position, top.bit_length(), space).tolist()]


def _doublings(landscape: DenseLandscape, policy: str) -> list[int]:
    """1, 2, 4, ... up to the first budget at which the policy was not sampled."""
    powers = (2**i for i in itertools.count())
    return list(itertools.takewhile(lambda n: (policy, n) in landscape.points, powers))


# ---- Base and RL at equal large budgets


@frame("aime_large_budget")
def large_budget(rule: Rule, boot: View) -> pl.DataFrame:
    """Base envelope and RL default curve at equal budgets, on the floor benchmarks (paper, same-budget comparison)."""
    return records(LARGE_BUDGET, _floor_cells(rule, partial(_curves, rule, boot)))


def _curves(rule: Rule, boot: View, model: str, benchmark: str, pool: PoolName) -> Iterator[Columns]:
    comparison = _comparison(rule, model, benchmark, pool)
    places = comparison.crossing(boot)
    for i, b in enumerate(comparison.budgets):
        crossing, tie = (_share(place, i) for place in (places.for_good, places.first))
        at_b = comparison.at(boot, i, rule.options.confidence)
        yield {"b": b, **at_b, "crossing_share": crossing, "tie_share": tie}


@frame("crossing")
def crossing(rule: Rule, boot: View) -> pl.DataFrame:
    """k* on every floor benchmark."""
    return records(CROSSING, _floor_cells(rule, partial(_crossing, rule, boot)))


def _crossing(rule: Rule, boot: View, model: str, benchmark: str, pool: PoolName) -> Columns:
    comparison = _comparison(rule, model, benchmark, pool)
    budget = dict(enumerate(comparison.budgets))
    record: dict[str, Any] = {"largest": comparison.budgets[-1]}
    if comparison.equal(rule.view):
        return {**record, "reason": "no_difference"}
    places = comparison.crossing(boot)
    position, tie = int(places.for_good[0]), int(places.first[0])
    record |= {"crossing": budget.get(position), "share": _share(places.for_good, position)}
    record |= {"tie": budget.get(tie), "tie_share": _share(places.first, tie)}
    drawn, tail = places.for_good[1:], (1 - rule.options.confidence) / 2
    if len(drawn):
        median, lo, hi = np.quantile(drawn, [0.5, tail, 1 - tail], method="inverted_cdf")
        ends = {"median": median, "lo": min(lo, position), "hi": max(hi, position)}
        record |= {name: budget.get(int(end)) for name, end in ends.items()}
        record["never"] = _share(places.for_good, len(budget))
    return record


class _Places(NamedTuple):
    """Positions among the budgets in the sample and in each draw; their number where there is none."""

    for_good: Ints
    first: Ints


def _share(positions: Ints, position: int) -> float | None:
    """Share of the draws with this position; None without draws."""
    return float((positions[1:] == position).mean()) if len(positions) > 1 else None


@dataclass(frozen=True, eq=False)
class _Comparison:
    """Both sides of a cell at the budgets that both have; ``pool``: policies of Base with their sampled budgets."""

    benchmark: str
    default: str
    base: DenseLandscape
    rl: DenseLandscape
    budgets: list[int]
    pool: dict[str, list[int]]

    def target(self, view: View) -> Counts:
        """Counts of the RL default curve, shape (budgets, draws)."""
        return view.count(self.rl, self.benchmark, "P", self.default, self.budgets)

    def envelope(self, view: View) -> Counts:
        """Counts of the envelope E(b) of each draw, shape (budgets, draws)."""
        best = np.zeros((len(self.budgets), view.draws), np.float32)
        for policy, sampled in self.pool.items():
            counts = view.count(self.base, self.benchmark, "P", policy, sampled)
            for i, b in enumerate(self.budgets):
                within = [k for k, n in enumerate(sampled) if n <= b]
                if within:
                    np.maximum(best[i], counts[within].max(axis=0), out=best[i])
        return best

    def equal(self, view: View) -> bool:
        """Whether both sides solve equally many questions at every budget, in draw 0."""
        return bool((np.abs(self.envelope(view) - self.target(view))[:, 0] <= fit.SAME).all())

    def crossing(self, view: View) -> _Places:
        """Where Base overtakes for good, and where it is level or ahead for the first time."""
        level = self.envelope(view) >= self.target(view) - fit.SAME
        never_behind = np.logical_and.accumulate(level[::-1], axis=0)[::-1]
        for_good, first = (np.where(x.any(axis=0), x.argmax(axis=0), len(x)) for x in (never_behind, level))
        return _Places(for_good, first)

    def attained(self, b: int) -> Point:
        """The point that attains E(b) in the sample; ties to the smaller budget, then to the earlier policy."""
        points = [(policy, n) for policy, sampled in self.pool.items() for n in sampled if n <= b]
        points.sort(key=lambda point: point[1])
        solved = np.array([self.base.credit["P"][self.base.points[point]].sum(dtype=float) for point in points])
        return points[int(fit.first_least(-solved))]

    def at(self, boot: View, i: int, confidence: float) -> dict[str, Any]:
        """The comparison at one budget."""
        policy, n = self.attained(self.budgets[i])
        total = boot.total(self.benchmark)
        base = point_counts(boot, self.base, self.benchmark, [(policy, n)])[0]
        rl = boot.count(self.rl, self.benchmark, "P", self.default, [self.budgets[i]])[0]
        ends = readout_interval(boot, np.stack([base, rl]), self.benchmark, confidence)
        lo, hi = difference_interval((rl - base) / total, total, confidence, limits=(-1.0, 1.0))
        return {
            "questions": int(total),
            "policy": policy,
            "n": n,
            "envelope": float(base[0]) / total,
            "envelope_lo": float(ends.lo[0]),
            "envelope_hi": float(ends.hi[0]),
            "rl": float(rl[0]) / total,
            "rl_lo": float(ends.lo[1]),
            "rl_hi": float(ends.hi[1]),
            "rl_minus_best": float(rl[0] - base[0]) / total,
            "lo": lo,
            "hi": hi,
            "overlap": bool(ends.lo.max() <= ends.hi.min()),
        }


def _floor_cells(
    rule: Rule, find: Callable[[str, str, PoolName], Columns | Iterable[Columns]]
) -> Iterator[tuple[Columns, Find]]:
    """Every floor cell by pool, with what finds its records."""
    floor = [d for d in rule.plan.with_role("fitted", "held_out") if rule.regime(d) == "floor"]
    for model, benchmark, pool in itertools.product(rule.plan.models, floor, POOLS):
        yield {"model": model, "benchmark": benchmark, "pool": pool}, partial(find, model, benchmark, pool)


def _comparison(rule: Rule, model: str, benchmark: str, pool: PoolName) -> _Comparison:
    rule.cell(model, benchmark)
    base, rl = both_sides(rule.view, model, benchmark)
    searches = {policy for policy in base.policies if is_search(policy, rule.plan.configured)}
    if pool == "full" and not searches:
        raise Reason("no_expanded_pool")
    members: dict[str, list[int]] = {}
    for policy, n in base.points:
        if pool == "full" or policy not in searches:
            members.setdefault(policy, []).append(n)
    of_base = {n for sampled in members.values() for n in sampled}
    budgets = [b for b in _doublings(rl, rule.plan.default_policy) if b in of_base]
    return _Comparison(benchmark, rule.plan.default_policy, base, rl, budgets, members)
