"""The same checkpoint sampled twice: how far its readouts move, and how far the rule's error does.

``readout_consistency`` (paper, "Readout-consistency caliber"), in percentage points, P at every shared point:

model, role, batch, benchmark
    The pair, its side (``base`` or ``rl``), the batch id and the cell.
group
    ``all``, or one temperature (``T=1.0``); a policy without one (a controller) is in ``all`` only.
points
    Shared (policy, budget) points.
mean_abs
    Mean over points of |P_batch - P_main|.
mean_signed, lo, hi
    Mean over points of P_batch - P_main with a paired bootstrap over questions.
chance
    What ``mean_abs`` would be, on average, between two batches that differ by sampling alone: each question's two
    results are exchanged at random. Only what exceeds it is a difference of batches.
largest, policy, budget
    The signed difference of largest size, and where it is.
meets_criterion
    mean_abs <= option ``consistency_criterion``.
reason
    Why the row is undefined (a code of ``rule.REASONS``), else null.

``seed_replication``: ``reading`` (``fixed_pi`` or ``full_rule``), ``benchmark`` (``mean``: the mean over benchmarks
within the batch), ``batch``, ``policy``, ``error``, ``lo``, ``hi`` (percentage points, path fixed), ``reason``.
``seed_summary``: ``reading``, ``benchmark``, ``batches``, ``mean``, ``sd``, ``reason``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from searchlens import policies
from searchlens.boptr import selector
from searchlens.boptr.cohort import DenseLandscape
from searchlens.boptr.protocol import study_cells
from searchlens.boptr.rows import At, boptr
from searchlens.boptr.rule import Path, Reason, Rule
from searchlens.boptr.view import Readouts, View
from searchlens.policies.kinds import is_search
from searchlens.seeds import resampler
from searchlens.uncertainty import Floats, Resamples, quantiles

MAIN = "main"
"""Name of the batch that everything else is computed from."""
MEAN = "mean"
"""In the place of a benchmark: the mean over benchmarks."""
READINGS = ("fixed_pi", "full_rule")
EXCHANGES = 500
"""Random exchanges behind ``chance``."""

CONSISTENCY = {
    "model": pl.String(),
    "role": pl.String(),
    "batch": pl.String(),
    "benchmark": pl.String(),
    "group": pl.String(),
    "points": pl.Int64(),
    "mean_abs": pl.Float64(),
    "mean_signed": pl.Float64(),
    "lo": pl.Float64(),
    "hi": pl.Float64(),
    "chance": pl.Float64(),
    "largest": pl.Float64(),
    "policy": pl.String(),
    "budget": pl.Int64(),
    "meets_criterion": pl.Boolean(),
    "reason": pl.String(),
}
REPLICATION = {
    "reading": pl.String(),
    "benchmark": pl.String(),
    "batch": pl.String(),
    "policy": pl.String(),
    "error": pl.Float64(),
    "lo": pl.Float64(),
    "hi": pl.Float64(),
    "reason": pl.String(),
}
SUMMARY = {
    "reading": pl.String(),
    "benchmark": pl.String(),
    "batches": pl.Int64(),
    "mean": pl.Float64(),
    "sd": pl.Float64(),
    "reason": pl.String(),
}


# ---- two batches of one checkpoint


def readout_consistency(rule: Rule, boot: View) -> pl.DataFrame:
    """Differences of P between each batch and the main one.

    Parameters
    ----------
    rule : Rule
        On the sample view. Option ``consistency_criterion``.
    boot : View
        Bootstrap draws of the same cohort.

    Returns
    -------
    polars.DataFrame
        See the module. A cell without a second batch, or without a point shared with it, has one row with the reason
        ``no_batches``.
    """
    rows = [
        {"model": model, "benchmark": benchmark, **row}
        for model, benchmark in study_cells(rule.plan)
        for row in _batches(rule, boot, model, benchmark)
    ]
    return pl.DataFrame(rows, CONSISTENCY).with_columns(pl.col("lo", "hi").fill_nan(None))


def _batches(rule: Rule, boot: View, model: str, benchmark: str) -> Iterator[dict[str, Any]]:
    cohort = rule.view.cohort
    mains = {"base": cohort.base(model, benchmark), "rl": cohort.rl(model, benchmark)}
    found = False
    for batch, sides in rule.plan.models[model].batches.items():
        for role, checkpoint in sides.items():
            main, again = mains[role], cohort.landscapes.get((checkpoint, benchmark))
            if main is None or again is None:
                continue
            shared = [point for point in main.points if point in again.points]
            for group, points in _groups(shared).items():
                found = True
                values = _differences(rule, boot, benchmark, (main, again), points)
                yield {"role": role, "batch": batch, "group": group, **values}
    if not found:
        yield {"reason": "no_batches"}


def _groups(points: Sequence[tuple[str, int]]) -> dict[str, list[tuple[str, int]]]:
    """All points, then those of each temperature, rising."""
    if not points:
        return {}
    known = [point for point in points if not is_search(point[0])]
    temperature = {name: policies.parse(name).local.temperature for name, _ in known}
    by_temperature = {
        f"T={value}": [point for point in known if temperature[point[0]] == value]
        for value in sorted(set(temperature.values()))
    }
    return {"all": list(points), **by_temperature}


def _differences(
    rule: Rule, boot: View, benchmark: str, sides: tuple[DenseLandscape, DenseLandscape], points: list[tuple[str, int]]
) -> dict[str, Any]:
    main, again = (side.credit["P"][[side.points[point] for point in points]] for side in sides)
    moved = 100 * (again - main).astype(float)
    delta = moved.mean(axis=1)
    lo, hi = Resamples(boot.weights[benchmark][:, 1:]).interval(moved.mean(axis=0)[:, None], rule.options.confidence)
    size = float(np.abs(delta).mean())
    at = int(np.abs(delta).argmax())
    return {
        "points": len(points),
        "mean_abs": size,
        "mean_signed": float(delta.mean()),
        "lo": float(lo[0]),
        "hi": float(hi[0]),
        "chance": _chance(moved, rule.options.seed),
        "largest": float(delta[at]),
        "policy": points[at][0],
        "budget": points[at][1],
        "meets_criterion": size <= rule.options.consistency_criterion,
    }


def _chance(moved: Floats, seed: int) -> float:
    """Mean |difference| when the sign of each question's differences, at all points together, is random."""
    rng = resampler(seed, *moved.shape)
    signs = rng.integers(0, 2, (moved.shape[1], EXCHANGES)) * 2.0 - 1
    return float(np.abs(moved @ signs).mean() / moved.shape[1])


