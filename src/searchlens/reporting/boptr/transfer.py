"""The anchor model on every benchmark; the rule in each fitted cell, on new models and on held-out benchmarks."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from dataclasses import replace

import polars as pl
from matplotlib.figure import Figure

from searchlens.analysis.claims import DASH, Row, interval, number
from searchlens.boptr.cohort import CohortPlan
from searchlens.boptr.inference import ERROR_COLUMNS
from searchlens.boptr.protocol import HELD_OUT_LIMIT
from searchlens.boptr.transfer import RIVALS
from searchlens.catalogue import figure, table
from searchlens.reporting.boptr import context as shared
from searchlens.reporting.boptr.protocol import contrast_notes, null_note, null_part
from searchlens.reporting.figures import palette, style
from searchlens.reporting.tables import table as fmt

# ---- cells, new models, held-out benchmarks


@table("percell", stage="boptr")
def percell(context: shared.BoptrContext) -> fmt.Table:
    """The calibrated rule and the cell's own fit."""
    frame, plan = context.frames["percell"], context.plan
    without = f"μ without {', '.join(context.options.mu_without)}"
    titles = {
        ("cohort", "paper"): shared.EXPONENTS["paper"],
        ("without", "paper"): without,
        ("cohort", "own"): shared.EXPONENTS["own"],
        ("without", "own"): f"{shared.EXPONENTS['own']}, {without}",
    }
    orders = {"model": plan.models, "benchmark": plan.benchmarks}
    in_order = [pl.col(name).cast(pl.Enum(list(order))) for name, order in orders.items()]
    parts = []
    for (mu, exponents), title in titles.items():
        rows = frame.filter(mu=mu, exponents=exponents).sort(*in_order, maintain_order=True)
        if rows.height:
            lines = [
                {
                    **shared.cell_line(plan, row["model"], row["benchmark"]),
                    "regime": row["regime"],
                    "β": number(row["beta"], 1),
                    "α̂": interval(row["alpha"], row["alpha_lo"], row["alpha_hi"]),
                    "boundary": number(row["boundary"]),
                    "π̂": fmt.word(row["policy"]),
                    "N̂(b)": fmt.word(row["path"]),
                    "mech cell": number(row["mech_cell"]),
                    "mech anchor": number(row["mech_anchor"]),
                    "gap": number(row["gap"], sign="+"),
                    "anchor, corrected": shared.corrected(row),
                }
                for row in rows.iter_rows(named=True)
            ]
            parts.append(fmt.part(lines, title, fmt.changes(rows["model"].to_list())))
    notes = [
        f"cell: α fitted to the cell itself; anchor: α = exp(μ + δ). {shared.ERROR}",
        "The gap (anchor − cell) may be negative: the cell's α is fitted with another policy than the selector takes.",
        f"{shared.PATHS_OF_ALPHA} Boundary: distance of log2 α to the nearer end of it; near 0, a small change of α"
        " changes the path.",
        f"mech and gap are raw, so that equal predictions have a gap of 0. {shared.CORRECTED}",
        context.brackets,
        *context.single_pair,
    ]
    return context.table(frame, parts, notes, frame)


@table("coverage_models", stage="boptr")
def coverage_models(context: shared.BoptrContext) -> fmt.Table:
    """New models, everything frozen."""
    columns = {name: name for name in context.plan.in_group("new")}
    rows, labels = context.frames["means"].filter(scope="new models"), {"V2-δ0": "V3 pipeline, δ := 0"}
    means = shared.Means(context, rows, columns, labels=labels)
    if not columns:
        return fmt.Table(rows.drop("scope"), [fmt.part([])], ["The cohort has no new model."])
    own = means.own_exponents()
    notes = [
        "Columns: new models, mean over their fitted benchmarks; they fit nothing but their own δ (V3)."
        f" {shared.ERROR}",
        context.brackets,
        shared.CORRECTED,
        "V5b is defined where the model's Base belongs to a fitted one; δ := 0 needs no calibration.",
        *([] if own else [shared.UNCHANGED]),
    ]
    return context.table(rows.drop("scope"), [shared.block(means.lines(), ""), *own], notes, rows)


