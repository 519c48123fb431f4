"""Whether Base features predict the scale of a model left out: the observed score against shuffled ones."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import polars as pl
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from searchlens import catalogue
from searchlens.claims import PREDICTS, ROUNDING, number, say
from searchlens.figures import style
from searchlens.figures.boptr.context import FigureContext

BINS = 40
NULL_COLOUR, FEATURE_COLOUR = "#BBBBBB", style.BASE_COLOUR
SCALES = {"standardised": "", "raw": "_raw"}  # scale of the features, and how its columns end


@catalogue.figure("v4_null", stage="boptr", optional=True)
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
def draw(numbers: pl.DataFrame, context: FigureContext) -> Figure | None:
    """Draw what ``numbers`` returned; None if there is no score, as with too few models, or if no feature varies, as
    with one Base for all of them: then every shuffle has the same score.
    """
    best, features = numbers.filter(layer="observed"), numbers.filter(layer="feature")
    if best["score"].null_count() or (features["reason"] == "constant").all():
        return None
    second = f"ln \N{GREEK SMALL LETTER ALPHA} predicted from Base: {best['models'][0]} models, each left out in turn"
    cells = context.plan.fitted_models, [context.plan.anchor_benchmark]
    figure = context.new_figure(style.COLUMN, 3.6, _finding(best, 1 - context.confidence), second, *cells)
    panels = figure.subplots(len(SCALES), 1)
    for axes, row in zip(panels, best.iter_rows(named=True), strict=True):
        _panel(axes, numbers.filter(scale=row["scale"]), row)
    panels[-1].set_xlabel("leave-one-out pseudo-R² (1: perfect)")
    handles = [
        Patch(color=NULL_COLOUR, label="feature of the largest |r|, models shuffled"),
        Line2D([], [], color=style.RL_COLOUR, linewidth=1.6, label="feature of the largest |r|, as observed"),
        Line2D([], [], color=FEATURE_COLOUR, marker="|", linestyle="none", label="each feature alone"),
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=1)
    return figure


def _finding(best: pl.DataFrame, level: float) -> str:
    """On which scales a feature predicts: better than shuffled models, and better than their mean (a score above 0)."""
    shown = (pl.col("p") <= level + ROUNDING) & (pl.col("score") > 0)
    chances = ", ".join(f"{row['scale']} R² {number(row['score'])}, p = {row['p']:.3f}" for row in best.to_dicts())
    good, others = (best.filter(which)["scale"].to_list() for which in (shown, ~shown))
    return say(PREDICTS, {"shown": " and ".join(good), "others": others, "chances": chances})


def _panel(axes: Axes, rows: pl.DataFrame, best: Mapping[str, Any]) -> None:
    null, features = rows.filter(layer="null"), rows.filter(layer="feature").drop_nulls("score")
    ends = [best["score"], *null["score"], *features["score"]]
    bars: dict[str, Any] = {
        "bins": BINS,
        "binrange": (min(ends), max(ends)),
        "color": NULL_COLOUR,
        "alpha": 1,
        "linewidth": 0,
    }
    sns.histplot(style.to_pandas(null), x="score", gid="null", ax=axes, **bars)
    axes.axvline(best["score"], color=style.RL_COLOUR, linewidth=1.6, gid="observed")
    sns.rugplot(style.to_pandas(features), x="score", height=0.08, color=FEATURE_COLOUR, linewidth=1, ax=axes)
    axes.set(xlabel="", ylabel="shuffles")
    verdict = f"{number(best['score'])}, p = {best['p']:.3f} ({null.height} shuffles)"
    axes.set_title(f"{best['scale']} features: {verdict}", fontsize=7, color=style.MUTED)
