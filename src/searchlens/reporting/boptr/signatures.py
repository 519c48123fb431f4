"""What RL changed under the same policy."""

from __future__ import annotations

from searchlens.analysis.claims import DASH, Row, percent
from searchlens.catalogue import table
from searchlens.reporting.boptr.context import BoptrContext, cell_line, model_changes, reasons
from searchlens.reporting.tables import format as fmt
from searchlens.reporting.tables.table import Table

SIGNATURES = {
    "low_budget_gain": "low-budget gain",
    "base_recovery": "base recovery",
    "concentration_gain": "concentration gain",
    "termination_gain": "termination gain",
}
EXAMPLES = 4
"""Largest number of cells that are named as examples."""


@table("signatures", stage="boptr")
def signatures(context: BoptrContext) -> Table:
    """The four same-policy signatures: where each holds, and every cell's decisions."""
    frame, patterns, plan = context.frames["signatures"], context.frames["signature_table"], context.plan
    pattern_lines = [
        {
            "pattern": row["pattern"],
            "typical metric": row["metric"],
            "holds in": fmt.fraction(row["holds"], row["defined"]),
            "examples": _examples(row["cells"]),
            "interpretation": row["interpretation"],
        }
        for row in patterns.iter_rows(named=True)
    ]
    decisions = frame.filter("decides")
    cell_lines = []
    for (model, benchmark), rows in decisions.group_by("model", "benchmark", maintain_order=True):
        line = cell_line(plan, str(model), str(benchmark)) | {"questions": fmt.word(rows["questions"][0])}
        cell_lines.append(line | {_signature(row): _decision(row) for row in rows.iter_rows(named=True)})
    notes = [
        f"RL and Base under one policy, {plan.default_policy}. T, the first finish, is read from the first b samples."
        " Each decision stands before its difference, RL − Base in percentage points; yes: the interval lies above 0,"
        " no: below, undecided: it contains 0. For the recovery yes is below 0; reached: undecided where RL led at"
        " b = 1; level: undecided where it did not. A termination gain needs both of its columns.",
        f"Brackets: {context.options.confidence:.0%}, paired bootstrap over questions; of the rate of valid answers,"
        " from the two rates' own intervals.",
        *reasons(frame),
    ]
    parts = [
        fmt.part(pattern_lines, "patterns"),
        fmt.part(cell_lines, "every cell", model_changes(decisions)),
    ]
    return Table(fmt.stacked(patterns=patterns, cells=frame), parts, notes)


def _examples(cells: str | None) -> str:
    names = (cells or "").split(", ")
    return fmt.word(", ".join(names[:EXAMPLES])) + (", ..." if len(names) > EXAMPLES else "")


def _signature(row: Row) -> str:
    at = "" if row["budget"] is None else f"@{row['budget']}"
    return f"{SIGNATURES[row['signature']]} ({row['metric']}{at})"


def _decision(row: Row) -> str:
    if row["decision"] is None:
        return DASH
    detail = f", {row['detail']}" if row["detail"] else ""
    return f"{row['decision']}{detail} {percent(row['rl_minus_base'], row['lo'], row['hi'], '+')}"
