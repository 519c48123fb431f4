"""Exponents: what each cell prefers, how firmly, and what the regimes change."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import groupby
from typing import Any

import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from searchlens.analysis.claims import ASSIGNED, DASH, ROUNDING, interval, number, say
from searchlens.boptr.cohort import CohortPlan
from searchlens.catalogue import figure, table
from searchlens.reporting.boptr import context as shared
from searchlens.reporting.figures import palette, style
from searchlens.reporting.tables import table as fmt


@table("regime_betas", stage="boptr")
def regime_betas(context: shared.BoptrContext) -> fmt.Table:
    """The exponents that each cell prefers, next to the frozen one."""
    betas, stability, plan = context.frames["regime_betas"], context.frames["beta_stability"], context.plan
    notes = [
        "R0: a policy for each budget; R1: one policy; R2: the RL default policy. Each is fitted over the grids of α"
        f" and β on the AR pool. Brackets: {context.options.confidence:.0%} interval of β with the fit made again in"
        " bootstrap draws.",
        "Same error: every exponent of the grid that reaches the same error; after R1 of every model, those within one"
        " bootstrap standard deviation. Among equals the fit takes the one nearest to the frozen β: there, agreement"
        " with it is no evidence.",
        "Frozen β: the paper's constants, in every main row. Own β: the estimate of this cohort, without the benchmark"
        " itself if its regime has another one.",
        "†: regime assigned beforehand; nothing is fitted on the benchmark.",
    ]
    blocks = [
        fmt.part(_anchor_lines(betas.filter(model=plan.anchor_model), plan), f"{plan.anchor_model}: R0, R1, R2"),
        fmt.part(_r1_lines(betas, plan), "R1 β of every model, with the exponents within one standard deviation"),
    ]
    if stability.filter(pl.col("without").is_not_null())["beta"].is_not_null().any():
        lines: list[fmt.Line] = []
        for (benchmark,), rows in stability.group_by("benchmark", maintain_order=True):
            line = {"benchmark": plan.title(str(benchmark))}
            for row in rows.iter_rows(named=True):
                name = "all models" if row["without"] is None else f"without {row['without']}"
                line[name] = number(row["beta"], 1)
            lines.append(line)
        blocks.append(fmt.part(lines, "own β with each model left out"))
    return context.table(fmt.stacked(fits=betas, stability=stability), blocks, notes, betas, stability)


def _anchor_lines(betas: pl.DataFrame, plan: CohortPlan) -> list[fmt.Line]:
    lines = []
    for (benchmark,), rows in betas.group_by("benchmark", maintain_order=True):
        first = rows.row(0, named=True)
        line = {"benchmark": plan.title(str(benchmark)), "regime": first["regime"] + "†" * first["a_priori"]}
        for row in rows.iter_rows(named=True):
            line[f"{row['constraint']} β"] = interval(row["beta"], row["lo"], row["hi"], 1)
            line[f"{row['constraint']} same error"] = ranges(row["exact"])
        lines.append(line | {"frozen β": number(first["assigned"]), "own β": number(first["own"])})
    return lines


def _r1_lines(betas: pl.DataFrame, plan: CohortPlan) -> list[fmt.Line]:
    lines = []
    for (model,), rows in betas.filter(~pl.col("a_priori"), constraint="R1").group_by("model", maintain_order=True):
        line = {"model": shared.model_name(plan, str(model))}
        for row in rows.iter_rows(named=True):
            tied = DASH if row["beta"] is None else f"{number(row['beta'], 1)} ({ranges(row['tied'])})"
            line[plan.title(row["benchmark"])] = tied
        lines.append(line)
    return lines


def ranges(exponents: list[float] | None) -> str:
    """Values of the grid of beta, neighbours joined to a range.

    >>> ranges([0.0, 0.1, 0.2, 0.7])
    '0–0.2, 0.7'
    """
    if not exponents:
        return DASH
    steps = [round(10 * value) for value in exponents]
    runs = [[step for _, step in run] for _, run in groupby(enumerate(steps), lambda pair: pair[1] - pair[0])]
    return ", ".join(f"{run[0] / 10:g}" if len(run) == 1 else f"{run[0] / 10:g}–{run[-1] / 10:g}" for run in runs)


MAPS = {"three regimes": "three regimes", "two regimes": "two regimes", "three - two": "three − two"}


@table("beta_sensitivity", stage="boptr")
def beta_sensitivity(context: shared.BoptrContext) -> fmt.Table:
    """Three regimes against two, in which the floor benchmarks are math."""
    frame, plan = context.frames["beta_sensitivity"], context.plan
    floor = [name for name in plan.with_role("fitted") if plan.benchmarks[name].regime == "floor"]
    lines = []
    for (name,), group in frame.group_by("map", maintain_order=True):
        rows = {row["benchmark"]: row for row in group.iter_rows(named=True)}
        line = {"regime map": MAPS[str(name)]}
        line |= {f"N̂(b) on {plan.title(d)}": fmt.word(rows[d]["path"]) for d in floor if d in rows}
        for benchmark, row in rows.items():
            title = "mean" if benchmark is None else plan.title(benchmark)
            line[title] = shared.corrected(row, "+" if name == "three - two" else "")
        lines.append(line)
    notes = [
        f"{plan.anchor_model}; only the columns of floor benchmarks can differ. {shared.ERROR}",
        shared.CORRECTED_SIZE,
        context.brackets,
        *_overlap_note(frame, plan),
        "The two-regime row is a counterfactual, not an adopted rule.",
    ]
    return context.table(frame, [fmt.part(lines, rule_before=(len(lines) - 1,))], notes, frame)


def _overlap_note(frame: pl.DataFrame, plan: CohortPlan) -> list[str]:
    row = next(frame.filter(map="three - two").iter_rows(named=True), None)
    if row is None:
        return []
    if row["error"] is None or row["benchmark"] is None:
        return ["No floor benchmark was sampled: the maps are the same."]
    overlap = "overlap" if row["overlap"] else "do not overlap"
    difference = f"three − two on {plan.title(row['benchmark'])}"
    if row["lo_corrected"] is None:
        return [f"Both maps predict the same: {difference} is 0."]
    zero = "contains 0" if row["lo_corrected"] <= 0 <= row["hi_corrected"] else "excludes 0"
    return [f"The interval of {difference} {zero}; the intervals of the two paths {overlap} at every budget."]


# ---- figure

CONSTRAINTS = {"R0": "o", "R1": "s", "R2": "^"}
TIED_COLOUR, EXACT_COLOUR, OWN_COLOUR, ASSIGNED_COLOUR = "#DCE6F2", "#9FBFE0", "#E69F00", "#882255"
COLUMNS = (
    *("benchmark", "regime", "constraint", "beta", "lo", "hi", "exact", "tied", "assigned", "own"),
    *("path", "reason"),
)
STEP = 0.1
GAP, ABOVE = 1.5, 0.45
"""In rows: between benchmarks, and of the name of one above its first row, so that no mark lies on it."""
LETTERS = 46


@figure("beta_robustness", stage="boptr")
def numbers(context: shared.BoptrContext) -> pl.DataFrame:
    """The anchor model's rows of ``regime_betas`` on its fitted benchmarks; tied exponents separated by spaces."""
    rows = context.frames["regime_betas"].filter(~pl.col("a_priori"), model=context.plan.anchor_model).select(COLUMNS)
    texts = [pl.col(name).list.eval(pl.element().cast(pl.String)).list.join(" ") for name in ("exact", "tied")]
    return rows.with_columns(texts)


