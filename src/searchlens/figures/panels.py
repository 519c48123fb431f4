"""Panels of a study: a row for each pair, a column for each benchmark, on one scale."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from searchlens.figures import style
from searchlens.figures.context import Source, StudyContext
from searchlens.frames import pick


def places(numbers: pl.DataFrame) -> tuple[list[str], list[str]]:
    """The pairs and the benchmarks, in the order of their first rows."""
    pairs, names = (numbers[column].unique(maintain_order=True).to_list() for column in ("pair", "benchmark"))
    return pairs, names


def new_figure(pairs: Sequence[str], names: Sequence[str], title: str, source: Source) -> Figure:
    """A figure with room for the panels: the more there are, the lower they get."""
    width = max(style.COLUMN, min(style.PAGE, 0.6 + 1.9 * len(names)))
    height = 1.4 + 0.75 * len(pairs) if len(pairs) > 2 else 1.1 + 1.6 * len(pairs)
    return style.new_figure(width, height, title, source)


def grid(figure: Figure, pairs: Sequence[str], names: Sequence[str]) -> Iterator[tuple[Axes, str, str]]:
    """Each panel with its pair and benchmark; the first of a row names the pair, if there are several."""
    drawn = figure.subplots(len(pairs), len(names), squeeze=False, sharex="col", sharey=True)
    for row, pair in zip(drawn, pairs, strict=True):
        for axes, name in zip(row, names, strict=True):
            yield axes, pair, name
        row[0].set_ylabel(pair if len(pairs) > 1 else "")


def name_axes(figure: Figure, names: Sequence[str], across: str, upward: str) -> None:
    """Name the axes once for all panels."""
    figure.axes[len(figure.axes) - 1 - len(names) // 2].set_xlabel(across)
    figure.supylabel(upward, fontsize=7.5)


def bands(axes: Axes, rows: pl.DataFrame, x: str, side: str) -> None:
    """The intervals ``lo`` to ``hi`` of Base and of RL, which the column ``side`` names."""
    for name, colour in style.SIDE_COLOURS.items():
        some = pick(rows, **{side: name}).drop_nulls("lo").sort(x)
        ends = (style.percent(some["lo"]), style.percent(some["hi"]))
        axes.fill_between(some[x].to_list(), *ends, color=colour, alpha=0.15, linewidth=0)


def sides(axes: Axes, rows: pl.DataFrame, x: str, side: str, linewidth: float) -> None:
    """The lines of Base and of RL, which the column ``side`` names, with their colours and markers."""
    looks: dict[str, Any] = {"palette": style.SIDE_COLOURS, "markers": style.SIDE_MARKERS}
    marks = {"markersize": 3, "markeredgewidth": 0, "dashes": False, "linewidth": linewidth}
    style.lines(axes, rows, x, "value", hue=side, style=side, **looks, **marks)


def sound(rows: pl.DataFrame, context: StudyContext) -> pl.DataFrame:
    """The rows of cells that are interpretable."""
    keys = rows.select("pair", "benchmark").iter_rows()
    return rows.filter(pl.Series([key not in context.broken for key in keys], dtype=pl.Boolean))


def not_interpretable(axes: Axes) -> None:
    """Say so in a panel."""
    axes.text(0.5, 0.5, "not\ninterpretable", transform=axes.transAxes, ha="center", va="center", fontsize=7)
