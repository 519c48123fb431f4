"""Tables that each render a frame of their own: a row per cell, model, feature, flag or item."""

from __future__ import annotations

from itertools import groupby

import polars as pl

from searchlens.boptr.cohort import CohortPlan
from searchlens.boptr.options import REGIMES
from searchlens.boptr.protocol import FEW_QUESTIONS
from searchlens.tables import _format as f
from searchlens.tables._format import Line, Row, Study
from searchlens.tables._table import DASH, Part, Table
from searchlens.tables.boptr_means import READINGS, spread


def _table(data: pl.DataFrame, blocks: list[Part], notes: list[str]) -> Table:
    first, *more = blocks
    return Table(f.flat(data), first.text, first.rule_before, first.title, tuple(more), tuple(notes))


def blocks(study: Study) -> Table:
    """What is compared with what, and why."""
    lines = [{name: str(value) for name, value in row.items()} for row in study.frames["blocks"].iter_rows(named=True)]
    return _table(
        study.frames["blocks"],
        [f.part(lines)],
        ["Horizontal and vertical results are reported apart: they test different transfer hypotheses."],
    )


# ---- regimes


def regime_betas(study: Study) -> Table:
    """Which exponent each cell prefers, beside the frozen one."""
    betas, stability = study.frames["regime_betas"], study.frames["beta_stability"]
    anchor = betas.filter(model=study.plan.anchor_model)
    lines = []
    for (benchmark,), group in anchor.group_by("benchmark", maintain_order=True):
        first = group.row(0, named=True)
        line = {"benchmark": study.plan.title(str(benchmark)), "regime": first["regime"] + "†" * first["a_priori"]}
        for row in group.iter_rows(named=True):
            line[f"{row['constraint']} β"] = f.interval(row["beta"], row["lo"], row["hi"], 1)
            line[f"{row['constraint']} same error"] = _runs(row["exact"])
        lines.append(line | {"frozen β": f.number(first["assigned"]), "own β": f.number(first["own"])})
    every = [
        {"model": f.model_name(study.plan, str(model))}
        | {study.plan.title(row["benchmark"]): _fitted_beta(row) for row in group.iter_rows(named=True)}
        for (model,), group in betas.filter(~pl.col("a_priori"), constraint="R1").group_by("model", maintain_order=True)
    ]
    left_out_known = stability.filter(pl.col("without").is_not_null())["beta"].is_not_null().any()
    left_out = [
        {"benchmark": study.plan.title(str(benchmark))}
        | {
            "all models" if row["without"] is None else f"without {row['without']}": f.number(row["beta"], 1)
            for row in group.iter_rows(named=True)
        }
        for (benchmark,), group in stability.group_by("benchmark", maintain_order=True)
    ]
    notes = [
        "R0: a policy for each budget; R1: one policy; R2: the RL default policy. Each is fitted over the grids of α"
        f" and β on the AR pool. Brackets: {study.options.confidence:.0%} interval of β with the fit made again in"
        " bootstrap draws.",
        "Same error: every exponent of the grid that reaches the same error; behind R1 of every model, those within one"
        " bootstrap standard deviation. Among equals the fit takes the one nearest to the frozen β: there, agreement"
        " with it is no evidence.",
        "Frozen β: the paper's constants, in every main row. Own β: the estimate of this cohort, a benchmark left out"
        " of its own where its regime has another.",
        "†: regime assigned beforehand; nothing is fitted on the benchmark.",
        *f.reasons(betas, stability),
    ]
    parts = [
        f.part(lines, f"{study.plan.anchor_model}: R0, R1, R2"),
        f.part(every, "R1 β of every model, with the exponents within one standard deviation"),
        *([f.part(left_out, "own β with each model left out")] if left_out_known else []),
    ]
    return _table(f.stacked(fits=betas, stability=stability), parts, notes)


def _fitted_beta(row: Row) -> str:
    return DASH if row["beta"] is None else f"{f.number(row['beta'], 1)} ({_runs(row['tied'])})"


def _runs(values: list[float] | None) -> str:
    """Values of the beta grid, neighbours drawn together: ``0–0.3, 0.7``."""
    if not values:
        return DASH
    steps = [round(10 * value) for value in values]
    runs = [[step for _, step in run] for _, run in groupby(enumerate(steps), lambda pair: pair[1] - pair[0])]
    return ", ".join(f"{run[0] / 10:g}" if len(run) == 1 else f"{run[0] / 10:g}–{run[-1] / 10:g}" for run in runs)


