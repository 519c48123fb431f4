"""What differs between models: the scale alpha with the interval that data identify, the locked policy, the offset."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter

from searchlens.analysis.claims import DASH, SCALES, Row, interval, number, say
from searchlens.boptr.cohort import CohortPlan
from searchlens.boptr.fit import identified_alpha
from searchlens.boptr.rule import REASONS
from searchlens.catalogue import figure, table
from searchlens.reporting.boptr import context as shared
from searchlens.reporting.figures import palette, style
from searchlens.reporting.tables import table as fmt


@table("formula_same", stage="boptr")
def formula_same(context: shared.BoptrContext) -> fmt.Table:
    """One formula, each model's own alpha and policy."""
    frame, plan = context.frames["formula_same"], context.plan
    notes = [
        f"Fit on {plan.title(plan.anchor_benchmark)} with β of its regime and one policy for all budgets (R1 locked)."
        f" {shared.ERROR}",
        shared.PATHS_OF_ALPHA,
    ]
    lines = [_scale_line(row, plan) for row in frame.iter_rows(named=True)]
    return context.table(frame, [fmt.part(lines)], notes, frame)


def _scale_line(row: Row, plan: CohortPlan) -> fmt.Line:
    return {
        "model": shared.model_name(plan, row["model"]),
        "α_math": interval(row["alpha"], row["alpha_lo"], row["alpha_hi"]),
        "π_math (R1 locked)": fmt.word(row["policy"]),
        "N̂(b)": fmt.word(row["path"]),
        "error": number(row["error"]),
    }


@table("identification", stage="boptr")
def identification(context: shared.BoptrContext) -> fmt.Table:
    """What a fit identifies: the interval of alpha, and every triple that fits as well."""
    scales, triples, plan = context.frames["identified_scale"], context.frames["identified_set"], context.plan
    upper = [
        {
            **_scale_line(row, plan),
            "δ": interval(row["delta"], row["delta_lo"], row["delta_hi"], sign="+"),
            "boundary": number(row["boundary"]),
        }
        for row in scales.iter_rows(named=True)
    ]
    lower = [
        {
            **shared.cell_line(plan, row["model"], row["benchmark"]),
            "α̂": number(row["alpha"]),
            "β̂": number(row["beta"], 1),
            "N̂(b)": fmt.word(row["path"]),
            "error": fmt.spread(row["error"], row["se"]),
            "triples": fmt.fraction(row["triples"], row["of"]),
            "paths": fmt.word(row["paths"]),
            "policies": fmt.word(row["policies"]),
            "α from–to": _from_to(row["alpha_min"], row["alpha_max"], 2),
            "β from–to": _from_to(row["beta_min"], row["beta_max"], 1),
        }
        for row in triples.iter_rows(named=True)
    ]
    notes = [
        f"Upper block: scale at the frozen β. {shared.PATHS_OF_ALPHA} The interval of δ is the one that these intervals"
        " allow.",
        "Lower block: R1 fit of each cell, then every (α, β, π) of the grids whose error is within one bootstrap"
        " standard deviation (± after the error) of the best.",
    ]
    blocks = [
        fmt.part(upper, f"scale on {plan.title(plan.anchor_benchmark)}"),
        fmt.part(lower, "identified set of every cell, AR pool", fmt.changes(triples["model"].to_list())),
    ]
    return context.table(fmt.stacked(scale=scales, set=triples), blocks, notes, scales, triples)


def _from_to(low: float | None, high: float | None, digits: int) -> str:
    return DASH if low is None or high is None else f"{number(low, digits)}–{number(high, digits)}"


# ---- figure

COLUMNS = (
    *("model", "beta", "alpha", "alpha_lo", "alpha_hi", "delta", "delta_lo", "delta_hi"),
    *("policy", "path", "reason"),
)
FEWEST = 3
"""Models from which on their scales are compared."""
TEXT_PLACES = (0.0, 0.28, 0.59)
"""Left ends of the columns of text next to the axis, as shares of their panel."""
GROUP_COLOURS = {"upper": palette.BASE_COLOUR, "lower": "#E69F00", "new": "#228B5B"}
BAND: dict[str, Any] = {"linewidth": 5, "alpha": 0.35, "solid_capstyle": "butt"}
GROUP_MARKERS = {"upper": "o", "lower": "s", "new": "D"}


