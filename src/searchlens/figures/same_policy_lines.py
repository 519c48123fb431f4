"""Base minus RL at the same policy and budget, one line per policy."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from searchlens import catalogue
from searchlens.figures import style
from searchlens.figures.context import Labels, PairContext
from searchlens.frames import by_policy, pick

COUNTS = (
    *("ahead", "policies", "both_zero"),
    *("ahead_without_default", "policies_without_default", "both_zero_without_default"),
)
NOTHING_SHARED = "no policy was sampled from both models"
LANE = 0.12  # of one doubling of the budget, between the families at the right end


@catalogue.figure("same_policy_lines", stage="pair", per_metric=True)
def numbers(context: PairContext) -> pl.DataFrame:
    """One row per policy and budget; the counts of a budget are repeated on each of its rows."""
    labels = context.labels
    columns = ("policy", "budget", "base", "rl", "gap", "lo", "hi")
    gaps = pick(context.same_policy, **labels.curve).select(columns)
    counts = pick(context.counts, **labels.curve).select("budget", *COUNTS)
    return by_policy(gaps.join(counts, on="budget", how="left"), labels.policies)


@style.styled()
def draw(numbers: pl.DataFrame, context: PairContext) -> Figure:
    """Draw what ``numbers`` returned."""
    labels = context.labels
    figure = style.new_figure(style.COLUMN, 3.6, labels.title, labels.source)
    if numbers.is_empty():
        style.say(figure.subplots(), NOTHING_SHARED)
        return figure
    strip, axes = figure.subplots(2, 1, sharex=True, height_ratios=[0.11, 1])
    _lines(axes, numbers, labels)
    style.zero_line(axes)
    style.budget_axis(axes, numbers["budget"])
    _ends(axes, numbers, labels)
    axes.set_ylabel("Base \N{MINUS SIGN} RL (percentage points)")
    _count_strip(strip, numbers)
    _legend(figure, numbers, labels)
    return figure


def _lines(axes: Axes, numbers: pl.DataFrame, labels: Labels) -> None:
    colours = style.shades(numbers["policy"].unique().to_list(), labels.policies)
    for (name,), rows in numbers.group_by("policy", maintain_order=True):
        budgets, gaps = rows["budget"].to_list(), style.percent(rows["gap"])
        if name == labels.default_policy:
            band = (style.percent(rows["lo"]), style.percent(rows["hi"]))
            axes.fill_between(budgets, *band, color=style.RL_COLOUR, alpha=0.13, linewidth=0, zorder=1)
            axes.plot(
                budgets, gaps, color=style.RL_COLOUR, linestyle=(0, (4, 1.5)), linewidth=1.6, zorder=4, gid=str(name)
            )
        else:
            axes.plot(budgets, gaps, color=colours[str(name)], linewidth=0.9, zorder=3, gid=str(name))


def _ends(axes: Axes, numbers: pl.DataFrame, labels: Labels) -> None:
    """Repeat where each line ends, a column per family, since the lines themselves end close together."""
    colours = style.shades(numbers["policy"].unique().to_list(), labels.policies)
    last = int(max(numbers["budget"]))
    ends = pick(numbers, budget=last).filter(pl.col("policy") != labels.default_policy)
    kinds = ends["family"].unique(maintain_order=True).to_list()
    for name, kind, gap in ends.select("policy", "family", "gap").iter_rows():
        look = {**style.family_look(kind), "color": colours[name], "markersize": 3, "markeredgewidth": 0}
        axes.plot(last * 2 ** (LANE * (1 + kinds.index(kind))), 100 * gap, **look, zorder=3)
    axes.set_xlim(right=last * 2 ** (LANE * (1.5 + len(kinds))))


def _count_strip(axes: Axes, numbers: pl.DataFrame) -> None:
    axes.set_axis_off()
    axes.set_title(
        "policies with Base \N{GREATER-THAN OR EQUAL TO} RL: all, and without the RL default",
        color=style.MUTED,
        fontsize=7,
    )
    for budget, *ahead in tallies(numbers):
        axes.text(budget, 0.5, "\n".join(ahead), ha="center", va="center", fontsize=7)


def tallies(numbers: pl.DataFrame) -> Iterator[tuple[int, str, str]]:
    """Budget, policies with Base ahead of those under which either solves any question, and without the default."""
    counts = numbers.select("budget", *COUNTS).unique(maintain_order=True).sort("budget")
    for budget, ahead, of, zero, ahead_rest, of_rest, zero_rest in counts.iter_rows():
        yield budget, f"{ahead - zero}/{of - zero}", f"{ahead_rest - zero_rest}/{of_rest - zero_rest}"


def _legend(figure: Figure, numbers: pl.DataFrame, labels: Labels) -> None:
    others = numbers.filter(pl.col("policy") != labels.default_policy)
    names = style.family_names(style.families(others))
    handles = [Line2D([], [], **style.family_look(kind), markersize=3, label=name) for kind, name in names.items()]
    dashed = Line2D(
        [], [], color=style.RL_COLOUR, linestyle=(0, (4, 1.5)), linewidth=1.6, label=f"RL default, {labels.band}"
    )
    title = "lighter: lower temperature within the family"
    figure.legend(handles=[*handles, dashed], loc="outside lower center", ncols=3, title=title, title_fontsize=7)
