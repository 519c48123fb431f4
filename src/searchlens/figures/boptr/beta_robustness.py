"""Which exponent each benchmark of the anchor prefers, under three constraints on the policy, and how firmly."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from searchlens import catalogue
from searchlens.claims import ASSIGNED, ROUNDING, say
from searchlens.figures import style
from searchlens.figures.boptr import parts
from searchlens.figures.boptr.context import FigureContext

CONSTRAINTS = {"R0": "o", "R1": "s", "R2": "^"}
TIED_COLOUR, EXACT_COLOUR, OWN_COLOUR = "#DCE6F2", "#9FBFE0", "#E69F00"
COLUMNS = (
    "benchmark",
    "regime",
    "constraint",
    "beta",
    "lo",
    "hi",
    "exact",
    "tied",
    "assigned",
    "own",
    "path",
    "reason",
)
STEP = 0.1
LETTERS = 46


@catalogue.figure("beta_robustness", stage="boptr")
def numbers(context: FigureContext) -> pl.DataFrame:
    """The anchor model's rows of ``regime_betas`` on its fitted benchmarks; tied exponents separated by spaces."""
    betas = context.frames["regime_betas"]
    rows = betas.filter(~pl.col("a_priori"), model=context.plan.anchor_model).select(COLUMNS)
    texts = [pl.col(name).list.eval(pl.element().cast(pl.String)).list.join(" ") for name in ("exact", "tied")]
    return rows.with_columns(texts)


@style.styled()
def draw(numbers: pl.DataFrame, context: FigureContext) -> Figure:
    """Draw what ``numbers`` returned."""
    heights = parts.places(numbers["benchmark"].to_list(), gap=1.0)
    height = 1.75 + 0.2 * (heights[-1] + 1)
    anchor, benchmarks = context.plan.anchor_model, numbers["benchmark"].unique(maintain_order=True).to_list()
    second = f"{anchor}: exponents \N{GREEK SMALL LETTER BETA} by benchmark"
    figure = context.new_figure(style.COLUMN, height, _finding(numbers), second, [anchor], benchmarks)
    axes = figure.subplots()
    for y, row in zip(heights, numbers.iter_rows(named=True), strict=True):
        _row(axes, y, row)
    for (benchmark,), rows in numbers.with_columns(y=pl.Series(heights)).group_by("benchmark", maintain_order=True):
        _benchmark(axes, rows, context.plan.title(str(benchmark)))
    axes.set_yticks(heights, numbers["constraint"].to_list())
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    axes.set_ylim(heights[-1] + 1.0, -1.5)
    axes.set_xlabel("\N{GREEK SMALL LETTER BETA} (0: budget does not matter, 1: proportional)")
    figure.legend(handles=_handles(context), loc="outside lower center", ncols=1)
    return figure


def _finding(numbers: pl.DataFrame) -> str:
    known = numbers.drop_nulls(["lo", "hi", "assigned"])
    inside = known["assigned"].is_between(known["lo"] - ROUNDING, known["hi"] + ROUNDING).sum()
    return say(ASSIGNED, {"inside": inside, "known": known.height})


def _row(axes: Axes, y: float, row: Mapping[str, Any]) -> None:
    if row["beta"] is None:
        axes.annotate(parts.undefined(row["reason"], LETTERS), (0, y), (0, 0), **parts.BESIDE, color=style.MUTED)
        return
    for name, colour in (("tied", TIED_COLOUR), ("exact", EXACT_COLOUR)):
        for beta in map(float, str(row[name]).split()):
            axes.barh(
                y, STEP, left=beta - STEP / 2, height=0.8, color=colour, zorder=1, gid=f"{name}-{row['constraint']}"
            )
    ink: dict[str, Any] = {"color": "black", "zorder": 4}
    axes.plot([row["lo"], row["hi"]], [y, y], linewidth=1.2, marker="|", markersize=6, gid="interval", **ink)
    axes.plot(row["beta"], y, marker=CONSTRAINTS[str(row["constraint"])], markersize=4, gid="fit", **ink)


def _benchmark(axes: Axes, rows: pl.DataFrame, title: str) -> None:
    first = rows.row(0, named=True)
    top, bottom = min(rows["y"].to_list()) - 0.5, max(rows["y"].to_list()) + 0.5
    axes.text(-0.05, top - 0.1, f"{title} ({first['regime']})", va="bottom", fontsize=7, weight="bold")
    line: dict[str, Any] = {"linewidth": 0.8, "markersize": 5, "clip_on": False}
    assigned: dict[str, Any] = {"color": style.RL_COLOUR, "marker": "v", "markevery": [0], "zorder": 3}
    axes.plot([first["assigned"]] * 2, [top, bottom], gid="assigned", **assigned, **line)
    if first["own"] is not None:
        own: dict[str, Any] = {"color": OWN_COLOUR, "marker": "^", "markevery": [1], "linestyle": (0, (2, 1))}
        axes.plot([first["own"]] * 2, [top, bottom], zorder=3.5, gid="own", **own, **line)


def _handles(context: FigureContext) -> list[Line2D | Patch]:
    names = "R0: a policy per budget, R1: one policy, R2: RL default"
    return [
        Line2D(
            [],
            [],
            color="black",
            marker="o",
            markersize=4,
            linewidth=1.2,
            label=f"best fit, {context.interval} (refitted)",
        ),
        Patch(color=EXACT_COLOUR, label="same error as the best fit"),
        Patch(color=TIED_COLOUR, label="within one standard error of it"),
        Line2D([], [], color=style.RL_COLOUR, linewidth=0.8, marker="v", label="assigned to the regime beforehand"),
        Line2D([], [], color=OWN_COLOUR, linestyle=(0, (2, 1)), marker="^", label="this cohort's own estimate"),
        Line2D([], [], linestyle="none", label=names),
    ]
