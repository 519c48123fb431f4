"""RL minus Base at the same policy and budget: as a map with the policies in families, and one line per policy."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import polars as pl
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.transforms import ScaledTranslation

from searchlens import catalogue
from searchlens.analysis.claims import LEADS, LEVEL, ROUNDING, counted, percent, say
from searchlens.analysis.frames import by_policy, pick
from searchlens.reporting.figures import palette, style
from searchlens.reporting.figures.context import Labels, PairContext
from searchlens.search import kinds

COUNTS = (
    *("ahead_or_level", "policies", "both_zero"),
    *("ahead_or_level_without_default", "policies_without_default", "both_zero_without_default"),
)
GAPS = ("policy", "budget", "base", "rl", "rl_minus_base", "lo", "hi")


@catalogue.figure("same_policy_lines", stage="pair", per_metric=True)
def same_policy_lines(context: PairContext) -> pl.DataFrame:
    """One row per policy and budget; the counts of a budget are repeated on each of its rows."""
    labels = context.labels
    gaps = pick(context.same_policy, **labels.curve).select(GAPS)
    counts = pick(context.counts, **labels.curve).select("budget", *COUNTS)
    return by_policy(gaps.join(counts, on="budget", how="left"), labels.policies)


@style.styled()
def draw_same_policy_lines(numbers: pl.DataFrame, context: PairContext) -> Figure:
    """Draw what ``same_policy_lines`` returned."""
    labels = context.labels
    default = pick(numbers, policy=labels.general.default_policy)
    others = numbers.filter(pl.col("policy") != labels.general.default_policy)
    counts = list(tallies(numbers))
    (first_budget, first, _), (last_budget, last, _) = counts[0], counts[-1]
    finding = say(LEVEL, {"first": first, "first_budget": first_budget, "last": last, "last_budget": last_budget})
    figure = style.new_figure(style.COLUMN, 2.9, labels.titled(finding), labels.source)
    axes = figure.subplots()
    grey = {"color": palette.CURVE_COLOUR, "linewidth": 0.7, "zorder": 2}
    style.lines(axes, others, "budget", "rl_minus_base", units="policy", **grey)
    style.band(axes, default, "budget", color=palette.RL_COLOUR, alpha=0.13, zorder=1)
    style.lines(axes, default, "budget", "rl_minus_base", color=palette.RL_COLOUR, linewidth=1.6, zorder=4)
    style.zero_line(axes)
    below = "budget N (samples per question)\npolicies with Base \N{GREATER-THAN OR EQUAL TO} RL"
    style.budget_axis(axes, numbers["budget"], below)
    axes.set_xticks([budget for budget, *_ in counts], [f"{budget}\n{ahead}" for budget, ahead, _ in counts])
    axes.set_ylabel("RL \N{MINUS SIGN} Base (percentage points)")
    _names(axes, numbers, labels)
    return figure


def _names(axes: Axes, numbers: pl.DataFrame, labels: Labels) -> None:
    """Name RL's default policy and, among the others, the highest and the lowest end."""
    ends = pick(numbers, budget=int(max(numbers["budget"]))).sort("rl_minus_base")
    others = ends.filter(pl.col("policy") != labels.general.default_policy)
    extremes = dict.fromkeys([*others.head(1)["policy"], *others.tail(1)["policy"]], palette.MUTED)
    colours = extremes | {labels.general.default_policy: palette.RL_COLOUR}
    named = ends.filter(pl.col("policy").is_in(list(colours))).select("rl_minus_base", "policy")
    style.label_ends(axes, [(100 * gap, name, colours[name]) for gap, name in named.iter_rows()])


def tallies(numbers: pl.DataFrame) -> Iterator[tuple[int, str, str]]:
    """Budget, policies with Base ahead or level, of those under which either solves any, and without the default."""
    counts = numbers.select("budget", *COUNTS).unique(maintain_order=True).sort("budget")
    for budget, ahead, of, zero, ahead_rest, of_rest, zero_rest in counts.iter_rows():
        yield budget, f"{ahead - zero}/{of - zero}", f"{ahead_rest - zero_rest}/{of_rest - zero_rest}"


# ---- as a map

FAMILY_GAP, STRIP = 1, 2.3  # in rows
STRIP_ROWS = (0.6 - STRIP, 1.6 - STRIP)
BAR_AT = -66  # points, to the left of the map and of the names of its rows
# Red where RL leads, blue where Base does, as in all figures; white at zero, and both ends equally dark.
COLOURS = LinearSegmentedColormap.from_list("lead", ["#08519C", "#6BAED6", "#FFFFFF", "#F4877E", "#99000D"])


