"""What the BOPTR figures share: rows of errors with intervals, and words for what is missing."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence
from typing import Any

import polars as pl
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from searchlens.boptr.rule import REASONS
from searchlens.figures import style
from searchlens.figures.boptr.context import FigureContext

DASH = "\N{EM DASH}"
KINDS = {  # colour, marker, name: kinds of rows, in the order of legends
    "baseline": (style.MUTED, "s", "baseline"),
    "copy": ("#E69F00", "^", "copy of the anchor's points"),
    "rule": (style.BASE_COLOUR, "o", "rule"),
    "frontier": ("#332288", "D", "rule from a prior or one anchor"),
    "oracle": ("#228B5B", "P", "oracle: has seen the curve"),
    "rival": ("#C785C4", "X", "rival without a path"),
}
ERROR_VALUES = ("error", "corrected", "lo_corrected", "hi_corrected")
"""Columns of an error: raw, then without its two biases (``boptr.evaluate.Score``) with the interval of that."""
BESIDE: dict[str, Any] = {"textcoords": "offset points", "va": "center_baseline", "fontsize": 7}


def reason(code: str) -> str:
    """The sentence of a reason's code."""
    return REASONS[code]


def missing(codes: Iterable[str | None]) -> str:
    """One sentence per distinct reason; empty without one."""
    return "; ".join(reason(code) for code in dict.fromkeys(codes) if code)


def places(groups: Sequence[object], gap: float = 0.6) -> list[float]:
    """Heights of rows from the top, 0, 1, 2, ..., with a gap wherever the group changes."""
    heights: list[float] = []
    for i, group in enumerate(groups):
        step = 0.0 if i == 0 else 1.0 + (gap if group != groups[i - 1] else 0.0)
        heights.append((heights[-1] if heights else 0.0) + step)
    return heights


def error_rows(axes: Axes, rows: pl.DataFrame, heights: Sequence[float], letters: int) -> None:
    """Corrected errors as marks with their intervals, one row each; the raw error is a small open mark.

    Parameters
    ----------
    axes : Axes
    rows : DataFrame
        tier, label, kind, ``ERROR_VALUES``, cells, of, reason.
    heights : sequence of float
        Place of each row.
    letters : int
        A longer reason is shortened.
    """
    most = rows["cells"].max()
    for y, row in zip(heights, rows.iter_rows(named=True), strict=True):
        if row["error"] is None:
            text = undefined(row["reason"], letters)
            axes.annotate(text, (0, y), (4, 0), **BESIDE, color=style.MUTED)
            continue
        colour, marker, _ = KINDS[row["kind"]]
        ends = [row["lo_corrected"], row["hi_corrected"]]
        axes.plot(ends, [y, y], color=colour, linewidth=1.2, zorder=2, gid=f"{row['tier']}-interval")
        look: dict[str, Any] = {"marker": marker, "color": colour, "linestyle": "none"}
        open_mark: dict[str, Any] = {"markersize": 6, "markerfacecolor": "white", "gid": f"{row['tier']}-raw"}
        axes.plot(row["error"], y, **look, **open_mark, zorder=3)
        axes.plot(row["corrected"], y, **look, markersize=4, zorder=4, gid=row["tier"])
        if row["cells"] < most:
            note = f"{row['cells']} of {row['of']} cells"
            axes.annotate(note, (max(*ends, row["error"]), y), (6, 0), **BESIDE, color=style.MUTED)
    axes.set_ylim(heights[-1] + 0.7, heights[0] - 0.7)
    axes.set_yticks(list(heights), rows["label"].to_list())
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    axes.grid(axis="x", color=style.REGION_COLOUR, linewidth=0.5)
    axes.set_axisbelow(True)
    axes.axvline(0, color=style.MUTED, linewidth=0.6, zorder=1)


def error_axis(axes: Axes, rows: pl.DataFrame) -> None:
    """The axis of errors, long enough for every mark of these rows."""
    values = [value for name in ERROR_VALUES for value in rows[name].drop_nulls()]
    low, top = min([0.0, *values]), max([1.0, *values])
    axes.set_xlim(low - 0.04 * (top - low), top + 0.05 * (top - low))
    axes.xaxis.set_major_locator(MaxNLocator(8, integer=True))
    axes.set_xlabel("mean absolute error (percentage points)")


def undefined(code: str, letters: int) -> str:
    """A dash and the sentence of a reason's code, shortened to at most ``letters`` letters."""
    return textwrap.shorten(f"{DASH} {reason(code)}", letters, placeholder=" ...")


def kind_handles(kinds: Iterable[str], context: FigureContext) -> list[Line2D]:
    """Legend entries of the kinds that occur, and of what raw and corrected errors look like."""
    present = set(kinds)
    handles = [
        Line2D([], [], color=colour, marker=marker, markersize=4.5, linewidth=1.2, label=name)
        for kind, (colour, marker, name) in KINDS.items()
        if kind in present
    ]
    look: dict[str, Any] = {"color": style.MUTED, "marker": "o", "markersize": 6, "linestyle": "none"}
    handles.append(Line2D([], [], **look, markerfacecolor="white", label="open: raw error, as the paper takes it"))
    label = f"filled: corrected for both biases, {context.interval}"
    handles.append(Line2D([], [], color=style.MUTED, marker="o", markersize=4, linewidth=1.2, label=label))
    return handles
