"""The whole analysis of a cohort: every frame that tables and figures are made from.

Frames are named for the tables they become (``FRAMES``); each has one row per cell of its table, defined or not, and a
``reason`` where it is not. Errors are in percentage points, readouts are proportions.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict

import numpy as np
import polars as pl

from searchlens.boptr import inference
from searchlens.boptr.cohort import Cohort, CohortPlan
from searchlens.boptr.consistency import readout_consistency, seed_replication, seed_summary
from searchlens.boptr.descriptive import descriptive
from searchlens.boptr.evaluate import Constants, Key, Score, Scores, Task, evaluate, mismatched
from searchlens.boptr.extension import crossing, extension, large_budget
from searchlens.boptr.frontier import FRONTIER_TIERS, probe, sweep_tiers
from searchlens.boptr.identification import formula_same, identified_scale, identified_set
from searchlens.boptr.means import Cell, Column, Scope, errors_frame, grid, means_frame
from searchlens.boptr.offsets import V5B_TIERS, offsets, v4
from searchlens.boptr.options import REGIMES, BoptrOptions
from searchlens.boptr.protocol import checklist, protocol_flags, require_same_pool
from searchlens.boptr.q_channel import q_channel, q_summary
from searchlens.boptr.regimes import TWO_REGIMES, beta_sensitivity, beta_stability, regime_betas
from searchlens.boptr.rule import Rule
from searchlens.boptr.signatures import signature_table, signatures
from searchlens.boptr.tiers import TIERS, Tier
from searchlens.boptr.variants import VARIANT_TIERS, variant_heads, variant_scales, variant_table
from searchlens.boptr.view import View, bootstrap_view

PAPER, OWN, WITHOUT = Constants(), Constants("own"), Constants("paper", "without")
MAIN_TIERS = (*TIERS, *V5B_TIERS, *FRONTIER_TIERS, TWO_REGIMES)

HORIZONTAL = ("H1", "H2", "H3", "H4", "H5", "V5b", "H6", "H7")
RIVALS = ("mean RL", "Base+gain", "low temp")
VERTICAL = ("H1", "H2", "H3", "V1", "V2", "V2-δ0", "V3", "V5b")
DECOMPOSITION = ("V1", "V2", "V2-δ0", "V3", "V5b", "Z1-N*", "Z0-u")
ABLATION = ("V3", "A1", "A2", "A3", "H6", "ORACLE-1D")
FRONTIER = ("Z0-u", "Z0-N*", "B0", "V2", "Z1-u", "Z1-N*", "V3", "V1")
NEW = ("V3", "V5b", "V2-δ0")
HELD_OUT = ("V3", "V5b", "V2-δ0", "V1", "H1")

ANCHOR_CONTRASTS = tuple(("H5", other) for other in ("H1", "H2", "H3", "H4", "H7", "V5b", "H5 two regimes", *RIVALS))
COHORT_CONTRASTS = (
    ("V2", "V3"),
    ("V2-δ0", "V3"),
    ("V1", "V3"),
    ("V5b", "V3"),
    ("Z1-N*", "V3"),
    ("Z0-u", "V3"),
    ("B0", "V3"),
    *((name, "V3") for name in ("A1", "A3", "H1", "H2", "H3", *RIVALS)),
)
BEST_RIVAL = "best rival"
PLANNED_CONTRASTS = (
    ("V3", "B0"),
    ("V3", "V2-δ0"),
    ("V3", "V2"),
    ("V3", BEST_RIVAL),
    ("V5b", "V2-δ0"),
    ("V5b", BEST_RIVAL),
)
"""The comparisons that a claim rests on, decided before any sample (docs/zoo-cohort.md), corrected among themselves."""


def study(cohort: Cohort, options: BoptrOptions) -> dict[str, pl.DataFrame]:
    """Every frame of the analysis.

    Parameters
    ----------
    cohort : Cohort
        At least the anchor's own pair; whatever else is missing is told by reason.
    options : BoptrOptions

    Returns
    -------
    dict of str to polars.DataFrame
        ``errors``, ``means``, ``contrasts``, ``nulls`` and the frames of the single tables.
    """
    plan = cohort.plan
    found = evaluate(cohort, options, _tasks(plan, options))
    tiers = {tier.key: tier for tier in (*MAIN_TIERS, *sweep_tiers(options), *VARIANT_TIERS)}
    rule, boot = found.rules[PAPER], bootstrap_view(cohort, options.draws, options.seed)
    sets = [constants for constants in found.rules if constants.mu == "cohort"]
    frames = {
        "errors": errors_frame(found, plan, tiers, options.confidence),
        "means": means_frame(found, scopes(plan, options), sets, options.confidence),
        "contrasts": pl.concat([contrasts(found, plan, constants, options) for constants in sets]),
        "nulls": nulls(cohort, options),
    }
    if WITHOUT in found.rules:
        ablation = [scope for scope in scopes(plan, options) if scope.name == "ablation"]
        without = means_frame(found, ablation, [WITHOUT], options.confidence)
        frames["means"] = pl.concat([frames["means"], without])
    return frames | _single_tables(rule, boot, frames["errors"], frames["contrasts"])


def _single_tables(rule: Rule, boot: View, errors: pl.DataFrame, contrasts: pl.DataFrame) -> dict[str, pl.DataFrame]:
    linear, flags = v4(rule), protocol_flags(rule)
    seeds, shown, channel = seed_replication(rule, boot), signatures(rule, boot), q_channel(rule, boot)
    unvoted = channel.filter("diagnostic")["benchmark"].unique().to_list()
    return {
        "blocks": blocks(rule.plan),
        "regime_betas": regime_betas(rule, boot),
        "beta_stability": beta_stability(rule),
        "beta_sensitivity": beta_sensitivity(rule, boot),
        "percell": percell(errors),
        "qchannel": channel,
        "q_summary": q_summary(channel),
        "formula_same": formula_same(rule),
        "identified_scale": identified_scale(rule),
        "identified_set": identified_set(rule, boot),
        "offsets": offsets(rule),
        "v4": linear.features,
        "v4_null": linear.null,
        "v4_summary": linear.summary,
        "probe": probe(rule),
        "aime_large_budget": large_budget(rule, boot),
        "crossing": crossing(rule, boot),
        "extension": extension(rule, boot),
        "seed_replication": seeds,
        "seed_summary": seed_summary(seeds),
        "readout_consistency": readout_consistency(rule, boot),
        "descriptive": descriptive(rule),
        "signatures": shown,
        "signature_table": signature_table(shown),
        "protocol_flags": flags,
        "checklist": checklist(rule, errors, flags, contrasts, unvoted),
        "rule_variants": variant_table(),
        "variant_scales": variant_scales(rule),
        "variant_heads": variant_heads(rule),
        "held_out_criterion": held_out_criterion(errors, rule.options.criterion),
    }


def _tasks(plan: CohortPlan, options: BoptrOptions) -> list[Task]:
    fitted, predicted = tuple(plan.with_role("fitted")), tuple(plan.with_role("fitted", "held_out"))
    tasks = [Task(constants, MAIN_TIERS, predicted) for constants in (PAPER, OWN)]
    tasks.append(Task(PAPER, VARIANT_TIERS, fitted))
    tasks.append(Task(PAPER, sweep_tiers(options), fitted, reselect=False))
    if options.mu_without:
        tasks.append(Task(WITHOUT, _pick((*ABLATION, "cell-fit")), fitted))
    return tasks


def _pick(keys: Iterable[str]) -> tuple[Tier, ...]:
    known = {tier.key: tier for tier in MAIN_TIERS}
    return tuple(known[key] for key in keys)


# ---- means: which cells stand behind which number


def scopes(plan: CohortPlan, options: BoptrOptions) -> list[Scope]:
    """The tables of means, as rows and columns of cells."""
    fitted, held_out = plan.with_role("fitted"), plan.with_role("held_out")
    models = plan.fitted_models
    everything = grid(models, fitted)
    regimes = [
        Column(regime, grid(models, [d for d in fitted if plan.benchmarks[d].regime == regime])) for regime in REGIMES
    ]
    overall = (
        Column("macro", everything, "macro"),
        Column("micro", everything),
        Column("matched macro", everything, "macro", matched=True),
        Column("matched micro", everything, matched=True),
    )
    sweeps = (*_pick(FRONTIER), *sweep_tiers(options))
    return [
        *(_horizontal(model, fitted, held_out) for model in plan.models),
        Scope("vertical", _pick((*VERTICAL, *RIVALS)), (*_by_model(plan, fitted), *overall), ("V5b", *RIVALS)),
        Scope("decomposition", _pick(DECOMPOSITION), overall, ("V5b", "Z1-N*", "Z0-u")),
        Scope("ablation", _pick(ABLATION), (*regimes, Column("all cells", everything))),
        Scope("frontier", sweeps, overall, tuple(tier.key for tier in sweeps if tier.kind == "frontier")),
        Scope("variants", VARIANT_TIERS, (*regimes, Column("all cells", everything))),
        Scope("new models", _pick(NEW), tuple(Column(m, grid([m], fitted)) for m in plan.in_group("new"))),
        Scope(
            "held out",
            _pick(HELD_OUT),
            (
                *(Column(d, grid(models, [d])) for d in held_out),
                *(Column(m, grid([m], held_out)) for m in models),
                Column("all cells", grid(models, held_out)),
            ),
        ),
    ]


def _horizontal(model: str, fitted: Sequence[str], held_out: Sequence[str]) -> Scope:
    columns = [Column(d, ((model, d),)) for d in fitted]
    columns += [Column("mean", grid([model], fitted)), Column("matched mean", grid([model], fitted), matched=True)]
    columns += [Column(d, ((model, d),)) for d in held_out]
    columns.append(Column("held-out mean", grid([model], held_out)))
    return Scope(f"horizontal/{model}", _pick((*HORIZONTAL, *RIVALS)), tuple(columns), ("V5b", *RIVALS))


def _by_model(plan: CohortPlan, fitted: Sequence[str]) -> list[Column]:
    columns = []
    for group in ("upper", "lower"):
        members = plan.in_group(group)  # type: ignore[arg-type]
        columns += [Column(m, grid([m], fitted)) for m in members]
        if members:
            columns.append(Column(f"{group} mean", grid(members, fitted), "macro"))
    return columns


# ---- contrasts

CONTRASTS = pl.Schema(
    {
        "exponents": pl.String(),
        "scope": pl.String(),
        "first": pl.String(),
        "second": pl.String(),
        "difference": pl.Float64(),
        "lo": pl.Float64(),
        "hi": pl.Float64(),
        "corrected": pl.Float64(),
        "lo_corrected": pl.Float64(),
        "hi_corrected": pl.Float64(),
        "lo_models": pl.Float64(),
        "hi_models": pl.Float64(),
        "p": pl.Float64(),
        "p_holm": pl.Float64(),
        "models": pl.UInt32(),
        "cells": pl.UInt32(),
        "differing": pl.UInt32(),
        "verdict": pl.String(),
        "reason": pl.String(),
    }
)
"""First minus second on their common cells, AR pool. ``lo`` to ``hi``: paired bootstrap over questions, given these
models, the paths fixed; ``corrected`` with its ends: of the errors without their two biases (``evaluate.Score``), which
differ between rows, most of all between an oracle and a rule. By these: ``lo_models`` to ``hi_models``, models
resampled; ``p``, exact sign flips over models, ``p_holm`` after Holm over the scope; and ``verdict``, by the ends.
``differing``: cells in which the two predict differently."""


def contrasts(found: Scores, plan: CohortPlan, constants: Constants, options: BoptrOptions) -> pl.DataFrame:
    """Paired differences of rows: on the anchor (given models), over the cohort, and those planned beforehand.

    V2 is compared off the anchor alone: on the anchor's own cells it is their own fitted path, hence V1. The best rival
    is the one with the lowest mean corrected error over the cohort's cells: chosen on the cells that it is compared on,
    which favours it.
    """
    fitted, models = plan.with_role("fitted"), plan.fitted_models
    anchor, cohort = grid([plan.anchor_model], fitted), grid(models, fitted)
    others = grid([model for model in models if model != plan.anchor_model], fitted)
    rival = _best_rival(found, constants, cohort)
    planned = [(first, rival if second == BEST_RIVAL else second) for first, second in PLANNED_CONTRASTS]
    parts = [_contrasts(found, constants, "anchor", dict.fromkeys(ANCHOR_CONTRASTS, anchor), options)]
    for scope, pairs in (("cohort", COHORT_CONTRASTS), ("planned", planned)):
        where = {pair: others if "V2" in pair else cohort for pair in pairs}
        parts.append(_contrasts(found, constants, scope, where, options))
    return pl.concat(parts)


def _best_rival(found: Scores, constants: Constants, cells: Sequence[Cell]) -> str:
    def error(rival: str) -> float:
        keys = [_key(constants, rival, cell) for cell in cells]
        known = [float(found.scores[key].corrected[0]) for key in keys if key in found.scores]
        return sum(known) / len(known) if known else math.inf

    return min(RIVALS, key=error)


def _contrasts(
    found: Scores,
    constants: Constants,
    scope: str,
    pairs: Mapping[tuple[str, str], Sequence[tuple[str, str]]],
    options: BoptrOptions,
) -> pl.DataFrame:
    rows = []
    for names, cells in pairs.items():
        sides = []
        for cell in cells:
            require_same_pool(*(asdict(_key(constants, name, cell)) for name in names))
        for name in names:
            keys = {cell: _key(constants, name, cell) for cell in cells}
            sides.append({cell: found.scores[key] for cell, key in keys.items() if key in found.scores})
        row = {"exponents": constants.exponents, "scope": scope, "first": names[0], "second": names[1]}
        rows.append(row | _contrast(sides[0], sides[1], options))
    frame = pl.DataFrame(rows, CONTRASTS)
    return frame.with_columns(p_holm=pl.Series(inference.holm(frame["p"].to_numpy()), nan_to_null=True))


def _key(constants: Constants, row: str, cell: Cell) -> Key:
    """A row of a contrast in a cell: a tier in the AR pool, or ``<tier>/full``."""
    tier, _, pool = row.partition("/")
    return Key(constants, tier, "full" if pool == "full" else "ar", *cell)


def _contrast(first: Mapping[Cell, Score], second: Mapping[Cell, Score], options: BoptrOptions) -> dict[str, object]:
    cells = [cell for cell in first if cell in second]
    if not cells:
        return {"models": 0, "cells": 0, "differing": 0, "reason": "no_matched_cells"}
    ours, theirs = ({cell: side[cell].fixed.astype(float) for cell in cells} for side in (first, second))
    shown = inference.contrast(ours, theirs, options.confidence)
    fair = {cell: first[cell].corrected.astype(float) for cell in cells}
    # The same prediction has the same error, however differently the two rows came to it.
    others = {
        cell: fair[cell] if np.array_equal(ours[cell], theirs[cell]) else second[cell].corrected.astype(float)
        for cell in cells
    }
    both = inference.contrast(fair, others, options.confidence, "centred")
    row: dict[str, object] = {"difference": shown.difference, "lo": shown.lo, "hi": shown.hi}
    row |= {"corrected": both.difference, "lo_corrected": both.lo, "hi_corrected": both.hi}
    if both.models > 1:
        gaps = inference.by_model({cell: fair[cell][:1] - others[cell][:1] for cell in cells})
        low, high = inference.model_bootstrap(
            np.array([gap[0] for gap in gaps.values()]), options.draws, options.seed, options.confidence
        )
        row |= {"p": both.p, "lo_models": low, "hi_models": high}
    verdict = "not distinguishable"
    if shown.differing and (both.lo > 0 or both.hi < 0):
        verdict = "second lower" if both.lo > 0 else "first lower"
    return row | {"models": both.models, "cells": both.cells, "differing": shown.differing, "verdict": verdict}


# ---- the mismatched null

NULLS = pl.Schema(
    {
        "tier": pl.String(),
        "label": pl.String(),
        "error": pl.Float64(),
        "null_mean": pl.Float64(),
        "null_lowest": pl.Float64(),
        "p": pl.Float64(),
        "pairings": pl.UInt32(),
        "models": pl.UInt32(),
        "reason": pl.String(),
    }
)
"""``error``: mean over the fitted cells of the exchanged models under the true pairing; ``null_mean``, ``null_lowest``
over re-pairings of every Base with another model's RL, the rule fitted anew; ``p``: share of pairings, the true one
included, with an error at most the true one's."""


