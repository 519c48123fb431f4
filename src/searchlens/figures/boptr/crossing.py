"""From where on the best of Base is never behind RL on the floor benchmarks, at all sampled budgets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from searchlens import catalogue
from searchlens.figures import style
from searchlens.figures.boptr import parts
from searchlens.figures.boptr.context import FigureContext
from searchlens.figures.boptr.horizontal import POOLS

CURVES = (
    "b",
    "questions",
    "envelope",
    "envelope_lo",
    "envelope_hi",
    "rl",
    "rl_lo",
    "rl_hi",
    "crossing_share",
    "tie_share",
)
SUMMARY = ("crossing", "share", "crossing_lo", "crossing_hi", "never", "tie", "largest")
LOOKS = {"rl": (style.RL_COLOUR, "o"), "envelope": (style.ENVELOPE_COLOUR, "s")}


@catalogue.figure("crossing", stage="boptr")
def numbers(context: FigureContext) -> pl.DataFrame:
    """The anchor's rows of ``aime_large_budget``, one per budget, with the crossing budget of their cell."""
    anchor, cell = context.plan.anchor_model, ["benchmark", "pool"]
    rows = context.frames["aime_large_budget"].filter(model=anchor).select(*cell, *CURVES)
    crossing = context.frames["crossing"].filter(model=anchor)
    crossing = crossing.rename({"lo": "crossing_lo", "hi": "crossing_hi"}).select(*cell, *SUMMARY, "reason")
    return rows.join(crossing, on=cell, how="left", maintain_order="left")


@style.styled()
def draw(numbers: pl.DataFrame, context: FigureContext) -> Figure:
    """Draw what ``numbers`` returned."""
    cells = list(numbers.group_by("benchmark", "pool", maintain_order=True))
    anchor, second = context.plan.anchor_model, "the best of Base up to b samples against RL"
    if not cells:
        figure = context.new_figure(style.COLUMN, 1.5, anchor, second, [], [])
        style.say(figure.subplots(), "no benchmark of this cohort is assigned to the floor regime")
        return figure
    bands = (len(cells) + 1) // 2
    benchmarks = numbers["benchmark"].unique(maintain_order=True).to_list()
    figure = context.new_figure(style.PAGE, 0.9 + 2.9 * bands, anchor, second, [anchor], benchmarks)
    grid = figure.add_gridspec(2 * bands, 2, height_ratios=[2.6, 1] * bands)
    for i, ((benchmark, pool), rows) in enumerate(cells):
        above = figure.add_subplot(grid[2 * (i // 2), i % 2])
        title = f"{context.plan.title(str(benchmark))}, {POOLS[str(pool)]}"
        points = rows.drop_nulls("envelope")
        if rows["reason"].is_not_null().any():
            above.set_title(title)
            style.say(above, f"not drawn: {parts.missing(rows['reason'])}", 40)
            continue
        below = figure.add_subplot(grid[2 * (i // 2) + 1, i % 2], sharex=above)
        above.set_title(f"{title} ({points['questions'][0]} questions)\n{_verdict(points.row(0, named=True))}")
        _curves(above, points)
        _shares(below, points)
    figure.legend(handles=_handles(context), loc="outside lower center", ncols=2)
    return figure


def _verdict(row: Mapping[str, Any]) -> str:
    if row["crossing"] is None:
        tie = f", tie at {row['tie']}" if row["tie"] else ""
        return f"no k*: behind at b = {row['largest']} ({row['never']:.0%} of draws){tie}"
    return f"never behind from k* = {row['crossing']} ({row['share']:.0%} of draws), tie at {row['tie']}"


def _curves(axes: Axes, rows: pl.DataFrame) -> None:
    budgets = rows["b"].to_list()
    for name, (colour, marker) in LOOKS.items():
        low, high = style.percent(rows[f"{name}_lo"]), style.percent(rows[f"{name}_hi"])
        axes.fill_between(budgets, low, high, color=colour, alpha=0.13, linewidth=0)
        axes.plot(
            budgets, style.percent(rows[name]), color=colour, marker=marker, markersize=3, linewidth=1.4, gid=name
        )
    if rows["crossing"][0] is not None:
        axes.axvline(rows["crossing"][0], color=style.BASE_COLOUR, linewidth=1.0, linestyle=(0, (4, 2)), gid="crossing")
    if rows["tie"][0] is not None and rows["tie"][0] != rows["crossing"][0]:
        axes.axvline(rows["tie"][0], color=style.MUTED, linewidth=0.8, linestyle=(0, (1, 2)), gid="tie")
    axes.set_ylabel("questions solved (%)")
    axes.set_ylim(bottom=0)
    axes.tick_params(labelbottom=False)


def _shares(axes: Axes, rows: pl.DataFrame) -> None:
    axes.set_ylabel("draws (%)")
    axes.set_ylim(0, 100)
    style.budget_axis(axes, rows["b"], "budget b (samples per question)")
    for budget, share in rows.select("b", "crossing_share").iter_rows():
        axes.plot(
            [budget] * 2, [0, 100 * share], color=style.BASE_COLOUR, linewidth=5, solid_capstyle="butt", gid="share"
        )


def _handles(context: FigureContext) -> list[Line2D | Patch]:
    return [
        Line2D(
            [],
            [],
            color=style.ENVELOPE_COLOUR,
            marker="s",
            markersize=3,
            linewidth=1.4,
            label="best of Base at any n up to b",
        ),
        Line2D([], [], color=style.RL_COLOUR, marker="o", markersize=3, linewidth=1.4, label="RL default"),
        Patch(
            color=style.MUTED,
            alpha=0.2,
            label=f"{context.bands}; none corrects for taking the best",
        ),
        Line2D(
            [],
            [],
            color=style.BASE_COLOUR,
            linewidth=1.2,
            linestyle=(0, (4, 2)),
            label="k*: never behind from here on; below: share of draws with k* = b",
        ),
        Line2D(
            [], [], color=style.MUTED, linewidth=0.8, linestyle=(0, (1, 2)), label="first tie, if it is another budget"
        ),
    ]
