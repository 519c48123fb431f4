"""The whole analysis of a cohort: every frame that tables and figures are made from (``catalogue.boptr_frames``).

A frame has one record per number of its table, whether the number is defined or not; ``reason`` says why it is not.
Errors are in percentage points, estimates are proportions. Rows against rows are made here: paired differences with
their two verdicts, and the null of mismatched pairs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
import polars as pl

from searchlens.analysis.uncertainty import Floats, holm
from searchlens.boptr import inference
from searchlens.boptr.cohort import Cohort, CohortPlan
from searchlens.boptr.evaluate import Cell, Constants, Evaluation, Key, Score, Task, evaluate, predicted, scored
from searchlens.boptr.frontier import SWEEP_ROWS
from searchlens.boptr.offsets import v4
from searchlens.boptr.protocol import blocks, checklist, protocol_flags
from searchlens.boptr.rule import Reason, Rule, schema
from searchlens.boptr.transfer import (
    MAIN_ROWS,
    OWN,
    PAPER,
    RIVALS,
    WITHOUT,
    WITHOUT_ROWS,
    errors_frame,
    grid,
    means,
)
from searchlens.boptr.variants import VARIANT_ROWS
from searchlens.boptr.view import View, bootstrap_view, pairing_view, sample_view
from searchlens.catalogue import BOPTR_WORDS, boptr_frames, definition, loaded
from searchlens.config.boptr import BoptrOptions, Estimator
from searchlens.config.health import DEFAULTS, HealthOptions
from searchlens.errors import require_known


def study(cohort: Cohort, options: BoptrOptions) -> dict[str, pl.DataFrame]:
    """Every frame of the analysis: the frames ``catalogue.boptr_frames``, in that order.

    Only the anchor's own pair is required; numbers that need anything else that is missing have a reason. A ValueError
    if the cohort was not read in the estimator of the options, which tables and figures name.
    """
    if cohort.estimator != options.estimator:
        raise ValueError(f"the cohort holds the estimator {cohort.estimator!r}, the options name {options.estimator!r}")
    plan = cohort.plan
    fitted, predicted = tuple(plan.with_role("fitted")), tuple(plan.with_role("fitted", "held_out"))
    tasks = [Task(constants, MAIN_ROWS, predicted) for constants in (PAPER, OWN)]
    tasks += [Task(PAPER, VARIANT_ROWS, fitted), Task(PAPER, SWEEP_ROWS, fitted, reselect=False)]
    if options.mu_without:
        tasks.append(Task(WITHOUT, WITHOUT_ROWS, fitted, without=options.mu_without))
    evaluation = evaluate(cohort, options, tasks)
    rows = {row.key: row for row in (*MAIN_ROWS, *SWEEP_ROWS, *VARIANT_ROWS)}
    boot = bootstrap_view(cohort, options.draws, options.seed)
    sets = [constants for constants in evaluation.rules if constants.mu == "cohort"]
    compared = [contrasts(evaluation, plan, constants, options, cohort.questions) for constants in sets]
    frames = {
        "errors": errors_frame(evaluation, plan, rows, options.confidence),
        "means": means(evaluation, plan, options, sets),
        "contrasts": decided(pl.concat(compared), options.confidence),
        "nulls": nulls(cohort, options),
    }
    # V4 over all fitted models, and without those left out: the column ``mu`` before the others.
    probes = {
        constants.mu: v4(evaluation.rules[constants]) for constants in (PAPER, WITHOUT) if constants in evaluation.rules
    }
    for name, part in {"v4": "features", "v4_null": "null", "v4_summary": "summary"}.items():
        named = [getattr(probe, part).select(pl.lit(mu).alias("mu"), pl.all()) for mu, probe in probes.items()]
        frames[name] = pl.concat(named)
    frames |= _declared(frames, evaluation.rules[PAPER], boot)
    frames |= words(cohort, options, frames)
    unread = {*BOPTR_WORDS, *loaded("frame", in_words=True)}
    return {
        name: frames[name] if name in unread else _labelled(frames[name], options.estimator) for name in boptr_frames()
    }


def words(
    cohort: Cohort, options: BoptrOptions, frames: Mapping[str, pl.DataFrame], limits: HealthOptions = DEFAULTS
) -> dict[str, pl.DataFrame]:
    """The frames ``catalogue.BOPTR_WORDS``, from those with numbers; a rate beyond a limit is flagged."""
    rule = Rule(sample_view(cohort), options)
    flags, channel = protocol_flags(rule, limits), frames["qchannel"]
    unvoted = channel.filter("diagnostic")["benchmark"].unique().to_list()
    checks = checklist(rule, frames["errors"], flags, frames["contrasts"], unvoted)
    return {"blocks": blocks(rule.plan), "protocol_flags": flags, "checklist": checks}


def _labelled(frame: pl.DataFrame, estimator: Estimator) -> pl.DataFrame:
    """The frame with a last column ``estimator``; T always is first_k, and rates are no estimates of n samples."""
    label = pl.lit(estimator)
    if "signature" in frame.columns:
        label = pl.when(metric="T").then(pl.lit("first_k")).when(pl.col("budget").is_not_null()).then(label)
    return frame.with_columns(label.alias("estimator"))


def _declared(made: Mapping[str, pl.DataFrame], rule: Rule, boot: View) -> dict[str, pl.DataFrame]:
    """The frames that are declared where they are computed, each from the things that its option ``of`` names.

    These are ``rule``, the paper's rule on the sample, ``boot``, the bootstrap view, and other frames; without the
    option, the first two. A frame with ``in_words=True`` has no label of the estimator.
    """
    known, declared = {**made, "rule": rule, "boot": boot}, loaded("frame")

    def value(name: str) -> Any:
        if name not in known:
            item = declared[require_known(name, declared, "frame")]
            known[name] = definition(item)(*map(value, item.options.get("of", ("rule", "boot"))))
        return known[name]

    return {name: value(name) for name in declared}


# ---- rows against rows

ANCHOR_CONTRASTS = tuple(("H5", other) for other in ("H1", "H2", "H3", "H4", "H7", "V5b", "H5 two regimes", *RIVALS))
COHORT_CONTRASTS = tuple(
    (other, "V3")
    for other in ("V2", "V2-δ0", "V1", "V5b", "Z1-N*", "Z0-u", "B0", "A1", "A3", "H1", "H2", "H3", *RIVALS)
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
"""The comparisons that a claim rests on. They were fixed before sampling (docs/zoo-cohort.md), and Holm's correction
counts these alone."""
CONTRASTS = schema(
    "exponents scope first second difference lo hi corrected lo_corrected hi_corrected lo_models hi_models p p_holm "
    "lo_both hi_both spread p_both p_both_holm models cells questions differing verdict verdict_models reason"
)
"""``difference``: first minus second on their common cells, AR pool, percentage points; ``lo`` to ``hi``: paired
bootstrap over questions with the paths fixed, the models taken as given, null if both predict the same. ``corrected``,
``lo_corrected`` and ``hi_corrected``: the same of the corrected errors (``evaluate.Score``), because the biases differ
between rows, most of all between an oracle and a rule. All that follows is computed from these: ``lo_models`` to
``hi_models``, models resampled; ``p``, sign flips over models; ``lo_both`` to ``hi_both``, ``p_both`` and ``spread``,
over models and questions together (``inference.over_both``); ``p_holm`` and ``p_both_holm``, after Holm's correction
over all comparisons of the scope, those of the models' own exponents included. ``questions``: number of questions on
the benchmarks of the common ``cells``. ``differing``: number of these cells in which the two predict differently.

