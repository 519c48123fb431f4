"""Which Base operating points give what RL gives: all of them by budget, the matches, and the path among them."""

from __future__ import annotations

from dataclasses import replace
from math import isnan
from typing import Any

import polars as pl
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from searchlens import catalogue
from searchlens.analysis.claims import MATCHES, PATH, say
from searchlens.analysis.frames import by_policy, pick
from searchlens.reporting.figures import palette, style
from searchlens.reporting.figures.context import Labels, PairContext

SPREAD = 0.32  # of one doubling of the budget, between the outermost families
UNMATCHED = "#C8C8C8"


@catalogue.figure("matching_set", stage="pair", per_metric=True)
def matching_set(context: PairContext) -> pl.DataFrame:
    """Layer ``target``: each budget of RL with its number of matches; ``point``: each Base operating point.

    ``targets`` of a point are the budgets of RL that it matches, separated by spaces.
    """
    labels = replace(context.labels, estimator="first_k")  # paths and matches are of the first samples alone
    points = _base_points(context)
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


def _base_points(context: PairContext) -> pl.DataFrame:
    """The operating points that are candidates, of the first samples."""
    where = replace(context.labels, estimator="first_k").curve
    points = by_policy(pick(context.base, **where).select("policy", "budget", "value"), context.labels.policies)
    return points.filter(pl.col("family") != "greedy")


@style.styled()
def draw_matching_set(numbers: pl.DataFrame, context: PairContext) -> Figure:
    """Draw what ``matching_set`` returned."""
    labels = replace(context.labels, estimator="first_k")  # paths and matches are of the first samples alone
    points, targets = pick(numbers, layer="point"), pick(numbers, layer="target").drop_nulls("value")
    if points.is_empty():
        return style.in_words(labels, "these samples have no such estimates")
    figure = style.new_figure(style.COLUMN, 3.6, labels.titled(_matching_set_finding(points, targets)), labels.source)
    axes = figure.subplots()
    _points(axes, points)
    ends = []
    for budget, value, matches in targets.select("budget", "value", "matches").iter_rows():
        band = (100 * max(0.0, value - labels.options.epsilon), 100 * min(1.0, value + labels.options.epsilon))
        axes.axhspan(*band, color=palette.RL_COLOUR, alpha=0.08, linewidth=0, zorder=0)
        axes.axhline(100 * value, color=palette.RL_COLOUR, linewidth=0.8, zorder=1, gid="target")
        ends.append((100 * value, f"RL at {budget}: {matches} match", palette.RL_COLOUR))
    style.label_ends(axes, ends)
    axes.set_ylabel("questions solved (%)")
    dot: dict[str, Any] = {"linestyle": "none", "markersize": 4.0, "markeredgewidth": 0}
    names = style.family_names(palette.families(points))
    keys = [style.key(name, **palette.family_look(kind), **dot) for kind, name in names.items()]
    unmatched = style.key("no match", **dot, color=UNMATCHED, marker="o")
    near = f"RL \N{PLUS-MINUS SIGN}{100 * labels.options.epsilon:g} pp"
    style.legend(figure, [*keys, unmatched, Patch(color=palette.RL_COLOUR, alpha=0.2, label=near)], ncols=3)
    return figure


def _matching_set_finding(points: pl.DataFrame, targets: pl.DataFrame) -> str:
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


# ---- the path

PATHS = {"closest": "o", "monotone": "D"}
CORNERS = {"closest": 0.82, "monotone": 0.18}
"""Where in a box of panel A the marks of the paths lie."""
ERROR_COLOURS = LinearSegmentedColormap.from_list("near", ["#2171B5", "#C6DBEF"])
FRAME_COLOUR = "#DDDDDD"


