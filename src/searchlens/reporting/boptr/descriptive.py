"""Base alone on benchmarks without an RL side."""

from __future__ import annotations

from searchlens.analysis.claims import number, percent
from searchlens.boptr.descriptive import TAU
from searchlens.catalogue import table
from searchlens.reporting.boptr.context import BoptrContext, cell_line, reasons, single_readouts
from searchlens.reporting.tables import format as fmt
from searchlens.reporting.tables.table import Table


@table("descriptive", stage="boptr")
def descriptive(context: BoptrContext) -> Table:
    """Base alone on benchmarks without an RL side."""
    frame, plan = context.frames["descriptive"], context.plan
    lines = []
    for (model, benchmark), rows in frame.group_by("model", "benchmark", maintain_order=True):
        first = rows.row(0, named=True)
        line = cell_line(plan, str(model), str(benchmark))
        line["n"] = fmt.word(first["questions"])
        line |= {
            f"b = {row['b']}": percent(row["value"], row["lo"], row["hi"])
            for row in rows.iter_rows(named=True)
            if row["b"] is not None
        }
        line |= {"P_max": percent(first["p_max"]), "reached by": fmt.word(first["policy"])}
        lines.append(line | {"headroom": percent(first["headroom"]), "N*": number(first["knee"], 1)})
    notes = [
        f"Base pass@b under {plan.default_policy}, in %. {single_readouts(context.options)} P_max: best AR policy at"
        f" the largest budget; N*: smallest budget within {percent(TAU)} points of the value there."
        " No RL was sampled on these benchmarks: nothing is predicted.",
        *([] if frame.height else ["The cohort has no descriptive benchmark."]),
        *reasons(frame),
    ]
    return Table(frame, [fmt.part(lines)], notes)