# ---- the anchor at several seeds


@dataclass(frozen=True, eq=False)
class _Batch:
    """One sampling of the anchor's Base on a benchmark, over the policies that every batch has."""

    name: str
    landscape: DenseLandscape
    cell: Readouts


def seed_replication(rule: Rule, boot: View) -> pl.DataFrame:
    """The anchor rule's error on every sampling of the anchor's Base; RL stays the main batch's.

    Parameters
    ----------
    rule : Rule
        On the sample view.
    boot : View
        Bootstrap draws of the same cohort, for intervals within a batch.

    Returns
    -------
    polars.DataFrame
        See the module; the fitted benchmarks of the anchor. ``fixed_pi`` keeps the main batch's policy and path;
        ``full_rule`` keeps its N-hat and prototype, and selects the policy anew from the batch. Both are scored on the
        policies that all batches have, so ``full_rule`` of the main batch may differ from H5. The row ``mean`` of a
        batch averages the benchmarks that are defined in every batch, and is null where there are none.

    References
    ----------
    Paper, note of the table of horizontal transfer, "3-seed replication".
    """
    rows = [row for benchmark in rule.plan.with_role("fitted") for row in _replicated(rule, boot, benchmark)]
    frame = pl.DataFrame(rows, REPLICATION)
    return pl.concat([frame, means_within_batches(frame)])


def _replicated(rule: Rule, boot: View, benchmark: str) -> Iterator[dict[str, Any]]:
    at = At(rule.plan.anchor_model, benchmark)
    batches = _anchor_batches(rule, benchmark)
    cell = rule.cell(*at.cell)
    kept = cell if isinstance(cell, Reason) else boptr(rule, at)
    if isinstance(kept, Path) and len(batches) < 2:
        kept = Reason("no_batches")
    for reading in READINGS:
        if not isinstance(kept, Path):
            assert isinstance(kept, Reason)
            yield {"reading": reading, "benchmark": benchmark, "reason": kept.code}
            continue
        for batch in batches:
            row = {"reading": reading, "benchmark": benchmark, "batch": batch.name}
            name = _kept_policy(rule, at, kept) if reading == "fixed_pi" else _selected(rule, benchmark, batch, kept)
            if isinstance(name, Reason):
                yield {**row, "reason": name.code}
            elif name not in batch.cell.index:
                yield {**row, "reason": "policy_missing"}
            else:
                yield {**row, "policy": name, **_error(rule, boot, at, batch.landscape, name, kept)}


