"""What a prediction needs: how much RL, which Base features, and which budgets."""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl

from searchlens.boptr.cohort import CohortPlan
from searchlens.boptr.knee import TAU
from searchlens.boptr.offsets import SHUFFLES
from searchlens.catalogue import table
from searchlens.claims import DASH, Row, interval, number, percent
from searchlens.config.boptr import BoptrOptions
from searchlens.tables import format as fmt
from searchlens.tables.boptr import _means as means_of
from searchlens.tables.boptr._notes import (
    CORRECTED,
    ERROR,
    POOLS,
    brackets,
    contrast_notes,
    corrected,
    model_name,
    reasons,
    single_pair,
    single_readouts,
)
from searchlens.tables.boptr.context import TableContext
from searchlens.tables.format import NO, YES, Line
from searchlens.tables.table import Part, Table

# ---- amount of RL

RL_USED = {
    "Z0-u": ("0", YES),
    "Z0-N*": ("0", YES),
    "B0": ("1", NO),
    "V2": ("1", NO),
    "Z1-u": ("1", YES),
    "Z1-N*": ("1", YES),
    "V3": ("each model", NO),
    "V1": ("oracle", NO),
}
"""Row to the RL models that it reads, and whether it reads base@rltrain."""


@table("frontier", stage="boptr")
def frontier(context: TableContext) -> Table:
    """How much RL a scale needs."""
    rows = context.frames["means"].filter(scope="frontier")
    columns = {"micro": "micro", "macro": "macro", "matched micro": "matched micro"}
    main = rows.filter(pl.col("tier").is_in(list(RL_USED)))
    paper = main.filter(exponents="paper", pool="ar")
    lines = _with_rl_used(means_of.lines(paper, columns, "micro"))
    own, unchanged = means_of.own_exponents(main, columns, "micro")
    micro = rows.filter(exponents="paper", pool="ar", column="micro")
    notes = [
        f"Rows: how α is known, from no RL (Z0) over one anchor (B0, V2, Z1) to each model's own (V3, V1). {ERROR}",
        "#RL: models whose RL is read. V2 reads the anchor's RL on every benchmark, B0 and Z1 on one. No RL holds for"
        " α alone: β and the selector's prototype come from the anchor's RL in every row.",
        f"N*: the smallest budget at which Base on base@rltrain is within τ = {TAU:g} of its last readout.",
        brackets(context.options),
        CORRECTED,
        "Sweeps: no path is chosen again in the draws, so their errors are corrected for the first bias alone, and may"
        " differ slightly from those of the same row above.",
        means_of.OVERALL_NOTE,
        *means_of.fewer_cells(paper, "micro"),
        _probe_note(context.frames["probe"].row(0, named=True), context.options),
        *contrast_notes(context.frames["contrasts"], "cohort", "V3", RL_USED),
        *unchanged,
        *means_of.pool_note(main),
        *single_pair(context.plan),
        *reasons(rows, context.frames["probe"]),
    ]
    parts = [
        means_of.block(lines, "AR pool", ("B0", "V3")),
        *_sweep(micro, "λ", "sweep of λ (micro; λ = 0 is B0 where the prior is known)"),
        *_sweep(micro, "τ", "sweep of τ"),
        *means_of.full_pool(main, columns, "micro"),
        *own,
    ]
    return Table(rows.drop("scope"), parts, notes)


def _with_rl_used(lines: Mapping[str, Line]) -> dict[str, Line]:
    return {
        key: {"row": line["row"], "#RL": RL_USED[key][0], "base@rltrain": RL_USED[key][1], **line}
        for key, line in lines.items()
    }


def _sweep(rows: pl.DataFrame, symbol: str, title: str) -> list[Part]:
    """Rows named like ``Z1-u λ=0.25``: a line for each prior, a column for each setting."""
    lines: dict[str, Line] = {}
    cells: dict[str, str] = {}
    for row in rows.filter(pl.col("tier").str.contains(f" {symbol}=")).iter_rows(named=True):
        prior, setting = row["tier"].rsplit(" ", 1)
        lines.setdefault(prior, {"row": prior})[setting.replace("=", " = ")] = corrected(row)
        cells[prior] = fmt.fraction(row["cells"], row["of"])
    complete = {prior: line | {"cells": cells[prior]} for prior, line in lines.items()}
    return [means_of.block(complete, title)] if complete else []