MAPS = {"three regimes": "three regimes", "two regimes": "two regimes", "three - two": "three − two"}


def beta_sensitivity(study: Study) -> Table:
    """Three regimes against two, in which the floor benchmarks are math."""
    frame = study.frames["beta_sensitivity"]
    floor = [name for name in study.plan.with_role("fitted") if study.plan.benchmarks[name].regime == "floor"]
    lines = []
    for (name,), group in frame.group_by("map", maintain_order=True):
        rows = {row["benchmark"]: row for row in group.iter_rows(named=True)}
        sign = "+" if name == "three - two" else ""
        line = {"regime map": MAPS[str(name)]}
        line |= {f"N̂(b) on {study.plan.title(d)}": f.word(rows[d]["path"]) for d in floor if d in rows}
        for benchmark, row in rows.items():
            shown = "mean" if benchmark is None else study.plan.title(benchmark)
            line[shown] = f.interval(row["error"], row["lo"], row["hi"], sign=sign)
        lines.append(line)
    difference = frame.filter(map="three - two").row(0, named=True) if frame.height else None
    notes = [
        f"{study.plan.anchor_model}; only the columns of floor benchmarks can differ. {f.ERROR}",
        f.brackets(study.options),
        *([_overlap_note(difference, study.plan)] if difference else []),
        "The two-regime row is a counterfactual, not an adopted rule.",
        *f.reasons(frame),
    ]
    return _table(frame, [f.part(lines, rule_before=(len(lines) - 1,))], notes)


def _overlap_note(row: Row, plan: CohortPlan) -> str:
    if row["error"] is None or row["benchmark"] is None:
        return "No floor benchmark was sampled: the maps are the same."
    meet = "overlap" if row["overlap"] else "do not overlap"
    inside = "contains 0" if row["lo"] <= 0 <= row["hi"] else "excludes 0"
    return (
        f"The interval of three − two on {plan.title(row['benchmark'])} {inside}; the Wilson intervals of the two paths"
        f" {meet} at every budget."
    )


# ---- cells


def percell(study: Study) -> Table:
    """The calibrated rule beside the cell's own fit."""
    frame = study.frames["percell"]
    titles = {
        ("cohort", "paper"): "the paper's exponents",
        ("without", "paper"): f"μ without {', '.join(study.options.mu_without)}",
        ("cohort", "own"): "the cohort's own exponents",
        ("without", "own"): f"the cohort's own exponents, μ without {', '.join(study.options.mu_without)}",
    }
    parts = []
    for key, title in titles.items():
        rows = _in_order(frame.filter(mu=key[0], exponents=key[1]), study.plan)
        if rows.height:
            parts.append(
                f.part([_percell(row, study.plan) for row in rows.iter_rows(named=True)], title, _by(rows, "model"))
            )
    notes = [
        f"cell: α fitted to the cell itself; anchor: α = exp(μ + δ). {f.ERROR}",
        "The gap (anchor − cell) may be negative: the cell's α is fitted with another policy than the selector takes.",
        f.PATHS_OF_ALPHA + " Boundary: distance of log2 α to the nearer end of it; near 0, a small change of α changes"
        " the path.",
        f.brackets(study.options),
        *f.single_pair(study.plan),
        *f.reasons(frame),
    ]
    return _table(frame, parts or [f.part([])], notes)


def _in_order(rows: pl.DataFrame, plan: CohortPlan) -> pl.DataFrame:
    """Cells in the order of the plan."""
    names = pl.col("model").cast(pl.Enum(list(plan.models))), pl.col("benchmark").cast(pl.Enum(list(plan.benchmarks)))
    return rows.sort(*names, maintain_order=True)


def _percell(row: Row, plan: CohortPlan) -> Line:
    return {
        "model": f.model_name(plan, row["model"]),
        "benchmark": plan.title(row["benchmark"]),
        "regime": row["regime"],
        "β": f.number(row["beta"], 1),
        "α̂": f.interval(row["alpha"], row["alpha_lo"], row["alpha_hi"]),
        "boundary": f.number(row["boundary"]),
        "π̂": f.word(row["policy"]),
        "N̂(b)": f.word(row["path"]),
        "mech cell": f.number(row["mech_cell"]),
        "mech anchor": f.interval(row["mech_anchor"], row["lo"], row["hi"]),
        "gap": f.number(row["gap"], sign="+"),
    }


def _by(rows: pl.DataFrame, column: str) -> tuple[int, ...]:
    return f.breaks(rows[column].to_list())


