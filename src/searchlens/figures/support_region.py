"""Where the RL curve lies in what search over Base reaches, and the distance to its upper edge."""

from __future__ import annotations

from typing import Any

import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from searchlens import catalogue
from searchlens.figures import power, style
from searchlens.figures.context import Labels, PairContext
from searchlens.frames import by_policy, pick
from searchlens.policies import kinds

SUPPORT = (
    "rl",
    "rl_lo",
    "rl_hi",
    "envelope",
    "envelope_policy",
    "envelope_budget",
    "low",
    "gap",
    "gap_lo",
    "gap_hi",
    "inside",
)
GREEDY_LINE: dict[str, Any] = {"color": style.BASE_COLOUR, "linestyle": (0, (5, 1.5, 1, 1.5)), "linewidth": 1.2}
CURVES: dict[str, dict[str, Any]] = {
    "base": {"color": style.CURVE_COLOUR, "linewidth": 0.5},
    "search": {"color": style.CURVE_COLOUR, "linewidth": 0.8, "linestyle": (0, (1.5, 1))},
    "power": power.LINE,
}
BEST_SEARCH: dict[str, Any] = {**style.family_look("search"), "markersize": 4.5, "linestyle": "none"}


@catalogue.figure("support_region", stage="pair", per_metric=True)
def numbers(context: PairContext) -> pl.DataFrame:
    """The drawn layers: ``support``, one row per budget; curves ``base`` (AR), ``search`` and ``power``; ``greedy``."""
    labels = context.labels
    region = pick(context.support, **labels.curve).sort("budget")
    region = region.select(pl.lit("support").alias("layer"), "budget", *SUPPORT)
    points = pick(context.base, **labels.curve).filter(pl.col("budget").is_in(region["budget"].to_list()))
    curves = by_policy(points.select("policy", "budget", "value"), labels.policies)
    family, of_power = pl.col("family"), pl.col("policy").is_in(power.policies(curves["policy"], labels.policies))
    layer = (
        pl.when(of_power)
        .then(pl.lit("power"))
        .when(family.is_in(["greedy", "search"]))
        .then(family)
        .otherwise(pl.lit("base"))
    )
    best = pl.col("envelope_policy").replace_strict(
        {name: kinds.channel(name, labels.policies) for name in region["envelope_policy"].drop_nulls()},
        default=None,
        return_dtype=pl.String,
    )
    region = region.with_columns(envelope_channel=best)
    return pl.concat([region, curves.select(layer.alias("layer"), "policy", "budget", "value")], how="diagonal")


@style.styled()
def draw(numbers: pl.DataFrame, context: PairContext) -> Figure:
    """Draw what ``numbers`` returned."""
    labels = context.labels
    if numbers.is_empty():
        return style.no_readouts(labels)
    region = pick(numbers, layer="support")
    figure = style.new_figure(style.COLUMN, 4.1, labels.title, labels.source)
    axes, below = figure.subplots(2, 1, sharex=True, height_ratios=[3, 1])
    _region(axes, region)
    _curves(axes, numbers)
    axes.set_ylabel("questions solved (%)")
    _gaps(below, region)
    style.budget_axis(below, region["budget"])
    below.set_title(_inside(region, numbers), color=style.MUTED, fontsize=7)
    _legend(figure, numbers, labels)
    return figure


def _inside(region: pl.DataFrame, numbers: pl.DataFrame) -> str:
    """At how many budgets RL is inside, of those at which either model solves any question, and of which pool."""
    decided = region.filter(pl.max_horizontal("rl", "envelope").fill_null(1) > 0)
    policies = numbers.filter(pl.col("layer").is_in(list(CURVES)))["policy"].n_unique()
    inside = decided["inside"].cast(pl.UInt32).sum()
    return f"inside the region of {policies} policies at {inside} of {decided.height} budgets (filled)"


