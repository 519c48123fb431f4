"""Which share of questions each model solves reliably (Cover@tau), and which questions RL loses and adds."""

from __future__ import annotations

from typing import Any

import polars as pl
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, MaxNLocator

from searchlens import catalogue
from searchlens.analysis.claims import CHANGED_MORE, COVERS, counted, say
from searchlens.analysis.frames import pick
from searchlens.reporting.figures import palette, style
from searchlens.reporting.figures.context import StudyContext

DIFFERENCE = "RL - Base"


@catalogue.figure("cover", stage="study")
def cover(context: StudyContext) -> pl.DataFrame:
    """One row per cell, side (``Base``, ``RL``, ``RL - Base``) and tau."""
    rows = pick(context.measures["measures"], measure="Cover@tau")
    return rows.select("pair", "benchmark", "side", "tau", "value", "lo", "hi").drop_nulls("value")


@style.styled()
def draw_cover(numbers: pl.DataFrame, context: StudyContext) -> Figure:
    """Draw what ``cover`` returned: a row per pair, a column per benchmark, all on one scale."""
    pairs, names = style.places(numbers)
    labels = context.labels
    second = f"questions solved in at least a share τ of the samples, policy {labels.general.default_policy}"
    title = f"{_cover_finding(numbers, context)}\nCover@τ: {second}{context.said_source}"
    figure = style.new_panels(pairs, names, title, "sampled")
    for axes, pair, name in style.grid(figure, pairs, names):
        cell = pick(numbers, pair=pair, benchmark=name)
        if pair == pairs[0]:
            axes.set_title(context.sized(name, narrow=len(names) > ACROSS), fontsize=7)
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


def _cover_finding(numbers: pl.DataFrame, context: StudyContext) -> str:
    """In how many cells either side surely covers more, at the least and at the largest tau."""
    gaps = style.sound(pick(numbers, side=DIFFERENCE), context)
    if gaps.is_empty():
        return "Cover@τ of Base and RL"
    ends = (min(gaps["tau"]), max(gaps["tau"]))
    said = [{"tau": tau, **counted(gaps.filter(tau=tau).select("lo", "hi").iter_rows())} for tau in ends]
    return f"Of {said[-1]['cells']} cells, {'; '.join(say(COVERS, each) for each in said)}"


# ---- lost and added

CHANGES = {"lost": ("shrunk", palette.BASE_COLOUR, "<", 0.16), "added": ("expanded", palette.RL_COLOUR, ">", -0.16)}
"""Change to its column, its colour, its marker and its place in a row."""
ACROSS = 4


@catalogue.figure("support_change", stage="study")
def support_change(context: StudyContext) -> pl.DataFrame:
    """One row per cell and change: ``questions`` that RL loses or adds, and ``chance``, as many as two equal models."""
    rows = context.measures["support"]
    parts = []
    for change, (name, *_) in CHANGES.items():
        names = {"value": name, "lo": f"{name}_lo", "hi": f"{name}_hi", "chance": f"{name}_null"}
        names |= {"significant": f"{name}_significant", "net": "nscr", "net_lo": "nscr_lo", "net_hi": "nscr_hi"}
        keys = ("pair", "benchmark", "kept", "out", "base_samples", "rl_samples")
        parts.append(rows.select(*keys, pl.lit(change).alias("change"), **names))
    return pl.concat(parts)


@style.styled()
def draw_support_change(numbers: pl.DataFrame, context: StudyContext) -> Figure:
    """Draw what ``support_change`` returned: a panel per benchmark, in it a row per pair."""
    pairs, names = style.places(numbers)
    across = min(ACROSS, len(names))
    down = -(-len(names) // across)
    policy = context.labels.general.default_policy
    second = f"Questions that only one side solves at all under {policy}{context.said_source}"
    width = max(style.COLUMN, min(style.PAGE, 1.2 + 1.5 * across))
    height = 1.0 + down * (0.67 + 0.22 * len(pairs))
    figure = style.new_figure(width, height, f"{_support_change_finding(numbers, context)}\n{second}", "sampled")
    drawn = figure.subplots(down, across, squeeze=False, sharey=True)
    for axes in drawn.flat[len(names) :]:
        axes.set_axis_off()
    for axes, name in zip(drawn.flat, names, strict=False):
        _panel(axes, pick(numbers, benchmark=name), pairs, context)
        axes.set_title(context.sized(name, narrow=False), fontsize=7)
        axes.set_yticks(range(len(pairs)), pairs)
        axes.set_ylim(len(pairs) - 0.5, -0.5)
        axes.set_xlabel("questions")
    dot: dict[str, Any] = {"markersize": 4.5, "markeredgewidth": 0, "linewidth": 1.0}
    words = {"lost": f"lost by RL, {context.labels.general.confidence:.0%} interval", "added": "added by RL"}
    looks = CHANGES.items()
    keys = [style.key(words[name], color=colour, marker=marker, **dot) for name, (_, colour, marker, _) in looks]
    keys.append(style.key("by chance, were both equal", color=palette.MUTED, marker="|", linestyle="none"))
    style.legend(figure, keys, ncols=3)
    return figure


def _support_change_finding(numbers: pl.DataFrame, context: StudyContext) -> str:
    """In how many cells RL loses more than it adds, or less, by the interval of the net change."""
    rows = style.sound(pick(numbers, change="lost"), context)
    return say(CHANGED_MORE, counted(rows.select("net_lo", "net_hi").iter_rows()))


def _panel(axes: Axes, cells: pl.DataFrame, pairs: list[str], context: StudyContext) -> None:
    place = pl.col("pair").replace_strict(pairs, range(len(pairs)), return_dtype=pl.Float64)
    shift = pl.col("change").replace_strict(list(CHANGES), [-spec[3] for spec in CHANGES.values()])
    broken = [pair for pair, name in context.broken if name == cells["benchmark"][0]]
    shown = cells.with_columns(y=place + shift).filter(~pl.col("pair").is_in(broken))
    for y in {int(row) for row in range(len(pairs)) if pairs[row] in broken}:
        centre: dict[str, Any] = {"transform": axes.get_yaxis_transform(), "ha": "center", "va": "center"}
        axes.text(0.5, y, "not interpretable", fontsize=7, **centre)
    for change, (_, colour, _, _) in CHANGES.items():
        rows = pick(shown, change=change)
        axes.hlines(rows["y"].to_list(), rows["lo"].to_list(), rows["hi"].to_list(), color=colour, linewidth=1.0)
        by_chance: dict[str, Any] = {"color": palette.MUTED, "marker": "|", "linestyle": "none", "markersize": 5}
        axes.plot(rows["chance"].to_list(), rows["y"].to_list(), **by_chance, zorder=2, gid=f"chance-{change}")
    colours, markers = ({name: spec[i] for name, spec in CHANGES.items()} for i in (1, 2))
    looks: dict[str, Any] = {"palette": colours, "markers": markers, "s": 20, "linewidth": 0, "zorder": 3}
    if shown.height:
        looks |= {"x": "value", "y": "y", "hue": "change", "style": "change"}
        sns.scatterplot(style.to_pandas(shown), **looks, legend=False, ax=axes)
    axes.set_ylabel("")
    axes.set_xlim(left=min(0, axes.get_xlim()[0]))
    axes.xaxis.set_major_locator(MaxNLocator(4, integer=True))
    axes.grid(axis="x", color=palette.REGION_COLOUR, linewidth=0.5)
    axes.set_axisbelow(True)
    axes.tick_params(axis="y", length=0)