ROLES = {"fitted": "fitted benchmarks", "held_out": "held-out benchmarks"}
POOLS = {"ar": "AR pool", "full": "full pool"}


def qchannel(study: Study) -> Table:
    """How far Base reaches RL's self-consistency."""
    frame, summary = study.frames["qchannel"], study.frames["q_summary"]
    parts = []
    for pool, pool_says in POOLS.items():
        for role, says in ROLES.items():
            rows = frame.filter(pool=pool, role=role)
            rows = rows if pool == "ar" else rows.filter(pl.col("reason").is_null())
            if rows.height:
                lines = [_voted(row, study.plan) for row in rows.iter_rows(named=True)]
                parts.append(f.part(lines, f"{says}, {pool_says}", _by(rows, "model")))
    notes = [
        "π̂ maximises Q_B − 0.5 (P_B − Q_B) − 0.01 C at the largest budget; mech Q: mean over b of |Q_Base(π̂,"
        " N̂(b)) − Q_RL(b)|, pp. α̂ is fitted to the curve that it is scored on: a description, not transfer.",
        "Recoverable: the largest Q of Base's pool comes within"
        f" {f.percent(study.options.q_tolerance)} points of RL's largest. Gap: largest Q_RL − largest Q_Base, pp; the"
        " maximum over a pool is optimistic, and the interval does not know of it.",
        "†: no answer of the benchmark is voted on; Q there is the correctness of the first valid sample (diagnostic).",
        f.PATHS_OF_ALPHA,
        f.brackets(study.options),
        *f.reasons(frame),
    ]
    return _table(
        f.stacked(cells=frame, summary=summary),
        [*(parts or [f.part([])]), _recoverability(summary)],
        notes,
    )


def _voted(row: Row, plan: CohortPlan) -> Line:
    return {
        "model": f.model_name(plan, row["model"]),
        "benchmark": plan.title(row["benchmark"]) + "†" * bool(row["diagnostic"]),
        "recov": f.tick(row["recoverable"]),
        "β": f.number(row["beta_q"], 1),
        "α̂": f.interval(row["alpha_q"], row["alpha_lo"], row["alpha_hi"]),
        "π̂": f.word(row["policy"]),
        "N̂(b)": f.word(row["path"]),
        "mech Q": f.interval(row["mech_q"], row["lo"], row["hi"]),
        "gap": f.interval(row["gap"], row["gap_lo"], row["gap_hi"], sign="+"),
    }


def _recoverability(summary: pl.DataFrame) -> Part:
    scopes = {"all": "all", "voted": "voted only"}
    lines = []
    for (pool, role, scope), group in summary.group_by("pool", "role", "scope", maintain_order=True):
        line = {"pool": POOLS[str(pool)], "cells": ROLES[str(role)], "which": scopes[str(scope)]}
        for row in group.iter_rows(named=True):
            mean = "" if row["mech_q"] is None else f" (mech Q {f.number(row['mech_q'])})"
            line[row["regime"]] = f.of(row["recoverable"], row["cells"]) + mean
        lines.append({key: line[key] for key in ("pool", "cells", "which", "all", *REGIMES) if key in line})
    return f.part(lines, "recoverable cells, and mean mech Q over these")


def formula_same(study: Study) -> Table:
    """One formula, each model's own alpha and policy."""
    frame = study.frames["formula_same"]
    notes = [
        f"Fit on {study.plan.title(study.plan.anchor_benchmark)} with β of its regime and one policy for all budgets"
        f" (R1 locked). {f.ERROR}",
        f.PATHS_OF_ALPHA,
        *f.reasons(frame),
    ]
    return _table(frame, [f.part([_scale(row, study.plan) for row in frame.iter_rows(named=True)])], notes)


def _scale(row: Row, plan: CohortPlan) -> Line:
    return {
        "model": f.model_name(plan, row["model"]),
        "α_math": f.interval(row["alpha"], row["alpha_lo"], row["alpha_hi"]),
        "π_math (R1 locked)": f.word(row["policy"]),
        "N̂(b)": f.word(row["path"]),
        "error": f.number(row["error"]),
    }


