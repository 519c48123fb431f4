"""Time of the landscape stage on synthetic graded samples of the paper's size.

    python perf/landscape.py [--cells 56] [--questions 500] [--samples 16]

A cell is one checkpoint on one benchmark: 24 policies x 500 questions x 16 samples. 56 cells (28 pairs) are 10.75 M
rows. The stage reads ten metrics, as prefix and as expectation, at five budgets, with all intervals. The baseline
computes only the four prefix counts, directly in polars (group, count votes, take the best), without expectations and
intervals; both must give the same counts. CPU seconds are those of all threads; wall seconds depend on the load of the
machine.

With ``--rows`` it measures memory instead: the whole stage, from the file of graded samples to the files of the
landscape, of one cell of 24 policies, in a process of its own:

    python perf/landscape.py --rows 1e5 1e6 3e6 1e7 [--samples 64]

Set OPENBLAS_NUM_THREADS=1 if other processes use the cores: the products are small, and waiting threads use CPU time.
"""

from __future__ import annotations

import argparse
import multiprocessing
import resource
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import polars as pl

from searchlens.analysis.points import operating_points
from searchlens.cli.stages.landscape import landscape
from searchlens.config.landscape import LandscapeOptions
from searchlens.plan import needs
from searchlens.store.columns import GRADED, SCORES

POLICIES = 24
METRICS = ["P", "Q", "B", "T"]
KEYS = ["policy", "question"]


def scores(questions: int, samples: int, seed: int) -> pl.DataFrame:
    """Graded samples: hard and easy questions, one right class, Zipf-like wrong ones, blanks and truncations."""
    rng = np.random.default_rng(seed)
    shape = (POLICIES, questions, samples)
    ability = rng.normal(-0.3, 2.0, (1, questions, 1)) + rng.normal(0, 0.3, (POLICIES, 1, 1))
    right = rng.random(shape) < 1 / (1 + np.exp(-ability))
    wrong = np.minimum(rng.zipf(rng.uniform(1.3, 2.5, (1, questions, 1)), shape), 200)
    stopped = rng.random(shape) < 0.95
    answer = np.where(rng.random(shape) < np.where(stopped, 0.03, 0.6), -1, np.where(right, 0, wrong))
    tokens = rng.integers(50, 4096, answer.size)
    columns = {
        "policy": np.repeat([f"policy{i:02d}" for i in range(POLICIES)], questions * samples),
        "question": np.tile(np.repeat(np.arange(questions), samples), POLICIES),
        "sample": np.tile(np.arange(samples), POLICIES * questions),
        "run": np.tile(np.arange(samples), POLICIES * questions),
        "correct": (answer == 0).ravel(),
        "answer": answer.ravel(),
        "tokens": tokens,
        "generated": tokens,
        "stopped": stopped.ravel(),
        "score": -rng.gamma(2, 0.15, answer.size),
    }
    return pl.DataFrame(columns).cast(SCORES)


def graded(questions: int, samples: int) -> pl.DataFrame:
    """The same with what scoring says besides; spellings of answers are twice as many as answers."""
    drawn, valid = scores(questions, samples, seed=1), pl.col("answer") >= 0
    spelled = pl.col("answer") * 2 + (pl.col("sample") % 2).cast(pl.Int32)
    return drawn.select(
        *SCORES.names(),
        finished=pl.col("stopped") & valid,
        unknown=pl.lit(False),
        extraction=pl.when(valid).then(pl.lit("boxed")).otherwise(pl.lit("none")),
        plain=pl.when(valid).then(spelled).otherwise(-1),
        checks=pl.lit(None, pl.String),
        finish=pl.when("stopped").then(pl.lit("stop")).otherwise(pl.lit("length")),
        lucky=pl.when(policy="policy00").then(pl.col("answer") % 7 == 3),
    ).cast(GRADED)


