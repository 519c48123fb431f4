"""Do the 95% intervals of the BOPTR tables contain the true errors 95% of the time?

    python validation/coverage.py --cohorts 500 --processes 2 --keep coverage --output docs/coverage.csv

Simulated cohorts (four fitted benchmarks, seven models, mode ``transform``) are drawn anew, questions and samples, and
analysed like real ones. The estimand of a number is the error of the path that the rule chose in that cohort, in the
population of questions and samples (``Truth.mech_p``); of a mean, the mean of these errors. Two intervals are checked:
``percentile``, the paper's, with the path fixed, and ``corrected``, as it is printed. ``--estimator`` is that of paths
and errors; pass@n has the same expectation under both, so that the true errors of a path are the same.

Every number is judged, whatever its true error. An error cannot be negative and ends are cut at 0, so that a number
near 0 can miss on one side alone: ``missed_below`` and ``missed_above`` are the shares of intervals that lie below and
above the truth.

Differences of two rows are judged in the same way, those of frame ``contrasts`` whose rows have paths: over the cells
of the cohort (``cohort``) and of the anchor (``anchor``), 0 where both rows predict the same. They are the table of
``--differences``.

With ``--keep`` the numbers of every cohort are a file of that folder, and a run that was stopped goes on where it was.
What a cohort gives depends on its seed, not on the number of processes. Delete the folder when code has changed.
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

from searchlens.boptr.cohort import Cohort, CohortPlan
from searchlens.boptr.evaluate import Constants, Evaluation, Task, evaluate
from searchlens.boptr.rows import ROWS
from searchlens.boptr.rule import Path as BudgetPath
from searchlens.boptr.study import contrasts
from searchlens.boptr.transfer import Column, average, grid
from searchlens.config.boptr import BoptrOptions, Estimator
from searchlens_lab.simulate import Truth, fitted_design, simulate

ROW_KEYS = (
    *("H1", "H2", "H3", "H4", "H5", "H6", "H7", "V2", "V2-δ0", "V3"),
    *("A1", "A3", "ORACLE-1D", "cell-fit", "low temp"),
)
INSIDE = (0.92, 0.98)
"""Coverages that count as right; 500 cohorts leave a standard error of .010."""
INTERVALS = ("percentile", "corrected")
FIRST, DRAWS = 10_000, 300
"""First seed, and bootstrap draws."""


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


def one_cohort(seed: int, estimator: Estimator) -> list[dict[str, object]]:
    """Every number of one cohort: its true error and whether each interval contains it."""
    cohort = simulate(fitted_design("transform"), seed, estimator)
    rows = tuple(row for row in ROWS if row.key in ROW_KEYS)
    options = BoptrOptions(draws=DRAWS, reselect=DRAWS, seed=seed, estimator=estimator)
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
            printed = mean.columns(0.95)
            record: dict[str, object] = {"seed": seed, "rule": row, "column": column.name, "true": true}
            record |= {"estimate": mean.error, "corrected": printed["corrected"]}
            records.append(record | dict(judged(printed, true)))
    return records + [{"seed": seed} | record for record in differences(evaluation, cohort, options, truth)]


def judged(printed: Mapping[str, float | None], true: float) -> Iterator[tuple[str, object]]:
    """Where each interval lies; that of a row without one is 0."""
    for name, suffix in (("percentile", ""), ("corrected", "_corrected")):
        lo, hi = printed["lo" + suffix] or 0.0, printed["hi" + suffix] or 0.0
        yield from ((f"{name}_below", hi < true), (f"{name}_above", lo > true), (f"{name}_width", hi - lo))


def differences(
    evaluation: Evaluation, cohort: Cohort, options: BoptrOptions, truth: Mapping[tuple[str, str, str], float]
) -> Iterator[dict[str, object]]:
    """Every difference of two rows that is printed: its true value and whether each interval contains it."""
    plan = cohort.plan
    questions = {benchmark: len(found.questions) for (_, benchmark), found in cohort.landscapes.items()}
    for row in contrasts(evaluation, plan, Constants(), options, questions).iter_rows(named=True):
        first, second = row["first"], row["second"]
        if row["scope"] == "planned" or not {first, second} <= set(ROW_KEYS):
            continue
        models = [plan.anchor_model] if row["scope"] == "anchor" else plan.fitted_models
        if row["scope"] == "cohort" and "V2" in (first, second):
            models = [model for model in models if model != plan.anchor_model]
        cells = [c for c in grid(models, plan.with_role("fitted")) if (first, *c) in truth and (second, *c) in truth]
        assert len(cells) == row["cells"]
        true = average_of({cell: truth[first, *cell] - truth[second, *cell] for cell in cells}, "macro")
        record = {"rule": f"{first} − {second}", "column": row["scope"], "true": true}
        record |= {"estimate": row["difference"], "corrected": row["corrected"]}
        yield record | dict(judged(row, true))


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


def kept(seed: int, estimator: Estimator, folder: Path | None) -> pl.DataFrame:
    """The numbers of one cohort, from its file if there is one."""
    file = folder / f"{estimator}-{DRAWS}-{seed}.parquet" if folder else None
    if file and file.exists():
        return pl.read_parquet(file)
    rows = pl.DataFrame(one_cohort(seed, estimator))
    if file:
        part = file.with_suffix(".part")
        rows.write_parquet(part)
        part.rename(file)
    return rows


def summary(rows: pl.DataFrame) -> pl.DataFrame:
    """Coverage per row and column, with the mean width and the standard error that this many cohorts leave."""
    per_interval = []
    for name in INTERVALS:
        missed = pl.col(f"{name}_below", f"{name}_above").mean().name.suffix("_share")
        per_interval += [missed, pl.col(f"{name}_width").mean()]
    means = rows.group_by("rule", "column", maintain_order=True).agg(
        pl.len().alias("cohorts"), pl.col("true", "estimate", "corrected").mean(), *per_interval
    )
    columns = [pl.col("rule", "column", "cohorts", "true", "estimate", "corrected")]
    for name in INTERVALS:
        below, above = pl.col(f"{name}_below_share"), pl.col(f"{name}_above_share")
        coverage = (1 - below - above).round(9).alias(f"{name}_coverage")  # 460 of 500 is .92, and inside
        error = ((1 - below - above) * (below + above) / pl.col("cohorts")).sqrt().alias(f"{name}_se")
        columns += [coverage, error, below.alias(f"{name}_missed_below"), above.alias(f"{name}_missed_above")]
        columns.append(pl.col(f"{name}_width"))
    return means.select(columns)


def verdict(table: pl.DataFrame, name: str) -> str:
    """How many numbers have a coverage in ``INSIDE``, below and above it."""
    coverage = table[f"{name}_coverage"]
    inside = int(coverage.is_between(*INSIDE).sum())
    below, above = int((coverage < INSIDE[0]).sum()), int((coverage > INSIDE[1]).sum())
    least = float(coverage.to_numpy().min())
    counts = f"{inside} of {table.height} inside {INSIDE}, {below} below, {above} above"
    return f"{name}: {counts}; least {least:.3f}, mean width {table[f'{name}_width'].to_numpy().mean():.2f}"


def main() -> None:
    """Run the cohorts and write the summary."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cohorts", type=int, default=500)
    parser.add_argument("--processes", type=int, default=os.cpu_count())
    parser.add_argument("--estimator", choices=("unbiased", "first_k"), default="unbiased")
    parser.add_argument("--keep", type=Path, help="folder of finished cohorts")
    parser.add_argument("--output", type=Path, default=Path("docs/coverage.csv"))
    parser.add_argument("--differences", type=Path, help="CSV file for the differences of two rows")
    args = parser.parse_args()
    if args.keep:
        args.keep.mkdir(parents=True, exist_ok=True)
    seeds, started, parts = range(FIRST, FIRST + args.cohorts), time.monotonic(), []
    one = functools.partial(kept, estimator=args.estimator, folder=args.keep)
    with multiprocessing.get_context("spawn").Pool(args.processes) as pool:
        for rows in pool.imap(one, seeds):
            parts.append(rows)
            if len(parts) % 25 == 0:
                print(f"{len(parts)} of {args.cohorts} cohorts, {time.monotonic() - started:.0f} s", flush=True)
    table = summary(pl.concat(parts))
    of_rows = pl.col("rule").is_in(ROW_KEYS)
    for kind, path in ((of_rows, args.output), (~of_rows, args.differences)):
        if path:
            table.filter(kind).write_csv(path, float_precision=4)
        for name in INTERVALS:
            print(verdict(table.filter(kind), name))


if __name__ == "__main__":
    main()
