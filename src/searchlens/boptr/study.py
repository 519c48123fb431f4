"""The whole analysis of a cohort: every frame that tables and figures are made from (``catalogue.boptr_frames``).

A frame has one record per number of its table, whether the number is defined or not; ``reason`` says why it is not.
Errors are in percentage points, readouts are proportions.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl

from searchlens.boptr import inference
from searchlens.boptr.cohort import Cohort, CohortPlan
from searchlens.boptr.columns import schema
from searchlens.boptr.evaluate import Constants, Evaluation, Key, Score, Task, evaluate, mismatched
from searchlens.boptr.frontier import FRONTIER_ROWS, SWEEP_ROWS
from searchlens.boptr.means import Cell, Column, Scope, errors_frame, grid, means_frame
from searchlens.boptr.offsets import V5B_ROWS, v4
from searchlens.boptr.options import REGIMES, BoptrOptions, Readout
from searchlens.boptr.protocol import HELD_OUT_LIMIT, checklist, protocol_flags, require_same_pool
from searchlens.boptr.regimes import TWO_REGIMES
from searchlens.boptr.rows import ROWS, Row
from searchlens.boptr.rule import Rule
from searchlens.boptr.variants import VARIANT_ROWS
from searchlens.boptr.view import View, bootstrap_view, sample_view
from searchlens.catalogue import BOPTR_WORDS, boptr_frames, definition, frame, loaded
from searchlens.errors import require_known
from searchlens.health.options import DEFAULTS, HealthOptions

PAPER, OWN, WITHOUT = Constants(), Constants("own"), Constants("paper", "without")
MAIN_ROWS = (*ROWS, *V5B_ROWS, *FRONTIER_ROWS, TWO_REGIMES)

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
"""The comparisons that a claim rests on. They were fixed before sampling (docs/zoo-cohort.md), and Holm's correction
counts these alone."""


def study(cohort: Cohort, options: BoptrOptions) -> dict[str, pl.DataFrame]:
    """Every frame of the analysis.

    Parameters
    ----------
    cohort : Cohort
        Only the anchor's own pair is required; numbers that need anything else that is missing have a reason.

    Returns
    -------
    dict of str to polars.DataFrame
        The frames ``catalogue.boptr_frames``, in that order.

    Raises
    ------
    ValueError
        The cohort was not read in the readout of the options, which tables and figures name.
    """
    if cohort.readout != options.readout:
        raise ValueError(f"the cohort holds the readout {cohort.readout!r}, the options name {options.readout!r}")
    plan = cohort.plan
    evaluation = evaluate(cohort, options, _tasks(plan, options))
    rows = {row.key: row for row in (*MAIN_ROWS, *SWEEP_ROWS, *VARIANT_ROWS)}
    boot = bootstrap_view(cohort, options.draws, options.seed)
    sets = [constants for constants in evaluation.rules if constants.mu == "cohort"]
    errors = errors_frame(evaluation, plan, rows, options.confidence)
    questions = {benchmark: len(landscape.questions) for (_, benchmark), landscape in cohort.landscapes.items()}
    compared = [contrasts(evaluation, plan, constants, options, questions) for constants in sets]
    contests = decided(pl.concat(compared), options.confidence)
    frames = {
        "errors": errors,
        "means": _means(evaluation, plan, options, sets),
        "contrasts": contests,
        "nulls": nulls(cohort, options),
        **_linear_probes(evaluation),
    }
    frames |= _declared(frames, evaluation.rules[PAPER], boot)
    frames |= words(cohort, options, frames)
    unread = {*BOPTR_WORDS, *loaded("frame", in_words=True)}
    return {
        name: frames[name] if name in unread else _labelled(frames[name], options.readout) for name in boptr_frames()
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


def _labelled(frame: pl.DataFrame, readout: Readout) -> pl.DataFrame:
    """The frame with a last column ``readout``; T always is prefix, and rates are no readouts of n samples."""
    label = pl.lit(readout)
    if "signature" in frame.columns:
        label = pl.when(metric="T").then(pl.lit("prefix")).when(pl.col("budget").is_not_null()).then(label)
    return frame.with_columns(label.alias("readout"))


def _means(evaluation: Evaluation, plan: CohortPlan, options: BoptrOptions, sets: Sequence[Constants]) -> pl.DataFrame:
    tables = scopes(plan)
    means = means_frame(evaluation, tables, sets, options.confidence)
    if WITHOUT not in evaluation.rules:
        return means
    ablation = _ablation(plan, [name for name in plan.fitted_models if name not in options.mu_without])
    return pl.concat([means, means_frame(evaluation, [ablation], [WITHOUT], options.confidence)])


def _declared(made: Mapping[str, pl.DataFrame], rule: Rule, boot: View) -> dict[str, pl.DataFrame]:
    """The frames that are declared where they are computed, each from the things that its option ``of`` names.

    These are ``rule``, the paper's rule on the sample, ``boot``, the bootstrap view, and other frames; without the
    option, the first two. A frame with ``in_words=True`` has no label of the readout.
    """
    known, declared = {**made, "rule": rule, "boot": boot}, loaded("frame")

    def value(name: str) -> Any:
        if name not in known:
            item = declared[require_known(name, declared, "frame")]
            known[name] = definition(item)(*map(value, item.options.get("of", ("rule", "boot"))))
        return known[name]

    return {name: value(name) for name in declared}


def _linear_probes(evaluation: Evaluation) -> dict[str, pl.DataFrame]:
    """The frames of V4, with a column ``mu`` before the others: over all fitted models, and without those left out."""
    probes = {c.mu: v4(evaluation.rules[c]) for c in (PAPER, WITHOUT) if c in evaluation.rules}
    parts = {"v4": "features", "v4_null": "null", "v4_summary": "summary"}
    return {
        name: pl.concat([getattr(probe, part).select(pl.lit(mu).alias("mu"), pl.all()) for mu, probe in probes.items()])
        for name, part in parts.items()
    }


def _tasks(plan: CohortPlan, options: BoptrOptions) -> list[Task]:
    fitted, predicted = tuple(plan.with_role("fitted")), tuple(plan.with_role("fitted", "held_out"))
    tasks = [Task(constants, MAIN_ROWS, predicted) for constants in (PAPER, OWN)]
    tasks.append(Task(PAPER, VARIANT_ROWS, fitted))
    tasks.append(Task(PAPER, SWEEP_ROWS, fitted, reselect=False))
    if options.mu_without:
        tasks.append(Task(WITHOUT, _pick((*ABLATION, "cell-fit")), fitted, without=options.mu_without))
    return tasks


def _pick(keys: Iterable[str]) -> tuple[Row, ...]:
    row_by_key = {row.key: row for row in MAIN_ROWS}
    return tuple(row_by_key[key] for key in keys)


# ---- which cells each mean is taken over


def scopes(plan: CohortPlan) -> list[Scope]:
    """The tables of means, each with its rows and its columns of cells."""
    fitted, held_out = plan.with_role("fitted"), plan.with_role("held_out")
    models = plan.fitted_models
    everything = grid(models, fitted)
    overall = (
        Column("macro", everything, "macro"),
        Column("micro", everything),
        Column("matched macro", everything, "macro", matched=True),
        Column("matched micro", everything, matched=True),
    )
    sweeps = (*_pick(FRONTIER), *SWEEP_ROWS)
    return [
        *(_horizontal(model, fitted, held_out) for model in plan.models),
        Scope("vertical", _pick((*VERTICAL, *RIVALS)), (*_by_model(plan, fitted), *overall), ("V5b", *RIVALS)),
        Scope("decomposition", _pick(DECOMPOSITION), overall, ("V5b", "Z1-N*", "Z0-u")),
        _ablation(plan, models),
        Scope("frontier", sweeps, overall, tuple(row.key for row in sweeps if row.kind == "frontier")),
        Scope("variants", VARIANT_ROWS, _by_regime(plan, models)),
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


def _ablation(plan: CohortPlan, models: Sequence[str]) -> Scope:
    return Scope("ablation", _pick(ABLATION), _by_regime(plan, models))


def _by_regime(plan: CohortPlan, models: Sequence[str]) -> tuple[Column, ...]:
    """The fitted cells of some models by regime, and all of them."""
    fitted = plan.with_role("fitted")
    regimes = [(name, [d for d in fitted if plan.benchmarks[d].regime == name]) for name in REGIMES]
    return (*(Column(name, grid(models, d)) for name, d in regimes), Column("all cells", grid(models, fitted)))


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

    Parameters
    ----------
    questions : mapping
        Number of questions of every benchmark.

    Returns
    -------
    polars.DataFrame
        ``CONTRASTS``. Undefined with the reason ``no_matched_cells`` if the two rows have no cell in common.

    Notes
    -----
    V2 is compared on the other models' cells only: on the anchor's own cells it is V1, their own fitted path. The best
    rival is the one with the lowest mean corrected error over the cohort's cells. It is chosen on the cells that it is
    compared on, which favours it.
    """
    fitted, models = plan.with_role("fitted"), plan.fitted_models
    anchor, cohort = grid([plan.anchor_model], fitted), grid(models, fitted)
    others = grid([model for model in models if model != plan.anchor_model], fitted)
    rival = _best_rival(evaluation, constants, cohort)
    planned = [(first, rival if second == BEST_RIVAL else second) for first, second in PLANNED_CONTRASTS]
    on_anchor = dict.fromkeys(ANCHOR_CONTRASTS, anchor)
    parts = [_contrasts(evaluation, constants, "anchor", on_anchor, options, questions)]
    for scope, pairs in (("cohort", COHORT_CONTRASTS), ("planned", planned)):
        cells = {pair: others if "V2" in pair else cohort for pair in pairs}
        parts.append(_contrasts(evaluation, constants, scope, cells, options, questions))
    return pl.concat(parts)