def identification(study: Study) -> Table:
    """What a fit can tell: the interval of alpha, and every triple that fits as well."""
    scale, whole = study.frames["identified_scale"], study.frames["identified_set"]
    first = [
        {
            **_scale(row, study.plan),
            "δ": f.interval(row["delta"], row["delta_lo"], row["delta_hi"], sign="+"),
            "boundary": f.number(row["boundary"]),
        }
        for row in scale.iter_rows(named=True)
    ]
    second = [
        {
            "model": f.model_name(study.plan, row["model"]),
            "benchmark": study.plan.title(row["benchmark"]),
            "α̂": f.number(row["alpha"]),
            "β̂": f.number(row["beta"], 1),
            "N̂(b)": f.word(row["path"]),
            "error": spread(row["error"], row["se"]),
            "triples": f.of(row["triples"], row["of"]),
            "paths": f.word(row["paths"]),
            "policies": f.word(row["policies"]),
            "α from–to": _range(row["alpha_min"], row["alpha_max"], 2),
            "β from–to": _range(row["beta_min"], row["beta_max"], 1),
        }
        for row in whole.iter_rows(named=True)
    ]
    notes = [
        f"Upper block: scale at the frozen β. {f.PATHS_OF_ALPHA} The interval of δ is the one that these intervals"
        " allow.",
        "Lower block: R1 fit of each cell, then every (α, β, π) of the grids whose error is within one bootstrap"
        " standard deviation (± behind the error) of the best.",
        *f.reasons(scale, whole),
    ]
    parts = [
        f.part(first, f"scale on {study.plan.title(study.plan.anchor_benchmark)}"),
        f.part(second, "identified set of every cell, AR pool", _by(whole, "model")),
    ]
    return _table(f.stacked(scale=scale, set=whole), parts, notes)


def _range(low: float | None, high: float | None, digits: int) -> str:
    return DASH if low is None or high is None else f"{f.number(low, digits)}–{f.number(high, digits)}"


# ---- offsets


def offsets(study: Study) -> Table:
    """How each predicted offset came about."""
    frame = study.frames["offsets"]
    lines = [
        {
            "model": f.model_name(study.plan, row["model"]),
            "δ": f.number(row["delta"], sign="+"),
            "δ̂": f.number(row["delta_hat"], sign="+"),
            "branch": f.word(row["branch"]),
            "ridge": f.number(row["ridge"], sign="+"),
            "tail": f.number(row["tail"], sign="+"),
            "largest z": f.number(row["largest_z"]),
            f"P_max@{max(study.plan.budgets)}": f.percent(row["p_max"]),
            "P_0": f.percent(row["p0"]),
            "u": f.number(row["u"]),
            "log2 N*": f.number(row["log2_n_star"]),
        }
        for row in frame.iter_rows(named=True)
    ]
    notes = [
        "δ: from the model's own pair; δ̂ (V5b): from Base on the RL-training split and the other models' offsets."
        f" Ridge where every feature is within {study.options.gate_z:g} standard deviations of the other models, tail"
        " consistency elsewhere. P_max and P_0 in %.",
        *f.single_pair(study.plan),
        *f.reasons(frame),
    ]
    return _table(frame, [f.part(lines)], notes)


TOP = 10
"""Features of V4 that are printed."""
SELECTIONS = {"all_models": "over all models", "in_fold": "inside each fold"}


def v4(study: Study) -> Table:
    """The linear probe of alpha from Base features, with its null."""
    features, summary = study.frames["v4"], study.frames["v4_summary"]
    top = features.sort(pl.col("pearson_r").abs(), descending=True, nulls_last=True, maintain_order=True).head(TOP)
    lines = [
        {
            "feature": row["feature"],
            "Pearson r": f.number(row["pearson_r"], sign="+"),
            "standardised: LOO pseudo-R2": f.number(row["loo_pseudo_r2"], sign="+"),
            "raw: LOO pseudo-R2": f.number(row["loo_pseudo_r2_raw"], sign="+"),
        }
        for row in top.iter_rows(named=True)
    ]
    scores = [
        {
            "features": row["scale"],
            "chosen": SELECTIONS[row["selection"]],
            "k": str(row["k"]),
            "models": str(row["models"]),
            "LOO pseudo-R2": f.number(row["loo_pseudo_r2"], sign="+"),
            "null 5%": f.number(row["q05"], sign="+"),
            "null 50%": f.number(row["q50"], sign="+"),
            "null 95%": f.number(row["q95"], sign="+"),
            "p": f.number(row["p"]),
        }
        for row in summary.iter_rows(named=True)
    ]
    notes = [
        f"Leave-one-model-out (LOO) ridge of ln α_math on Base features, standardised or raw; the {TOP} with the"
        " largest |r| are shown, all of them in the CSV. A pseudo-R2 below 0 predicts worse than the mean.",
        "Scores: of the k features with the largest |r|, chosen over all models, the one left out among them, or inside"
        f" each fold. Null: {study.options.v4_shuffles} shuffles of ln α_math over the models, chosen anew in each.",
        *f.reasons(features, summary),
    ]
    return _table(
        f.stacked(features=features, scores=summary, null=study.frames["v4_null"]),
        [f.part(lines, "features, top by |r|"), f.part(scores, "score of the chosen features, and its null")],
        notes,
    )


