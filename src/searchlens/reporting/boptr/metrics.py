"""How close Base comes to RL, what RL changed under one policy, and what Base alone predicts: rows V5b and V4."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import polars as pl
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from searchlens.analysis.claims import DASH, PREDICTS, ROUNDING, Row, interval, number, percent, say
from searchlens.boptr.cohort import CohortPlan
from searchlens.boptr.metrics import TOLERANCE
from searchlens.boptr.offsets import GATE_Z, SHUFFLES
from searchlens.catalogue import figure, table
from searchlens.config.boptr import REGIMES
from searchlens.reporting.boptr import context as shared
from searchlens.reporting.figures import palette, style
from searchlens.reporting.tables import table as fmt

# ---- the Q channel

ROLES = {"fitted": "fitted benchmarks", "held_out": "held-out benchmarks"}
SCOPES = {"all": "all", "voted": "voted only"}


@table("qchannel", stage="boptr")
def qchannel(context: shared.BoptrContext) -> fmt.Table:
    """How close Base comes to RL's self-consistency."""
    frame, summary = context.frames["qchannel"], context.frames["q_summary"]
    parts = []
    for pool, pool_title in shared.POOLS.items():
        for role, role_title in ROLES.items():
            rows = frame.filter(pool=pool, role=role)
            rows = rows if pool == "ar" else rows.filter(pl.col("reason").is_null())
            if rows.height:
                lines = [_q_line(row, context.plan) for row in rows.iter_rows(named=True)]
                parts.append(fmt.part(lines, f"{role_title}, {pool_title}", fmt.changes(rows["model"].to_list())))
    notes = [
        f"π̂ maximises Q_B − 0.5 (P_B − Q_B) − 0.01 C at the largest budget; mech Q: mean over b of |Q_Base(π̂,"
        f" N̂(b)) − Q_RL(b)|, pp, raw. α̂ is fitted to the curve that it is scored on: a description, not transfer."
        f" {shared.CORRECTED}",
        f"Recoverable: the largest Q of Base's pool comes within {percent(TOLERANCE)} points of RL's"
        " largest. Policies and questions: the size of that pool, whose largest Q rises by chance with each policy, and"
        " of the benchmark. Gap: largest Q_RL − largest Q_Base, pp; the maximum over a pool is optimistic, and the"
        " interval does not allow for that.",
        "†: no answer of the benchmark is voted on; Q there is the correctness of the first valid sample (diagnostic).",
        shared.PATHS_OF_ALPHA,
        context.brackets,
    ]
    lines = []
    for (which, role, scope), rows in summary.group_by("pool", "role", "scope", maintain_order=True):
        line = {"pool": shared.POOLS[str(which)], "cells": ROLES[str(role)], "which": SCOPES[str(scope)]}
        for row in rows.iter_rows(named=True):
            mean = "" if row["mech_q"] is None else f" (mech Q {number(row['mech_q'])})"
            line[row["regime"]] = fmt.fraction(row["recoverable"], row["cells"]) + mean
        lines.append({key: line[key] for key in ("pool", "cells", "which", "all", *REGIMES) if key in line})
    parts = [*(parts or [fmt.part([])]), fmt.part(lines, "recoverable cells, and mean raw mech Q over these")]
    return context.table(fmt.stacked(cells=frame, summary=summary), parts, notes, frame)