def _anchor_batches(rule: Rule, benchmark: str) -> list[_Batch]:
    cohort, model = rule.view.cohort, rule.plan.anchor_model
    main = cohort.base(model, benchmark)
    if main is None:
        return []
    landscapes = {MAIN: main}
    for batch, sides in rule.plan.models[model].batches.items():
        found = cohort.landscapes.get((sides.get("base", ""), benchmark))
        if found is not None:
            landscapes[batch] = found
    pools = [set(found.complete(rule.plan.budgets)) for found in landscapes.values()]
    common = [name for name in main.complete(rule.plan.budgets) if all(name in pool for pool in pools)]
    whole = {name: rule.view.readouts(found, benchmark) for name, found in landscapes.items()}
    return [_Batch(name, landscapes[name], _only(cell, common)) for name, cell in whole.items() if cell is not None]


def _only(cell: Readouts, names: Sequence[str]) -> Readouts:
    at = [cell.index[name] for name in names]
    return Readouts(tuple(names), cell.search[at], cell.P[at], cell.Q[at], cell.tokens[at])


def _kept_policy(rule: Rule, at: At, kept: Path) -> str:
    base = rule.view.base(*at.cell)
    assert base is not None
    return base.policies[int(kept.policy[0, 0])]


def _selected(rule: Rule, benchmark: str, batch: _Batch, kept: Path) -> str | Reason:
    """pi-hat of a batch along the main batch's N-hat, against the main batch's prototype."""
    proto, cell = rule.prototype(), batch.cell
    if isinstance(proto, Reason):
        return proto
    candidates = rule.candidates(cell, benchmark)
    if not len(candidates):
        return Reason("policy_missing")
    distance = selector.distances(selector.features(cell, rule.options), proto, rule.options)
    cost = rule.options.cost_weight * selector.relative_cost(cell)
    chosen = selector.select(distance, kept.budget, cost, candidates, cell.policies)
    return cell.policies[int(chosen[0])]


def _error(rule: Rule, boot: View, at: At, landscape: DenseLandscape, policy: str, kept: Path) -> dict[str, float]:
    budgets = [rule.plan.budgets[n] for n in kept.budget[:, 0]]
    predicted, target = boot.count(landscape, at.benchmark, "P", policy, budgets), boot.target(*at.cell)
    assert target is not None
    error = 100 * np.abs(predicted - target).mean(axis=0, dtype=float) / boot.total(at.benchmark)
    lo, hi = quantiles(error[None, 1:].copy(), rule.options.confidence)
    return {"error": float(error[0]), "lo": float(lo[0]), "hi": float(hi[0])}


def means_within_batches(frame: pl.DataFrame) -> pl.DataFrame:
    """The mean over benchmarks of each batch, over those that are defined in every batch: rows ``mean``.

    Parameters
    ----------
    frame : polars.DataFrame
        reading, benchmark, batch, error, without ``mean`` rows.

    Returns
    -------
    polars.DataFrame
        Rows of ``seed_replication``, one per reading and batch. Null, with the reason ``no_batches``, where no
        benchmark is defined in every batch.
    """
    rows: list[Mapping[str, Any]] = []
    for reading in READINGS:
        defined = frame.filter(reading=reading).filter(pl.col("error").is_not_null())
        batches = defined["batch"].unique(maintain_order=True).to_list()
        whole = defined.group_by("benchmark").len().filter(pl.col("len") == len(batches))["benchmark"]
        matched = defined.filter(pl.col("benchmark").is_in(whole.to_list()))
        for batch in batches:
            mean = matched.filter(batch=batch)["error"].mean()
            reason = "no_batches" if mean is None else None
            rows.append({"reading": reading, "benchmark": MEAN, "batch": batch, "error": mean, "reason": reason})
        if not batches:
            rows.append({"reading": reading, "benchmark": MEAN, "reason": "no_batches"})
    return pl.DataFrame(rows, REPLICATION)


def seed_summary(replication: pl.DataFrame) -> pl.DataFrame:
    """Mean and standard deviation over batches.

    Parameters
    ----------
    replication : polars.DataFrame
        What ``seed_replication`` returned.

    Returns
    -------
    polars.DataFrame
        See the module. ``sd`` has ddof 1, so it is null for a single batch. The ``mean`` row is over the batches' own
        means, so its sd is that of the mean column, not a mean of sds.
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
