"""Time and memory of the BOPTR stage on a simulated cohort of the paper's size.

    OPENBLAS_NUM_THREADS=1 python perf/boptr.py [--draws 10000] [--loop 50] [--small]

The stage computes all frames of all tables and figures, each time in a process of its own: first with the paths that
the sample chose kept in every bootstrap draw, then with every path chosen again in each. Goals at 10,000 draws: at most
60 s with fixed paths, at most 5 times that with paths chosen again, at most 4 GiB in both.

The baseline is the loop that one would write first: for each draw, resample the questions, count every point of every
Base and RL landscape, and compute the error of every row along its fixed path. It runs on the first ``--loop`` draws
and is extrapolated to all of them linearly. It gives the errors alone: no intervals, no corrected errors, no other
table, no rows that follow no path (rivals), nothing chosen again. Its errors must be the stage's in the same draws.

CPU seconds are of all threads; wall seconds depend on what else runs. The threads of the stage are its own:
OPENBLAS_NUM_THREADS=1 keeps those of BLAS from spinning beside them.
"""

from __future__ import annotations

import argparse
import multiprocessing
import resource
import time
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from searchlens.boptr.cohort import Cohort, DenseLandscape
from searchlens.boptr.evaluate import Key, Task, evaluate
from searchlens.boptr.options import BoptrOptions
from searchlens.boptr.rows import Blend
from searchlens.boptr.rule import Path
from searchlens.boptr.study import MAIN_ROWS, OWN, PAPER, study
from searchlens.boptr.variants import VARIANT_ROWS
from searchlens.boptr.view import View, bootstrap_view
from searchlens.simulate import paper_design, simulate, small_design
from searchlens.uncertainty import Floats

SEED = 1
GOAL_SECONDS, GOAL_RATIO, GOAL_GIB = 60, 5, 4


@dataclass(frozen=True)
class Spent:
    """Seconds of one run, and the largest memory of its process in GiB."""

    wall: float
    cpu: float
    peak: float = float("nan")


def cohort(small: bool) -> Cohort:
    return simulate(small_design() if small else paper_design(), SEED)


def stage(small: bool, draws: int, reselect: int) -> Spent:
    """One study, without making its cohort."""
    made = cohort(small)
    wall, cpu = time.perf_counter(), time.process_time()
    study(made, BoptrOptions(draws=draws, reselect=reselect))
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    return Spent(wall, cpu, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20)


@dataclass(frozen=True)
class Row:
    """One error of a table: points of the Base landscape along its path (or paths), and the budgets that count."""

    paths: list[list[int]]
    budgets: list[int]


def rows_and_errors(made: Cohort, options: BoptrOptions, draws: int) -> tuple[dict[Key, Row], dict[Key, Floats]]:
    """Every row that follows a path, and the errors that the stage finds in the first draws of the bootstrap."""
    plan = made.plan
    fitted, predicted = tuple(plan.with_role("fitted")), tuple(plan.with_role("fitted", "held_out"))
    tasks = [Task(variant, MAIN_ROWS, predicted) for variant in (PAPER, OWN)]
    found = evaluate(made, options, [*tasks, Task(PAPER, VARIANT_ROWS, fitted)])
    rows = {}
    for key, score in found.scores.items():
        landscape, prediction = made.base(key.model, key.benchmark), score.prediction
        if landscape is not None and isinstance(prediction, Path | Blend):
            paths = prediction.paths if isinstance(prediction, Blend) else (prediction,)
            kept = np.ones(len(plan.budgets), bool) if paths[0].skip is None else ~paths[0].skip[:, 0]
            rows[key] = Row([points(landscape, path, plan.budgets) for path in paths], np.flatnonzero(kept).tolist())
    return rows, {key: found.scores[key].fixed[1 : draws + 1] for key in rows}


