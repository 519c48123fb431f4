"""Transfer to other models: every model's means, what each assumption costs, parts and variants of the rule."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import replace
from math import isnan
from typing import Any

import numpy as np
import polars as pl
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.collections import QuadMesh
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from searchlens.analysis.claims import DASH, ERRORS, number, say
from searchlens.boptr.transfer import RIVALS
from searchlens.catalogue import figure, table
from searchlens.reporting.boptr import context as shared
from searchlens.reporting.boptr.context import BoptrContext
from searchlens.reporting.boptr.protocol import contrast_notes, null_note, null_part
from searchlens.reporting.figures import palette, style
from searchlens.reporting.tables import table as fmt

# ---- variants of the rule


@table("rule_variants", stage="boptr")
def rule_variants(context: BoptrContext) -> fmt.Table:
    """What distinguishes the variants, and what each reaches."""
    variants = context.frames["rule_variants"]
    rows = context.frames["means"].filter(scope="variants", exponents="paper")
    descriptions = [
        {"variant": row["variant"], **{name: row[name] for name in ("state", "parameters", "use", "interpretation")}}
        for row in variants.iter_rows(named=True)
    ]
    means = shared.Means(context, rows, shared.BY_REGIME, "all cells")
    line_by_key = means.lines()
    keys = [key for pair in variants.select("rule", "rule_anchor").iter_rows() for key in pair]
    measured = {key: line_by_key[key] for key in keys if key in line_by_key}
    notes = [
        f"Lower block: mean over the fitted cells of a regime. {shared.ERROR}",
        context.brackets,
        shared.CORRECTED,
        "Each variant is measured at two levels of information: an offset from each model's own pair, or the anchor's"
        " scale alone. Oracles read the curve that they are scored on; v8-H has no formula and is not evaluated.",
        "v6 and v7 have no formula in print: docs/rule-variants.md defines the ones that are measured here. The first"
        " finish (T) that they choose policies by is read from the first n samples.",
        *means.pool_note(),
        *context.single_pair,
    ]
    parts = [
        fmt.part(descriptions, "variants"),
        shared.block(measured, "measured with the paper's exponents, AR pool"),
        *means.full_pool(),
    ]
    # Every variant with its means, then those that are also measured with the anchor's scale alone, with theirs.
    anchored = variants.filter(pl.col("rule_anchor").is_not_null()).drop("rule").rename({"rule_anchor": "rule"})
    joined = [frame.join(rows, on="rule", how="left", maintain_order="left") for frame in (variants, anchored)]
    data = pl.concat(joined, how="diagonal_relaxed").drop("rule_anchor", "scope")
    return context.table(data, parts, notes, rows)


# ---- every model


@table("vertical", stage="boptr")
def vertical(context: BoptrContext) -> fmt.Table:
    """Every model's mean over the fitted benchmarks, for the upper and the lower cohort, and over all models."""
    plan, frames = context.plan, context.frames
    means = shared.Means(context, frames["means"].filter(scope="vertical"), shared.OVERALL, "micro")
    blocks = []
    for group, description in (("upper", "upper cohort: same RL-training split"), ("lower", "lower cohort: stress")):
        members = plan.in_group(group)  # type: ignore[arg-type]
        if members:
            columns = {name: shared.heading(plan, name) for name in (*members, f"{group} mean")}
            lines = replace(means, columns=columns, count="").lines()
            blocks.append(shared.block(lines, f"{description}, AR pool", RIVALS[:1]))
    blocks.append(shared.block(means.lines(), "all models, AR pool", RIVALS[:1]))
    notes = [
        "Rows: what predicts the RL curves of a model; columns: mean over its fitted benchmarks.",
        shared.OVERALL_NOTE,
        "V1 reads the RL curve that it is scored on. V2 uses the anchor's own path on the same benchmark, which is not"
        " δ = 0; V2 δ=0 is.",
        *means.fewer_cells(),
        null_note(frames["nulls"]),
        *contrast_notes(frames["contrasts"], "cohort", "V3", means.paper["rule"].unique()),
    ]
    nulls = null_part(frames["nulls"], means.paper)
    return means.table(means.rows.drop("scope"), blocks, notes, nulls=nulls)


