"""What is compared, whether it can be compared, and what may be claimed; the same checkpoints sampled again."""

from __future__ import annotations

import polars as pl

from searchlens.analysis.claims import Row, interval, number, percent
from searchlens.boptr.cohort import CohortPlan
from searchlens.boptr.extension import CRITERION
from searchlens.boptr.protocol import FEW_QUESTIONS, LENGTH_RATIO, MARGIN
from searchlens.catalogue import table
from searchlens.reporting.boptr import context as shared
from searchlens.reporting.tables import table as fmt


@table("blocks", stage="boptr")
def blocks(context: shared.BoptrContext) -> fmt.Table:
    """What is compared with what, and why."""
    frame = context.frames["blocks"]
    lines = [{name: str(value) for name, value in row.items()} for row in frame.iter_rows(named=True)]
    note = "Horizontal and vertical results are reported apart: they test different transfer hypotheses."
    return fmt.Table(frame, [fmt.part(lines)], [note])


@table("protocol_flags", stage="boptr")
def protocol_flags(context: shared.BoptrContext) -> fmt.Table:
    """Cells in which Base and RL were sampled under different conditions, or on few questions."""
    frame, plan = context.frames["protocol_flags"], context.plan
    lines = []
    for (model, benchmark), rows in frame.group_by("model", "benchmark", maintain_order=True):
        severities = {_flag(row): fmt.word(row["severity"]) for row in rows.iter_rows(named=True)}
        lines.append(shared.cell_line(plan, str(model), str(benchmark)) | severities)
    details = [
        {
            **shared.cell_line(plan, row["model"], row["benchmark"]),
            "flag": _flag(row),
            "severity": row["severity"],
            **_sides(row),
        }
        for row in frame.filter(pl.col("severity").is_in(["attention", "undecided"])).iter_rows(named=True)
    ]
    notes = [
        "A flagged cell is reported, never dropped. Truncation: share of samples that hit the length limit; extraction:"
        " share with an answer that can be read; length: mean tokens per sample; all under the RL default policy."
        " Rates and ranges of estimates in %.",
        f"Attention: the interval of RL − Base lies wholly outside ±{percent(MARGIN)} points, or"
        f" the longer mean length is at least {LENGTH_RATIO:g} times the other; undecided: it crosses the"
        " margin. However little they differ, a rate of either side needs attention beyond the limits of the section"
        " health of the configuration.",
        "Health: share of all samples with an answer; attention: the cell is not interpretable, see the table health.",
        "All or nothing: one side solves no question at any point, or every one; constant RL curve: the same at every"
        f" budget; constant base pool: no budget at which two policies differ; few questions: below {FEW_QUESTIONS}.",
    ]
    parts = [fmt.part(lines, "severity of every flag", shared.model_changes(frame))]
    if details:
        parts.append(fmt.part(details, "numbers of the flags"))
    return context.table(frame, parts, notes, frame)


def _flag(row: Row) -> str:
    return str(row["flag"]).replace("_", " ").replace(" rl ", " RL ")


def _sides(row: Row) -> fmt.Line:
    """What a flag compares: numbers of tokens or questions, or proportions."""
    if row["flag"] in ("length", "few_questions"):
        base, rl = (number(row[side], 0) for side in ("base", "rl"))
        return {"Base": base, "RL": rl, "RL − Base": number(row["difference"], 0, "+")}
    base, rl = (percent(row[side]) for side in ("base", "rl"))
    return {"Base": base, "RL": rl, "RL − Base": percent(row["difference"], row["lo"], row["hi"], "+")}


@table("checklist", stage="boptr")
def checklist(context: shared.BoptrContext) -> fmt.Table:
    """The paper's robustness checklist, as checks."""
    frame = context.frames["checklist"]
    rows = frame.rows(named=True)
    lines = [{name: row[name] for name in ("item", "status", "claim", "check")} for row in rows]
    notes = [f"{row['item']}: {fmt.minus(row['detail'])}." for row in rows if row["detail"]]
    return fmt.Table(frame, [fmt.part(lines)], notes)


# ---- the same checkpoints sampled again


