"""Checks: signatures of what RL changed, flags of unequal protocol, the checklist, rows against rows, and the null."""

from __future__ import annotations

import polars as pl

from searchlens.boptr.cohort import CohortPlan
from searchlens.boptr.protocol import FEW_QUESTIONS, LENGTH_RATIO, MARGIN
from searchlens.catalogue import table
from searchlens.claims import DASH, Row, number, percent
from searchlens.tables import format as fmt
from searchlens.tables.boptr._notes import (
    ERROR,
    VERDICTS,
    brackets,
    corrected,
    model_name,
    reasons,
    single_pair,
    verdict_text,
)
from searchlens.tables.boptr.context import TableContext
from searchlens.tables.format import Line
from searchlens.tables.table import Table

# ---- signatures

SIGNATURES = {
    "low_budget_gain": "low-budget gain",
    "base_recovery": "base recovery",
    "concentration_gain": "concentration gain",
    "termination_gain": "termination gain",
}
EXAMPLES = 4
"""Largest number of cells that are named as examples."""


@table("signatures", stage="boptr")
def signatures(context: TableContext) -> Table:
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
        line = _cell(str(model), str(benchmark), plan) | {"questions": fmt.word(rows["questions"][0])}
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
        fmt.part(cell_lines, "every cell", _model_changes(decisions)),
    ]
    return Table(fmt.stacked(patterns=patterns, cells=frame), parts, notes)


def _cell(model: str, benchmark: str, plan: CohortPlan) -> Line:
    return {"model": model_name(plan, model), "benchmark": plan.title(benchmark)}


def _model_changes(rows: pl.DataFrame) -> list[int]:
    """Among the cells of these rows, those that start a new model."""
    return fmt.changes(rows.unique(["model", "benchmark"], maintain_order=True)["model"].to_list())


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


# ---- protocol


@table("protocol_flags", stage="boptr")
def protocol_flags(context: TableContext) -> Table:
    """Cells in which Base and RL were sampled under different conditions, or on few questions."""
    frame, plan = context.frames["protocol_flags"], context.plan
    lines = []
    for (model, benchmark), rows in frame.group_by("model", "benchmark", maintain_order=True):
        severities = {_flag(row): fmt.word(row["severity"]) for row in rows.iter_rows(named=True)}
        lines.append(_cell(str(model), str(benchmark), plan) | severities)
    flagged = frame.filter(pl.col("severity").is_in(["attention", "undecided"]))
    details = [
        {
            **_cell(row["model"], row["benchmark"], plan),
            "flag": _flag(row),
            "severity": row["severity"],
            **_sides(row),
        }
        for row in flagged.iter_rows(named=True)
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
    parts = [fmt.part(lines, "severity of every flag", _model_changes(frame))]
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
def checklist(context: TableContext) -> Table:
    """The paper's robustness checklist, as checks."""
    frame = context.frames["checklist"]
    rows = frame.rows(named=True)
    lines = [{name: row[name] for name in ("item", "status", "claim", "check")} for row in rows]
    notes = [f"{row['item']}: {fmt.minus(row['detail'])}." for row in rows if row["detail"]]
    return Table(frame, [fmt.part(lines)], notes)


# ---- rows against rows


@table("contrasts", stage="boptr")
def contrasts(context: TableContext) -> Table:
    """Every paired difference of rows."""
    frame, anchor = context.frames["contrasts"], context.plan.anchor_model
    scopes = {
        "planned": "planned beforehand, all fitted cells",
        "anchor": f"cells of {anchor}",
        "cohort": "all fitted cells",
    }
    exponents = {"paper": "the paper's exponents", "own": "the cohort's own exponents"}
    parts = [
        fmt.part([_contrast_line(row) for row in rows.iter_rows(named=True)], f"{scope_title}, {title}")
        for which, title in exponents.items()
        for scope, scope_title in scopes.items()
        if (rows := frame.filter(exponents=which, scope=scope)).height
    ]
    notes = [
        f"First − second on the cells that both define, AR pool; below 0 the first has the lower error. V2 is"
        f" compared on the cells of other models only: on those of {anchor} V2 is V1. {ERROR}",
        brackets(context.options),
        "Difference: of the raw errors. Corrected: without the upward bias of absolute errors and the downward one of a"
        " path chosen on the same questions, which differ between rows. The columns over models go by this, too:"
        " interval and p of the mean over models if models and questions could both have been others, and p of exact"
        " sign flips, which seven models can never bring below .016; Holm over the comparisons of a scope together."
        " Spread: between models, beyond what questions and samples explain.",
        VERDICTS,
        "Differing: cells in which the two predict differently; 0: the same predictions.",
        "Planned: V3 and V5b are compared with the rival that has the lowest mean corrected error on these cells, which"
        " favours the rival.",
        *single_pair(context.plan),
        *reasons(frame),
    ]
    return Table(frame, parts or [fmt.part([])], notes)


def _contrast_line(row: Row) -> Line:
    over_models = DASH
    if row["lo_both"] is not None:
        over_models = f"[{number(row['lo_both'], sign='+')}, {number(row['hi_both'], sign='+')}]"
    return {
        "first": row["first"],
        "second": row["second"],
        "difference": number(row["difference"], sign="+"),
        "corrected": corrected(row, "+"),
        "over models": over_models,
        "spread": number(row["spread"]),
        "p": number(row["p_both"], 3),
        "p (Holm)": number(row["p_both_holm"], 3),
        "flips": number(row["p"], 3),
        "flips (Holm)": number(row["p_holm"], 3),
        "models": str(row["models"]),
        "cells": str(row["cells"]),
        "questions": str(row["questions"]),
        "differing": str(row["differing"]),
        "verdict": verdict_text(row),
    }


@table("nulls", stage="boptr")
def nulls(context: TableContext) -> Table:
    """Whether knowing which RL belongs to which Base helps a row."""
    frame = context.frames["nulls"]
    lines = [
        {
            "row": row["label"],
            "error": number(row["error"]),
            "null mean": number(row["null_mean"]),
            "null lowest": number(row["null_lowest"]),
            "p": number(row["p"], 3),
            "pairings": fmt.word(row["pairings"]),
            "models": fmt.word(row["models"]),
        }
        for row in frame.iter_rows(named=True)
    ]
    notes = [
        "Every Base is scored against another model's RL, the rule fitted again; error: mean over the fitted cells of"
        " the exchanged models under the true pairing. p: share of pairings, the true one included, with an error at"
        " most the true one's. A row that reads no RL has a low p too where models differ in strength.",
        *reasons(frame),
    ]
    return Table(frame, [fmt.part(lines)], notes)
