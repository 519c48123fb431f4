"""Transfer of the rule: to other benchmarks, to other models, to what took no part in fitting, and without its parts.

Rows are ways of predicting, columns are means of errors over sets of cells.
"""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl

from searchlens.boptr.cohort import CohortPlan
from searchlens.boptr.inference import ERROR_COLUMNS
from searchlens.boptr.protocol import HELD_OUT_LIMIT
from searchlens.catalogue import table
from searchlens.claims import DASH, Row, number
from searchlens.config.boptr import REGIMES
from searchlens.tables import format as fmt
from searchlens.tables.boptr import _means as means_of
from searchlens.tables.boptr._notes import (
    CORRECTED,
    ERROR,
    READINGS,
    RIVALS,
    brackets,
    contrast_notes,
    corrected,
    heading,
    model_name,
    reasons,
    single_pair,
)
from searchlens.tables.boptr.context import TableContext
from searchlens.tables.format import Line
from searchlens.tables.table import Part, Table

BY_REGIME = {name: name for name in (*REGIMES, "all cells")}
"""Columns over the fitted cells of each regime."""


# ---- horizontal


@table("horizontal", stage="boptr")
def horizontal(context: TableContext) -> Table:
    """The anchor model on every benchmark; the CSV has the other models, too."""
    plan, options, frames = context.plan, context.options, context.frames
    means = frames["means"].filter(pl.col("scope").str.starts_with("horizontal/"))
    rows = means.filter(scope=f"horizontal/{plan.anchor_model}")
    paper = rows.filter(exponents="paper", pool="ar")
    fitted = {name: plan.title(name) for name in plan.with_role("fitted")}
    held_out = {name: plan.title(name) for name in plan.with_role("held_out")}
    main = fitted | {"mean": "mean", "matched mean": "matched mean"}
    every = main | ({"held-out mean": "held-out mean"} if held_out else {})
    h5_lines = _replication_lines(context, fitted) | _beyond_line(context, fitted)
    lines = _with_h5_lines(means_of.lines(paper, main, "mean"), h5_lines)
    parts = [means_of.block(lines, "fitted benchmarks, AR pool", RIVALS[:1])]
    if held_out:
        columns = held_out | {"held-out mean": "mean"}
        lines = means_of.lines(paper, columns, "held-out mean")
        parts.append(means_of.block(lines, "held-out benchmarks, AR pool", RIVALS[:1]))
    own, unchanged = means_of.own_exponents(rows, every, "mean")
    parts += [*means_of.full_pool(rows, every, "mean"), *_null_part(frames["nulls"], paper), *own]
    notes = [
        f"Rows: what predicts the RL curve of {plan.anchor_model} on the benchmark. {ERROR}",
        brackets(options),
        CORRECTED,
        "matched mean: over the benchmarks that every row but V5b and the rivals defines; a mean is over those of its"
        " cells in which the row is defined (column cells).",
        "H6 and H7 read the RL curve that they are scored on: ceilings, not comparators.",
        *_null_note(frames["nulls"]),
        *_replication_note(frames["seed_summary"]),
        "b > max(B): the frozen rule at the larger budgets alone, nothing fitted or selected again.",
        *contrast_notes(frames["contrasts"], "anchor", "H5", paper["tier"].unique()),
        *unchanged,
        *means_of.pool_note(rows),
        *single_pair(plan),
        *reasons(rows, frames["extension"].filter(model=plan.anchor_model), frames["seed_summary"]),
    ]
    return Table(_horizontal_data(context, means), parts, notes)


def _with_h5_lines(lines: dict[str, Line], added: Mapping[str, Line]) -> dict[str, Line]:
    """The lines with those about H5 below H5 and V5b."""
    if "V5b" in lines:
        lines = {**lines, "V5b": {**lines["V5b"], "row": f"→ {lines['V5b']['row']}"}}
    last = "V5b" if "V5b" in lines else "H5"
    result: dict[str, Line] = {}
    for key, line in lines.items():
        result[key] = line
        if key == last:
            result |= {name: {**row, "RL used": lines["H5"]["RL used"]} for name, row in added.items()}
    return result