@table("coverage_heldout", stage="boptr")
def coverage_heldout(context: shared.BoptrContext) -> fmt.Table:
    """The frozen rule (V3) on every held-out benchmark, model by model."""
    plan = context.plan
    cells = context.frames["errors"].filter(rule="V3", role="held_out", pool="ar", mu="cohort")
    means = context.frames["means"].filter(scope="held out", pool="ar")
    criteria = context.frames["held_out_criterion"]
    values = [*ERROR_COLUMNS, "reason"]
    data = fmt.stacked(
        cells=cells.select("exponents", "model", "group", "benchmark", "regime", "rl", "path", "policy", *values),
        means=means.select("exponents", "rule", "rl", "column", pl.col("cells").alias("defined"), "of", *values),
        criterion=criteria.rename({"cells": "defined"}),
    )
    if not plan.with_role("held_out"):
        return fmt.Table(data, [fmt.part([])], ["The cohort has no held-out benchmark."])
    parts = []
    for exponents in ("paper", "own") if _differ(cells) else ("paper",):
        of_cells, of_means, limits = (frame.filter(exponents=exponents) for frame in (cells, means, criteria))
        parts.append(_heldout_part(of_cells, of_means, limits, plan, shared.EXPONENTS[exponents]))
    notes = [
        f"Cells: V3, regimes assigned beforehand, nothing fitted on these benchmarks. {shared.ERROR}",
        context.brackets,
        shared.CORRECTED,
        "In parentheses the raw error, to which the limit set beforehand for the mean of a benchmark applies; †: above"
        f" that limit, {HELD_OUT_LIMIT:g} pp. The gap is raw. Means, oracle and limit are of the fitted models. The"
        " oracle (R1 fit of the same cells) reads the curve that it is scored on.",
        *_beyond_note(criteria, plan),
        *context.single_pair,
    ]
    return context.table(data, parts, notes, cells)


def _differ(cells: pl.DataFrame) -> bool:
    """Whether any error is another one under the cohort's own exponents."""
    keys = ["model", "benchmark"]
    paper, own = (cells.filter(exponents=which).select(*keys, "error") for which in ("paper", "own"))
    both = paper.join(own, on=keys)
    return bool(both["error"].ne_missing(both["error_right"]).any())


def _heldout_part(
    cells: pl.DataFrame, means: pl.DataFrame, criteria: pl.DataFrame, plan: CohortPlan, title: str
) -> fmt.Part:
    """The cells of every model, and below them the means with their limit; frames of one choice of exponents."""
    benchmarks = plan.with_role("held_out")
    headings = {name: plan.title(name) for name in benchmarks} | {"all cells": "mean"}
    rule = {row["column"]: row for row in means.filter(rule="V3").iter_rows(named=True)}
    oracle = {row["column"]: row for row in means.filter(rule="V1").iter_rows(named=True)}
    lines = []
    for model, member in plan.models.items():
        line = {"model": shared.model_name(plan, model) + (" (new)" if member.group == "new" else "")}
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
    return f"{shared.corrected(row)} ({number(row['error'])}{mark})"


def _beyond_note(criteria: pl.DataFrame, plan: CohortPlan) -> list[str]:
    rows = criteria.filter(pl.col("exponents") == "paper", pl.col("benchmark").is_not_null(), pl.col("beyond") != "")
    cells = [f"{plan.title(row['benchmark'])}: {row['beyond']}" for row in rows.iter_rows(named=True)]
    if cells:
        return [f"Cells beyond the limit: {'; '.join(cells)}."]
    return ["No cell is beyond the limit."] if criteria.height else []


# ---- the anchor model