def _best_rival(evaluation: Evaluation, constants: Constants, cells: Sequence[Cell]) -> str:
    def error(rival: str) -> float:
        scores = _scores(evaluation, constants, rival, cells)
        return sum(float(score.corrected[0]) for score in scores.values()) / len(scores) if scores else math.inf

    return min(RIVALS, key=error)


def _contrasts(
    evaluation: Evaluation,
    constants: Constants,
    scope: str,
    pairs: Mapping[tuple[str, str], Sequence[Cell]],
    options: BoptrOptions,
    questions: Mapping[str, int],
) -> pl.DataFrame:
    records = []
    for (first, second), cells in pairs.items():
        for cell in cells:
            require_same_pool(_key(constants, first, cell), _key(constants, second, cell))
        sides = [_scores(evaluation, constants, name, cells) for name in (first, second)]
        names = {"exponents": constants.exponents, "scope": scope, "first": first, "second": second}
        records.append(names | _contrast(sides[0], sides[1], options, questions))
    return pl.DataFrame(records, CONTRASTS)


def decided(frame: pl.DataFrame, confidence: float) -> pl.DataFrame:
    """``contrasts`` of every set of exponents, with p-values after Holm and the verdict over models.

    Each scope is corrected as a whole, over all exponents, because its comparisons are read together.
    """
    parts = [
        part.with_columns(
            pl.Series(f"{p}_holm", inference.holm(part[p].to_numpy()), nan_to_null=True) for p in ("p", "p_both")
        )
        for part in frame.with_row_index("row").partition_by("scope")
    ]
    frame = pl.concat(parts).sort("row").drop("row")
    lower = pl.when(pl.col("corrected") < 0).then(pl.lit("first lower")).otherwise(pl.lit("second lower"))
    shown = pl.col("p_both_holm") <= 1 - confidence
    over_models = pl.when(shown).then(lower).otherwise(pl.lit("not shown"))
    return frame.with_columns(verdict_models=pl.when(pl.col("models") > 1).then(over_models))


