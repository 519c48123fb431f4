"""How well each way of predicting the anchor's RL curves does over its benchmarks."""

from __future__ import annotations

import textwrap

import polars as pl
from matplotlib.figure import Figure

from searchlens import catalogue
from searchlens.figures import style
from searchlens.figures.boptr import parts
from searchlens.figures.boptr.context import FigureContext

COLUMNS = ("pool", "tier", "label", "kind", *parts.ERROR_VALUES, "cells", "of", "reason")
POOLS = {"ar": "sampling policies only", "full": "with search policies"}


@catalogue.figure("horizontal", stage="boptr")
def numbers(context: FigureContext) -> pl.DataFrame:
    """The anchor's rows of ``means`` over its fitted benchmarks, the autoregressive pool first."""
    scope = f"horizontal/{context.plan.anchor_model}"
    rows = context.frames["means"].filter(scope=scope, column="mean", exponents="paper", mu="cohort").select(COLUMNS)
    return rows.sort(pl.col("pool") != "ar", maintain_order=True)


@style.styled()
def draw(numbers: pl.DataFrame, context: FigureContext) -> Figure:
    """Draw what ``numbers`` returned."""
    rows = parts.defined(numbers)
    anchor, benchmarks = context.plan.anchor_model, context.plan.with_role("fitted")
    titles = ", ".join(map(context.plan.title, benchmarks))
    second = textwrap.shorten(f"{anchor}: mean error of predicted RL curves on {titles}", 110, placeholder=" ...")
    finding, missing = parts.least(rows.filter(pool="ar")), parts.absent(numbers, 120)
    pools = (rows if rows.height else numbers)["pool"].unique(maintain_order=True).to_list()
    sizes = [rows.filter(pool=pool).height for pool in pools]
    height = 1.7 + 0.19 * sum(sizes) + 0.13 * len(missing.splitlines())
    figure = context.new_figure(style.PAGE, height, finding, second, [anchor], benchmarks)
    ratios = [n + 0.8 for n in sizes]
    panels = figure.subplots(len(pools), 1, sharex=True, squeeze=False, height_ratios=ratios)[:, 0]
    for axes, pool in zip(panels, pools, strict=True):
        some = rows.filter(pool=pool)
        parts.error_rows(axes, some, parts.places(["rival" if kind == "rival" else "" for kind in some["kind"]]))
        axes.set_title(POOLS[pool], color=style.MUTED)
    parts.error_axis(panels[-1], rows)
    parts.legend(figure, parts.kind_handles(rows["kind"], context), missing, 3)
    return figure
