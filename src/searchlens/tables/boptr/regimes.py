"""Exponents and scales: what each cell prefers, how firmly, and what the regimes change."""

from __future__ import annotations

from itertools import groupby

import polars as pl

from searchlens.boptr.cohort import CohortPlan
from searchlens.catalogue import table
from searchlens.claims import DASH, Row, interval, number
from searchlens.tables import format as fmt
from searchlens.tables.boptr._notes import (
    CORRECTED_SIZE,
    ERROR,
    PATHS_OF_ALPHA,
    brackets,
    corrected,
    model_name,
    reasons,
)
from searchlens.tables.boptr.context import TableContext
from searchlens.tables.format import Line
from searchlens.tables.table import Table

# ---- exponents


@table("regime_betas", stage="boptr")
def regime_betas(context: TableContext) -> Table:
    """The exponents that each cell prefers, next to the frozen one."""
    betas, stability, plan = context.frames["regime_betas"], context.frames["beta_stability"], context.plan
    notes = [
        "R0: a policy for each budget; R1: one policy; R2: the RL default policy. Each is fitted over the grids of α"
        f" and β on the AR pool. Brackets: {context.options.confidence:.0%} interval of β with the fit made again in"
        " bootstrap draws.",
        "Same error: every exponent of the grid that reaches the same error; after R1 of every model, those within one"
        " bootstrap standard deviation. Among equals the fit takes the one nearest to the frozen β: there, agreement"
        " with it is no evidence.",
        "Frozen β: the paper's constants, in every main row. Own β: the estimate of this cohort, without the benchmark"
        " itself if its regime has another one.",
        "†: regime assigned beforehand; nothing is fitted on the benchmark.",
        *reasons(betas, stability),
    ]
    parts = [
        fmt.part(_anchor_lines(betas.filter(model=plan.anchor_model), plan), f"{plan.anchor_model}: R0, R1, R2"),
        fmt.part(_r1_lines(betas, plan), "R1 β of every model, with the exponents within one standard deviation"),
    ]
    if stability.filter(pl.col("without").is_not_null())["beta"].is_not_null().any():
        parts.append(fmt.part(_stability_lines(stability, plan), "own β with each model left out"))
    return Table(fmt.stacked(fits=betas, stability=stability), parts, notes)


def _anchor_lines(betas: pl.DataFrame, plan: CohortPlan) -> list[Line]:
    lines = []
    for (benchmark,), rows in betas.group_by("benchmark", maintain_order=True):
        first = rows.row(0, named=True)
        line = {"benchmark": plan.title(str(benchmark)), "regime": first["regime"] + "†" * first["a_priori"]}
        for row in rows.iter_rows(named=True):
            line[f"{row['constraint']} β"] = interval(row["beta"], row["lo"], row["hi"], 1)
            line[f"{row['constraint']} same error"] = ranges(row["exact"])
        lines.append(line | {"frozen β": number(first["assigned"]), "own β": number(first["own"])})
    return lines


def _r1_lines(betas: pl.DataFrame, plan: CohortPlan) -> list[Line]:
    fitted = betas.filter(~pl.col("a_priori"), constraint="R1")
    return [
        {"model": model_name(plan, str(model))}
        | {plan.title(row["benchmark"]): _tied_beta(row) for row in rows.iter_rows(named=True)}
        for (model,), rows in fitted.group_by("model", maintain_order=True)
    ]


def _tied_beta(row: Row) -> str:
    return DASH if row["beta"] is None else f"{number(row['beta'], 1)} ({ranges(row['tied'])})"


def _stability_lines(stability: pl.DataFrame, plan: CohortPlan) -> list[Line]:
    return [
        {"benchmark": plan.title(str(benchmark))}
        | {
            "all models" if row["without"] is None else f"without {row['without']}": number(row["beta"], 1)
            for row in rows.iter_rows(named=True)
        }
        for (benchmark,), rows in stability.group_by("benchmark", maintain_order=True)
    ]


def ranges(exponents: list[float] | None) -> str:
    """Values of the grid of beta, neighbours joined to a range.

    >>> ranges([0.0, 0.1, 0.2, 0.7])
    '0–0.2, 0.7'
    """
    if not exponents:
        return DASH
    steps = [round(10 * value) for value in exponents]
    runs = [[step for _, step in run] for _, run in groupby(enumerate(steps), lambda pair: pair[1] - pair[0])]
    return ", ".join(f"{run[0] / 10:g}" if len(run) == 1 else f"{run[0] / 10:g}–{run[-1] / 10:g}" for run in runs)


# ---- regimes

MAPS = {"three regimes": "three regimes", "two regimes": "two regimes", "three - two": "three − two"}