@catalogue.figure("recovery", stage="pair", per_metric=True)
def recovery(context: PairContext) -> pl.DataFrame:
    """The drawn layers: ``rl``, ``near_match``, one per path (``closest`` and ``monotone``) and ``power``."""
    labels = replace(context.labels, estimator="first_k")  # paths and matches are of the first samples alone
    columns = ["target_budget", "target", "policy", "budget", "value", "rl_minus_base"]
    target = pick(context.support, **labels.curve).sort("budget")
    curve = target.select(layer=pl.lit("rl"), target_budget="budget", target="rl", lo="rl_lo", hi="rl_hi")
    near = pick(context.near_match, metric=labels.metric).select(pl.lit("near_match").alias("layer"), *columns)
    paths = pick(context.path, metric=labels.metric).select(pl.col("kind").alias("layer"), *columns)
    near = by_policy(near, labels.policies).sort("target_budget", maintain_order=True)
    points = pick(context.base, **labels.curve).filter(
        pl.col("policy").is_in(style.power_policies(context.base["policy"], labels.policies)),
        pl.col("budget").is_in(target["budget"].to_list()),
    )
    sampler = by_policy(points.select("policy", "budget", "value"), labels.policies)
    sampler = sampler.select(pl.lit("power").alias("layer"), "policy", "budget", "value", target_budget="budget")
    return pl.concat([curve, near, paths.sort("layer", "target_budget"), sampler], how="diagonal")


@style.styled()
def draw_recovery(numbers: pl.DataFrame, context: PairContext) -> Figure:
    """Draw what ``recovery`` returned."""
    labels = replace(context.labels, estimator="first_k")  # paths and matches are of the first samples alone
    figure = style.new_figure(
        style.PAGE, 3.6, labels.titled(_recovery_finding(numbers, labels, _base_points(context).height)), labels.source
    )
    left, right = figure.subfigures(1, 2, wspace=0.02, squeeze=False)[0]
    _candidates(left.subplots(), numbers, labels)
    axes, below = right.subplots(2, 1, sharex=True, height_ratios=[2.6, 1])
    _path(axes, numbers)
    _differences(below, numbers, labels)
    keys = [style.key(f"RL default, {labels.band}", color=palette.RL_COLOUR, linewidth=2.6)]
    keys += [style.key(f"{kind} path", **_mark(kind, marker)) for kind, marker in PATHS.items()]
    keys += style.power_keys(numbers, labels)
    style.legend(figure, keys, ncols=len(keys))
    return figure


def _budgets(numbers: pl.DataFrame) -> list[int]:
    return pick(numbers, layer="rl")["target_budget"].to_list()


def _recovery_finding(numbers: pl.DataFrame, labels: Labels, points: int) -> str:
    """How close the monotone path keeps to RL, and at which budgets nothing is close."""
    budgets, near = _budgets(numbers), set(pick(numbers, layer="near_match")["target_budget"])
    errors = pick(numbers, layer="monotone")["rl_minus_base"].drop_nulls().abs()
    missed = [str(budget) for budget in budgets if budget not in near]
    facts = {"tolerance": f"{100 * labels.options.epsilon:g} pp", "missed": ", ".join(missed), "near": len(near)}
    facts["points"] = points
    return say(PATH, {**facts, "kept": f"{100 * max(errors, default=0):.1f}", "budgets": len(budgets)})


