"""Elements of the two schematics: boxes, arrows and an empty canvas in units of one inch."""

from __future__ import annotations

from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch

from searchlens.figures import style

INK, PAPER, FRAME = "#222222", "#F7F7F5", "#8A8A8A"
TITLE_HEIGHT = 0.45


def canvas(width: float, height: float, first: str, second: str) -> tuple[Figure, Axes]:
    """A figure with a title of two lines and one pair of axes, in inches, below it."""
    figure = style.new_figure(width, height, f"{first}\n{second}", "sampled")
    figure.set_layout_engine("none")
    axes = figure.add_axes((0, 0, 1, 1 - TITLE_HEIGHT / height))
    axes.set_xlim(0, width)
    axes.set_ylim(0, height - TITLE_HEIGHT)
    axes.set_axis_off()
    return figure, axes


def box(
    axes: Axes, corner: tuple[float, float], size: tuple[float, float], face: str = PAPER, edge: str = FRAME
) -> None:
    """A box with round corners; ``corner`` is the lower left one."""
    look: dict[str, Any] = {"facecolor": face, "edgecolor": edge, "linewidth": 0.8, "zorder": 1}
    axes.add_patch(FancyBboxPatch(corner, *size, boxstyle="round,pad=0,rounding_size=0.06", **look))


def arrow(axes: Axes, start: tuple[float, float], end: tuple[float, float], heads: str = "-|>") -> None:
    """An arrow from start to end; ``<|-|>`` has a head at both."""
    look: dict[str, Any] = {"color": INK, "linewidth": 1.0, "shrinkA": 0, "shrinkB": 0, "zorder": 3}
    axes.add_patch(FancyArrowPatch(start, end, arrowstyle=heads, mutation_scale=8, **look))


def write(axes: Axes, x: float, y: float, text: str, **look: Any) -> None:
    """Text, centred at a point unless ``look`` says otherwise."""
    settings: dict[str, Any] = {"ha": "center", "va": "center", "fontsize": 7, "color": INK, "zorder": 5}
    axes.text(x, y, text, **(settings | look))
