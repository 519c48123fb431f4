"""The paper's recovery objects: what each may show, at what risk, and what it shows here."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from searchlens.analysis.claims import DASH, Row, number, percent
from searchlens.analysis.frames import pick
from searchlens.catalogue import table
from searchlens.reporting.tables import format as fmt
from searchlens.reporting.tables.format import Line
from searchlens.reporting.tables.study import READOUT, Cell, StudyContext
from searchlens.reporting.tables.table import Part, Table

METRIC = "P"
OBJECTS = {
    "envelope": ("no per-policy target", "yes", "upper-bound support", "overstates practical policy"),
    "near-match set": ("yes", "yes", "recoverability", "too many matches"),
    "smooth path": ("yes", "constrained", "structured recovery", "hyperparameter sensitivity"),
    "frozen rule": ("train anchor only", "no", "transfer diagnostic", "under-identification"),
}
"""Object to whether it uses the RL target, whether it allows lookup, its purpose and its main risk (paper, table of
recovery analyses)."""
WORDS = ("uses_rl_target", "lookup", "purpose", "main_risk")
SAME = 1e-9
_MEASURED = {"rl_minus_best": pl.Float64(), "matches": pl.UInt32(), "residual": pl.Float64()}


@table("recovery_objects", stage="study")
def recovery_objects(context: StudyContext) -> Table:
    """What each recovery object may show, and what it shows in this study.

    ``reached``: RL budgets at which the object reaches RL, of all ``budgets`` of the ``cells``: the envelope is at or
    above RL, or a match exists. ``value``: the largest gap RL - envelope; the median number of matches of a budget; the
    mean absolute residual of the monotone path. Proportions, null for the frozen rule, which other tables measure.
    """
    cells = [cell for cell in context.cells if not cell.warning]
    found = pl.concat([_by_budget(cell) for cell in cells]) if cells else pl.DataFrame(schema=_MEASURED)
    measured = {
        "envelope": {
            "reached": found.filter(pl.col("rl_minus_best") <= SAME).height,
            "value": found["rl_minus_best"].max(),
        },
        "near-match set": {"reached": found.filter(pl.col("matches") > 0).height, "value": found["matches"].median()},
        "smooth path": {"value": found["residual"].mean()},
        "frozen rule": {},
    }
    counts = {"cells": len(cells), "budgets": found.height}
    rows = [
        {"object": name, **dict(zip(WORDS, words, strict=True)), **(counts if measured[name] else {}), **measured[name]}
        for name, words in OBJECTS.items()
    ]
    schema = dict.fromkeys(("object", *WORDS), pl.String()) | dict.fromkeys(("cells", "budgets", "reached"), pl.Int64())
    data = pl.DataFrame(rows, schema | {"value": pl.Float64()})
    notes = [
        f"Last column: pass@k, {READOUT} readout, over the budgets of {len(cells)} interpretable cells"
        " (pair, benchmark). Every number is of the pool that the cell was sampled with; table recovery_summary has the"
        " cells one by one. Envelope and near-match set choose among many points on the same questions, which favours"
        " them.",
        "Smooth path: here the path of least error whose N never falls; the power law with one policy is in table"
        " identification, the frozen rule in tables horizontal, vertical and coverage_heldout, where BOPTR runs.",
    ]
    return Table(data, [Part(fmt.text_frame([_line(row) for row in data.rows(named=True)]))], notes)


def _by_budget(cell: Cell) -> pl.DataFrame:
    """One row per RL budget of a cell: gap to the envelope, number of matches, residual of the monotone path."""
    support = pick(cell.support, metric=METRIC, readout=READOUT).select("budget", "rl_minus_best")
    matches = pick(cell.near_match, metric=METRIC).group_by("target_budget").agg(matches=pl.len())
    path = pick(cell.path, metric=METRIC, kind="monotone").select(
        "target_budget", residual=pl.col("rl_minus_base").abs()
    )
    rows = support
    for frame in (matches, path):
        rows = rows.join(frame, left_on="budget", right_on="target_budget", how="left", maintain_order="left")
    return rows.select("rl_minus_best", pl.col("matches").fill_null(0), "residual")


def _line(row: Row) -> Line:
    words = dict(
        zip(("uses RL target?", "allows lookup?", "purpose", "main risk"), (row[w] for w in WORDS), strict=True)
    )
    return {"object": row["object"], **words, "in this study": "; ".join(_measured(row)) or DASH}


def _measured(row: Row) -> Iterator[str]:
    if row["value"] is None:
        return
    reached = f"{fmt.fraction(row['reached'], row['budgets'])} budgets"
    if row["object"] == "envelope":
        yield f"at or above RL at {reached}"
        yield f"largest gap RL − envelope {percent(row['value'], sign='+')} pp"
    elif row["object"] == "near-match set":
        yield f"a match at {reached}"
        yield f"median {number(row['value'], 0)} matches a budget"
    else:
        yield f"mean |residual| {percent(row['value'])} pp over {row['budgets']} budgets"
