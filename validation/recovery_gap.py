"""Do the intervals of the recovery gap contain the true gap?

    python validation/recovery_gap.py --landscapes results/zoo-tables/landscape --output docs/recovery_gap.csv

There are two kinds of populations. Simulated policies, at distances ``SPREADS``, have a probability of solving each
question. Cells of the zoo cohort have their recorded counts as the population, from which questions are drawn with
replacement. The true gap is RL's mean minus the largest mean over Base's operating points up to the budget, in the
population.
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import polars as pl

from searchlens.analysis.points import Landscape
from searchlens.analysis.recovery import EnvelopeInterval, support
from searchlens.analysis.uncertainty import Floats
from searchlens.config.general import General
from searchlens.config.recovery import RecoveryOptions
from searchlens.store import columns as schemas
from searchlens.store import recorded_counts as metric_schemas

BUDGETS = (1, 2, 4, 8, 16)
POLICIES = 24
DEFAULT = "topp0.95_t1.0"
SPREADS = {"equal": 0.0, "narrow": 0.15, "wide": 0.6}
"""Logits between the worst and the best policy."""
PAIRS = {"anchor": "anchor", "large": "large", "math": "math", "llama": "llama", "overtrained": "anchor"}
"""RL model to the name of its Base."""
CELLS = dict.fromkeys(("zoo-math", "zoo-olympiad", "zoo-ifeval", "zoo-gpqa"), (40, 200)) | {"zoo-aime": (60,)}
"""Benchmark to the numbers of questions to draw."""
KINDS: tuple[EnvelopeInterval, ...] = ("fixed", "corrected", "reselected")

ROUNDING = 1e-6

Sample = Callable[[np.random.Generator, int], tuple[Floats, Floats]]


class Population(NamedTuple):
    """Operating points with their true means, RL's true means, and a function that draws credit of both.

    Credit has the shape (points, questions).
    """

    points: list[tuple[str, int]]
    base: Floats
    rl: Floats
    sample: Sample

    def gap(self, budget: int) -> float:
        """The true recovery gap."""
        reach = [value for value, (_, n) in zip(self.base, self.points, strict=True) if n <= budget]
        return float(self.rl[BUDGETS.index(budget)] - max(reach))


def simulated(spread: float, seed: int = 1, questions: int = 4000) -> Population:
    """Policies that solve each question with a probability; RL is the best of them."""
    rng = np.random.default_rng(seed)
    ease = rng.normal(0, 1.5, questions)
    once = 0.5 / (1 + np.exp(-(ease + np.linspace(-spread, 0, POLICIES)[:, None])))
    base = np.concatenate([1 - (1 - once) ** n for n in BUDGETS])
    rl = base[POLICIES - 1 :: POLICIES]

    def sample(rng: np.random.Generator, n: int) -> tuple[Floats, Floats]:
        chosen = rng.integers(0, questions, n)
        return _solved(rng, base[:, chosen]), _solved(rng, rl[:, chosen])

    points = [(f"p{i:02d}", n) for n in BUDGETS for i in range(POLICIES)]
    return Population(points, base.mean(axis=1), rl.mean(axis=1), sample)


def _solved(rng: np.random.Generator, probability: Floats) -> Floats:
    return (rng.random(probability.shape) < probability).astype(float)


def recorded(landscapes: Path, pair: str, benchmark: str, metric: str) -> Population:
    """One cell of the cohort."""
    points, base = _credit(landscapes / f"{PAIRS[pair]}-base" / benchmark, metric)
    names, rows = _credit(landscapes / f"{pair}-rl" / benchmark, metric)
    rl = rows[[names.index((DEFAULT, n)) for n in BUDGETS]]

    def sample(rng: np.random.Generator, n: int) -> tuple[Floats, Floats]:
        chosen = rng.integers(0, base.shape[1], n)
        return base[:, chosen], rl[:, chosen]

    return Population(points, base.mean(axis=1), rl.mean(axis=1), sample)


def _credit(landscape: Path, metric: str) -> tuple[list[tuple[str, int]], Floats]:
    hits = pl.read_parquet(landscape / "hits.parquet").filter(pl.col("budget").is_in(BUDGETS))
    credit = hits.select("policy", "budget", "question", pl.col(metric).cast(pl.Float64)).sort("question")
    wide = credit.pivot("question", index=["policy", "budget"], values=metric)
    return wide.select("policy", "budget").rows(), wide.drop("policy", "budget").to_numpy()


def landscape(points: list[tuple[str, int]], credit: Floats) -> Landscape:
    """The part of a landscape that ``support`` reads; every estimator has the same credit."""
    questions = credit.shape[1]
    keys = {
        "policy": np.repeat([policy for policy, _ in points], questions),
        "question": np.tile(np.arange(questions), len(points)),
        "budget": np.repeat([n for _, n in points], questions),
    }
    estimates = {name: credit.ravel() for name in metric_schemas.hits() if name not in keys}
    bands = [
        (policy, n, metric, estimator, None, questions, 0.0, 0.0, 1.0)
        for metric, estimator in itertools.product("PQ", ("first_k", "unbiased"))
        for policy, n in points
    ]
    return Landscape(
        points=pl.DataFrame(bands, schemas.POINTS, orient="row"),
        hits=pl.DataFrame({**keys, **estimates}).cast(dict(metric_schemas.hits())),
    )


def trials(population: Population, questions: int, repeats: int) -> Iterator[dict[str, object]]:
    """Every interval of every sample: its length, and the side on which it misses the true gap, if it does."""
    rng = np.random.default_rng(questions)
    for seed in range(repeats):
        base, rl = population.sample(rng, questions)
        pair = landscape(population.points, base), landscape([(DEFAULT, n) for n in BUDGETS], rl)
        for kind in KINDS:
            general = General(default_policy=DEFAULT, draws=400, seed=seed)
            gaps = support(*pair, RecoveryOptions(), general, kind).filter(metric="P", estimator="first_k")
            for budget, gap, lo, hi in gaps.select(
                "budget", "rl_minus_best", "rl_minus_best_lo", "rl_minus_best_hi"
            ).iter_rows():
                true = population.gap(budget)
                miss = {"below": true < lo - ROUNDING, "above": true > hi + ROUNDING, "outside": not lo <= gap <= hi}
                yield {"kind": kind, "bias": gap - true, "length": hi - lo, **miss}


def main() -> None:
    """Write one row per population, number of questions and interval."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--landscapes", type=Path, required=True)
    parser.add_argument("--repeats", type=int, default=400, help="samples of a simulated population")
    parser.add_argument("--output", type=Path, required=True)
    args = parser.parse_args()
    rows = []
    for name, spread in SPREADS.items():
        for questions in (40, 60, 200):
            intervals = trials(simulated(spread), questions, args.repeats)
            rows += [{"population": name, "questions": questions, **row} for row in intervals]
    for (benchmark, sizes), metric, pair in itertools.product(CELLS.items(), "PQ", PAIRS):
        for questions in sizes:
            population = recorded(args.landscapes, pair, benchmark, metric)
            intervals = trials(population, questions, args.repeats // len(PAIRS))
            rows += [{"population": f"{benchmark} {metric}", "questions": questions, **row} for row in intervals]
    by = ["population", "questions", "kind"]
    means = pl.DataFrame(rows).group_by(by, maintain_order=True).agg(pl.len().alias("intervals"), pl.all().mean())
    covered = means.with_columns(coverage=1 - pl.col("below") - pl.col("above"))
    covered.write_csv(args.output, float_precision=4)


if __name__ == "__main__":
    main()
