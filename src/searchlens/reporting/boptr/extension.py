"""From where on the best of Base is never behind RL on the floor benchmarks, at all sampled budgets."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from searchlens.analysis.claims import DASH, OVERTAKES, Row, percent, say
from searchlens.boptr.cohort import CohortPlan
from searchlens.catalogue import figure, table
from searchlens.reporting.boptr import context as shared
from searchlens.reporting.figures import palette, style
from searchlens.reporting.tables import table as fmt


@table("aime_large_budget", stage="boptr")
def aime_large_budget(context: shared.BoptrContext) -> fmt.Table:
    """The Base envelope and RL at equal budgets, and the budget from which on Base is never behind."""
    frame, crossing, plan = context.frames["aime_large_budget"], context.frames["crossing"], context.plan
    read = frame.filter(pl.col("b").is_not_null())
    anchor = read.filter(model=plan.anchor_model)
    blocks = [
        fmt.part(
            [_budget_line(row) for row in rows.iter_rows(named=True)],
            f"{plan.anchor_model}, {plan.title(str(benchmark))}, {title}",
        )
        for (benchmark,), group in anchor.group_by("benchmark", maintain_order=True)
        for pool, title in shared.POOLS.items()
        if (rows := group.filter(pool=pool)).height
    ]
    differences = [
        _cell(rows.row(0, named=True), plan)
        | {
            f"b = {row['b']}": percent(row["rl_minus_best"], row["lo"], row["hi"], "+")
            for row in rows.iter_rows(named=True)
        }
        for _, rows in read.group_by("model", "benchmark", "pool", maintain_order=True)
    ]
    found = crossing.filter(pl.col("crossing").is_not_null())
    crossings = [_cell(row, plan) | _crossing_line(row, context) for row in found.iter_rows(named=True)]
    notes = [
        "Proportions in %. Envelope: the largest Base pass rate over the pool at any n ≤ b, reached by the policy"
        f" shown; RL − envelope: in percentage points. {context.single_estimates} Brackets of a difference:"
        " paired bootstrap over questions at these points. A maximum over a pool is biased upwards, and no interval"
        " here allows for that.",
        "k*: the budget from which on Base is never behind RL, up to the largest one compared. First tie: the smallest"
        " budget at which Base is at or above RL, though it may fall behind again. Shares of bootstrap draws, the"
        " envelope taken again in each; never: draws in which Base is behind at the largest budget.",
        *_without_crossing(crossing, plan),
    ]
    blocks += [
        fmt.part(differences, "RL − envelope at equal budgets, percentage points"),
        *([fmt.part(crossings, "budget from which on Base is never behind")] if crossings else []),
    ]
    others = crossing.filter(pl.col("reason").ne_missing("no_difference"))
    return context.table(fmt.stacked(curves=frame, crossing=crossing), blocks, notes, frame, others)


def _cell(row: Row, plan: CohortPlan) -> fmt.Line:
    return shared.cell_line(plan, row["model"], row["benchmark"]) | {"pool": shared.POOLS[row["pool"]]}


def _crossing_line(row: Row, context: shared.BoptrContext) -> fmt.Line:
    ends = f"{fmt.word(row['lo'])} to {row['hi'] or 'never'}"
    return {
        "k*": str(row["crossing"]),
        "draws with this k*": percent(row["share"]),
        f"k* in {context.options.confidence:.0%} of draws": DASH
        if row["median"] is None and row["lo"] is None
        else ends,
        "never": percent(row["never"]),
        "first tie": str(row["tie"]),
        "draws with this tie": percent(row["tie_share"]),
        "largest b": str(row["largest"]),
    }


def _budget_line(row: Row) -> fmt.Line:
    return {
        "b": str(row["b"]),
        "Base envelope": percent(row["envelope"], row["envelope_lo"], row["envelope_hi"]),
        "reached by": f"{row['policy']} at {row['n']}",
        "RL default policy": percent(row["rl"], row["rl_lo"], row["rl_hi"]),
        "RL − envelope": percent(row["rl_minus_best"], row["lo"], row["hi"], "+"),
        "overlap": fmt.tick(row["overlap"]),
        "draws with k* = b": percent(row["crossing_share"]),
        "draws with first tie at b": percent(row["tie_share"]),
    }


def _without_crossing(crossing: pl.DataFrame, plan: CohortPlan) -> Iterator[str]:
    """The cells that have no row among the crossings, and why."""
    behind = crossing.filter(pl.col("crossing").is_null(), pl.col("reason").is_null())
    found = {
        "Base is behind RL at the largest budget": behind,
        "both solve equally many questions at every budget": crossing.filter(reason="no_difference"),
    }
    for why, rows in found.items():
        names = [
            ", ".join(_cell(row, plan).values())
            + ("" if row["never"] is None else f" (in {percent(row['never'])}% of draws)")
            for row in rows.iter_rows(named=True)
        ]
        if names:
            yield f"No k*, since {why}: {'; '.join(names)}."


# ---- figure

CURVES = (
    *("b", "questions", "envelope", "envelope_lo", "envelope_hi", "rl", "rl_lo", "rl_hi"),
    *("crossing_share", "tie_share"),
)
SUMMARY = ("crossing", "share", "crossing_lo", "crossing_hi", "never", "tie", "largest")
LOOKS = {"rl": (palette.RL_COLOUR, "o"), "envelope": (palette.ENVELOPE_COLOUR, "s")}


@figure("crossing", stage="boptr", optional=True)
def numbers(context: shared.BoptrContext) -> pl.DataFrame:
    """The anchor's rows of ``aime_large_budget``, one per budget, with the crossing budget of their cell."""
    anchor, cell = context.plan.anchor_model, ["benchmark", "pool"]
    rows = context.frames["aime_large_budget"].filter(model=anchor).select(*cell, *CURVES)
    crossing = context.frames["crossing"].filter(model=anchor)
    crossing = crossing.rename({"lo": "crossing_lo", "hi": "crossing_hi"}).select(*cell, *SUMMARY, "reason")
    return rows.join(crossing, on=cell, how="left", maintain_order="left")


