"""The anchor model on every benchmark."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from dataclasses import replace

import polars as pl
from matplotlib.figure import Figure

from searchlens.boptr.inference import ERROR_COLUMNS
from searchlens.boptr.transfer import RIVALS
from searchlens.catalogue import figure, table
from searchlens.reporting.boptr import parts
from searchlens.reporting.boptr.context import (
    CORRECTED,
    ERROR,
    READINGS,
    BoptrContext,
    Means,
    block,
    brackets,
    corrected,
)
from searchlens.reporting.boptr.contrasts import contrast_notes, null_note, null_part
from searchlens.reporting.figures import palette, style
from searchlens.reporting.tables import format as fmt
from searchlens.reporting.tables.format import Line
from searchlens.reporting.tables.table import Table


@table("horizontal", stage="boptr")
def horizontal(context: BoptrContext) -> Table:
    """The anchor model on every benchmark; the CSV has the other models, too."""
    plan, frames = context.plan, context.frames
    every_model = frames["means"].filter(pl.col("scope").str.starts_with("horizontal/"))
    fitted, held_out = ({d: plan.title(d) for d in plan.with_role(role)} for role in ("fitted", "held_out"))
    main = fitted | {"mean": "mean", "matched mean": "matched mean"}
    columns = main | ({"held-out mean": "held-out mean"} if held_out else {})
    means = Means(context, every_model.filter(scope=f"horizontal/{plan.anchor_model}"), columns, "mean")
    blocks = [
        block(
            _with_h5_lines(means.lines(columns=main), _h5_lines(context, fitted)),
            "fitted benchmarks, AR pool",
            RIVALS[:1],
        )
    ]
    if held_out:
        outside = replace(means, columns=held_out | {"held-out mean": "mean"}, count="held-out mean")
        blocks.append(block(outside.lines(), "held-out benchmarks, AR pool", RIVALS[:1]))
    blocks += [*means.full_pool(), *null_part(frames["nulls"], means.paper), *means.own_exponents()]
    notes = [
        f"Rows: what predicts the RL curve of {plan.anchor_model} on the benchmark. {ERROR}",
        brackets(context.options),
        CORRECTED,
        "matched mean: over the benchmarks that every row but V5b and the rivals defines; a mean is over those of its"
        " cells in which the row is defined (column cells).",
        "H6 and H7 read the RL curve that they are scored on: ceilings, not comparators.",
        null_note(frames["nulls"]),
        _replication_note(frames["seed_summary"]),
        "b > max(B): the frozen rule at the larger budgets alone, nothing fitted or selected again.",
        *contrast_notes(frames["contrasts"], "anchor", "H5", means.paper["tier"].unique()),
        *means.closing(frames["extension"].filter(model=plan.anchor_model), frames["seed_summary"]),
    ]
    return Table(_horizontal_data(context, every_model), blocks, notes)


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


def _replication_note(seed_summary: pl.DataFrame) -> str:
    batches = seed_summary["batches"].drop_nulls().to_list()
    if not any(batches):
        return "Replication: nothing was sampled a second time."
    return (
        f"Replication: mean ± sd (ddof 1) over {max(batches)} batches of Base samples against the same RL curve; the"
        " mean column averages the benchmarks within each batch first. Fixed π̂ keeps the policy of the main batch,"
        " the full rule selects again. Table seed_replication has every batch."
    )


def _h5_lines(context: BoptrContext, fitted: Mapping[str, str]) -> dict[str, Line]:
    """H5 on batches that were sampled again, and beyond the largest budget."""
    plan, lines = context.plan, {}
    for (reading,), group in context.frames["seed_summary"].group_by("reading", maintain_order=True):
        line = {"row": f"→ replication, {READINGS[str(reading)]}, raw"}
        for row in group.iter_rows(named=True):
            line[fitted.get(row["benchmark"], "mean")] = fmt.spread(row["mean"], row["sd"])
        lines[f"replication {reading}"] = line
    beyond = {"row": f"→ frozen rule at b > {max(plan.budgets)}"}
    for row in context.frames["extension"].filter(model=plan.anchor_model).iter_rows(named=True):
        title = "mean" if row["benchmark"] is None else fitted.get(row["benchmark"])
        if title:
            beyond[title] = corrected(row)
    return {**lines, "beyond": beyond}


def _horizontal_data(context: BoptrContext, means: pl.DataFrame) -> pl.DataFrame:
    model = pl.col("scope").str.strip_prefix("horizontal/").alias("model")
    nulls = context.frames["nulls"].select(
        "tier", exponents=pl.lit("paper"), pool=pl.lit("ar"), null_mean="null_mean", null_p="p"
    )
    h5 = {"exponents": "paper", "mu": "cohort", "tier": "H5", "kind": "rule", "pool": "ar"}
    h5["rl"] = next(iter(means.filter(tier="H5")["rl"]), "")
    of_h5 = [pl.lit(value).alias(name) for name, value in h5.items()]
    label = pl.format("replication, {}", "reading").alias("label")
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
        nulls, on=["tier", "exponents", "pool"], how="left", maintain_order="left"
    )
    return pl.concat([main, seeds, beyond], how="diagonal_relaxed")


# ---- figure

COLUMNS = ("pool", "tier", "label", "kind", *parts.ERROR_VALUES, "cells", "of", "reason")


@figure("horizontal", stage="boptr")
def numbers(context: BoptrContext) -> pl.DataFrame:
    """The anchor's rows of ``means`` over its fitted benchmarks, the autoregressive pool first."""
    scope = f"horizontal/{context.plan.anchor_model}"
    rows = context.frames["means"].filter(scope=scope, column="mean", exponents="paper", mu="cohort").select(COLUMNS)
    return rows.sort(pl.col("pool") != "ar", maintain_order=True)


@style.styled()
def draw(numbers: pl.DataFrame, context: BoptrContext) -> Figure:
    """Draw what ``numbers`` returned."""
    rows = parts.defined(numbers)
    anchor, benchmarks = context.plan.anchor_model, context.plan.with_role("fitted")
    titles = ", ".join(map(context.plan.title, benchmarks))
    second = textwrap.shorten(f"{anchor}: mean error of predicted RL curves on {titles}", 110, placeholder=" ...")
    finding, missing = parts.least(rows.filter(pool="ar")), parts.absent(numbers, 120)
    pools = (rows if rows.height else numbers)["pool"].unique(maintain_order=True).to_list()
    sizes = [rows.filter(pool=pool).height for pool in pools]
    height = 1.7 + 0.19 * sum(sizes) + 0.13 * len(missing.splitlines())
    figure = context.new_figure(style.PAGE, height, finding, second, [anchor], benchmarks)
    panels = figure.subplots(len(pools), 1, sharex=True, squeeze=False, height_ratios=[n + 0.8 for n in sizes])[:, 0]
    for axes, pool in zip(panels, pools, strict=True):
        some = rows.filter(pool=pool)
        parts.error_rows(axes, some, parts.places(["rival" if kind == "rival" else "" for kind in some["kind"]]))
        axes.set_title(parts.POOL_TITLES[pool], color=palette.MUTED)
    parts.error_axis(panels[-1], rows)
    parts.legend(figure, parts.kind_handles(rows["kind"], context), missing, 3)
    return figure
