"""What all figures share: axes in budgets, lines and bands, and making the figures that are declared for a stage.

Figures are printed at the size at which they are drawn: ``COLUMN`` is one column of a two-column paper, ``PAGE`` the
width of the page, in inches. Proportions are drawn as percentages; no other arithmetic is done on the numbers of a
frame.
"""

from __future__ import annotations

import io
import re
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import matplotlib as mpl
import numpy as np
import polars as pl
import seaborn as sns
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator
from scipy.optimize import isotonic_regression

from searchlens.analysis.frames import pick
from searchlens.catalogue import FIGURE_FORMATS, Declaration, definition, figure_files, import_named
from searchlens.errors import InputError
from searchlens.reporting.figures.context import Labels, Source, StudyContext
from searchlens.reporting.figures.palette import BASE_COLOUR, FAMILY_COLOURS, MUTED, RL_COLOUR
from searchlens.search import kinds
from searchlens.search.kinds import PolicyByName
from searchlens.store.files import replace, replace_text
from searchlens.store.frames import write_csv
from searchlens.store.provenance import Failures

if TYPE_CHECKING:
    import pandas as pd


COLUMN, PAGE = 3.5, 7.0

LETTERS = 15.5
"""Letters of a title on an inch."""
PAD = 0.04
LABEL_HEIGHT = 9
"""Points between the middles of two names at the ends of lines."""
SIDE_COLOURS = {"Base": BASE_COLOUR, "RL": RL_COLOUR}
SIDE_MARKERS = {"Base": "s", "RL": "o"}

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
    "svg.fonttype": "none",  # less than half the bytes, and text to search; the PDF has the font itself
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


def to_pandas(frame: pl.DataFrame, *, percent: Iterable[str] = ()) -> pd.DataFrame:
    """A frame as seaborn takes it, with some columns of proportions as percentages; nothing else converts frames.

    Given a polars frame, some of its functions raise and some draw nothing.
    """
    return frame.with_columns(pl.col(list(percent)) * 100).to_pandas()


def percent(column: pl.Series) -> list[float]:
    """Proportions as percentages; NaN, which is not drawn, in place of null."""
    return (column * 100).fill_null(float("nan")).to_list()


def new_figure(width: float, height: float, title: str, source: Source) -> Figure:
    """An empty figure whose parts do not overlap.

    ``width`` and ``height`` are in inches; a title that needs more than two lines makes the figure higher. ``title`` is
    what the figure finds, with its number, and in the next line what is shown; long lines are broken. ``source`` is
    said at the end of the title, unless it is ``sampled``.
    """
    said = "" if source == "sampled" else f", from {source} samples"
    lines = [part for line in f"{title}{said}".splitlines() for part in textwrap.wrap(line, round(LETTERS * width))]
    height += max(0, len(lines) - 2) * 1.2 * STYLE["figure.titlesize"] / 72
    figure = Figure(figsize=(width, height), layout=ConstrainedLayoutEngine(w_pad=PAD, h_pad=PAD))
    figure.suptitle("\n".join(lines), x=0.01, ha="left")
    return figure


@styled()
def in_words(labels: Labels, text: str) -> Figure:
    """A figure that says why there is nothing to draw."""
    figure = new_figure(COLUMN, 2.0, labels.subject, labels.source)
    say(figure.subplots(), text)
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


def lines(axes: Axes, frame: pl.DataFrame, x: str, y: str, **looks: Any) -> None:
    """A line for each group of rows, from point to point: ``seaborn.lineplot`` that estimates nothing.

    Rows without ``y``, a proportion that is drawn as a percentage, are left out. ``looks`` are those of
    ``seaborn.lineplot``; a column ``units`` separates lines of one look.
    """
    shown = to_pandas(frame.drop_nulls(y), percent=[y])
    if len(shown):  # seaborn fails without rows
        sns.lineplot(shown, x=x, y=y, ax=axes, **{"estimator": None, "errorbar": None, "legend": False, **looks})
    axes.set(xlabel="", ylabel="")


def curve(axes: Axes, rows: pl.DataFrame, x: str, y: str = "value", **looks: Any) -> None:
    """One line, or marks, through proportions that are drawn as percentages."""
    axes.plot(rows[x].to_list(), percent(rows[y]), **looks)


def band(axes: Axes, rows: pl.DataFrame, x: str, lo: str = "lo", hi: str = "hi", **looks: Any) -> None:
    """The area between two proportions that are drawn as percentages."""
    axes.fill_between(rows[x].to_list(), percent(rows[lo]), percent(rows[hi]), linewidth=0, **looks)


def key(label: str, **looks: Any) -> Line2D:
    """What stands for a line, or for marks, in a legend."""
    return Line2D([], [], label=label, **looks)


def legend(figure: Figure, handles: Sequence[Artist], ncols: int) -> None:
    """The legend below all panels."""
    figure.legend(handles=handles, loc="outside lower center", ncols=ncols)


