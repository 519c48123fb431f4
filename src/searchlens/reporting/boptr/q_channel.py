"""How close Base comes to RL's self-consistency."""

from __future__ import annotations

import polars as pl

from searchlens.analysis.claims import Row, interval, number, percent
from searchlens.boptr.cohort import CohortPlan
from searchlens.boptr.q_channel import TOLERANCE
from searchlens.catalogue import table
from searchlens.config.boptr import REGIMES
from searchlens.reporting.boptr.context import (
    CORRECTED,
    PATHS_OF_ALPHA,
    POOLS,
    BoptrContext,
    brackets,
    corrected,
    model_name,
    reasons,
)
from searchlens.reporting.tables import format as fmt
from searchlens.reporting.tables.format import Line
from searchlens.reporting.tables.table import Part, Table

ROLES = {"fitted": "fitted benchmarks", "held_out": "held-out benchmarks"}
SCOPES = {"all": "all", "voted": "voted only"}


@table("qchannel", stage="boptr")
def qchannel(context: BoptrContext) -> Table:
    """How close Base comes to RL's self-consistency."""
    frame, summary, options = context.frames["qchannel"], context.frames["q_summary"], context.options
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
        brackets(options),
        *reasons(frame),
    ]
    parts = [*(parts or [fmt.part([])]), _recoverable_part(summary)]
    return Table(fmt.stacked(cells=frame, summary=summary), parts, notes)


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


def _recoverable_part(summary: pl.DataFrame) -> Part:
    lines = []
    for (pool, role, scope), rows in summary.group_by("pool", "role", "scope", maintain_order=True):
        line = {"pool": POOLS[str(pool)], "cells": ROLES[str(role)], "which": SCOPES[str(scope)]}
        for row in rows.iter_rows(named=True):
            mean = "" if row["mech_q"] is None else f" (mech Q {number(row['mech_q'])})"
            line[row["regime"]] = fmt.fraction(row["recoverable"], row["cells"]) + mean
        lines.append({key: line[key] for key in ("pool", "cells", "which", "all", *REGIMES) if key in line})
    return fmt.part(lines, "recoverable cells, and mean raw mech Q over these")