There are two verdicts, because a row may be better for these models and still not for models at large. ``verdict`` is
over questions, the models given: whether ``lo_corrected`` to ``hi_corrected`` excludes 0. ``verdict_models`` is over
models: ``not shown``, unless ``p_both_holm`` is at most 1 - ``confidence``; null with a single model. It does not go by
sign flips, because with seven models none passes Holm's correction over more than three comparisons."""


def contrasts(
    evaluation: Evaluation, plan: CohortPlan, constants: Constants, options: BoptrOptions, questions: Mapping[str, int]
) -> pl.DataFrame:
    """Paired differences of rows: on the anchor's cells, over the cohort, and those planned before sampling.

    ``questions``: number of questions of every benchmark. V2 is compared on the other models' cells only: on the
    anchor's own cells it is V1, their own fitted path. The best rival is the one with the lowest mean corrected error
    over the cohort's cells. It is chosen on the cells that it is compared on, which favours it.
    """
    fitted, models = plan.with_role("fitted"), plan.fitted_models
    anchor, cohort = grid([plan.anchor_model], fitted), grid(models, fitted)
    others = grid([model for model in models if model != plan.anchor_model], fitted)

    def error(rival: str) -> float:
        scores = _scores(evaluation, constants, rival, cohort)
        return sum(float(score.corrected[0]) for score in scores.values()) / len(scores) if scores else math.inf

    rival = min(RIVALS, key=error)
    planned = [(first, rival if second == BEST_RIVAL else second) for first, second in PLANNED_CONTRASTS]
    records = []
    for scope, pairs in (("anchor", ANCHOR_CONTRASTS), ("cohort", COHORT_CONTRASTS), ("planned", planned)):
        for first, second in pairs:
            cells = anchor if scope == "anchor" else others if "V2" in (first, second) else cohort
            a, b = (_scores(evaluation, constants, row, cells) for row in (first, second))
            names = {"exponents": constants.exponents, "scope": scope, "first": first, "second": second}
            records.append(names | _contrast(a, b, options, questions))
    return pl.DataFrame(records, CONTRASTS)


