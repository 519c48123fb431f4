"""The rule in each fitted cell, on new models and on held-out benchmarks."""

from __future__ import annotations

import polars as pl

from searchlens.analysis.claims import DASH, Row, interval, number
from searchlens.boptr.cohort import CohortPlan
from searchlens.boptr.inference import ERROR_COLUMNS
from searchlens.boptr.protocol import HELD_OUT_LIMIT
from searchlens.catalogue import table
from searchlens.reporting.boptr.context import (
    CORRECTED,
    ERROR,
    EXPONENTS,
    PATHS_OF_ALPHA,
    UNCHANGED,
    BoptrContext,
    Means,
    block,
    brackets,
    cell_line,
    corrected,
    model_name,
    reasons,
    single_pair,
)
from searchlens.reporting.tables import format as fmt
from searchlens.reporting.tables.format import Line
from searchlens.reporting.tables.table import Part, Table


@table("percell", stage="boptr")
def percell(context: BoptrContext) -> Table:
    """The calibrated rule and the cell's own fit."""
    frame, plan = context.frames["percell"], context.plan
    without = f"μ without {', '.join(context.options.mu_without)}"
    titles = {
        ("cohort", "paper"): EXPONENTS["paper"],
        ("without", "paper"): without,
        ("cohort", "own"): EXPONENTS["own"],
        ("without", "own"): f"{EXPONENTS['own']}, {without}",
    }
    orders = {"model": plan.models, "benchmark": plan.benchmarks}
    in_order = [pl.col(name).cast(pl.Enum(list(order))) for name, order in orders.items()]
    parts = []
    for (mu, exponents), title in titles.items():
        rows = frame.filter(mu=mu, exponents=exponents).sort(*in_order, maintain_order=True)
        if rows.height:
            lines = [_percell_line(row, plan) for row in rows.iter_rows(named=True)]
            parts.append(fmt.part(lines, title, fmt.changes(rows["model"].to_list())))
    notes = [
        f"cell: α fitted to the cell itself; anchor: α = exp(μ + δ). {ERROR}",
        "The gap (anchor − cell) may be negative: the cell's α is fitted with another policy than the selector takes.",
        f"{PATHS_OF_ALPHA} Boundary: distance of log2 α to the nearer end of it; near 0, a small change of α changes"
        " the path.",
        f"mech and gap are raw, so that equal predictions have a gap of 0. {CORRECTED}",
        brackets(context.options),
        *single_pair(plan),
        *reasons(frame),
    ]
    return Table(frame, parts or [fmt.part([])], notes)


def _percell_line(row: Row, plan: CohortPlan) -> Line:
    return {
        **cell_line(plan, row["model"], row["benchmark"]),
        "regime": row["regime"],
        "β": number(row["beta"], 1),
        "α̂": interval(row["alpha"], row["alpha_lo"], row["alpha_hi"]),
        "boundary": number(row["boundary"]),
        "π̂": fmt.word(row["policy"]),
        "N̂(b)": fmt.word(row["path"]),
        "mech cell": number(row["mech_cell"]),
        "mech anchor": number(row["mech_anchor"]),
        "gap": number(row["gap"], sign="+"),
        "anchor, corrected": corrected(row),
    }


@table("coverage_models", stage="boptr")
def coverage_models(context: BoptrContext) -> Table:
    """New models, everything frozen."""
    columns = {name: name for name in context.plan.in_group("new")}
    rows, labels = context.frames["means"].filter(scope="new models"), {"V2-δ0": "V3 pipeline, δ := 0"}
    means = Means(context, rows, columns, labels=labels)
    if not columns:
        return Table(rows.drop("scope"), [fmt.part([])], ["The cohort has no new model."])
    own = means.own_exponents()
    notes = [
        f"Columns: new models, mean over their fitted benchmarks; they fit nothing but their own δ (V3). {ERROR}",
        brackets(context.options),
        CORRECTED,
        "V5b is defined where the model's Base belongs to a fitted one; δ := 0 needs no calibration.",
        *([] if own else [UNCHANGED]),
        *reasons(rows),
    ]
    return Table(rows.drop("scope"), [block(means.lines(), ""), *own], notes)


