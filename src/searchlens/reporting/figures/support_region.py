"""What search over Base reaches: by samples, with RL's distance to its upper edge, and by tokens and operations."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import EngFormatter, LogLocator, MaxNLocator, NullFormatter

from searchlens import catalogue
from searchlens.analysis.claims import AT_COST, INSIDE, percent, say
from searchlens.analysis.frames import by_policy, pick
from searchlens.errors import counted
from searchlens.reporting.figures import palette, style
from searchlens.reporting.figures.context import Labels, PairContext
from searchlens.search import kinds

# ---- by cost

AXES = {"samples": "samples", "tokens": "generated tokens", "flops": "FLOPs"}
TOKENS = {"x": "tokens", "x_lo": "tokens_lo", "x_hi": "tokens_hi"}
AGAIN = 0.5
"""Tokens computed again for each that is generated, from which on FLOPs are drawn."""
RL_EDGE: dict[str, Any] = {"color": palette.RL_COLOUR, "linewidth": 0.9, "linestyle": (0, (2, 1))}
RL_LINE: dict[str, Any] = {"color": palette.RL_COLOUR, "linewidth": 1.6, "marker": "o", "markersize": 3}
BASE_EDGE: dict[str, Any] = {"color": palette.ENVELOPE_COLOUR, "linewidth": 1.2}
COLUMNS = ("axis", "layer", "model", "policy", "budget", "x", "x_lo", "x_hi", "value", "lo", "hi")


@catalogue.figure("compute_frontier", stage="pair", per_metric=True)
def compute_frontier(context: PairContext) -> pl.DataFrame:
    """One row per axis and drawn point; ``x`` is what the point takes per question.

    Layers: ``AR`` and ``search`` (points of policies), ``AR edge`` (the upper envelope of a model's AR policies: what
    the best of them, ``policy``, reaches with x or less). Of RL, its default policy and its edge are drawn.

    Notes
    -----
    Points are unbiased estimates, whatever the estimator of the labels. A token costs 2 FLOPs per parameter, whether it
    is of a prompt or generated; attention is not counted. If the prefill of one policy is unknown, all FLOPs are of
    generated tokens alone. Points whose tokens are unknown have no row on that axis.
    """
    labels = context.labels
    parts = [_points(frame, model, labels) for model, frame in (("Base", context.base), ("RL", context.rl))]
    points = pl.concat(parts).join(context.prefill, on=["model", "policy"], how="left", maintain_order="left")
    rows = pl.concat([_on_axis(points, axis, labels) for axis in AXES])
    edges = [_edge(pick(rows, axis=axis, model=model, layer="AR")) for axis in AXES for model in ("Base", "RL")]
    shown = (pl.col("model") == "Base") | (pl.col("policy") == labels.general.default_policy)
    return pl.concat([rows.filter(shown), *edges]).with_columns(
        prefilled=pl.col("axis").eq("flops") & points["prompt"].is_not_null().all(),
    )


def _points(frame: pl.DataFrame, model: str, labels: Labels) -> pl.DataFrame:
    rows = pick(frame, metric=labels.metric, estimator="unbiased").drop_nulls("value")
    tokens = pick(frame, metric="C", estimator="unbiased")
    tokens = tokens.select("policy", "budget", tokens="value", tokens_lo="lo", tokens_hi="hi")
    rows = rows.select("policy", "budget", "value", "lo", "hi").join(tokens, on=["policy", "budget"], how="left")
    rows = by_policy(rows, labels.policies)
    channels = {name: kinds.channel(name, labels.policies) for name in rows["policy"]}
    layer = pl.col("policy").replace_strict(channels, return_dtype=pl.String)
    return rows.with_columns(model=pl.lit(model), layer=layer)


def _on_axis(points: pl.DataFrame, axis: str, labels: Labels) -> pl.DataFrame:
    if axis == "samples":
        n = pl.col("budget").cast(pl.Float64)
        taken = {"x": n, "x_lo": n, "x_hi": n}
    elif axis == "tokens":
        taken = {x: pl.col(column) for x, column in TOKENS.items()}
    else:
        prefilled = points["prompt"].is_not_null().all()
        prompt, again = (pl.col(name) if prefilled else pl.lit(0.0) for name in ("prompt", "again"))
        work = 2 * pl.lit(labels.parameters, dtype=pl.Float64)
        taken = {x: work * (prompt + pl.col(column) * (1 + again)) for x, column in TOKENS.items()}
    return points.with_columns(axis=pl.lit(axis), **taken).drop_nulls("x").select([*COLUMNS, "family"])


def _edge(points: pl.DataFrame) -> pl.DataFrame:
    """What the best policy reaches with x or less, at the x of every point; greedy is not among the policies.

    Between its points a policy follows straight lines over the logarithm of x, as they are drawn; beyond its last point
    it keeps the value of that point.
    """
    rows = points.filter(pl.col("family") != "greedy").sort("x")
    if rows.is_empty():
        return rows
    at = rows["x"].unique().sort().to_numpy()
    parts = [_along(policy, at) for policy in rows.partition_by("policy", maintain_order=True)]
    best = pl.concat(parts).sort("x", "value", descending=[False, True], maintain_order=True).unique("x", keep="first")
    best = best.sort("x")
    # where less work gives more, that point stays the best
    rising = pl.when(pl.col("value") >= pl.col("value").cum_max())
    columns = [rising.then(name).forward_fill().alias(name) for name in ("policy", "family", "lo", "hi", "value")]
    return best.with_columns(columns, layer=pl.lit("AR edge")).select(rows.columns).cast(rows.schema)


def _along(policy: pl.DataFrame, at: npt.NDArray[np.float64]) -> pl.DataFrame:
    """One policy at each x that is not below its first point."""
    reached = at[at >= policy["x"][0]]
    ends = {
        name: np.interp(np.log(reached), np.log(policy["x"].to_numpy()), policy[name].to_numpy())
        for name in ("value", "lo", "hi")
    }
    constants = policy.select("axis", "model", "policy", "family").row(0, named=True)
    constants |= dict.fromkeys(("budget", "x_lo", "x_hi"))
    return pl.DataFrame({"x": reached, **ends}).with_columns(**{k: pl.lit(v) for k, v in constants.items()})


@style.styled()
def draw_compute_frontier(numbers: pl.DataFrame, context: PairContext) -> Figure:
    """Draw what ``compute_frontier`` returned.

    FLOPs have a panel only where some search computes most of its prefixes again: elsewhere they are tokens in another
    unit, since both models of a pair have the same number of parameters.
    """
    labels = context.labels
    again = context.prefill["again"].max() or 0
    axes_shown = [axis for axis in AXES if axis in numbers["axis"] and (axis != "flops" or again >= AGAIN)]  # type: ignore[operator]
    finding = _compute_frontier_finding(numbers, "tokens" if "tokens" in axes_shown else "samples")
    title = replace(labels, estimator="unbiased").titled(finding)
    figure = style.new_figure(style.PAGE, 3.1, title, labels.source)
    panels = figure.subplots(1, len(axes_shown), sharey=True, squeeze=False)[0]
    searches = pick(numbers, layer="search")["policy"].unique(maintain_order=True).to_list()
    looks = palette.search_looks(searches, labels.policies)
    for axes, axis in zip(panels, axes_shown, strict=True):
        rows = pick(numbers, axis=axis)
        _panel(axes, axis, rows, looks)
        _scale(axes, axis, rows)
    panels[0].set_ylabel("questions solved (%)")
    _names(panels[0], pick(numbers, axis="samples"), looks)
    note = "grey: each autoregressive (AR) policy of Base"
    if looks:
        note += "; a search that gives several answers at once has them at the same work, so its line is upright"
    figure.supxlabel(note, fontsize=7, color=palette.MUTED)
    return figure


def _compute_frontier_finding(numbers: pl.DataFrame, axis: str) -> str:
    """What the two curves solve at the largest cost that both have; no interval of their difference is known there."""
    rl = pick(numbers, axis=axis, model="RL", layer="AR").sort("x")
    edge = pick(numbers, axis=axis, model="Base", layer="AR edge").sort("x")
    last = rl.filter(pl.col("x") <= pl.lit(edge["x"].max())).tail(1)
    best = edge.filter(pl.col("x") <= pl.lit(last["x"].max())).tail(1)
    cost = float(f"{last['x'][0]:.2g}") if best.height else None
    return say(AT_COST, {"axis": AXES[axis], "cost": cost, "base": best["value"].max(), "rl": last["value"].max()})


def _panel(axes: Axes, axis: str, rows: pl.DataFrame, looks: dict[str, dict[str, Any]]) -> None:
    base, rl = pick(rows, model="Base"), pick(rows, model="RL")
    grey: dict[str, Any] = {"color": palette.CURVE_COLOUR, "linewidth": 0.5, "zorder": 1}
    style.lines(axes, pick(base, layer="AR"), "x", "value", units="policy", sort=False, **grey)
    edge, default = pick(base, layer="AR edge"), pick(rl, layer="AR")
    style.band(axes, edge, "x", color=palette.MUTED, alpha=0.13, zorder=0.8)
    style.curve(axes, edge, "x", **BASE_EDGE, zorder=3, gid="Base edge")
    style.curve(axes, pick(rl, layer="AR edge"), "x", **RL_EDGE, zorder=3, gid="RL edge")
    style.band(axes, default, "x", color=palette.RL_COLOUR, alpha=0.13, zorder=0.8)
    style.curve(axes, default, "x", **RL_LINE, zorder=4, gid="RL default")
    for (name,), points in pick(base, layer="search").group_by("policy", maintain_order=True):
        look = {**looks[str(name)], "linewidth": 0.8, "markersize": 3.6, "markeredgewidth": 0}
        style.curve(axes, points, "x", **look, zorder=5, gid=str(name))
        if axis != "samples":  # where all searches would have theirs at the same x
            for x, low, high in points.tail(1).select("x", "lo", "hi").drop_nulls().iter_rows():
                whisker: dict[str, Any] = {"color": look["color"], "linewidth": 0.6, "alpha": 0.6, "zorder": 2}
                axes.plot([x, x], [100 * low, 100 * high], **whisker)


def _names(axes: Axes, rows: pl.DataFrame, looks: dict[str, dict[str, Any]]) -> None:
    """Name the lines where they end, at the largest number of samples, with their marks."""
    lines = {
        "Base, best AR policy": (pick(rows, model="Base", layer="AR edge"), BASE_EDGE),
        "RL, best AR policy": (pick(rows, model="RL", layer="AR edge"), RL_EDGE),
        "RL default": (pick(rows, model="RL", layer="AR"), RL_LINE),
    }
    lines |= {name: (pick(rows, layer="search", policy=name), look) for name, look in looks.items()}
    ends = [(100 * points["value"][-1], name, look["color"]) for name, (points, look) in lines.items() if points.height]
    style.label_ends(axes, ends)


def _scale(axes: Axes, axis: str, rows: pl.DataFrame) -> None:
    axes.set_title(f"at equal {AXES[axis]}")
    if axis == "samples":
        style.budget_axis(axes, rows["budget"].drop_nulls(), "samples per question")
        return
    axes.set_xscale("log")
    low, high = axes.get_xlim()
    decades = math.log10(high / low)
    labelled = (1.0, 2.0, 5.0) if decades < 1.3 else (1.0, 3.0) if decades < 2.6 else (1.0,)
    axes.xaxis.set_major_locator(LogLocator(subs=labelled))
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    axes.xaxis.set_minor_formatter(NullFormatter())
    counted = ",\ngeneration and prefill" if rows["prefilled"].all() else ",\nof generation alone"
    axes.set_xlabel(f"{AXES[axis]} per question{counted if axis == 'flops' else ''}")


# ---- by samples

SUPPORT = (
    *("rl", "rl_lo", "rl_hi", "envelope", "envelope_policy", "envelope_budget", "low"),
    *("rl_minus_best", "rl_minus_best_lo", "rl_minus_best_hi", "inside"),
)
GREEDY_LINE: dict[str, Any] = {"color": palette.BASE_COLOUR, "linestyle": (0, (5, 1.5, 1, 1.5)), "linewidth": 1.2}
RL_CURVE: dict[str, Any] = {"color": palette.RL_COLOUR, "linewidth": 2.2, "marker": "o", "markersize": 4}
FEW = 100
"""Questions up to which an axis counts them."""
EDGE: dict[str, Any] = {"color": palette.ENVELOPE_COLOUR, "linewidth": 0.9}
BEST_SEARCH: dict[str, Any] = {**palette.family_look("search"), "markersize": 4.5, "linestyle": "none"}
ROOMY = 5
"""Largest number of budgets for which the number of a gap fits beside it; of more it stands above its interval."""


@catalogue.figure("support_region", stage="pair", per_metric=True)
def support_region(context: PairContext) -> pl.DataFrame:
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
def draw_support_region(numbers: pl.DataFrame, context: PairContext) -> Figure:
    """Draw what ``support_region`` returned."""
    labels = context.labels
    region = pick(numbers, layer="support")
    figure = style.new_figure(style.COLUMN, 3.9, labels.titled(_support_region_finding(region)), labels.source)
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


def _support_region_finding(region: pl.DataFrame) -> str:
    """At how many budgets RL is inside, of those at which either model solves any question, and of which pool."""
    decided = region.filter(pl.max_horizontal("rl", "envelope").fill_null(1) > 0)
    inside = decided["inside"].cast(pl.UInt32).sum()
    return say(
        INSIDE, {"inside": inside, "decided": decided.height, "policies": counted(region["policies"][0], "policy")}
    )


def _region(axes: Axes, region: pl.DataFrame) -> None:
    style.band(axes, region, "budget", "low", "envelope", color=palette.REGION_COLOUR, zorder=0)
    style.band(axes, region, "budget", "rl_lo", "rl_hi", color=palette.RL_COLOUR, alpha=0.15, zorder=3.5)
    style.curve(axes, region, "budget", "rl", **RL_CURVE, zorder=4, gid="rl")
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
    region = f"{counted(numbers['policies'].drop_nulls()[0], 'Base policy')}, from {labels.options.support_q:.0%} on"
    keys: list[Line2D | Patch] = [
        style.key(f"RL default, {labels.band}", **RL_CURVE),
        style.key("edge: Base's best up to N", **EDGE),
        Patch(color=palette.REGION_COLOUR, label=region),
    ]
    keys += [style.key("edge: a search", **BEST_SEARCH)] if "search" in numbers["envelope_channel"] else []
    keys += style.power_keys(numbers, labels)
    keys += [style.key("Base greedy", **GREEDY_LINE)] if "greedy" in numbers["layer"] else []
    outside = {**RL_CURVE, "linewidth": None, "linestyle": "none", "markerfacecolor": "white"}
    style.legend(figure, [*keys, style.key("below, hollow: outside", **outside)], ncols=2)