def _scores(evaluation: Evaluation, constants: Constants, name: str, cells: Sequence[Cell]) -> dict[Cell, Score]:
    """The scores of a row of a contrast, in the cells where it is defined."""
    keys = {cell: _key(constants, name, cell) for cell in cells}
    return {cell: evaluation.scores[key] for cell, key in keys.items() if key in evaluation.scores}


def _key(constants: Constants, name: str, cell: Cell) -> Key:
    """A row of a contrast in a cell: its key, for the AR pool, or ``<key>/full``."""
    row, _, pool = name.partition("/")
    return Key(constants, row, "full" if pool == "full" else "ar", *cell)


def _contrast(
    first: Mapping[Cell, Score], second: Mapping[Cell, Score], options: BoptrOptions, questions: Mapping[str, int]
) -> dict[str, object]:
    cells = [cell for cell in first if cell in second]
    if not cells:
        return {"models": 0, "cells": 0, "questions": 0, "differing": 0, "reason": "no_matched_cells"}
    a, b = ({cell: side[cell].fixed.astype(float) for cell in cells} for side in (first, second))
    fixed = inference.contrast(a, b, options.confidence)
    a_corrected = {cell: first[cell].corrected.astype(float) for cell in cells}
    # Equal predictions have equal errors; only the estimates of their optimism may differ.
    b_corrected = {
        cell: a_corrected[cell] if np.array_equal(a[cell], b[cell]) else second[cell].corrected.astype(float)
        for cell in cells
    }
    corrected = inference.contrast(a_corrected, b_corrected, options.confidence, "centred")
    columns: dict[str, object] = {"difference": fixed.difference, "corrected": corrected.difference}
    columns |= {"lo": inference.defined(fixed.lo), "hi": inference.defined(fixed.hi)}
    columns |= {"lo_corrected": inference.defined(corrected.lo), "hi_corrected": inference.defined(corrected.hi)}
    if corrected.models > 1:
        gaps = inference.by_model({cell: a_corrected[cell][:1] - b_corrected[cell][:1] for cell in cells})
        low, high = inference.model_bootstrap(
            np.array([gap[0] for gap in gaps.values()]), options.draws, options.seed, options.confidence
        )
        columns |= {
            "p": corrected.p,
            **{f"{name}_both": inference.defined(getattr(corrected.both, name)) for name in ("lo", "hi", "p")},
            "spread": inference.defined(corrected.both.spread),
            "lo_models": low,
            "hi_models": high,
        }
    verdict = "not distinguishable"
    if fixed.differing and (corrected.lo > 0 or corrected.hi < 0):
        verdict = "second lower" if corrected.lo > 0 else "first lower"
    asked = sum(questions[benchmark] for benchmark in {benchmark for _, benchmark in cells})
    counts = {"models": corrected.models, "cells": corrected.cells, "questions": asked, "differing": fixed.differing}
    return columns | counts | {"verdict": verdict}


