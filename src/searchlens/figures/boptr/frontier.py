"""Error of a prediction against the amount of RL information that it uses."""

from __future__ import annotations

import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from searchlens import catalogue
from searchlens.figures import style
from searchlens.figures.boptr import parts
from searchlens.figures.boptr.context import FigureContext

TIERS = ("Z0-u", "Z0-N*", "B0", "Z1-u", "Z1-N*", "V2", "V3", "V1")
INFORMATION = {  # how much RL a row has seen
    **dict.fromkeys(("Z0-u", "Z0-N*"), "none"),
    **dict.fromkeys(("B0", "Z1-u", "Z1-N*"), "one anchor cell"),
    "V2": "anchor, every benchmark",
    "V3": "each model's anchor cell",
    "V1": "every cell",
}
SWEEPS = {
    "lambda": ("\N{GREEK SMALL LETTER LAMDA}", "weight \N{GREEK SMALL LETTER LAMDA} of the prior"),
    "tau": ("\N{GREEK SMALL LETTER TAU}", "tolerance \N{GREEK SMALL LETTER TAU} of N*"),
}
LOOKS = {"Z0-N*": ("#882255", "v"), "Z1-u": ("#E69F00", "s"), "Z1-N*": ("#332288", "D")}
COLUMNS = ("tier", "label", "kind", "rl", *parts.ERROR_VALUES, "cells", "of", "reason")


@catalogue.figure("frontier", stage="boptr")
def numbers(context: FigureContext) -> pl.DataFrame:
    """Rows of ``means`` on matched cells: layer ``tier``, then the sweeps ``lambda`` and ``tau`` and their settings."""
    scope = {"scope": "frontier", "column": "matched macro", "exponents": "paper", "mu": "cohort", "pool": "ar"}
    rows = context.frames["means"].filter(**scope).select(COLUMNS)
    order = pl.col("tier").replace_strict(TIERS, range(len(TIERS)), return_dtype=pl.Int64)
    main = rows.filter(pl.col("tier").is_in(TIERS)).sort(order)
    layers = [main.with_columns(pl.lit("tier").alias("layer"), information=pl.col("tier").replace_strict(INFORMATION))]
    for layer, (symbol, _) in SWEEPS.items():
        swept = rows.filter(pl.col("tier").str.contains(f" {symbol}=", literal=True))
        halves = pl.col("tier").str.split_exact(f" {symbol}=", 1)
        swept = swept.with_columns(
            pl.lit(layer).alias("layer"),
            predictor=halves.struct.field("field_0"),
            setting=halves.struct.field("field_1").cast(pl.Float64),
        )
        layers.append(swept)
    return pl.concat(layers, how="diagonal")


@style.styled()
def draw(numbers: pl.DataFrame, context: FigureContext) -> Figure:
    """Draw what ``numbers`` returned."""
    rows = parts.defined(numbers.filter(layer="tier"))
    missing = parts.absent(numbers.filter(layer="tier"), 120)
    sweeps = [layer for layer in SWEEPS if parts.defined(numbers.filter(layer=layer)).height]
    second = f"mean error over matched cells by the RL information used; {context.cohort}"
    models, benchmarks = context.plan.fitted_models, context.plan.with_role("fitted")
    levels = rows["information"].n_unique()
    height = 1.6 + 0.2 * rows.height + 0.18 * levels + 0.13 * len(missing.splitlines())
    height = max(height, 1.2 + 1.3 * len(sweeps))
    figure = context.new_figure(style.PAGE, height, parts.least(rows), second, models, benchmarks)
    grid = figure.add_gridspec(max(1, len(sweeps)), 2 if sweeps else 1, width_ratios=[2.4, 1] if sweeps else [1])
    axes = figure.add_subplot(grid[:, 0])
    heights = parts.places(rows["information"].to_list(), gap=0.9)
    parts.error_rows(axes, rows, heights)
    _levels(axes, rows, heights)
    parts.error_axis(axes, rows)
    for i, layer in enumerate(sweeps):
        _sweep(figure.add_subplot(grid[i, 1]), numbers.filter(layer=layer), layer)
    parts.legend(figure, [*parts.kind_handles(rows["kind"], context), *_sweep_handles(numbers)], missing, 3)
    return figure


def _levels(axes: Axes, rows: pl.DataFrame, heights: list[float]) -> None:
    """Name the amount of information above its rows."""
    for (level,), group in rows.with_columns(y=pl.Series(heights)).group_by("information", maintain_order=True):
        y = min(group["y"].to_list()) - 0.75
        axes.annotate(f"RL seen: {level}", (0, y), (4, 0), **parts.BESIDE, color=style.MUTED)
        axes.set_ylim(top=heights[0] - 1.3)


def _sweep(axes: Axes, rows: pl.DataFrame, layer: str) -> None:
    points = parts.defined(rows)
    for (name,), line in points.group_by("predictor", maintain_order=True):
        colour, marker = LOOKS[str(name)]
        x, y = line["setting"].to_list(), line["corrected"].to_list()
        low, high = (line[name].to_list() for name in ("lo_corrected", "hi_corrected"))
        axes.fill_between(x, low, high, color=colour, alpha=0.10, linewidth=0)
        axes.plot(x, y, color=colour, marker=marker, markersize=2.5, linewidth=0.8, gid=f"{layer}-{name}")
    if layer == "tau":
        axes.set_xscale("log")
        axes.minorticks_off()
    settings = sorted(set(points["setting"]))
    axes.set_xticks(settings, [f"{value:g}" for value in settings])
    axes.set_xlabel(SWEEPS[layer][1])
    axes.set_ylabel("error (pp)")
    axes.yaxis.set_major_locator(MaxNLocator(4, integer=True))
    axes.set_ylim(bottom=min([0.0, *points["corrected"]]))


def _sweep_handles(numbers: pl.DataFrame) -> list[Line2D]:
    swept = numbers.filter(pl.col("layer") != "tier").drop_nulls("error")
    return [
        Line2D([], [], color=colour, marker=marker, markersize=2.5, linewidth=0.8, label=f"{name} swept")
        for name, (colour, marker) in LOOKS.items()
        if name in swept["predictor"]
    ]