def _replication_lines(context: TableContext, fitted: Mapping[str, str]) -> dict[str, Line]:
    lines = {}
    for (reading,), group in context.frames["seed_summary"].group_by("reading", maintain_order=True):
        line = {"row": f"→ replication, {READINGS[str(reading)]}, raw"}
        for row in group.iter_rows(named=True):
            line[fitted.get(row["benchmark"], "mean")] = fmt.spread(row["mean"], row["sd"])
        lines[f"replication {reading}"] = line
    return lines


def _replication_note(seed_summary: pl.DataFrame) -> list[str]:
    batches = seed_summary["batches"].drop_nulls().to_list()
    if not any(batches):
        return ["Replication: nothing was sampled a second time."]
    return [
        f"Replication: mean ± sd (ddof 1) over {max(batches)} batches of Base samples against the same RL curve; the"
        " mean column averages the benchmarks within each batch first. Fixed π̂ keeps the policy of the main batch,"
        " the full rule selects again. Table seed_replication has every batch."
    ]


def _beyond_line(context: TableContext, fitted: Mapping[str, str]) -> dict[str, Line]:
    plan = context.plan
    line = {"row": f"→ frozen rule at b > {max(plan.budgets)}"}
    for row in context.frames["extension"].filter(model=plan.anchor_model).iter_rows(named=True):
        title = "mean" if row["benchmark"] is None else fitted.get(row["benchmark"])
        if title:
            line[title] = corrected(row)
    return {"beyond": line}


def _null_part(nulls: pl.DataFrame, rows: pl.DataFrame) -> list[Part]:
    """The mismatched null of these rows, a column for each; nothing if it is not defined."""
    shown = nulls.filter(pl.col("tier").is_in(rows["tier"].unique().to_list()), pl.col("p").is_not_null())
    if shown.is_empty():
        return []
    statistics = {"error": ("true pairing", 2), "null_mean": ("mismatched, mean", 2), "p": ("p", 3)}
    lines = [
        {"pairing": title} | {row["tier"]: number(row[name], digits) for row in shown.iter_rows(named=True)}
        for name, (title, digits) in statistics.items()
    ]
    return [fmt.part(lines, "mismatched null: every Base against another model's RL, raw errors")]


def _null_note(nulls: pl.DataFrame) -> list[str]:
    defined = nulls.filter(pl.col("p").is_not_null())
    if defined.is_empty():
        return ["Mismatched null (every Base scored against another model's RL): needs a second pair."]
    first = defined.row(0, named=True)
    return [
        f"Mismatched null: {first['pairings']} pairings of {first['models']} models, mean over their fitted cells, so"
        " that the true pairing need not equal the means above. p: share of pairings with an error at most the true"
        " one's."
    ]


def _horizontal_data(context: TableContext, means: pl.DataFrame) -> pl.DataFrame:
    model = pl.col("scope").str.strip_prefix("horizontal/").alias("model")
    nulls = context.frames["nulls"].select(
        "tier", exponents=pl.lit("paper"), pool=pl.lit("ar"), null_mean="null_mean", null_p="p"
    )
    h5 = {"exponents": "paper", "mu": "cohort", "tier": "H5", "kind": "rule", "pool": "ar"}
    h5["rl"] = next(iter(means.filter(tier="H5")["rl"]), "")
    of_h5 = [pl.lit(value).alias(name) for name, value in h5.items()]
    seeds = context.frames["seed_summary"].select(
        *of_h5,
        pl.lit(context.plan.anchor_model).alias("model"),
        pl.format("replication, {}", "reading").alias("label"),
        pl.col("benchmark").alias("column"),
        pl.col("mean").alias("error"),
        "sd",
        "batches",
        "reason",
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
        nulls, on=["tier", "exponents", "pool"], how="left", maintain_order="left"
    )
    return pl.concat([main, seeds, beyond], how="diagonal_relaxed")


# ---- vertical


