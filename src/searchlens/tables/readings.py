"""Tables of the readings that use every sample."""

from __future__ import annotations

import polars as pl

from searchlens.catalogue import table
from searchlens.tables import format as fmt
from searchlens.tables.format import Row
from searchlens.tables.study import StudyContext
from searchlens.tables.table import Part, Table

BEST = "best"
READOUT_NOTE = "Order-free: every curve is the exact mean over all choices of k samples of the pool."


@table("budget_equivalents", stage="study")
def budget_equivalents(context: StudyContext) -> Table:
    """How many samples of Base equal b samples of RL, under RL's default policy and under the best of Base."""
    data = context.readings["equivalents"]
    shown = data.filter(pl.col("policy").is_in([context.default_policy, BEST]))
    lines = []
    for names, rows in shown.group_by("pair", "benchmark", "policy", maintain_order=True):
        line = dict(zip(["pair", "benchmark", "policy"], map(str, names), strict=True))
        ordered = rows.sort("budget").rows(named=True)
        lines.append(line | {str(row["budget"]): _equivalent(row) for row in ordered})
    keys = [(line["pair"], line["benchmark"]) for line in lines]
    notes = [
        "N*: samples of Base that solve as many questions as b samples of RL; a column per b. Below 1: one sample of"
        " Base solves more; above n: RL solves at least as much as Base with its whole pool of n.",
        "Best: at each N the policy of Base that solves most, chosen on the same questions, which makes its N* too"
        f" small. {READOUT_NOTE}",
        "Brackets: percentile bootstrap over questions at the configured level, pointwise; ≤ or ≥ where an end lies"
        " outside of what the pool can show. The CSV also has simultaneous bands, local exponents, ratios of tokens.",
    ]
    return Table(data, [Part(fmt.text_frame(lines, missing=""), rule_before=fmt.changes(keys))], notes)


def _equivalent(row: Row) -> str:
    """N* with its interval, such as ``3.5 [2.9, 4.2]``."""
    if row["state"] == "below":
        return "below 1"
    low = ("≤" if row["lo_open"] else "") + f"{row['lo']:.1f}"
    if row["state"] == "above":
        return f"above {row['pool']} [{low}, ...]"
    high = ("≥" if row["hi_open"] else "") + f"{row['hi']:.1f}"
    return f"{row['n']:.1f} [{low}, {high}]"