# ---- larger budgets, base alone, seeds


def aime_large_budget(study: Study) -> Table:
    """The Base envelope and RL at equal budgets, and from which budget on Base has caught up."""
    frame, crossing = study.frames["aime_large_budget"], study.frames["crossing"]
    anchor = frame.filter(pl.col("model") == study.plan.anchor_model, pl.col("b").is_not_null())
    parts = [
        f.part(
            [_budget(row) for row in rows.iter_rows(named=True)],
            f"{study.plan.anchor_model}, {study.plan.title(str(d))}, {says}",
        )
        for (d,), whole in anchor.group_by("benchmark", maintain_order=True)
        for pool, says in POOLS.items()
        if (rows := whole.filter(pool=pool)).height
    ]
    keys = ["model", "benchmark", "pool"]
    every = []
    for (model, benchmark, pool), group in frame.filter(pl.col("b").is_not_null()).group_by(keys, maintain_order=True):
        gaps = {
            f"b = {row['b']}": f.percent(row["difference"], row["lo"], row["hi"], "+")
            for row in group.iter_rows(named=True)
        }
        every.append(_place(str(model), str(benchmark), str(pool), study.plan) | gaps)
    caught = [
        {
            **_place(row["model"], row["benchmark"], row["pool"], study.plan),
            "k*": f.word(row["crossing"]),
            "median [interval]": _count_interval(row),
            "never": f.percent(row["never"]),
            "largest b": f.word(row["largest"]),
        }
        for row in crossing.filter(pl.col("reason").ne_missing("no_expanded_pool")).iter_rows(named=True)
    ]
    notes = [
        "Proportions in %. Envelope: the largest Base pass rate over the pool at any n ≤ b, reached by the policy"
        f" shown; difference: envelope − RL. {f.WILSON} Brackets of a difference: paired bootstrap over questions at"
        " these points. A maximum over a pool is biased upwards, and no interval here allows for that.",
        "k*: the smallest budget at which Base is at or above RL, though it may fall behind again; the share of"
        " bootstrap draws with this k*, the envelope taken anew in each, is the last column of the anchor's block.",
        *f.reasons(frame, crossing),
    ]
    parts += [f.part(every, "envelope − RL at equal budgets, percentage points"), f.part(caught, "crossing budget")]
    return _table(f.stacked(curves=frame, crossing=crossing), parts, notes)


def _place(model: str, benchmark: str, pool: str, plan: CohortPlan) -> Line:
    return {"model": f.model_name(plan, model), "benchmark": plan.title(benchmark), "pool": POOLS[pool]}


def _budget(row: Row) -> Line:
    return {
        "b": str(row["b"]),
        "Base envelope": f.percent(row["envelope"], row["envelope_lo"], row["envelope_hi"]),
        "reached by": f"{row['policy']} at {row['n']}",
        "RL default policy": f.percent(row["rl"], row["rl_lo"], row["rl_hi"]),
        "difference": f.percent(row["difference"], row["lo"], row["hi"], "+"),
        "overlap": f.tick(row["overlap"]),
        "draws with k* = b": f.percent(row["crossing_share"]),
    }


def _count_interval(row: Row) -> str:
    return DASH if row["median"] is None else f"{row['median']} [{f.word(row['lo'])}, {f.word(row['hi'])}]"


def descriptive(study: Study) -> Table:
    """Base alone on benchmarks without an RL side."""
    frame = study.frames["descriptive"]
    lines = []
    for (model, benchmark), group in frame.group_by("model", "benchmark", maintain_order=True):
        first = group.row(0, named=True)
        line = {"model": f.model_name(study.plan, str(model)), "benchmark": study.plan.title(str(benchmark))}
        line["n"] = f.word(first["questions"])
        line |= {
            f"b = {row['b']}": f.percent(row["value"], row["lo"], row["hi"])
            for row in group.iter_rows(named=True)
            if row["b"] is not None
        }
        line |= {"P_max": f.percent(first["p_max"]), "reached by": f.word(first["policy"])}
        lines.append(line | {"headroom": f.percent(first["headroom"]), "N*": f.number(first["knee"], 1)})
    notes = [
        f"Base pass@b under {study.plan.default_policy}, in %. {f.WILSON} P_max: best AR policy at the largest budget;"
        f" N*: smallest budget within {f.percent(study.options.tau)} points of the value there. No RL was sampled on"
        " these benchmarks: nothing is predicted.",
        *([] if frame.height else ["The cohort has no descriptive benchmark."]),
        *f.reasons(frame),
    ]
    return _table(frame, [f.part(lines)], notes)


