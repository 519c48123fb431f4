"""Whether Base features predict the scale of a model left out: the observed score against shuffled ones."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from searchlens import catalogue
from searchlens.figures import style
from searchlens.figures.boptr import parts
from searchlens.figures.boptr.context import FigureContext

BINS = 40
NULL_COLOUR, FEATURE_COLOUR = "#BBBBBB", style.BASE_COLOUR
SCALES = {"standardised": "", "raw": "_raw"}  # scale of the features, and how its columns end


@catalogue.figure("v4_null", stage="boptr")
def numbers(context: FigureContext) -> pl.DataFrame:
    """Over all fitted models, by scale: each feature (layer ``feature``), the one with the largest abs(r)
    (``observed``), and the one with the largest abs(r) in each shuffle of the models (``null``).
    """
    null, summary, features = (context.frames[name].filter(mu="cohort") for name in ("v4_null", "v4_summary", "v4"))
    layers = []
    for scale, suffix in SCALES.items():
        best = summary.filter(selection="all_models", scale=scale)
        named = pl.lit(scale).alias("scale")
        layers += [
            best.select(pl.lit("observed").alias("layer"), "scale", "models", "p", "reason", score="loo_pseudo_r2"),
            features.select(
                pl.lit("feature").alias("layer"), named, "feature", "reason", score=f"loo_pseudo_r2{suffix}"
            ),
            null.select(pl.lit("null").alias("layer"), named, "shuffle", score=f"score{suffix}"),
        ]
    return pl.concat(layers, how="diagonal")


@style.styled()
def draw(numbers: pl.DataFrame, context: FigureContext) -> Figure:
    """Draw what ``numbers`` returned."""
    best = numbers.filter(layer="observed")
    count = best["models"][0]
    models = f"{count} models, each left out in turn" if count > 1 else "1 model"
    second = "ln \N{GREEK SMALL LETTER ALPHA} predicted from Base"
    cells = context.plan.fitted_models, [context.plan.anchor_benchmark]
    if best["score"].null_count():
        figure = context.new_figure(style.COLUMN, 1.5, models, second, *cells)
        style.say(figure.subplots(), f"no score: {parts.missing(best['reason'])}", 32)
        return figure
    figure = context.new_figure(style.COLUMN, 4.1, models, second, *cells)
    panels = figure.subplots(len(SCALES), 1)
    for axes, row in zip(panels, best.iter_rows(named=True), strict=True):
        _panel(axes, numbers.filter(scale=row["scale"]), row)
    panels[-1].set_xlabel("leave-one-out pseudo-$R^2$ (1: perfect)")
    handles = [
        Patch(color=NULL_COLOUR, label="feature of the largest |r|, models shuffled"),
        Line2D([], [], color=style.RL_COLOUR, linewidth=1.6, label="feature of the largest |r|, as observed"),
        Line2D([], [], color=FEATURE_COLOUR, marker="|", linestyle="none", label="each feature alone"),
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=1)
    return figure


def _panel(axes: Axes, rows: pl.DataFrame, best: Mapping[str, Any]) -> None:
    null, features = rows.filter(layer="null")["score"], rows.filter(layer="feature")["score"].drop_nulls()
    ends = [best["score"], *null, *features]
    axes.hist(null.to_list(), bins=BINS, range=(min(ends), max(ends)), color=NULL_COLOUR, gid="null")
    axes.axvline(best["score"], color=style.RL_COLOUR, linewidth=1.6, gid="observed")
    rug: dict[str, Any] = {"marker": "|", "markersize": 7, "linestyle": "none", "color": FEATURE_COLOUR}
    axes.plot(features.to_list(), [0.04] * len(features), transform=axes.get_xaxis_transform(), gid="features", **rug)
    axes.set_ylabel("shuffles")
    score = f"{best['score']:.2f}".replace("-", "\N{MINUS SIGN}")
    verdict = f"{score}, p = {best['p']:.2f} ({len(null)} shuffles)"
    axes.set_title(f"{best['scale']} features: {verdict}", fontsize=7, color=style.MUTED)
