"""Which Base operating points give what RL gives (A), and the path chosen among them (B)."""

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

PATHS = {"closest": "o", "monotone": "D"}
LANE = 0.76  # height of one budget's lanes, in rows


@catalogue.figure("recovery", stage="pair", per_metric=True)
def numbers(context: PairContext) -> pl.DataFrame:
    """The drawn layers: ``rl``, ``near_match``, one per path (``closest`` and ``monotone``) and ``power``."""
    labels = context.labels
    columns = ["target_budget", "target", "policy", "budget", "value", "error"]
    target = pick(context.support, **labels.curve).sort("budget")
    curve = target.select(layer=pl.lit("rl"), target_budget="budget", target="rl", lo="rl_lo", hi="rl_hi")
    near = pick(context.near_match, metric=labels.metric).select(pl.lit("near_match").alias("layer"), *columns)
    paths = pick(context.path, metric=labels.metric).select(pl.col("kind").alias("layer"), *columns)
    near = by_policy(near, labels.policies).sort("target_budget", maintain_order=True)
    sampler = power.curves(context.base, target["budget"], labels)
    sampler = sampler.select(pl.lit("power").alias("layer"), "policy", "budget", "value", target_budget="budget")
    return pl.concat([curve, near, paths.sort("layer", "target_budget"), sampler], how="diagonal")


@style.styled()
def draw(numbers: pl.DataFrame, context: PairContext) -> Figure:
    """Draw what ``numbers`` returned."""
    labels = context.labels
    if numbers.is_empty():
        return style.no_readouts(labels)
    figure = style.new_figure(style.PAGE, 3.7, labels.title, labels.source)
    left, right = figure.subfigures(1, 2, wspace=0.02, squeeze=False)[0]
    _candidates(left.subplots(), numbers, labels)
    axes, below = right.subplots(2, 1, sharex=True, height_ratios=[2.6, 1])
    _path(axes, numbers)
    _residuals(below, numbers, labels)
    _legend(figure, numbers, labels)
    return figure


def _budgets(numbers: pl.DataFrame) -> list[int]:
    return pick(numbers, layer="rl")["target_budget"].to_list()


def _candidates(axes: Axes, numbers: pl.DataFrame, labels: Labels) -> None:
    budgets, near = _budgets(numbers), pick(numbers, layer="near_match")
    rows = sorted(set(budgets) | set(near["budget"].to_list()))
    kinds = style.families(near)
    axes.set_title(f"A  Base points within \N{PLUS-MINUS SIGN}{100 * labels.epsilon:g} pp of RL")
    for i in range(len(budgets)):
        axes.axvline(i, color=style.REGION_COLOUR, linewidth=0.8, zorder=0)
    chosen = set(pick(numbers, layer="closest").select("target_budget", "policy", "budget").iter_rows())
    drawn = near.select("target_budget", "policy", "family", "budget", "error")
    for target, policy, kind, budget, error in drawn.iter_rows():
        x = budgets.index(target) + 0.4 * error / labels.epsilon
        y = rows.index(budget) + LANE * (0.5 - (kinds.index(kind) + 0.5) / len(kinds))
        axes.plot(x, y, **style.family_look(kind), markersize=3, alpha=0.8, markeredgewidth=0, gid=policy)
        if (target, policy, budget) in chosen:
            axes.plot(x, y, marker="o", markersize=6.5, color="black", markerfacecolor="none", markeredgewidth=1.0)
    axes.set_xlim(-0.5, len(budgets) - 0.5)
    axes.set_ylim(-0.5, len(rows) - 0.5)
    axes.set_xticks(range(len(budgets)), [str(b) for b in budgets])
    axes.set_yticks(range(len(rows)), [str(b) for b in rows])
    axes.set_xticks([i + 0.5 for i in range(len(budgets) - 1)], minor=True)
    axes.set_yticks([i + 0.5 for i in range(len(rows) - 1)], minor=True)
    axes.grid(which="minor", color=style.CURVE_COLOUR, linewidth=0.5)
    axes.tick_params(which="minor", length=0)
    axes.set_xlabel(
        f"RL budget (in each box: error from \N{MINUS SIGN}{100 * labels.epsilon:g} to +{100 * labels.epsilon:g} pp)"
    )
    axes.set_ylabel("Base budget")
    if near.is_empty():
        centre: dict[str, Any] = {"transform": axes.transAxes, "ha": "center", "va": "center"}
        axes.text(0.5, 0.5, "no Base point is this close", **centre, color=style.MUTED, backgroundcolor="white")


