"""Whether the chains of power sampling have mixed, for every cell that has some."""

from __future__ import annotations

import math

from searchlens.analysis import mixing as health
from searchlens.catalogue import table
from searchlens.reporting.tables.format import Line, changes, text_frame
from searchlens.reporting.tables.study import StudyContext
from searchlens.reporting.tables.table import Part, Table

NOTE = (
    "R-hat compares log p of texts between the chains of a question with its spread within a chain: 1 if they have"
    f" mixed, not mixed above {health.RHAT}. Rise: log p after all steps minus after half of them; not mixed above"
    f" {health.RISE:.0f} standard errors. Both can show that chains have not mixed, never that they have. Changed:"
    " share of steps that changed the text. Recorded samples have no such record."
)


@table("mixing", stage="study")
def mixing(context: StudyContext) -> Table:
    """One row per cell and policy of power sampling."""
    data = health.mixing(context.chains)
    lines: list[Line] = [
        {
            "checkpoint": row["checkpoint"],
            "benchmark": row["benchmark"],
            "policy": row["policy"],
            "chains": f"{row['chains']:,}",
            "accepted": f"{row['accepted']:.2f}",
            "changed": f"{row['changed']:.3f}",
            "rise (nats)": f"{row['rise']:+.2f}" + (f" ± {row['rise_error']:.2f}" if row["rise_error"] else ""),
            "R-hat": _ratio(row["rhat"]),
            "mixed": row["verdict"],
        }
        for row in data.iter_rows(named=True)
    ]
    rules = changes([(row["checkpoint"], row["benchmark"]) for row in data.iter_rows(named=True)])
    notes = (
        [*health.sentences(data), NOTE] if lines else ["No samples of power sampling with a record of their chains."]
    )
    return Table(data, [Part(text_frame(lines, missing=""), rule_before=rules)] if lines else [], notes)


def _ratio(value: float | None) -> str:
    if value is None:
        return ""
    return "no chain moved" if math.isinf(value) else f"{value:.2f}"
