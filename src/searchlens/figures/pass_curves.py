"""The main figure: Base and RL curves under the RL default policy, one panel per benchmark."""

from __future__ import annotations

import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from searchlens import catalogue
from searchlens.figures import style
from searchlens.figures.context import Curves, Labels, Source, StudyContext
from searchlens.frames import pick

DOTS = (0, (5, 1.5, 1, 1.5))
ACROSS, UPWARD = "samples per question", "questions solved (%)"
ROOMY = 4
"""Largest number of benchmarks for which each panel has labels of its own."""
SOURCES = {"sampled": "sampled here", "imported": "imported", "recorded": "recorded"}


@catalogue.figure("pass_curves", stage="study")
def numbers(context: StudyContext) -> pl.DataFrame:
    """One row per cell, model (``Base``, ``RL``, ``Base greedy``) and budget."""
    return pl.concat(_rows(cell) for cell in context.cells)


def _rows(cell: Curves) -> pl.DataFrame:
    labels = cell.labels
    curves = (
        ("Base", cell.base, labels.default_policy),
        ("RL", cell.rl, labels.default_policy),
        ("Base greedy", cell.base, "greedy"),
    )
    names = ("pair", "benchmark", "questions", "source", "metric")
    constants = [pl.lit(getattr(labels, name)).alias(name) for name in names]
    parts = []
    for model, points, policy in curves:
        rows = pick(points, **labels.curve, policy=policy).sort("budget")
        rows = rows.head(1) if policy == "greedy" else rows
        parts.append(rows.select(*constants, pl.lit(model).alias("model"), "policy", "budget", "value", "lo", "hi"))
    return pl.concat(parts)


@style.styled()
def draw(numbers: pl.DataFrame, context: StudyContext) -> Figure:
    """Draw what ``numbers`` returned: a row per pair, a column per benchmark.

    With more than ``ROOMY`` benchmarks the panels share their axes, and what is the same in all of them is said once.
    """
    labels = context.labels
    pairs = numbers["pair"].unique(maintain_order=True).to_list()
    names = numbers["benchmark"].unique(maintain_order=True).to_list()
    tight = len(names) > ROOMY
    figure = _figure(pairs, names, tight, numbers, labels)
    grid = figure.subplots(len(pairs), len(names), squeeze=False, sharex=tight, sharey=tight)
    untitled = set(names)
    for row, pair in zip(grid, pairs, strict=True):
        for axes, name in zip(row, names, strict=True):
            cell = pick(numbers, pair=pair, benchmark=name)
            if cell.is_empty():
                axes.set_axis_off()
                continue
            _panel(axes, cell)
            _warn(axes, pair, name, context)
            if tight:
                axes.set_title("\n".join(_panel_title(cell, name in untitled, numbers)), fontsize=7)
                untitled.discard(name)
                axes.set_xlabel("samples" if pair == pairs[-1] else "")
            else:
                source = SOURCES[cell["source"][0]]
                axes.set_title(f"{name}\n{cell['questions'][0]} questions, {source}", fontsize=7)
                axes.set_xlabel(ACROSS)
        row[0].set_ylabel(UPWARD if len(pairs) == 1 else pair if tight else f"{pair}\n{UPWARD}")
    if tight and len(pairs) > 1:
        figure.supylabel(UPWARD, fontsize=7.5)
    _legend(figure, numbers, labels)
    return figure


def _figure(pairs: list[str], names: list[str], tight: bool, numbers: pl.DataFrame, labels: Labels) -> Figure:
    who = pairs[0] if len(pairs) == 1 else "Base and RL"
    title = f"{who}, policy {labels.default_policy}\n{labels.measure}"
    width = max(style.COLUMN, min(style.PAGE, 0.6 + 1.9 * len(names)))
    height = 1.4 + 0.9 * len(pairs) if tight else 0.75 + 1.9 * len(pairs)
    source: Source = numbers["source"][0] if tight and numbers["source"].n_unique() == 1 else "sampled"
    return style.new_figure(width, height, title, source)


def _panel_title(cell: pl.DataFrame, first: bool, numbers: pl.DataFrame) -> list[str]:
    """Lines above a panel: its benchmark if it is the first of its column, its source if sources differ."""
    benchmark = [cell["benchmark"][0], f"{cell['questions'][0]} questions"] if first else []
    return benchmark + ([SOURCES[cell["source"][0]]] if numbers["source"].n_unique() > 1 else [])


def _panel(axes: Axes, cell: pl.DataFrame) -> None:
    for model, colour, marker in (("Base", style.BASE_COLOUR, "s"), ("RL", style.RL_COLOUR, "o")):
        rows = pick(cell, model=model)
        budgets, band = rows["budget"].to_list(), (style.percent(rows["lo"]), style.percent(rows["hi"]))
        axes.fill_between(budgets, *band, color=colour, alpha=0.15, linewidth=0)
        values = style.percent(rows["value"])
        axes.plot(budgets, values, color=colour, marker=marker, markersize=3, linewidth=1.3, zorder=3, gid=model)
    for value in style.percent(pick(cell, model="Base greedy")["value"]):
        axes.axhline(value, color=style.BASE_COLOUR, linestyle=DOTS, zorder=2, gid="Base greedy")
    axes.set_facecolor("white" if cell["source"][0] == "sampled" else "#F4F4F4")
    style.budget_axis(axes, cell["budget"], "")


def _warn(axes: Axes, pair: str, name: str, context: StudyContext) -> None:
    if (pair, name) in context.broken:
        axes.text(0.5, 0.9, "not interpretable", transform=axes.transAxes, ha="center", va="top", color=style.RL_COLOUR)


def _legend(figure: Figure, numbers: pl.DataFrame, labels: Labels) -> None:
    handles = [
        Line2D([], [], color=style.BASE_COLOUR, marker="s", markersize=3, linewidth=1.3, label=f"Base, {labels.band}"),
        Line2D([], [], color=style.RL_COLOUR, marker="o", markersize=3, linewidth=1.3, label=f"RL, {labels.band}"),
    ]
    if "Base greedy" in numbers["model"]:
        handles.append(Line2D([], [], color=style.BASE_COLOUR, linestyle=DOTS, label="Base greedy"))
    figure.legend(handles=handles, loc="outside lower center", ncols=3)
