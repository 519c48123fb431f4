"""N*(b): how many samples of Base equal b samples of RL, with the power law that comes nearest."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from searchlens import catalogue
from searchlens.analysis.claims import WORTH_MORE, bracket, say
from searchlens.analysis.frames import pick
from searchlens.analysis.readings import LAW_BUDGETS
from searchlens.reporting.figures import palette, style
from searchlens.reporting.figures.context import StudyContext

LAW = (0, (4, 1.5))
CROWDED = 4
"""Columns beyond which every other tick is left out."""
SECOND_LINE = "grey numbers: local exponent, first → last"
COLUMNS = ["pair", "benchmark", "budget", "state", "n", "band_lo", "band_hi", "pool", "slope"]


@catalogue.figure("budget_equivalents", stage="study")
def numbers(context: StudyContext) -> pl.DataFrame:
    """One row per pair, benchmark and budget of RL.

    ``law`` is the N of the law of least error, where it lies in the samples to which it was fitted.
    """
    policy = context.labels.general.default_policy
    laws = pick(context.readings["exponents"], policy=policy).select("pair", "benchmark", "log2_alpha_l1", "beta_l1")
    rows = pick(context.readings["equivalents"], policy=policy).select(COLUMNS)
    joined = rows.join(laws, on=["pair", "benchmark"], how="left", maintain_order="left")
    law = 2 ** pl.col("log2_alpha_l1") * pl.col("budget").cast(pl.Float64) ** pl.col("beta_l1")
    fitted = (pl.col("budget") <= LAW_BUDGETS[-1]) & law.is_between(1, "pool", closed="left")
    return joined.select(*COLUMNS, alpha=2 ** pl.col("log2_alpha_l1"), beta="beta_l1", law=pl.when(fitted).then(law))


@style.styled()
def draw(numbers: pl.DataFrame, context: StudyContext) -> Figure:
    """Draw what ``numbers`` returned: a row per pair, a column per benchmark."""
    labels = context.labels
    pairs, names = style.places(numbers)
    second = f"Samples of Base that equal b of RL, policy {labels.general.default_policy}; {SECOND_LINE}"
    title = f"{_finding(numbers, context)}\n{second}{context.said_source}"
    figure = style.new_panels(pairs, names, title, "sampled")
    top = float(max(numbers["pool"].to_list() + numbers["budget"].to_list()))
    for axes, pair, name in style.grid(figure, pairs, names):
        cell = pick(numbers, pair=pair, benchmark=name)
        _axes(axes, numbers["budget"].unique().to_list(), top, step=4 if len(names) > CROWDED else 2)
        if pair == pairs[0]:
            axes.set_title(name, fontsize=7)
        if (pair, name) in context.broken:
            style.not_interpretable(axes)
        elif cell.height:
            _panel(axes, cell)
    style.name_axes(figure, names, "samples of RL, b", "samples of Base, N*(b)")
    keys = [
        style.key(f"N*(b), joint {labels.band}", color=palette.BASE_COLOUR, marker="o", markersize=2.5),
        style.key("α b^β of least error", color=palette.RL_COLOUR, linestyle=LAW),
        style.key("equal samples", color=palette.CURVE_COLOUR, linewidth=0.6),
        style.key("beyond Base's pool", color=palette.MUTED, marker="^", markersize=3, linestyle=""),
        style.key("below 1", color=palette.MUTED, marker="v", markersize=3, linestyle=""),
    ]
    style.legend(figure, keys, ncols=2)
    return figure


def _finding(numbers: pl.DataFrame, context: StudyContext) -> str:
    """How many samples of Base one sample of RL is worth, as far as bands exclude that it is one.

    The cell in which it is worth most stands with its band, if any cell has a number.
    """
    first = style.sound(pick(numbers, budget=1), context)
    more = first.filter((pl.col("band_lo") > 1) & (pl.col("state") != "below"))
    most = ""
    for row in more.drop_nulls("n").sort("n").tail(1).to_dicts():
        band = bracket(row["band_lo"], row["band_hi"], 1, hi_open=row["band_hi"] >= row["pool"])
        most = f", {row['n']:.1f} {band} on {row['benchmark']}"
        most += f" ({row['pair']})" if numbers["pair"].n_unique() > 1 else ""
    return say(WORTH_MORE, {"more": more.height, "cells": first.height, "most": most})


def _axes(axes: Axes, budgets: list[int], top: float, step: int) -> None:
    """Logarithms of base 2 on both axes, ticks ``step`` doublings apart, and the line of equal samples."""
    style.budget_axis(axes, budgets, "")
    axes.xaxis.set_major_locator(FixedLocator([b for b in sorted(budgets) if round(np.log2(b)) % step == 0]))
    axes.set_yscale("log", base=2)
    axes.set_ylim(2**-0.6, top * 2**0.6)
    axes.yaxis.set_major_locator(FixedLocator([float(4**i) for i in range(int(np.log2(top) / 2) + 1)]))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.0f}"))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.plot([1, top], [1, top], color=palette.CURVE_COLOUR, linewidth=0.6, zorder=1)


def _panel(axes: Axes, cell: pl.DataFrame) -> None:
    known = pick(cell, state="within").sort("budget")
    budgets = known["budget"].to_list()
    ends = (known["band_lo"].to_list(), known["band_hi"].to_list())
    axes.fill_between(budgets, *ends, color=palette.BASE_COLOUR, alpha=0.2, linewidth=0)
    axes.plot(budgets, known["n"].to_list(), color=palette.BASE_COLOUR, marker="o", markersize=2.5, zorder=3, gid="N*")
    law = cell.drop_nulls("law").sort("budget")
    red: dict[str, Any] = {"color": palette.RL_COLOUR, "linestyle": LAW, "zorder": 2.5, "gid": "law"}
    axes.plot(law["budget"].to_list(), law["law"].to_list(), **red)
    for state, marker, height in (("above", "^", cell["pool"][0]), ("level", "^", cell["pool"][0]), ("below", "v", 1)):
        outside = pick(cell, state=state)["budget"].to_list()
        mark: dict[str, Any] = {"linestyle": "", "marker": marker, "markersize": 3, "color": palette.MUTED}
        axes.plot(outside, [height] * len(outside), gid=state, **mark)
    slopes = cell.sort("budget")["slope"].drop_nulls().to_list()
    if slopes:
        shown = f"{slopes[0]:.2f} → {slopes[-1]:.2f}" if len(slopes) > 1 else f"{slopes[0]:.2f}"
        axes.text(0.04, 0.86, shown, transform=axes.transAxes, ha="left", fontsize=7, color=palette.MUTED)