@catalogue.figure("gap_map", stage="pair", per_metric=True)
def gap_map(context: PairContext) -> pl.DataFrame:
    """One row per policy and budget; ``row`` is its place in the map, ``marked`` whether the interval excludes 0."""
    labels = context.labels
    gaps = pick(context.same_policy, **labels.curve).select(GAPS)
    counts = pick(context.counts, **labels.curve).select("budget", *COUNTS)
    rows, y, before = dict[str, int](), -1, None
    for name in kinds.ordered(gaps["policy"], labels.policies):
        family = kinds.family(name, labels.policies)
        y += 1 + FAMILY_GAP * (before not in (None, family))
        rows[name], before = y, family
    row = pl.col("policy").replace_strict(list(rows), list(rows.values()), return_dtype=pl.Int64)
    marked = (pl.col("lo") > ROUNDING) | (pl.col("hi") < -ROUNDING)
    return by_policy(gaps.with_columns(row=row, marked=marked).join(counts, on="budget", how="left"), labels.policies)


@style.styled()
def draw_gap_map(numbers: pl.DataFrame, context: PairContext) -> Figure:
    """Draw what ``gap_map`` returned."""
    labels = context.labels
    rows = numbers.select("policy", "row", "family").unique(maintain_order=True)
    height = 1.5 + 0.155 * (rows["row"][-1] + 1 + STRIP)
    figure = style.new_figure(style.COLUMN, height, labels.titled(_gap_map_finding(numbers)), labels.source)
    axes = figure.subplots()
    _map(axes, numbers)
    for x, (_, *ahead) in enumerate(tallies(numbers)):
        for y, text in zip(STRIP_ROWS, ahead, strict=True):
            axes.text(x + 0.5, y, text, ha="center", va="center_baseline", fontsize=7)
    axes.axhline(-0.15, color=palette.MUTED, linewidth=0.6)
    _row_names(axes, rows, labels)
    axes.set_xlabel("budget N (samples per question)")
    lead = "RL \N{MINUS SIGN} Base (percentage points); red: RL leads, blue: Base leads"
    note = f"bold: {labels.general.confidence:.0%} interval excludes 0; red name: policy of the RL default"
    figure.supxlabel(f"{lead}\n{note}", fontsize=7)
    return figure


def _gap_map_finding(numbers: pl.DataFrame) -> str:
    """In how many cells an interval shows that a side leads."""
    return say(LEADS, counted(numbers.select("lo", "hi").iter_rows()))


def _map(axes: Axes, numbers: pl.DataFrame) -> None:
    """Rows of the map with an empty one between families."""
    budgets, places = sorted(set(numbers["budget"])), range(max(numbers["row"]) + 1)
    cells = numbers.with_columns(
        text=pl.col("rl_minus_base").map_elements(lambda gap: percent(gap, sign="+"), pl.String)
    )
    shown = style.to_pandas(cells, percent=["rl_minus_base"])
    gaps, texts, marked = (
        shown.pivot(index="row", columns="budget", values=name).reindex(index=places, columns=budgets)
        for name in ("rl_minus_base", "text", "marked")
    )
    limit = 100 * max(abs(float(gap)) for gap in numbers["rl_minus_base"]) or 1.0
    look: dict[str, Any] = {"cmap": COLOURS, "vmin": -limit, "vmax": limit, "linewidths": 0.8, "linecolor": "white"}
    bar: dict[str, Any] = {"location": "bottom", "aspect": 45, "pad": 0.02}
    words: dict[str, Any] = {"fontsize": 7, "va": "center_baseline"}
    sns.heatmap(gaps, annot=texts.fillna(""), fmt="", annot_kws=words, cbar_kws=bar, ax=axes, **look)
    for text in axes.texts:
        x, y = (int(place) for place in text.get_position())
        if marked.loc[places[y], budgets[x]] is True:
            text.set_fontweight("bold")
    axes.set_ylim(len(places), -STRIP)
    axes.set(ylabel="")
    axes.tick_params(length=0, labelrotation=0)


def _row_names(axes: Axes, rows: pl.DataFrame, labels: Labels) -> None:
    texts = ["policies with Base \N{GREATER-THAN OR EQUAL TO} RL", "without RL default", *rows["policy"]]
    axes.set_yticks([*STRIP_ROWS, *(row + 0.5 for row in rows["row"])], texts)
    for tick, text in zip(axes.get_yticklabels(), texts, strict=True):
        tick.set_color(palette.RL_COLOUR if text == labels.general.default_policy else "black")
    figure, names = axes.get_figure(root=True), style.family_names(palette.families(rows))
    assert figure is not None
    place = axes.get_yaxis_transform() + ScaledTranslation(BAR_AT / 72, 0, figure.dpi_scale_trans)
    bar: dict[str, Any] = {"linewidth": 2, "transform": place, "clip_on": False, "solid_capstyle": "butt"}
    beside: dict[str, Any] = {"xycoords": ("axes fraction", "data"), "textcoords": "offset points", "fontsize": 7}
    for (kind,), members in rows.group_by("family", maintain_order=True):
        colour, top, bottom = palette.FAMILY_COLOURS[str(kind)], members["row"][0] + 0.5, members["row"][-1] + 0.5
        beside["rotation"] = 0 if bottom - top < 2 else 90  # upright where the family is too short for it
        beside |= {"color": colour, "ha": "right", "va": "center", "annotation_clip": False}
        axes.annotate(names[str(kind)], (0, (top + bottom) / 2), (BAR_AT - 4, 0), **beside)
        axes.plot([0, 0], [top - 0.4, bottom + 0.4], color=colour, **bar)
