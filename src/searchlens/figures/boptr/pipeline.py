"""Schematic of the analysis: a tree of rollouts, a landscape of operating points, recovery of RL, a law for it."""

from __future__ import annotations

from collections.abc import Iterable

import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from searchlens import catalogue
from searchlens.figures import style
from searchlens.figures.boptr import sketch
from searchlens.figures.boptr.context import FigureContext
from searchlens.frames import pick

# Shapes for the eye: pass@k of four policies of Base and of RL over five budgets, and the budget of "broad" (as its
# position) that is closest to RL at each.
SHAPES = {
    "broad": (0.16, 0.32, 0.48, 0.63, 0.76),
    "open": (0.08, 0.24, 0.46, 0.70, 0.88),
    "narrow": (0.24, 0.36, 0.47, 0.56, 0.63),
    "cold": (0.31, 0.37, 0.42, 0.46, 0.49),
    "RL": (0.34, 0.47, 0.59, 0.67, 0.75),
}
PATH = (1, 2, 3, 3, 4)
COLOURS = dict(zip(SHAPES, ("#E69F00", "#332288", "#228B5B", "#C785C4", style.RL_COLOUR), strict=True))
TITLES = (
    ("1  rollouts", "a budget spent on an\nimplicit tree of reasoning"),
    ("2  SearchLens", "every policy at every\nbudget: a landscape of Base"),
    ("3  recovery", "points of Base that match\nRL at each budget b"),
    ("4  SearchPath / BOPTR", "one law and one policy\nfor the whole path"),
)
PANEL, GAP, LOW, TALL = 1.5, 0.27, 0.08, 2.52
TREE = {  # x of the nodes at each height, and which of them rollouts reach
    1.87: ((0.75,), (0,)),
    1.52: ((0.40, 1.10), (0, 1)),
    1.17: ((0.22, 0.58, 0.92, 1.28), (1, 2)),
    0.82: ((0.14, 0.32, 0.50, 0.68, 0.84, 1.02, 1.20, 1.38), (2, 4, 5)),
}
CORRECT = 4  # leaf with the star


@catalogue.figure("pipeline", stage="boptr")
def numbers(_context: FigureContext) -> pl.DataFrame:
    """The shapes drawn, which illustrate and are not measured: part, name, step of the budget, value."""
    rows = [("curve", name, i, value) for name, values in SHAPES.items() for i, value in enumerate(values)]
    rows += [("path", "N(b)", i, float(step)) for i, step in enumerate(PATH)]
    return pl.DataFrame(rows, ["part", "name", "step", "value"], orient="row")


@style.styled()
def draw(numbers: pl.DataFrame, _context: FigureContext) -> Figure:
    """Draw what ``numbers`` returned."""
    second = "schematic: shapes are made up to show the idea, not measured"
    figure, axes = sketch.canvas(style.PAGE, 3.15, "From decoding on Base to a law for RL", second)
    lefts = [0.1 + (PANEL + GAP) * i for i in range(len(TITLES))]
    for left, (title, text) in zip(lefts, TITLES, strict=True):
        sketch.box(axes, (left, LOW), (PANEL, TALL))
        sketch.write(axes, left + PANEL / 2, LOW + TALL - 0.16, title, weight="bold", fontsize=8)
        sketch.write(axes, left + PANEL / 2, LOW + TALL - 0.45, text)
    for left in lefts[1:]:
        sketch.arrow(axes, (left - GAP + 0.03, LOW + TALL / 2), (left - 0.03, LOW + TALL / 2))
    curves = {
        str(name): rows["value"].to_list()
        for (name,), rows in pick(numbers, part="curve").group_by("name", maintain_order=True)
    }
    path = pick(numbers, part="path")["value"].cast(pl.Int64).to_list()
    _tree(axes, lefts[0])
    _landscape(axes, lefts[1], curves)
    _recovery(axes, lefts[2], curves, path)
    _law(axes, lefts[3], path)
    return figure


