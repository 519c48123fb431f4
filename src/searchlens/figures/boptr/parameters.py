"""What differs between models: the scale alpha with the interval that data identify, the locked policy, the offset."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter

from searchlens import catalogue
from searchlens.boptr.fit import identified_alpha
from searchlens.figures import style
from searchlens.figures.boptr import parts
from searchlens.figures.boptr.context import FigureContext

COLUMNS = (
    "model",
    "beta",
    "alpha",
    "alpha_lo",
    "alpha_hi",
    "delta",
    "delta_lo",
    "delta_hi",
    "policy",
    "path",
    "reason",
)
TEXT_PLACES = (0.0, 0.28, 0.59)
"""Left ends of the columns of text next to the axis, as shares of their panel."""
GROUP_COLOURS = {"upper": style.BASE_COLOUR, "lower": "#E69F00", "new": "#228B5B"}
GROUP_MARKERS = {"upper": "o", "lower": "s", "new": "D"}


@catalogue.figure("parameters", stage="boptr")
def numbers(context: FigureContext) -> pl.DataFrame:
    """Rows of ``identified_scale`` (layer ``model``), then where rounding changes a path (layer ``boundary``)."""
    groups = {name: model.group for name, model in context.plan.models.items()}
    rows = context.frames["identified_scale"].select(
        pl.lit("model").alias("layer"), pl.col("model").replace_strict(groups).alias("group"), *COLUMNS
    )
    identified = rows.drop_nulls(["alpha_lo", "beta"])
    edges = boundaries(identified["beta"][0], len(context.plan.budgets)) if identified.height else []
    layer = pl.DataFrame(
        {"layer": ["boundary"] * len(edges), "alpha": edges}, {"layer": pl.String, "alpha": pl.Float64}
    )
    return pl.concat([rows, layer], how="diagonal")


def boundaries(beta: float, levels: int) -> list[float]:
    """Every alpha at which some N(b) changes, increasing.

    >>> boundaries(1.0, 2)
    [0.7071067811865476, 1.4142135623730951]
    """
    edges: list[float] = []
    _, high = identified_alpha(2.0**-levels, beta, levels)
    while high < float("inf"):
        edges.append(high)
        _, high = identified_alpha(high, beta, levels)
    return edges


@style.styled()
def draw(numbers: pl.DataFrame, context: FigureContext) -> Figure:
    """Draw what ``numbers`` returned."""
    rows = numbers.filter(layer="model")
    heights = parts.places(rows["group"].to_list(), 0.4)
    benchmark = context.plan.anchor_benchmark
    title = context.plan.title(benchmark)
    second = f"scale \N{GREEK SMALL LETTER ALPHA} fitted on {title}, policy that each fit keeps to"
    single = len(context.plan.fitted_models) == 1
    height = 1.55 + 0.22 * (heights[-1] + 1) + 0.15 * single
    figure = context.new_figure(style.PAGE, height, _names(context), second, rows["model"].to_list(), [benchmark])
    axes, text_axes = figure.subplots(1, 2, sharey=True, width_ratios=[3.1, 2.7])
    limits = _limits(rows)
    _edges(axes, numbers.filter(layer="boundary")["alpha"].to_list(), limits)
    for y, row in zip(heights, rows.iter_rows(named=True), strict=True):
        _row(axes, y, row, limits)
    _axis(axes, rows["model"].to_list(), heights, limits)
    _columns(text_axes, rows, heights)
    if single:
        axes.annotate(
            parts.reason("one_model"),
            (0, 0),
            (0, -30),
            "axes fraction",
            textcoords="offset points",
            va="top",
            color=style.MUTED,
        )
    figure.legend(handles=_handles(rows), loc="outside lower center", ncols=5)
    return figure


def _names(context: FigureContext) -> str:
    count = len(context.plan.models)
    return f"{count} models" if count > 1 else context.plan.anchor_model


def _limits(rows: pl.DataFrame) -> tuple[float, float]:
    ends = [rows[name].drop_nulls() for name in ("alpha", "alpha_lo", "alpha_hi")]
    values = [value for column in ends for value in column if 0 < value < float("inf")]
    return (min(values) / 1.25, max(values) * 1.25) if values else (1.0, 16.0)


def _edges(axes: Axes, edges: list[float], limits: tuple[float, float]) -> None:
    for alpha in edges:
        if limits[0] <= alpha <= limits[1]:
            axes.axvline(alpha, color="#D5D5D5", linewidth=0.6, zorder=0, gid="boundary")


def _row(axes: Axes, y: float, row: Mapping[str, Any], limits: tuple[float, float]) -> None:
    if row["alpha"] is None:
        text = parts.undefined(row["reason"], 80)
        axes.annotate(text, (limits[0], y), (4, 0), **parts.BESIDE, color=style.MUTED)
        return
    group = str(row["group"])
    if row["alpha_lo"] is not None:
        low, high = float(row["alpha_lo"]), float(row["alpha_hi"])
        ends = [max(low, limits[0]), min(high, limits[1])]
        axes.plot(
            ends, [y, y], color=GROUP_COLOURS[group], linewidth=5, alpha=0.35, solid_capstyle="butt", gid="identified"
        )
    axes.plot(
        row["alpha"], y, marker=GROUP_MARKERS[group], color=GROUP_COLOURS[group], markersize=4.5, gid=str(row["model"])
    )


def _axis(axes: Axes, names: list[str], heights: list[float], limits: tuple[float, float]) -> None:
    axes.set_xscale("log", base=2)
    axes.set_xlim(*limits)
    ticks = [value for value in (0.25, 0.5, 1, 2, 3, 4, 6, 8, 12, 16) if limits[0] <= value <= limits[1]]
    axes.set_xticks(ticks)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.minorticks_off()
    axes.set_xlabel("\N{GREEK SMALL LETTER ALPHA} (N(1) before rounding; logarithmic axis)")
    axes.set_yticks(heights, names)
    axes.tick_params(axis="y", length=0)
    axes.set_ylim(heights[-1] + 0.7, -0.8)


def _columns(axes: Axes, rows: pl.DataFrame, heights: list[float]) -> None:
    """Text next to the axis: path, locked policy, offset."""
    axes.set_axis_off()
    titles = ("N(b)", "locked policy", "offset \N{GREEK SMALL LETTER DELTA} (interval)")
    for x, title in zip(TEXT_PLACES, titles, strict=True):
        axes.text(x, 1.0, title, transform=axes.transAxes, va="bottom", fontsize=7, color=style.MUTED)
    for y, row in zip(heights, rows.iter_rows(named=True), strict=True):
        if row["alpha"] is None:
            continue
        for x, text in zip(TEXT_PLACES, (row["path"], row["policy"], _offset(row)), strict=True):
            axes.text(x, y, text, transform=axes.get_yaxis_transform(), va="center_baseline", fontsize=7)


def _offset(row: Mapping[str, Any]) -> str:
    if row["delta"] is None:
        return parts.DASH
    ends = "" if row["delta_lo"] in (None, row["delta_hi"]) else f" [{row['delta_lo']:+.2f}, {row['delta_hi']:+.2f})"
    return f"{row['delta']:+.2f}{ends}".replace("-", "\N{MINUS SIGN}").replace("inf", "\N{INFINITY}")


def _handles(rows: pl.DataFrame) -> list[Line2D]:
    present = [group for group in GROUP_COLOURS if group in rows["group"]]
    look: dict[str, Any] = {"linestyle": "none", "markersize": 4.5}
    handles = [
        Line2D(
            [],
            [],
            color=GROUP_COLOURS[g],
            marker=GROUP_MARKERS[g],
            label=f"{g} cohort" if g != "new" else "new models",
            **look,
        )
        for g in present
    ]
    band = Line2D([], [], color=style.MUTED, linewidth=5, alpha=0.35, label="predicts the same budgets")
    return [*handles, band, Line2D([], [], color="#D5D5D5", linewidth=0.8, label="some N(b) changes")]
