"""The main figure: Base and RL curves under the RL default policy, one panel per pair and benchmark."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator

from searchlens import catalogue
from searchlens.analysis import claims
from searchlens.analysis.frames import pick
from searchlens.analysis.measures import PASS, WRONG_KEY
from searchlens.reporting.figures import palette, style
from searchlens.reporting.figures.context import Curves, Labels, Source, StudyContext

DOTS = (0, (5, 1.5, 1, 1.5))
MEETING: dict[str, Any] = {"color": palette.ENVELOPE_COLOUR, "linewidth": 0.8, "marker": "|", "markersize": 6}
ROOMY = 4
"""Largest number of benchmarks for which each panel says in words who leads."""
ROOM = 0.15
"""Share of a panel that a name takes, above or below its curve."""
MANY = 6
"""Largest number of budgets of which each is labelled."""
NARROW = 5
"""Inches; a narrower figure has a legend of two columns."""
SHOWN_RATE = 0.05
"""The wrong-key rate is drawn in a cell where it is as large."""
WRONG_KEY_OF = {"Base wrong key": "Base", "RL wrong key": "RL"}
SOURCES = {"sampled": "sampled here", "imported": "imported", "recorded": "recorded"}
MET = ("state", "crossing", "crossing_lo", "crossing_hi", "lo_open", "hi_open", "last")


@catalogue.figure("pass_curves", stage="study")
def numbers(context: StudyContext) -> pl.DataFrame:
    """One row per cell, model and budget, all as expectations. Models are ``Base``, ``RL``, ``Base greedy``, and where
    wrong keys solve much, ``Base wrong key`` and ``RL wrong key``. Base and RL go on beyond the budgets of the study
    where there are samples.

    ``crossing`` and what belongs to it, the same in all rows of a cell: from which number of samples on Base solves as
    much as RL, and ``state``, as in the frame ``crossings``.
    """
    measures = context.measures.get("measures")
    rows = pl.concat(part for cell in context.cells for part in _rows(cell, measures))
    found = context.measures.get("crossings")
    if found is None:
        return rows
    met = pick(found, cost="samples").rename({"lo": "crossing_lo", "hi": "crossing_hi"})
    keys = ["pair", "benchmark"]
    return rows.join(met.select(*keys, *MET), on=keys, how="left", maintain_order="left")


def _rows(cell: Curves, measures: pl.DataFrame | None) -> Iterator[pl.DataFrame]:
    """Both sides at the budgets of the study, then beyond them, then wrong keys where they solve much."""
    labels = cell.labels
    policy = labels.general.default_policy
    sides = {"Base": cell.base, "RL": cell.rl}
    for model, points in sides.items():
        rows = pick(points, metric=labels.metric, estimator="unbiased", policy=policy)
        yield _named(rows.sort("budget"), model, policy, labels)
    greedy = pick(cell.base, metric=labels.metric, estimator="unbiased", policy="greedy")
    yield _named(greedy.sort("budget").head(1), "Base greedy", "greedy", labels)
    if measures is None:
        return
    found = pick(measures, pair=labels.pair, benchmark=labels.benchmark).sort("k").with_columns(budget="k")
    for model, points in sides.items() if labels.metric == "P" else ():
        rows = pick(found, measure=PASS, side=model).filter(pl.col("budget") > points["budget"].max())
        yield _named(rows, model, policy, labels)
    for model, side in WRONG_KEY_OF.items():
        rows = pick(found, measure=WRONG_KEY, side=side)
        if rows.height and rows["value"].max() >= SHOWN_RATE:  # type: ignore[operator]
            yield _named(rows, model, policy, labels)


def _named(rows: pl.DataFrame, model: str, policy: str, labels: Labels) -> pl.DataFrame:
    names = {name: getattr(labels, name) for name in ("pair", "benchmark", "questions", "source", "metric")}
    constants = {**names, "model": model, "policy": policy}
    return rows.select(*(pl.lit(value).alias(name) for name, value in constants.items()), "budget", "value", "lo", "hi")


@style.styled()
def draw(numbers: pl.DataFrame, context: StudyContext) -> Figure:
    """Draw what ``numbers`` returned: a row per pair, a column per benchmark, all on one scale."""
    pairs, names = style.places(numbers)
    tight = len(names) > ROOMY
    labels = context.labels
    who = pairs[0] if len(pairs) == 1 else f"{len(pairs)} pairs"
    second = f"{who}, policy {labels.general.default_policy}, {labels.measure}, {labels.band}s"
    source: Source = numbers["source"][0] if numbers["source"].n_unique() == 1 else "sampled"
    figure = style.new_panels(pairs, names, f"{_finding(numbers, context)}\n{second}", source)
    named, untitled = False, set(names)
    for axes, pair, name in style.grid(figure, pairs, names):
        cell = pick(numbers, pair=pair, benchmark=name)
        if cell.is_empty():
            axes.set_axis_off()
            continue
        _panel(axes, cell)
        style.budget_axis(axes, ticks := sorted(set(pick(numbers, benchmark=name)["budget"])), "")
        axes.xaxis.set_major_locator(FixedLocator(ticks[:: 1 + (len(ticks) > MANY)]))  # every second of many
        broken = (pair, name) in context.broken
        if broken:
            style.not_interpretable(axes)
        elif "state" in cell.columns and cell["state"][0] is not None:
            _meeting(axes, cell, numbered=tight)
        axes.set_title("\n".join(_title(cell, name in untitled, tight or broken, numbers)), fontsize=7)
        untitled.discard(name)
        if not named and not broken and not tight:
            named = _name(axes, cell)
    style.name_axes(figure, names, "samples" if tight else "samples per question", "questions solved (%)")
    _legend(figure, numbers, tight)
    return figure


@style.styled()
def picture(measures: pl.DataFrame) -> str:
    """pass@k of two sides whose answers are at hand (``Comparison.measures``), as an address for a page.

    Empty without a second k, as there is no curve.
    """
    wrong_key = pl.when(pl.col("measure") == WRONG_KEY).then(pl.lit(" wrong key")).otherwise(pl.lit(""))
    shown = measures.filter(pl.col("measure").is_in([PASS, WRONG_KEY]), pl.col("side").is_in(list(style.SIDE_COLOURS)))
    model = pl.concat_str("side", wrong_key)
    cell = shown.select("value", "lo", "hi", budget="k", model=model, source=pl.lit("sampled"))
    if cell["budget"].n_unique() < 2:
        return ""
    figure = style.new_figure(1.2 * style.COLUMN, 2.4, "", "sampled")
    axes = figure.subplots()
    _panel(axes, cell)
    style.budget_axis(axes, cell["budget"], "samples per question")
    axes.set_ylabel("questions solved (%)")
    _legend(figure, cell, tight=not _name(axes, cell))
    return f"data:image/svg+xml,{quote(style.svg(figure))}"


def _finding(numbers: pl.DataFrame, context: StudyContext) -> str:
    """In how many cells Base passes RL, by intervals, and in how many RL still leads at the end."""
    if "state" not in numbers.columns:
        return "Base and RL"
    cells = numbers.unique(["pair", "benchmark"], keep="first", maintain_order=True)
    rows = [row for row in style.sound(cells, context).iter_rows(named=True) if row["state"]]
    return ", ".join(each.text.format(**claims.stood(rows)) for each in claims.STOOD if each.holds(claims.stood(rows)))


def _title(cell: pl.DataFrame, first: bool, tight: bool, numbers: pl.DataFrame) -> list[str]:
    """Lines above a panel: its benchmark, its source if sources differ, and who leads, if there is room."""
    name, questions = cell["benchmark"][0], f"{cell['questions'][0]} questions"
    said = [SOURCES[cell["source"][0]]] if numbers["source"].n_unique() > 1 else []
    if tight:
        return ([name, questions] if first else []) + said
    words = [claims.say(claims.PASSING, cell.row(0, named=True))] if "state" in cell.columns else []
    return [name, ", ".join([questions, *said]), *words]


def _panel(axes: Axes, cell: pl.DataFrame) -> None:
    curves = cell.filter(pl.col("model").is_in(list(style.SIDE_COLOURS)))
    style.sides(axes, curves, "budget", "model", linewidth=1.3)
    for value in style.percent(pick(cell, model="Base greedy")["value"]):
        axes.axhline(value, color=palette.BASE_COLOUR, linestyle=DOTS, zorder=2, gid="Base greedy")
    for model, side in WRONG_KEY_OF.items():
        rates = pick(cell, model=model)
        axes.plot(rates["budget"], style.percent(rates["value"]), ":", color=style.SIDE_COLOURS[side], gid=model)
    axes.set_facecolor("white" if cell["source"][0] == "sampled" else "#F4F4F4")
    axes.set_ylim(0, 100)
    axes.yaxis.set_major_locator(FixedLocator([0, 50, 100]))


def _meeting(axes: Axes, cell: pl.DataFrame, *, numbered: bool) -> None:
    """Mark where Base passes RL with its interval, in the half of the panel with fewer curves."""
    row, last = cell.row(0, named=True), max(cell["budget"])
    curves = cell.filter(~pl.col("model").is_in(list(WRONG_KEY_OF)))["value"]
    if claims.standing(row) != "passes" or row["crossing_hi"] > last:
        return
    ends, y = [row["crossing_lo"], row["crossing_hi"]], 7 if curves.median() > 0.5 else 88  # type: ignore[operator]
    axes.plot(ends, [y, y], color=MEETING["color"], linewidth=MEETING["linewidth"], gid="interval")
    axes.plot([row["crossing"]], [y], **MEETING, gid="crossing")
    if numbered:
        right = ends[0] < 2  # no room at its left
        beside: dict[str, Any] = {"textcoords": "offset points", "va": "center_baseline", "fontsize": 7}
        beside |= {"xy": (ends[right], y), "xytext": (2 if right else -2, 0), "ha": "left" if right else "right"}
        axes.annotate(f"{row['crossing']:.1f}", **beside)


def _name(axes: Axes, cell: pl.DataFrame) -> bool:
    """Name the two curves beside one another where they are furthest apart; whether there was room."""
    models = ("Base", "RL", *WRONG_KEY_OF)
    base, rl, *wrong_keys = (pick(cell, model=one).select("budget", pl.col("value").alias(one)) for one in models)
    both = base.join(rl, on="budget").drop_nulls().sort("budget")
    if both.is_empty():
        return False
    for wrong_key in wrong_keys:
        both = both.join(wrong_key, on="budget", how="left", maintain_order="left")
    both = both.with_columns(pl.col(*WRONG_KEY_OF).interpolate())  # as it is drawn
    lower, upper = pl.min_horizontal("Base", "RL"), pl.max_horizontal("Base", "RL")
    within = (lower > ROOM) & (upper < 1 - ROOM)  # a name fits between the curves and the panel's ends
    lines = [pl.col(model) for model in WRONG_KEY_OF]
    crossed = [line.is_between(lower - ROOM, lower) | line.is_between(upper, upper + ROOM) for line in lines]
    free = within & ~pl.any_horizontal(crossed).fill_null(value=False)
    wide = both.sort(free, within, upper - lower, descending=True).row(0, named=True)
    looks: dict[str, Any] = {"textcoords": "offset points", "fontsize": 7}
    looks["ha"] = "left" if wide["budget"] == 1 else "center"
    for model, other in (("Base", "RL"), ("RL", "Base")):
        offset, looks["va"] = ((2, 5), "bottom") if wide[model] >= wide[other] else ((2, -5), "top")
        axes.annotate(model, (wide["budget"], 100 * wide[model]), offset, color=style.SIDE_COLOURS[model], **looks)
    return True


def _legend(figure: Figure, numbers: pl.DataFrame, tight: bool) -> None:
    looks = {"markersize": 3, "linewidth": 1.3}
    keys = [
        style.key(name, color=colour, marker=style.SIDE_MARKERS[name], **looks)
        for name, colour in style.SIDE_COLOURS.items()
        if tight
    ]
    if "Base greedy" in numbers["model"]:
        keys.append(style.key("one greedy answer of Base", color=palette.BASE_COLOUR, linestyle=DOTS))
    if numbers["model"].is_in(list(WRONG_KEY_OF)).any():
        keys.append(style.key("gold of another question", color=palette.ENVELOPE_COLOUR, linestyle=":"))
    if "state" in numbers.columns:
        keys.append(style.key("where Base passes RL, with its interval", **MEETING))
    if keys:
        style.legend(figure, keys, ncols=2 if figure.get_figwidth() < NARROW else 4)