def _candidates(axes: Axes, numbers: pl.DataFrame, labels: Labels) -> None:
    """For each budget of RL and of Base the least error, as a colour, and the number of policies that match."""
    budgets, near = _budgets(numbers), pick(numbers, layer="near_match")
    rows = sorted({*budgets, *near["budget"].to_list()}, reverse=True)
    cells = near.group_by("target_budget", "budget").agg(error=pl.col("rl_minus_base").abs().min(), matches=pl.len())
    shown = style.to_pandas(cells, percent=["error"])
    error, matches = (
        shown.pivot(index="budget", columns="target_budget", values=name).reindex(index=rows, columns=budgets)
        for name in ("error", "matches")
    )
    words = matches.map(lambda count: "" if isnan(count) else f"{count:.0f}")
    tolerance = 100 * labels.options.epsilon
    bar: dict[str, Any] = {"label": "least |error| (pp)", "aspect": 25, "pad": 0.02}
    looks: dict[str, Any] = {"annot": words, "fmt": "", "annot_kws": {"fontsize": 7}, "cbar_kws": bar}
    looks |= {"cmap": ERROR_COLOURS, "vmin": 0, "vmax": tolerance, "linewidths": 0.8, "linecolor": FRAME_COLOUR}
    sns.heatmap(error.astype(float), ax=axes, **looks)
    for kind, marker in PATHS.items():
        chosen = pick(numbers, layer=kind).select("target_budget", "budget")
        points = [(budgets.index(b) + CORNERS[kind], rows.index(n) + 0.25) for b, n in chosen.iter_rows() if n in rows]
        mark = {**_mark(kind, marker), "linestyle": "none"}
        axes.plot([x for x, _ in points], [y for _, y in points], **mark, gid=f"A-{kind}")
    axes.set_title(f"A  matches within \N{PLUS-MINUS SIGN}{tolerance:g} pp: policies, and the least error")
    axes.tick_params(length=0, labelrotation=0)
    axes.set(xlabel="RL budget (samples per question)", ylabel="Base budget N (samples per question)")
    if near.is_empty():
        centre: dict[str, Any] = {"transform": axes.transAxes, "ha": "center", "va": "center"}
        axes.text(0.5, 0.5, "no Base point is this close", **centre, color=palette.MUTED, backgroundcolor="white")


def _path(axes: Axes, numbers: pl.DataFrame) -> None:
    curve = pick(numbers, layer="rl")
    axes.set_title("B  path through Base that follows RL")
    style.band(axes, curve, "target_budget", color=palette.RL_COLOUR, alpha=0.15, zorder=1)
    style.curve(axes, curve, "target_budget", "target", color=palette.RL_COLOUR, linewidth=2.6, zorder=3, gid="rl")
    style.power_lines(axes, numbers, zorder=2)
    # the smaller mark on top, so that both are visible where they agree
    for zorder, (kind, marker) in zip((5, 4), PATHS.items(), strict=True):
        style.curve(axes, pick(numbers, layer=kind), "target_budget", **_mark(kind, marker), zorder=zorder, gid=kind)
    axes.set_ylabel("questions solved (%)")


def _mark(kind: str, marker: str) -> dict[str, Any]:
    closest = kind == "closest"
    return {
        "color": palette.ENVELOPE_COLOUR,
        "marker": marker,
        "markersize": 3.0 if closest else 5.5,
        "markerfacecolor": palette.ENVELOPE_COLOUR if closest else "white",
        "linestyle": "-" if closest else ":",
        "linewidth": 0.8,
    }


def _differences(axes: Axes, numbers: pl.DataFrame, labels: Labels) -> None:
    budgets = _budgets(numbers)
    style.zero_line(axes)
    names = {budget: str(budget) for budget in budgets}
    thick: dict[str, Any] = {"color": palette.CURVE_COLOUR, "linewidth": 3.5, "solid_capstyle": "butt", "zorder": 1}
    for shift, (kind, marker) in zip((2**-0.14, 2**0.14), PATHS.items(), strict=True):
        chosen = pick(numbers, layer=kind).select("target_budget", "policy", "budget", "rl_minus_base")
        for target, policy, budget, difference in chosen.iter_rows():
            axes.plot([target * shift] * 2, [0, 100 * difference], **thick)
            axes.plot(target * shift, 100 * difference, **_mark(kind, marker))
            if kind == "closest":
                names[target] = f"{target}\n{policy.replace('_', chr(10))}\nN = {budget}"
    style.budget_axis(axes, budgets, "RL budget, and the closest Base point")
    axes.set_xticks(budgets, list(names.values()))
    axes.set_ylabel("RL \N{MINUS SIGN} Base (pp)")
    # the tolerance sets the scale
    largest = max([labels.options.epsilon, *numbers["rl_minus_base"].drop_nulls().abs()])
    axes.set_ylim(-125 * largest, 125 * largest)