def label_ends(axes: Axes, ends: Sequence[tuple[float, str, str]]) -> None:
    """Names beside the ends of lines at the right, moved apart where they would overlap.

    ``axes`` has its final limits; ``ends`` are height, name and colour.
    """
    figure = axes.get_figure(root=True)
    assert figure is not None
    figure.draw_without_rendering()  # until the layout is made, nobody knows how high the panel is
    low, high = axes.get_ylim()
    step = LABEL_HEIGHT * figure.dpi / 72 * (high - low) / axes.get_window_extent().height
    ranked = sorted(ends, key=lambda end: end[0])
    shifts = step * np.arange(len(ranked))
    places = isotonic_regression(np.array([end[0] for end in ranked]) - shifts).x + shifts if ranked else shifts
    beside: dict[str, Any] = {"xycoords": ("axes fraction", "data"), "textcoords": "offset points", "va": "center"}
    for place, (_, name, colour) in zip(places.tolist(), ranked, strict=True):
        axes.annotate(name, (1, place), (4, 0), annotation_clip=False, color=colour, fontsize=7, **beside)


def zero_line(axes: Axes) -> None:
    """A thin line at no difference."""
    axes.axhline(0, color=MUTED, linewidth=0.7, zorder=1.5)


def say(axes: Axes, text: str) -> None:
    """Words in place of a panel, in short lines."""
    axes.set_axis_off()
    wrapped = textwrap.fill(text, 44, break_on_hyphens=False)
    axes.text(0.5, 0.5, wrapped, transform=axes.transAxes, ha="center", va="center", color=MUTED)


@styled()
def save(figure: Figure, stem: Path, numbers: pl.DataFrame) -> list[Path]:
    """Write ``stem.svg``, ``.pdf``, ``.png`` and the numbers they show as ``.csv``.

    The bytes depend on the figure alone: no date, no random identifiers.

    The files are in the order of ``catalogue.FIGURE_FORMATS``.
    """
    stem.parent.mkdir(parents=True, exist_ok=True)
    files = [stem.with_name(f"{stem.name}.{suffix}") for suffix in FIGURE_FORMATS]
    metadata: dict[str, dict[str, Any]] = {
        "pdf": {"CreationDate": None},
        "png": {"Software": None},
    }
    figure.draw_without_rendering()
    figure.set_layout_engine(None)  # the layout is computed once, not again for each format
    for file, suffix in zip(files, FIGURE_FORMATS, strict=True):
        if suffix == "csv":
            write_csv(numbers, file)
        elif suffix == "svg":
            replace_text(file, svg(figure))
        else:
            replace(file, partial(figure.savefig, format=suffix, metadata=metadata[suffix]))
    return files


def svg(figure: Figure) -> str:
    """The text of an SVG file: fonts of like width for readers without ours, places to a hundredth of a point."""
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", metadata={"Date": None})
    text = buffer.getvalue().replace("'DejaVu Sans'", "'DejaVu Sans', Verdana, sans-serif")
    return _PLACES.sub(lambda place: _LONG.sub(lambda found: f"{float(found[0]):.2f}", place[0]), text)


_PLACES = re.compile(r' (?:d|x|y|width|height|transform)="[^"]*"')
_LONG = re.compile(r"-?\d+\.\d{3,}")


POWER_LINE: dict[str, Any] = {"color": FAMILY_COLOURS["search"], "linewidth": 1.2, "linestyle": (0, (3, 1))}


def power_policies(names: Iterable[str], configured: PolicyByName) -> list[str]:
    """Those policies that sample from a power of the model's distribution."""
    return [name for name in kinds.ordered(names, configured) if kinds.controller(name, configured) == "power"]


def power_lines(axes: Axes, numbers: pl.DataFrame, zorder: float) -> None:
    """A line for each policy of the layer ``power``."""
    for (name,), rows in pick(numbers, layer="power").group_by("policy", maintain_order=True):
        curve(axes, rows, "budget", **POWER_LINE, zorder=zorder, gid=str(name))


def power_keys(numbers: pl.DataFrame, labels: Labels) -> list[Line2D]:
    """The entry of a legend for the layer ``power``, with the modes of its policies; none without such a layer.

    Only the mode ``reference`` is the published procedure.
    """
    names = pick(numbers, layer="power")["policy"]
    controllers = [policy.controller for name in names if (policy := kinds.policy_of(name, labels.policies))]
    modes = sorted({str(controller.parameters["mode"]) for controller in controllers})
    return [key(f"power ({', '.join(modes)})", **POWER_LINE)] if len(names) else []


def places(numbers: pl.DataFrame) -> tuple[list[str], list[str]]:
    """The pairs and the benchmarks, in the order of their first rows."""
    pairs, names = (numbers[column].unique(maintain_order=True).to_list() for column in ("pair", "benchmark"))
    return pairs, names


