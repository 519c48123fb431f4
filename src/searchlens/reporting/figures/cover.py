"""Cover@tau: the share of questions that a model solves in at least a share tau of its samples."""

from __future__ import annotations

import polars as pl
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator

from searchlens import catalogue
from searchlens.analysis.claims import COVERS, counted, say
from searchlens.analysis.frames import pick
from searchlens.reporting.figures import style
from searchlens.reporting.figures.context import StudyContext

DIFFERENCE = "RL - Base"


@catalogue.figure("cover", stage="study")
def numbers(context: StudyContext) -> pl.DataFrame:
    """One row per cell, side (``Base``, ``RL``, ``RL - Base``) and tau."""
    rows = pick(context.readings["measures"], measure="Cover@tau")
    return rows.select("pair", "benchmark", "side", "tau", "value", "lo", "hi").drop_nulls("value")


@style.styled()
def draw(numbers: pl.DataFrame, context: StudyContext) -> Figure:
    """Draw what ``numbers`` returned: a row per pair, a column per benchmark, all on one scale."""
    pairs, names = style.places(numbers)
    labels = context.labels
    second = f"questions solved in at least a share τ of the samples, policy {labels.general.default_policy}"
    title = f"{_finding(numbers, context)}\nCover@τ: {second}{context.said_source}"
    figure = style.new_panels(pairs, names, title, "sampled")
    for axes, pair, name in style.grid(figure, pairs, names):
        cell = pick(numbers, pair=pair, benchmark=name)
        if pair == pairs[0]:
            axes.set_title(name, fontsize=7)
        if (pair, name) in context.broken:
            style.not_interpretable(axes)
        elif cell.height:
            style.sides(axes, cell.filter(pl.col("side") != DIFFERENCE), "tau", "side", linewidth=1.2)
        axes.set_xlim(0, 1)
        axes.xaxis.set_major_locator(FixedLocator([0, 0.5, 1]))
        axes.set_ylim(0, 100)
        axes.yaxis.set_major_locator(FixedLocator([0, 50, 100]))
    style.name_axes(figure, names, "share τ of the samples", "questions (%)")
    keys = [
        style.key(f"{side}, {labels.band}", color=colour, marker=style.SIDE_MARKERS[side], markersize=3)
        for side, colour in style.SIDE_COLOURS.items()
    ]
    style.legend(figure, keys, ncols=2)
    return figure


def _finding(numbers: pl.DataFrame, context: StudyContext) -> str:
    """In how many cells either side surely covers more, at the least and at the largest tau."""
    gaps = style.sound(pick(numbers, side=DIFFERENCE), context)
    if gaps.is_empty():
        return "Cover@τ of Base and RL"
    ends = (min(gaps["tau"]), max(gaps["tau"]))
    said = [{"tau": tau, **counted(gaps.filter(tau=tau).select("lo", "hi").iter_rows())} for tau in ends]
    return f"Of {said[-1]['cells']} cells, {', '.join(say(COVERS, each) for each in said)}"