def nulls(cohort: Cohort, options: BoptrOptions) -> pl.DataFrame:
    """Whether knowing which RL belongs to which Base helps each row at all."""
    # The mean RL curve reads no Base: no pairing changes it.
    tiers = [tier for tier in MAIN_TIERS if "ar" in tier.pools and tier.key != "mean RL"]
    partners, means = mismatched(cohort, options, Task(PAPER, tuple(tiers), tuple(cohort.plan.with_role("fitted"))))
    rows = []
    for tier in tiers:
        row: dict[str, object] = {"tier": tier.key, "label": tier.label, "models": len(partners)}
        if tier.key not in means:
            rows.append(row | {"reason": "too_few_models" if len(partners) < 2 else "no_matched_cells"})
            continue
        values = means[tier.key]
        row |= {"error": values[0], "null_mean": values[1:].mean(), "null_lowest": values[1:].min()}
        rows.append(row | {"p": inference.permutation_p(values), "pairings": len(values)})
    return pl.DataFrame(rows, NULLS)


# ---- small tables


def blocks(plan: CohortPlan) -> pl.DataFrame:
    """What is compared with what, and why: block, settings, role."""
    anchor, fitted = plan.anchor_model, plan.with_role("fitted")

    def names(models: Iterable[str]) -> str:
        return ", ".join(models) or "—"

    others = [plan.title(d) for d in fitted if d != plan.anchor_benchmark]
    rows = [
        (
            "Anchor",
            f"{anchor} / {plan.title(plan.anchor_benchmark)}",
            "Full landscape construction and rule discovery.",
        ),
        ("Horizontal", f"{anchor} / {names(others)}", "Same model, new benchmarks."),
        ("Vertical", names(m for m in plan.in_group("upper") if m != anchor), "Same RL-training split, other models."),
        ("Stress", names(plan.in_group("lower")), "Cross-family and weak-capacity models."),
        ("New models", names(plan.in_group("new")), "Predicted with everything frozen."),
        ("Held out", names(map(plan.title, plan.with_role("held_out"))), "Benchmarks the rule was never fitted on."),
        ("Descriptive", names(map(plan.title, plan.with_role("descriptive"))), "Base alone."),
    ]
    return pl.DataFrame(rows, ["block", "settings", "role"], orient="row")


