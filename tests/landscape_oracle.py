"""Estimates in plain Python, by their definitions, and small random pools to try them on."""

import itertools
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from searchlens.store.columns import SCORES


@dataclass(frozen=True)
class Sample:
    """One graded sample."""

    answer: int
    correct: bool
    tokens: int
    stopped: bool
    score: float


Chosen = Sequence[Sample]


def solved(chosen: Chosen) -> float:
    """pass@k: any correct."""
    return float(any(s.correct for s in chosen))


def vote(chosen: Chosen, ties: str = "fractional") -> float:
    """Majority vote over valid answers."""
    votes = Counter(s.answer for s in chosen if s.answer >= 0)
    if not votes:
        return 0.0
    right = {s.answer for s in chosen if s.correct}
    top = [answer for answer, count in votes.items() if count == max(votes.values())]  # in order of first appearance
    return float(top[0] in right) if ties == "first" else len(right.intersection(top)) / len(top)


def best(chosen: Chosen, ties: str = "fractional") -> float:
    """Best of n by score."""
    return _least([(-s.score, s.correct) for s in chosen], ties)


def finish(chosen: Chosen, ties: str = "fractional") -> float:
    """First finish: fewest tokens among stopped samples with a valid answer."""
    return _least([(s.tokens, s.correct) for s in chosen if s.stopped and s.answer >= 0], ties)


def finish_by_index(chosen: Chosen, ties: str = "fractional") -> float:
    """First finish: first in the stream among stopped samples with a valid answer."""
    return _least([(0, s.correct) for s in chosen if s.stopped and s.answer >= 0], ties)


def _least(options: list[tuple[float, bool]], ties: str) -> float:
    if not options:
        return 0.0
    tied = [credit for key, credit in options if key == min(key for key, _ in options)]
    return float(tied[0]) if ties == "first" else sum(tied) / len(tied)


def distinct(chosen: Chosen) -> float:
    """Number of distinct valid answers."""
    return float(len({s.answer for s in chosen if s.answer >= 0}))


def over_subsets(metric: Callable[[Chosen], float], pool: Chosen, n: int) -> float:
    """Mean over every n-subset of the pool."""
    subsets = list(itertools.combinations(pool, n))
    return sum(map(metric, subsets)) / len(subsets)


def random_pool(rng: np.random.Generator, size: int) -> list[Sample]:
    """Few classes, scores and lengths, so that ties of every kind are common; one or two classes are right."""
    right = set(rng.choice(4, size=rng.integers(0, 3), replace=False).tolist())
    answers = rng.integers(-1, 4, size).tolist()
    return [
        Sample(a, a in right, int(rng.integers(1, 4)), bool(rng.random() < 0.7), float(rng.integers(-3, 0)))
        for a in answers
    ]


def frame(pools: dict[str, list[list[Sample]]]) -> pl.DataFrame:
    """Scores of policies given as lists of questions given as lists of samples."""
    rows = [
        (policy, question, index, index, s.correct, s.answer, s.tokens, s.tokens, s.stopped, s.score)
        for policy, questions in pools.items()
        for question, samples in enumerate(questions)
        for index, s in enumerate(samples)
    ]
    return pl.DataFrame(rows, schema=SCORES, orient="row")


def searched(
    rng: np.random.Generator, questions: int, runs: int, width: int
) -> tuple[pl.DataFrame, list[Sequence[Sample]]]:
    """Scores and pools of policy ``tree``: runs of ``width`` candidates, each run drawing 100 tokens more."""
    pools = [random_pool(rng, runs * width) for _ in range(questions)]
    first, run = pl.col("sample") % width == 0, pl.col("sample") // width
    spent = pl.when(first).then(pl.col("tokens").sum().over("question", run) + 100).otherwise(0).cast(pl.UInt32)
    return frame({"tree": pools}).with_columns(run=run, generated=spent), pools