def seed_replication(study: Study) -> Table:
    """The rule on batches of Base samples drawn again."""
    frame, summary = study.frames["seed_replication"], study.frames["seed_summary"]

    def shown(benchmark: str) -> str:
        return study.plan.title(benchmark) if benchmark in study.plan.benchmarks else benchmark

    lines: list[Line] = []
    for (reading, batch), group in frame.group_by("reading", "batch", maintain_order=True):
        line = {"reading": READINGS[str(reading)], "batch": f.word(batch)}
        for row in group.iter_rows(named=True):
            line[shown(row["benchmark"])] = f.interval(row["error"], row["lo"], row["hi"])
        lines.append(line)
    means: list[Line] = []
    for (reading,), group in summary.group_by("reading", maintain_order=True):
        found = group.row(0, named=True)
        line = {"reading": READINGS[str(reading)], "batches": f.word(found["batches"])}
        line |= {shown(row["benchmark"]): spread(row["mean"], row["sd"]) for row in group.iter_rows(named=True)}
        means.append(line)
    policies = [
        f"{READINGS[str(reading)]}, {study.plan.title(str(benchmark))}: {'/'.join(group['policy'].to_list())}"
        for (reading, benchmark), group in frame.filter(pl.col("policy").is_not_null()).group_by(
            "reading", "benchmark", maintain_order=True
        )
    ]
    notes = [
        f"H5 of {study.plan.anchor_model} on batches that differ in the seed of Base's samples alone; RL is the same"
        f" curve. {f.ERROR}",
        f.brackets(study.options),
        "Fixed π̂: policy of the main batch; full rule: selected anew on each. Mean: over benchmarks within the batch;"
        " ±: standard deviation over batches (ddof 1).",
        *([f"Policies, by batch: {'; '.join(policies)}."] if policies else []),
        *f.reasons(frame, summary),
    ]
    parts = [
        f.part(lines, "every batch", f.breaks([line["reading"] for line in lines])),
        f.part(means, "mean ± sd over batches"),
    ]
    return _table(f.stacked(batches=frame, summary=summary), parts, notes)


def readout_consistency(study: Study) -> Table:
    """How far readouts move when the same checkpoint is sampled again."""
    frame = study.frames["readout_consistency"]
    known = frame.filter(pl.col("reason").is_null())
    keys = ["model", "role", "batch", "benchmark"]

    def place(row: Row) -> Line:
        return {
            "model": f.model_name(study.plan, row["model"]),
            "side": row["role"],
            "batch": row["batch"],
            "benchmark": study.plan.title(row["benchmark"]),
        }

    whole = known.filter(group="all")
    lines = [
        {
            **place(row),
            "points": str(row["points"]),
            "mean |Δ|": f.number(row["mean_abs"]),
            "by chance": f.number(row["chance"]),
            "mean Δ": f.interval(row["mean_signed"], row["lo"], row["hi"], sign="+"),
            "largest Δ": f"{f.number(row['largest'], 1, '+')} ({row['policy']} at {row['budget']})",
            f"≤ {study.options.consistency_criterion:g} pp": f.tick(row["meets_criterion"]),
        }
        for row in whole.iter_rows(named=True)
    ]
    by_temperature = []
    for _, group in known.filter(pl.col("group") != "all").group_by(keys, maintain_order=True):
        cells = {
            row["group"]: f"{f.number(row['mean_abs'])} ({f.number(row['chance'])})"
            for row in group.iter_rows(named=True)
        }
        by_temperature.append(place(group.row(0, named=True)) | cells)
    single = frame.filter(reason="no_batches").height
    notes = [
        "Δ: pass@b of the second batch − that of the main one at every shared point (policy, budget), pp. By chance:"
        " the mean |Δ| of two batches that differ by sampling alone; only what exceeds it is a difference of batches.",
        f.brackets(study.options),
        *([f"Cells without a second batch: {single}; their rows are in the CSV."] if single else []),
        *f.reasons(frame),
    ]
    parts = [f.part(lines, "all shared points", _by(whole, "model"))]
    if by_temperature:
        parts.append(f.part(by_temperature, "by temperature: mean |Δ| (by chance)"))
    return _table(frame, parts, notes)