def new_panels(pairs: Sequence[str], names: Sequence[str], title: str, source: Source) -> Figure:
    """A figure with room for the panels: the more there are, the lower they get."""
    width = max(COLUMN, min(PAGE, 0.6 + 1.9 * len(names)))
    height = 1.4 + 0.75 * len(pairs) if len(pairs) > 2 else 1.1 + 1.6 * len(pairs)
    return new_figure(width, height, title, source)


def grid(figure: Figure, pairs: Sequence[str], names: Sequence[str]) -> Iterator[tuple[Axes, str, str]]:
    """Each panel with its pair and benchmark; the first of a row names the pair, if there are several."""
    drawn = figure.subplots(len(pairs), len(names), squeeze=False, sharex="col", sharey=True)
    for row, pair in zip(drawn, pairs, strict=True):
        for axes, name in zip(row, names, strict=True):
            yield axes, pair, name
        row[0].set_ylabel(pair if len(pairs) > 1 else "")


def name_axes(figure: Figure, names: Sequence[str], across: str, upward: str) -> None:
    """Name the axes once for all panels."""
    figure.axes[len(figure.axes) - 1 - len(names) // 2].set_xlabel(across)
    figure.supylabel(upward, fontsize=7.5)


def sides(axes: Axes, rows: pl.DataFrame, x: str, side: str, linewidth: float) -> None:
    """The intervals and the lines of Base and of RL, which the column ``side`` names, with colours and markers."""
    for name, colour in SIDE_COLOURS.items():
        band(axes, pick(rows, **{side: name}).drop_nulls("lo").sort(x), x, color=colour, alpha=0.15)
    marks = {"markersize": 3, "markeredgewidth": 0, "dashes": False, "linewidth": linewidth}
    lines(axes, rows, x, "value", hue=side, style=side, palette=SIDE_COLOURS, markers=SIDE_MARKERS, **marks)


def sound(rows: pl.DataFrame, context: StudyContext) -> pl.DataFrame:
    """The rows of cells that are interpretable."""
    keys = rows.select("pair", "benchmark").iter_rows()
    return rows.filter(pl.Series([key not in context.broken for key in keys], dtype=pl.Boolean))


def not_interpretable(axes: Axes) -> None:
    """Say so in a panel."""
    axes.text(0.5, 0.5, "not\ninterpretable", transform=axes.transAxes, ha="center", va="center", fontsize=7)


# ---- the figures of a stage


def draw(figure: Declaration, context: Any) -> tuple[Figure | None, pl.DataFrame]:
    """One figure, and the numbers that it shows; None in place of an ``optional`` one that has nothing to show.

    The figures of a pair that is not interpretable say so in place of their panels, since every panel is a comparison.

    ``draw`` of its file draws it, or ``draw_<name>`` where a file has several figures. An InputError: its file has
    neither, or nothing was returned although the figure is not optional.
    """
    numbers, module = definition(figure)(context), import_named(figure.module)
    draw = getattr(module, f"draw_{figure.name}", getattr(module, "draw", None))
    if draw is None:
        raise InputError(f"figure {figure.name!r}: {figure.path} has no function draw(numbers, context)")
    stage = figure.options["stage"]
    if stage == "pair" and context.labels.warning:
        return in_words(context.labels, f"not interpretable. {context.labels.warning}"), numbers
    if stage != "boptr" and numbers.is_empty():
        return in_words(context.labels, "these samples have no such estimates of both models"), numbers
    drawn = draw(numbers, context)
    if drawn is None and not figure.options.get("optional"):
        hint = "return a figure, or declare it with optional=True"
        raise InputError(f"figure {figure.name!r}: draw in {figure.path} returned nothing", hint)
    return drawn, numbers


def write(figures: Mapping[str, Declaration], context: Any, folder: Path, record: Path) -> list[Path]:
    """Draw some declared figures of one stage, those of extensions included; returns the files.

    For one figure per metric, ``context.with_metric(metric)`` is drawn. ``folder`` receives
    ``<name>.{svg,pdf,png,csv}``, or ``<name>_<metric>`` for each metric of the declaration. For an ``optional`` figure
    they lie in a folder of its name, which is empty if there is nothing to draw. The file ``record`` gets those that
    could not be drawn.
    """
    files, found = list[Path](), Failures()
    for stem, (name, metric) in figure_files(figures).items():
        optional = figures[name].options.get("optional")
        place = folder / stem if optional else folder
        place.mkdir(parents=True, exist_ok=True)
        paths = [place / f"{stem}.{suffix}" for suffix in FIGURE_FORMATS]
        for path in paths:  # of an earlier run that had something to draw
            path.unlink(missing_ok=True)
        with found.caught(f"figure {stem}", [] if optional else paths):
            figure, numbers = draw(figures[name], context.with_metric(metric) if metric else context)
            files += save(figure, place / stem, numbers) if figure else []
    found.save(record)
    return files