@table("vertical", stage="boptr")
def vertical(context: TableContext) -> Table:
    """Every model's mean over the fitted benchmarks, for the upper and the lower cohort, and over all models."""
    plan, frames = context.plan, context.frames
    rows = frames["means"].filter(scope="vertical")
    paper, title = rows.filter(exponents="paper", pool="ar"), heading(plan)
    groups = {"upper": "upper cohort: same RL-training split", "lower": "lower cohort: stress"}
    parts = []
    for group, description in groups.items():
        members = plan.in_group(group)  # type: ignore[arg-type]
        if members:
            columns = {name: title(name) for name in (*members, f"{group} mean")}
            lines = means_of.lines(paper, columns, "")
            parts.append(means_of.block(lines, f"{description}, AR pool", RIVALS[:1]))
    overall = means_of.OVERALL
    parts.append(means_of.block(means_of.lines(paper, overall, "micro"), "all models, AR pool", RIVALS[:1]))
    own, unchanged = means_of.own_exponents(rows, overall, "micro")
    parts += [*means_of.full_pool(rows, overall, "micro"), *_null_part(frames["nulls"], paper), *own]
    notes = [
        f"Rows: what predicts the RL curves of a model; columns: mean over its fitted benchmarks. {ERROR}",
        brackets(context.options),
        CORRECTED,
        means_of.OVERALL_NOTE,
        "V1 reads the RL curve that it is scored on. V2 uses the anchor's own path on the same benchmark, which is not"
        " δ = 0; V2 δ=0 is.",
        *means_of.fewer_cells(paper, "micro"),
        *_null_note(frames["nulls"]),
        *contrast_notes(frames["contrasts"], "cohort", "V3", paper["tier"].unique()),
        *unchanged,
        *means_of.pool_note(rows),
        *single_pair(plan),
        *reasons(rows),
    ]
    return Table(rows.drop("scope"), parts, notes)


ASSUMPTIONS = {
    "V1": "none (fit α, β, π per cell)",
    "V2": "path of the anchor, same benchmark",
    "V2-δ0": "formula shared, no offset",
    "V3": "formula + 1-D offset",
    "V5b": "formula + predicted 1-D offset",
    "Z1-N*": "α from the anchor and the saturation knee",
    "Z0-u": "α from the base@rltrain fingerprint",
}


@table("decomposition", stage="boptr")
def decomposition(context: TableContext) -> Table:
    """What each structural assumption costs, in macro and micro means."""
    rows, overall = context.frames["means"].filter(scope="decomposition"), means_of.OVERALL
    paper = rows.filter(exponents="paper", pool="ar")
    lines = {
        key: {"row": line["row"], "structural assumption": ASSUMPTIONS[key], **line}
        for key, line in means_of.lines(paper, overall, "micro").items()
    }
    own, unchanged = means_of.own_exponents(rows, overall, "micro")
    notes = [
        f"Rows: ways of transfer, over the fitted cells. {ERROR}",
        brackets(context.options),
        CORRECTED,
        means_of.OVERALL_NOTE,
        *means_of.fewer_cells(paper, "micro"),
        "From V2 δ=0 to V3: the value of the offset. From V3 to V1: what the formula costs; V1 is fitted to the curve"
        " that it is scored on.",
        "Lower block: how the offset degrades as less RL is read. Without RL (Z0-u) holds for α alone: β and the"
        " selector's prototype come from the anchor's RL.",
        *contrast_notes(context.frames["contrasts"], "cohort", "V3", ASSUMPTIONS),
        *unchanged,
        *means_of.pool_note(rows),
        *single_pair(context.plan),
        *reasons(rows),
    ]
    parts = [means_of.block(lines, "AR pool", ("Z1-N*",)), *means_of.full_pool(rows, overall, "micro"), *own]
    return Table(rows.drop("scope"), parts, notes)


ABLATION_LABELS = {"V3": "MAIN (BOPTR-P1)", "H6": "ORACLE-2D per-b (π, N)"}


