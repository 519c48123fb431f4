"""Rows against rows, and against the mismatched null."""

from __future__ import annotations

from collections.abc import Iterable

import polars as pl

from searchlens.analysis.claims import DASH, Row, number
from searchlens.boptr.protocol import BASELINES
from searchlens.catalogue import table
from searchlens.reporting.boptr import context as shared
from searchlens.reporting.tables import table as fmt

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


def _lower_than(rule: str, contrasts: Iterable[Row]) -> list[str]:
    """A sentence for each row, oracles excepted, whose error is lower than the rule's."""
    notes = []
    for contrast in contrasts:
        rule_first = contrast["first"] == rule
        other = contrast["second"] if rule_first else contrast["first"]
        lower = contrast["corrected"] > 0 if rule_first else contrast["corrected"] < 0
        if lower and other not in _ORACLES:
            clear = contrast["verdict"] != "not distinguishable"
            finding = "has a lower error than" if clear else "has the lower point estimate, not distinguishable from"
            what = ", which does without the law," if other in BASELINES else ""
            notes.append(f"{other}{what} {finding} {rule} over questions; {_over_models(contrast)}.")
    return notes


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
