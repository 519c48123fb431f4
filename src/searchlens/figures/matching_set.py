"""All Base operating points, and those among them that match the RL curve at each of its budgets."""

from __future__ import annotations

from typing import Any

import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from searchlens import catalogue
from searchlens.figures import style
from searchlens.figures.context import Labels, PairContext
from searchlens.frames import by_policy, pick

SPREAD = 0.32  # of one doubling of the budget, between the outermost families


@catalogue.figure("matching_set", stage="pair", per_metric=True)
def numbers(context: PairContext) -> pl.DataFrame:
    """One row per target budget and Base operating point: its value, and whether it is in the matching set."""
    labels = context.labels
    targets = pick(context.support, **labels.curve).select(target_budget="budget", target="rl").sort("target_budget")
    points = by_policy(pick(context.base, **labels.curve).select("policy", "budget", "value"), labels.policies)
    points = points.filter(pl.col("family") != "greedy")
    keys = ["target_budget", "policy", "budget"]
    matches = pick(context.near_match, metric=labels.metric).select(*keys, matched=pl.lit(True))
    every = targets.join(points, how="cross").join(matches, on=keys, how="left", maintain_order="left")
    return every.with_columns(pl.col("matched").fill_null(False))


@style.styled()
def draw(numbers: pl.DataFrame, context: PairContext) -> Figure:
    """Draw what ``numbers`` returned."""
    labels = context.labels
    if numbers.is_empty():
        return style.no_readouts(labels)
    figure = style.new_figure(style.PAGE, 2.75, labels.title, labels.source)
    targets = numbers["target_budget"].unique(maintain_order=True).to_list()
    panels = figure.subplots(1, len(targets), sharex=True, sharey=True, squeeze=False)[0]
    for axes, target in zip(panels, targets, strict=True):
        _panel(axes, pick(numbers, target_budget=target), labels)
    panels[0].set_ylabel("questions solved (%)")
    panels[len(targets) // 2].set_xlabel("Base budget N (samples per question)")
    _legend(figure, numbers, labels)
    return figure


def _panel(axes: Axes, rows: pl.DataFrame, labels: Labels) -> None:
    target, budget = rows["target"][0], rows["target_budget"][0]
    low, high = 100 * (target - labels.epsilon), 100 * (target + labels.epsilon)
    axes.axhspan(low, high, color=style.RL_COLOUR, alpha=0.15, linewidth=0, zorder=0)
    axes.axhline(100 * target, color=style.RL_COLOUR, linewidth=1.0, zorder=1, gid="target")
    kinds = style.families(rows)
    for (kind, matched), group in rows.group_by("family", "matched", maintain_order=True):
        place = (kinds.index(str(kind)) - (len(kinds) - 1) / 2) / max(1, len(kinds) - 1)
        x = [n * 2 ** (2 * SPREAD * place) for n in group["budget"]]
        look = _look(str(kind), bool(matched))
        axes.plot(x, style.percent(group["value"]), **look, zorder=3 if matched else 2, gid=f"{kind}-{matched}")
    style.budget_axis(axes, rows["budget"], "")
    edges = axes.get_xlim()
    axes.set_xlim(edges[0] / 2**SPREAD, edges[1] * 2**SPREAD)
    axes.set_title(f"RL at {budget}\n{rows['matched'].sum()} of {rows.height} points")


def _look(kind: str, matched: bool) -> dict[str, Any]:
    look = style.family_look(kind) if matched else {"color": "#C8C8C8", "marker": "o"}
    return {**look, "linestyle": "none", "markersize": 2.6 if matched else 1.8, "markeredgewidth": 0}


def _legend(figure: Figure, numbers: pl.DataFrame, labels: Labels) -> None:
    handles: list[Line2D | Patch] = [
        Line2D([], [], label=name, **{**_look(kind, True), "markersize": 4.0})
        for kind, name in style.family_names(style.families(numbers)).items()
    ]
    handles.append(Line2D([], [], label="not matching", **{**_look("greedy", False), "markersize": 4.0}))
    handles.append(Patch(color=style.RL_COLOUR, alpha=0.3, label=f"RL \N{PLUS-MINUS SIGN}{100 * labels.epsilon:g} pp"))
    figure.legend(handles=handles, loc="outside lower center", ncols=len(handles))
