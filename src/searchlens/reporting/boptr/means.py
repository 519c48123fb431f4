"""Blocks of the frame ``means``: a line for each way of predicting, a column for each set of cells."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import polars as pl

from searchlens.claims import DASH
from searchlens.config.boptr import REGIMES
from searchlens.reporting.boptr.context import BoptrContext
from searchlens.reporting.boptr.notes import corrected, reasons, single_pair
from searchlens.tables import format as fmt
from searchlens.tables.format import Line
from searchlens.tables.table import Part

FULL_POOL = "full pool (expanded policies included); not comparable with the rows of the AR pool"
OVERALL = {name: name for name in ("macro", "micro", "matched macro", "matched micro")}
"""Columns over all fitted cells."""
OVERALL_NOTE = (
    "macro: mean of the models' means; micro: mean over cells; matched: over the cells that every row shares, rivals"
    " and base-only rows left out of that condition, and only these compare rows."
)
UNCHANGED = "With the cohort's own exponents every row is the same."
BY_REGIME = {name: name for name in (*REGIMES, "all cells")}
"""Columns over the fitted cells of each regime."""


@dataclass(frozen=True)
class Means:
    """Means of one scope. Rows of the full pool have a block of their own and are never mixed with others."""

    context: BoptrContext
    rows: pl.DataFrame
    """Rows of the frame ``means``."""
    columns: Mapping[str, str]
    """Value of the column ``column`` to its printed heading."""
    count: str = ""
    """The column whose number of cells is printed; a column that is not there prints none."""
    labels: Mapping[str, str] | None = None
    """Key of a row to its printed name, in place of the frame's column ``label``."""

    @property
    def paper(self) -> pl.DataFrame:
        """The AR pool under the paper's exponents: the first blocks."""
        return self.rows.filter(pool="ar", exponents="paper")

    def lines(self, rows: pl.DataFrame | None = None, columns: Mapping[str, str] | None = None) -> dict[str, Line]:
        """A line for each row by its key; of one pool and one choice of exponents, ``paper`` by default."""
        printed = {}
        rows, columns = self.paper if rows is None else rows, columns or self.columns
        for (key,), group in rows.group_by("tier", maintain_order=True):
            cells = {row["column"]: row for row in group.iter_rows(named=True)}
            first = next(iter(cells.values()))
            line = {"row": (self.labels or {}).get(str(key), first["label"])}
            line |= {title: corrected(cells[column]) if column in cells else DASH for column, title in columns.items()}
            if self.count in cells:
                line["cells"] = fmt.fraction(cells[self.count]["cells"], cells[self.count]["of"])
            printed[str(key)] = line | {"RL used": first["rl"]}
        return printed

    def full_pool(self) -> list[Part]:
        """The block of the full pool, or nothing if no cell has one."""
        full = self.rows.filter(pool="full", exponents="paper")
        defined = full.filter(pl.col("error").is_not_null())["column"].to_list()
        shown = {column: title for column, title in self.columns.items() if column in defined}
        return [block(self.lines(full, shown), FULL_POOL)] if defined else []

    def own_exponents(self) -> list[Part]:
        """The rows of the AR pool that change under the cohort's own exponents, as a block; nothing if none does."""
        keys, own = ["tier", "column"], self.rows.filter(pool="ar", exponents="own")
        both = own.join(self.paper.select(*keys, paper="error"), on=keys, how="left")
        changed = both.filter(pl.col("column").is_in(list(self.columns)), pl.col("error") != pl.col("paper"))
        rows = own.filter(pl.col("tier").is_in(changed["tier"].unique().to_list()))
        return [block(self.lines(rows), "the cohort's own exponents: rows that differ")] if rows.height else []

    def fewer_cells(self) -> list[str]:
        """A note that lists the rows with fewer cells than the others in the column of the count."""
        defined = self.paper.filter(pl.col("column") == self.count, pl.col("cells") > 0)
        short = defined.filter(pl.col("cells") < pl.col("cells").max())
        counts = "; ".join(f"{row['label']} {row['cells']} of {row['of']}" for row in short.iter_rows(named=True))
        return [f"Rows with fewer cells: {counts}. They compare with others in the matched columns only."] * bool(
            counts
        )

    def closing(self, *more: pl.DataFrame) -> list[str]:
        """The last notes: what exponents and pools change, and why numbers are missing, those of ``more``, too."""
        unchanged = [] if self.own_exponents() else [UNCHANGED]
        return [*unchanged, *self.pool_note(), *single_pair(self.context.plan), *reasons(self.rows, *more)]

    def pool_note(self) -> list[str]:
        """A note for a study without expanded pools."""
        expanded = self.rows.filter(pl.col("error").is_not_null(), pool="full").height
        return [] if expanded else ["No cell has an expanded pool: every row is of the AR pool."]


def block(line_by_key: Mapping[str, Line], title: str, rule_before: Collection[str] = ()) -> Part:
    """Lines as a block, with a horizontal rule above the lines of these keys."""
    places = [i for i, key in enumerate(line_by_key) if i and key in rule_before]
    return fmt.part(list(line_by_key.values()), title, places)
