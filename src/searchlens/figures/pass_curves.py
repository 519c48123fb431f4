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

    Parameters
    ----------
    numbers : DataFrame
    labels : Labels
        Only what the cells share is used: metric, default policy and level of the intervals.
    """
    pairs = numbers["pair"].unique(maintain_order=True).to_list()
    names = numbers["benchmark"].unique(maintain_order=True).to_list()
    who = pairs[0] if len(pairs) == 1 else "Base and RL"
    title = f"{who}, policy {labels.default_policy}\n{labels.measure}"
    width = min(style.PAGE, 0.6 + 1.9 * len(names))
    figure = style.new_figure(max(style.COLUMN, width), 0.75 + 1.9 * len(pairs), title, "sampled")
    grid = figure.subplots(len(pairs), len(names), squeeze=False)
    for row, pair in zip(grid, pairs, strict=True):
        for axes, name in zip(row, names, strict=True):
            cell = style.pick(numbers, pair=pair, benchmark=name)
            if cell.is_empty():
                axes.set_axis_off()
            else:
                _panel(axes, cell)
        row[0].set_ylabel("questions solved (%)" if len(pairs) == 1 else f"{pair}\nquestions solved (%)")
    _legend(figure, numbers, labels)
    return figure


def _panel(axes: Axes, cell: pl.DataFrame) -> None:
    for model, colour, marker in (("Base", style.BASE_COLOUR, "s"), ("RL", style.RL_COLOUR, "o")):
        rows = style.pick(cell, model=model)
        budgets, band = rows["budget"].to_list(), (style.percent(rows["lo"]), style.percent(rows["hi"]))
        axes.fill_between(budgets, *band, color=colour, alpha=0.15, linewidth=0)
        values = style.percent(rows["value"])
        axes.plot(budgets, values, color=colour, marker=marker, markersize=3, linewidth=1.3, zorder=3, gid=model)
    for value in style.percent(style.pick(cell, model="Base greedy")["value"]):
        axes.axhline(value, color=style.BASE_COLOUR, linestyle=DOTS, zorder=2, gid="Base greedy")
    source = cell["source"][0]
    axes.set_facecolor("white" if source == "sampled" else "#F4F4F4")
    axes.set_title(f"{cell['benchmark'][0]}\n{cell['questions'][0]} questions, {SOURCES[source]}", fontsize=7)
    style.budget_axis(axes, cell["budget"], "samples per question")


def _legend(figure: Figure, numbers: pl.DataFrame, labels: Labels) -> None:
    handles = [
        Line2D([], [], color=style.BASE_COLOUR, marker="s", markersize=3, linewidth=1.3, label=f"Base, {labels.band}"),
        Line2D([], [], color=style.RL_COLOUR, marker="o", markersize=3, linewidth=1.3, label=f"RL, {labels.band}"),
    ]
    if "Base greedy" in numbers["model"]:
        handles.append(Line2D([], [], color=style.BASE_COLOUR, linestyle=DOTS, label="Base greedy"))
    figure.legend(handles=handles, loc="outside lower center", ncols=3)
