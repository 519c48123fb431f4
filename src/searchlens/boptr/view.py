"""The estimates of a cohort on an axis of draws; draw 0 is the sample itself.

Every statistic is computed for all draws at once. So one implementation of the rule serves the sample, the bootstrap
over questions (each draw resamples questions) and the mismatched null (each draw pairs every Base with the RL of some
model).

Estimates are sums over questions, weighted by the draw, rather than proportions. First-k ones are counts of solved
questions, and equal counts are exactly equal; unbiased ones are expected counts, equal within ``fit.SAME``.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from searchlens.analysis.uncertainty import Resamples
from searchlens.boptr.cohort import Cohort, CohortPlan, DenseLandscape
from searchlens.search.kinds import controller
from searchlens.seeds import resampler

T = TypeVar("T")
Counts = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class CellCounts:
    """One Base checkpoint on one benchmark, over the policies that were sampled at every budget of B."""

    policies: tuple[str, ...]
    """In the order of the pool."""
    controllers: tuple[str, ...]
    """Name of each policy's controller. Every policy is in the full pool, autoregressive ones also in the AR pool."""
    P: Counts
    Q: Counts
    """``P``, ``Q``: weighted counts of solved questions, expected ones under that estimator. The last axis has length 1
    if all draws are equal. Shape (policies, budgets, draws), of float32."""
    tokens: npt.NDArray[np.float64]
    """Mean generated tokens per sample; NaN if unknown. Shape (policies,)."""

    @cached_property
    def index(self) -> dict[str, int]:
        """Position of each policy."""
        return {name: i for i, name in enumerate(self.policies)}

    @cached_property
    def autoregressive(self) -> Ints:
        """Positions of the policies of the AR pool."""
        return np.array([i for i, name in enumerate(self.controllers) if name == "autoregressive"], int)

    def pool(self, name: str) -> Ints:
        """Positions of the policies of a pool: ``ar`` or ``full``."""
        return self.autoregressive if name == "ar" else np.arange(len(self.policies))


@dataclass(frozen=True, eq=False)
class View:
    """The estimates of a cohort on one axis of draws; made by ``sample_view`` and its like below."""

    cohort: Cohort
    draws: int
    """Length of the axis; draw 0 is the sample itself."""
    weights: Mapping[str, Counts]
    """Benchmark to how often each question counts in each draw, shape (questions, draws), or (questions, 1) if equal in
    all draws."""
    partner: Mapping[str, Ints] = field(default_factory=dict)
    """Model to the position in ``partners`` of the model whose RL it is paired with in each draw. A model that is not a
    key keeps its own RL."""
    partners: tuple[str, ...] = ()
    """Models whose RL sides are exchanged."""
    _results: dict[Hashable, object] = field(default_factory=dict, repr=False)

    def _keep(self, key: Hashable, make: Callable[[], T]) -> T:
        if key not in self._results:
            self._results[key] = make()
        return self._results[key]  # type: ignore[return-value]

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

    def base(self, model: str, benchmark: str) -> CellCounts | None:
        """Base estimates of a cell; None if no autoregressive policy of Base was sampled there at every budget."""
        landscape = self.cohort.base(model, benchmark)
        if landscape is None:
            return None
        key = ("base", self.plan.models[model].base, benchmark)
        return self._keep(key, lambda: self.cell_counts(landscape, benchmark))

    def cell_counts(self, landscape: DenseLandscape, benchmark: str) -> CellCounts | None:
        """Estimates of a landscape, for example that of another batch, on this view's draws."""
        budgets = self.plan.budgets
        names = landscape.complete(budgets)
        controllers = tuple(controller(name, self.plan.configured) for name in names)
        if "autoregressive" not in controllers:
            return None
        P, Q = (self.counts(landscape, benchmark, metric, names, budgets) for metric in ("P", "Q"))
        tokens = np.array([landscape.tokens.get(name, np.nan) for name in names], float)
        return CellCounts(names, controllers, P, Q, tokens)

    def default(self, model: str, benchmark: str) -> Counts | None:
        """Base counts under the RL default policy, shape (budgets, draws); None if not sampled at every budget."""
        return self._curve(self.plan.models[model].base, benchmark, "P")

    def target(self, model: str, benchmark: str, metric: str = "P") -> Counts | None:
        """RL counts under the default policy, shape (budgets, draws); None if not sampled at every budget."""
        curve = self._curve(self.plan.models[model].rl, benchmark, metric)
        if curve is None or curve.shape[1] == self.draws:
            return curve
        others = [self._curve(self.plan.models[name].rl, benchmark, metric) for name in self.partners]
        if model not in self.partner or any(other is None for other in others):
            return np.broadcast_to(curve, (len(curve), self.draws))
        stacked = np.stack([other[:, 0] for other in others if other is not None], axis=1)
        return stacked[:, self.partner[model]]

    def _curve(self, checkpoint: str | None, benchmark: str, metric: str) -> Counts | None:
        """Counts of a checkpoint under the default policy."""

        def counts() -> Counts | None:
            landscape = self.cohort.landscapes.get((checkpoint, benchmark)) if checkpoint else None
            default = self.plan.default_policy
            if landscape is None or default not in landscape.complete(self.plan.budgets):
                return None
            return self.count(landscape, benchmark, metric, default, self.plan.budgets)

        return self._keep(("default", checkpoint, benchmark, metric), counts)

    def count(
        self, landscape: DenseLandscape, benchmark: str, metric: str, policy: str, budgets: Sequence[int]
    ) -> Counts:
        """Counts of one policy of a landscape at any sampled budgets, shape (budgets, draws)."""
        curve: Counts = self.counts(landscape, benchmark, metric, [policy], budgets)[0]
        return curve

    def counts(
        self, landscape: DenseLandscape, benchmark: str, metric: str, names: Sequence[str], budgets: Sequence[int]
    ) -> Counts:
        """Counts of policies of a landscape at any sampled budgets, shape (policies, budgets, draws)."""
        block = landscape.block(metric, names, budgets)
        counts: Counts = block.reshape(-1, block.shape[2]) @ self.weights[benchmark]
        return counts.reshape(*block.shape[:2], -1)