# ---- one assumption after another

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
def decomposition(context: BoptrContext) -> fmt.Table:
    """What each structural assumption costs, in macro and micro means."""
    means = shared.Means(context, context.frames["means"].filter(scope="decomposition"), shared.OVERALL, "micro")
    lines = {
        key: {"row": line["row"], "structural assumption": ASSUMPTIONS[key], **line}
        for key, line in means.lines().items()
    }
    notes = [
        "Rows: ways of transfer, over the fitted cells.",
        shared.OVERALL_NOTE,
        *means.fewer_cells(),
        "From V2 δ=0 to V3: the value of the offset. From V3 to V1: what the formula costs; V1 is fitted to the curve"
        " that it is scored on.",
        "Lower block: how the offset degrades as less RL is read. Without RL (Z0-u) holds for α alone: β and the"
        " selector's prototype come from the anchor's RL.",
        *contrast_notes(context.frames["contrasts"], "cohort", "V3", ASSUMPTIONS),
    ]
    return means.table(means.rows.drop("scope"), [shared.block(lines, "AR pool", ("Z1-N*",))], notes)


ABLATION_LABELS = {"V3": "MAIN (BOPTR-P1)", "H6": "ORACLE-2D per-b (π, N)"}


@table("ablation", stage="boptr")
def ablation(context: BoptrContext) -> fmt.Table:
    """The rule without each of its parts, by regime."""
    rows = context.frames["means"].filter(scope="ablation")
    means = shared.Means(context, rows.filter(mu="cohort"), shared.BY_REGIME, "all cells", ABLATION_LABELS)
    without = rows.filter(mu="without", pool="ar")
    notes = [
        "Rows: variants of the rule, mean over the fitted cells of a regime.",
        "A1: RL default policy in place of π̂. A2: δ = 0 (as V2-δ0). A3: N = b. The selector is run again in A2 and A3."
        " Oracles read the curve that they are scored on.",
        *means.fewer_cells(),
        *contrast_notes(context.frames["contrasts"], "cohort", "V3", ("A1", "V2-δ0", "A3")),
    ]
    blocks = [shared.block(means.lines(), "AR pool", ("H6",))]
    if without.height:
        title = f"μ without {', '.join(context.options.mu_without)}, AR pool"
        blocks.append(shared.block(means.lines(without), title, ("H6",)))
    return means.table(rows.drop("scope"), blocks, notes, rows)


# ---- figure

RULES = ("V1", "V2", "V3", "V5b")
ACROSS = 2
COLOURS = LinearSegmentedColormap.from_list("error", ["#F4F8FC", "#C6DBEF", "#6BAED6", "#2171B5", "#08306B"])
COLUMNS = ("rule", "label", "model", "group", "benchmark", *shared.ERROR_VALUES, "reason")


@figure("vertical", stage="boptr")
def numbers(context: BoptrContext) -> pl.DataFrame:
    """Rows of ``errors``: the fitted models on the fitted benchmarks, sampling policies, the paper's exponents."""
    models, benchmarks = context.plan.fitted_models, context.plan.with_role("fitted")
    rows = context.frames["errors"].filter(
        pl.col("rule").is_in(RULES), pl.col("model").is_in(models), pl.col("benchmark").is_in(benchmarks)
    )
    rows = rows.filter(pool="ar", exponents="paper", mu="cohort").select(COLUMNS)
    order = [
        pl.col(name).replace_strict(values, range(len(values)), return_dtype=pl.Int64)
        for name, values in (("rule", RULES), ("model", models), ("benchmark", benchmarks))
    ]
    return rows.sort(order)


