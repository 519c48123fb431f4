"""Base alone on benchmarks without an RL side, and how much RL a scale needs."""

from __future__ import annotations

import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from searchlens.analysis.claims import Row, interval, number, percent
from searchlens.boptr.frontier import TAU
from searchlens.catalogue import figure, table
from searchlens.config.boptr import BoptrOptions
from searchlens.reporting.boptr import context as shared
from searchlens.reporting.boptr.protocol import contrast_notes
from searchlens.reporting.figures import palette, style
from searchlens.reporting.tables import table as fmt

# ---- Base alone


@table("descriptive", stage="boptr")
def descriptive(context: shared.BoptrContext) -> fmt.Table:
    """Base alone on benchmarks without an RL side."""
    frame, plan = context.frames["descriptive"], context.plan
    lines = []
    for (model, benchmark), rows in frame.group_by("model", "benchmark", maintain_order=True):
        first = rows.row(0, named=True)
        line = shared.cell_line(plan, str(model), str(benchmark))
        line["n"] = fmt.word(first["questions"])
        line |= {
            f"b = {row['b']}": percent(row["value"], row["lo"], row["hi"])
            for row in rows.iter_rows(named=True)
            if row["b"] is not None
        }
        line |= {"P_max": percent(first["p_max"]), "reached by": fmt.word(first["policy"])}
        lines.append(line | {"headroom": percent(first["headroom"]), "N*": number(first["knee"], 1)})
    notes = [
        f"Base pass@b under {plan.default_policy}, in %. {context.single_estimates} P_max: best AR policy at"
        f" the largest budget; N*: smallest budget within {percent(TAU)} points of the value there."
        " No RL was sampled on these benchmarks: nothing is predicted.",
        *([] if frame.height else ["The cohort has no descriptive benchmark."]),
    ]
    return context.table(frame, [fmt.part(lines)], notes, frame)


# ---- a prior in place of RL

RL_USED = {
    "Z0-u": ("0", fmt.YES),
    "Z0-N*": ("0", fmt.YES),
    "B0": ("1", fmt.NO),
    "V2": ("1", fmt.NO),
    "Z1-u": ("1", fmt.YES),
    "Z1-N*": ("1", fmt.YES),
    "V3": ("each model", fmt.NO),
    "V1": ("oracle", fmt.NO),
}
"""Row to the RL models that it reads, and whether it reads base@rltrain."""


@table("frontier", stage="boptr")
def frontier(context: shared.BoptrContext) -> fmt.Table:
    """How much RL a scale needs."""
    rows = context.frames["means"].filter(scope="frontier")
    columns = {"micro": "micro", "macro": "macro", "matched micro": "matched micro"}
    means = shared.Means(context, rows.filter(pl.col("rule").is_in(list(RL_USED))), columns, "micro")
    lines = {
        key: {"row": line["row"], "#RL": RL_USED[key][0], "base@rltrain": RL_USED[key][1], **line}
        for key, line in means.lines().items()
    }
    micro = rows.filter(exponents="paper", pool="ar", column="micro")
    notes = [
        "Rows: how α is known, from no RL (Z0) over one anchor (B0, V2, Z1) to each model's own (V3, V1)."
        f" {shared.ERROR}",
        "#RL: models whose RL is read. V2 reads the anchor's RL on every benchmark, B0 and Z1 on one. No RL holds for"
        " α alone: β and the selector's prototype come from the anchor's RL in every row.",
        f"N*: the smallest budget at which Base on base@rltrain is within τ = {TAU:g} of its last estimate.",
        context.brackets,
        shared.CORRECTED,
        "Sweeps: no path is chosen again in the draws, so their errors are corrected for the first bias alone, and may"
        " differ slightly from those of the same row above.",
        shared.OVERALL_NOTE,
        *means.fewer_cells(),
        _probe_note(context.frames["probe"].row(0, named=True), context.options),
        *contrast_notes(context.frames["contrasts"], "cohort", "V3", RL_USED),
        *means.closing(rows, context.frames["probe"]),
    ]
    blocks = [
        shared.block(lines, "AR pool", ("B0", "V3")),
        *_sweep(micro, "λ", "sweep of λ (micro; λ = 0 is B0 where the prior is known)"),
        *_sweep(micro, "τ", "sweep of τ"),
        *means.full_pool(),
        *means.own_exponents(),
    ]
    return fmt.Table(rows.drop("scope"), blocks, notes)


def _sweep(rows: pl.DataFrame, symbol: str, title: str) -> list[fmt.Part]:
    """Rows named like ``Z1-u λ=0.25``: a line for each prior, a column for each setting."""
    lines: dict[str, fmt.Line] = {}
    cells: dict[str, str] = {}
    for row in rows.filter(pl.col("rule").str.contains(f" {symbol}=")).iter_rows(named=True):
        prior, setting = row["rule"].rsplit(" ", 1)
        lines.setdefault(prior, {"row": prior})[setting.replace("=", " = ")] = shared.corrected(row)
        cells[prior] = fmt.fraction(row["cells"], row["of"])
    complete = {prior: line | {"cells": cells[prior]} for prior, line in lines.items()}
    return [shared.block(complete, title)] if complete else []


def _probe_note(row: Row, options: BoptrOptions) -> str:
    what = f"Probe (OLS of ln α_math on P_max of base@rltrain, {row['n']} models)"
    if row["slope"] is None:
        return f"{what}: not defined ({row['reason']})."
    slope = interval(row["slope"], row["slope_lo"], row["slope_hi"])
    r = interval(row["r"], row["r_lo"], row["r_hi"])
    return (
        f"{what}: ln α_math = {number(row['intercept'])} + P_max × {slope}; r = {r};"
        f" {options.confidence:.0%} intervals of t and of Fisher's z."
    )


