"""Errors of the transferred rule in every cell of the cohort, one small map per tier."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence

import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.collections import QuadMesh
from matplotlib.colors import LinearSegmentedColormap, Normalize
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from searchlens import catalogue
from searchlens.figures import style
from searchlens.figures.boptr import parts
from searchlens.figures.boptr.context import FigureContext

TIERS = ("V1", "V2", "V3", "V5b")
GROUP_GAP = 0.4
COLOURS = LinearSegmentedColormap.from_list("error", ["#FFFFFF", "#C6DBEF", "#6BAED6", "#2171B5", "#08306B"])
COLUMNS = ("tier", "label", "model", "group", "benchmark", *parts.ERROR_VALUES, "reason")


@catalogue.figure("vertical", stage="boptr")
def numbers(context: FigureContext) -> pl.DataFrame:
    """Rows of ``errors``: the fitted models on the fitted benchmarks, sampling policies, the paper's exponents."""
    models, benchmarks = context.plan.fitted_models, context.plan.with_role("fitted")
    rows = context.frames["errors"].filter(
        pl.col("tier").is_in(TIERS), pl.col("model").is_in(models), pl.col("benchmark").is_in(benchmarks)
    )
    rows = rows.filter(pool="ar", exponents="paper", mu="cohort").select(COLUMNS)
    order = [
        pl.col(name).replace_strict(values, range(len(values)), return_dtype=pl.Int64)
        for name, values in (("tier", TIERS), ("model", models), ("benchmark", benchmarks))
    ]
    return rows.sort(order)


@style.styled()
def draw(numbers: pl.DataFrame, context: FigureContext) -> Figure:
    """Draw what ``numbers`` returned."""
    models = numbers.select("model", "group").unique(maintain_order=True)
    heights = dict(zip(models["model"], parts.places(models["group"].to_list(), GROUP_GAP), strict=True))
    benchmarks = numbers["benchmark"].unique(maintain_order=True).to_list()
    notes = textwrap.wrap(_notes(numbers), 120)
    size = 1.6 + 0.2 * (max(heights.values()) + 1) + 0.13 * len(notes)
    second = "error of predicted RL curves in every cell, corrected for both biases (percentage points)"
    figure = context.new_figure(style.PAGE, size, context.cohort, second, models["model"].to_list(), benchmarks)
    tiers = numbers.select("tier", "label").unique(maintain_order=True)
    panels = figure.subplots(1, tiers.height, sharey=True, squeeze=False)[0]
    limit = max([1.0, *numbers["corrected"].drop_nulls()])
    for axes, (tier, label) in zip(panels, tiers.iter_rows(), strict=True):
        mesh = _map(axes, numbers.filter(tier=tier), heights, benchmarks, limit)
        axes.set_title(textwrap.fill(label, 22))
        axes.set_xticks(
            range(len(benchmarks)), map(context.plan.title, benchmarks), rotation=45, ha="right", rotation_mode="anchor"
        )
    panels[0].set_yticks(list(heights.values()), list(heights))
    _group_names(panels[0], models, heights)
    bar = figure.colorbar(mesh, ax=list(panels), location="right", aspect=25, pad=0.01, fraction=0.03)
    bar.outline.set_visible(False)
    bar.set_label("error (pp)")
    if notes:
        figure.supxlabel("\n".join(notes), fontsize=7, x=0.01, ha="left", color=style.MUTED)
    return figure


def _notes(numbers: pl.DataFrame) -> str:
    reasons = [
        f"{', '.join(rows['tier'].unique(maintain_order=True))}: {parts.reason(str(code))}"
        for (code,), rows in numbers.filter(pl.col("error").is_null()).group_by("reason", maintain_order=True)
    ]
    return f"{parts.DASH} not defined. " + "; ".join(reasons) + "." if reasons else ""


def _map(
    axes: Axes, rows: pl.DataFrame, heights: Mapping[str, float], benchmarks: Sequence[str], limit: float
) -> QuadMesh:
    edges = sorted({y - 0.5 for y in heights.values()} | {y + 0.5 for y in heights.values()})
    values = np.full((len(edges) - 1, len(benchmarks)), np.nan)
    for model, benchmark, error in rows.select("model", "benchmark", "corrected").iter_rows():
        x, y = benchmarks.index(benchmark), heights[model]
        if error is None:
            _hatched(axes, x, y)
            continue
        values[edges.index(y - 0.5), x] = error
        ink = "white" if error > 0.65 * limit else "black"
        axes.text(
            x,
            y,
            f"{error:.1f}".replace("-0.0", "0.0").replace("-", "\N{MINUS SIGN}"),
            ha="center",
            va="center_baseline",
            fontsize=7,
            color=ink,
        )
    across = np.arange(len(benchmarks) + 1) - 0.5
    mesh = axes.pcolormesh(
        across,
        edges,
        np.ma.masked_invalid(values),
        cmap=COLOURS,
        norm=Normalize(0, limit),
        edgecolor="white",
        linewidth=0.8,
    )
    axes.set_ylim(edges[-1], edges[0])
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    return mesh


def _hatched(axes: Axes, x: float, y: float) -> None:
    box = Rectangle(
        (x - 0.46, y - 0.46), 0.92, 0.92, facecolor="white", edgecolor="#BBBBBB", hatch="//////", linewidth=0
    )
    axes.add_patch(box)
    halo = {"facecolor": "white", "edgecolor": "none", "pad": 0.6}
    axes.text(x, y, parts.DASH, ha="center", va="center", fontsize=7, color=style.MUTED, bbox=halo, gid="undefined")


def _group_names(axes: Axes, models: pl.DataFrame, heights: Mapping[str, float]) -> None:
    for tick, (_, group) in zip(axes.get_yticklabels(), models.iter_rows(), strict=True):
        tick.set_text(f"{tick.get_text()} ({group})")
    names = [f"{model} ({group})" for model, group in models.iter_rows()]
    axes.set_yticks(list(heights.values()), names)
