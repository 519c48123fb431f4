"""Where the RL curve lies in what search over Base reaches, and the distance to its upper edge."""

from __future__ import annotations

from typing import Any

import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from searchlens import catalogue
from searchlens.analysis.claims import INSIDE, percent, policies, say
from searchlens.analysis.frames import by_policy, pick
from searchlens.reporting.figures import palette, style
from searchlens.reporting.figures.context import Labels, PairContext
from searchlens.search import kinds

SUPPORT = (
    *("rl", "rl_lo", "rl_hi", "envelope", "envelope_policy", "envelope_budget", "low"),
    *("rl_minus_best", "rl_minus_best_lo", "rl_minus_best_hi", "inside"),
)
GREEDY_LINE: dict[str, Any] = {"color": palette.BASE_COLOUR, "linestyle": (0, (5, 1.5, 1, 1.5)), "linewidth": 1.2}
RL_LINE: dict[str, Any] = {"color": palette.RL_COLOUR, "linewidth": 2.2, "marker": "o", "markersize": 4}
FEW = 100
"""Questions up to which an axis counts them."""
EDGE: dict[str, Any] = {"color": palette.ENVELOPE_COLOUR, "linewidth": 0.9}
BEST_SEARCH: dict[str, Any] = {**palette.family_look("search"), "markersize": 4.5, "linestyle": "none"}
ROOMY = 5
"""Largest number of budgets for which the number of a gap fits beside it; of more it stands above its interval."""


@catalogue.figure("support_region", stage="pair", per_metric=True)
def numbers(context: PairContext) -> pl.DataFrame:
    """The drawn layers: ``support``, one row per budget; the curves ``power``; ``greedy``.

    ``policies`` is the number of policies that make the region.
    """
    labels = context.labels
    region = pick(context.support, **labels.curve).sort("budget")
    region = region.select(pl.lit("support").alias("layer"), "budget", *SUPPORT)
    points = pick(context.base, **labels.curve).filter(pl.col("budget").is_in(region["budget"].to_list()))
    curves = by_policy(points.select("policy", "budget", "value"), labels.policies)
    of_power = pl.col("policy").is_in(style.power_policies(curves["policy"], labels.policies))
    layer = pl.when(of_power).then(pl.lit("power")).when(pl.col("family") == "greedy").then(pl.lit("greedy"))
    best = pl.col("envelope_policy").replace_strict(
        {name: kinds.channel(name, labels.policies) for name in region["envelope_policy"].drop_nulls()},
        default=None,
        return_dtype=pl.String,
    )
    sampled = curves.filter(pl.col("family") != "greedy")["policy"].n_unique()
    region = region.with_columns(envelope_channel=best, policies=pl.lit(sampled))
    apart = curves.select(layer.alias("layer"), "policy", "budget", "value").drop_nulls("layer")
    return pl.concat([region, apart], how="diagonal")


@style.styled()
def draw(numbers: pl.DataFrame, context: PairContext) -> Figure:
    """Draw what ``numbers`` returned."""
    labels = context.labels
    region = pick(numbers, layer="support")
    figure = style.new_figure(style.COLUMN, 3.9, labels.titled(_finding(region)), labels.source)
    axes, below = figure.subplots(2, 1, sharex=True, height_ratios=[3, 1])
    _region(axes, region)
    style.power_lines(axes, numbers, zorder=3)
    for value in style.percent(pick(numbers, layer="greedy")["value"].head(1)):  # of one sample: alike at every budget
        axes.axhline(value, **GREEDY_LINE, zorder=2, gid="greedy")
    axes.set_ylabel("questions solved (%)")
    axes.yaxis.set_major_locator(MaxNLocator(integer=True))
    if labels.questions <= FEW:
        of = labels.questions
        counts = axes.secondary_yaxis("right", functions=(lambda y: y * of / 100, lambda n: n * 100 / of))
        counts.yaxis.set_major_locator(MaxNLocator(integer=True))
        counts.set_ylabel(f"of {of} questions")
    _gaps(below, region)
    style.budget_axis(below, region["budget"])
    below.set_xlim(right=max(region["budget"]) * 2**0.75)  # room for the last number
    _legend(figure, numbers, labels)
    return figure