# ---- signatures, flags, checklist


SIGNATURES = {
    "low_budget_gain": "low-budget gain",
    "base_recovery": "base recovery",
    "concentration_gain": "concentration gain",
    "termination_gain": "termination gain",
}
FEW = 4
"""Up to so many cells are named as examples."""


def signatures(study: Study) -> Table:
    """The four same-policy signatures: where each holds, and every cell's decisions."""
    frame, patterns = study.frames["signatures"], study.frames["signature_table"]
    head = [
        {
            "pattern": row["pattern"],
            "typical metric": row["metric"],
            "holds in": f.of(row["holds"], row["defined"]),
            "examples": _examples(row["cells"]),
            "interpretation": row["interpretation"],
        }
        for row in patterns.iter_rows(named=True)
    ]
    deciding = frame.filter("decides")
    lines = []
    for (model, benchmark), group in deciding.group_by("model", "benchmark", maintain_order=True):
        line = {"model": f.model_name(study.plan, str(model)), "benchmark": study.plan.title(str(benchmark))}
        for row in group.iter_rows(named=True):
            line[_deciding(row)] = _decision(row)
        lines.append(line)
    notes = [
        f"RL and Base under {study.plan.default_policy}. Each decision stands before its estimate: RL − Base in"
        " percentage points, Base − RL for the recovery; yes: the interval lies above 0, no: below, undecided: it"
        " contains 0. Recovery: reached, undecided where RL led at b = 1; level, undecided where it did not. A"
        " termination gain needs both of its columns.",
        f"Brackets: {study.options.confidence:.0%}, paired bootstrap over questions; of the rate of valid answers,"
        " from the two rates' own intervals.",
        *f.reasons(frame),
    ]
    models = deciding.unique(["model", "benchmark"], maintain_order=True)
    parts = [f.part(head, "patterns"), f.part(lines, "every cell", _by(models, "model"))]
    return _table(f.stacked(patterns=patterns, cells=frame), parts, notes)


def _examples(cells: str | None) -> str:
    names = (cells or "").split(", ")
    return f.word(", ".join(names[:FEW])) + (", ..." if len(names) > FEW else "")


def _deciding(row: Row) -> str:
    at = "" if row["budget"] is None else f"@{row['budget']}"
    return f"{SIGNATURES[row['signature']]} ({row['metric']}{at})"


def _decision(row: Row) -> str:
    if row["decision"] is None:
        return DASH
    detail = f", {row['detail']}" if row["detail"] else ""
    return f"{row['decision']}{detail} {f.percent(row['estimate'], row['lo'], row['hi'], '+')}"


def protocol_flags(study: Study) -> Table:
    """Cells in which Base and RL were not asked alike, or hardly asked."""
    frame = study.frames["protocol_flags"]
    lines = []
    for (model, benchmark), group in frame.group_by("model", "benchmark", maintain_order=True):
        line = {"model": f.model_name(study.plan, str(model)), "benchmark": study.plan.title(str(benchmark))}
        line |= {_flag(row): f.word(row["severity"]) for row in group.iter_rows(named=True)}
        lines.append(line)
    flagged = frame.filter(pl.col("severity").is_in(["attention", "undecided"]))
    details = [
        {
            "model": f.model_name(study.plan, row["model"]),
            "benchmark": study.plan.title(row["benchmark"]),
            "flag": _flag(row),
            "severity": row["severity"],
            **_compared(row),
        }
        for row in flagged.iter_rows(named=True)
    ]
    notes = [
        "A flagged cell is reported, never dropped. Truncation: share of samples that hit the length limit; extraction:"
        " share with an answer that can be read; length: mean tokens per sample; all under the RL default policy."
        " Rates and ranges of readouts in %.",
        f"Attention: the interval of RL − Base lies outside ±{f.percent(study.options.protocol_margin)} points, or the"
        f" longer mean length is at least {study.options.length_ratio:g} times the other; undecided: it crosses the"
        " margin.",
        "All or nothing: one side solves no question at any point, or every one; constant RL curve: the same at every"
        f" budget; constant base pool: no budget at which two policies differ; few questions: below {FEW_QUESTIONS}.",
        *f.reasons(frame),
    ]
    cells = frame.unique(["model", "benchmark"], maintain_order=True)
    parts = [f.part(lines, "severity of every flag", _by(cells, "model"))]
    if details:
        parts.append(f.part(details, "what was found"))
    return _table(frame, parts, notes)


