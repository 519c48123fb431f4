"""How numbers, intervals and reasons are printed, and the notes that many tables share."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from searchlens.boptr.cohort import CohortPlan
from searchlens.boptr.options import BoptrOptions
from searchlens.boptr.rule import REASONS
from searchlens.tables._table import DASH, Part

Row = Mapping[str, Any]
Line = dict[str, str]
Frames = Mapping[str, pl.DataFrame]
YES, NO = "✓", "×"
_NEGATIVE = re.compile(r"(?<!\w)-(?=\d)")


@dataclass(frozen=True)
class Study:
    """What a table is made from: the frames of a study, and the plan and the options it was made with."""

    frames: Frames
    plan: CohortPlan
    options: BoptrOptions


def number(value: float | None, digits: int = 2, sign: str = "") -> str:
    """A number with a true minus sign and no negative zero; a dash where there is none."""
    if value is None or math.isnan(value):
        return DASH
    if math.isinf(value):
        return "∞" if value > 0 else "\N{MINUS SIGN}∞"
    text = f"{value:{sign}.{digits}f}"
    if float(text) == 0:
        text = text.replace("-", "+" if sign else "")
    return text.replace("-", "\N{MINUS SIGN}")


def interval(value: float | None, lo: float | None, hi: float | None, digits: int = 2, sign: str = "") -> str:
    """Such as ``1.12 [0.76, 2.52]``; the value alone where it has no interval."""
    text = number(value, digits, sign)
    if text == DASH or lo is None or hi is None:
        return text
    return f"{text} [{number(lo, digits, sign)}, {number(hi, digits, sign)}]"


def percent(value: float | None, lo: float | None = None, hi: float | None = None, sign: str = "") -> str:
    """A proportion as a percentage, with its interval."""
    scaled = [None if x is None else 100 * x for x in (value, lo, hi)]
    return interval(scaled[0], scaled[1], scaled[2], 1, sign)


def of(count: int | None, total: int | None) -> str:
    """Such as ``4/27``."""
    return DASH if count is None or total is None else f"{count}/{total}"


def tick(holds: bool | None) -> str:
    """A tick or a cross."""
    return DASH if holds is None else YES if holds else NO


def word(text: object) -> str:
    """Text, or a dash."""
    return DASH if text is None or text == "" else str(text)


def minus(text: str) -> str:
    """Text with minus signs before its negative numbers; hyphens within names stay."""
    return _NEGATIVE.sub("\N{MINUS SIGN}", text)


def text_frame(lines: Sequence[Mapping[str, str]]) -> pl.DataFrame:
    """Lines as a frame; a heading that a line lacks is a dash there, and no lines make a row of one dash."""
    headings = list(dict.fromkeys(heading for line in lines for heading in line)) or ["(no rows)"]
    rows = [[line.get(heading, DASH) for heading in headings] for line in lines] or [[DASH]]
    return pl.DataFrame(rows, dict.fromkeys(headings, pl.String()), orient="row")


def part(lines: Sequence[Mapping[str, str]], title: str = "", rule_before: tuple[int, ...] = ()) -> Part:
    """A block of lines."""
    return Part(text_frame(lines), title, rule_before)


def breaks(values: Sequence[object]) -> tuple[int, ...]:
    """Where a sequence changes."""
    return tuple(i for i in range(1, len(values)) if values[i] != values[i - 1])


def model_name(plan: CohortPlan, model: str) -> str:
    """A model for people: the anchor is marked."""
    return f"{model} (anchor)" if model == plan.anchor_model else model


def heading(plan: CohortPlan) -> Callable[[str], str]:
    """Name of a column that is a benchmark, a model or a mean."""

    def name(column: str) -> str:
        if column in plan.benchmarks:
            return plan.title(column)
        return model_name(plan, column) if column in plan.models else column

    return name


def flat(frame: pl.DataFrame) -> pl.DataFrame:
    """The frame with lists as text, so that it can be CSV."""
    lists = [name for name, kind in frame.schema.items() if isinstance(kind, pl.List)]
    return frame.with_columns(pl.col(name).cast(pl.List(pl.String)).list.join(" ") for name in lists)


def stacked(**blocks: pl.DataFrame) -> pl.DataFrame:
    """Frames of different columns in one, told apart by the column ``block``."""
    named = [frame.select(pl.lit(name).alias("block"), pl.all()) for name, frame in blocks.items()]
    return flat(pl.concat(named, how="diagonal_relaxed"))


# ---- notes


def brackets(options: BoptrOptions) -> str:
    """What the intervals are."""
    return (
        f"Brackets: {options.confidence:.0%} percentile bootstrap over questions ({options.draws} draws shared by all"
        " rows, both sides of a question together), the path of the row held fixed. The models are given; another set"
        " of models is another study."
    )


WILSON = "Brackets of a single readout: Wilson."
ERROR = (
    "Errors: mean over budgets b of |predicted − RL pass@b|, RL under its default policy, in percentage points (pp)."
)
UPWARD = (
    "An absolute error is biased upwards near zero, so an interval can lie above its point estimate; in parentheses"
    " the value corrected for that and for choosing the path on the same questions; it may be slightly negative."
)
PATHS_OF_ALPHA = "Brackets behind α: the interval of α that gives the same path N̂(b)."


def reasons(*frames: pl.DataFrame) -> list[str]:
    """A note with the sentence of every reason that occurs."""
    codes = dict.fromkeys(
        code for frame in frames if "reason" in frame.columns for code in frame["reason"].drop_nulls().to_list()
    )
    if not codes:
        return []
    return [f"{DASH} not defined: " + "; ".join(f"{REASONS[code]} ({code})" for code in codes) + "."]


def single_pair(plan: CohortPlan) -> list[str]:
    """A note for a cohort of one pair, in which the offset means nothing."""
    pairs = [name for name in plan.fitted_models if plan.models[name].rl]
    return ["With a single pair δ = 0 by definition and H5 = B0."] if len(pairs) == 1 else []


def contrast_text(row: Row) -> str:
    """Such as ``H5 − H1 = −0.04, corrected −0.02 [−2.69, +2.50] (cells: 4; not distinguishable)``."""
    plain = number(row["difference"], sign="+")
    fair = interval(row["corrected"], row["lo_corrected"], row["hi_corrected"], sign="+")
    return f"{row['first']} − {row['second']} = {plain}, corrected {fair} (cells: {row['cells']}; {verdict_text(row)})"


def verdict_text(row: Row) -> str:
    """The verdict by the rows' names."""
    if row["cells"] and not row["differing"]:
        return "identical predictions"
    lower = {"first lower": row["first"], "second lower": row["second"]}.get(row["verdict"])
    return f"{lower} lower" if lower else word(row["verdict"])