@table("seed_replication", stage="boptr")
def seed_replication(context: shared.BoptrContext) -> fmt.Table:
    """The rule on batches of Base samples drawn again."""
    frame, summary, plan = context.frames["seed_replication"], context.frames["seed_summary"], context.plan
    lines: list[fmt.Line] = []
    for (variant, batch), rows in frame.group_by("variant", "batch", maintain_order=True):
        line = {"variant": shared.VARIANTS[str(variant)], "batch": fmt.word(batch)}
        for row in rows.iter_rows(named=True):
            line[shared.heading(plan, row["benchmark"])] = shared.corrected(row)
        lines.append(line)
    means: list[fmt.Line] = []
    for (variant,), rows in summary.group_by("variant", maintain_order=True):
        line = {"variant": shared.VARIANTS[str(variant)], "batches": fmt.word(rows["batches"][0])}
        for row in rows.iter_rows(named=True):
            line[shared.heading(plan, row["benchmark"])] = fmt.spread(row["mean"], row["sd"])
        means.append(line)
    selected = frame.filter(pl.col("policy").is_not_null())
    policies = [
        f"{shared.VARIANTS[str(variant)]}, {plan.title(str(benchmark))}: {'/'.join(rows['policy'].to_list())}"
        for (variant, benchmark), rows in selected.group_by("variant", "benchmark", maintain_order=True)
    ]
    notes = [
        f"H5 of {plan.anchor_model} on batches that differ in the seed of Base's samples alone; RL is the same"
        f" curve. {shared.ERROR}",
        f"{shared.CORRECTED_SIZE} Means over batches are raw.",
        context.brackets,
        "Fixed π̂: policy of the main batch; full rule: selected again on each. Mean: over benchmarks within the batch;"
        " ±: standard deviation over batches (ddof 1).",
        *([f"Policies, by batch: {'; '.join(policies)}."] if policies else []),
    ]
    parts = [
        fmt.part(lines, "every batch", fmt.changes([line["variant"] for line in lines])),
        fmt.part(means, "mean ± sd over batches, raw"),
    ]
    return context.table(fmt.stacked(batches=frame, summary=summary), parts, notes, frame, summary)


@table("readout_consistency", stage="boptr")
def readout_consistency(context: shared.BoptrContext) -> fmt.Table:
    """How far estimates move when the same checkpoint is sampled again."""
    frame, plan = context.frames["readout_consistency"], context.plan
    compared = frame.filter(pl.col("reason").is_null())
    whole = compared.filter(group="all")
    lines = [
        {
            **_cell(row, plan),
            "points": str(row["points"]),
            "mean |Δ|": number(row["mean_abs"]),
            "by chance": number(row["chance"]),
            "mean Δ": interval(row["mean_signed"], row["lo"], row["hi"], sign="+"),
            "largest Δ": f"{number(row['largest'], 1, '+')} ({row['policy']} at {row['budget']})",
            f"≤ {CRITERION:g} pp": fmt.tick(row["meets_criterion"]),
        }
        for row in whole.iter_rows(named=True)
    ]
    temperatures = compared.filter(pl.col("group") != "all")
    by_temperature = [
        _cell(rows.row(0, named=True), plan)
        | {row["group"]: f"{number(row['mean_abs'])} ({number(row['chance'])})" for row in rows.iter_rows(named=True)}
        for _, rows in temperatures.group_by("model", "role", "batch", "benchmark", maintain_order=True)
    ]
    single = frame.filter(reason="no_batches").height
    notes = [
        "Δ: pass@b of the second batch − that of the main one at every shared point (policy, budget), pp. By chance:"
        " the mean |Δ| of two batches that differ by sampling alone; only what exceeds it is a difference of batches.",
        context.brackets,
        *([f"Cells without a second batch: {single}; their rows are in the CSV."] if single else []),
    ]
    parts = [fmt.part(lines, "all shared points", fmt.changes(whole["model"].to_list()))]
    if by_temperature:
        parts.append(fmt.part(by_temperature, "by temperature: mean |Δ| (by chance)"))
    return context.table(frame, parts, notes, frame)


def _cell(row: Row, plan: CohortPlan) -> fmt.Line:
    return {
        "model": shared.model_name(plan, row["model"]),
        "side": row["role"],
        "batch": row["batch"],
        "benchmark": plan.title(row["benchmark"]),
    }