@style.styled()
def draw(numbers: pl.DataFrame, context: shared.BoptrContext) -> Figure | None:
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
        above.set_title(f"{context.plan.title(str(benchmark))}, {shared.POOL_TITLES[str(pool)]}, {questions}")
        _curves(above, rows.drop_nulls("envelope"))
        _shares(below, rows.drop_nulls("envelope"))
    shared.legend(figure, _handles(context), "\n".join(others), 2)
    return figure


def _titled(rows: pl.DataFrame, context: shared.BoptrContext) -> str:
    """What is known of k* in a cell."""
    why = shared.missing(rows["reason"])
    row = rows.row(0, named=True) if why else rows.drop_nulls("envelope").row(0, named=True)
    return f"{context.plan.title(row['benchmark'])}, {shared.POOL_TITLES[row['pool']]}: {_verdict({**row, 'why': why})}"


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
        axes.axvline(
            rows["crossing"][0], color=palette.BASE_COLOUR, linewidth=1.0, linestyle=(0, (4, 2)), gid="crossing"
        )
    if rows["tie"][0] is not None and rows["tie"][0] != rows["crossing"][0]:
        axes.axvline(rows["tie"][0], color=palette.MUTED, linewidth=0.8, linestyle=(0, (1, 2)), gid="tie")
    axes.set_ylabel("questions solved (%)")
    axes.set_ylim(bottom=0)
    axes.tick_params(labelbottom=False)


def _shares(axes: Axes, rows: pl.DataFrame) -> None:
    axes.set_ylabel("draws (%)")
    axes.set_ylim(0, 100)
    style.budget_axis(axes, rows["b"], "budget b (samples per question)")
    for budget, share in rows.select("b", "crossing_share").iter_rows():
        axes.plot(
            [budget] * 2, [0, 100 * share], color=palette.BASE_COLOUR, linewidth=5, solid_capstyle="butt", gid="share"
        )


def _handles(context: shared.BoptrContext) -> list[Line2D | Patch]:
    curve: dict[str, Any] = {"markersize": 3, "linewidth": 1.4}
    options, crossing = context.options, "k*: never behind from here on; below: share of draws with k* = b"
    bands = f"{options.confidence:.0%} {'Wilson' if options.estimator == 'first_k' else 'bootstrap'} bands"
    return [
        style.key("best of Base at any n up to b", color=palette.ENVELOPE_COLOUR, marker="s", **curve),
        style.key("RL default", color=palette.RL_COLOUR, marker="o", **curve),
        Patch(color=palette.MUTED, alpha=0.2, label=f"{bands}; none corrects for taking the best"),
        style.key(crossing, color=palette.BASE_COLOUR, linewidth=1.2, linestyle=(0, (4, 2))),
        style.key("first tie, if it is another budget", color=palette.MUTED, linewidth=0.8, linestyle=(0, (1, 2))),
    ]
