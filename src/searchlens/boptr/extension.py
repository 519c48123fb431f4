"""Beyond the main samples: other batches of the same checkpoints, and larger budgets than those of B.

A batch is the same checkpoint sampled with another seed. ``readout_consistency`` (paper, "Readout-consistency
caliber") compares P of a side (``role``) with the main batch, in percentage points, at the ``points`` (policy, budget)
that both have. ``group``: ``all``, or one temperature (``T=1.0``); searches are in ``all`` only. ``mean_abs``,
``mean_signed``: means over points of |P_batch - P_main| and of P_batch - P_main, this with a paired bootstrap over
questions. ``chance``: expected ``mean_abs`` of two batches that differ by sampling only, from exchanging each
question's two results at random; only the excess over it is a difference between batches. ``largest``: the signed
difference of largest size, with its point. ``meets_criterion``: mean_abs <= CRITERION.

``seed_replication`` has the anchor rule's error on each batch, by ``variant`` (``fixed_pi`` or ``full_rule``), as
``transfer.ERRORS`` but corrected for the bias of absolute values alone; ``benchmark`` ``mean``: the mean over the
benchmarks of a batch. ``seed_summary`` has the mean and standard deviation of ``error`` over batches.

``extension`` scores the rule at the larger budgets only; nothing is fitted or selected again. ``large_budget`` compares
the Base envelope with the RL curve at every budget, ``crossing`` gives the budget from which Base is never behind.
Larger budgets are points (policy, budget) of a landscape like all others; not every policy needs to have them.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from searchlens.analysis.uncertainty import Resamples, with_width
from searchlens.boptr import fit
from searchlens.boptr.cohort import DenseLandscape
from searchlens.boptr.fit import Ints
from searchlens.boptr.inference import ErrorDraws
from searchlens.boptr.protocol import study_cells
from searchlens.boptr.rows import (
    At,
    Point,
    boptr,
    both_sides,
    budgets_text,
    difference_interval,
    estimate_interval,
    point_counts,
    point_errors,
)
from searchlens.boptr.rule import Columns, Find, Path, PoolName, Reason, Rule, attempt, by_cell, records, schema
from searchlens.boptr.view import CellCounts, Counts, View
from searchlens.catalogue import frame
from searchlens.search.kinds import PolicyByName, is_search, policy_of
from searchlens.seeds import resampler

MAIN = "main"
"""Name of the batch from which all other frames are computed."""
MEAN = "mean"
"""Stands in column ``benchmark`` for the mean over benchmarks."""
VARIANTS = ("fixed_pi", "full_rule")
CRITERION = 2.0
"""Limit on the mean absolute difference of two batches, percentage points, set beforehand (printed)."""
EXCHANGES = 500
"""Random exchanges for ``chance``: more make it more precise and take longer."""

CONSISTENCY = schema(
    "model role batch benchmark group points mean_abs mean_signed lo hi chance largest policy budget meets_criterion "
    "reason"
)
REPLICATION = schema("variant benchmark batch policy error lo hi corrected lo_corrected hi_corrected reason")
SUMMARY = schema("variant benchmark batches mean sd reason")


# ---- two batches of one checkpoint


@frame("readout_consistency")
def readout_consistency(rule: Rule, boot: View) -> pl.DataFrame:
    """Differences of P between each batch and the main one.

    A cell without a second batch, or without a point that both batches have, has one record with the reason
    ``no_batches``.
    """
    cells = by_cell(CONSISTENCY, study_cells(rule.plan), partial(_cell, rule, boot))
    return cells.with_columns(pl.col("lo", "hi").fill_nan(None))


def _cell(rule: Rule, boot: View, model: str, benchmark: str) -> Iterator[dict[str, Any]]:
    cohort, compared = rule.view.cohort, False
    mains = {"base": cohort.base(model, benchmark), "rl": cohort.rl(model, benchmark)}
    for batch, sides in rule.plan.models[model].batches.items():
        for role, checkpoint in sides.items():
            main, other = mains[role], cohort.landscapes.get((checkpoint, benchmark))
            if main is None or other is None:
                continue
            shared = [point for point in main.points if point in other.points]
            for group, points in _groups(shared, rule.plan.configured).items():
                values = _differences(rule, boot, benchmark, (main, other), points)
                yield {"role": role, "batch": batch, "group": group, **values}
                compared = True
    if not compared:
        raise Reason("no_batches")


def _groups(points: Sequence[Point], configured: PolicyByName) -> dict[str, list[Point]]:
    """All points, then those of each temperature, in increasing order."""
    if not points:
        return {}
    policies = {name: policy_of(name, configured) for name, _ in points if not is_search(name, configured)}
    temperature = {name: policy.local.temperature for name, policy in policies.items() if policy}
    by_temperature = {
        f"T={value}": [point for point in points if temperature.get(point[0]) == value]
        for value in sorted(set(temperature.values()))
    }
    return {"all": list(points), **by_temperature}


def _differences(
    rule: Rule, boot: View, benchmark: str, sides: tuple[DenseLandscape, DenseLandscape], points: list[tuple[str, int]]
) -> dict[str, Any]:
    main, other = (side.credit["P"][[side.points[point] for point in points]] for side in sides)
    gaps = 100 * (other - main).astype(float)
    delta = gaps.mean(axis=1)
    signed, confidence = gaps.mean(axis=0), rule.options.confidence
    drawn = Resamples(boot.weights[benchmark][:, 1:]).interval(signed[:, None], confidence)
    lo, hi = with_width(signed.mean(), drawn, len(signed), confidence, (-100.0, 100.0))
    size = float(np.abs(delta).mean())
    at = int(np.abs(delta).argmax())
    # One random sign for each question's gaps at all points.
    flips = resampler(rule.options.seed, *gaps.shape).integers(0, 2, (gaps.shape[1], EXCHANGES))
    signs = flips * 2.0 - 1
    return {
        "points": len(points),
        "mean_abs": size,
        "mean_signed": float(delta.mean()),
        "lo": float(lo[0]),
        "hi": float(hi[0]),
        "chance": float(np.abs(gaps @ signs).mean() / gaps.shape[1]),
        "largest": float(delta[at]),
        "policy": points[at][0],
        "budget": points[at][1],
        "meets_criterion": size <= CRITERION,
    }


# ---- the anchor at several seeds


@frame("seed_replication")
def seed_replication(rule: Rule, boot: View) -> pl.DataFrame:
    """The anchor rule's error on every batch of the anchor's Base, on its fitted benchmarks; RL is that of the main
    batch.

    ``fixed_pi`` takes the policy and the path of the main batch; ``full_rule`` takes its N-hat and prototype, but
    selects the policy from the batch. Both use only the policies that all batches have, so ``full_rule`` of the main
    batch may differ from H5. The record ``mean`` of a batch averages the benchmarks that are defined in every batch,
    and is null if there are none. Paper, note of the table of horizontal transfer, "3-seed replication".
    """
    cells = [{"variant": variant, "benchmark": d} for d in rule.plan.with_role("fitted") for variant in VARIANTS]
    frame = records(REPLICATION, ((cell, partial(_on_batches, rule, boot, **cell)) for cell in cells))
    return pl.concat([frame, means_within_batches(frame)])


def _on_batches(rule: Rule, boot: View, benchmark: str, variant: str) -> Iterator[dict[str, Any]]:
    model, budgets = rule.plan.anchor_model, rule.plan.budgets
    base, _ = rule.cell(model, benchmark)
    path, cohort = boptr(rule, At(model, benchmark)), rule.view.cohort
    found = {MAIN: cohort.base(model, benchmark)}
    for batch, sides in rule.plan.models[model].batches.items():
        found[batch] = cohort.landscapes.get((sides.get("base", ""), benchmark))
    landscapes = {batch: landscape for batch, landscape in found.items() if landscape}
    common = [name for name in base.policies if all(name in each.complete(budgets) for each in landscapes.values())]
    cells = {batch: rule.view.cell_counts(landscape, benchmark) for batch, landscape in landscapes.items()}
    known = {batch: _only(cell, common) for batch, cell in cells.items() if cell}
    if len(known) < 2:
        raise Reason("no_batches")
    target, total, main = boot.target(model, benchmark), boot.total(benchmark), base.policies[int(path.policy[0, 0])]
    assert target is not None
    for batch, cell in known.items():
        policy = main if variant == "fixed_pi" else _selected(rule, cell, path)
        if policy not in cell.index:
            yield {"batch": batch, "reason": "policy_missing"}
            continue
        predicted = boot.count(landscapes[batch], benchmark, "P", policy, [budgets[n] for n in path.budget[:, 0]])
        error = ErrorDraws.of(100 / total * (predicted - target), total).columns(rule.options.confidence)
        yield {"batch": batch, "policy": policy, **error}


def _only(cell: CellCounts, names: Sequence[str]) -> CellCounts:
    at = [cell.index[name] for name in names]
    return CellCounts(tuple(names), tuple(cell.controllers[i] for i in at), cell.P[at], cell.Q[at], cell.tokens[at])


def _selected(rule: Rule, cell: CellCounts, path: Path) -> str | None:
    """pi-hat of a batch along N-hat of the main batch, by the prototype of the main batch; None without candidates."""
    if not cell.autoregressive.size:
        return None
    distance, cost = fit.distances(fit.features(cell), rule.prototype()), fit.COST_WEIGHT * fit.relative_cost(cell)
    return cell.policies[int(fit.select(distance, path.budget, cost, cell.autoregressive, cell.policies)[0])]


def means_within_batches(frame: pl.DataFrame) -> pl.DataFrame:
    """The records ``mean`` of ``seed_replication``: each batch's mean error over the benchmarks that every batch
    defines.

    Null with the reason ``no_batches`` if there is no such benchmark.
    """
    means: list[Mapping[str, Any]] = []
    for variant in VARIANTS:
        defined = frame.filter(variant=variant).filter(pl.col("error").is_not_null())
        batches = defined["batch"].unique(maintain_order=True).to_list()
        complete = defined.group_by("benchmark").len().filter(pl.col("len") == len(batches))["benchmark"]
        matched = defined.filter(pl.col("benchmark").is_in(complete.to_list()))
        for batch in batches:
            values = matched.filter(batch=batch).select(pl.col("error", "corrected").mean()).row(0, named=True)
            reason = "no_batches" if values["error"] is None else None
            means.append({"variant": variant, "benchmark": MEAN, "batch": batch, **values, "reason": reason})
        if not batches:
            means.append({"variant": variant, "benchmark": MEAN, "reason": "no_batches"})
    return pl.DataFrame(means, REPLICATION)


@frame("seed_summary", of=("seed_replication",))
def seed_summary(replication: pl.DataFrame) -> pl.DataFrame:
    """Mean and standard deviation of the error over batches.

    ``sd`` has ddof 1, so it is null for a single batch. For ``benchmark`` ``mean`` both are taken over the batches'
    means, so ``sd`` is the standard deviation of a mean, not a mean of standard deviations.
    """
    return (
        replication.group_by("variant", "benchmark", maintain_order=True)
        .agg(
            batches=pl.col("error").count(),
            mean=pl.col("error").mean(),
            sd=pl.col("error").std(ddof=1),
            reason=pl.when(pl.col("error").is_null().all()).then(pl.col("reason").first()).first(),
        )
        .select(*SUMMARY)
        .cast(SUMMARY)  # type: ignore[arg-type]
    )


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
``rl`` have the intervals of ``rows.estimate_interval``; ``overlap``: whether these meet. ``rl_minus_best``: RL minus
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
    (counts, _), (base, rl) = rule.cell(model, benchmark), both_sides(rule.view, model, benchmark)
    path = boptr(rule, At(model, benchmark))
    assert path.alpha is not None and path.beta is not None
    name = counts.policies[int(path.policy[0, 0])]
    of_rl = _doublings(rl, rule.plan.default_policy)
    top = max(of_rl[-1], _doublings(base, name)[-1])
    larger = [b for b in of_rl if b > rule.plan.budgets[-1]]
    n = n_hat(float(path.alpha[0]), float(path.beta[0]), larger, top)
    points = {b: (name, n_b) for b, n_b in zip(larger, n, strict=True) if (name, n_b) in base.points}
    if not points:
        raise Reason("no_extension")
    return points


def n_hat(alpha: float, beta: float, budgets: Sequence[int], top: int) -> list[int]:
    """round_B(alpha b^beta) at any budgets b, with B = 1, 2, 4, ..., ``top``.

    >>> n_hat(2.639, 0.6, [16, 32, 64], top=64), n_hat(16.0, 1.0, [32, 64], top=64)
    ([16, 16, 32], [64, 64])
    """
    position = np.log2(alpha) + beta * np.log2(np.array(budgets, float))
    return [2**i for i in fit.round_position(position, top.bit_length()).tolist()]


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

    def at(self, boot: View, i: int, confidence: float) -> dict[str, Any]:
        """The comparison at one budget b, with the point that attains E(b) in the sample.

        Of several the one of the smallest budget, then that of the first policy.
        """
        points = [(policy, n) for policy, sampled in self.pool.items() for n in sampled if n <= self.budgets[i]]
        points.sort(key=lambda point: point[1])
        solved = np.array([self.base.credit["P"][self.base.points[point]].sum(dtype=float) for point in points])
        policy, n = points[int(fit.first_least(-solved))]
        total = boot.total(self.benchmark)
        base = point_counts(boot, self.base, self.benchmark, [(policy, n)])[0]
        rl = boot.count(self.rl, self.benchmark, "P", self.default, [self.budgets[i]])[0]
        ends = estimate_interval(boot, np.stack([base, rl]), self.benchmark, confidence)
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
