"""Whether Base features predict the scale of a model left out: the observed score against shuffled ones."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from searchlens.figures import style
from searchlens.figures.boptr import parts
from searchlens.figures.boptr.parts import Study

BINS = 25
NULL_COLOUR, FEATURE_COLOUR = "#BBBBBB", style.BASE_COLOUR


def numbers(null: pl.DataFrame, summary: pl.DataFrame, features: pl.DataFrame) -> pl.DataFrame:
    """The shuffled scores (layer ``null``), the best one (``observed``) and those of single features (``feature``)."""
    shuffled = null.select(pl.lit("null").alias("layer"), "shuffle", score="score")
    best = summary.filter(selection="all_models")
    observed = best.select(
        pl.lit("observed").alias("layer"), "models", "p", "q05", "q95", "reason", score="loo_pseudo_r2"
    )
    single = features.select(pl.lit("feature").alias("layer"), "feature", "reason", score="loo_pseudo_r2")
    return pl.concat([observed, single, shuffled], how="diagonal")


@style.styled()
def draw(numbers: pl.DataFrame, study: Study) -> Figure:
    """Draw what ``numbers`` returned."""
    alpha = "ln \N{GREEK SMALL LETTER ALPHA}"
    second = f"linear prediction of {alpha} from Base, each model left out"
    observed = numbers.filter(layer="observed").row(0, named=True)
    models = f"{observed['models']} model{'s' if observed['models'] != 1 else ''}"
    figure = study.new_figure(style.COLUMN, 2.9 if observed["score"] is not None else 1.5, models, second)
    axes = figure.subplots()
    if observed["score"] is None:
        parts.say(axes, f"no score: {parts.reason(observed['reason'])}", 32)
        return figure
    null, features = numbers.filter(layer="null"), numbers.filter(layer="feature").drop_nulls("score")
    axes.hist(null["score"].to_list(), bins=BINS, color=NULL_COLOUR, gid="null")
    axes.axvline(observed["score"], color=style.RL_COLOUR, linewidth=1.6, gid="observed")
    _rug(axes, features["score"].to_list())
    axes.set_ylabel("shuffles")
    axes.set_xlabel("leave-one-model-out pseudo-$R^2$ (1: perfect)")
    axes.set_title(_verdict(observed, null.height), color=style.MUTED)
    handles = [
        Patch(color=NULL_COLOUR, label=f"best feature, {alpha} shuffled over models ({null.height})"),
        Line2D([], [], color=style.RL_COLOUR, linewidth=1.6, label="best feature, as observed"),
        Line2D(
            [], [], color=FEATURE_COLOUR, marker="|", linestyle="none", label=f"each of {features.height} Base features"
        ),
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=1)
    return figure


def _rug(axes: Axes, scores: list[float]) -> None:
    look: dict[str, Any] = {
        "marker": "|",
        "markersize": 7,
        "linestyle": "none",
        "color": FEATURE_COLOUR,
        "gid": "features",
    }
    axes.plot(scores, [0.035] * len(scores), transform=axes.get_xaxis_transform(), **look)


def _verdict(observed: Mapping[str, Any], shuffles: int) -> str:
    score = f"{observed['score']:.2f}".replace("-", "\N{MINUS SIGN}")
    return f"observed {score}, p = {observed['p']:.2f} over {shuffles} shuffles"
