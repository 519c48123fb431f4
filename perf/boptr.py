"""Time and memory of the BOPTR stage on a simulated cohort of the paper's size, and of all stages on a recorded one.

    OPENBLAS_NUM_THREADS=1 python perf/boptr.py
    OPENBLAS_NUM_THREADS=1 python perf/boptr.py --cohort

The stage computes all frames of BOPTR, in two separate processes: first with the sample's paths in every bootstrap
draw, then with every path chosen again in each draw. Goals at 10,000 draws: at most 60 s with fixed paths, at most 5
times that with paths chosen again, at most 4 GiB in both.

The baseline is the straightforward loop: for each draw, resample the questions, count every point of every Base and RL
landscape, and compute the error of every row along its fixed path. It runs on the first 50 draws and is
extrapolated linearly to all of them. It computes errors only: no intervals, no corrected errors, no other table, no
rows without a path (rivals), no path chosen again. Its errors must equal those of the stage in the same draws.

``--cohort`` measures the recorded cohort of twelve pairs instead (config/zoo.yaml with config/zoo-tables.yaml):
landscapes from recorded counts, then every frame of BOPTR under both estimates with its configured draws, and every
frame of measures. Landscapes share the processes; the other three jobs run side by side in them. Goals: at most three
minutes on two cores, at most 3 GiB in any process.

CPU seconds are summed over threads; wall seconds depend on what else runs on the machine. The stage has its own
threads: OPENBLAS_NUM_THREADS=1 stops BLAS from adding more.
"""

from __future__ import annotations

import argparse
import multiprocessing
import pathlib
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace

import numpy as np
from harness import Spent, alone, spent

from searchlens.analysis.uncertainty import Floats
from searchlens.boptr.cohort import Cohort
from searchlens.boptr.evaluate import Key, Task, evaluate
from searchlens.boptr.rows import Blend
from searchlens.boptr.rule import Path
from searchlens.boptr.study import study
from searchlens.boptr.transfer import MAIN_ROWS, OWN, PAPER
from searchlens.boptr.variants import VARIANT_ROWS
from searchlens.boptr.view import View, bootstrap_view
from searchlens.cli.options import cohort_of
from searchlens.cli.stages.boptr import boptr
from searchlens.cli.stages.landscape import landscape
from searchlens.cli.stages.measures import measures
from searchlens.config import check
from searchlens.config.boptr import BoptrOptions
from searchlens.config.check.load import DEFAULT_FILES
from searchlens.plan import Grid, needs
from searchlens.store.layout import Layout
from searchlens_lab.simulate import paper_design, simulate

SEED, DRAWS = 1, 10_000
LOOP = 50
"""Draws of the baseline."""
PROCESSES = 2
"""Of the recorded cohort."""
GOAL_SECONDS, GOAL_RATIO, GOAL_GIB = 60, 5, 4
COHORT = (*DEFAULT_FILES, "config/zoo.yaml", "config/zoo-tables.yaml")
COHORT_SECONDS, COHORT_GIB = 180, 3


def stage(reselect: int) -> Spent:
    """One study; the time to simulate its cohort is not counted."""
    simulated = simulate(paper_design(), SEED)
    return spent(lambda: study(simulated, BoptrOptions(draws=DRAWS, reselect=reselect)))[1]


@dataclass(frozen=True)
class Visits:
    """One error of a table: points of the Base landscape along its path or paths, and the budgets that count."""

    paths: list[list[int]]
    budgets: list[int]


def visits_and_errors(simulated: Cohort, options: BoptrOptions) -> tuple[dict[Key, Visits], dict[Key, Floats]]:
    """Every number that follows a path, and its errors by the stage in the first draws of the bootstrap."""
    plan = simulated.plan
    fitted, predicted = tuple(plan.with_role("fitted")), tuple(plan.with_role("fitted", "held_out"))
    tasks = [Task(variant, MAIN_ROWS, predicted) for variant in (PAPER, OWN)]
    evaluation = evaluate(simulated, options, [*tasks, Task(PAPER, VARIANT_ROWS, fitted)])
    visits = {}
    for key, score in evaluation.scores.items():
        landscape, prediction = simulated.base(key.model, key.benchmark), score.prediction
        if landscape is not None and isinstance(prediction, Path | Blend):
            paths = prediction.paths if isinstance(prediction, Blend) else (prediction,)
            counted = np.ones(len(plan.budgets), bool) if paths[0].skip is None else ~paths[0].skip[:, 0]
            names = landscape.complete(plan.budgets)
            along = []
            for path in paths:
                steps = zip(path.policy[:, 0], path.budget[:, 0], strict=True)
                along.append([landscape.points[names[i], plan.budgets[n]] for i, n in steps])
            visits[key] = Visits(along, np.flatnonzero(counted).tolist())
    return visits, {key: evaluation.scores[key].plain[1 : LOOP + 1] for key in visits}


