"""All Base operating points, and those among them that match the RL curve at any of its budgets."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import polars as pl
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from searchlens import catalogue
from searchlens.analysis.claims import MATCHES, say
from searchlens.analysis.frames import by_policy, pick
from searchlens.reporting.figures import palette, style
from searchlens.reporting.figures.context import PairContext

SPREAD = 0.32  # of one doubling of the budget, between the outermost families
UNMATCHED = "#C8C8C8"


@catalogue.figure("matching_set", stage="pair", per_metric=True)
def numbers(context: PairContext) -> pl.DataFrame:
    """Layer ``target``: each budget of RL with its number of matches; ``point``: each Base operating point.

    ``targets`` of a point are the budgets of RL that it matches, separated by spaces.
    """
    labels = replace(context.labels, readout="prefix")  # paths and matches are of the first samples alone
    points = by_policy(pick(context.base, **labels.curve).select("policy", "budget", "value"), labels.policies)
    points = points.filter(pl.col("family") != "greedy")
    near = pick(context.near_match, metric=labels.metric).select("target_budget", "policy", "budget")
    matched = near.join(points.select("policy", "budget"), on=["policy", "budget"], how="semi")
    counts = matched.group_by(budget="target_budget").agg(matches=pl.len())
    targets = pick(context.support, **labels.curve).select(pl.lit("target").alias("layer"), "budget", value="rl")
    targets = targets.sort("budget").join(counts, on="budget", how="left", maintain_order="left")
    budgets = pl.col("target_budget").sort().cast(pl.String)
    of_point = matched.group_by("policy", "budget").agg(matches=pl.len(), targets=budgets.str.join(" "))
    points = points.join(of_point, on=["policy", "budget"], how="left", maintain_order="left")
    layers = [targets, points.with_columns(layer=pl.lit("point"))]
    return pl.concat(layers, how="diagonal").with_columns(pl.col("matches").fill_null(0))


@style.styled()
def draw(numbers: pl.DataFrame, context: PairContext) -> Figure:
    """Draw what ``numbers`` returned."""
    labels = replace(context.labels, readout="prefix")  # paths and matches are of the first samples alone
    points, targets = pick(numbers, layer="point"), pick(numbers, layer="target").drop_nulls("value")
    if points.is_empty():
        return style.in_words(labels, "these samples have no such readouts")
    figure = style.new_figure(style.COLUMN, 3.6, labels.titled(_finding(points, targets)), labels.source)
    axes = figure.subplots()
    _points(axes, points)
    ends = []
    for budget, value, matches in targets.select("budget", "value", "matches").iter_rows():
        band = (100 * max(0.0, value - labels.options.epsilon), 100 * min(1.0, value + labels.options.epsilon))
        axes.axhspan(*band, color=palette.RL_COLOUR, alpha=0.08, linewidth=0, zorder=0)
        axes.axhline(100 * value, color=palette.RL_COLOUR, linewidth=0.8, zorder=1, gid="target")
        ends.append((100 * value, f"RL at {budget}: {matches}", palette.RL_COLOUR))
    style.label_ends(axes, ends)
    axes.set_ylabel("questions solved (%)")
    dot: dict[str, Any] = {"linestyle": "none", "markersize": 4.0, "markeredgewidth": 0}
    names = style.family_names(palette.families(points))
    keys = [style.key(name, **palette.family_look(kind), **dot) for kind, name in names.items()]
    unmatched = style.key("no match", **dot, color=UNMATCHED, marker="o")
    near = f"RL \N{PLUS-MINUS SIGN}{100 * labels.options.epsilon:g} pp"
    style.legend(figure, [*keys, unmatched, Patch(color=palette.RL_COLOUR, alpha=0.2, label=near)], ncols=3)
    return figure


def _finding(points: pl.DataFrame, targets: pl.DataFrame) -> str:
    missed = ", ".join(map(str, targets.filter(pl.col("matches") == 0)["budget"]))
    low, high = min(targets["matches"]), max(targets["matches"])
    return say(MATCHES, {"missed": missed, "low": low, "high": high, "points": points.height})


def _points(axes: Axes, points: pl.DataFrame) -> None:
    kinds = palette.families(points)
    places = {kind: (i - (len(kinds) - 1) / 2) / max(1, len(kinds) - 1) for i, kind in enumerate(kinds)}
    lane = pl.col("family").replace_strict(places, return_dtype=pl.Float64)
    shown = points.with_columns(x=pl.col("budget") * 2 ** (2 * SPREAD * lane))
    for (matched,), some in shown.group_by(pl.col("matches") > 0, maintain_order=True):
        colours = palette.FAMILY_COLOURS if matched else dict.fromkeys(kinds, UNMATCHED)
        looks: dict[str, Any] = {"palette": colours, "markers": palette.FAMILY_MARKERS, "s": 16 if matched else 9}
        looks |= {"x": "x", "y": "value", "hue": "family", "style": "family", "zorder": 3 if matched else 2}
        sns.scatterplot(style.to_pandas(some, percent=["value"]), **looks, linewidth=0, legend=False, ax=axes)
    style.budget_axis(axes, points["budget"], "Base budget N (samples per question)")
    low, high = axes.get_xlim()
    axes.set_xlim(low / 2**SPREAD, high * 2**SPREAD)
