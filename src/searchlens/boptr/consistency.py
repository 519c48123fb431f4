"""Batches: the same checkpoint sampled with another seed. How much readouts and the rule's error differ between them.

``readout_consistency`` (paper, "Readout-consistency caliber") compares P of a side (``role``) with the main batch, in
percentage points, at the ``points`` (policy, budget) that both have. ``group``: ``all``, or one temperature
(``T=1.0``); searches are in ``all`` only. ``mean_abs``, ``mean_signed``: means over points of |P_batch - P_main| and of
P_batch - P_main, this with a paired bootstrap over questions. ``chance``: expected ``mean_abs`` of two batches that
differ by sampling only, from exchanging each question's two results at random; only the excess over it is a difference
between batches. ``largest``: the signed difference of largest size, with its point. ``meets_criterion``: mean_abs <=
CRITERION.

``seed_replication`` has the anchor rule's error on each batch, by ``reading`` (``fixed_pi`` or ``full_rule``), as
``transfer.ERRORS`` but corrected for the bias of absolute values alone; ``benchmark`` ``mean``: the mean over the
benchmarks of a batch. ``seed_summary`` has the mean and standard deviation of ``error`` over batches.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import polars as pl

from searchlens.analysis.uncertainty import Resamples, with_width
from searchlens.boptr import selector
from searchlens.boptr.cohort import DenseLandscape
from searchlens.boptr.inference import ErrorDraws
from searchlens.boptr.protocol import study_cells
from searchlens.boptr.rows import At, Point, boptr
from searchlens.boptr.rule import Path, Reason, Rule, by_cell, records, schema
from searchlens.boptr.view import Readouts, View
from searchlens.catalogue import frame
from searchlens.search.kinds import PolicyByName, is_search, policy_of
from searchlens.seeds import resampler

MAIN = "main"
"""Name of the batch from which all other frames are computed."""
MEAN = "mean"
"""Stands in column ``benchmark`` for the mean over benchmarks."""
READINGS = ("fixed_pi", "full_rule")
CRITERION = 2.0
"""Limit on the mean absolute difference of two batches, percentage points, set beforehand (printed)."""
EXCHANGES = 500
"""Random exchanges for ``chance``: more make it more precise and take longer."""

CONSISTENCY = schema(
    "model role batch benchmark group points mean_abs mean_signed lo hi chance largest policy budget meets_criterion "
    "reason"
)
REPLICATION = schema("reading benchmark batch policy error lo hi corrected lo_corrected hi_corrected reason")
SUMMARY = schema("reading benchmark batches mean sd reason")


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
    cells = [{"reading": reading, "benchmark": d} for d in rule.plan.with_role("fitted") for reading in READINGS]
    frame = records(REPLICATION, ((cell, partial(_on_batches, rule, boot, **cell)) for cell in cells))
    return pl.concat([frame, means_within_batches(frame)])


def _on_batches(rule: Rule, boot: View, benchmark: str, reading: str) -> Iterator[dict[str, Any]]:
    model, budgets = rule.plan.anchor_model, rule.plan.budgets
    base, _ = rule.cell(model, benchmark)
    path, cohort = boptr(rule, At(model, benchmark)), rule.view.cohort
    found = {MAIN: cohort.base(model, benchmark)}
    for batch, sides in rule.plan.models[model].batches.items():
        found[batch] = cohort.landscapes.get((sides.get("base", ""), benchmark))
    landscapes = {batch: landscape for batch, landscape in found.items() if landscape}
    common = [name for name in base.policies if all(name in each.complete(budgets) for each in landscapes.values())]
    cells = {batch: rule.view.readouts(landscape, benchmark) for batch, landscape in landscapes.items()}
    known = {batch: _only(cell, common) for batch, cell in cells.items() if cell}
    if len(known) < 2:
        raise Reason("no_batches")
    for batch, cell in known.items():
        try:
            main = base.policies[int(path.policy[0, 0])]
            policy = main if reading == "fixed_pi" else _selected(rule, benchmark, cell, path)
            if policy not in cell.index:
                raise Reason("policy_missing")
            yield {"batch": batch, "policy": policy, **_error(rule, boot, benchmark, landscapes[batch], policy, path)}
        except Reason as reason:
            yield {"batch": batch, "reason": reason.code}


def _only(cell: Readouts, names: Sequence[str]) -> Readouts:
    at = [cell.index[name] for name in names]
    return Readouts(tuple(names), tuple(cell.controllers[i] for i in at), cell.P[at], cell.Q[at], cell.tokens[at])


def _selected(rule: Rule, benchmark: str, cell: Readouts, path: Path) -> str:
    """pi-hat of a batch along N-hat of the main batch, by the prototype of the main batch."""
    candidates = rule.candidates(cell, benchmark)
    distance = selector.distances(selector.features(cell, rule.options), rule.prototype(), rule.options)
    cost = selector.COST_WEIGHT * selector.relative_cost(cell)
    return cell.policies[int(selector.select(distance, path.budget, cost, candidates, cell.policies)[0])]


def _error(
    rule: Rule, boot: View, benchmark: str, landscape: DenseLandscape, policy: str, path: Path
) -> dict[str, Any]:
    budgets = [rule.plan.budgets[n] for n in path.budget[:, 0]]
    target = boot.target(rule.plan.anchor_model, benchmark)
    assert target is not None
    total, predicted = boot.total(benchmark), boot.count(landscape, benchmark, "P", policy, budgets)
    return ErrorDraws.of(100 / total * (predicted - target), total).columns(rule.options.confidence)


def means_within_batches(frame: pl.DataFrame) -> pl.DataFrame:
    """The records ``mean`` of ``seed_replication``: each batch's mean error over the benchmarks that every batch
    defines.

    Null with the reason ``no_batches`` if there is no such benchmark.
    """
    means: list[Mapping[str, Any]] = []
    for reading in READINGS:
        defined = frame.filter(reading=reading).filter(pl.col("error").is_not_null())
        batches = defined["batch"].unique(maintain_order=True).to_list()
        complete = defined.group_by("benchmark").len().filter(pl.col("len") == len(batches))["benchmark"]
        matched = defined.filter(pl.col("benchmark").is_in(complete.to_list()))
        for batch in batches:
            values = matched.filter(batch=batch).select(pl.col("error", "corrected").mean()).row(0, named=True)
            reason = "no_batches" if values["error"] is None else None
            means.append({"reading": reading, "benchmark": MEAN, "batch": batch, **values, "reason": reason})
        if not batches:
            means.append({"reading": reading, "benchmark": MEAN, "reason": "no_batches"})
    return pl.DataFrame(means, REPLICATION)


@frame("seed_summary", of=("seed_replication",))
def seed_summary(replication: pl.DataFrame) -> pl.DataFrame:
    """Mean and standard deviation of the error over batches.

    ``sd`` has ddof 1, so it is null for a single batch. For ``benchmark`` ``mean`` both are taken over the batches'
    means, so ``sd`` is the standard deviation of a mean, not a mean of standard deviations.
    """
    return (
        replication.group_by("reading", "benchmark", maintain_order=True)
        .agg(
            batches=pl.col("error").count(),
            mean=pl.col("error").mean(),
            sd=pl.col("error").std(ddof=1),
            reason=pl.when(pl.col("error").is_null().all()).then(pl.col("reason").first()).first(),
        )
        .select(*SUMMARY)
        .cast(SUMMARY)  # type: ignore[arg-type]
    )