# ---- the mismatched null

NULLS = schema("tier label error null_mean null_lowest p pairings models reason")
"""``error``: mean over the fitted cells of the exchanged models under the true pairing. ``null_mean``, ``null_lowest``:
the same over the other pairings of Base and RL, with the rule fitted again on each. ``p``: share of pairings, the true
one included, with an error of at most the true one's."""


def nulls(cohort: Cohort, options: BoptrOptions) -> pl.DataFrame:
    """Whether it helps a row to know which RL belongs to which Base.

    Returns
    -------
    polars.DataFrame
        ``NULLS``. Undefined with the reason ``too_few_models`` if fewer than two models can be exchanged.
    """
    # The mean RL curve reads no Base, so no pairing changes it.
    rows = tuple(row for row in MAIN_ROWS if "ar" in row.pools and row.key != "mean RL")
    partners, means = mismatched(cohort, options, Task(PAPER, rows, tuple(cohort.plan.with_role("fitted"))))
    records = []
    for row in rows:
        record: dict[str, object] = {"tier": row.key, "label": row.label, "models": len(partners)}
        if row.key not in means:
            records.append(record | {"reason": "too_few_models" if len(partners) < 2 else "no_matched_cells"})
            continue
        values = means[row.key]
        record |= {"error": values[0], "null_mean": values[1:].mean(), "null_lowest": values[1:].min()}
        records.append(record | {"p": inference.permutation_p(values), "pairings": len(values)})
    return pl.DataFrame(records, NULLS)


