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
from searchlens.claims import OVERTAKES, say
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


@catalogue.figure("crossing", stage="boptr", optional=True)
def numbers(context: FigureContext) -> pl.DataFrame:
    """The anchor's rows of ``aime_large_budget``, one per budget, with the crossing budget of their cell."""
    anchor, cell = context.plan.anchor_model, ["benchmark", "pool"]
    rows = context.frames["aime_large_budget"].filter(model=anchor).select(*cell, *CURVES)
    crossing = context.frames["crossing"].filter(model=anchor)
    crossing = crossing.rename({"lo": "crossing_lo", "hi": "crossing_hi"}).select(*cell, *SUMMARY, "reason")
    return rows.join(crossing, on=cell, how="left", maintain_order="left")


@style.styled()
def draw(numbers: pl.DataFrame, context: FigureContext) -> Figure | None:
    """Draw what ``numbers`` returned: the cells in which the interval of k* has a width; None without one."""
    wide = (pl.col("crossing_lo") < pl.col("crossing_hi")) & pl.col("reason").is_null()
    drawn = numbers.filter(wide.fill_null(value=False))
    cells = list(drawn.group_by("benchmark", "pool", maintain_order=True))
    if not cells:
        return None
    anchor, second = context.plan.anchor_model, "the best of Base up to b samples against RL"
    benchmarks = drawn["benchmark"].unique(maintain_order=True).to_list()
    first = _titled(cells[0][1], context)
    known = [_titled(rows, context) for _, rows in numbers.group_by("benchmark", "pool", maintain_order=True)]
    others = [words for words in known if words != first]
    figure = context.new_figure(
        style.PAGE, 3.2 + 0.13 * len(others), first, f"{anchor}: {second}", [anchor], benchmarks
    )
    grid = figure.add_gridspec(2, len(cells), height_ratios=[2.6, 1])
    for i, ((benchmark, pool), rows) in enumerate(cells):
        above = figure.add_subplot(grid[0, i])
        below = figure.add_subplot(grid[1, i], sharex=above)
        questions = f"{rows.drop_nulls('envelope')['questions'][0]} questions"
        above.set_title(f"{context.plan.title(str(benchmark))}, {POOLS[str(pool)]}, {questions}")
        _curves(above, rows.drop_nulls("envelope"))
        _shares(below, rows.drop_nulls("envelope"))
    parts.legend(figure, _handles(context), "\n".join(others), 2)
    return figure


def _titled(rows: pl.DataFrame, context: FigureContext) -> str:
    """What is known of k* in a cell."""
    why = parts.missing(rows["reason"])
    row = rows.row(0, named=True) if why else rows.drop_nulls("envelope").row(0, named=True)
    return f"{context.plan.title(row['benchmark'])}, {POOLS[row['pool']]}: {_verdict({**row, 'why': why})}"


def _verdict(row: Mapping[str, Any]) -> str:
    never = "" if row["never"] is None else f" ({row['never']:.0%} of draws)"
    tied = f", tie at {row['tie']}" if row["tie"] else ""
    ends = "" if row["crossing_lo"] is None else f" [{row['crossing_lo']}, {row['crossing_hi'] or 'never'}]"
    return say(OVERTAKES, {**row, "never": never, "tied": tied, "ends": ends})


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
