"""Readouts of a pool, question by question: from the first n samples, and as means over all n-subsets.

Every function returns one array of shape (rows, budgets) per metric, rows as in ``Pool``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import combinations, islice
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from searchlens.landscape._pool import Bools, Floats, Pool, first_of_class
from searchlens.landscape._vote import class_sizes, expected_vote, prefix_vote

Ties = Literal["first", "fractional"]
FirstFinish = Literal["shortest", "first_index"]
MOST_SUBSETS = 500
"""Most subsets of runs over which an expectation is taken."""


def prefix(pool: Pool, budgets: Sequence[int], *, ties: Ties, first_finish: FirstFinish) -> dict[str, Floats]:
    """Readouts of the first n samples of the stream; ties in B and T go to the earlier sample."""
    at = np.asarray(budgets) - 1
    key = finish_key(pool, first_finish)
    values = {
        "P": pool.correct.cumsum(axis=1)[:, at] > 0,
        "Q": _columns(prefix_vote(pool, n, shared=ties == "fractional") for n in budgets),
        "B": _where_known(pool.score, _first_best(-pool.score, pool.correct, budgets)),
        "T": _where_known(key, _first_best(key, pool.finished & pool.correct, budgets)),
        "distinct": (_opens(pool) & pool.valid).cumsum(axis=1)[:, at],
        "C": pool.spent.cumsum(axis=1)[:, at],
        "valid": pool.valid.cumsum(axis=1)[:, at] / (at + 1),
        "stopped": pool.stopped.cumsum(axis=1)[:, at] / (at + 1),
    }
    return _with_derived({name: np.asarray(value, float) for name, value in values.items()})


def expected(pool: Pool, budgets: Sequence[int], *, first_finish: FirstFinish) -> dict[str, Floats]:
    """Means over all n-subsets of the pool: the order of the samples plays no part, ties share their credit.

    Where samples are candidates of searches, the means of ``expected_of_runs``.
    """
    if pool.width > 1:
        return expected_of_runs(pool, budgets, first_finish=first_finish)
    samples = pool.samples
    miss = missed(samples, budgets)
    n = np.asarray(budgets, float)
    sizes = class_sizes(pool, samples)
    key = finish_key(pool, first_finish)
    finished = pool.finished & pool.correct
    values = {
        "P": 1 - miss[pool.correct.sum(axis=1)],
        "Q": expected_vote(pool, budgets),
        "B": _where_known(pool.score, expected_best(-pool.score, pool.correct, budgets)),
        "T": _where_known(key, expected_best(key, finished, budgets)),
        "distinct": _columns((1 - miss[:, i])[sizes].sum(axis=1) for i in range(len(budgets))),
        "C": pool.spent.mean(axis=1)[:, None] * n,
        "valid": np.repeat(pool.valid.mean(axis=1)[:, None], len(budgets), axis=1),
        "stopped": np.repeat(pool.stopped.mean(axis=1)[:, None], len(budgets), axis=1),
    }
    return _with_derived(values)


def expected_of_runs(pool: Pool, budgets: Sequence[int], *, first_finish: FirstFinish) -> dict[str, Floats]:
    """Means over runs, which alone are independent: the first n candidates of one run, or all of several whole runs.

    A budget beyond one run that is no whole number of runs has no such mean and is NaN, as is one with more than
    ``MOST_SUBSETS`` subsets of runs. A search that was stopped short at the end of the pool plays no part.
    """
    runs = pool.samples // pool.width
    parts = [_mean_over_runs(pool, runs, n, first_finish) for n in budgets]
    return {name: np.concatenate([part[name] for part in parts], axis=1) for name in parts[0]}


def _mean_over_runs(pool: Pool, runs: int, budget: int, first_finish: FirstFinish) -> dict[str, Floats]:
    chosen = max(1, budget // pool.width)
    subsets = list(islice(combinations(range(runs), chosen), MOST_SUBSETS + 1))
    defined = (budget <= pool.width or budget % pool.width == 0) and 0 < len(subsets) <= MOST_SUBSETS
    if not defined:
        one = prefix(pool, [1], ties="fractional", first_finish=first_finish)
        return {name: np.full_like(value, np.nan) for name, value in one.items()}
    found = [
        prefix(_of_runs(pool, subset), [budget], ties="fractional", first_finish=first_finish) for subset in subsets
    ]
    return {name: np.mean([part[name] for part in found], axis=0) for name in found[0]}


def _of_runs(pool: Pool, runs: Sequence[int]) -> Pool:
    """The pool of some runs alone, one after the other."""
    columns = (np.asarray(runs)[:, None] * pool.width + np.arange(pool.width)).ravel()
    shown = ("correct", "valid", "stopped", "finished", "tokens", "spent", "score")
    parts = {name: getattr(pool, name)[:, columns] for name in shown}
    return replace(pool, first=first_of_class(pool.first[:, columns]), **parts)


def missed(samples: int, budgets: Sequence[int]) -> Floats:
    """Chance that an n-subset of N samples avoids c given ones, C(N-c, n) / C(N, n), shape (N + 1, budgets)."""
    n, c = np.asarray(budgets, float)[None, :], np.arange(samples, dtype=float)[:, None]
    steps = np.maximum(samples - n - c, 0) / (samples - c)
    return np.vstack([np.ones((1, len(budgets))), np.cumprod(steps, axis=0)])


def expected_best(key: Floats, credit: Bools, budgets: Sequence[int]) -> Floats:
    """Mean over all n-subsets of the credit of the sample with the smallest key, shape (rows, budgets).

    Parameters
    ----------
    key : ndarray of float, shape (rows, samples)
        Samples with equal keys are equally likely to be the one chosen.
    credit : ndarray of bool, same shape
        What choosing the sample earns.
    budgets : sequence of int
        Subset sizes n <= samples.

    Notes
    -----
    The r-th smallest of N is the smallest of the subset in C(N-1-r, n-1) of C(N, n) cases. Within a group of equal keys
    samples are exchangeable, so each earns the group's mean credit.
    """
    rows, samples = key.shape
    order = np.argsort(key, axis=1)
    ranked = np.take_along_axis(key, order, axis=1)
    opens = np.ones(key.shape, dtype=bool)
    opens[:, 1:] = ranked[:, 1:] != ranked[:, :-1]
    start = np.flatnonzero(opens)
    length = np.diff(start, append=rows * samples)
    total = np.add.reduceat(np.take_along_axis(credit, order, axis=1).ravel().astype(float), start)
    shared = np.repeat(total / length, length).reshape(rows, samples)
    n, rank = np.asarray(budgets, float), np.arange(samples, dtype=float)[:, None]
    earned: Floats = shared @ (missed(samples, budgets)[:-1] * n / (samples - rank))
    return np.minimum(earned, 1.0)


def finish_key(pool: Pool, first_finish: FirstFinish) -> Floats:
    """What the first to finish has least of: generated tokens, or nothing (then order decides); inf if unfinished.

    NaN where it is generated tokens and they are unknown.
    """
    cost = pool.tokens if first_finish == "shortest" else np.zeros_like(pool.tokens)
    return np.where(pool.finished | np.isnan(cost), cost, np.inf)


def _where_known(key: Floats, values: npt.NDArray[Any]) -> Floats:
    """Undefined for the rows of a policy whose key is unknown."""
    return np.where(np.isnan(key[:, :1]), np.nan, values)


def _opens(pool: Pool) -> Bools:
    opens: Bools = pool.first == np.arange(pool.samples)
    return opens


def _first_best(key: Floats, credit: Bools, budgets: Sequence[int]) -> Bools:
    best = np.stack([key[:, :n].argmin(axis=1) for n in budgets], axis=1)
    chosen: Bools = np.take_along_axis(credit, best, axis=1)
    return chosen


def _columns(values: Iterable[Floats]) -> Floats:
    return np.stack(list(values), axis=1)


def _with_derived(values: dict[str, Floats]) -> dict[str, Floats]:
    return {**values, "D": values["P"] - values["Q"], "truncated": 1 - values["stopped"]}