RIVALS = ("mean RL", "Base+gain", "low temp")
BASELINES = ("H1", "H2", *RIVALS)
ORACLES = ("H6", "H7", "V1")


def contrast_notes(contrasts: pl.DataFrame, scope: str, ours: str, rows: Iterable[str]) -> list[str]:
    """The paired differences of a table's rows with its rule, and plainly which of them is better than the rule.

    Parameters
    ----------
    contrasts : DataFrame
        Of the whole study.
    scope : {"anchor", "cohort"}
    ours : str
        The rule: one side of each contrast.
    rows : iterable of str
        Keys of the rows that the table has.
    """
    shown = pl.col("first").is_in([ours, *rows]) & pl.col("second").is_in([ours, *rows])
    known = contrasts.filter(pl.col("scope") == scope, shown, pl.col("difference").is_not_null())
    paper, own = (list(known.filter(exponents=which).iter_rows(named=True)) for which in ("paper", "own"))
    if not paper:
        return []
    told = "Paired differences on common cells: " + "; ".join(map(contrast_text, paper)) + "."
    with_own = [f"With the cohort's own exponents: {note}" for note in _better(own, ours)]
    return [told, *_better(paper, ours), *with_own]


def _better(rows: Iterable[Row], ours: str) -> list[str]:
    """A sentence for each row, oracles apart, whose error is lower than the rule's."""
    notes = []
    for row in rows:
        other = row["second"] if row["first"] == ours else row["first"]
        lower = row["corrected"] > 0 if row["first"] == ours else row["corrected"] < 0
        if lower and other not in ORACLES:
            sure = row["verdict"] != "not distinguishable"
            says = "has a lower error than" if sure else "has the lower point estimate, not distinguishable from"
            what = ", which does without the law," if other in BASELINES else ""
            notes.append(f"{other}{what} {says} {ours}.")
    return notes
