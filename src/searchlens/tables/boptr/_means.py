"""Blocks of the frame ``means``: a line for each way of predicting, a column for each set of cells.

Rows of the full pool have a block of their own and are never mixed with autoregressive ones. The first blocks hold the
paper's exponents; the last one holds the rows that change under the cohort's own.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import polars as pl

from searchlens.claims import DASH
from searchlens.tables import format as fmt
from searchlens.tables.boptr._notes import corrected
from searchlens.tables.format import Line
from searchlens.tables.table import Part

FULL_POOL = "full pool (expanded policies included); not comparable with the rows of the AR pool"
OVERALL = {name: name for name in ("macro", "micro", "matched macro", "matched micro")}
"""Columns over all fitted cells."""
OVERALL_NOTE = (
    "macro: mean of the models' means; micro: mean over cells; matched: over the cells that every row shares, rivals"
    " and base-only rows left out of that condition, and only these compare rows."
)
Labels = Mapping[str, str]
"""Key of a row to its printed name, in place of the frame's column ``label``."""


def lines(rows: pl.DataFrame, columns: Mapping[str, str], count: str, labels: Labels | None = None) -> dict[str, Line]:
    """A line for each row of the table, by its key.

    Parameters
    ----------
    rows : DataFrame
        Rows of ``means`` of one scope, one pool and one choice of exponents.
    columns : mapping of str to str
        Value of the column ``column`` to its printed heading.
    count : str
        The column whose number of cells is printed; a column that is not there prints none.
    """
    printed = {}
    for (key,), group in rows.group_by("tier", maintain_order=True):
        cells = {row["column"]: row for row in group.iter_rows(named=True)}
        first = next(iter(cells.values()))
        line = {"row": (labels or {}).get(str(key), first["label"])}
        line |= {title: corrected(cells[column]) if column in cells else DASH for column, title in columns.items()}
        if count in cells:
            line["cells"] = fmt.fraction(cells[count]["cells"], cells[count]["of"])
        printed[str(key)] = line | {"RL used": first["rl"]}
    return printed


def block(line_by_key: Mapping[str, Line], title: str, rule_before: Collection[str] = ()) -> Part:
    """Lines as a block, with a horizontal rule above the lines of these keys."""
    places = [i for i, key in enumerate(line_by_key) if i and key in rule_before]
    return fmt.part(list(line_by_key.values()), title, places)


def full_pool(rows: pl.DataFrame, columns: Mapping[str, str], count: str, labels: Labels | None = None) -> list[Part]:
    """The block of the full pool, or nothing if no cell has one."""
    full = rows.filter(pool="full", exponents="paper")
    if not _any_defined(full):
        return []
    defined = full.filter(pl.col("error").is_not_null())["column"].to_list()
    shown = {column: title for column, title in columns.items() if column in defined}
    return [block(lines(full, shown, count, labels), FULL_POOL)]


def own_exponents(
    rows: pl.DataFrame, columns: Mapping[str, str], count: str, labels: Labels | None = None
) -> tuple[list[Part], list[str]]:
    """The rows of the AR pool that change under the cohort's own exponents, as a block; a note if none does."""
    keys = ["tier", "column"]
    paper, own = (rows.filter(pool="ar", exponents=which) for which in ("paper", "own"))
    both = own.join(paper.select(*keys, paper="error"), on=keys, how="left")
    changed = both.filter(pl.col("column").is_in(list(columns)), pl.col("error") != pl.col("paper"))
    if changed.is_empty():
        return [], ["With the cohort's own exponents every row is the same."]
    rows_changed = own.filter(pl.col("tier").is_in(changed["tier"].unique().to_list()))
    return [block(lines(rows_changed, columns, count, labels), "the cohort's own exponents: rows that differ")], []


def pool_note(rows: pl.DataFrame) -> list[str]:
    """A note for a study without expanded pools."""
    if _any_defined(rows.filter(pool="full")):
        return []
    return ["No cell has an expanded pool: every row is of the AR pool."]


def _any_defined(rows: pl.DataFrame) -> bool:
    return bool(rows["error"].is_not_null().any())


def fewer_cells(rows: pl.DataFrame, column: str) -> list[str]:
    """A note that lists the rows with fewer cells than the others in a column."""
    defined = rows.filter(pl.col("column") == column, pl.col("cells") > 0)
    short = defined.filter(pl.col("cells") < pl.col("cells").max())
    if short.is_empty():
        return []
    counts = "; ".join(f"{row['label']} {row['cells']} of {row['of']}" for row in short.iter_rows(named=True))
    return [f"Rows with fewer cells: {counts}. They compare with others in the matched columns only."]
