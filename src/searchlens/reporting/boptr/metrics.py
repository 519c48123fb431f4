"""How close Base comes to RL's self-consistency, and what RL changed under the same policy."""

from __future__ import annotations

import polars as pl

from searchlens.analysis.claims import DASH, Row, interval, number, percent
from searchlens.boptr.cohort import CohortPlan
from searchlens.boptr.metrics import TOLERANCE
from searchlens.catalogue import table
from searchlens.config.boptr import REGIMES
from searchlens.reporting.boptr.context import (
    CORRECTED,
    PATHS_OF_ALPHA,
    POOLS,
    BoptrContext,
    cell_line,
    corrected,
    model_changes,
    model_name,
)
from searchlens.reporting.tables import format as fmt
from searchlens.reporting.tables.format import Line
from searchlens.reporting.tables.table import Table

# ---- the Q channel

ROLES = {"fitted": "fitted benchmarks", "held_out": "held-out benchmarks"}
SCOPES = {"all": "all", "voted": "voted only"}


@table("qchannel", stage="boptr")
def qchannel(context: BoptrContext) -> Table:
    """How close Base comes to RL's self-consistency."""
    frame, summary = context.frames["qchannel"], context.frames["q_summary"]
    parts = []
    for pool, pool_title in POOLS.items():
        for role, role_title in ROLES.items():
            rows = frame.filter(pool=pool, role=role)
            rows = rows if pool == "ar" else rows.filter(pl.col("reason").is_null())
            if rows.height:
                lines = [_q_line(row, context.plan) for row in rows.iter_rows(named=True)]
                parts.append(fmt.part(lines, f"{role_title}, {pool_title}", fmt.changes(rows["model"].to_list())))
    notes = [
        f"π̂ maximises Q_B − 0.5 (P_B − Q_B) − 0.01 C at the largest budget; mech Q: mean over b of |Q_Base(π̂,"
        f" N̂(b)) − Q_RL(b)|, pp, raw. α̂ is fitted to the curve that it is scored on: a description, not transfer."
        f" {CORRECTED}",
        f"Recoverable: the largest Q of Base's pool comes within {percent(TOLERANCE)} points of RL's"
        " largest. Policies and questions: the size of that pool, whose largest Q rises by chance with each policy, and"
        " of the benchmark. Gap: largest Q_RL − largest Q_Base, pp; the maximum over a pool is optimistic, and the"
        " interval does not allow for that.",
        "†: no answer of the benchmark is voted on; Q there is the correctness of the first valid sample (diagnostic).",
        PATHS_OF_ALPHA,
        context.brackets,
    ]
    lines = []
    for (which, role, scope), rows in summary.group_by("pool", "role", "scope", maintain_order=True):
        line = {"pool": POOLS[str(which)], "cells": ROLES[str(role)], "which": SCOPES[str(scope)]}
        for row in rows.iter_rows(named=True):
            mean = "" if row["mech_q"] is None else f" (mech Q {number(row['mech_q'])})"
            line[row["regime"]] = fmt.fraction(row["recoverable"], row["cells"]) + mean
        lines.append({key: line[key] for key in ("pool", "cells", "which", "all", *REGIMES) if key in line})
    parts = [*(parts or [fmt.part([])]), fmt.part(lines, "recoverable cells, and mean raw mech Q over these")]
    return context.table(fmt.stacked(cells=frame, summary=summary), parts, notes, frame)


def _q_line(row: Row, plan: CohortPlan) -> Line:
    return {
        "model": model_name(plan, row["model"]),
        "benchmark": plan.title(row["benchmark"]) + "†" * bool(row["diagnostic"]),
        "recov": fmt.tick(row["recoverable"]),
        "policies": "" if row["policies"] is None else str(row["policies"]),
        "questions": "" if row["questions"] is None else str(row["questions"]),
        "β": number(row["beta_q"], 1),
        "α̂": interval(row["alpha_q"], row["alpha_lo"], row["alpha_hi"]),
        "π̂": fmt.word(row["policy"]),
        "N̂(b)": fmt.word(row["path"]),
        "mech Q": number(row["mech_q"]),
        "corrected": corrected(row),
        "gap": interval(row["gap"], row["gap_lo"], row["gap_hi"], sign="+"),
    }


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
        for row in rows.iter_rows(named=True):
            at = "" if row["budget"] is None else f"@{row['budget']}"
            line[f"{SIGNATURES[row['signature']]} ({row['metric']}{at})"] = _decision(row)
        cell_lines.append(line)
    notes = [
        f"RL and Base under one policy, {plan.default_policy}. T, the first finish, is read from the first b samples."
        " Each decision stands before its difference, RL − Base in percentage points; yes: the interval lies above 0,"
        " no: below, undecided: it contains 0. For the recovery yes is below 0; reached: undecided where RL led at"
        " b = 1; level: undecided where it did not. A termination gain needs both of its columns.",
        f"Brackets: {context.options.confidence:.0%}, paired bootstrap over questions; of the rate of valid answers,"
        " from the two rates' own intervals.",
    ]
    parts = [
        fmt.part(pattern_lines, "patterns"),
        fmt.part(cell_lines, "every cell", model_changes(decisions)),
    ]
    return context.table(fmt.stacked(patterns=patterns, cells=frame), parts, notes, frame)


def _examples(cells: str | None) -> str:
    names = (cells or "").split(", ")
    return fmt.word(", ".join(names[:EXAMPLES])) + (", ..." if len(names) > EXAMPLES else "")


def _decision(row: Row) -> str:
    if row["decision"] is None:
        return DASH
    detail = f", {row['detail']}" if row["detail"] else ""
    return f"{row['decision']}{detail} {percent(row['rl_minus_base'], row['lo'], row['hi'], '+')}"