def measure(rows: int, samples: int) -> None:
    """Memory and CPU time of the stage on one cell."""
    budgets = tuple(2**i for i in range(samples.bit_length()) if 2**i <= samples)
    cell = needs.Landscape(budgets, budgets[:5], LandscapeOptions(), 0, {}, "math")
    questions = max(1, rows // samples // POLICIES)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "scores.parquet"
        draw = SPAWN.Process(target=_write, args=(questions, samples, path))  # what drawing takes must not count
        draw.start()
        draw.join()
        work = SPAWN.Process(target=_stage, args=(cell, path, Path(folder) / "landscape"))
        work.start()
        work.join()
        if draw.exitcode or work.exitcode:
            raise SystemExit("a process failed")


SPAWN = multiprocessing.get_context("spawn")


def _write(questions: int, samples: int, path: Path) -> None:
    graded(questions, samples).write_parquet(path, compression="zstd")


def _stage(cell: needs.Landscape, path: Path, output: Path) -> None:
    started = time.process_time()
    landscape(cell, path, output, "")
    cpu = time.process_time() - started
    rows = pl.scan_parquet(path).select(pl.len()).collect().item()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(f"{rows:>12,} samples, {max(cell.budgets)} a question: {peak:.2f} GiB, {cpu:.1f} s CPU", flush=True)


def baseline(graded: pl.DataFrame, budgets: list[int]) -> pl.DataFrame:
    """Prefix counts of P, Q, B, T, one group_by after the other."""
    policies = graded.select("policy").unique(maintain_order=True)
    parts = []
    for budget in budgets:
        first = graded.lazy().filter(pl.col("sample") < budget)
        votes = (
            first.filter(pl.col("answer") >= 0)
            .group_by(*KEYS, "answer")
            .agg(pl.len(), pl.col("sample").min(), pl.col("correct").first())
            .group_by(KEYS)
            .agg(Q=pl.col("correct").sort_by("len", "sample", descending=[True, False]).first())
        )
        finished = pl.col("stopped") & (pl.col("answer") >= 0)
        best = first.group_by(KEYS).agg(
            P=pl.col("correct").any(),
            B=pl.col("correct").sort_by("score", "sample", descending=[True, False]).first(),
            T=pl.col("correct").filter(finished).sort_by(pl.struct("tokens", "sample").filter(finished)).first(),
        )
        joined = best.join(votes, on=KEYS, how="left").group_by("policy").agg(pl.col(METRICS).sum())
        counts = policies.lazy().join(joined, on="policy", how="left", maintain_order="left").collect()
        parts.append(counts.with_columns(budget=pl.lit(budget)))
    return pl.concat(parts)


def same_counts(points: pl.DataFrame, counts: pl.DataFrame) -> bool:
    """Whether the stage and the baseline give the same counts."""
    wide = points.filter(pl.col("hits").is_not_null()).pivot("metric", index=["policy", "budget"], values="hits")
    columns = ["policy", "budget", *METRICS]
    of_stage, of_baseline = (frame.select(columns).sort("policy", "budget").rows() for frame in (wide, counts))
    return of_stage == of_baseline


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--cells", type=int, default=56)
    parser.add_argument("--questions", type=int, default=500)
    parser.add_argument("--samples", type=int, default=16)
    parser.add_argument("--rows", type=float, nargs="+", help="measure the memory of a cell of so many samples")
    arguments = parser.parse_args()
    for rows in arguments.rows or ():
        measure(int(rows), arguments.samples)
    if arguments.rows:
        return
    budgets = [2**i for i in range(arguments.samples.bit_length())]
    cells = [(arguments.questions, arguments.samples, seed) for seed in range(arguments.cells)]
    stage, landscapes = timed(cells, lambda graded: operating_points(graded, budgets=budgets).points)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    direct, counts = timed(cells, lambda graded: baseline(graded, budgets))
    if not all(same_counts(*both) for both in zip(landscapes, counts, strict=True)):
        raise SystemExit("the stage and the baseline disagree")
    rows = arguments.cells * POLICIES * arguments.questions * arguments.samples
    print(f"{rows / 1e6:.2f} M rows in {arguments.cells} cells, budgets {budgets}")
    print(f"peak memory of the stage {peak:.2f} GiB")
    for name, spent in (("stage, everything", stage), ("baseline, 4 prefix counts", direct)):
        wall, cpu = np.sum(spent, axis=0)
        print(f"{name:26}{wall:7.1f} s wall{cpu:7.1f} s CPU, first cell {spent[0][0]:.2f} s")
    ratio = np.sum(direct, axis=0) / np.sum(stage, axis=0)
    print(f"baseline / stage          {ratio[0]:7.2f}       {ratio[1]:7.2f}")


def timed(
    cells: list[tuple[int, int, int]], work: Callable[[pl.DataFrame], pl.DataFrame]
) -> tuple[list[tuple[float, float]], list[pl.DataFrame]]:
    """Wall and CPU seconds of each cell, without drawing its scores, and the results."""
    spent, results = [], []
    for cell in cells:
        graded = scores(*cell)
        wall, cpu = time.perf_counter(), time.process_time()
        results.append(work(graded))
        spent.append((time.perf_counter() - wall, time.process_time() - cpu))
    return spent, results


if __name__ == "__main__":
    main()
