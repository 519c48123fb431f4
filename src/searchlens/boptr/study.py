"""The whole analysis of a cohort: every frame that tables and figures are made from (``catalogue.boptr_frames``).

A frame has one record per number of its table, whether the number is defined or not; ``reason`` says why it is not.
Errors are in percentage points, readouts are proportions.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import polars as pl

from searchlens.boptr.cohort import Cohort
from searchlens.boptr.contrasts import contrasts, decided, nulls
from searchlens.boptr.evaluate import Task, evaluate
from searchlens.boptr.frontier import SWEEP_ROWS
from searchlens.boptr.offsets import v4
from searchlens.boptr.protocol import blocks, checklist, protocol_flags
from searchlens.boptr.rule import Rule
from searchlens.boptr.transfer import ABLATION, MAIN_ROWS, OWN, PAPER, WITHOUT, errors_frame, means, pick
from searchlens.boptr.variants import VARIANT_ROWS
from searchlens.boptr.view import View, bootstrap_view, sample_view
from searchlens.catalogue import BOPTR_WORDS, boptr_frames, definition, loaded
from searchlens.config.boptr import BoptrOptions, Readout
from searchlens.config.health import DEFAULTS, HealthOptions
from searchlens.errors import require_known


def study(cohort: Cohort, options: BoptrOptions) -> dict[str, pl.DataFrame]:
    """Every frame of the analysis: the frames ``catalogue.boptr_frames``, in that order.

    Only the anchor's own pair is required; numbers that need anything else that is missing have a reason. A ValueError
    if the cohort was not read in the readout of the options, which tables and figures name.
    """
    if cohort.readout != options.readout:
        raise ValueError(f"the cohort holds the readout {cohort.readout!r}, the options name {options.readout!r}")
    plan = cohort.plan
    fitted, predicted = tuple(plan.with_role("fitted")), tuple(plan.with_role("fitted", "held_out"))
    tasks = [Task(constants, MAIN_ROWS, predicted) for constants in (PAPER, OWN)]
    tasks += [Task(PAPER, VARIANT_ROWS, fitted), Task(PAPER, SWEEP_ROWS, fitted, reselect=False)]
    if options.mu_without:
        tasks.append(Task(WITHOUT, pick((*ABLATION, "cell-fit")), fitted, without=options.mu_without))
    evaluation = evaluate(cohort, options, tasks)
    rows = {row.key: row for row in (*MAIN_ROWS, *SWEEP_ROWS, *VARIANT_ROWS)}
    boot = bootstrap_view(cohort, options.draws, options.seed)
    sets = [constants for constants in evaluation.rules if constants.mu == "cohort"]
    questions = {benchmark: len(landscape.questions) for (_, benchmark), landscape in cohort.landscapes.items()}
    compared = [contrasts(evaluation, plan, constants, options, questions) for constants in sets]
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
