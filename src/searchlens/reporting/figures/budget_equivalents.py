"""N*(b), how many samples of Base equal b samples of RL, and which exponents of a power law the samples allow."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from searchlens import catalogue
from searchlens.analysis import claims
from searchlens.analysis.claims import WORTH_MORE, bracket, say
from searchlens.analysis.frames import pick
from searchlens.analysis.pair_measures import LAW_BUDGETS
from searchlens.config.measures import ANY
from searchlens.reporting.figures import palette, style
from searchlens.reporting.figures.context import StudyContext

LAW = (0, (4, 1.5))
CROWDED = 4
"""Columns beyond which every other tick is left out."""
SECOND_LINE = "grey numbers: local exponent, first → last"
COLUMNS = ["pair", "benchmark", "budget", "state", "n", "band_lo", "band_hi", "pool", "slope"]


@catalogue.figure("budget_equivalents", stage="study")
def budget_equivalents(context: StudyContext) -> pl.DataFrame:
    """One row per pair, benchmark and budget of RL.

    ``law`` is the N of the law of least error, where it lies in the samples to which it was fitted.
    """
    policy = context.labels.general.default_policy
    laws = pick(context.measures["exponents"], policy=policy).select("pair", "benchmark", "log2_alpha_l1", "beta_l1")
    rows = pick(context.measures["equivalents"], policy=policy).select(COLUMNS)
    joined = rows.join(laws, on=["pair", "benchmark"], how="left", maintain_order="left")
    law = 2 ** pl.col("log2_alpha_l1") * pl.col("budget").cast(pl.Float64) ** pl.col("beta_l1")
    fitted = (pl.col("budget") <= LAW_BUDGETS[-1]) & law.is_between(1, "pool", closed="left")
    return joined.select(*COLUMNS, alpha=2 ** pl.col("log2_alpha_l1"), beta="beta_l1", law=pl.when(fitted).then(law))


@style.styled()
def draw_budget_equivalents(numbers: pl.DataFrame, context: StudyContext) -> Figure:
    """Draw what ``budget_equivalents`` returned: a row per pair, a column per benchmark."""
    labels = context.labels
    pairs, names = style.places(numbers)
    second = f"Samples of Base that equal b of RL, policy {labels.general.default_policy}; {SECOND_LINE}"
    title = f"{_budget_equivalents_finding(numbers, context)}\n{second}{context.said_source}"
    figure = style.new_panels(pairs, names, title, "sampled")
    top = float(max(numbers["pool"].to_list() + numbers["budget"].to_list()))
    for axes, pair, name in style.grid(figure, pairs, names):
        cell = pick(numbers, pair=pair, benchmark=name)
        _axes(axes, numbers["budget"].unique().to_list(), top, step=4 if len(names) > CROWDED else 2)
        if pair == pairs[0]:
            axes.set_title(context.sized(name, narrow=len(names) > CROWDED), fontsize=7)
        if (pair, name) in context.broken:
            style.not_interpretable(axes)
        elif cell.height:
            _panel(axes, cell)
    style.name_axes(figure, names, "samples of RL, b", "samples of Base, N*(b)")
    keys = [
        style.key(f"N*(b), joint {labels.band}", color=palette.BASE_COLOUR, marker="o", markersize=2.5),
        style.key("α b^β of least error", color=palette.ENVELOPE_COLOUR, linestyle=LAW),
        style.key("equal samples", color=palette.CURVE_COLOUR, linewidth=0.6),
        style.key("beyond Base's pool", color=palette.MUTED, marker="^", markersize=3, linestyle=""),
        style.key("below 1", color=palette.MUTED, marker="v", markersize=3, linestyle=""),
    ]
    style.legend(figure, keys, ncols=2)
    return figure


def _budget_equivalents_finding(numbers: pl.DataFrame, context: StudyContext) -> str:
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
    look: dict[str, Any] = {"color": palette.ENVELOPE_COLOUR, "linestyle": LAW, "zorder": 3.5, "gid": "law"}
    axes.plot(law["budget"].to_list(), law["law"].to_list(), **look)
    for state, marker, height in (("above", "^", cell["pool"][0]), ("level", "^", cell["pool"][0]), ("below", "v", 1)):
        outside = pick(cell, state=state)["budget"].to_list()
        mark: dict[str, Any] = {"linestyle": "", "marker": marker, "markersize": 3, "color": palette.MUTED}
        axes.plot(outside, [height] * len(outside), gid=state, **mark)
    slopes = cell.sort("budget")["slope"].drop_nulls().to_list()
    if slopes:
        shown = f"{slopes[0]:.2f} → {slopes[-1]:.2f}" if len(slopes) > 1 else f"{slopes[0]:.2f}"
        axes.text(0.04, 0.86, shown, transform=axes.transAxes, ha="left", fontsize=7, color=palette.MUTED)


# ---- exponents

ACROSS = 3
HEIGHT = 0.75
"""Of a p-value of 1, in rows."""
SHOWN = 0.005
"""Share of laws that are not tested from which it is printed."""
STEP = 1e-6
"""Betas that are closer are the same."""
REFERENCE = (0.8, 1.0)
"""Exponents with a thin line: that of the paper, and that of RL equal to Base."""


@catalogue.figure("exponent_sets", stage="study")
def exponent_sets(context: StudyContext) -> pl.DataFrame:
    """One row per pair, benchmark and beta: the largest p-value of any tested law with it, and whether it is in a set.

    ``p`` is null at a beta with which no law is tested; ``untested`` is the share of all laws that are not.
    """
    rows = pick(context.measures["exponent_profiles"], policy=ANY)
    known = pick(context.measures["exponents"], policy=ANY).select("pair", "benchmark", "testable", "empty", "untested")
    joined = rows.join(known, on=["pair", "benchmark"], how="left", maintain_order="left")
    inside = (pl.col("p") >= 1 - context.labels.general.confidence).fill_null(value=False)
    return joined.select("pair", "benchmark", "beta", "p", "testable", "empty", "untested", inside=inside)


@style.styled()
def draw_exponent_sets(numbers: pl.DataFrame, context: StudyContext) -> Figure:
    """Draw what ``exponent_sets`` returned: a panel per benchmark, in it a line per pair."""
    pairs, names = style.places(numbers)
    across = 2 if len(names) == 4 else min(ACROSS, len(names))
    down = -(-len(names) // across)
    second = f"Exponents β of N = α b^β, N up to the pool of each policy of Base, any α{context.said_source}"
    title = f"{_exponent_sets_finding(numbers, context)}\n{second}"
    width = style.COLUMN if across == 1 else style.PAGE
    figure = style.new_figure(width, 1.2 + down * (0.62 + 0.17 * len(pairs)), title, "sampled")
    grid = figure.subplots(down, across, squeeze=False, sharey=True)
    for axes in grid.flat[len(names) :]:
        axes.set_axis_off()
    for axes, name in zip(grid.flat, names, strict=False):
        axes.set_title(context.sized(name, narrow=False).rpartition(", ")[0] or name, fontsize=7)
        for value in REFERENCE:
            axes.axvline(value, color=palette.REGION_COLOUR, linewidth=0.8, zorder=0)
        for place, pair in enumerate(pairs):
            cell = pick(numbers, pair=pair, benchmark=name)
            _ridge(axes, len(pairs) - 1 - place, cell, broken=(pair, name) in context.broken)
        axes.set_ylim(-0.35, len(pairs) - 0.05)
        axes.set_yticks(range(len(pairs)), pairs[::-1])
        axes.set_xlim(*numbers.select(low=pl.col("beta").min(), high=pl.col("beta").max()).row(0))
        axes.set_xlabel("exponent β")
        axes.tick_params(axis="y", length=0)
    keys = [
        Patch(color=palette.BASE_COLOUR, label=f"{context.labels.general.confidence:.0%} set"),
        style.key("p-value, 0 to 1 in each row", color=palette.ENVELOPE_COLOUR, linewidth=0.7),
        style.key("β = 0.8 and 1", color=palette.REGION_COLOUR, linewidth=0.8),
    ]
    style.legend(figure, keys, ncols=3)
    return figure


def _exponent_sets_finding(numbers: pl.DataFrame, context: StudyContext) -> str:
    """In how many cells which exponents are rejected; those of laws that are not tested are not."""
    found = [rows for key, rows in numbers.group_by("pair", "benchmark") if key not in context.broken]
    tested = [rows for rows in found if rows["testable"][0]]
    rejected = [rows.filter(~pl.col("inside"), pl.col("p").is_not_null())["beta"] for rows in tested]
    one = sum(((betas - 1).abs() < STEP / 2).any() for betas in rejected)
    every = sum(betas.is_empty() and not rows["empty"][0] for betas, rows in zip(rejected, tested, strict=True))
    counts = {"cells": len(tested), "empty": sum(rows["empty"][0] for rows in tested), "one": one, "every": every}
    return claims.say(claims.FITTED, counts)


def _ridge(axes: Axes, row: int, cell: pl.DataFrame, *, broken: bool) -> None:
    """The p-values as a curve above its row; the set as a bar on the row, or in words why there is none."""
    if cell.is_empty():
        return
    words = "not interpretable" if broken else _words(cell.row(0, named=True))
    betas = cell["beta"].to_list()
    if not broken and cell["testable"][0]:
        heights = [float("nan") if p is None else row + HEIGHT * p for p in cell["p"]]
        axes.plot(betas, heights, color=palette.ENVELOPE_COLOUR, linewidth=0.7, zorder=3, gid="p")
        bar: dict[str, Any] = {"where": cell["inside"].to_list(), "color": palette.BASE_COLOUR, "alpha": 0.3}
        axes.fill_between(betas, row, heights, linewidth=0, **bar)
        inside = cell["beta"].filter(cell["inside"]).to_list()
        mark: dict[str, Any] = {"linestyle": "", "marker": "s", "markersize": 2, "color": palette.BASE_COLOUR}
        axes.plot(inside, [row - 0.1] * len(inside), gid="set", **mark)
    if words:
        beside = axes.get_yaxis_transform()
        axes.text(1.02, row, words, transform=beside, ha="left", va="bottom", fontsize=7, color=palette.MUTED)


def _words(cell: Mapping[str, Any]) -> str:
    """What the bar of a row does not show: that its set is empty, or how many laws could not be tested."""
    if not cell["testable"]:
        return "not testable"
    untested = f"{cell['untested']:.0%} not tested" if cell["untested"] >= SHOWN else ""
    return ", ".join(filter(None, ("empty" if cell["empty"] else "", untested)))
