"""Tables of recovery: whether Base reaches RL, where, and what the paper's recovery objects show."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import polars as pl

from searchlens.analysis.claims import DASH, Row, number, percent
from searchlens.analysis.frames import pick
from searchlens.catalogue import table
from searchlens.reporting.tables import table as fmt
from searchlens.reporting.tables.study import (
    ESTIMATOR,
    LEVEL,
    Cell,
    StudyContext,
    by_budget,
    estimators_note,
    metrics,
    shown,
)
from searchlens.store.columns import POINTS

UNBIASED = "unbiased"
"""The estimator of the summary, but where there is none."""


@table("same_policy_counts", stage="study")
def same_policy_counts(context: StudyContext) -> fmt.Table:
    """How many policies have Base at or above RL, over all shared ones and over those without the RL default."""
    data = pl.concat(_named(cell, cell.counts) for cell in context.cells)
    lines = by_budget(data, ["pair", "benchmark", "metric", "estimator"], _count, context.broken)
    notes = [
        "Policies under which Base solves at least as many questions as RL, of those that both were sampled under and"
        " under which either solves any; a column per number of samples N. In parentheses without RL's default policy."
        f" {estimators_note()}",
    ]
    return fmt.Table(data, [fmt.block(lines, "pair", "benchmark")], notes)


def _count(row: Row) -> str:
    """Policies with Base ahead or level, of those under which either model solves any question."""
    every, without_default = (
        f"{row[f'ahead_or_level{end}'] - row[f'both_zero{end}']}/{row[f'policies{end}'] - row[f'both_zero{end}']}"
        for end in ("", "_without_default")
    )
    return f"{every} ({without_default})"


def _named(cell: Cell, frame: pl.DataFrame) -> pl.DataFrame:
    """Rows of the metrics that are shown, with the names of their cell."""
    rows = frame.filter(pl.col("metric").is_in(list(metrics())))
    return fmt.named(rows, pair=cell.pair, benchmark=cell.benchmark)


POOLS = {"ar": "AR", "full": "full"}
ENDS = ("", "_lo", "_hi")
"""What the names of a value and of the ends of its interval end with."""
GREEDY = tuple(f"greedy_{side}{end}" for side in ("base", "rl") for end in ENDS)
"""Columns of the summary: what one greedy answer of either side solves."""
SUMMARY_NOTES = (
    f"All numbers: mean over every choice of N samples ({UNBIASED}), but for paths, which read the first N, and"
    " for metrics of the first N, which have no such mean in these pools.",
    "RL − Base at N: under RL's default policy, percentage points (pp); ahead: policies under which Base solves more"
    " questions than RL, of those under which either solves any; inside: RL budgets at which RL lies in Base's support"
    " region, of those at which either solves any.",
    "RL − best: of Base under any policy with at most b samples, pp, at the budget b where it is largest: at"
    " or below 0 Base reaches RL at every b. The interval does not allow for the choice of b. One greedy answer is none"
    " of these policies and stands beside them.",
    "Closest, monotone N: samples of Base at the points of either path, one per RL budget.",
    f"Brackets: paired bootstrap over questions {LEVEL}; where no question differs, what 0 differences in so many"
    " questions leave open. That of RL − best is never narrower, and its upper end allows for the best being"
    " chosen.",
    "Pool: number of Base's policies; AR, autoregressive ones alone; full, searches too. Inside, RL − best and paths"
    " are over the pool, and a larger pool reaches more, so rows of different pools are not to be compared.",
)


@table("recovery_summary", stage="study")
def recovery_summary(context: StudyContext) -> fmt.Table:
    """One row per pair, benchmark and metric: how far RL leads, whether Base reaches it, and where.

    RL minus Base is under the default policy at the smallest and the largest budget; RL minus best of Base is at the
    budget where it is largest; paths give the Base budgets, in the order of the RL's.
    """
    rows = [
        _summary(cell, metric, context.default_policy)
        for cell in context.cells
        for metric in metrics()
        if metric in cell.support["metric"]
    ]
    known = {"base_policies": pl.UInt32(), "questions": pl.UInt32(), "warning": pl.String()}
    known |= dict.fromkeys(GREEDY, pl.Float64())
    data = pl.DataFrame(rows, schema_overrides=known, infer_schema_length=None)
    lines = [_summary_line(row) for row in data.rows(named=True)]
    return fmt.Table(data, [fmt.block(lines, "pair", "benchmark")], SUMMARY_NOTES)


def _summary(cell: Cell, metric: str, default_policy: str) -> dict[str, object]:
    has_means = pick(cell.support, metric=metric, estimator=UNBIASED).height > 0  # votes of large pools have none
    chosen: dict[str, str | int] = {"metric": metric, "estimator": UNBIASED if has_means else ESTIMATOR}
    support = pick(cell.support, **chosen).sort("rl_minus_best", descending=True, nulls_last=True, maintain_order=True)
    row: dict[str, object] = {"pair": cell.pair, "benchmark": cell.benchmark, "pool": "full" if cell.searched else "ar"}
    row |= {**chosen, "base_policies": cell.policies, "questions": cell.questions}
    for which, budget in (("first", support["budget"].min()), ("last", support["budget"].max())):
        at: dict[str, Any] = {**chosen, "budget": budget}
        gaps, counts = pick(cell.same_policy, **at, policy=default_policy), pick(cell.counts, **at)
        row[f"{which}_budget"] = budget
        row |= _first(gaps, {f"rl_minus_base_{which}{end}": (end or "_rl_minus_base")[1:] for end in ENDS})
        row |= _first(counts, {f"{name}_{which}": name for name in ("ahead", "policies", "both_zero")})
    row |= {
        "inside": support["inside"].cast(pl.UInt32).sum(),
        "budgets": support.height,
        "both_zero": support.filter("inside", pl.max_horizontal("rl", "envelope") == 0).height,
        "warning": cell.warning or None,
    }
    for side in ("Base", "RL"):
        points = pick(cell.greedy.get(side, POINTS.to_frame()), **chosen)
        row |= _first(points, {f"greedy_{side.lower()}{end}": (end or "_value")[1:] for end in ENDS})
    row |= _first(support, {"best_budget": "budget"} | {f"rl_minus_best{end}": f"rl_minus_best{end}" for end in ENDS})
    for kind in ("closest", "monotone"):
        steps = pick(cell.path, metric=metric, kind=kind).sort("target_budget")
        steps = steps.select("target_budget", "policy", "budget")
        row[kind] = "; ".join(f"{target}: {policy} at {n}" for target, policy, n in steps.iter_rows())
    return row


def _first(frame: pl.DataFrame, columns: Mapping[str, str]) -> dict[str, Any]:
    """New name of a column to its value in the first row; None if there is none."""
    return {name: frame[column][0] if frame.height else None for name, column in columns.items()}


def _summary_line(row: Row) -> fmt.Line:
    line = {"pair": row["pair"], "benchmark": row["benchmark"]}
    line["pool"] = POOLS[row["pool"]] + ("" if row["base_policies"] is None else f", {row['base_policies']}")
    line["metric"] = metrics()[row["metric"]] + " of the first N" * (row["estimator"] == ESTIMATOR)
    for which in ("first", "last"):
        ahead, policies, nothing = (row[f"{key}_{which}"] for key in ("ahead", "policies", "both_zero"))
        line[f"RL − Base at {row[f'{which}_budget']}"] = _interval(row, f"rl_minus_base_{which}", "+")
        line[f"ahead at {row[f'{which}_budget']}"] = "" if policies is None else f"{ahead}/{policies - nothing}"
    line["inside"] = f"{row['inside'] - row['both_zero']}/{row['budgets'] - row['both_zero']}"
    widest = _interval(row, "rl_minus_best", "+")
    line["largest RL − best"] = f"{widest} at {row['best_budget']}" if widest else ""
    line |= {f"greedy: {side}": _interval(row, f"greedy_{side.lower()}") for side in ("Base", "RL")}
    for kind in ("closest", "monotone"):
        line[f"{kind} N"] = " ".join(step.rsplit(" ", 1)[-1] for step in row[kind].split("; "))
    if row["warning"]:
        names = {key: line[key] for key in ("pair", "benchmark", "pool", "metric")}
        return dict.fromkeys(line, DASH) | names | {"inside": "not interpretable"}
    return line


def _interval(row: Row, name: str, sign: str = "") -> str:
    value, lo, hi = (row[f"{name}{end}"] for end in ENDS)
    return shown(value, lo, hi, sign)


@table("recovery_paths", stage="study")
def recovery_paths(context: StudyContext) -> fmt.Table:
    """One row per step of each path: the RL budget, the Base operating point chosen for it, and RL - Base there."""
    step = ("target_budget", "target", "policy", "budget", "value", "rl_minus_base")
    data = pl.concat(_named(cell, cell.path) for cell in context.cells)
    data = data.select("pair", "benchmark", "metric", "kind", *step)
    lines = [
        {
            "pair": row["pair"],
            "benchmark": row["benchmark"],
            "metric": metrics()[row["metric"]],
            "path": row["kind"],
            "RL budget": str(row["target_budget"]),
            "RL": shown(row["target"]),
            "policy": row["policy"],
            "N": str(row["budget"]),
            "Base": shown(row["value"]),
            "RL − Base": shown(row["rl_minus_base"], sign="+"),
        }
        for row in data.iter_rows(named=True)
        if (row["pair"], row["benchmark"]) not in context.broken
    ]
    notes = [
        f"Questions solved in %, {ESTIMATOR}. Closest: the Base point that solves nearest as many; monotone: the"
        " path of least error whose N never falls. RL − Base: percentage points.",
    ]
    return fmt.Table(data, [fmt.block(lines, "pair", "benchmark", "metric", "path")], notes)


# ---- the paper's objects

METRIC = "P"
OBJECTS = {
    "envelope": ("no per-policy target", "yes", "upper-bound support", "overstates practical policy"),
    "near-match set": ("yes", "yes", "recoverability", "too many matches"),
    "smooth path": ("yes", "constrained", "structured recovery", "hyperparameter sensitivity"),
    "frozen rule": ("train anchor only", "no", "transfer diagnostic", "under-identification"),
}
"""Object to whether it uses the RL target, whether it allows lookup, its purpose and its main risk (paper, table of
recovery analyses)."""
WORDS = {
    "uses_rl_target": "uses RL target?",
    "lookup": "allows lookup?",
    "purpose": "purpose",
    "main_risk": "main risk",
}
"""Column of these words to its heading."""
SAME = 1e-9
_MEASURED = {"rl_minus_best": pl.Float64(), "matches": pl.UInt32(), "residual": pl.Float64()}


@table("recovery_objects", stage="study")
def recovery_objects(context: StudyContext) -> fmt.Table:
    """What each recovery object may show, and what it shows in this study.

    ``reached``: RL budgets at which the object reaches RL, of all ``budgets`` of the ``cells``: the envelope is at or
    above RL, or a match exists. ``value``: the largest gap RL - envelope; the median number of matches of a budget; the
    mean absolute residual of the monotone path. Proportions, null for the frozen rule, which other tables measure.
    """
    cells = [cell for cell in context.cells if not cell.warning]
    found = pl.concat([_by_budget(cell) for cell in cells]) if cells else pl.DataFrame(schema=_MEASURED)
    measured = {
        "envelope": {"reached": (found["rl_minus_best"] <= SAME).sum(), "value": found["rl_minus_best"].max()},
        "near-match set": {"reached": (found["matches"] > 0).sum(), "value": found["matches"].median()},
        "smooth path": {"value": found["residual"].mean()},
        "frozen rule": {},
    }
    counts = {"cells": len(cells), "budgets": found.height}
    rows = [
        {"object": name, **dict(zip(WORDS, words, strict=True)), **(counts if measured[name] else {}), **measured[name]}
        for name, words in OBJECTS.items()
    ]
    schema = dict.fromkeys(("object", *WORDS), pl.String()) | dict.fromkeys((*counts, "reached"), pl.Int64())
    data = pl.DataFrame(rows, {**schema, "value": pl.Float64()})
    lines = [
        {"object": row["object"], **{heading: row[word] for word, heading in WORDS.items()}}
        | {"in this study": "; ".join(_measured(row)) or DASH}
        for row in data.rows(named=True)
    ]
    notes = [
        f"Last column: pass@k, {ESTIMATOR}, over the budgets of {len(cells)} interpretable cells"
        " (pair, benchmark). Every number is of the pool that the cell was sampled with; table recovery_summary has the"
        " cells one by one. Envelope and near-match set choose among many points on the same questions, which favours"
        " them.",
        "Smooth path: here the path of least error whose N never falls; the power law with one policy is in table"
        " identification, the frozen rule in tables horizontal, vertical and coverage_heldout, where BOPTR runs.",
    ]
    return fmt.Table(data, [fmt.part(lines)], notes)


def _by_budget(cell: Cell) -> pl.DataFrame:
    """One row per RL budget of a cell: gap to the envelope, number of matches, residual of the monotone path."""
    rows = pick(cell.support, metric=METRIC, estimator=ESTIMATOR).select("budget", "rl_minus_best")
    matches = pick(cell.near_match, metric=METRIC).group_by("target_budget").agg(matches=pl.len())
    path = pick(cell.path, metric=METRIC, kind="monotone")
    for frame in (matches, path.select("target_budget", residual=pl.col("rl_minus_base").abs())):
        rows = rows.join(frame, left_on="budget", right_on="target_budget", how="left", maintain_order="left")
    return rows.select("rl_minus_best", pl.col("matches").fill_null(0), "residual")


def _measured(row: Row) -> Iterator[str]:
    if row["value"] is None:
        return
    reached = f"{fmt.fraction(row['reached'], row['budgets'])} budgets"
    if row["object"] == "envelope":
        yield f"at or above RL at {reached}"
        yield f"largest gap RL − envelope {percent(row['value'], sign='+')} pp"
    elif row["object"] == "near-match set":
        yield f"a match at {reached}"
        yield f"median {number(row['value'], 0)} matches a budget"
    else:
        yield f"mean |residual| {percent(row['value'])} pp over {row['budgets']} budgets"