def _scores(evaluation: Evaluation, constants: Constants, row: str, cells: Sequence[Cell]) -> dict[Cell, Score]:
    """The scores of a row of the AR pool, in the cells where it is defined."""
    keys = {cell: Key(constants, row, "ar", *cell) for cell in cells}
    return {cell: evaluation.scores[key] for cell, key in keys.items() if key in evaluation.scores}


def decided(frame: pl.DataFrame, confidence: float) -> pl.DataFrame:
    """``contrasts`` of every set of exponents, with p-values after Holm and the verdict over models.

    Each scope is corrected as a whole, over all exponents, because its comparisons are read together.
    """
    parts = [
        part.with_columns(pl.Series(f"{p}_holm", holm(part[p].to_numpy()), nan_to_null=True) for p in ("p", "p_both"))
        for part in frame.with_row_index("row").partition_by("scope")
    ]
    frame = pl.concat(parts).sort("row").drop("row")
    lower = pl.when(pl.col("corrected") < 0).then(pl.lit("first lower")).otherwise(pl.lit("second lower"))
    shown = pl.col("p_both_holm") <= 1 - confidence
    over_models = pl.when(shown).then(lower).otherwise(pl.lit("not shown"))
    return frame.with_columns(verdict_models=pl.when(pl.col("models") > 1).then(over_models))