@style.styled()
def draw(numbers: pl.DataFrame, context: BoptrContext) -> Figure:
    """Draw what ``numbers`` returned: a map for each rule that has an error and is not another one by definition."""
    models = numbers.select("model", "group").unique(maintain_order=True)
    benchmarks = numbers["benchmark"].unique(maintain_order=True).to_list()
    rules, repeated = _rules(numbers)
    shown = numbers.filter(pl.col("rule").is_in(rules))
    notes = [f"Small: {context.interval}.", *repeated, shared.absent(numbers, 500)]
    note = textwrap.fill(" ".join(filter(None, notes)), 120)
    across = min(ACROSS, max(1, len(rules)))
    down = -(-max(1, len(rules)) // across)
    size = 1.0 + down * (0.5 + 0.34 * models.height) + 0.13 * len(note.splitlines())
    second = f"corrected error of predicted RL curves in percentage points; {context.cohort}"
    figure = context.new_figure(style.PAGE, size, _finding(shown), second, models["model"].to_list(), benchmarks)
    panels = list(figure.subplots(down, across, sharex=True, sharey=True, squeeze=False).flat)
    for axes in panels[len(rules) :]:
        axes.set_axis_off()
    limit = max([1.0, *shown["corrected"].drop_nulls()])
    for axes, rule in zip(panels, rules, strict=False):
        rows = shown.filter(rule=rule)
        mesh = _map(axes, rows, models, benchmarks, limit)
        axes.set_title(rows["label"][0])
        axes.set_xticks([x + 0.5 for x in range(len(benchmarks))], map(context.plan.title, benchmarks))
        axes.tick_params(axis="x", labelrotation=0)
    if rules:
        bar = figure.colorbar(mesh, ax=panels, location="right", aspect=25, pad=0.01, fraction=0.03)
        bar.outline.set_visible(False)
        bar.set_label("error (pp)")
    else:
        style.say(panels[0], shared.missing(numbers["reason"]))
    figure.supxlabel(note, fontsize=7, x=0.01, ha="left", color=palette.MUTED)
    return figure


def _rules(numbers: pl.DataFrame) -> tuple[list[str], list[str]]:
    """The rules with an error, those with the numbers of an earlier one left out, and sentences about these."""
    kept: dict[str, list[float | None]] = {}
    said = []
    for rule in (name for name in RULES if name in shared.defined(numbers)["rule"]):
        errors = numbers.filter(rule=rule)["corrected"].to_list()
        same = [name for name, others in kept.items() if others == errors]
        if same:
            said.append(f"{rule} is {same[0]} here, since there is one model.")
        else:
            kept[rule] = errors
    return list(kept), said


def _finding(rows: pl.DataFrame) -> str:
    """The cell of the largest error of the rules that have not seen its curve."""
    errors = shared.defined(rows).filter(pl.col("rule") != "V1").sort("corrected")
    ends = {"low": number(errors["corrected"].min(), 1), "high": number(errors["corrected"].max(), 1)}  # type: ignore[arg-type]
    return say(ERRORS, {"cells": errors.height, **ends, **(errors.to_dicts() or [{}])[-1]})


def _map(axes: Axes, rows: pl.DataFrame, models: pl.DataFrame, benchmarks: Sequence[str], limit: float) -> QuadMesh:
    names = models["model"].to_list()
    numbers = ("corrected", "lo_corrected", "hi_corrected")
    frame = style.to_pandas(rows.select("model", "benchmark", *numbers))
    error, low, high = (
        frame.pivot(index="model", columns="benchmark", values=name)
        .reindex(index=names, columns=list(benchmarks))
        .astype(float)
        for name in numbers
    )
    look: dict[str, Any] = {"cmap": COLOURS, "vmin": 0, "vmax": limit, "linewidths": 0.8, "linecolor": "#DDDDDD"}
    texts = error.map(lambda value: "" if isnan(value) else number(value, 1))
    sns.heatmap(error, annot=texts, fmt="", annot_kws={"fontsize": 7.5, "va": "bottom"}, cbar=False, ax=axes, **look)
    for text in axes.texts:
        x, y = (int(place) for place in text.get_position())
        ends = f"{float(low.to_numpy()[y, x]):.1f} to {float(high.to_numpy()[y, x]):.1f}"
        axes.text(x + 0.5, y + 0.52, ends, ha="center", va="top", fontsize=7, color=text.get_color(), gid="interval")
    for y, x in zip(*np.nonzero(error.isna().to_numpy()), strict=True):
        _hatched(axes, x + 0.5, y + 0.5)
    for y in fmt.changes(models["group"].to_list()):
        axes.axhline(y, color="white", linewidth=4)
    axes.set_yticks([y + 0.5 for y in range(len(names))], [f"{model} ({group})" for model, group in models.iter_rows()])
    axes.tick_params(length=0, axis="both")
    axes.tick_params(axis="y", labelrotation=0)
    axes.set(xlabel="", ylabel="")
    mesh = axes.collections[0]
    assert isinstance(mesh, QuadMesh)
    return mesh


def _hatched(axes: Axes, x: float, y: float) -> None:
    box = Rectangle(
        (x - 0.46, y - 0.46), 0.92, 0.92, facecolor="white", edgecolor="#BBBBBB", hatch="//////", linewidth=0
    )
    axes.add_patch(box)
    halo = {"facecolor": "white", "edgecolor": "none", "pad": 0.6}
    axes.text(x, y, DASH, ha="center", va="center", fontsize=7, color=palette.MUTED, bbox=halo, gid="undefined")