@table("horizontal", stage="boptr")
def horizontal(context: shared.BoptrContext) -> fmt.Table:
    """The anchor model on every benchmark; the CSV has the other models, too."""
    plan, frames = context.plan, context.frames
    every_model = frames["means"].filter(pl.col("scope").str.starts_with("horizontal/"))
    fitted, held_out = ({d: plan.title(d) for d in plan.with_role(role)} for role in ("fitted", "held_out"))
    main = fitted | {"mean": "mean", "matched mean": "matched mean"}
    columns = main | ({"held-out mean": "held-out mean"} if held_out else {})
    means = shared.Means(context, every_model.filter(scope=f"horizontal/{plan.anchor_model}"), columns, "mean")
    blocks = [
        shared.block(
            _with_h5_lines(means.lines(columns=main), _h5_lines(context, fitted)),
            "fitted benchmarks, AR pool",
            RIVALS[:1],
        )
    ]
    if held_out:
        outside = replace(means, columns=held_out | {"held-out mean": "mean"}, count="held-out mean")
        blocks.append(shared.block(outside.lines(), "held-out benchmarks, AR pool", RIVALS[:1]))
    notes = [
        f"Rows: what predicts the RL curve of {plan.anchor_model} on the benchmark.",
        "matched mean: over the benchmarks that every row but V5b and the rivals defines; a mean is over those of its"
        " cells in which the row is defined (column cells).",
        "H6 and H7 read the RL curve that they are scored on: ceilings, not comparators.",
        null_note(frames["nulls"]),
        _replication_note(frames["seed_summary"]),
        "b > max(B): the frozen rule at the larger budgets alone, nothing fitted or selected again.",
        *contrast_notes(frames["contrasts"], "anchor", "H5", means.paper["rule"].unique()),
    ]
    data, of_anchor = _horizontal_data(context, every_model), frames["extension"].filter(model=plan.anchor_model)
    nulls = null_part(frames["nulls"], means.paper)
    return means.table(data, blocks, notes, of_anchor, frames["seed_summary"], nulls=nulls)


def _with_h5_lines(lines: dict[str, fmt.Line], added: Mapping[str, fmt.Line]) -> dict[str, fmt.Line]:
    """The lines with those about H5 below H5 and V5b."""
    if "V5b" in lines:
        lines = {**lines, "V5b": {**lines["V5b"], "row": f"→ {lines['V5b']['row']}"}}
    last = "V5b" if "V5b" in lines else "H5"
    result: dict[str, fmt.Line] = {}
    for key, line in lines.items():
        result[key] = line
        if key == last:
            result |= {name: {**row, "RL used": lines["H5"]["RL used"]} for name, row in added.items()}
    return result


def _replication_note(seed_summary: pl.DataFrame) -> str:
    batches = seed_summary["batches"].drop_nulls().to_list()
    if not any(batches):
        return "Replication: nothing was sampled a second time."
    return (
        f"Replication: mean ± sd (ddof 1) over {max(batches)} batches of Base samples against the same RL curve; the"
        " mean column averages the benchmarks within each batch first. Fixed π̂ keeps the policy of the main batch,"
        " the full rule selects again. Table seed_replication has every batch."
    )


def _h5_lines(context: shared.BoptrContext, fitted: Mapping[str, str]) -> dict[str, fmt.Line]:
    """H5 on batches that were sampled again, and beyond the largest budget."""
    plan, lines = context.plan, {}
    for (variant,), group in context.frames["seed_summary"].group_by("variant", maintain_order=True):
        line = {"row": f"→ replication, {shared.VARIANTS[str(variant)]}, raw"}
        for row in group.iter_rows(named=True):
            line[fitted.get(row["benchmark"], "mean")] = fmt.spread(row["mean"], row["sd"])
        lines[f"replication {variant}"] = line
    beyond = {"row": f"→ frozen rule at b > {max(plan.budgets)}"}
    for row in context.frames["extension"].filter(model=plan.anchor_model).iter_rows(named=True):
        title = "mean" if row["benchmark"] is None else fitted.get(row["benchmark"])
        if title:
            beyond[title] = shared.corrected(row)
    return {**lines, "beyond": beyond}


