"""Which exponents the samples allow: the p-value of each beta, one line per pair, with the confidence sets marked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from searchlens import catalogue
from searchlens.analysis import claims
from searchlens.analysis.frames import pick
from searchlens.config.readings import ANY
from searchlens.reporting.figures import palette, style
from searchlens.reporting.figures.context import StudyContext

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
def numbers(context: StudyContext) -> pl.DataFrame:
    """One row per pair, benchmark and beta: the largest p-value of any tested law with it, and whether it is in a set.

    ``p`` is null at a beta with which no law is tested; ``untested`` is the share of all laws that are not.
    """
    rows = pick(context.readings["exponent_profiles"], policy=ANY)
    known = pick(context.readings["exponents"], policy=ANY).select("pair", "benchmark", "testable", "empty", "untested")
    joined = rows.join(known, on=["pair", "benchmark"], how="left", maintain_order="left")
    inside = (pl.col("p") >= 1 - context.labels.general.confidence).fill_null(value=False)
    return joined.select("pair", "benchmark", "beta", "p", "testable", "empty", "untested", inside=inside)


@style.styled()
def draw(numbers: pl.DataFrame, context: StudyContext) -> Figure:
    """Draw what ``numbers`` returned: a panel per benchmark, in it a line per pair."""
    pairs, names = style.places(numbers)
    across = 2 if len(names) == 4 else min(ACROSS, len(names))
    down = -(-len(names) // across)
    second = f"Exponents β of N = α b^β, N up to the pool of each policy of Base, any α{context.said_source}"
    title = f"{_finding(numbers, context)}\n{second}"
    width = style.COLUMN if across == 1 else style.PAGE
    figure = style.new_figure(width, 1.2 + down * (0.5 + 0.17 * len(pairs)), title, "sampled")
    grid = figure.subplots(down, across, squeeze=False, sharey=True)
    for axes in grid.flat[len(names) :]:
        axes.set_axis_off()
    for axes, name in zip(grid.flat, names, strict=False):
        axes.set_title(name, fontsize=7)
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


def _finding(numbers: pl.DataFrame, context: StudyContext) -> str:
    """In how many cells no power law fits, and in how many 1 is among the exponents that do."""
    found = [rows for key, rows in numbers.group_by("pair", "benchmark") if key not in context.broken]
    tested = [rows for rows in found if rows["testable"][0]]
    one = [rows.filter((pl.col("beta") - 1).abs() < STEP / 2)["inside"].any() for rows in tested]
    counts = {"cells": len(tested), "empty": sum(rows["empty"][0] for rows in tested), "one": sum(one)}
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
