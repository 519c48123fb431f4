"""A cohort's readouts along an axis of draws, of which the first is always the sample itself.

Whatever is computed from readouts is computed for all draws at once, so a rule is written once and serves the sample,
the bootstrap over questions (draws resample questions) and the mismatched null (draws pair every Base with another
model's RL).

Readouts are counts of questions, weighted by the draw, so that ties stay exact.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from searchlens.boptr.cohort import Cohort, CohortPlan, DenseLandscape
from searchlens.policies.kinds import is_search
from searchlens.seeds import resampler
from searchlens.uncertainty import Resamples

Counts = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Readouts:
    """One Base checkpoint on one benchmark, over the policies that were sampled at every budget of B.

    Attributes
    ----------
    policies : tuple of str
        Order of the pool.
    search : ndarray of bool, shape (policies,)
        Policies of the expanded pool.
    P, Q : ndarray of float32, shape (policies, budgets, draws)
        Weighted counts of solved questions; draws may be 1 where they are all alike.
    tokens : ndarray, shape (policies,)
        Mean generated tokens per sample; NaN where unknown.
    """

    policies: tuple[str, ...]
    search: npt.NDArray[np.bool_]
    P: Counts
    Q: Counts
    tokens: npt.NDArray[np.float64]

    @cached_property
    def index(self) -> dict[str, int]:
        """Position of each policy."""
        return {name: i for i, name in enumerate(self.policies)}

    @cached_property
    def autoregressive(self) -> Ints:
        """Positions of the policies of the AR pool."""
        found: Ints = np.flatnonzero(~self.search)
        return found

    def pool(self, name: str) -> Ints:
        """Positions of the policies of a pool, ``ar`` or ``full``."""
        return self.autoregressive if name == "ar" else np.arange(len(self.policies))


@dataclass(frozen=True, eq=False)
class View:
    """Readouts on one axis of draws.

    Use ``sample_view``, ``bootstrap_view`` or ``pairing_view``.

    Attributes
    ----------
    cohort : Cohort
    draws : int
        Length of the axis; draw 0 is the sample itself.
    weights : mapping
        Benchmark to how often each question counts in each draw, shape (questions, draws) or (questions, 1).
    partner : mapping
        Model to the model whose RL it is paired with in each draw, as positions in ``partners``; empty: its own.
    partners : tuple of str
    """

    cohort: Cohort
    draws: int
    weights: Mapping[str, Counts]
    partner: Mapping[str, Ints] = field(default_factory=dict)
    partners: tuple[str, ...] = ()
    _kept: dict[Any, Any] = field(default_factory=dict, repr=False)

    @property
    def plan(self) -> CohortPlan:
        """What the cohort consists of."""
        return self.cohort.plan

    @property
    def levels(self) -> int:
        """Number of budgets."""
        return len(self.plan.budgets)

    def total(self, benchmark: str) -> float:
        """Weighted number of questions, the same in every draw."""
        return float(self.weights[benchmark][:, 0].sum())

    def base(self, model: str, benchmark: str) -> Readouts | None:
        """Base readouts of a cell; None where Base was not sampled there, without a controller, at every budget."""
        checkpoint = self.plan.models[model].base
        if (checkpoint, benchmark) not in self._kept:
            found = self.cohort.landscapes.get((checkpoint, benchmark))
            self._kept[checkpoint, benchmark] = self._readouts(found, benchmark) if found else None
        found_readouts: Readouts | None = self._kept[checkpoint, benchmark]
        return found_readouts

    def default(self, model: str, benchmark: str) -> Counts | None:
        """Base counts under the RL default policy, shape (budgets, draws); None where Base was not sampled so."""
        key = ("default", self.plan.models[model].base, benchmark)
        if key not in self._kept:
            found, name = self.cohort.base(model, benchmark), self.plan.default_policy
            known = found is not None and name in found.complete(self.plan.budgets)
            self._kept[key] = self.count(found, benchmark, "P", name, self.plan.budgets) if found and known else None
        curve: Counts | None = self._kept[key]
        return curve

    def readouts(self, landscape: DenseLandscape, benchmark: str) -> Readouts | None:
        """Readouts of any landscape on this view's draws, for example of another sampling batch."""
        return self._readouts(landscape, benchmark)

    def target(self, model: str, benchmark: str, metric: str = "P") -> Counts | None:
        """RL counts under the default policy, shape (budgets, draws); None where RL was not sampled so."""
        own = self._curve(model, benchmark, metric)
        if own is None or own.shape[1] == self.draws:
            return own
        curves = [self._curve(name, benchmark, metric) for name in self.partners]
        if model not in self.partner or any(curve is None for curve in curves):
            return np.broadcast_to(own, (len(own), self.draws))
        stacked = np.stack([curve[:, 0] for curve in curves if curve is not None], axis=1)
        paired: Counts = stacked[:, self.partner[model]]
        return paired

    def count(
        self, landscape: DenseLandscape, benchmark: str, metric: str, policy: str, budgets: Sequence[int]
    ) -> Counts:
        """Counts of one policy of a landscape at budgets of any size, shape (budgets, draws)."""
        found: Counts = self.counts(landscape, benchmark, metric, [policy], budgets)[0]
        return found

    def counts(
        self, landscape: DenseLandscape, benchmark: str, metric: str, names: Sequence[str], budgets: Sequence[int]
    ) -> Counts:
        """Counts of policies of a landscape at budgets of any size, shape (policies, budgets, draws)."""
        block = landscape.block(metric, names, budgets)
        counts: Counts = block.reshape(-1, block.shape[2]) @ self.weights[benchmark]
        return counts.reshape(*block.shape[:2], -1)

    def _curve(self, model: str, benchmark: str, metric: str) -> Counts | None:
        key = ("rl", model, benchmark, metric)
        if key not in self._kept:
            found, default = self.cohort.rl(model, benchmark), self.plan.default_policy
            known = found is not None and default in found.complete(self.plan.budgets)
            self._kept[key] = (
                self.count(found, benchmark, metric, default, self.plan.budgets) if found and known else None
            )
        curve: Counts | None = self._kept[key]
        return curve

    def _readouts(self, landscape: DenseLandscape, benchmark: str) -> Readouts | None:
        budgets = self.plan.budgets
        names = landscape.complete(budgets)
        if all(is_search(name) for name in names):
            return None
        P, Q = (self.counts(landscape, benchmark, metric, names, budgets) for metric in ("P", "Q"))
        tokens = np.array([landscape.tokens.get(name, np.nan) for name in names], float)
        return Readouts(names, np.array([is_search(name) for name in names]), P, Q, tokens)


