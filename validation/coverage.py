"""Do the 95% intervals of the BOPTR tables contain the true errors 95% of the time?

    python validation/coverage.py --cohorts 500 --processes 2 --output docs/coverage.csv

Simulated cohorts (four fitted benchmarks, seven models, mode ``transform``) are analysed like real ones. The estimand
of a number is the error of the path that the rule chose in that cohort, in the population of questions and samples
(``Truth.mech_p``); of a mean, the mean of these errors. Two intervals are checked: ``percentile``, the paper's, with
the path fixed, and ``corrected``. ``--readout`` is that of paths and errors; the true errors are the same for both.
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

from searchlens.boptr.cohort import CohortPlan
from searchlens.boptr.evaluate import Constants, Evaluation, Task, evaluate
from searchlens.boptr.inference import interval
from searchlens.boptr.means import Column, average, grid
from searchlens.boptr.options import BoptrOptions, Readout
from searchlens.boptr.rows import ROWS
from searchlens.boptr.rule import Path as BudgetPath
from searchlens.simulate import Truth, fitted_design, simulate

ROW_KEYS = (
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
"""Percentage points: numbers with a smaller true error are reported, but not judged."""


@functools.cache
def population() -> Truth:
    """The truth of mode ``transform``, which is the same for every seed."""
    return Truth(fitted_design("transform"), 0)


def columns(plan: CohortPlan) -> list[Column]:
    """Every kind of number in the tables: cells, a model's mean, the cohort's means."""
    models, fitted = plan.fitted_models, plan.with_role("fitted")
    cells = [Column(f"{plan.anchor_model}/{d}", ((plan.anchor_model, d),)) for d in fitted]
    means = [Column(f"{m} mean", grid([m], fitted)) for m in models]
    return [*cells, *means, Column("macro", grid(models, fitted), "macro"), Column("micro", grid(models, fitted))]


def one_cohort(seed: int, draws: int, readout: Readout) -> list[dict[str, object]]:
    """Every number of one cohort: its true error and whether each interval contains it."""
    cohort = simulate(fitted_design("transform"), seed, readout)
    rows = tuple(row for row in ROWS if row.key in ROW_KEYS)
    options = BoptrOptions(draws=draws, reselect=draws, seed=seed, readout=readout)
    evaluation = evaluate(cohort, options, [Task(Constants(), rows, tuple(cohort.plan.with_role("fitted")))])
    truth = dict(true_errors(evaluation))
    records = []
    for column in columns(cohort.plan):
        for row in ROW_KEYS:
            scores = {
                (key.model, key.benchmark): score
                for key, score in evaluation.scores.items()
                if key.row == row and key.pool == "ar"
            }
            cells = [cell for cell in column.cells if cell in scores]
            mean = average([scores[cell] for cell in cells], cells, column.how)
            true = average_of({cell: truth[row, *cell] for cell in cells}, column.how)
            record = {"seed": seed, "tier": row, "column": column.name, "true": true, "estimate": mean.error}
            record["corrected"] = float(mean.corrected[0])
            for name, kind, drawn in (
                ("percentile", "percentile", mean.fixed),
                ("corrected", "centred", mean.corrected),
            ):
                lo, hi = interval(drawn, 0.95, kind)
                record[f"{name}_covers"] = bool(lo <= true <= hi)
            records.append(record)
    return records


def true_errors(evaluation: Evaluation) -> Iterator[tuple[tuple[str, str, str], float]]:
    """Population errors of the chosen paths."""
    truth = population()
    budgets = truth.design.budgets
    for key, score in evaluation.scores.items():
        path = score.prediction
        if key.pool != "ar" or not isinstance(path, BudgetPath):
            continue
        base = evaluation.rules[key.constants].view.base(key.model, key.benchmark)
        assert base is not None
        steps = [(base.policies[i], budgets[n]) for i, n in zip(path.policy[:, 0], path.budget[:, 0], strict=True)]
        yield (key.row, key.model, key.benchmark), truth.mech_p(key.model, key.benchmark, steps)


def average_of(errors: Mapping[tuple[str, str], float], how: str) -> float:
    """The mean that ``average`` takes."""
    if how == "micro":
        return float(np.mean(list(errors.values())))
    models = dict.fromkeys(model for model, _ in errors)
    return float(np.mean([np.mean([e for (m, _), e in errors.items() if m == model]) for model in models]))


def summary(rows: pl.DataFrame) -> pl.DataFrame:
    """Coverage per row and column, with the standard error that this many cohorts leave."""
    coverage = rows.group_by("tier", "column", maintain_order=True).agg(
        cohorts=pl.len(),
        true=pl.col("true").mean(),
        estimate=pl.col("estimate").mean(),
        corrected=pl.col("corrected").mean(),
        percentile_coverage=pl.col("percentile_covers").mean(),
        corrected_coverage=pl.col("corrected_covers").mean(),
    )
    return coverage.with_columns(
        judged=pl.col("true") >= LIMIT, standard_error=(0.95 * 0.05 / pl.col("cohorts")).sqrt()
    )


def main() -> None:
    """Run the cohorts and write the summary."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cohorts", type=int, default=500)
    parser.add_argument("--first", type=int, default=10_000, help="first seed")
    parser.add_argument("--draws", type=int, default=400)
    parser.add_argument("--processes", type=int, default=os.cpu_count())
    parser.add_argument("--readout", choices=("expected", "prefix"), default="expected")
    parser.add_argument("--output", type=Path, default=Path("docs/coverage.csv"))
    args = parser.parse_args()
    seeds, started, rows = range(args.first, args.first + args.cohorts), time.monotonic(), []
    one = functools.partial(one_cohort, draws=args.draws, readout=args.readout)
    with multiprocessing.get_context("spawn").Pool(args.processes) as pool:
        for records in pool.imap_unordered(one, seeds):
            rows += records
            done = len(rows) // len(records)
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
