"""Tables: frames in, ``.csv``, ``.tex`` and ``.md`` out.

A table has two faces. ``data`` is the CSV: one value per column, proportions in full precision. ``text`` is the same
as print shows it: percentages, with the interval in brackets behind its value. Nothing is estimated here.
"""

from searchlens.tables._table import DASH, Part, Table, escape, latex, markdown, write
from searchlens.tables.boptr import boptr_tables
from searchlens.tables.origins import provenance
from searchlens.tables.study import (
    Cell,
    intervals,
    operating_points,
    recovery_paths,
    recovery_summary,
    same_policy_counts,
    udf_cost,
)

__all__ = [
    "DASH",
    "Cell",
    "Part",
    "Table",
    "boptr_tables",
    "escape",
    "intervals",
    "latex",
    "markdown",
    "operating_points",
    "provenance",
    "recovery_paths",
    "recovery_summary",
    "same_policy_counts",
    "udf_cost",
    "write",
]
