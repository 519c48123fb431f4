"""Schematic: a frozen Base model inside the five components of a policy; metrics come afterwards."""

from __future__ import annotations

import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from searchlens import catalogue
from searchlens.figures import style
from searchlens.figures.boptr import sketch
from searchlens.figures.boptr.context import FigureContext
from searchlens.frames import pick

COMPONENTS = {
    "local policy": "reshapes\nprobabilities:\ntemperature,\ntop-k, top-p,\nmin-p, typical",
    "controller": "shape of search:\nautoregressive,\ntree, branching,\nresampling",
    "evaluator": "scores candidates:\nlikelihood, rollout\nutility, outside\nverifier",
    "transition": "next state:\nappend, expand,\nbranch, resample",
    "scheduler": "spends the budget\non samples,\nbranches,\nresampling steps",
}
COLOURS = dict(zip(COMPONENTS, ("#56B4E9", "#009E73", "#E69F00", "#C785C4", "#D55E00"), strict=True))
METRICS = {
    "P": "pass@k:\nsupport",
    "SC": "majority vote:\nconcentration",
    "BoN": "best by evaluator:\nselection",
    "FFS": "first to finish:\nearly success",
}
SPACING, WIDTH = 1.0, 0.95


@catalogue.figure("udf", stage="boptr")
def numbers(_context: FigureContext) -> pl.DataFrame:
    """What the boxes say, line breaks included; nothing here is measured."""
    rows = [("component", *item) for item in COMPONENTS.items()] + [("metric", *item) for item in METRICS.items()]
    return pl.DataFrame(rows, ["part", "name", "text"], orient="row")


@style.styled()
def draw(numbers: pl.DataFrame, _context: FigureContext) -> Figure:
    """Draw what ``numbers`` returned."""
    second = "schematic: five components make a policy, and a budget makes it an operating point"
    figure, axes = sketch.canvas(style.PAGE, 3.7, "Unified decoding framework", second)
    sketch.box(axes, (0.1, 0.66), (5.15, 2.5), face="white", edge=style.BASE_COLOUR)
    around = "policy \N{GREEK SMALL LETTER PI}: five components around one frozen model"
    sketch.write(axes, 2.67, 3.02, around, color=style.BASE_COLOUR)
    for i, (name, text) in enumerate(pick(numbers, part="component").select("name", "text").iter_rows()):
        _component(axes, 0.2 + SPACING * i, name, text)
    sketch.box(axes, (0.2, 0.78), (4 * SPACING + WIDTH, 0.54), face="#E8E8E8", edge=sketch.INK)
    sketch.write(axes, 2.67, 1.14, "frozen Base model", weight="bold", fontsize=8)
    sketch.write(axes, 2.67, 0.93, "the same weights under every policy: prompt and prefix in, next-token logits out")
    _afterwards(axes, pick(numbers, part="metric"))
    point = "operating point  u = (\N{GREEK SMALL LETTER PI}, n):  a policy and n samples per question"
    sketch.write(axes, 3.5, 0.40, point, fontsize=8, weight="bold")
    sketch.write(axes, 3.5, 0.17, "metrics read the n candidates and are no part of the policy", color=style.MUTED)
    return figure


def _component(axes: Axes, left: float, name: str, text: str) -> None:
    middle = left + WIDTH / 2
    sketch.box(axes, (left, 1.78), (WIDTH, 1.1), face=f"{COLOURS[name]}22", edge=COLOURS[name])
    sketch.write(axes, middle, 2.76, name, weight="bold", fontsize=7.5)
    sketch.write(axes, middle, 2.60, text, va="top", linespacing=1.2)
    sketch.arrow(axes, (middle, 1.76), (middle, 1.36), heads="<|-|>")


def _afterwards(axes: Axes, metrics: pl.DataFrame) -> None:
    sketch.box(axes, (5.55, 0.66), (1.35, 2.5), face="white")
    sketch.arrow(axes, (5.27, 1.9), (5.53, 1.9))
    sketch.write(axes, 6.22, 3.02, "metrics, afterwards", weight="bold")
    for i, (name, text) in enumerate(metrics.select("name", "text").iter_rows()):
        y = 2.65 - 0.52 * i
        sketch.write(axes, 5.62, y, name, weight="bold", fontsize=7.5, ha="left")
        sketch.write(axes, 5.95, y, text, ha="left")