def percell(errors: pl.DataFrame) -> pl.DataFrame:
    """The calibrated rule beside the cell's own fit: one row per fitted cell of the cohort and choice of mu.

    Columns: exponents, mu, model, benchmark, regime, beta, alpha, alpha_lo, alpha_hi, boundary, policy, path,
    mech_cell, mech_anchor, lo, hi, gap (anchor minus cell; may be negative, since the cell's scale is fitted with
    another policy than the selector chooses), reason.
    """
    keys = ["exponents", "mu", "model", "benchmark"]
    rows = errors.filter(pl.col("role") == "fitted", pl.col("group") != "new", pl.col("pool") == "ar")
    rule = rows.filter(tier="V3").rename({"error": "mech_anchor"})
    cell = rows.filter(tier="cell-fit").select(*keys, mech_cell="error")
    both = rule.join(cell, on=keys, how="left", maintain_order="left")
    kept = ["regime", "beta", "alpha", "alpha_lo", "alpha_hi", "boundary", "policy", "path"]
    gap = pl.col("mech_anchor") - pl.col("mech_cell")
    return both.select(*keys, *kept, "mech_cell", "mech_anchor", "lo", "hi", gap.alias("gap"), "reason")


def held_out_criterion(errors: pl.DataFrame, criterion: float) -> pl.DataFrame:
    """Whether each held-out benchmark's mean stays within the limit set beforehand.

    Columns: exponents, benchmark (null: all), mean, oracle (R1 fit of the same cells), gap, cells, beyond (cells above
    the limit, as ``model error``), criterion, meets. Calibrated rule (V3), fitted models, AR pool.
    """
    rows = errors.filter(
        pl.col("role") == "held_out", pl.col("group") != "new", pl.col("pool") == "ar", pl.col("mu") == "cohort"
    )
    keys = ["exponents", "model", "benchmark"]
    rule = rows.filter(tier="V3").select(*keys, "error")
    oracle = rows.filter(tier="V1").select(*keys, oracle="error")
    both = rule.join(oracle, on=keys, how="left", maintain_order="left")
    whole = both.with_columns(benchmark=pl.lit(None, pl.String))
    beyond = pl.concat_str("model", pl.col("error").round(2), separator=" ").filter(pl.col("error") > criterion)
    return (
        pl.concat([both, whole])
        .group_by("exponents", "benchmark", maintain_order=True)
        .agg(
            mean=pl.col("error").mean(),
            oracle=pl.col("oracle").filter(pl.col("error").is_not_null()).mean(),
            cells=pl.col("error").count(),
            beyond=beyond.str.join(", "),
        )
        .with_columns(gap=pl.col("mean") - pl.col("oracle"), criterion=criterion, meets=pl.col("mean") <= criterion)
    )