def _horizontal_data(context: shared.BoptrContext, means: pl.DataFrame) -> pl.DataFrame:
    model = pl.col("scope").str.strip_prefix("horizontal/").alias("model")
    nulls = context.frames["nulls"].select(
        "rule", exponents=pl.lit("paper"), pool=pl.lit("ar"), null_mean="null_mean", null_p="p"
    )
    h5 = {"exponents": "paper", "mu": "cohort", "rule": "H5", "kind": "rule", "pool": "ar"}
    h5["rl"] = next(iter(means.filter(rule="H5")["rl"]), "")
    of_h5 = [pl.lit(value).alias(name) for name, value in h5.items()]
    label = pl.format("replication, {}", "variant").alias("label")
    of_batches = [pl.lit(context.plan.anchor_model).alias("model"), label, pl.col("benchmark").alias("column")]
    seeds = context.frames["seed_summary"].select(
        *of_h5, *of_batches, pl.col("mean").alias("error"), "sd", "batches", "reason"
    )
    beyond = context.frames["extension"].select(
        *of_h5,
        pl.lit("frozen rule beyond B").alias("label"),
        "model",
        pl.col("benchmark").fill_null("mean").alias("column"),
        *ERROR_COLUMNS,
        "budgets",
        "path",
        "reason",
    )
    main = means.select(model, pl.exclude("scope")).join(
        nulls, on=["rule", "exponents", "pool"], how="left", maintain_order="left"
    )
    return pl.concat([main, seeds, beyond], how="diagonal_relaxed")


# ---- figure

COLUMNS = ("pool", "rule", "label", "kind", *shared.ERROR_VALUES, "cells", "of", "reason")


@figure("horizontal", stage="boptr")
def numbers(context: shared.BoptrContext) -> pl.DataFrame:
    """The anchor's rows of ``means`` over its fitted benchmarks, the autoregressive pool first."""
    scope = f"horizontal/{context.plan.anchor_model}"
    rows = context.frames["means"].filter(scope=scope, column="mean", exponents="paper", mu="cohort").select(COLUMNS)
    return rows.sort(pl.col("pool") != "ar", maintain_order=True)


@style.styled()
def draw(numbers: pl.DataFrame, context: shared.BoptrContext) -> Figure:
    """Draw what ``numbers`` returned."""
    rows = shared.defined(numbers)
    anchor, benchmarks = context.plan.anchor_model, context.plan.with_role("fitted")
    titles = ", ".join(map(context.plan.title, benchmarks))
    second = textwrap.shorten(f"{anchor}: mean error of predicted RL curves on {titles}", 110, placeholder=" ...")
    finding, missing = shared.least(rows.filter(pool="ar")), shared.absent(numbers, 120)
    pools = (rows if rows.height else numbers)["pool"].unique(maintain_order=True).to_list()
    sizes = [rows.filter(pool=pool).height for pool in pools]
    height = 1.7 + 0.19 * sum(sizes) + 0.13 * len(missing.splitlines())
    figure = context.new_figure(style.PAGE, height, finding, second, [anchor], benchmarks)
    panels = figure.subplots(len(pools), 1, sharex=True, squeeze=False, height_ratios=[n + 0.8 for n in sizes])[:, 0]
    for axes, pool in zip(panels, pools, strict=True):
        some = rows.filter(pool=pool)
        shared.error_rows(axes, some, shared.places(["rival" if kind == "rival" else "" for kind in some["kind"]]))
        axes.set_title(shared.POOL_TITLES[pool], color=palette.MUTED)
    shared.error_axis(panels[-1], rows)
    shared.legend(figure, shared.kind_handles(rows["kind"], context), missing, 3)
    return figure