@table("ablation", stage="boptr")
def ablation(context: TableContext) -> Table:
    """The rule without each of its parts, by regime."""
    rows = context.frames["means"].filter(scope="ablation")
    cohort, without = rows.filter(mu="cohort"), rows.filter(mu="without", pool="ar")
    paper = cohort.filter(exponents="paper", pool="ar")

    def part(group: pl.DataFrame, title: str) -> Part:
        lines = means_of.lines(group, BY_REGIME, "all cells", ABLATION_LABELS)
        return means_of.block(lines, title, ("H6",))

    own, unchanged = means_of.own_exponents(cohort, BY_REGIME, "all cells", ABLATION_LABELS)
    notes = [
        f"Rows: variants of the rule, mean over the fitted cells of a regime. {ERROR}",
        brackets(context.options),
        CORRECTED,
        "A1: RL default policy in place of π̂. A2: δ = 0 (as V2-δ0). A3: N = b. The selector is run again in A2 and A3."
        " Oracles read the curve that they are scored on.",
        *means_of.fewer_cells(paper, "all cells"),
        *contrast_notes(context.frames["contrasts"], "cohort", "V3", ("A1", "V2-δ0", "A3")),
        *unchanged,
        *means_of.pool_note(cohort),
        *single_pair(context.plan),
        *reasons(rows),
    ]
    parts = [part(paper, "AR pool")]
    if not without.is_empty():
        parts.append(part(without, f"μ without {', '.join(context.options.mu_without)}, AR pool"))
    parts += [*means_of.full_pool(cohort, BY_REGIME, "all cells", ABLATION_LABELS), *own]
    return Table(rows.drop("scope"), parts, notes)


# ---- beyond the fitted cohort


@table("coverage_models", stage="boptr")
def coverage_models(context: TableContext) -> Table:
    """New models, everything frozen."""
    rows = context.frames["means"].filter(scope="new models")
    columns = {name: name for name in context.plan.in_group("new")}
    if not columns:
        return Table(rows.drop("scope"), [fmt.part([])], ["The cohort has no new model."])
    labels = {"V2-δ0": "V3 pipeline, δ := 0"}
    main = means_of.block(means_of.lines(rows.filter(exponents="paper", pool="ar"), columns, "", labels), "")
    own, unchanged = means_of.own_exponents(rows, columns, "", labels)
    notes = [
        f"Columns: new models, mean over their fitted benchmarks; they fit nothing but their own δ (V3). {ERROR}",
        brackets(context.options),
        CORRECTED,
        "V5b is defined where the model's Base belongs to a fitted one; δ := 0 needs no calibration.",
        *unchanged,
        *reasons(rows),
    ]
    return Table(rows.drop("scope"), [main, *own], notes)


@table("coverage_heldout", stage="boptr")
def coverage_heldout(context: TableContext) -> Table:
    """The frozen rule (V3) on every held-out benchmark, model by model."""
    plan, options = context.plan, context.options
    cells = context.frames["errors"].filter(tier="V3", role="held_out", pool="ar", mu="cohort")
    means = context.frames["means"].filter(scope="held out", pool="ar")
    criteria = context.frames["held_out_criterion"]
    data = _heldout_data(cells, means, criteria)
    if not plan.with_role("held_out"):
        return Table(data, [fmt.part([])], ["The cohort has no held-out benchmark."])
    titles = {"paper": "the paper's exponents", "own": "the cohort's own exponents"}
    parts = []
    for exponents in ("paper", "own") if _differ(cells) else ("paper",):
        of_cells, of_means, limits = (frame.filter(exponents=exponents) for frame in (cells, means, criteria))
        parts.append(_heldout_part(of_cells, of_means, limits, context, titles[exponents]))
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
    cells: pl.DataFrame,
    means: pl.DataFrame,
    criteria: pl.DataFrame,
    context: TableContext,
    title: str,
) -> Part:
    """The cells of every model, and below them the means with their limit; frames of one choice of exponents."""
    plan, limit = context.plan, HELD_OUT_LIMIT
    benchmarks = plan.with_role("held_out")
    headings = {name: plan.title(name) for name in benchmarks} | {"all cells": "mean"}
    rule = {row["column"]: row for row in means.filter(tier="V3").iter_rows(named=True)}
    oracle = {row["column"]: row for row in means.filter(tier="V1").iter_rows(named=True)}
    lines = []
    for model, member in plan.models.items():
        rows = cells.filter(model=model).iter_rows(named=True)
        line = {"model": model_name(plan, model) + (" (new)" if member.group == "new" else "")}
        line |= {headings[row["benchmark"]]: _limited(row, limit) for row in rows}
        line["mean"] = _limited(rule[model], limit) if model in rule else DASH
        lines.append(line)
    limits = {row["benchmark"] or "all cells": row for row in criteria.iter_rows(named=True)}
    summary = [
        {"model": name} | {text: _limited(means_by_column[c], limit) for c, text in headings.items()}
        for name, means_by_column in (("benchmark mean", rule), ("per-cell oracle", oracle))
    ]
    summary.append({"model": "gap"} | {text: number(limits[c]["gap"]) for c, text in headings.items() if c in limits})
    verdicts = {headings[c]: "met" if limits[c]["meets"] else "not met" for c in benchmarks if c in limits}
    summary.append({"model": f"within {limit:g} pp"} | verdicts)
    count = rule.get("all cells")
    defined = f", cells: {fmt.fraction(count['cells'], count['of'])}" if count else ""
    return fmt.part([*lines, *summary], title + defined, (len(plan.fitted_models), len(lines)))