def _finding(region: pl.DataFrame) -> str:
    """At how many budgets RL is inside, of those at which either model solves any question, and of which pool."""
    decided = region.filter(pl.max_horizontal("rl", "envelope").fill_null(1) > 0)
    inside = decided["inside"].cast(pl.UInt32).sum()
    return say(INSIDE, {"inside": inside, "decided": decided.height, "policies": policies(region["policies"][0])})


def _region(axes: Axes, region: pl.DataFrame) -> None:
    style.band(axes, region, "budget", "low", "envelope", color=palette.REGION_COLOUR, zorder=0)
    style.band(axes, region, "budget", "rl_lo", "rl_hi", color=palette.RL_COLOUR, alpha=0.15, zorder=3.5)
    style.curve(axes, region, "budget", "rl", **RL_LINE, zorder=4, gid="rl")
    # over RL, and thinner, so that both show where they agree
    style.curve(axes, region, "budget", "envelope", **EDGE, zorder=5, gid="envelope")
    best = pick(region, envelope_channel="search")
    style.curve(axes, best, "budget", "envelope", **BEST_SEARCH, zorder=6, gid="best-search")


def _gaps(axes: Axes, region: pl.DataFrame) -> None:
    style.zero_line(axes)
    gaps = region.select("budget", *SUPPORT[7:]).drop_nulls("rl_minus_best")
    for budget, gap, low, high, inside in gaps.iter_rows():
        face = palette.RL_COLOUR if inside else "white"
        axes.plot([budget, budget], [100 * low, 100 * high], color=palette.RL_COLOUR, linewidth=1.0, zorder=2)
        axes.plot(budget, 100 * gap, marker="o", markersize=4, color=palette.RL_COLOUR, markerfacecolor=face, zorder=3)
        where: dict[str, Any] = {"xy": (budget, 100 * gap), "xytext": (6, 0), "va": "center"}
        if gaps.height > ROOMY:
            right = 3 if budget == gaps["budget"][0] else 0  # of the axis
            where = {"xy": (budget, 100 * high), "xytext": (right, 3), "va": "bottom", "ha": "center"}
        behind = {"facecolor": "white", "edgecolor": "none", "pad": 0.4}
        axes.annotate(percent(gap, sign="+"), **where, textcoords="offset points", fontsize=7, gid="gap", bbox=behind)
    axes.set_ylabel("RL \N{MINUS SIGN} edge\n(pp)")
    axes.yaxis.set_major_locator(MaxNLocator(4, integer=True))
    axes.margins(y=0.15)
    if gaps.height > ROOMY:
        low, high = axes.get_ylim()
        axes.set_ylim(low, high + 0.45 * (high - low))  # for the numbers


def _legend(figure: Figure, numbers: pl.DataFrame, labels: Labels) -> None:
    policies = numbers["policies"].drop_nulls()[0]
    region = f"{policies} Base {'policy' if policies == 1 else 'policies'}, from {labels.options.support_q:.0%} on"
    keys: list[Line2D | Patch] = [
        style.key(f"RL default, {labels.band}", **RL_LINE),
        style.key("edge: Base's best up to N", **EDGE),
        Patch(color=palette.REGION_COLOUR, label=region),
    ]
    keys += [style.key("edge: a search", **BEST_SEARCH)] if "search" in numbers["envelope_channel"] else []
    keys += style.power_keys(numbers, labels)
    keys += [style.key("Base greedy", **GREEDY_LINE)] if "greedy" in numbers["layer"] else []
    outside = {**RL_LINE, "linewidth": None, "linestyle": "none", "markerfacecolor": "white"}
    style.legend(figure, [*keys, style.key("below, hollow: outside", **outside)], ncols=2)
