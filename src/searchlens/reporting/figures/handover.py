"""How often Base ends right after the beginnings of texts, by how much of a text it is given."""

from __future__ import annotations

import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator

from searchlens import catalogue
from searchlens.analysis.frames import pick
from searchlens.reporting.figures import palette, style
from searchlens.reporting.figures.context import StudyContext

LOOKS = {
    "rl_right": ("after RL's right", palette.RL_COLOUR, "o", "-"),
    "base_right": ("after Base's right", palette.BASE_COLOUR, "s", "-"),
    "rl_wrong": ("after RL's wrong", palette.RL_COLOUR, "x", (0, (3, 1.5))),
}
"""Kind of beginning to its name, colour, marker and line."""


@catalogue.figure("handover", stage="likelihood")
def handover(context: StudyContext) -> pl.DataFrame:
    """One row per cell, kind of beginning and share of the text, of questions with a text of every kind."""
    among = pick(context.measures["handover"], among="common").filter(
        pl.col("unit").eq_missing("fraction") | (pl.col("kind") == "alone")
    )
    among = among if among["at"].count() else among.clear()  # only numbers of tokens were configured
    return among.select("pair", "benchmark", "kind", "at", "value", "lo", "hi", "questions", "texts")


@style.styled()
def draw_handover(numbers: pl.DataFrame, context: StudyContext) -> Figure:
    """Draw what ``handover`` returned: a row per pair, a column per benchmark."""
    pairs, names = style.places(numbers)
    second = "Samples of Base after the beginning of a text, of questions with a text of every kind"
    title = f"{_finding(style.sound(numbers, context))}\n{second}{context.said_source}"
    figure = style.new_panels(pairs, names, title, "sampled")
    for axes, pair, name in style.grid(figure, pairs, names):
        cell = pick(numbers, pair=pair, benchmark=name)
        if (pair, name) in context.broken:
            style.not_interpretable(axes)
        elif cell.height:
            axes.set_title(f"{name}\n{cell['questions'][0]} questions", fontsize=7)
            _panel(axes, cell)
        axes.set_xlim(0, 100)
        axes.xaxis.set_major_locator(FixedLocator([0, 25, 50, 75, 100]))
        axes.set_ylim(0, 100)
        axes.yaxis.set_major_locator(FixedLocator([0, 50, 100]))
    style.name_axes(figure, names, "given of the text (%)", "Base ends right (%)")
    keys = [style.key(name, color=c, marker=m, markersize=3, linestyle=line) for name, c, m, line in LOOKS.values()]
    keys.append(style.key(f"alone ({context.labels.band}s)", color=palette.MUTED, linestyle=":"))
    style.legend(figure, keys, ncols=2)
    return figure


def _panel(axes: Axes, cell: pl.DataFrame) -> None:
    alone = pick(cell, kind="alone")
    axes.axhline(100 * alone["value"][0], color=palette.MUTED, linestyle=":", gid="alone")
    for kind, (_, colour, marker, line) in LOOKS.items():
        rows = pick(cell, kind=kind).sort("at").with_columns(pl.col("at") * 100)
        style.band(axes, rows.drop_nulls("lo"), "at", color=colour, alpha=0.12)
        style.curve(axes, rows, "at", color=colour, marker=marker, markersize=3, linestyle=line, gid=kind)


def _finding(numbers: pl.DataFrame) -> str:
    """How often Base ends right after the shortest beginnings, as the range over cells of the mean over questions."""
    if numbers["at"].count() == 0:
        return "How often Base ends right after beginnings of texts"
    least = numbers.drop_nulls("at")["at"].sort()[0]
    shortest = numbers.filter(pl.col("at").is_null() | (pl.col("at") == least))
    names = {"rl_right": "after RL's right texts", "base_right": "after its own", "alone": "alone"}
    found = {kind: pick(shortest, kind=kind)["value"].to_list() for kind in names}
    said = [f"{_range(found[kind])}% {name}" for kind, name in names.items() if found[kind]]
    return f"With the first {100 * least:g}% of a text, Base ends right in {', '.join(said)}"


def _range(shares: list[float]) -> str:
    least, most = (f"{100 * share:.0f}" for share in (min(shares), max(shares)))
    return least if least == most else f"{least} to {most}"