@table("coverage_heldout", stage="boptr")
def coverage_heldout(context: BoptrContext) -> Table:
    """The frozen rule (V3) on every held-out benchmark, model by model."""
    plan, options = context.plan, context.options
    cells = context.frames["errors"].filter(tier="V3", role="held_out", pool="ar", mu="cohort")
    means = context.frames["means"].filter(scope="held out", pool="ar")
    criteria = context.frames["held_out_criterion"]
    data = _heldout_data(cells, means, criteria)
    if not plan.with_role("held_out"):
        return Table(data, [fmt.part([])], ["The cohort has no held-out benchmark."])
    parts = []
    for exponents in ("paper", "own") if _differ(cells) else ("paper",):
        of_cells, of_means, limits = (frame.filter(exponents=exponents) for frame in (cells, means, criteria))
        parts.append(_heldout_part(of_cells, of_means, limits, plan, EXPONENTS[exponents]))
    notes = [
        f"Cells: V3, regimes assigned beforehand, nothing fitted on these benchmarks. {ERROR}",
        brackets(options),
        CORRECTED,
        "In parentheses the raw error, to which the limit set beforehand for the mean of a benchmark applies; †: above"
        f" that limit, {HELD_OUT_LIMIT:g} pp. The gap is raw. Means, oracle and limit are of the fitted models. The"
        " oracle (R1 fit of the same cells) reads the curve that it is scored on.",
        *_beyond_note(criteria, plan),
        *single_pair(plan),
        *reasons(cells),
    ]
    return Table(data, parts, notes)


def _heldout_data(cells: pl.DataFrame, means: pl.DataFrame, criteria: pl.DataFrame) -> pl.DataFrame:
    values = [*ERROR_COLUMNS, "reason"]
    return fmt.stacked(
        cells=cells.select("exponents", "model", "group", "benchmark", "regime", "rl", "path", "policy", *values),
        means=means.select("exponents", "tier", "rl", "column", pl.col("cells").alias("defined"), "of", *values),
        criterion=criteria.rename({"cells": "defined"}),
    )


def _differ(cells: pl.DataFrame) -> bool:
    """Whether any error is another one under the cohort's own exponents."""
    keys = ["model", "benchmark"]
    paper, own = (cells.filter(exponents=which).select(*keys, "error") for which in ("paper", "own"))
    both = paper.join(own, on=keys)
    return bool(both["error"].ne_missing(both["error_right"]).any())


def _heldout_part(
    cells: pl.DataFrame, means: pl.DataFrame, criteria: pl.DataFrame, plan: CohortPlan, title: str
) -> Part:
    """The cells of every model, and below them the means with their limit; frames of one choice of exponents."""
    benchmarks = plan.with_role("held_out")
    headings = {name: plan.title(name) for name in benchmarks} | {"all cells": "mean"}
    rule = {row["column"]: row for row in means.filter(tier="V3").iter_rows(named=True)}
    oracle = {row["column"]: row for row in means.filter(tier="V1").iter_rows(named=True)}
    lines = []
    for model, member in plan.models.items():
        line = {"model": model_name(plan, model) + (" (new)" if member.group == "new" else "")}
        line |= {headings[row["benchmark"]]: _limited(row) for row in cells.filter(model=model).iter_rows(named=True)}
        line["mean"] = _limited(rule[model]) if model in rule else DASH
        lines.append(line)
    limits = {row["benchmark"] or "all cells": row for row in criteria.iter_rows(named=True)}
    summary = [
        {"model": name} | {text: _limited(means_by_column[c]) for c, text in headings.items()}
        for name, means_by_column in (("benchmark mean", rule), ("per-cell oracle", oracle))
    ]
    summary.append({"model": "gap"} | {text: number(limits[c]["gap"]) for c, text in headings.items() if c in limits})
    verdicts = {headings[c]: "met" if limits[c]["meets"] else "not met" for c in benchmarks if c in limits}
    summary.append({"model": f"within {HELD_OUT_LIMIT:g} pp"} | verdicts)
    count = rule.get("all cells")
    defined = f", cells: {fmt.fraction(count['cells'], count['of'])}" if count else ""
    return fmt.part([*lines, *summary], title + defined, (len(plan.fitted_models), len(lines)))


def _limited(row: Row) -> str:
    """A corrected error with its interval, and the raw one, with a dagger if it is above the limit."""
    if row["error"] is None:
        return DASH
    mark = "†" if row["error"] > HELD_OUT_LIMIT else ""
    return f"{corrected(row)} ({number(row['error'])}{mark})"


def _beyond_note(criteria: pl.DataFrame, plan: CohortPlan) -> list[str]:
    rows = criteria.filter(pl.col("exponents") == "paper", pl.col("benchmark").is_not_null(), pl.col("beyond") != "")
    cells = [f"{plan.title(row['benchmark'])}: {row['beyond']}" for row in rows.iter_rows(named=True)]
    if cells:
        return [f"Cells beyond the limit: {'; '.join(cells)}."]
    return ["No cell is beyond the limit."] if criteria.height else []
