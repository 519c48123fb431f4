"""What is compared, whether it can be compared, and what may be claimed."""

from __future__ import annotations

import polars as pl

from searchlens.analysis.claims import Row, number, percent
from searchlens.boptr.protocol import FEW_QUESTIONS, LENGTH_RATIO, MARGIN
from searchlens.catalogue import table
from searchlens.reporting.boptr.context import BoptrContext, cell_line, model_changes, reasons
from searchlens.reporting.tables import format as fmt
from searchlens.reporting.tables.format import Line
from searchlens.reporting.tables.table import Table


@table("blocks", stage="boptr")
def blocks(context: BoptrContext) -> Table:
    """What is compared with what, and why."""
    frame = context.frames["blocks"]
    lines = [{name: str(value) for name, value in row.items()} for row in frame.iter_rows(named=True)]
    note = "Horizontal and vertical results are reported apart: they test different transfer hypotheses."
    return Table(frame, [fmt.part(lines)], [note])


@table("protocol_flags", stage="boptr")
def protocol_flags(context: BoptrContext) -> Table:
    """Cells in which Base and RL were sampled under different conditions, or on few questions."""
    frame, plan = context.frames["protocol_flags"], context.plan
    lines = []
    for (model, benchmark), rows in frame.group_by("model", "benchmark", maintain_order=True):
        severities = {_flag(row): fmt.word(row["severity"]) for row in rows.iter_rows(named=True)}
        lines.append(cell_line(plan, str(model), str(benchmark)) | severities)
    details = [
        {
            **cell_line(plan, row["model"], row["benchmark"]),
            "flag": _flag(row),
            "severity": row["severity"],
            **_sides(row),
        }
        for row in frame.filter(pl.col("severity").is_in(["attention", "undecided"])).iter_rows(named=True)
    ]
    notes = [
        "A flagged cell is reported, never dropped. Truncation: share of samples that hit the length limit; extraction:"
        " share with an answer that can be read; length: mean tokens per sample; all under the RL default policy."
        " Rates and ranges of readouts in %.",
        f"Attention: the interval of RL − Base lies wholly outside ±{percent(MARGIN)} points, or"
        f" the longer mean length is at least {LENGTH_RATIO:g} times the other; undecided: it crosses the"
        " margin. However little they differ, a rate of either side needs attention beyond the limits of the section"
        " health of the configuration.",
        "Health: share of all samples with an answer; attention: the cell is not interpretable, see the table health.",
        "All or nothing: one side solves no question at any point, or every one; constant RL curve: the same at every"
        f" budget; constant base pool: no budget at which two policies differ; few questions: below {FEW_QUESTIONS}.",
        *reasons(frame),
    ]
    parts = [fmt.part(lines, "severity of every flag", model_changes(frame))]
    if details:
        parts.append(fmt.part(details, "numbers of the flags"))
    return Table(frame, parts, notes)


def _flag(row: Row) -> str:
    return str(row["flag"]).replace("_", " ").replace(" rl ", " RL ")


def _sides(row: Row) -> Line:
    """What a flag compares: numbers of tokens or questions, or proportions."""
    if row["flag"] in ("length", "few_questions"):
        base, rl = (number(row[side], 0) for side in ("base", "rl"))
        return {"Base": base, "RL": rl, "RL − Base": number(row["difference"], 0, "+")}
    base, rl = (percent(row[side]) for side in ("base", "rl"))
    return {"Base": base, "RL": rl, "RL − Base": percent(row["difference"], row["lo"], row["hi"], "+")}


@table("checklist", stage="boptr")
def checklist(context: BoptrContext) -> Table:
    """The paper's robustness checklist, as checks."""
    frame = context.frames["checklist"]
    rows = frame.rows(named=True)
    lines = [{name: row[name] for name in ("item", "status", "claim", "check")} for row in rows]
    notes = [f"{row['item']}: {fmt.minus(row['detail'])}." for row in rows if row["detail"]]
    return Table(frame, [fmt.part(lines)], notes)