def _questions(cohort: Cohort) -> dict[str, int]:
    return {benchmark: len(found.questions) for (_, benchmark), found in cohort.landscapes.items()}


def sample_view(cohort: Cohort) -> View:
    """The sample alone: one draw."""
    return View(cohort, 1, {name: np.ones((n, 1), np.float32) for name, n in _questions(cohort).items()})


def bootstrap_view(cohort: Cohort, draws: int, seed: int, start: int = 0, stop: int | None = None) -> View:
    """The sample, then draws ``start`` to ``stop`` of the bootstrap over questions.

    Draws are shared by everything on the same benchmark and independent between benchmarks.
    """
    weights, place = {}, list(cohort.plan.benchmarks)
    for name, n in _questions(cohort).items():
        drawn = Resamples.draw(n, draws, seed + 7919 * place.index(name)).weights[:, start:stop]
        weights[name] = np.concatenate([np.ones((n, 1), np.float32), drawn], axis=1)
    return View(cohort, next(iter(weights.values())).shape[1], weights)


def pairing_view(cohort: Cohort, permutations: int, seed: int) -> View:
    """The true pairing, then re-pairings of the fitted models that were sampled on every fitted benchmark.

    All of them where there are no more than ``permutations``, random ones otherwise. Models with a cell missing keep
    their own RL: a Base curve is compared with RL curves of its own questions alone.
    """
    plan = cohort.plan
    whole = [name for name in plan.fitted_models if all(_complete(cohort, name, d) for d in _paired(cohort))]
    order = _orders(len(whole), permutations, seed)
    partner = {name: order[i] for i, name in enumerate(whole)}
    weights = {name: np.ones((n, 1), np.float32) for name, n in _questions(cohort).items()}
    return View(cohort, order.shape[1], weights, partner, tuple(whole))


def _complete(cohort: Cohort, model: str, benchmark: str) -> bool:
    """Whether both sides of a cell can be read at every budget."""
    plan, ours, theirs = cohort.plan, cohort.base(model, benchmark), cohort.rl(model, benchmark)
    known = bool(ours and theirs and ours.complete(plan.budgets))
    return known and theirs is not None and plan.default_policy in theirs.complete(plan.budgets)


def _orders(models: int, permutations: int, seed: int) -> Ints:
    """Orders of the models, one per column, the natural one first."""
    if math.factorial(models) <= permutations:
        return np.array(list(itertools.permutations(range(models))), np.int64).T
    rng = resampler(seed, models, permutations)
    order = np.tile(np.arange(models)[:, None], (1, permutations))
    order[:, 1:] = rng.permuted(order[:, 1:], axis=0)
    return order


def _paired(cohort: Cohort) -> list[str]:
    plan = cohort.plan
    return [d for d in plan.with_role("fitted") if any(cohort.rl(m, d) for m in plan.fitted_models)]
