"""The cells of the cohort: their roles, the rule in each of them, self-consistency, offsets, and Base alone."""

from __future__ import annotations

import polars as pl

from searchlens.boptr.cohort import CohortPlan
from searchlens.boptr.knee import TAU
from searchlens.boptr.offsets import GATE_Z
from searchlens.boptr.q_channel import TOLERANCE
from searchlens.catalogue import table
from searchlens.claims import Row, interval, number, percent
from searchlens.config.boptr import REGIMES
from searchlens.tables import format as fmt
from searchlens.tables.boptr._notes import (
    CORRECTED,
    ERROR,
    PATHS_OF_ALPHA,
    POOLS,
    brackets,
    corrected,
    model_name,
    reasons,
    single_pair,
    single_readouts,
)
from searchlens.tables.boptr.context import TableContext
from searchlens.tables.format import Line
from searchlens.tables.table import Part, Table


@table("blocks", stage="boptr")
def blocks(context: TableContext) -> Table:
    """What is compared with what, and why."""
    frame = context.frames["blocks"]
    lines = [{name: str(value) for name, value in row.items()} for row in frame.iter_rows(named=True)]
    note = "Horizontal and vertical results are reported apart: they test different transfer hypotheses."
    return Table(frame, [fmt.part(lines)], [note])


# ---- the rule in each cell


@table("percell", stage="boptr")
def percell(context: TableContext) -> Table:
    """The calibrated rule and the cell's own fit."""
    frame, plan = context.frames["percell"], context.plan
    without = f"μ without {', '.join(context.options.mu_without)}"
    titles = {
        ("cohort", "paper"): "the paper's exponents",
        ("without", "paper"): without,
        ("cohort", "own"): "the cohort's own exponents",
        ("without", "own"): f"the cohort's own exponents, {without}",
    }
    parts = []
    for (mu, exponents), title in titles.items():
        rows = _in_order(frame.filter(mu=mu, exponents=exponents), plan)
        if rows.height:
            lines = [_percell_line(row, plan) for row in rows.iter_rows(named=True)]
            parts.append(fmt.part(lines, title, fmt.changes(rows["model"].to_list())))
    notes = [
        f"cell: α fitted to the cell itself; anchor: α = exp(μ + δ). {ERROR}",
        "The gap (anchor − cell) may be negative: the cell's α is fitted with another policy than the selector takes.",
        f"{PATHS_OF_ALPHA} Boundary: distance of log2 α to the nearer end of it; near 0, a small change of α changes"
        " the path.",
        f"mech and gap are raw, so that equal predictions have a gap of 0. {CORRECTED}",
        brackets(context.options),
        *single_pair(plan),
        *reasons(frame),
    ]
    return Table(frame, parts or [fmt.part([])], notes)


def _in_order(rows: pl.DataFrame, plan: CohortPlan) -> pl.DataFrame:
    """Cells in the order of the plan."""
    names = pl.col("model").cast(pl.Enum(list(plan.models))), pl.col("benchmark").cast(pl.Enum(list(plan.benchmarks)))
    return rows.sort(*names, maintain_order=True)


def _percell_line(row: Row, plan: CohortPlan) -> Line:
    return {
        "model": model_name(plan, row["model"]),
        "benchmark": plan.title(row["benchmark"]),
        "regime": row["regime"],
        "β": number(row["beta"], 1),
        "α̂": interval(row["alpha"], row["alpha_lo"], row["alpha_hi"]),
        "boundary": number(row["boundary"]),
        "π̂": fmt.word(row["policy"]),
        "N̂(b)": fmt.word(row["path"]),
        "mech cell": number(row["mech_cell"]),
        "mech anchor": number(row["mech_anchor"]),
        "gap": number(row["gap"], sign="+"),
        "anchor, corrected": corrected(row),
    }


# ---- self-consistency

ROLES = {"fitted": "fitted benchmarks", "held_out": "held-out benchmarks"}
SCOPES = {"all": "all", "voted": "voted only"}


@table("qchannel", stage="boptr")
def qchannel(context: TableContext) -> Table:
    """How close Base comes to RL's self-consistency."""
    frame, summary, options = context.frames["qchannel"], context.frames["q_summary"], context.options
    parts = []
    for pool, pool_title in POOLS.items():
        for role, role_title in ROLES.items():
            rows = frame.filter(pool=pool, role=role)
            rows = rows if pool == "ar" else rows.filter(pl.col("reason").is_null())
            if rows.height:
                lines = [_q_line(row, context.plan) for row in rows.iter_rows(named=True)]
                rules = fmt.changes(rows["model"].to_list())
                parts.append(fmt.part(lines, f"{role_title}, {pool_title}", rules))
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


# ---- offsets


@table("offsets", stage="boptr")
def offsets(context: TableContext) -> Table:
    """How each predicted offset came about."""
    frame, plan = context.frames["offsets"], context.plan
    lines = [
        {
            "model": model_name(plan, row["model"]),
            "δ": number(row["delta"], sign="+"),
            "δ̂": number(row["delta_hat"], sign="+"),
            "branch": fmt.word(row["branch"]),
            "ridge": number(row["ridge"], sign="+"),
            "tail": number(row["tail"], sign="+"),
            "largest z": number(row["largest_z"]),
            f"P_max@{max(plan.budgets)}": percent(row["p_max"]),
            "P_0": percent(row["p0"]),
            "u": number(row["u"]),
            "log2 N*": number(row["log2_n_star"]),
        }
        for row in frame.iter_rows(named=True)
    ]
    notes = [
        "δ: from the model's own pair; δ̂ (V5b): from Base on the RL-training split and the other models' offsets."
        f" Ridge where every feature is within {GATE_Z:g} standard deviations of the other models, tail"
        " consistency elsewhere. P_max and P_0 in %.",
        *single_pair(plan),
        *reasons(frame),
    ]
    return Table(frame, [fmt.part(lines)], notes)


# ---- Base alone


@table("descriptive", stage="boptr")
def descriptive(context: TableContext) -> Table:
    """Base alone on benchmarks without an RL side."""
    frame, plan = context.frames["descriptive"], context.plan
    lines = []
    for (model, benchmark), rows in frame.group_by("model", "benchmark", maintain_order=True):
        first = rows.row(0, named=True)
        line = {"model": model_name(plan, str(model)), "benchmark": plan.title(str(benchmark))}
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