@figure("parameters", stage="boptr", optional=True)
def numbers(context: shared.BoptrContext) -> pl.DataFrame:
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
def draw(numbers: pl.DataFrame, context: shared.BoptrContext) -> Figure | None:
    """Draw what ``numbers`` returned; None with fewer than ``FEWEST`` scales, which the table says as well."""
    rows = numbers.filter(layer="model").drop_nulls("alpha")
    if rows.height < FEWEST:
        return None
    missing = numbers.filter(layer="model").filter(pl.col("alpha").is_null())
    note = "; ".join(f"{row['model']}: {REASONS[row['reason']]}" for row in missing.iter_rows(named=True))
    heights = shared.places(rows["group"].to_list(), 0.4)
    benchmark = context.plan.anchor_benchmark
    title = context.plan.title(benchmark)
    second = f"scale \N{GREEK SMALL LETTER ALPHA} fitted on {title}, and the policy that each fit keeps to"
    height = 1.4 + 0.22 * (heights[-1] + 1) + 0.13 * bool(note)
    first, models = _finding(rows), numbers.filter(layer="model")["model"].to_list()
    figure = context.new_figure(style.PAGE, height, first, second, models, [benchmark])
    axes, text_axes = figure.subplots(1, 2, sharey=True, width_ratios=[3.1, 2.7])
    limits = _limits(rows)
    for alpha in numbers.filter(layer="boundary")["alpha"]:
        if limits[0] <= alpha <= limits[1]:
            axes.axvline(alpha, color="#D5D5D5", linewidth=0.6, zorder=0, gid="boundary")
    _scales(axes, rows.with_columns(y=pl.Series(heights, dtype=pl.Float64)), limits)
    _axis(axes, rows["model"].to_list(), heights, limits)
    _columns(text_axes, rows, heights)
    shared.legend(figure, _handles(rows), note, 5)
    return figure


def _finding(rows: pl.DataFrame) -> str:
    low, high = (number(end, 1) for end in (min(rows["alpha"]), max(rows["alpha"])))
    return say(SCALES, {"models": rows.height, "low": low, "high": high, "paths": rows["path"].n_unique()})


def _limits(rows: pl.DataFrame) -> tuple[float, float]:
    ends = [rows[name].drop_nulls() for name in ("alpha", "alpha_lo", "alpha_hi")]
    values = [value for column in ends for value in column if 0 < value < float("inf")]
    return (min(values) / 1.25, max(values) * 1.25) if values else (1.0, 16.0)


def _scales(axes: Axes, rows: pl.DataFrame, limits: tuple[float, float]) -> None:
    """Marks, and as bands the scales that predict the same budgets."""
    for group, low, high, y in rows.drop_nulls("alpha_lo").select("group", "alpha_lo", "alpha_hi", "y").iter_rows():
        ends = [max(low, limits[0]), min(high, limits[1])]
        axes.plot(ends, [y, y], **BAND, color=GROUP_COLOURS[group], gid="identified")
    shared.scatter(axes, rows, "alpha", "group", palette=GROUP_COLOURS, markers=GROUP_MARKERS, s=22, zorder=3)


def _axis(axes: Axes, names: list[str], heights: list[float], limits: tuple[float, float]) -> None:
    axes.set_xscale("log", base=2)
    axes.set_xlim(*limits)
    axes.set_xticks([value for value in (0.25, 0.5, 1, 2, 3, 4, 6, 8, 12, 16) if limits[0] <= value <= limits[1]])
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.minorticks_off()
    axes.set_ylabel("")
    axes.set_xlabel("\N{GREEK SMALL LETTER ALPHA} (N(1) before rounding; logarithmic axis)")
    axes.set_yticks(heights, names)
    axes.tick_params(axis="y", length=0)
    axes.set_ylim(heights[-1] + 0.7, -0.8)


def _columns(axes: Axes, rows: pl.DataFrame, heights: list[float]) -> None:
    """Text next to the axis: path, locked policy, offset."""
    axes.set_axis_off()
    titles = ("N(b)", "locked policy", "offset \N{GREEK SMALL LETTER DELTA} (interval)")
    for x, title in zip(TEXT_PLACES, titles, strict=True):
        axes.text(x, 1.0, title, transform=axes.transAxes, va="bottom", fontsize=7, color=palette.MUTED)
    for y, row in zip(heights, rows.iter_rows(named=True), strict=True):
        for x, text in zip(TEXT_PLACES, (row["path"], row["policy"], _offset(row)), strict=True):
            axes.text(x, y, text, transform=axes.get_yaxis_transform(), va="center_baseline", fontsize=7)


def _offset(row: Mapping[str, Any]) -> str:
    if row["delta"] is None:
        return DASH
    ends = "" if row["delta_lo"] in (None, row["delta_hi"]) else f" [{row['delta_lo']:+.2f}, {row['delta_hi']:+.2f})"
    return f"{row['delta']:+.2f}{ends}".replace("-", "\N{MINUS SIGN}").replace("inf", "\N{INFINITY}")


def _handles(rows: pl.DataFrame) -> list[Line2D]:
    present = [group for group in GROUP_COLOURS if group in rows["group"]]
    look: dict[str, Any] = {"linestyle": "none", "markersize": 4.5}
    handles = [
        style.key(
            f"{g} cohort" if g != "new" else "new models", color=GROUP_COLOURS[g], marker=GROUP_MARKERS[g], **look
        )
        for g in present
    ]
    band = style.key("predicts the same budgets", color=palette.MUTED, **BAND)
    return [*handles, band, style.key("some N(b) changes", color="#D5D5D5", linewidth=0.8)]