def _contrast(
    first: Mapping[Cell, Score], second: Mapping[Cell, Score], options: BoptrOptions, questions: Mapping[str, int]
) -> dict[str, object]:
    cells = [cell for cell in first if cell in second]
    if not cells:
        return {"models": 0, "cells": 0, "questions": 0, "differing": 0, "reason": "no_matched_cells"}
    plain = {cell: first[cell].plain.astype(float) - second[cell].plain.astype(float) for cell in cells}
    # Equal predictions have equal errors; only the estimates of their optimism may differ.
    gaps = {
        cell: first[cell].corrected.astype(float) - second[cell].corrected.astype(float)
        if plain[cell].any()
        else np.zeros(len(first[cell].corrected))
        for cell in cells
    }
    difference, (lo, hi) = inference.paired(plain, options.confidence)
    corrected, (low, high) = inference.paired(gaps, options.confidence, "centred")
    models, differing = inference.by_model(gaps), inference.differing(plain)
    columns: dict[str, object] = {
        "difference": difference,
        "lo": inference.defined(lo),
        "hi": inference.defined(hi),
        "corrected": corrected,
        "lo_corrected": inference.defined(low),
        "hi_corrected": inference.defined(high),
        "models": len(models),
        "cells": len(cells),
        "questions": sum(questions[benchmark] for benchmark in {benchmark for _, benchmark in cells}),
        "differing": differing,
        "verdict": "not distinguishable",
    }
    if differing and (low > 0 or high < 0):
        columns["verdict"] = "second lower" if low > 0 else "first lower"
    if len(models) > 1:
        of_models = np.array([gap[0] for gap in models.values()])
        over = inference.model_bootstrap(of_models, options.draws, options.seed, options.confidence)
        both = inference.over_both(list(models.values()), options.confidence)
        columns |= {"p": inference.sign_flip_test(of_models), "lo_models": over[0], "hi_models": over[1]}
        columns |= {f"{name}_both": inference.defined(getattr(both, name)) for name in ("lo", "hi", "p")}
        columns["spread"] = inference.defined(both.spread)
    return columns


# ---- the mismatched null

NULLS = schema("rule label error null_mean null_lowest p pairings models reason")
"""``error``: mean over the fitted cells of the exchanged models under the true pairing. ``null_mean``, ``null_lowest``:
the same over the other pairings of Base and RL, with the rule fitted again on each. ``p``: share of pairings, the true
one included, with an error of at most the true one's."""


def nulls(cohort: Cohort, options: BoptrOptions) -> pl.DataFrame:
    """Whether it helps a row to know which RL belongs to which Base."""
    # The mean RL curve reads no Base, so no pairing changes it.
    rows = tuple(row for row in MAIN_ROWS if "ar" in row.pools and row.key != "mean RL")
    partners, means = mismatched(cohort, options, Task(PAPER, rows, tuple(cohort.plan.with_role("fitted"))))
    records = []
    for row in rows:
        record: dict[str, object] = {"rule": row.key, "label": row.label, "models": len(partners)}
        if row.key not in means:
            records.append(record | {"reason": "too_few_models" if len(partners) < 2 else "no_matched_cells"})
            continue
        values = means[row.key]
        record |= {"error": values[0], "null_mean": values[1:].mean(), "null_lowest": values[1:].min()}
        records.append(record | {"p": inference.permutation_p(values), "pairings": len(values)})
    return pl.DataFrame(records, NULLS)


def mismatched(cohort: Cohort, options: BoptrOptions, task: Task) -> tuple[tuple[str, ...], dict[str, Floats]]:
    """Mean error of each row over the fitted cells when every Base is paired with the RL of another model, AR pool.

    Every rule is fitted again on each pairing, so that nothing of the true pairing is left in it. Returns the models
    whose RL sides were exchanged, and by row its mean error (percentage points) under every pairing, the true one
    first, over those cells of these models in which it is defined; nothing with fewer than two, who have no other RL.
    """
    view = pairing_view(cohort, options.permutations, options.seed)
    if len(view.partners) < 2:
        return view.partners, {}
    rule = task.constants.rule(Rule(view, options))
    means = {}
    for row in task.rows:
        total, cells = np.zeros(view.draws), 0
        for model in view.partners:
            for benchmark in task.benchmarks:
                key = Key(task.constants, row.key, "ar", model, benchmark)
                with suppress(Reason):
                    total += scored(view, key, predicted(rule, row, key))
                    cells += 1
        if cells:
            means[row.key] = total / cells
    return view.partners, means