@table("beta_sensitivity", stage="boptr")
def beta_sensitivity(context: TableContext) -> Table:
    """Three regimes against two, in which the floor benchmarks are math."""
    frame, plan = context.frames["beta_sensitivity"], context.plan
    floor = [name for name in plan.with_role("fitted") if plan.benchmarks[name].regime == "floor"]
    lines = []
    for (name,), group in frame.group_by("map", maintain_order=True):
        rows = {row["benchmark"]: row for row in group.iter_rows(named=True)}
        sign = "+" if name == "three - two" else ""
        line = {"regime map": MAPS[str(name)]}
        line |= {f"N̂(b) on {plan.title(d)}": fmt.word(rows[d]["path"]) for d in floor if d in rows}
        for benchmark, row in rows.items():
            title = "mean" if benchmark is None else plan.title(benchmark)
            line[title] = corrected(row, sign)
        lines.append(line)
    notes = [
        f"{plan.anchor_model}; only the columns of floor benchmarks can differ. {ERROR}",
        CORRECTED_SIZE,
        brackets(context.options),
        *_overlap_note(frame, plan),
        "The two-regime row is a counterfactual, not an adopted rule.",
        *reasons(frame),
    ]
    return Table(frame, [fmt.part(lines, rule_before=(len(lines) - 1,))], notes)


def _overlap_note(frame: pl.DataFrame, plan: CohortPlan) -> list[str]:
    row = next(frame.filter(map="three - two").iter_rows(named=True), None)
    if row is None:
        return []
    if row["error"] is None or row["benchmark"] is None:
        return ["No floor benchmark was sampled: the maps are the same."]
    overlap = "overlap" if row["overlap"] else "do not overlap"
    difference = f"three − two on {plan.title(row['benchmark'])}"
    if row["lo_corrected"] is None:
        return [f"Both maps predict the same: {difference} is 0."]
    zero = "contains 0" if row["lo_corrected"] <= 0 <= row["hi_corrected"] else "excludes 0"
    return [f"The interval of {difference} {zero}; the intervals of the two paths' readouts {overlap} at every budget."]


# ---- scales


@table("formula_same", stage="boptr")
def formula_same(context: TableContext) -> Table:
    """One formula, each model's own alpha and policy."""
    frame, plan = context.frames["formula_same"], context.plan
    notes = [
        f"Fit on {plan.title(plan.anchor_benchmark)} with β of its regime and one policy for all budgets (R1 locked)."
        f" {ERROR}",
        PATHS_OF_ALPHA,
        *reasons(frame),
    ]
    return Table(frame, [fmt.part([_scale_line(row, plan) for row in frame.iter_rows(named=True)])], notes)


def _scale_line(row: Row, plan: CohortPlan) -> Line:
    return {
        "model": model_name(plan, row["model"]),
        "α_math": interval(row["alpha"], row["alpha_lo"], row["alpha_hi"]),
        "π_math (R1 locked)": fmt.word(row["policy"]),
        "N̂(b)": fmt.word(row["path"]),
        "error": number(row["error"]),
    }


@table("identification", stage="boptr")
def identification(context: TableContext) -> Table:
    """What a fit identifies: the interval of alpha, and every triple that fits as well."""
    scales, triples, plan = context.frames["identified_scale"], context.frames["identified_set"], context.plan
    upper = [
        {
            **_scale_line(row, plan),
            "δ": interval(row["delta"], row["delta_lo"], row["delta_hi"], sign="+"),
            "boundary": number(row["boundary"]),
        }
        for row in scales.iter_rows(named=True)
    ]
    lower = [_triples_line(row, plan) for row in triples.iter_rows(named=True)]
    notes = [
        f"Upper block: scale at the frozen β. {PATHS_OF_ALPHA} The interval of δ is the one that these intervals"
        " allow.",
        "Lower block: R1 fit of each cell, then every (α, β, π) of the grids whose error is within one bootstrap"
        " standard deviation (± after the error) of the best.",
        *reasons(scales, triples),
    ]
    parts = [
        fmt.part(upper, f"scale on {plan.title(plan.anchor_benchmark)}"),
        fmt.part(lower, "identified set of every cell, AR pool", fmt.changes(triples["model"].to_list())),
    ]
    return Table(fmt.stacked(scale=scales, set=triples), parts, notes)


def _triples_line(row: Row, plan: CohortPlan) -> Line:
    return {
        "model": model_name(plan, row["model"]),
        "benchmark": plan.title(row["benchmark"]),
        "α̂": number(row["alpha"]),
        "β̂": number(row["beta"], 1),
        "N̂(b)": fmt.word(row["path"]),
        "error": fmt.spread(row["error"], row["se"]),
        "triples": fmt.fraction(row["triples"], row["of"]),
        "paths": fmt.word(row["paths"]),
        "policies": fmt.word(row["policies"]),
        "α from–to": _from_to(row["alpha_min"], row["alpha_max"], 2),
        "β from–to": _from_to(row["beta_min"], row["beta_max"], 1),
    }


def _from_to(low: float | None, high: float | None, digits: int) -> str:
    return DASH if low is None or high is None else f"{number(low, digits)}–{number(high, digits)}"