# ---- figure

RULES = ("Z0-u", "Z0-N*", "B0", "Z1-u", "Z1-N*", "V2", "V3", "V1")
INFORMATION = {  # how much RL a row has seen
    **dict.fromkeys(("Z0-u", "Z0-N*"), "none"),
    **dict.fromkeys(("B0", "Z1-u", "Z1-N*"), "one anchor cell"),
    "V2": "anchor, every benchmark",
    "V3": "each model's anchor cell",
    "V1": "every cell",
}
SWEEPS = {
    "lambda": ("\N{GREEK SMALL LETTER LAMDA}", "weight \N{GREEK SMALL LETTER LAMDA} of the prior"),
    "tau": ("\N{GREEK SMALL LETTER TAU}", "tolerance \N{GREEK SMALL LETTER TAU} of N*"),
}
LOOKS = {"Z0-N*": ("#882255", "v"), "Z1-u": ("#E69F00", "s"), "Z1-N*": ("#332288", "D")}
COLUMNS = ("rule", "label", "kind", "rl", *shared.ERROR_VALUES, "cells", "of", "reason")


@figure("frontier", stage="boptr")
def numbers(context: shared.BoptrContext) -> pl.DataFrame:
    """Rows of ``means`` on matched cells: layer ``rule``, then the sweeps ``lambda`` and ``tau`` and their settings."""
    scope = {"scope": "frontier", "column": "matched macro", "exponents": "paper", "mu": "cohort", "pool": "ar"}
    rows = context.frames["means"].filter(**scope).select(COLUMNS)
    order = pl.col("rule").replace_strict(RULES, range(len(RULES)), return_dtype=pl.Int64)
    main = rows.filter(pl.col("rule").is_in(RULES)).sort(order)
    layers = [main.with_columns(pl.lit("rule").alias("layer"), information=pl.col("rule").replace_strict(INFORMATION))]
    for layer, (symbol, _) in SWEEPS.items():
        swept = rows.filter(pl.col("rule").str.contains(f" {symbol}=", literal=True))
        halves = pl.col("rule").str.split_exact(f" {symbol}=", 1)
        swept = swept.with_columns(
            pl.lit(layer).alias("layer"),
            predictor=halves.struct.field("field_0"),
            setting=halves.struct.field("field_1").cast(pl.Float64),
        )
        layers.append(swept)
    return pl.concat(layers, how="diagonal")


@style.styled()
def draw(numbers: pl.DataFrame, context: shared.BoptrContext) -> Figure:
    """Draw what ``numbers`` returned."""
    rows = shared.defined(numbers.filter(layer="rule"))
    missing = shared.absent(numbers.filter(layer="rule"), 120)
    sweeps = [layer for layer in SWEEPS if shared.defined(numbers.filter(layer=layer)).height]
    second = f"mean error over matched cells by the RL information used; {context.cohort}"
    models, benchmarks = context.plan.fitted_models, context.plan.with_role("fitted")
    levels = rows["information"].n_unique()
    height = 1.6 + 0.2 * rows.height + 0.18 * levels + 0.13 * len(missing.splitlines())
    height = max(height, 1.2 + 1.3 * len(sweeps))
    figure = context.new_figure(style.PAGE, height, shared.least(rows), second, models, benchmarks)
    grid = figure.add_gridspec(max(1, len(sweeps)), 2 if sweeps else 1, width_ratios=[2.4, 1] if sweeps else [1])
    axes = figure.add_subplot(grid[:, 0])
    heights = shared.places(rows["information"].to_list(), gap=0.9)
    shared.error_rows(axes, rows, heights)
    for (level,), group in rows.with_columns(y=pl.Series(heights)).group_by("information", maintain_order=True):
        y = min(group["y"].to_list()) - 0.75  # above the rows of this amount of information
        axes.annotate(f"RL seen: {level}", (0, y), (4, 0), **shared.BESIDE, color=palette.MUTED)
        axes.set_ylim(top=heights[0] - 1.3)
    shared.error_axis(axes, rows)
    for i, layer in enumerate(sweeps):
        _sweep_panel(figure.add_subplot(grid[i, 1]), numbers.filter(layer=layer), layer)
    swept = numbers.filter(pl.col("layer") != "rule").drop_nulls("error")
    handles = [
        style.key(f"{name} swept", color=colour, marker=marker, markersize=2.5, linewidth=0.8)
        for name, (colour, marker) in LOOKS.items()
        if name in swept["predictor"]
    ]
    shared.legend(figure, [*shared.kind_handles(rows["kind"], context), *handles], missing, 3)
    return figure


def _sweep_panel(axes: Axes, rows: pl.DataFrame, layer: str) -> None:
    points = shared.defined(rows)
    for (name,), line in points.group_by("predictor", maintain_order=True):
        colour, marker = LOOKS[str(name)]
        x, y = line["setting"].to_list(), line["corrected"].to_list()
        low, high = (line[name].to_list() for name in ("lo_corrected", "hi_corrected"))
        axes.fill_between(x, low, high, color=colour, alpha=0.10, linewidth=0)
        axes.plot(x, y, color=colour, marker=marker, markersize=2.5, linewidth=0.8, gid=f"{layer}-{name}")
    if layer == "tau":
        axes.set_xscale("log")
        axes.minorticks_off()
    settings = sorted(set(points["setting"]))
    axes.set_xticks(settings, [f"{value:g}" for value in settings])
    axes.set_xlabel(SWEEPS[layer][1])
    axes.set_ylabel("error (pp)")
    axes.yaxis.set_major_locator(MaxNLocator(4, integer=True))
    axes.set_ylim(bottom=min([0.0, *points["corrected"]]))