def _path(axes: Axes, numbers: pl.DataFrame) -> None:
    curve = pick(numbers, layer="rl")
    budgets = curve["target_budget"].to_list()
    band = (style.percent(curve["lo"]), style.percent(curve["hi"]))
    axes.set_title("B  path through Base that follows RL")
    axes.fill_between(budgets, *band, color=style.RL_COLOUR, alpha=0.15, linewidth=0, zorder=1)
    axes.plot(budgets, style.percent(curve["target"]), color=style.RL_COLOUR, linewidth=2.6, zorder=3, gid="rl")
    for (name,), rows in pick(numbers, layer="power").group_by("policy", maintain_order=True):
        axes.plot(rows["budget"].to_list(), style.percent(rows["value"]), **power.LINE, zorder=2, gid=str(name))
    for rank, (kind, marker) in enumerate(
        PATHS.items()
    ):  # the smaller mark on top, so that both are visible where they agree
        rows = pick(numbers, layer=kind)
        axes.plot(
            rows["target_budget"].to_list(),
            style.percent(rows["value"]),
            **_mark(kind, marker),
            zorder=5 - rank,
            gid=kind,
        )
    axes.set_ylabel("questions solved (%)")


def _mark(kind: str, marker: str) -> dict[str, Any]:
    closest = kind == "closest"
    face = style.ENVELOPE_COLOUR if closest else "white"
    line = "-" if closest else ":"
    size = 3.0 if closest else 5.5
    ink = style.ENVELOPE_COLOUR
    return {
        "color": ink,
        "marker": marker,
        "markersize": size,
        "markerfacecolor": face,
        "linestyle": line,
        "linewidth": 0.8,
    }


def _residuals(axes: Axes, numbers: pl.DataFrame, labels: Labels) -> None:
    budgets = _budgets(numbers)
    style.zero_line(axes)
    names = {budget: str(budget) for budget in budgets}
    for shift, (kind, marker) in zip((2**-0.14, 2**0.14), PATHS.items(), strict=True):
        for target, policy, budget, error in _chosen(numbers, kind):
            at = target * shift
            axes.plot(
                [at, at], [0, 100 * error], color=style.CURVE_COLOUR, linewidth=3.5, solid_capstyle="butt", zorder=1
            )
            axes.plot(at, 100 * error, **_mark(kind, marker))
            if kind == "closest":
                names[target] = f"{target}\n{policy.replace('_', chr(10))}\nN = {budget}"
    style.budget_axis(axes, budgets, "RL budget, and the closest Base point")
    axes.set_xticks(budgets, list(names.values()))
    axes.set_ylabel("residual (pp)")
    largest = max([labels.epsilon, *numbers["error"].drop_nulls().abs()])  # the tolerance sets the scale
    axes.set_ylim(-125 * largest, 125 * largest)


def _chosen(numbers: pl.DataFrame, kind: str) -> list[tuple[int, str, int, float]]:
    return list(pick(numbers, layer=kind).select("target_budget", "policy", "budget", "error").iter_rows())


def _legend(figure: Figure, numbers: pl.DataFrame, labels: Labels) -> None:
    dot: dict[str, Any] = {"linestyle": "none", "markersize": 4.0}
    names = style.family_names(style.families(pick(numbers, layer="near_match")))
    handles: list[Line2D | Patch] = [
        Line2D([], [], label=name, **style.family_look(kind), **dot) for kind, name in names.items()
    ]
    ring: dict[str, Any] = {**dot, "marker": "o", "markersize": 6.5, "markerfacecolor": "none", "color": "black"}
    handles.append(Line2D([], [], label="closest", **ring))
    handles.append(Line2D([], [], color=style.RL_COLOUR, linewidth=2.6, label=f"RL default, {labels.band}"))
    for kind, marker in PATHS.items():
        handles.append(Line2D([], [], label=f"{kind} path", **_mark(kind, marker)))
    handles.append(Patch(color=style.CURVE_COLOUR, label="residual"))
    if "power" in numbers["layer"]:
        samplers = pick(numbers, layer="power")["policy"]
        handles.append(Line2D([], [], label=power.label(samplers, labels.policies), **power.LINE))
    figure.legend(handles=handles, loc="outside lower center", ncols=(len(handles) + 1) // 2)