def _tree(axes: Axes, left: float) -> None:
    above: tuple[float, tuple[float, ...]] | None = None
    for height, (places, reached) in TREE.items():
        for i, x in enumerate(places):
            on = i in reached
            colour = style.BASE_COLOUR if on else style.CURVE_COLOUR
            if above:
                ends = ([left + above[1][i // 2], left + x], [above[0], height])
                axes.plot(*ends, color=colour, linewidth=1.2 if on else 0.6)
            axes.plot(left + x, height, marker="o", markersize=4 if on else 2.5, color=colour)
        above = height, places
    leaf, leaves = above if above else (0.0, ())
    axes.plot(left + leaves[CORRECT], leaf, marker="*", markersize=8, color=style.RL_COLOUR, zorder=4)
    sketch.write(axes, left + PANEL / 2, 0.58, "star: a correct answer", color=style.MUTED)
    sketch.write(axes, left + PANEL / 2, 0.30, "n rollouts reach\nsome of the leaves", color=style.BASE_COLOUR)


def _axes(axes: Axes, left: float, up: str, across: str) -> list[float]:
    """A small pair of axes; returns the places of the budgets."""
    axes.plot([left + 0.2, left + 0.2, left + 1.4], [1.95, 0.6, 0.6], color=sketch.INK, linewidth=0.8)
    sketch.write(axes, left + 0.11, 1.28, up, rotation=90)
    sketch.write(axes, left + 0.8, 0.49, across)
    places = [left + 0.28 + 0.26 * i for i in range(5)]
    for place, text in ((places[0], "1"), (places[-1], "16")):
        sketch.write(axes, place, 0.49, text)
    return places


def _curves(axes: Axes, places: list[float], curves: dict[str, list[float]], names: Iterable[str]) -> None:
    for name in names:
        heights = [_height(value) for value in curves[name]]
        axes.plot(
            places, heights, color=COLOURS[name], linewidth=1.8 if name == "RL" else 1.2, marker="o", markersize=2.5
        )


def _height(value: float) -> float:
    return 0.6 + 1.45 * value


def _landscape(axes: Axes, left: float, curves: dict[str, list[float]]) -> None:
    _curves(axes, _axes(axes, left, "pass@k", "budget n"), curves, [name for name in curves if name != "RL"])
    point = "operating point\nu = (\N{GREEK SMALL LETTER PI}, n)"
    sketch.write(axes, left + PANEL / 2, 0.27, point, color=style.BASE_COLOUR)


def _recovery(axes: Axes, left: float, curves: dict[str, list[float]], path: list[int]) -> None:
    x = _axes(axes, left, "pass@k", "b, n")
    _curves(axes, x, curves, ("broad", "RL"))
    for i, step in enumerate(path):
        start, end = (x[i], _height(curves["RL"][i])), (x[step], _height(curves["broad"][step]))
        axes.plot([start[0], end[0]], [start[1], end[1]], color=style.MUTED, linewidth=0.8, linestyle=(0, (2, 1.5)))
        axes.plot(*end, marker="o", markersize=6, markerfacecolor="none", color=COLOURS["broad"])
    sketch.write(axes, x[1], _height(0.60), "RL", color=style.RL_COLOUR, weight="bold")
    sketch.write(axes, x[2] + 0.12, _height(0.33), "Base", color="#B07A00", weight="bold", ha="left")
    sketch.write(axes, left + PANEL / 2, 0.27, "ring: the point of Base\nclosest to RL at b", color=style.MUTED)


def _law(axes: Axes, left: float, path: list[int]) -> None:
    x = _axes(axes, left, "N of Base", "b of RL")
    steps = [0.7 + 0.29 * i for i in range(5)]
    axes.plot([x[0], x[-1]], [steps[0], steps[-1]], color=style.CURVE_COLOUR, linewidth=0.8, linestyle=(0, (3, 2)))
    axes.plot(x, [steps[step] for step in path], color=COLOURS["broad"], marker="o", markersize=5, linestyle="none")
    axes.plot([x[0], x[-1]], [1.05, 1.84], color=style.RL_COLOUR, linewidth=1.4)
    sketch.write(axes, left + 1.36, 1.0, "N = b", color=style.MUTED, ha="right")
    law = r"$N_{\mathrm{Base}} \approx \alpha\, N_{\mathrm{RL}}^{\,\beta}$"
    sketch.write(axes, left + PANEL / 2, 0.27, law, fontsize=9)
