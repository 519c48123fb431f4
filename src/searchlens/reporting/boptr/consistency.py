"""The same checkpoints sampled again: how far the rule and the readouts move."""

from __future__ import annotations

import polars as pl

from searchlens.analysis.claims import Row, interval, number
from searchlens.boptr.cohort import CohortPlan
from searchlens.boptr.consistency import CRITERION
from searchlens.catalogue import table
from searchlens.reporting.boptr.context import (
    CORRECTED_SIZE,
    ERROR,
    READINGS,
    BoptrContext,
    brackets,
    corrected,
    model_name,
    reasons,
)
from searchlens.reporting.tables import format as fmt
from searchlens.reporting.tables.format import Line
from searchlens.reporting.tables.table import Table


@table("seed_replication", stage="boptr")
def seed_replication(context: BoptrContext) -> Table:
    """The rule on batches of Base samples drawn again."""
    frame, summary, plan = context.frames["seed_replication"], context.frames["seed_summary"], context.plan
    lines: list[Line] = []
    for (reading, batch), rows in frame.group_by("reading", "batch", maintain_order=True):
        line = {"reading": READINGS[str(reading)], "batch": fmt.word(batch)}
        for row in rows.iter_rows(named=True):
            line[_title(row["benchmark"], plan)] = corrected(row)
        lines.append(line)
    means: list[Line] = []
    for (reading,), rows in summary.group_by("reading", maintain_order=True):
        line = {"reading": READINGS[str(reading)], "batches": fmt.word(rows["batches"][0])}
        for row in rows.iter_rows(named=True):
            line[_title(row["benchmark"], plan)] = fmt.spread(row["mean"], row["sd"])
        means.append(line)
    notes = [
        f"H5 of {plan.anchor_model} on batches that differ in the seed of Base's samples alone; RL is the same"
        f" curve. {ERROR}",
        f"{CORRECTED_SIZE} Means over batches are raw.",
        brackets(context.options),
        "Fixed π̂: policy of the main batch; full rule: selected again on each. Mean: over benchmarks within the batch;"
        " ±: standard deviation over batches (ddof 1).",
        *_policies_note(frame, plan),
        *reasons(frame, summary),
    ]
    parts = [
        fmt.part(lines, "every batch", fmt.changes([line["reading"] for line in lines])),
        fmt.part(means, "mean ± sd over batches, raw"),
    ]
    return Table(fmt.stacked(batches=frame, summary=summary), parts, notes)


def _title(benchmark: str, plan: CohortPlan) -> str:
    return plan.title(benchmark) if benchmark in plan.benchmarks else benchmark


def _policies_note(frame: pl.DataFrame, plan: CohortPlan) -> list[str]:
    selected = frame.filter(pl.col("policy").is_not_null())
    policies = [
        f"{READINGS[str(reading)]}, {plan.title(str(benchmark))}: {'/'.join(rows['policy'].to_list())}"
        for (reading, benchmark), rows in selected.group_by("reading", "benchmark", maintain_order=True)
    ]
    return [f"Policies, by batch: {'; '.join(policies)}."] if policies else []


@table("readout_consistency", stage="boptr")
def readout_consistency(context: BoptrContext) -> Table:
    """How far readouts move when the same checkpoint is sampled again."""
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
    by_temperature = _temperature_lines(compared.filter(pl.col("group") != "all"), plan)
    single = frame.filter(reason="no_batches").height
    notes = [
        "Δ: pass@b of the second batch − that of the main one at every shared point (policy, budget), pp. By chance:"
        " the mean |Δ| of two batches that differ by sampling alone; only what exceeds it is a difference of batches.",
        brackets(context.options),
        *([f"Cells without a second batch: {single}; their rows are in the CSV."] if single else []),
        *reasons(frame),
    ]
    parts = [fmt.part(lines, "all shared points", fmt.changes(whole["model"].to_list()))]
    if by_temperature:
        parts.append(fmt.part(by_temperature, "by temperature: mean |Δ| (by chance)"))
    return Table(frame, parts, notes)


def _cell(row: Row, plan: CohortPlan) -> Line:
    return {
        "model": model_name(plan, row["model"]),
        "side": row["role"],
        "batch": row["batch"],
        "benchmark": plan.title(row["benchmark"]),
    }


def _temperature_lines(compared: pl.DataFrame, plan: CohortPlan) -> list[Line]:
    lines = []
    for _, rows in compared.group_by("model", "role", "batch", "benchmark", maintain_order=True):
        distances = {
            row["group"]: f"{number(row['mean_abs'])} ({number(row['chance'])})" for row in rows.iter_rows(named=True)
        }
        lines.append(_cell(rows.row(0, named=True), plan) | distances)
    return lines
