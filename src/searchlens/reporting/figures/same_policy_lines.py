"""Base minus RL at the same policy and budget, one line per policy."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from searchlens import catalogue
from searchlens.analysis.claims import LEVEL, say
from searchlens.analysis.frames import by_policy, pick
from searchlens.reporting.figures import palette, style
from searchlens.reporting.figures.context import Labels, PairContext

COUNTS = (
    *("ahead_or_level", "policies", "both_zero"),
    *("ahead_or_level_without_default", "policies_without_default", "both_zero_without_default"),
)
PAPER = {"base_minus_rl": -pl.col("rl_minus_base"), "lo": -pl.col("hi"), "hi": -pl.col("lo")}
"""The paper's sign, which this figure and the gap map keep."""


@catalogue.figure("same_policy_lines", stage="pair", per_metric=True)
def numbers(context: PairContext) -> pl.DataFrame:
    """One row per policy and budget; the counts of a budget are repeated on each of its rows."""
    labels = context.labels
    gaps = pick(context.same_policy, **labels.curve).select("policy", "budget", "base", "rl", **PAPER)
    counts = pick(context.counts, **labels.curve).select("budget", *COUNTS)
    return by_policy(gaps.join(counts, on="budget", how="left"), labels.policies)


@style.styled()
def draw(numbers: pl.DataFrame, context: PairContext) -> Figure:
    """Draw what ``numbers`` returned."""
    labels = context.labels
    default = pick(numbers, policy=labels.general.default_policy)
    others = numbers.filter(pl.col("policy") != labels.general.default_policy)
    counts = list(tallies(numbers))
    (first_budget, first, _), (last_budget, last, _) = counts[0], counts[-1]
    finding = say(LEVEL, {"first": first, "first_budget": first_budget, "last": last, "last_budget": last_budget})
    figure = style.new_figure(style.COLUMN, 2.9, labels.titled(finding), labels.source)
    axes = figure.subplots()
    grey = {"color": palette.CURVE_COLOUR, "linewidth": 0.7, "zorder": 2}
    style.lines(axes, others, "budget", "base_minus_rl", units="policy", **grey)
    style.band(axes, default, "budget", color=palette.RL_COLOUR, alpha=0.13, zorder=1)
    style.lines(axes, default, "budget", "base_minus_rl", color=palette.RL_COLOUR, linewidth=1.6, zorder=4)
    style.zero_line(axes)
    below = "budget N (samples per question)\npolicies with Base \N{GREATER-THAN OR EQUAL TO} RL"
    style.budget_axis(axes, numbers["budget"], below)
    axes.set_xticks([budget for budget, *_ in counts], [f"{budget}\n{ahead}" for budget, ahead, _ in counts])
    axes.set_ylabel("Base \N{MINUS SIGN} RL (percentage points)")
    _names(axes, numbers, labels)
    return figure


def _names(axes: Axes, numbers: pl.DataFrame, labels: Labels) -> None:
    """Name RL's default policy and, among the others, the highest and the lowest end."""
    ends = pick(numbers, budget=int(max(numbers["budget"]))).sort("base_minus_rl")
    others = ends.filter(pl.col("policy") != labels.general.default_policy)
    extremes = dict.fromkeys([*others.head(1)["policy"], *others.tail(1)["policy"]], palette.MUTED)
    colours = extremes | {labels.general.default_policy: palette.RL_COLOUR}
    named = ends.filter(pl.col("policy").is_in(list(colours))).select("base_minus_rl", "policy")
    style.label_ends(axes, [(100 * gap, name, colours[name]) for gap, name in named.iter_rows()])


def tallies(numbers: pl.DataFrame) -> Iterator[tuple[int, str, str]]:
    """Budget, policies with Base ahead or level, of those under which either solves any, and without the default."""
    counts = numbers.select("budget", *COUNTS).unique(maintain_order=True).sort("budget")
    for budget, ahead, of, zero, ahead_rest, of_rest, zero_rest in counts.iter_rows():
        yield budget, f"{ahead - zero}/{of - zero}", f"{ahead_rest - zero_rest}/{of_rest - zero_rest}"
