"""Time of the landscape stage on synthetic graded samples of the paper's size.

    python perf/landscape.py

A cell is one checkpoint on one benchmark: 24 policies x 500 questions x 16 samples. 56 cells (28 pairs) are 10.75 M
rows. The stage reads ten metrics, as prefix and as expectation, at five budgets, with all intervals. The baseline
computes only the four prefix counts, directly in polars (group, count votes, take the best), without expectations and
intervals; both must give the same counts. CPU seconds are those of all threads; wall seconds depend on the load of the
machine.

Set OPENBLAS_NUM_THREADS=1 if other processes use the cores: the products are small, and waiting threads use CPU time.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import polars as pl
from harness import Spent, spent

from searchlens.analysis.points import operating_points
from searchlens.store.columns import SCORES

CELLS, POLICIES, QUESTIONS, SAMPLES = 56, 24, 500, 16
BUDGETS = [1, 2, 4, 8, 16]
METRICS = ["P", "Q", "B", "T"]
KEYS = ["policy", "question"]


def scores(seed: int) -> pl.DataFrame:
    """Graded samples: hard and easy questions, one right class, Zipf-like wrong ones, blanks and truncations."""
    rng = np.random.default_rng(seed)
    shape = (POLICIES, QUESTIONS, SAMPLES)
    ability = rng.normal(-0.3, 2.0, (1, QUESTIONS, 1)) + rng.normal(0, 0.3, (POLICIES, 1, 1))
    right = rng.random(shape) < 1 / (1 + np.exp(-ability))
    wrong = np.minimum(rng.zipf(rng.uniform(1.3, 2.5, (1, QUESTIONS, 1)), shape), 200)
    stopped = rng.random(shape) < 0.95
    answer = np.where(rng.random(shape) < np.where(stopped, 0.03, 0.6), -1, np.where(right, 0, wrong))
    tokens = rng.integers(50, 4096, answer.size)
    columns = {
        "policy": np.repeat([f"policy{i:02d}" for i in range(POLICIES)], QUESTIONS * SAMPLES),
        "question": np.tile(np.repeat(np.arange(QUESTIONS), SAMPLES), POLICIES),
        "sample": np.tile(np.arange(SAMPLES), POLICIES * QUESTIONS),
        "run": np.tile(np.arange(SAMPLES), POLICIES * QUESTIONS),
        "correct": (answer == 0).ravel(),
        "answer": answer.ravel(),
        "tokens": tokens,
        "generated": tokens,
        "stopped": stopped.ravel(),
        "score": -rng.gamma(2, 0.15, answer.size),
    }
    return pl.DataFrame(columns).cast(SCORES)


def baseline(graded: pl.DataFrame) -> pl.DataFrame:
    """Prefix counts of P, Q, B, T, one group_by after the other."""
    policies = graded.select("policy").unique(maintain_order=True)
    parts = []
    for budget in BUDGETS:
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
    stage, landscapes = timed(lambda graded: operating_points(graded, budgets=BUDGETS).points)
    peak = stage[-1].gib
    direct, counts = timed(baseline)
    if not all(same_counts(*both) for both in zip(landscapes, counts, strict=True)):
        raise SystemExit("the stage and the baseline disagree")
    print(f"{CELLS * POLICIES * QUESTIONS * SAMPLES / 1e6:.2f} M rows in {CELLS} cells, budgets {BUDGETS}")
    print(f"peak memory of the stage {peak:.2f} GiB")
    seconds = [np.sum([(each.wall, each.cpu) for each in taken], axis=0) for taken in (stage, direct)]
    names = ("stage, everything", "baseline, 4 prefix counts")
    for name, (wall, cpu), taken in zip(names, seconds, (stage, direct), strict=True):
        print(f"{name:26}{wall:7.1f} s wall{cpu:7.1f} s CPU, first cell {taken[0].wall:.2f} s")
    wall, cpu = seconds[1] / seconds[0]
    print(f"baseline / stage          {wall:7.2f}       {cpu:7.2f}")


def timed(work: Callable[[pl.DataFrame], pl.DataFrame]) -> tuple[list[Spent], list[pl.DataFrame]]:
    """What each cell takes, without drawing its scores, and the results."""
    results, taken = zip(*(spent(partial(work, scores(seed))) for seed in range(CELLS)), strict=True)
    return list(taken), list(results)


if __name__ == "__main__":
    main()