def loop(simulated: Cohort, view: View, visits: dict[Key, Visits]) -> Iterator[dict[Key, float]]:
    """The baseline: errors of all numbers, draw by draw."""
    plan = simulated.plan
    target = {n: (plan.default_policy, n) for n in plan.budgets}
    for draw in range(1, view.draws):
        drawn = {name: np.repeat(np.arange(len(w)), w[:, draw].astype(int)) for name, w in view.weights.items()}
        rates = {cell: s.credit["P"][:, drawn[cell[1]]].mean(axis=1) for cell, s in simulated.landscapes.items()}
        errors = {}
        for key, visit in visits.items():
            model, rl = plan.models[key.model], simulated.rl(key.model, key.benchmark)
            base, curve = rates[model.base, key.benchmark], rates[model.rl, key.benchmark]
            goal = np.array([curve[rl.points[target[n]]] for n in plan.budgets])
            predicted = np.mean([base[path] for path in visit.paths], axis=0)
            errors[key] = 100 * np.abs(predicted - goal)[visit.budgets].mean()
        yield errors


# ---- the recorded cohort


def recorded_landscapes(folder: pathlib.Path) -> Spent:
    """Landscapes of every recorded cell."""
    grid, out = Grid(check.load(COHORT)), Layout(folder)
    jobs = [
        (needs.landscape(grid, b), path, out.landscape(c, b), "") for (c, b), path in grid.study.recorded_counts.items()
    ]

    def job() -> None:
        with ProcessPoolExecutor(PROCESSES, multiprocessing.get_context("spawn")) as pool:
            list(pool.map(landscape, *zip(*jobs, strict=True)))

    return spent(job)[1]


def recorded_frames(job: str, folder: pathlib.Path) -> Spent:
    """Frames of ``measures``, or of BOPTR under the estimator ``first_k`` or ``unbiased``, in a folder of its own."""
    grid = Grid(check.load(COHORT))
    if job == "measures":
        return spent(lambda: measures(needs.measures(grid), Layout(folder), fingerprint=""))[1]
    found = needs.boptr(grid)
    options = replace(found["options"], estimator=job)
    return spent(lambda: boptr(cohort_of(found), options, Layout(folder).landscapes, Layout(folder / job)))[1]


def recorded() -> None:
    """Measure every stage of the recorded cohort, and say whether the goals are met."""
    context, jobs = multiprocessing.get_context("spawn"), ("first_k", "unbiased", "measures")
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        start = time.perf_counter()
        runs = {"landscapes": recorded_landscapes(folder)}
        with context.Pool(PROCESSES, maxtasksperchild=1) as pool:
            waiting = [pool.apply_async(recorded_frames, (job, folder)) for job in jobs]
            runs |= dict(zip(jobs, (each.get() for each in waiting), strict=True))
        wall = time.perf_counter() - start
    print_table(runs)
    total, peak = sum(took.cpu for took in runs.values()), max(took.gib for took in runs.values())
    print(f"{'together':35}{wall:8.1f}{total:9.1f}{peak:9.2f}")
    met = {f"<= {COHORT_SECONDS} s (wall)": wall <= COHORT_SECONDS, f"<= {COHORT_GIB} GiB": peak <= COHORT_GIB}
    print_goals(met)


def print_table(runs: dict[str, Spent]) -> None:
    print(f"{'':34}{'wall s':>9}{'CPU s':>9}{'peak GiB':>9}")
    for name, took in runs.items():
        peak = "" if np.isnan(took.peak) else f"{took.gib:9.2f}"
        print(f"{name:35}{took.wall:8.1f}{took.cpu:9.1f}{peak}")


def print_goals(met: dict[str, bool]) -> None:
    print("goals: " + "; ".join(f"{goal}: {'met' if yes else 'missed'}" for goal, yes in met.items()))


def main() -> None:
    """Measure one of both cohorts."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--cohort", action="store_true", help="all stages of the recorded cohort of twelve pairs")
    args = parser.parse_args()
    if args.cohort:
        recorded()
        return
    fixed, reselected = (alone(stage, n) for n in (0, DRAWS))
    options, simulated = BoptrOptions(draws=DRAWS, reselect=0), simulate(paper_design(), SEED)
    visits, errors = visits_and_errors(simulated, options)
    view = bootstrap_view(simulated, DRAWS, options.seed, stop=LOOP)
    looped, took = spent(lambda: list(loop(simulated, view, visits)))
    baseline = Spent(took.cpu * DRAWS / LOOP, took.wall * DRAWS / LOOP)
    gap = max(abs(errors[key][i] - by_key[key]) for i, by_key in enumerate(looped) for key in visits)
    if gap > 1e-4:
        raise SystemExit(f"the stage and the baseline differ by {gap:.2g} percentage points")
    print(f"{DRAWS} draws; the baseline has {len(visits)} numbers, ran on {LOOP} draws and is extrapolated linearly")
    stages = {"stage, paths fixed": fixed, "stage, paths chosen again": reselected}
    print_table({**stages, "baseline, paths fixed, errors alone": baseline})
    for name, over, under in (("baseline / fixed", baseline, fixed), ("chosen again / fixed", reselected, fixed)):
        print(f"{name:35}{over.wall / under.wall:8.1f}{over.cpu / under.cpu:9.1f}")
    met = {
        f"fixed <= {GOAL_SECONDS} s": fixed.wall <= GOAL_SECONDS,
        f"chosen again <= {GOAL_RATIO} x fixed (wall)": reselected.wall <= GOAL_RATIO * fixed.wall,
        f"<= {GOAL_GIB} GiB": max(fixed.gib, reselected.gib) <= GOAL_GIB,
    }
    print_goals(met)


if __name__ == "__main__":
    main()