# ---- small tables


def blocks(plan: CohortPlan) -> pl.DataFrame:
    """What is compared with what, and why.

    Returns
    -------
    polars.DataFrame
        Columns block, settings, role.
    """
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


@frame("percell", of=("errors",))
def percell(errors: pl.DataFrame) -> pl.DataFrame:
    """The calibrated rule (V3) and the cell's own fit: one record per fitted cell of the cohort and set of constants.

    Returns
    -------
    polars.DataFrame
        exponents, mu, model, benchmark, regime, beta, alpha, alpha_lo, alpha_hi, boundary, policy, path, mech_cell,
        mech_anchor, lo, hi, corrected, lo_corrected, hi_corrected, gap, reason; the values after mech_anchor are its
        own, as in ``means.ERRORS``. ``gap`` is anchor minus cell; it may be negative, because the cell's scale is
        fitted with another policy than the one that the selector chooses.
    """
    keys = ["exponents", "mu", "model", "benchmark"]
    rows = errors.filter(pl.col("role") == "fitted", pl.col("group") != "new", pl.col("pool") == "ar")
    rule = rows.filter(tier="V3").rename({"error": "mech_anchor"})
    cell = rows.filter(tier="cell-fit").select(*keys, mech_cell="error")
    both = rule.join(cell, on=keys, how="left", maintain_order="left")
    of_rule = ["regime", "beta", "alpha", "alpha_lo", "alpha_hi", "boundary", "policy", "path"]
    values = [name for name in inference.ERROR_COLUMNS if name != "error"]
    gap = pl.col("mech_anchor") - pl.col("mech_cell")
    return both.select(*keys, *of_rule, "mech_cell", "mech_anchor", *values, gap.alias("gap"), "reason")


@frame("held_out_criterion", of=("errors",))
def held_out_criterion(errors: pl.DataFrame) -> pl.DataFrame:
    """Whether the mean error of each held-out benchmark stays within the limit that was set before sampling.

    Parameters
    ----------
    errors : polars.DataFrame
        ``means.ERRORS``, of which the calibrated rule (V3) on fitted models and the AR pool is used.

    Returns
    -------
    polars.DataFrame
        exponents; benchmark, null for all together; mean; oracle, the mean of the R1 fits (V1) of the same cells;
        cells; beyond, the cells above the limit as ``model error``; gap, mean minus oracle; criterion; meets.
    """
    rows = errors.filter(
        pl.col("role") == "held_out", pl.col("group") != "new", pl.col("pool") == "ar", pl.col("mu") == "cohort"
    )
    keys = ["exponents", "model", "benchmark"]
    rule = rows.filter(tier="V3").select(*keys, "error")
    oracle = rows.filter(tier="V1").select(*keys, oracle="error")
    both = rule.join(oracle, on=keys, how="left", maintain_order="left")
    together = both.with_columns(benchmark=pl.lit(None, pl.String))
    beyond = pl.concat_str("model", pl.col("error").round(2), separator=" ").filter(pl.col("error") > HELD_OUT_LIMIT)
    return (
        pl.concat([both, together])
        .group_by("exponents", "benchmark", maintain_order=True)
        .agg(
            mean=pl.col("error").mean(),
            oracle=pl.col("oracle").filter(pl.col("error").is_not_null()).mean(),
            cells=pl.col("error").count(),
            beyond=beyond.str.join(", "),
        )
        .with_columns(gap=pl.col("mean") - pl.col("oracle"), criterion=HELD_OUT_LIMIT)
        .with_columns(meets=pl.col("mean") <= pl.col("criterion"))
    )
