"""The headline: Base and RL curves under the RL default policy, one panel per benchmark."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from searchlens.figures import style
from searchlens.figures.style import Labels

DOTS = (0, (5, 1.5, 1, 1.5))
ACROSS, UPWARD = "samples per question", "questions solved (%)"
ROOMY = 4
"""Benchmarks whose panels have room for labels of their own."""
SOURCES = {"sampled": "sampled here", "imported": "imported", "recorded": "recorded"}


def numbers(cells: Sequence[tuple[Labels, pl.DataFrame, pl.DataFrame]]) -> pl.DataFrame:
    """One row per cell, model (``Base``, ``RL``, ``Base greedy``) and budget.

    Parameters
    ----------
    cells : sequence of (Labels, Base points, RL points)
        In the order of the panels.
    """
    return pl.concat(_curves(*cell) for cell in cells)


def _curves(labels: Labels, base: pl.DataFrame, rl: pl.DataFrame) -> pl.DataFrame:
    sources = (
        ("Base", base, labels.default_policy),
        ("RL", rl, labels.default_policy),
        ("Base greedy", base, "greedy"),
    )
    keys = {"pair": labels.pair, "benchmark": labels.benchmark, "questions": labels.questions, "source": labels.source}
    parts = []
    for model, points, policy in sources:
        rows = style.pick(points, metric=labels.metric, readout=labels.readout, policy=policy).sort("budget")
        rows = rows.head(1) if policy == "greedy" else rows
        told = [pl.lit(value).alias(key) for key, value in {**keys, "metric": labels.metric, "model": model}.items()]
        parts.append(rows.select(*told, "policy", "budget", "value", "lo", "hi"))
    return pl.concat(parts)


@style.styled()
def draw(numbers: pl.DataFrame, labels: Labels) -> Figure:
    """Draw what ``numbers`` returned: a row per pair, a column per benchmark.

    Beyond ``ROOMY`` benchmarks the panels share their axes, and say once what is the same in all of them.

    Parameters
    ----------
    numbers : DataFrame
    labels : Labels
        Only what the cells share is used: metric, default policy and level of the intervals.
    """
    pairs = numbers["pair"].unique(maintain_order=True).to_list()
    names = numbers["benchmark"].unique(maintain_order=True).to_list()
    tight = len(names) > ROOMY
    figure = _figure(pairs, names, tight, numbers, labels)
    grid = figure.subplots(len(pairs), len(names), squeeze=False, sharex=tight, sharey=tight)
    untitled = set(names)
    for row, pair in zip(grid, pairs, strict=True):
        for axes, name in zip(row, names, strict=True):
            cell = style.pick(numbers, pair=pair, benchmark=name)
            if cell.is_empty():
                axes.set_axis_off()
                continue
            _panel(axes, cell)
            if tight:
                axes.set_title("\n".join(_told(cell, name in untitled, numbers)), fontsize=7)
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
    source: style.Source = numbers["source"][0] if tight and numbers["source"].n_unique() == 1 else "sampled"
    return style.new_figure(width, height, title, source)


def _told(cell: pl.DataFrame, first: bool, numbers: pl.DataFrame) -> list[str]:
    """Above a panel: its benchmark if it is the first of its column, its source if sources differ."""
    benchmark = [cell["benchmark"][0], f"{cell['questions'][0]} questions"] if first else []
    return benchmark + ([SOURCES[cell["source"][0]]] if numbers["source"].n_unique() > 1 else [])


def _panel(axes: Axes, cell: pl.DataFrame) -> None:
    for model, colour, marker in (("Base", style.BASE_COLOUR, "s"), ("RL", style.RL_COLOUR, "o")):
        rows = style.pick(cell, model=model)
        budgets, band = rows["budget"].to_list(), (style.percent(rows["lo"]), style.percent(rows["hi"]))
        axes.fill_between(budgets, *band, color=colour, alpha=0.15, linewidth=0)
        values = style.percent(rows["value"])
        axes.plot(budgets, values, color=colour, marker=marker, markersize=3, linewidth=1.3, zorder=3, gid=model)
    for value in style.percent(style.pick(cell, model="Base greedy")["value"]):
        axes.axhline(value, color=style.BASE_COLOUR, linestyle=DOTS, zorder=2, gid="Base greedy")
    axes.set_facecolor("white" if cell["source"][0] == "sampled" else "#F4F4F4")
    style.budget_axis(axes, cell["budget"], "")


def _legend(figure: Figure, numbers: pl.DataFrame, labels: Labels) -> None:
    handles = [
        Line2D([], [], color=style.BASE_COLOUR, marker="s", markersize=3, linewidth=1.3, label=f"Base, {labels.band}"),
        Line2D([], [], color=style.RL_COLOUR, marker="o", markersize=3, linewidth=1.3, label=f"RL, {labels.band}"),
    ]
    if "Base greedy" in numbers["model"]:
        handles.append(Line2D([], [], color=style.BASE_COLOUR, linestyle=DOTS, label="Base greedy"))
    figure.legend(handles=handles, loc="outside lower center", ncols=3)
