"""N*(b): how many samples of Base equal b samples of RL, with the power law that comes nearest."""

from __future__ import annotations

import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
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
    policy = context.labels.options.default_policy
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
    policy = labels.options.default_policy
    second = f"Samples of Base that equal b of RL, policy {policy}; {SECOND_LINE}{context.said_source}"
    said = f"{_finding(numbers, context)}\n{second}"
    figure = style.new_panels(pairs, names, said, "sampled")
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
    _legend(figure, f"N*(b), joint {labels.band}")
    return figure


def _finding(numbers: pl.DataFrame, context: StudyContext) -> str:
    """How many samples of Base one sample of RL is worth, as far as bands exclude that it is one."""
    first = style.sound(pick(numbers, budget=1), context)
    more = first.filter((pl.col("band_lo") > 1) & (pl.col("state") != "below"))
    return say(
        WORTH_MORE, {"more": more.height, "cells": first.height, "most": _most(more, numbers["pair"].n_unique())}
    )


def _most(more: pl.DataFrame, pairs: int) -> str:
    """The cell in which one sample of RL is worth most, with its band; nothing if no cell has a number."""
    for row in more.drop_nulls("n").sort("n").tail(1).to_dicts():
        band = bracket(row["band_lo"], row["band_hi"], 1, hi_open=row["band_hi"] >= row["pool"])
        return f", {row['n']:.1f} {band} on {row['benchmark']}" + (f" ({row['pair']})" if pairs > 1 else "")
    return ""


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
    axes.fill_between(
        budgets,
        known["band_lo"].to_list(),
        known["band_hi"].to_list(),
        color=palette.BASE_COLOUR,
        alpha=0.2,
        linewidth=0,
    )
    axes.plot(budgets, known["n"].to_list(), color=palette.BASE_COLOUR, marker="o", markersize=2.5, zorder=3, gid="N*")
    law = cell.drop_nulls("law").sort("budget")
    axes.plot(
        law["budget"].to_list(), law["law"].to_list(), color=palette.RL_COLOUR, linestyle=LAW, zorder=2.5, gid="law"
    )
    for state, marker, height in (("above", "^", cell["pool"][0]), ("level", "^", cell["pool"][0]), ("below", "v", 1)):
        outside = pick(cell, state=state)["budget"].to_list()
        axes.plot(
            outside, [height] * len(outside), linestyle="", marker=marker, markersize=3, color=palette.MUTED, gid=state
        )
    slopes = cell.sort("budget")["slope"].drop_nulls().to_list()
    if slopes:
        shown = f"{slopes[0]:.2f} → {slopes[-1]:.2f}" if len(slopes) > 1 else f"{slopes[0]:.2f}"
        axes.text(0.04, 0.86, shown, transform=axes.transAxes, ha="left", fontsize=7, color=palette.MUTED)


def _legend(figure: Figure, curve: str) -> None:
    handles = [
        Line2D([], [], color=palette.BASE_COLOUR, marker="o", markersize=2.5, label=curve),
        Line2D([], [], color=palette.RL_COLOUR, linestyle=LAW, label="α b^β of least error"),
        Line2D([], [], color=palette.CURVE_COLOUR, linewidth=0.6, label="equal samples"),
        Line2D([], [], color=palette.MUTED, marker="^", markersize=3, linestyle="", label="beyond Base's pool"),
        Line2D([], [], color=palette.MUTED, marker="v", markersize=3, linestyle="", label="below 1"),
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=2)