def _limited(row: Row, limit: float) -> str:
    """A corrected error with its interval, and the raw one, with a dagger if it is above the limit."""
    if row["error"] is None:
        return DASH
    mark = "†" if row["error"] > limit else ""
    return f"{corrected(row)} ({number(row['error'])}{mark})"


def _beyond_note(criteria: pl.DataFrame, plan: CohortPlan) -> list[str]:
    rows = criteria.filter(pl.col("exponents") == "paper", pl.col("benchmark").is_not_null(), pl.col("beyond") != "")
    cells = [f"{plan.title(row['benchmark'])}: {row['beyond']}" for row in rows.iter_rows(named=True)]
    if cells:
        return [f"Cells beyond the limit: {'; '.join(cells)}."]
    return ["No cell is beyond the limit."] if criteria.height else []


# ---- rule variants


@table("rule_variants", stage="boptr")
def rule_variants(context: TableContext) -> Table:
    """What distinguishes the variants, and what each reaches."""
    variants = context.frames["rule_variants"]
    rows = context.frames["means"].filter(scope="variants", exponents="paper")
    descriptions = [
        {"rule": row["rule"], **{name: row[name] for name in ("state", "parameters", "use", "interpretation")}}
        for row in variants.iter_rows(named=True)
    ]
    line_by_key = means_of.lines(rows.filter(pool="ar"), BY_REGIME, "all cells")
    keys = [key for row in variants.iter_rows(named=True) for key in (row["tier"], row["tier_anchor"])]
    measured = {key: line_by_key[key] for key in keys if key in line_by_key}
    notes = [
        f"Lower block: mean over the fitted cells of a regime. {ERROR}",
        brackets(context.options),
        CORRECTED,
        "Each variant is measured at two levels of information: an offset from each model's own pair, or the anchor's"
        " scale alone. Oracles read the curve that they are scored on; v8-H has no formula and is not evaluated.",
        "v6 and v7 have no formula in print: docs/rule-variants.md defines the ones that are measured here. The first"
        " finish (T) that they choose policies by is read from the first n samples.",
        *means_of.pool_note(rows),
        *single_pair(context.plan),
        *reasons(rows),
    ]
    parts = [
        fmt.part(descriptions, "variants"),
        means_of.block(measured, "measured with the paper's exponents, AR pool"),
        *means_of.full_pool(rows, BY_REGIME, "all cells"),
    ]
    return Table(_variants_data(variants, rows), parts, notes)


def _variants_data(variants: pl.DataFrame, means: pl.DataFrame) -> pl.DataFrame:
    """Every variant with its means, then those that are also measured with the anchor's scale alone, with theirs."""
    anchored = variants.filter(pl.col("tier_anchor").is_not_null()).drop("tier").rename({"tier_anchor": "tier"})
    joined = [frame.join(means, on="tier", how="left", maintain_order="left") for frame in (variants, anchored)]
    return pl.concat(joined, how="diagonal_relaxed").drop("tier_anchor", "scope")
