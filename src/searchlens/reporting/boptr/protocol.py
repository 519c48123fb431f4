"""What is compared, whether it can be compared, and what may be claimed; the same checkpoints sampled again.

Also rows against rows, and against the mismatched null.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import polars as pl

from searchlens.analysis.claims import DASH, Row, interval, number, percent
from searchlens.boptr.cohort import CohortPlan
from searchlens.boptr.extension import CRITERION
from searchlens.boptr.protocol import BASELINES, FEW_QUESTIONS, LENGTH_RATIO, MARGIN
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


# ---- rows against rows

VERDICTS = (
    "Over questions: by the corrected interval, these models taken as given. Over models: if models"
    " and questions could both have been others (crossed effects), p after Holm's correction over all comparisons of"
    " the scope; not shown is no sign that the rows are alike. One model says nothing of others."
)
_ORACLES = ("H6", "H7", "V1")


@table("contrasts", stage="boptr")
def contrasts(context: shared.BoptrContext) -> fmt.Table:
    """Every paired difference of rows."""
    frame, anchor = context.frames["contrasts"], context.plan.anchor_model
    scopes = {
        "planned": "planned beforehand, all fitted cells",
        "anchor": f"cells of {anchor}",
        "cohort": "all fitted cells",
    }
    parts = [
        fmt.part([_contrast_line(row) for row in rows.iter_rows(named=True)], f"{scope_title}, {title}")
        for which, title in shared.EXPONENTS.items()
        for scope, scope_title in scopes.items()
        if (rows := frame.filter(exponents=which, scope=scope)).height
    ]
    notes = [
        f"First − second on the cells that both define, AR pool; below 0 the first has the lower error. V2 is"
        f" compared on the cells of other models only: on those of {anchor} V2 is V1. {shared.ERROR}",
        context.brackets,
        "Difference: of the raw errors. Corrected: without the upward bias of absolute errors and the downward one of a"
        " path chosen on the same questions, which differ between rows. The columns over models go by this, too:"
        " interval and p of the mean over models if models and questions could both have been others, and p of exact"
        " sign flips, which seven models can never bring below .016; Holm over the comparisons of a scope together."
        " Spread: between models, beyond what questions and samples explain.",
        VERDICTS,
        "Differing: cells in which the two predict differently; 0: the same predictions.",
        "Planned: V3 and V5b are compared with the rival that has the lowest mean corrected error on these cells, which"
        " favours the rival.",
        *context.single_pair,
    ]
    return context.table(frame, parts, notes, frame)


def _contrast_line(row: Row) -> fmt.Line:
    over_models = DASH
    if row["lo_both"] is not None:
        over_models = f"[{number(row['lo_both'], sign='+')}, {number(row['hi_both'], sign='+')}]"
    return {
        "first": row["first"],
        "second": row["second"],
        "difference": number(row["difference"], sign="+"),
        "corrected": shared.corrected(row, "+"),
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
        "verdict": _verdict_text(row),
    }


@table("nulls", stage="boptr")
def nulls(context: shared.BoptrContext) -> fmt.Table:
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
    ]
    return context.table(frame, [fmt.part(lines)], notes, frame)


# ---- in other tables


def _verdict_text(contrast: Row) -> str:
    """Both verdicts of a paired difference, over questions and over models, by the names of its rows."""
    if contrast["cells"] and not contrast["differing"]:
        return "identical predictions"
    if contrast["verdict"] is None:
        return fmt.word(None)
    return f"over questions: {_lower(contrast, 'verdict')}; {_over_models(contrast)}"


def _over_models(contrast: Row) -> str:
    """The verdict over models, such as ``over models: not shown (p = 0.31, models: 7)``."""
    if contrast["verdict_models"] is None:
        return "one model"
    p = "p unknown" if contrast["p_both_holm"] is None else f"p = {number(contrast['p_both_holm'], 3)}"
    return f"over models: {_lower(contrast, 'verdict_models')} ({p}, models: {contrast['models']})"


def _lower(contrast: Row, verdict: str) -> str:
    row = {"first lower": contrast["first"], "second lower": contrast["second"]}.get(contrast[verdict])
    return f"{row} lower" if row else fmt.word(contrast[verdict])


def contrast_notes(contrasts: pl.DataFrame, scope: str, rule: str, rows: Iterable[str]) -> list[str]:
    """The paired differences between the rows of a table and its rule, and which rows have a lower error than the rule.

    ``rule`` and ``rows`` are keys.
    """
    shown = pl.col("first").is_in([rule, *rows]) & pl.col("second").is_in([rule, *rows])
    defined = contrasts.filter(pl.col("scope") == scope, shown, pl.col("difference").is_not_null())
    paper, own = (list(defined.filter(exponents=which).iter_rows(named=True)) for which in ("paper", "own"))
    if not paper:
        return []
    texts = [
        f"{row['first']} − {row['second']} = {number(row['difference'], sign='+')}, corrected"
        f" {shared.corrected(row, '+')} (cells: {row['cells']}, questions: {row['questions']}; {_verdict_text(row)})"
        for row in paper
    ]
    differences = f"Paired differences on common cells: {'; '.join(texts)}. {VERDICTS}"
    with_own = [f"With the cohort's own exponents: {note}" for note in _lower_than(rule, own)]
    return [differences, *_lower_than(rule, paper), *with_own]


def _lower_than(rule: str, contrasts: Iterable[Row]) -> Iterator[str]:
    """A sentence for each row, oracles excepted, whose error is lower than the rule's."""
    for contrast in contrasts:
        rule_first = contrast["first"] == rule
        other = contrast["second"] if rule_first else contrast["first"]
        lower = contrast["corrected"] > 0 if rule_first else contrast["corrected"] < 0
        if lower and other not in _ORACLES:
            clear = contrast["verdict"] != "not distinguishable"
            finding = "has a lower error than" if clear else "has the lower point estimate, not distinguishable from"
            what = ", which does without the law," if other in BASELINES else ""
            yield f"{other}{what} {finding} {rule} over questions; {_over_models(contrast)}."


def null_part(nulls: pl.DataFrame, rows: pl.DataFrame) -> list[fmt.Part]:
    """The mismatched null of these rows, a column for each; nothing if it is not defined."""
    shown = nulls.filter(pl.col("rule").is_in(rows["rule"].unique().to_list()), pl.col("p").is_not_null())
    if shown.is_empty():
        return []
    statistics = {"error": ("true pairing", 2), "null_mean": ("mismatched, mean", 2), "p": ("p", 3)}
    lines = [
        {"pairing": title} | {row["rule"]: number(row[name], digits) for row in shown.iter_rows(named=True)}
        for name, (title, digits) in statistics.items()
    ]
    return [fmt.part(lines, "mismatched null: every Base against another model's RL, raw errors")]


def null_note(nulls: pl.DataFrame) -> str:
    """What the mismatched null is."""
    defined = nulls.filter(pl.col("p").is_not_null())
    if defined.is_empty():
        return "Mismatched null (every Base scored against another model's RL): needs a second pair."
    first = defined.row(0, named=True)
    return (
        f"Mismatched null: {first['pairings']} pairings of {first['models']} models, mean over their fitted cells, so"
        " that the true pairing need not equal the means above. p: share of pairings with an error at most the true"
        " one's."
    )