def _region(axes: Axes, region: pl.DataFrame) -> None:
    budgets = region["budget"].to_list()
    low, top = style.percent(region["low"]), style.percent(region["envelope"])
    axes.fill_between(budgets, low, top, color=style.REGION_COLOUR, linewidth=0, zorder=0)
    axes.plot(budgets, top, color=style.ENVELOPE_COLOUR, linewidth=1.2, zorder=3, gid="envelope")
    best = pick(region, envelope_channel="search")
    axes.plot(best["budget"].to_list(), style.percent(best["envelope"]), **BEST_SEARCH, zorder=6, gid="best-search")
    band = (style.percent(region["rl_lo"]), style.percent(region["rl_hi"]))
    axes.fill_between(budgets, *band, color=style.RL_COLOUR, alpha=0.15, linewidth=0, zorder=3.5)
    axes.plot(
        budgets,
        style.percent(region["rl"]),
        color=style.RL_COLOUR,
        linewidth=1.6,
        marker="o",
        markersize=3,
        zorder=5,
        gid="rl",
    )


def _curves(axes: Axes, numbers: pl.DataFrame) -> None:
    curves = numbers.filter(pl.col("layer").is_in(list(CURVES)))
    for (layer, name), rows in curves.group_by("layer", "policy", maintain_order=True):
        look = CURVES[str(layer)]
        axes.plot(rows["budget"].to_list(), style.percent(rows["value"]), **look, zorder=1, gid=str(name))
    greedy = pick(numbers, layer="greedy").head(1)  # it has one sample, so its value is the same at every budget
    for value in style.percent(greedy["value"]):
        axes.axhline(value, **GREEDY_LINE, zorder=2, gid="greedy")


def _gaps(axes: Axes, region: pl.DataFrame) -> None:
    style.zero_line(axes)
    gaps = region.select("budget", "gap", "gap_lo", "gap_hi", "inside").drop_nulls("gap")
    for budget, gap, low, high, inside in gaps.iter_rows():
        face = style.RL_COLOUR if inside else "white"
        axes.plot([budget, budget], [100 * low, 100 * high], color=style.RL_COLOUR, linewidth=1.0, zorder=2)
        axes.plot(budget, 100 * gap, marker="o", markersize=4, color=style.RL_COLOUR, markerfacecolor=face, zorder=3)
        place = axes.get_xaxis_transform()
        axes.text(budget, 0.99, style.signed(gap), transform=place, ha="center", va="top", fontsize=7, gid="gap")
    axes.set_ylabel("RL \N{MINUS SIGN} edge\n(pp)")
    low, high = axes.get_ylim()
    axes.set_ylim(low, high + 0.3 * (high - low))  # room for the numbers, in a row above all marks


def _legend(figure: Figure, numbers: pl.DataFrame, labels: Labels) -> None:
    layers = set(numbers["layer"])
    searched = bool(layers & {"search", "power"})
    handles: list[Line2D | Patch] = [
        Line2D(
            [], [], color=style.RL_COLOUR, linewidth=1.6, marker="o", markersize=3, label=f"RL default, {labels.band}"
        ),
        Line2D([], [], color=style.ENVELOPE_COLOUR, linewidth=1.2, label="upper edge: best up to N"),
        Patch(color=style.REGION_COLOUR, label=f"Base region, from its {labels.quantile:.0%} quantile"),
        Line2D([], [], **CURVES["base"], label="each AR policy" if searched else "each Base policy"),
    ]
    if searched:
        handles.append(Line2D([], [], **BEST_SEARCH, label="edge: a search"))
    if "search" in layers:
        handles.append(Line2D([], [], **CURVES["search"], label="each other search"))
    if "power" in layers:
        samplers = pick(numbers, layer="power")["policy"]
        handles.append(Line2D([], [], **CURVES["power"], label=power.label(samplers, labels.policies)))
    if "greedy" in layers:
        handles.append(Line2D([], [], **GREEDY_LINE, label="Base greedy"))
    figure.legend(handles=handles, loc="outside lower center", ncols=2)
