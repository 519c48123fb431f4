"""Errors of the transferred rule in every cell of the cohort, one small map per tier."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
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

from searchlens import catalogue
from searchlens.claims import DASH, ERRORS, number, say
from searchlens.figures import style
from searchlens.figures.boptr import parts
from searchlens.figures.boptr.context import FigureContext

TIERS = ("V1", "V2", "V3", "V5b")
ACROSS = 2
COLOURS = LinearSegmentedColormap.from_list("error", ["#F4F8FC", "#C6DBEF", "#6BAED6", "#2171B5", "#08306B"])
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
    """Draw what ``numbers`` returned: a map for each tier that has an error and is not another one by definition."""
    models = numbers.select("model", "group").unique(maintain_order=True)
    benchmarks = numbers["benchmark"].unique(maintain_order=True).to_list()
    tiers, repeated = _tiers(numbers)
    shown = numbers.filter(pl.col("tier").is_in(tiers))
    notes = [f"Small: {context.interval}.", *repeated, parts.absent(numbers, 500)]
    note = textwrap.fill(" ".join(filter(None, notes)), 120)
    across = min(ACROSS, max(1, len(tiers)))
    down = -(-max(1, len(tiers)) // across)
    size = 1.0 + down * (0.5 + 0.34 * models.height) + 0.13 * len(note.splitlines())
    second = f"corrected error of predicted RL curves in percentage points; {context.cohort}"
    first = _finding(shown)
    figure = context.new_figure(style.PAGE, size, first, second, models["model"].to_list(), benchmarks)
    panels = list(figure.subplots(down, across, sharex=True, sharey=True, squeeze=False).flat)
    for axes in panels[len(tiers) :]:
        axes.set_axis_off()
    limit = max([1.0, *shown["corrected"].drop_nulls()])
    for axes, tier in zip(panels, tiers, strict=False):
        rows = shown.filter(tier=tier)
        mesh = _map(axes, rows, models, benchmarks, limit)
        axes.set_title(rows["label"][0])
        axes.set_xticks([x + 0.5 for x in range(len(benchmarks))], map(context.plan.title, benchmarks))
        axes.tick_params(axis="x", labelrotation=0)
    if tiers:
        bar = figure.colorbar(mesh, ax=panels, location="right", aspect=25, pad=0.01, fraction=0.03)
        bar.outline.set_visible(False)
        bar.set_label("error (pp)")
    else:
        style.say(panels[0], parts.missing(numbers["reason"]))
    figure.supxlabel(note, fontsize=7, x=0.01, ha="left", color=style.MUTED)
    return figure


def _tiers(numbers: pl.DataFrame) -> tuple[list[str], list[str]]:
    """The tiers with an error, those with the numbers of an earlier one left out, and sentences about these."""
    kept: dict[str, list[float | None]] = {}
    said = []
    for tier in (name for name in TIERS if name in parts.defined(numbers)["tier"]):
        errors = numbers.filter(tier=tier)["corrected"].to_list()
        same = [name for name, others in kept.items() if others == errors]
        if same:
            said.append(f"{tier} is {same[0]} here, since there is one model.")
        else:
            kept[tier] = errors
    return list(kept), said


def _finding(rows: pl.DataFrame) -> str:
    """The cell of the largest error of the tiers that have not seen its curve."""
    errors = parts.defined(rows).filter(pl.col("tier") != "V1").sort("corrected")
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
    words: dict[str, Any] = {"fontsize": 7.5, "va": "bottom"}
    texts = error.map(lambda value: "" if isnan(value) else number(value, 1))
    sns.heatmap(error, annot=texts, fmt="", annot_kws=words, cbar=False, ax=axes, **look)
    for text in axes.texts:
        x, y = (int(place) for place in text.get_position())
        ends = f"{float(low.to_numpy()[y, x]):.1f} to {float(high.to_numpy()[y, x]):.1f}"
        axes.text(x + 0.5, y + 0.52, ends, ha="center", va="top", fontsize=7, color=text.get_color(), gid="interval")
    for y, x in zip(*np.nonzero(error.isna().to_numpy()), strict=True):
        _hatched(axes, x + 0.5, y + 0.5)
    groups = models["group"].to_list()
    for y in (i for i in range(1, len(groups)) if groups[i] != groups[i - 1]):
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
    axes.text(x, y, DASH, ha="center", va="center", fontsize=7, color=style.MUTED, bbox=halo, gid="undefined")