def sample_view(cohort: Cohort) -> View:
    """The sample alone, as the only draw."""
    return View(cohort, 1, {name: np.ones((n, 1), np.float32) for name, n in cohort.questions.items()})


def bootstrap_view(cohort: Cohort, draws: int, seed: int, start: int = 0, stop: int | None = None) -> View:
    """The sample, then draws ``start`` to ``stop`` of the bootstrap over questions.

    All models share the draws of a benchmark; draws of different benchmarks are independent.
    """
    weights, order = {}, list(cohort.plan.benchmarks)
    for name, n in cohort.questions.items():
        # A prime step keeps benchmarks with equally many questions apart.
        drawn = Resamples.draw(n, draws, seed + 7919 * order.index(name)).weights[:, start:stop]
        weights[name] = np.concatenate([np.ones((n, 1), np.float32), drawn], axis=1)
    return View(cohort, next(iter(weights.values())).shape[1], weights)


def nested_view(parent: View, seed: int) -> View:
    """A draw from every draw of a bootstrap view: the sample, then one resample of each resample.

    Draw i takes as many questions as draw i of the parent, from the questions of that draw. It is to that draw as that
    draw is to the sample. It depends on the seed and on the parent's draws alone.
    """
    weights, order = {}, list(parent.plan.benchmarks)
    for name, of_parent in parent.weights.items():
        n = len(of_parent)
        rng = resampler(seed, n, parent.draws, order.index(name), _NESTED)
        drawn = rng.multinomial(n, of_parent[:, 1:].T.astype(float) / n).T
        weights[name] = np.concatenate([of_parent[:, :1], drawn], axis=1).astype(np.float32)
    return View(parent.cohort, parent.draws, weights)


_NESTED = 2
"""Keeps the generator of nested draws apart from those of other resampling."""


def pairing_view(cohort: Cohort, permutations: int, seed: int) -> View:
    """The true pairing, then other pairings of Base and RL.

    Exchanged are the RL sides of the fitted models that were sampled on every fitted benchmark, so that each Base curve
    is compared with RL curves on the same questions. The other models keep their own RL. All pairings if they are no
    more than ``permutations``; otherwise this many, drawn at random after the true one. With fewer than two models to
    exchange, the true pairing alone.
    """
    plan = cohort.plan
    paired = [d for d in plan.with_role("fitted") if any(cohort.rl(m, d) for m in plan.fitted_models)]
    exchanged = [name for name in plan.fitted_models if all(_complete(cohort, name, d) for d in paired)]
    # Orders of the models, one per column, the natural one first.
    models = len(exchanged)
    if math.factorial(models) <= permutations:
        order = np.array(list(itertools.permutations(range(models))), np.int64).T
    else:
        order = np.tile(np.arange(models)[:, None], (1, permutations))
        order[:, 1:] = resampler(seed, models, permutations).permuted(order[:, 1:], axis=0)
    partner = {name: order[i] for i, name in enumerate(exchanged)}
    weights = {name: np.ones((n, 1), np.float32) for name, n in cohort.questions.items()}
    return View(cohort, order.shape[1], weights, partner, tuple(exchanged))


def _complete(cohort: Cohort, model: str, benchmark: str) -> bool:
    """Whether both sides of a cell were sampled at every budget."""
    plan, base, rl = cohort.plan, cohort.base(model, benchmark), cohort.rl(model, benchmark)
    if base is None or rl is None:
        return False
    return bool(base.complete(plan.budgets)) and plan.default_policy in rl.complete(plan.budgets)