def _probe_note(row: Row, options: BoptrOptions) -> str:
    what = f"Probe (OLS of ln α_math on P_max of base@rltrain, {row['n']} models)"
    if row["slope"] is None:
        return f"{what}: not defined ({row['reason']})."
    slope = interval(row["slope"], row["slope_lo"], row["slope_hi"])
    r = interval(row["r"], row["r_lo"], row["r_hi"])
    return (
        f"{what}: ln α_math = {number(row['intercept'])} + P_max × {slope}; r = {r};"
        f" {options.confidence:.0%} intervals of t and of Fisher's z."
    )


# ---- Base features

TOP = 10
"""Number of features that are printed."""
SELECTIONS = {"all_models": "over all models", "in_fold": "inside each fold"}


@table("v4", stage="boptr")
def v4(context: TableContext) -> Table:
    """The linear probe of alpha from Base features, with its null."""
    features, summary = context.frames["v4"], context.frames["v4_summary"]
    titles = {"cohort": "", "without": f", without {', '.join(context.options.mu_without)}"}
    parts = [
        part
        for mu in summary.drop_nulls("loo_pseudo_r2")["mu"].unique(maintain_order=True)
        for part in (
            fmt.part(_feature_lines(features.filter(mu=mu)), f"features, top by |r|{titles[mu]}"),
            fmt.part(_score_lines(summary.filter(mu=mu)), f"score of the chosen features, and its null{titles[mu]}"),
        )
    ]
    notes = [
        f"Leave-one-model-out (LOO) ridge of ln α_math on Base features, standardised or raw; the {TOP} with the"
        " largest |r| are shown, all of them in the CSV. A pseudo-R2 below 0 predicts worse than the mean.",
        "Scores: of the k features with the largest |r|, chosen over all models, the one left out among them, or inside"
        f" each fold. Null: {SHUFFLES} shuffles of ln α_math over the models, chosen again in each.",
        *reasons(features, summary),
    ]
    if not parts:
        parts, models = [fmt.part([])], max(summary["models"].to_list(), default=0)
        notes[:2] = [f"Nothing is printed: too few models have a pair of their own to leave one out ({models})."]
    data = fmt.stacked(features=features, scores=summary, null=context.frames["v4_null"])
    return Table(data, parts, notes)


def _feature_lines(features: pl.DataFrame) -> list[Line]:
    top = features.sort(pl.col("pearson_r").abs(), descending=True, nulls_last=True, maintain_order=True).head(TOP)
    return [
        {
            "feature": row["feature"],
            "Pearson r": number(row["pearson_r"], sign="+"),
            "standardised: LOO pseudo-R2": number(row["loo_pseudo_r2"], sign="+"),
            "raw: LOO pseudo-R2": number(row["loo_pseudo_r2_raw"], sign="+"),
        }
        for row in top.iter_rows(named=True)
    ]


def _score_lines(summary: pl.DataFrame) -> list[Line]:
    return [
        {
            "features": row["scale"],
            "chosen": SELECTIONS[row["selection"]],
            "k": str(row["k"]),
            "models": str(row["models"]),
            "LOO pseudo-R2": number(row["loo_pseudo_r2"], sign="+"),
            "null 5%": number(row["q05"], sign="+"),
            "null 50%": number(row["q50"], sign="+"),
            "null 95%": number(row["q95"], sign="+"),
            "p": number(row["p"]),
        }
        for row in summary.iter_rows(named=True)
    ]


# ---- larger budgets


