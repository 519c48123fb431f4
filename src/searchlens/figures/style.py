"""What all figures share: axes in budgets, the palette of ``palette.py``, and writing a figure with its numbers.

Figures are printed at the size at which they are drawn: ``COLUMN`` is one column of a two-column paper, ``PAGE`` the
width of the page, in inches. Proportions are drawn as percentages; no other arithmetic is done on the numbers of a
frame.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import matplotlib as mpl
import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from searchlens.catalogue import FIGURE_FORMATS
from searchlens.figures.context import Labels, Source
from searchlens.figures.palette import (
    BASE_COLOUR,
    CONTROLLER_COLOURS,
    CURVE_COLOUR,
    ENVELOPE_COLOUR,
    FAMILY_COLOURS,
    FAMILY_MARKERS,
    LIGHTEST,
    MUTED,
    REGION_COLOUR,
    RL_COLOUR,
    SEARCH_MARKERS,
    families,
    family_look,
    lightened,
    search_looks,
    shades,
)

__all__ = [  # what others take from here although it stands in palette.py
    "BASE_COLOUR",
    "CONTROLLER_COLOURS",
    "CURVE_COLOUR",
    "ENVELOPE_COLOUR",
    "FAMILY_COLOURS",
    "FAMILY_MARKERS",
    "LIGHTEST",
    "MUTED",
    "REGION_COLOUR",
    "RL_COLOUR",
    "SEARCH_MARKERS",
    "families",
    "family_look",
    "lightened",
    "search_looks",
    "shades",
]

COLUMN, PAGE = 3.5, 7.0

STYLE: dict[Any, Any] = {
    "font.family": "DejaVu Sans",  # comes with matplotlib: the same file on every machine
    "font.size": 7.5,
    "axes.titlesize": 7.5,
    "axes.labelsize": 7.5,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "legend.fontsize": 7,
    "figure.titlesize": 8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.6,
    "axes.titlelocation": "left",
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "xtick.major.size": 2.5,
    "ytick.major.size": 2.5,
    "lines.linewidth": 1.0,
    "legend.frameon": False,
    "legend.handlelength": 1.8,
    "legend.columnspacing": 1.4,
    "axes.unicode_minus": True,
    "pdf.fonttype": 42,
    "svg.fonttype": "path",
    "svg.hashsalt": "searchlens",
    "savefig.dpi": 300,
}


@contextmanager
def styled() -> Iterator[None]:
    """Use ``STYLE`` on top of matplotlib's own defaults, whatever settings this machine has."""
    with mpl.rc_context():
        mpl.rcdefaults()
        mpl.rcParams.update(STYLE)
        yield


def family_names(names: Sequence[str]) -> dict[str, str]:
    """Family to its name in a legend: if searches are among them, the others are marked as autoregressive (AR)."""
    return {name: f"AR {name}" if "search" in names and name != "search" else name for name in names}


def percent(column: pl.Series) -> list[float]:
    """Proportions as percentages; NaN, which is not drawn, in place of null."""
    return (column * 100).fill_null(float("nan")).to_list()


def new_figure(width: float, height: float, title: str, source: Source) -> Figure:
    """An empty figure whose parts do not overlap.

    Parameters
    ----------
    width, height : float
        In inches.
    title : str
        Two lines.
    source : {"sampled", "imported", "recorded", "simulated"}
        The figure has a note about it, unless it is ``sampled``.
    """
    pad = 0.04
    figure = Figure(figsize=(width, height), layout=ConstrainedLayoutEngine(w_pad=pad, h_pad=pad))
    figure.suptitle(title, x=0.01, ha="left")
    if source != "sampled":
        second_line = 1 - (pad + 1.2 * STYLE["figure.titlesize"] / 72) / height  # the layout puts the title below a pad
        figure.text(0.99, second_line, f"from {source} samples", ha="right", va="top", color=MUTED, style="italic")
    return figure


def no_readouts(labels: Labels) -> Figure:
    """A figure that says that the samples of this study do not give the readouts to be drawn."""
    figure = new_figure(COLUMN, 1.5, labels.title, labels.source)
    say(figure.subplots(), "these samples have no such readouts")
    return figure


@styled()
def not_interpretable(labels: Labels) -> Figure:
    """A figure that says why the samples of a pair must not be compared."""
    figure = new_figure(COLUMN, 2.0, labels.title, labels.source)
    say(figure.subplots(), f"not interpretable. {labels.warning}")
    return figure


def budget_axis(axes: Axes, budgets: Iterable[int], label: str = "budget N (samples per question)") -> None:
    """Make x a logarithmic axis of base 2 with a labelled tick at each budget."""
    ticks = sorted(set(budgets))
    axes.set_xscale("log", base=2)
    axes.set_xlim(ticks[0] / 2**0.3, ticks[-1] * 2**0.3)
    axes.xaxis.set_major_locator(FixedLocator(ticks))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.0f}"))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xlabel(label)


def zero_line(axes: Axes) -> None:
    """A thin line at no difference."""
    axes.axhline(0, color=MUTED, linewidth=0.7, zorder=1.5)


def say(axes: Axes, text: str, width: int = 44) -> None:
    """Words in place of a panel, in lines of at most ``width`` letters."""
    axes.set_axis_off()
    wrapped = textwrap.fill(text, width, break_on_hyphens=False)
    axes.text(0.5, 0.5, wrapped, transform=axes.transAxes, ha="center", va="center", color=MUTED)


def signed(value: float) -> str:
    """A difference of proportions in percentage points, with its sign."""
    text = f"{100 * value:+.1f}"
    return "0.0" if float(text) == 0 else text.replace("-", "\N{MINUS SIGN}")


@styled()
def save(figure: Figure, stem: Path, numbers: pl.DataFrame) -> list[Path]:
    """Write ``stem.svg``, ``.pdf``, ``.png`` and the numbers they show as ``.csv``.

    The bytes depend on the figure alone: no date, no random identifiers.

    Returns
    -------
    list of Path
        The files, in the order of ``catalogue.FIGURE_FORMATS``.
    """
    stem.parent.mkdir(parents=True, exist_ok=True)
    files = [stem.with_name(f"{stem.name}.{suffix}") for suffix in FIGURE_FORMATS]
    metadata: dict[str, dict[str, Any]] = {
        "svg": {"Date": None},
        "pdf": {"CreationDate": None},
        "png": {"Software": None},
    }
    figure.draw_without_rendering()
    figure.set_layout_engine(None)  # the layout is computed once, not again for each format
    for file, suffix in zip(files, FIGURE_FORMATS, strict=True):
        if suffix == "csv":
            numbers.write_csv(file)
        else:
            figure.savefig(file, format=suffix, metadata=metadata[suffix])
    return files