def _flag(row: Row) -> str:
    return str(row["flag"]).replace("_", " ").replace(" rl ", " RL ")


def _compared(row: Row) -> Line:
    plain = row["flag"] in ("length", "few_questions")
    shown = (lambda value: f.number(value, 0)) if plain else f.percent
    difference = (
        f.number(row["difference"], 0, "+") if plain else f.percent(row["difference"], row["lo"], row["hi"], "+")
    )
    return {"Base": shown(row["base"]), "RL": shown(row["rl"]), "RL − Base": difference}


def checklist(study: Study) -> Table:
    """The paper's robustness checklist, as checks."""
    frame = study.frames["checklist"]
    lines = [
        {"item": row["item"], "status": row["status"], "claim": row["claim"], "check": row["check"]}
        for row in frame.iter_rows(named=True)
    ]
    notes = [f"{row['item']}: {f.minus(row['detail'])}." for row in frame.iter_rows(named=True) if row["detail"]]
    return _table(frame, [f.part(lines)], notes)


# ---- rows against rows


def contrasts(study: Study) -> Table:
    """Every paired difference of rows."""
    frame = study.frames["contrasts"]
    says = {
        "planned": "planned beforehand, all fitted cells",
        "anchor": f"cells of {study.plan.anchor_model}",
        "cohort": "all fitted cells",
    }
    which = {"paper": "the paper's exponents", "own": "the cohort's own exponents"}
    parts = [
        f.part([_contrast(row) for row in rows.iter_rows(named=True)], f"{says[scope]}, {which[exponents]}")
        for exponents in which
        for scope in says
        if (rows := frame.filter(exponents=exponents, scope=scope)).height
    ]
    notes = [
        f"First − second on the cells that both define, AR pool; below 0 the first has the lower error. V2 is compared"
        f" off {study.plan.anchor_model} alone: on its cells V2 is V1. {f.ERROR}",
        f.brackets(study.options),
        "Corrected: without the upward bias of absolute errors and the downward one of a path chosen on the same"
        " questions, which differ between rows. The verdict goes by the interval of this; so do the columns over models"
        " (interval with the models resampled) and p (exact sign flips over models, then after Holm over the block).",
        "Differing: cells in which the two predict differently; 0: the same predictions.",
        "Planned: the rival that V3 and V5b meet is the one with the lowest mean corrected error on these cells, which"
        " favours it.",
        *f.single_pair(study.plan),
        *f.reasons(frame),
    ]
    return _table(frame, parts or [f.part([])], notes)


def _contrast(row: Row) -> Line:
    over = DASH
    if row["lo_models"] is not None:
        over = f"[{f.number(row['lo_models'], sign='+')}, {f.number(row['hi_models'], sign='+')}]"
    return {
        "first": row["first"],
        "second": row["second"],
        "difference": f.interval(row["difference"], row["lo"], row["hi"], sign="+"),
        "corrected": f.interval(row["corrected"], row["lo_corrected"], row["hi_corrected"], sign="+"),
        "over models": over,
        "p": f.number(row["p"], 3),
        "p (Holm)": f.number(row["p_holm"], 3),
        "models": str(row["models"]),
        "cells": str(row["cells"]),
        "differing": str(row["differing"]),
        "verdict": f.verdict_text(row),
    }


def nulls(study: Study) -> Table:
    """Whether knowing which RL belongs to which Base helps a row."""
    frame = study.frames["nulls"]
    lines = [
        {
            "row": row["label"],
            "error": f.number(row["error"]),
            "null mean": f.number(row["null_mean"]),
            "null lowest": f.number(row["null_lowest"]),
            "p": f.number(row["p"], 3),
            "pairings": f.word(row["pairings"]),
            "models": f.word(row["models"]),
        }
        for row in frame.iter_rows(named=True)
    ]
    notes = [
        "Every Base is scored against another model's RL, the rule fitted anew; error: mean over the fitted cells of"
        " the exchanged models under the true pairing. p: share of pairings, the true one included, with an error at"
        " most the true one's. A row that reads no RL has a low p too where models differ in strength.",
        *f.reasons(frame),
    ]
    return _table(frame, [f.part(lines)], notes)