def points(landscape: DenseLandscape, path: Path, budgets: tuple[int, ...]) -> list[int]:
    names = landscape.complete(budgets)
    steps = zip(path.policy[:, 0], path.budget[:, 0], strict=True)
    return [landscape.points[names[policy], budgets[n]] for policy, n in steps]


def loop(made: Cohort, view: View, rows: dict[Key, Row]) -> Iterator[dict[Key, float]]:
    """The baseline: errors of all rows, draw by draw."""
    plan = made.plan
    target = {n: (plan.default_policy, n) for n in plan.budgets}
    for draw in range(1, view.draws):
        drawn = {name: np.repeat(np.arange(len(w)), w[:, draw].astype(int)) for name, w in view.weights.items()}
        rates = {cell: s.credit["P"][:, drawn[cell[1]]].mean(axis=1) for cell, s in made.landscapes.items()}
        errors = {}
        for key, row in rows.items():
            model, rl = plan.models[key.model], made.rl(key.model, key.benchmark)
            base, curve = rates[model.base, key.benchmark], rates[model.rl, key.benchmark]
            goal = np.array([curve[rl.points[target[n]]] for n in plan.budgets])
            predicted = np.mean([base[path] for path in row.paths], axis=0)
            errors[key] = 100 * np.abs(predicted - goal)[row.budgets].mean()
        yield errors


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--draws", type=int, default=10_000)
    parser.add_argument("--loop", type=int, default=50, help="draws of the baseline")
    parser.add_argument("--small", action="store_true", help="two pairs on two benchmarks of 40 questions")
    given = parser.parse_args()
    with multiprocessing.get_context("spawn").Pool(1, maxtasksperchild=1) as process:
        kept, again = (process.apply(stage, (given.small, given.draws, reselect)) for reselect in (0, given.draws))
    fixed = BoptrOptions(draws=given.draws, reselect=0)
    made, draws = cohort(given.small), min(given.loop, given.draws)
    rows, errors = rows_and_errors(made, fixed, draws)
    view = bootstrap_view(made, fixed.draws, fixed.seed, stop=draws)
    wall, cpu = time.perf_counter(), time.process_time()
    direct = list(loop(made, view, rows))
    share = given.draws / draws
    baseline = Spent((time.perf_counter() - wall) * share, (time.process_time() - cpu) * share)
    gap = max(abs(errors[key][i] - found[key]) for i, found in enumerate(direct) for key in rows)
    if gap > 1e-4:
        raise SystemExit(f"the stage and the baseline differ by {gap:.2g} percentage points")
    report(given.draws, kept, again, baseline, len(rows), draws)


def report(draws: int, kept: Spent, again: Spent, baseline: Spent, rows: int, looped: int) -> None:
    print(f"{draws} draws; the baseline has {rows} rows, ran on {looped} draws and is extrapolated linearly")
    print(f"{'':34}{'wall s':>9}{'CPU s':>9}{'peak GiB':>9}")
    runs = {
        "stage, paths fixed": kept,
        "stage, paths chosen again": again,
        "baseline, paths fixed, errors alone": baseline,
    }
    for name, spent in runs.items():
        peak = "" if np.isnan(spent.peak) else f"{spent.peak:9.2f}"
        print(f"{name:35}{spent.wall:8.1f}{spent.cpu:9.1f}{peak}")
    for name, over, under in (("baseline / fixed", baseline, kept), ("chosen again / fixed", again, kept)):
        print(f"{name:35}{over.wall / under.wall:8.1f}{over.cpu / under.cpu:9.1f}")
    met = {
        f"fixed <= {GOAL_SECONDS} s": kept.wall <= GOAL_SECONDS,
        f"chosen again <= {GOAL_RATIO} x fixed (wall)": again.wall <= GOAL_RATIO * kept.wall,
        f"<= {GOAL_GIB} GiB": max(kept.peak, again.peak) <= GOAL_GIB,
    }
    print("goals: " + "; ".join(f"{goal}: {'met' if yes else 'missed'}" for goal, yes in met.items()))


if __name__ == "__main__":
    main()