@style.styled()
def draw(numbers: pl.DataFrame, context: shared.BoptrContext) -> Figure:
    """Draw what ``numbers`` returned."""
    heights = shared.places(numbers["benchmark"].to_list(), gap=GAP)
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
    axes.set_ylim(heights[-1] + 1.0, -1.9)
    axes.set_xlabel("\N{GREEK SMALL LETTER BETA} (0: budget does not matter, 1: proportional)")
    figure.legend(handles=_handles(context), loc="outside lower center", ncols=1)
    return figure


def _finding(numbers: pl.DataFrame) -> str:
    known = numbers.drop_nulls(["lo", "hi", "assigned"])
    inside = known["assigned"].is_between(known["lo"] - ROUNDING, known["hi"] + ROUNDING).sum()
    return say(ASSIGNED, {"inside": inside, "known": known.height})


def _row(axes: Axes, y: float, row: Mapping[str, Any]) -> None:
    if row["beta"] is None:
        axes.annotate(shared.undefined(row["reason"], LETTERS), (0, y), (0, 0), **shared.BESIDE, color=palette.MUTED)
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
    axes.text(-0.05, top - ABOVE, f"{title} ({first['regime']})", va="bottom", fontsize=7, weight="bold")
    line: dict[str, Any] = {"linewidth": 0.8, "markersize": 5, "clip_on": False}
    assigned: dict[str, Any] = {"color": ASSIGNED_COLOUR, "marker": "v", "markevery": [0], "zorder": 3}
    axes.plot([first["assigned"]] * 2, [top, bottom], gid="assigned", **assigned, **line)
    if first["own"] is not None:
        own: dict[str, Any] = {"color": OWN_COLOUR, "marker": "^", "markevery": [1], "linestyle": (0, (2, 1))}
        axes.plot([first["own"]] * 2, [top, bottom], zorder=3.5, gid="own", **own, **line)


def _handles(context: shared.BoptrContext) -> list[Line2D | Patch]:
    return [
        style.key(f"best fit, {context.interval} (refitted)", color="black", marker="o", markersize=4, linewidth=1.2),
        Patch(color=EXACT_COLOUR, label="same error as the best fit"),
        Patch(color=TIED_COLOUR, label="within one standard error of it"),
        style.key("assigned to the regime beforehand", color=ASSIGNED_COLOUR, linewidth=0.8, marker="v"),
        style.key("this cohort's own estimate", color=OWN_COLOUR, linestyle=(0, (2, 1)), marker="^"),
        style.key("R0: a policy per budget, R1: one policy, R2: RL default", linestyle="none"),
    ]
