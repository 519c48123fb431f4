"""Do the 95% intervals of the BOPTR tables contain the true errors 95% of the time?

    python validation/coverage.py --cohorts 500 --processes 2 --output docs/coverage.csv

Simulated cohorts (four fitted benchmarks, seven models, mode ``transform``) are analysed as real ones are. The estimand
of a number is the error, in the population of questions and samples, of the very path that the rule chose in that
cohort (``Truth.mech_p``); for a mean, the mean of these errors. Two intervals are counted: ``percentile``, the paper's
with the path fixed, and ``corrected``.
"""

from __future__ import annotations

import argparse
import functools
import multiprocessing
import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import polars as pl

from searchlens.boptr.evaluate import Constants, Scores, Task, evaluate
from searchlens.boptr.inference import interval
from searchlens.boptr.means import Column, average, grid
from searchlens.boptr.options import BoptrOptions
from searchlens.boptr.rule import Path as BudgetPath
from searchlens.boptr.tiers import TIERS
from searchlens.simulate import Truth, fitted_design, simulate

TIER_KEYS = (
    "H1",
    "H2",
    "H3",
    "H4",
    "H5",
    "H6",
    "H7",
    "V2",
    "V2-δ0",
    "V3",
    "A1",
    "A3",
    "ORACLE-1D",
    "cell-fit",
    "low temp",
)
LIMIT = 2.0
"""Percentage points: rows with smaller true errors are reported, not judged."""


@functools.cache
def population() -> Truth:
    """What holds in mode ``transform``, the same for every seed."""
    return Truth(fitted_design("transform"), 0)


def columns(scores: Scores) -> list[Column]:
    """Every kind of number in the tables: cells, a model's mean, the cohort's means."""
    plan = next(iter(scores.rules.values())).plan
    models, fitted = plan.fitted_models, plan.with_role("fitted")
    single = [Column(f"{plan.anchor_model}/{d}", ((plan.anchor_model, d),)) for d in fitted]
    rows = [Column(f"{m} mean", grid([m], fitted)) for m in models]
    return [*single, *rows, Column("macro", grid(models, fitted), "macro"), Column("micro", grid(models, fitted))]


def one_cohort(seed: int, draws: int) -> list[dict[str, object]]:
    """Every number of one cohort: its true error and whether either interval contains it."""
    cohort = simulate(fitted_design("transform"), seed)
    tiers = tuple(tier for tier in TIERS if tier.key in TIER_KEYS)
    options = BoptrOptions(draws=draws, reselect=draws, seed=seed)
    scores = evaluate(cohort, options, [Task(Constants(), tiers, tuple(cohort.plan.with_role("fitted")))])
    truth = dict(true_errors(scores))
    rows = []
    for column in columns(scores):
        for tier in TIER_KEYS:
            known = {(k.model, k.benchmark): s for k, s in scores.scores.items() if k.tier == tier and k.pool == "ar"}
            cells = [cell for cell in column.cells if cell in known]
            mean = average([known[cell] for cell in cells], cells, column.how)
            true = average_of({cell: truth[tier, *cell] for cell in cells}, column.how)
            row = {"seed": seed, "tier": tier, "column": column.name, "true": true, "estimate": mean.error}
            row["corrected"] = float(mean.corrected[0])
            for name, kind, drawn in (
                ("percentile", "percentile", mean.fixed),
                ("corrected", "centred", mean.corrected),
            ):
                lo, hi = interval(drawn, 0.95, kind)
                row[f"{name}_covers"] = bool(lo <= true <= hi)
            rows.append(row)
    return rows


def true_errors(scores: Scores) -> Iterator[tuple[tuple[str, str, str], float]]:
    """Population errors of the paths that were chosen."""
    truth = population()
    budgets = truth.design.budgets
    for key, score in scores.scores.items():
        path = score.prediction
        if key.pool != "ar" or not isinstance(path, BudgetPath):
            continue
        base = scores.rules[key.constants].view.base(key.model, key.benchmark)
        assert base is not None
        steps = [(base.policies[i], budgets[n]) for i, n in zip(path.policy[:, 0], path.budget[:, 0], strict=True)]
        yield (key.tier, key.model, key.benchmark), truth.mech_p(key.model, key.benchmark, steps)


def average_of(errors: Mapping[tuple[str, str], float], how: str) -> float:
    """The mean that ``average`` takes."""
    if how == "micro":
        return float(np.mean(list(errors.values())))
    models = dict.fromkeys(model for model, _ in errors)
    return float(np.mean([np.mean([e for (m, _), e in errors.items() if m == model]) for model in models]))


def summary(rows: pl.DataFrame) -> pl.DataFrame:
    """Coverage per tier and column, with the standard error that this many cohorts leave."""
    found = rows.group_by("tier", "column", maintain_order=True).agg(
        cohorts=pl.len(),
        true=pl.col("true").mean(),
        estimate=pl.col("estimate").mean(),
        corrected=pl.col("corrected").mean(),
        percentile_coverage=pl.col("percentile_covers").mean(),
        corrected_coverage=pl.col("corrected_covers").mean(),
    )
    return found.with_columns(judged=pl.col("true") >= LIMIT, standard_error=(0.95 * 0.05 / pl.col("cohorts")).sqrt())


def main() -> None:
    """Run the cohorts and write the summary."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cohorts", type=int, default=500)
    parser.add_argument("--first", type=int, default=10_000, help="first seed")
    parser.add_argument("--draws", type=int, default=400)
    parser.add_argument("--processes", type=int, default=os.cpu_count())
    parser.add_argument("--output", type=Path, default=Path("docs/coverage.csv"))
    args = parser.parse_args()
    seeds, started, rows = range(args.first, args.first + args.cohorts), time.monotonic(), []
    with multiprocessing.get_context("spawn").Pool(args.processes) as pool:
        for found in pool.imap_unordered(functools.partial(one_cohort, draws=args.draws), seeds):
            rows += found
            done = len(rows) // len(found)
            if done % 25 == 0:
                print(f"{done} of {args.cohorts} cohorts, {time.monotonic() - started:.0f} s", flush=True)
    table = summary(pl.DataFrame(rows).sort("seed", maintain_order=True))
    table.write_csv(args.output, float_precision=4)
    judged = table.filter("judged")
    for name in ("percentile", "corrected"):
        inside = judged[f"{name}_coverage"].is_between(0.92, 0.98).sum()
        print(f"{name}: {inside} of {judged.height} judged numbers have coverage in [0.92, 0.98]")


if __name__ == "__main__":
    main()
