"""The measures of the debate on whether RL adds to its Base, side by side.

Nothing is estimated here: every number is one of the frames of measures.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import polars as pl

from searchlens.analysis import claims, exponents
from searchlens.analysis.claims import DASH, Row, interval, percent
from searchlens.analysis.frames import pick
from searchlens.analysis.measures import BASE, DIFFERENCE, RL
from searchlens.catalogue import table
from searchlens.reporting.tables import table as fmt
from searchlens.reporting.tables.measures import BRACKETS, BROKEN, ESTIMATOR_NOTE, exponents_allowed, noted
from searchlens.reporting.tables.study import StudyContext

BUDGETS = (1, 16)
TAUS = (0.5, 0.9)
CORRECTED = (1, 4)
EQUIVALENT = ("state", "lo", "hi", "lo_open", "hi_open", "pool")
"""Columns of frame ``equivalents`` beside N* itself."""


@table("debate", stage="study")
def debate(context: StudyContext) -> fmt.Table:
    """The measures of the debate side by side, under the default policy, with what these data cannot say."""
    cells = context.measures["measures"].select("pair", "benchmark").unique(maintain_order=True)
    rows = [_row(context, *cell) for cell in cells.sort("benchmark", maintain_order=True).iter_rows()]
    data = pl.DataFrame(rows, infer_schema_length=None).with_columns(pl.col(pl.Null).cast(pl.Float64))
    lines = [_line(row, (row["pair"], row["benchmark"]) in context.broken) for row in rows]
    notes = [
        "pass@k: Base → RL in %; N*: samples of Base that solve as much as 1 and 16 of RL; support: questions kept,"
        " shrunk and expanded (table support); Cover and corrected: RL − Base in percentage points, of questions"
        " solved with at least that share of samples, and of pass@k without guessing; RL beats Base: in a second run on"
        " the same questions; β: the set of exponents that the samples allow under the default policy, N up to the"
        " pool of Base.",
        "pass@1 and Cover@0.9 say how reliably a side solves; pass@16, N* and support what it can reach with these"
        " samples, not with more; guess-corrected numbers hold if a sample knows or guesses evenly; P(RL beats Base) is"
        " of these questions and these two models. None says what another training run would give.",
        f"Cannot say: what these samples leave open in a row. {BRACKETS} {ESTIMATOR_NOTE}",
    ]
    return fmt.Table(data, [fmt.block(lines, "benchmark")], noted(notes, context))


def _row(context: StudyContext, pair: str, benchmark: str) -> dict[str, object]:
    """All numbers of a pair on a benchmark, null where there is none."""
    frames, cell = context.measures, {"pair": pair, "benchmark": benchmark}
    measures = pick(frames["measures"], **cell)
    row: dict[str, object] = dict(cell)
    for k in BUDGETS:
        for name, side in ((f"pass{k}_base", BASE), (f"pass{k}_rl", RL)):
            row[name] = _value(name, measures, "pass@k", side, k=k)[name]
        at = _first(pick(frames["equivalents"], **cell, policy=context.default_policy, budget=k))
        row |= {f"n{k}": at.get("n"), **{f"n{k}_{name}": at.get(name) for name in EQUIVALENT}}
    row |= _first(pick(frames["support"], **cell))
    for tau in TAUS:
        row |= _value(f"cover{tau}", measures, "Cover@tau", DIFFERENCE, tau=tau)
    for k in CORRECTED:
        row |= _value(f"corrected{k}", measures, "guess-corrected pass@k", DIFFERENCE, k=k)
    row["guess_null16"] = _value("null", measures, "guess null", BASE, k=16)["null"]
    row |= _value("rerun", measures, "P(RL beats Base)", DIFFERENCE)
    law = _first(pick(frames["exponents"], **cell, policy=context.default_policy))
    names = ("testable", "empty", "hardly", "beta_lo", "beta_hi", "p", "misfit")
    return row | {name: law.get(name) for name in names}


def _first(frame: pl.DataFrame) -> dict[str, Any]:
    """The first row; nothing if there is none."""
    return frame.row(0, named=True) if frame.height else {}


def _value(name: str, measures: pl.DataFrame, measure: str, side: str, **keys: float) -> dict[str, float | None]:
    """Value and interval of one measure, named after it; None if the study does not have it."""
    close = ((pl.col(key) - value).abs() < 1e-9 for key, value in keys.items())
    found = _first(pick(measures, measure=measure, side=side).filter(*close))
    return {f"{name}{end}": found.get(column) for end, column in (("", "value"), ("_lo", "lo"), ("_hi", "hi"))}


def _line(row: Row, broken: bool) -> fmt.Line:
    line = {"benchmark": row["benchmark"], "pair": row["pair"]}
    shown = {f"pass@{k}": f"{percent(row[f'pass{k}_base'])} → {percent(row[f'pass{k}_rl'])}" for k in BUDGETS}
    for k in BUDGETS:
        at = {"n": row[f"n{k}"], **{name: row[f"n{k}_{name}"] for name in EQUIVALENT}}
        shown[f"N*({k})"] = claims.located(claims.EQUIVALENT, at) if at["state"] else DASH
    shown["kept, shrunk, expanded"] = ", ".join(fmt.word(row.get(name)) for name in ("kept", "shrunk", "expanded"))
    shown |= {f"Cover@{tau}": _difference(row, f"cover{tau}") for tau in TAUS}
    shown |= {f"corrected at {k}": _difference(row, f"corrected{k}") for k in CORRECTED}
    shown["RL beats Base"] = interval(row["rerun"], row["rerun_lo"], row["rerun_hi"])
    shown["β"] = DASH if row["empty"] is None else exponents_allowed(row)
    shown["cannot say"] = "; ".join(_limits(row))
    return line | (dict.fromkeys(shown, DASH) | {"cannot say": BROKEN} if broken else shown)


def _difference(row: Row, name: str) -> str:
    return percent(row[name], row[f"{name}_lo"], row[f"{name}_hi"], "+")


def _limits(row: Row) -> Iterator[str]:
    """What these data cannot say of a row, in words."""
    if (null := row["guess_null16"]) is not None and null >= claims.GUESSED:
        yield f"pass@16: guessing alone solves {percent(null)}%"
    if row["n16_state"] in ("above", "level"):
        yield f"N*(16): not within the {row['n16_pool']} samples of Base"
    if row.get("expanded") and not row["expanded_significant"]:
        yield "expansion: no question is significant"
    if open_exponents := exponents.of_exponents(row):
        yield f"β: {open_exponents}"
    if claims.undecided(row["rerun_lo"], row["rerun_hi"]):
        yield "which side wins a second run"
