"""From answer distributions to samples, and from samples to the arrays of a cohort, in memory or on disk."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt
import polars as pl

from searchlens.analysis.points import first_k, operating_points, unbiased
from searchlens.analysis.pool import SamplePool, first_of_class
from searchlens.analysis.uncertainty import Floats, Resamples
from searchlens.boptr.cohort import CREDITS, PLAN_FILE, Cohort, DenseLandscape, votes_fall, write_plan
from searchlens.config.boptr import Estimator
from searchlens.config.landscape import LandscapeOptions
from searchlens.seeds import generator
from searchlens.store import files
from searchlens.store.columns import SCORES
from searchlens_lab.simulate import _truth
from searchlens_lab.simulate._design import CONTINUOUS, Cell, Design, PolicyEffect, SimBenchmark, budgets_of

OPTIONS = LandscapeOptions()
"""Votes, first finish and intervals are read as by default in a study."""

_WRONG_IS_LONGER = 1.25
"""Factor on the length of samples without a right answer."""
_LENGTH_SPREAD = 0.25
"""Scale of the log-logistic length; 0 would make all samples equally long."""
_CUT_LENGTH = 4.0
"""Token limit as a multiple of the typical length."""

_Value = TypeVar("_Value", bound=np.generic)
Outcomes = npt.NDArray[np.uint8]
Lengths = npt.NDArray[np.float32]


class Drawn(NamedTuple):
    """Samples of some policies that have equally many samples."""

    policies: tuple[str, ...]
    outcomes: Outcomes
    """Ndarray of uint8. 0: right; 1 .. wrong: that wrong answer; wrong + 1: stopped without a valid answer; wrong + 2:
    cut off. Shape (samples, policies, questions)."""
    tokens: Lengths
    """Ndarray of float, same shape. Whole numbers >= 1. Of float32."""


def simulate(design: Design, seed: int, estimator: Estimator = "unbiased") -> Cohort:
    """Draw a whole study in memory.

    ``seed``: of questions, models' skill and samples. The draws of a cell depend on the seed and on names (checkpoint,
    benchmark, policy), but not on the rest of the design. ``estimator``: of P and Q. In mode ``planted`` RL equals Base
    along the law's path under ``first_k`` alone. The result equals the one that ``boptr.cohort.read_cohort`` reads from
    the folder that ``write`` makes of the same arguments.
    """
    landscapes = {
        (cell.checkpoint, cell.benchmark): dense_landscape(design, seed, cell, estimator) for cell in design.cells()
    }
    return Cohort(design.plan(), landscapes, estimator)


def dense_landscape(design: Design, seed: int, cell: Cell, estimator: Estimator = "unbiased") -> DenseLandscape:
    """The landscape of one cell."""
    item = design.benchmarks[cell.benchmark]
    points: dict[tuple[str, int], int] = {}
    credit: dict[str, list[npt.NDArray[np.float32]]] = {metric: [] for metric in (*CREDITS, "first_k Q")}
    tokens: dict[str, float] = {}
    rates = []
    for drawn in draw(design, seed, cell):
        pool = _pool(drawn, item)
        budgets = budgets_of(design, pool.samples)
        first = first_k(pool, budgets, OPTIONS)
        values = {**first, "first_k Q": first["Q"]}
        if estimator == "unbiased":
            values |= unbiased(pool, budgets, OPTIONS, only=("P", "Q"))
        for name in pool.policies:
            points |= {(name, n): len(points) + i for i, n in enumerate(budgets)}
        for metric, parts in credit.items():
            cube = values[metric].reshape(len(pool.policies), -1, len(budgets)).transpose(0, 2, 1)  # questions last
            parts.append(np.ascontiguousarray(cube.reshape(-1, cube.shape[2]), np.float32))
        by_policy = pool.tokens.reshape(len(pool.policies), -1)
        tokens |= dict(zip(pool.policies, by_policy.mean(axis=1).tolist(), strict=True))
        rates.append(_rates(pool))
    stacked = {metric: np.concatenate(parts) for metric, parts in credit.items()}
    falls = votes_fall(points, stacked.pop("first_k Q"))
    questions = np.arange(item.questions, dtype=np.uint32)
    return DenseLandscape(questions, points, stacked, tokens, pl.concat(rates), votes_fall=falls)


def draw(design: Design, seed: int, cell: Cell) -> list[Drawn]:
    """Samples of a cell, one entry per pool size."""
    answers = _truth.native(design, seed, cell, _truth.question_latents(design, seed, cell))
    sizes = design.pools(cell)
    return [
        _draw(design, seed, cell, answers, tuple(name for name in sizes if sizes[name] == size), size)
        for size in dict.fromkeys(sizes.values())
    ]


def _draw(
    design: Design, seed: int, cell: Cell, answers: _truth.Answers, policies: tuple[str, ...], samples: int
) -> Drawn:
    """Samples of policies; each takes two uniform numbers, one for the outcome and one for the length."""
    item = design.benchmarks[cell.benchmark]
    uniform = np.empty((samples, 2, len(policies), item.questions), np.float32)
    for i, policy in enumerate(policies):
        stream = generator("simulate", seed, "samples", cell.checkpoint, cell.benchmark, policy)
        uniform[:, :, i] = stream.random((samples, 2, item.questions), dtype=np.float32)
    is_planted = cell.side == "rl" and design.mode in ("planted", *CONTINUOUS)
    as_base = [_truth.planted_policy(design, policy) for policy in policies] if is_planted else policies
    effects = [design.effect(cell.benchmark, policy) for policy in as_base]
    outcomes = _outcomes(uniform[:, 0], [_shares(design, seed, cell, answers, effect) for effect in effects])
    if cell.side == "rl" and design.mode == "planted":
        # Each is the first right one (outcome 0) of its group of Base samples, or the group's first.
        groups = _truth.groups(_truth.planted_path(design, cell), samples)
        outcomes = np.stack([np.where((outcomes[part] == 0).any(0), np.uint8(0), outcomes[part[0]]) for part in groups])
    return Drawn(policies, outcomes, _tokens(uniform[:, 1], outcomes, design, cell, effects))


def _outcomes(uniform: Lengths, shares: Sequence[Floats]) -> Outcomes:
    thresholds = np.stack([share.cumsum(axis=0) for share in shares], axis=1).astype(np.float32)
    outcomes = np.zeros(uniform.shape, np.uint8)
    for threshold in thresholds:
        outcomes += uniform >= threshold
    return outcomes


def _shares(design: Design, seed: int, cell: Cell, answers: _truth.Answers, effect: PolicyEffect) -> Floats:
    """Probabilities of all outcomes but the last, shape (outcomes - 1, questions)."""
    p, invalid = _truth.under(answers, effect)
    shares = np.vstack([p.T, invalid * (1 - _truth.CUT_SHARE)])
    if cell.side == "rl" and design.mode in CONTINUOUS:
        return _truth.planted_shares(design, seed, cell, shares)
    return shares


def _tokens(
    uniform: Lengths, outcomes: Outcomes, design: Design, cell: Cell, effects: Sequence[PolicyEffect]
) -> Lengths:
    """Log-logistic lengths, longer without a right answer; a sample that is cut off has the length of the limit."""
    item = design.benchmarks[cell.benchmark]
    typical = item.tokens * design.bases[design.models[cell.model].base].verbosity
    factor = np.array([effect.tokens for effect in effects], np.float32)[:, None] * np.float32(typical)
    floor = np.float32(2**-25)
    odds = (uniform + floor) / (1 - uniform + floor)
    lengths = factor * odds ** np.float32(_LENGTH_SPREAD)
    lengths *= np.where(outcomes == 0, np.float32(1), np.float32(_WRONG_IS_LONGER))
    limit = np.ceil(factor * np.float32(_CUT_LENGTH))
    tokens: Lengths = np.where(outcomes == item.wrong + 2, limit, np.minimum(np.ceil(lengths), limit))
    return tokens


def classes(drawn: Drawn, item: SimBenchmark) -> npt.NDArray[np.int32]:
    """Answer classes as in ``store.columns.SCORES``, shape of the outcomes; in open text, one for each answer."""
    outcomes = drawn.outcomes.astype(np.int32)
    if item.open_text:
        sample = np.arange(len(outcomes), dtype=np.int32)[:, None, None]
        return np.where(outcomes <= item.wrong, sample, np.int32(-1))
    return np.where(outcomes <= item.wrong, outcomes, np.int32(-1))


def _pool(drawn: Drawn, item: SimBenchmark) -> SamplePool:
    """The samples as the landscape reads them, without scores."""
    tokens = _rows(drawn.tokens).astype(float)
    outcomes = _rows(drawn.outcomes)
    return SamplePool(
        policies=drawn.policies,
        questions=np.arange(item.questions, dtype=np.uint32),
        correct=outcomes == 0,
        valid=outcomes <= item.wrong,
        stopped=outcomes <= item.wrong + 1,
        finished=outcomes <= item.wrong,
        first=first_of_class(_rows(classes(drawn, item)).astype(np.int64)),
        tokens=tokens,
        spent=tokens,
        score=np.full(tokens.shape, np.nan),
        width=1,
    )


def _rows(values: npt.NDArray[_Value]) -> npt.NDArray[_Value]:
    """From (samples, policies, questions) to (policies * questions, samples)."""
    return np.ascontiguousarray(values.reshape(len(values), -1).T)


def _rates(pool: SamplePool) -> pl.DataFrame:
    """Expected rates per sample, with bootstrap intervals as in a landscape."""
    questions = len(pool.questions)
    shape = (len(pool.policies), questions, pool.samples)
    metrics = ("valid", "stopped")
    columns = np.stack([getattr(pool, m).reshape(shape).mean(axis=2).T for m in metrics], axis=2)
    flat = columns.reshape(questions, -1)
    interval = Resamples.draw(questions, OPTIONS.draws, 0).interval(flat, OPTIONS.confidence)
    names = [(policy, metric) for policy in pool.policies for metric in metrics]
    return pl.DataFrame(
        {
            "policy": [policy for policy, _ in names],
            "metric": [metric for _, metric in names],
            "value": flat.mean(axis=0),
            "lo": interval.lo,
            "hi": interval.hi,
        }
    )


# ---- on disk


TRUTH_FILE = "truth.json"


def write(design: Design, seed: int, output: Path) -> None:
    """Write a simulated study: ``cohort.yaml``, one landscape per checkpoint and benchmark, ``truth.json``.

    ``output``: folder; made if it does not exist. Files of other designs in it stay: ``cohort.yaml`` names those of
    this one. Raises InputError if the folder cannot be written to.
    """
    files.require_writable(output)
    for cell in design.cells():
        budgets = budgets_of(design, max(design.pools(cell).values()))
        landscape = operating_points(scores(design, seed, cell), budgets=budgets, options=OPTIONS)
        for name in ("points", "hits"):
            file = output / cell.checkpoint / cell.benchmark / f"{name}.parquet"
            files.replace(file, getattr(landscape, name).write_parquet)
    files.replace_text(output / TRUTH_FILE, json.dumps(_truth.Truth(design, seed).record(), indent=1) + "\n")
    write_plan(design.plan(), output / PLAN_FILE)


def scores(design: Design, seed: int, cell: Cell) -> pl.DataFrame:
    """The graded samples of a cell: ``store.columns.SCORES``, with null scores."""
    item = design.benchmarks[cell.benchmark]
    return pl.concat([_frame(drawn, item) for drawn in draw(design, seed, cell)])


def _frame(drawn: Drawn, item: SimBenchmark) -> pl.DataFrame:
    samples, policies, questions = drawn.outcomes.shape
    sample, policy, question = (index.ravel() for index in np.indices((samples, policies, questions), np.uint32))
    columns = {
        "policy": pl.Series(drawn.policies).gather(policy),
        "question": question,
        "sample": sample,
        "run": sample,
        "correct": drawn.outcomes.ravel() == 0,
        "answer": classes(drawn, item).ravel(),
        "tokens": drawn.tokens.ravel(),
        "generated": drawn.tokens.ravel(),
        "stopped": drawn.outcomes.ravel() <= item.wrong + 1,
        "score": pl.repeat(None, drawn.outcomes.size, dtype=pl.Float32, eager=True),
    }
    return pl.DataFrame(columns).cast(SCORES)