@table("aime_large_budget", stage="boptr")
def aime_large_budget(context: TableContext) -> Table:
    """The Base envelope and RL at equal budgets, and the budget from which on Base is never behind."""
    frame, crossing, plan = context.frames["aime_large_budget"], context.frames["crossing"], context.plan
    read = frame.filter(pl.col("b").is_not_null())
    anchor = read.filter(model=plan.anchor_model)
    parts = [
        fmt.part(
            [_budget_line(row) for row in rows.iter_rows(named=True)],
            f"{plan.anchor_model}, {plan.title(str(benchmark))}, {title}",
        )
        for (benchmark,), group in anchor.group_by("benchmark", maintain_order=True)
        for pool, title in POOLS.items()
        if (rows := group.filter(pool=pool)).height
    ]
    differences = []
    for (model, benchmark, pool), rows in read.group_by("model", "benchmark", "pool", maintain_order=True):
        by_budget = {
            f"b = {row['b']}": percent(row["rl_minus_best"], row["lo"], row["hi"], "+")
            for row in rows.iter_rows(named=True)
        }
        differences.append(_cell(str(model), str(benchmark), str(pool), plan) | by_budget)
    found = crossing.filter(pl.col("crossing").is_not_null())
    crossings = [
        {
            **_cell(row["model"], row["benchmark"], row["pool"], plan),
            "k*": str(row["crossing"]),
            "draws with this k*": percent(row["share"]),
            f"k* in {context.options.confidence:.0%} of draws": _budget_range(row),
            "never": percent(row["never"]),
            "first tie": str(row["tie"]),
            "draws with this tie": percent(row["tie_share"]),
            "largest b": str(row["largest"]),
        }
        for row in found.iter_rows(named=True)
    ]
    notes = [
        "Proportions in %. Envelope: the largest Base pass rate over the pool at any n ≤ b, reached by the policy"
        f" shown; RL − envelope: in percentage points. {single_readouts(context.options)} Brackets of a difference:"
        " paired bootstrap over questions at these points. A maximum over a pool is biased upwards, and no interval"
        " here allows for that.",
        "k*: the budget from which on Base is never behind RL, up to the largest one compared. First tie: the smallest"
        " budget at which Base is at or above RL, though it may fall behind again. Shares of bootstrap draws, the"
        " envelope taken again in each; never: draws in which Base is behind at the largest budget.",
        *_without_crossing(crossing, plan),
        *reasons(frame, crossing.filter(pl.col("reason").ne_missing("no_difference"))),
    ]
    parts += [
        fmt.part(differences, "RL − envelope at equal budgets, percentage points"),
        *([fmt.part(crossings, "budget from which on Base is never behind")] if crossings else []),
    ]
    return Table(fmt.stacked(curves=frame, crossing=crossing), parts, notes)


def _cell(model: str, benchmark: str, pool: str, plan: CohortPlan) -> Line:
    return {"model": model_name(plan, model), "benchmark": plan.title(benchmark), "pool": POOLS[pool]}


def _budget_line(row: Row) -> Line:
    return {
        "b": str(row["b"]),
        "Base envelope": percent(row["envelope"], row["envelope_lo"], row["envelope_hi"]),
        "reached by": f"{row['policy']} at {row['n']}",
        "RL default policy": percent(row["rl"], row["rl_lo"], row["rl_hi"]),
        "RL − envelope": percent(row["rl_minus_best"], row["lo"], row["hi"], "+"),
        "overlap": fmt.tick(row["overlap"]),
        "draws with k* = b": percent(row["crossing_share"]),
        "draws with first tie at b": percent(row["tie_share"]),
    }


def _budget_range(row: Row) -> str:
    return DASH if row["median"] is None and row["lo"] is None else f"{fmt.word(row['lo'])} to {row['hi'] or 'never'}"


def _without_crossing(crossing: pl.DataFrame, plan: CohortPlan) -> list[str]:
    """The cells that have no row among the crossings, and why."""

    def names(rows: pl.DataFrame) -> str:
        cells = rows.select("model", "benchmark", "pool", "never").iter_rows()
        return "; ".join(
            f"{model_name(plan, model)}, {plan.title(benchmark)}, {POOLS[pool]}"
            + ("" if never is None else f" (in {percent(never)}% of draws)")
            for model, benchmark, pool, never in cells
        )

    equal, behind = (
        crossing.filter(reason="no_difference"),
        crossing.filter(pl.col("crossing").is_null(), pl.col("reason").is_null()),
    )
    notes = []
    if behind.height:
        notes.append(f"No k*, since Base is behind RL at the largest budget: {names(behind)}.")
    if equal.height:
        notes.append(f"No k*, since both solve equally many questions at every budget: {names(equal)}.")
    return notes
