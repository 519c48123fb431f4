"""What the figures of BOPTR share: rows of errors with intervals, and words for what is missing."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import polars as pl
import seaborn as sns
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from searchlens.analysis.claims import DASH, ERRS_LEAST, interval, say
from searchlens.boptr.rule import REASONS
from searchlens.reporting.boptr.context import BoptrContext
from searchlens.reporting.figures import palette, style

POOL_TITLES = {"ar": "sampling policies only", "full": "with search policies"}
KINDS = {  # colour, marker, name: kinds of rows, in the order of legends
    "baseline": (palette.MUTED, "s", "baseline"),
    "copy": ("#E69F00", "^", "copy of the anchor's points"),
    "rule": (palette.BASE_COLOUR, "o", "rule"),
    "frontier": ("#332288", "D", "rule from a prior or one anchor"),
    "oracle": ("#228B5B", "P", "oracle: has seen the curve"),
    "rival": ("#C785C4", "X", "rival without a path"),
}
ERROR_VALUES = ("error", "corrected", "lo_corrected", "hi_corrected")
"""Columns of an error: raw, then without its two biases (``boptr.evaluate.Score``) with the interval of that."""
BESIDE: dict[str, Any] = {"textcoords": "offset points", "va": "center_baseline", "fontsize": 7}


def missing(codes: Iterable[str | None]) -> str:
    """One sentence per distinct reason; empty without one."""
    return "; ".join(REASONS[code] for code in dict.fromkeys(codes) if code)


def places(groups: Sequence[object], gap: float = 0.6) -> list[float]:
    """Heights of rows from the top, 0, 1, 2, ..., with a gap wherever the group changes."""
    heights: list[float] = []
    for i, group in enumerate(groups):
        step = 0.0 if i == 0 else 1.0 + (gap if group != groups[i - 1] else 0.0)
        heights.append((heights[-1] if heights else 0.0) + step)
    return heights


def defined(rows: pl.DataFrame) -> pl.DataFrame:
    """The rows that have an error."""
    return rows.drop_nulls("corrected")


def absent(rows: pl.DataFrame, letters: int) -> str:
    """A note on the rows without an error, by reason, in lines of that many letters; empty without one."""
    reasons = [
        f"{', '.join(some['tier'].unique(maintain_order=True))}: {REASONS[str(code)]}"
        for (code,), some in rows.filter(pl.col("corrected").is_null()).group_by("reason", maintain_order=True)
    ]
    return textwrap.fill(f"Not defined: {'; '.join(reasons)}.", letters) if reasons else ""


def legend(figure: Figure, handles: Sequence[Artist], note: str, columns: int) -> None:
    """The legend at the foot of a figure, below a note."""
    titled: dict[str, Any] = {"title": note, "title_fontsize": 7, "alignment": "left"} if note else {}
    made = figure.legend(handles=handles, loc="outside lower left", ncols=columns, **titled)
    made.get_title().set_color(palette.MUTED)


def least(rows: pl.DataFrame) -> str:
    """The row of the smallest corrected error, if intervals say so, as a finding; oracles have seen the answer.

    Only rows of the most cells are compared: others may err less because they are undefined where it is hard.
    """
    oracle = pl.col("kind") == "oracle"
    seen = rows.filter(oracle)["corrected"].to_list()  # with one model, copies are oracles by definition
    honest = defined(rows).filter(~oracle, ~pl.col("corrected").is_in(seen))
    found = honest.filter(pl.col("cells") == pl.col("cells").max()).sort("corrected").to_dicts()
    if not found:
        return say(ERRS_LEAST, {"rows": 0})
    overlapping = [row for row in found[1:] if row["lo_corrected"] <= found[0]["hi_corrected"]]
    near = ", ".join(f"{row['label']} {_error(row)}" for row in overlapping[:1])
    return say(ERRS_LEAST, {**found[0], "rows": len(found), "error": _error(found[0]), "near": near})


def _error(row: Mapping[str, Any]) -> str:
    return interval(row["corrected"], row["lo_corrected"], row["hi_corrected"], 1)


def error_rows(axes: Axes, rows: pl.DataFrame, heights: Sequence[float]) -> None:
    """Corrected errors of ``defined`` rows as marks with their intervals, at these heights."""
    if rows.is_empty():
        style.say(axes, "no error is defined")
        return
    placed = rows.with_columns(y=pl.Series(heights, dtype=pl.Float64))
    colours = {kind: colour for kind, (colour, _, _) in KINDS.items()}
    for row in placed.iter_rows(named=True):
        ends, colour = [row["lo_corrected"], row["hi_corrected"]], colours[row["kind"]]
        axes.plot(ends, [row["y"]] * 2, color=colour, linewidth=1.2, zorder=2, gid=f"{row['tier']}-interval")
        if row["cells"] < rows["cells"].max():
            axes.annotate(
                f"{row['cells']} of {row['of']} cells", (ends[1], row["y"]), (6, 0), **BESIDE, color=palette.MUTED
            )
    markers = {kind: marker for kind, (_, marker, _) in KINDS.items()}
    scatter(axes, placed, "corrected", "kind", palette=colours, markers=markers, s=28, zorder=4)
    axes.set(xlabel="", ylabel="")
    axes.set_ylim(heights[-1] + 0.7, heights[0] - 0.7)
    axes.set_yticks(list(heights), rows["label"].to_list())
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    axes.grid(axis="x", color=palette.REGION_COLOUR, linewidth=0.5)
    axes.set_axisbelow(True)
    axes.axvline(0, color=palette.MUTED, linewidth=0.6, zorder=1)


def scatter(axes: Axes, rows: pl.DataFrame, x: str, kind: str, **look: Any) -> None:
    """Marks without edges at the columns ``x`` and ``y``, by kind."""
    frame = style.to_pandas(rows)
    sns.scatterplot(frame, x=x, y="y", hue=kind, style=kind, ax=axes, linewidth=0, legend=False, **look)


def error_axis(axes: Axes, rows: pl.DataFrame) -> None:
    """The axis of errors, long enough for every mark of these rows."""
    values = [value for name in ERROR_VALUES[1:] for value in rows[name].drop_nulls()]
    low, top = min([0.0, *values]), max([1.0, *values])
    axes.set_xlim(low - 0.04 * (top - low), top + 0.05 * (top - low))
    axes.xaxis.set_major_locator(MaxNLocator(8, integer=True))
    axes.set_xlabel("mean absolute error (percentage points)")


def undefined(code: str, letters: int) -> str:
    """A dash and the sentence of a reason's code, shortened to at most ``letters`` letters."""
    return textwrap.shorten(f"{DASH} {REASONS[code]}", letters, placeholder=" ...")


def kind_handles(kinds: Iterable[str], context: BoptrContext) -> list[Line2D]:
    """Legend entries of the kinds that occur, and of what is drawn of each."""
    present = set(kinds)
    handles = [
        line(name, color=colour, marker=marker, markersize=4.5, linewidth=1.2)
        for kind, (colour, marker, name) in KINDS.items()
        if kind in present
    ]
    label = f"error corrected for both biases, {context.interval}"
    return [*handles, line(label, color=palette.MUTED, marker="o", markersize=4, linewidth=1.2)]


def line(label: str, **look: Any) -> Line2D:
    """An entry of a legend."""
    return Line2D([], [], label=label, **look)