def _q_line(row: Row, plan: CohortPlan) -> fmt.Line:
    return {
        "model": shared.model_name(plan, row["model"]),
        "benchmark": plan.title(row["benchmark"]) + "†" * bool(row["diagnostic"]),
        "recov": fmt.tick(row["recoverable"]),
        "policies": "" if row["policies"] is None else str(row["policies"]),
        "questions": "" if row["questions"] is None else str(row["questions"]),
        "β": number(row["beta_q"], 1),
        "α̂": interval(row["alpha_q"], row["alpha_lo"], row["alpha_hi"]),
        "π̂": fmt.word(row["policy"]),
        "N̂(b)": fmt.word(row["path"]),
        "mech Q": number(row["mech_q"]),
        "corrected": shared.corrected(row),
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
def signatures(context: shared.BoptrContext) -> fmt.Table:
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
        line = shared.cell_line(plan, str(model), str(benchmark)) | {"questions": fmt.word(rows["questions"][0])}
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
        fmt.part(cell_lines, "every cell", shared.model_changes(decisions)),
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


# ---- offsets and the probe


@table("offsets", stage="boptr")
def offsets(context: shared.BoptrContext) -> fmt.Table:
    """How each predicted offset came about."""
    frame, plan = context.frames["offsets"], context.plan
    lines = [
        {
            "model": shared.model_name(plan, row["model"]),
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
        *context.single_pair,
    ]
    return context.table(frame, [fmt.part(lines)], notes, frame)


TOP = 10
"""Number of features that are printed."""
SELECTIONS = {"all_models": "over all models", "in_fold": "inside each fold"}


@table("v4", stage="boptr")
def v4(context: shared.BoptrContext) -> fmt.Table:
    """The linear probe of alpha from Base features, with its null."""
    features, summary = context.frames["v4"], context.frames["v4_summary"]
    titles = {"cohort": "", "without": f", without {', '.join(context.options.mu_without)}"}
    blocks = [
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
    ]
    if not blocks:
        blocks, models = [fmt.part([])], max(summary["models"].to_list(), default=0)
        notes[:2] = [f"Nothing is printed: too few models have a pair of their own to leave one out ({models})."]
    data = fmt.stacked(features=features, scores=summary, null=context.frames["v4_null"])
    return context.table(data, blocks, notes, features, summary)


def _feature_lines(features: pl.DataFrame) -> list[fmt.Line]:
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


def _score_lines(summary: pl.DataFrame) -> list[fmt.Line]:
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


# ---- figure

BINS = 40
NULL_COLOUR, FEATURE_COLOUR = "#BBBBBB", "#882255"
SCALES = {"standardised": "", "raw": "_raw"}  # scale of the features, and how its columns end


@figure("v4_null", stage="boptr", optional=True)
def numbers(context: shared.BoptrContext) -> pl.DataFrame:
    """Over all fitted models, by scale: each feature (layer ``feature``), the one with the largest abs(r)
    (``observed``), and the one with the largest abs(r) in each shuffle of the models (``null``).
    """
    null, summary, features = (context.frames[name].filter(mu="cohort") for name in ("v4_null", "v4_summary", "v4"))
    layers = []
    for scale, suffix in SCALES.items():
        best = summary.filter(selection="all_models", scale=scale)
        named = pl.lit(scale).alias("scale")
        layers += [
            best.select(pl.lit("observed").alias("layer"), "scale", "models", "p", "reason", score="loo_pseudo_r2"),
            features.select(
                pl.lit("feature").alias("layer"), named, "feature", "reason", score=f"loo_pseudo_r2{suffix}"
            ),
            null.select(pl.lit("null").alias("layer"), named, "shuffle", score=f"score{suffix}"),
        ]
    return pl.concat(layers, how="diagonal")


@style.styled()
def draw(numbers: pl.DataFrame, context: shared.BoptrContext) -> Figure | None:
    """Draw what ``numbers`` returned; None if there is no score, as with too few models, or if no feature varies, as
    with one Base for all of them: then every shuffle has the same score.
    """
    best, features = numbers.filter(layer="observed"), numbers.filter(layer="feature")
    if best["score"].null_count() or (features["reason"] == "constant").all():
        return None
    second = f"ln \N{GREEK SMALL LETTER ALPHA} predicted from Base: {best['models'][0]} models, each left out in turn"
    cells = context.plan.fitted_models, [context.plan.anchor_benchmark]
    figure = context.new_figure(style.COLUMN, 3.6, _finding(best, 1 - context.options.confidence), second, *cells)
    panels = figure.subplots(len(SCALES), 1)
    for axes, row in zip(panels, best.iter_rows(named=True), strict=True):
        _panel(axes, numbers.filter(scale=row["scale"]), row)
    panels[-1].set_xlabel("leave-one-out pseudo-R² (1: perfect)")
    handles = [
        Patch(color=NULL_COLOUR, label="feature of the largest |r|, models shuffled"),
        style.key("feature of the largest |r|, as observed", color=palette.ENVELOPE_COLOUR, linewidth=1.6),
        style.key("each feature alone", color=FEATURE_COLOUR, marker="|", linestyle="none"),
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=1)
    return figure


def _finding(best: pl.DataFrame, level: float) -> str:
    """On which scales a feature predicts: better than shuffled models, and better than their mean (a score above 0)."""
    shown = (pl.col("p") <= level + ROUNDING) & (pl.col("score") > 0)
    chances = ", ".join(f"{row['scale']} R² {number(row['score'])}, p = {row['p']:.3f}" for row in best.to_dicts())
    good, others = (best.filter(which)["scale"].to_list() for which in (shown, ~shown))
    return say(PREDICTS, {"shown": " and ".join(good), "others": others, "chances": chances})


def _panel(axes: Axes, rows: pl.DataFrame, best: Mapping[str, Any]) -> None:
    null, features = rows.filter(layer="null"), rows.filter(layer="feature").drop_nulls("score")
    ends = [best["score"], *null["score"], *features["score"]]
    bars: dict[str, Any] = {"bins": BINS, "binrange": (min(ends), max(ends)), "color": NULL_COLOUR, "alpha": 1}
    sns.histplot(style.to_pandas(null), x="score", gid="null", ax=axes, linewidth=0, **bars)
    axes.axvline(best["score"], color=palette.ENVELOPE_COLOUR, linewidth=1.6, gid="observed")
    sns.rugplot(style.to_pandas(features), x="score", height=0.08, color=FEATURE_COLOUR, linewidth=1, ax=axes)
    axes.set(xlabel="", ylabel="shuffles")
    verdict = f"{number(best['score'])}, p = {best['p']:.3f} ({null.height} shuffles)"
    axes.set_title(f"{best['scale']} features: {verdict}", fontsize=7, color=palette.MUTED)
