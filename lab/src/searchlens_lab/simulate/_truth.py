"""What the checkpoints of a simulated study answer, the law that is planted, and estimates of the population."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import brentq
from scipy.special import expit, log_softmax, ndtri, softmax, xlogy
from scipy.stats import qmc

from searchlens.analysis.uncertainty import Floats
from searchlens.errors import InputError
from searchlens.seeds import generator
from searchlens_lab.simulate._design import (
    BASE_ONLY,
    CONTINUOUS,
    BaseModel,
    Cell,
    Design,
    PolicyEffect,
    RLEffect,
    Side,
    SimBenchmark,
    budgets_of,
    checkpoint,
    sides_of,
)

# ---- answer distributions: of a Base model, after RL, and under a policy

CUT_SHARE = 0.6
"""Share of the samples without a valid answer that were cut off by the token limit."""

_ATTRACTION = 0.7
"""Spread over questions of the log-probability of a wrong answer."""
_DECAY = 0.6
"""By how much each wrong answer is less likely than the one before, in log-probability."""
_STRANGE_ABILITY, _STRANGE_SPREAD = -1.3, 1.3
"""Mode ``unrelated``: mean and standard deviation of the ability of the Base models that RL models were made from."""
_STRANGE_INVALID = -2.2
"""Their log-odds of giving no valid answer."""


class Latents(NamedTuple):
    """Standard normal variables of questions, for one Base model."""

    ease: Floats
    """x: how likely the right answer is. Shape (questions,)."""
    trouble: Floats
    """How likely no valid answer is; independent of ``ease``. Shape (questions,)."""
    attraction: Floats
    """How likely each wrong answer is. Shape (questions, wrong)."""


@dataclass(frozen=True, eq=False)
class Answers:
    """Answer distributions of a checkpoint at temperature 1 without filters."""

    logp: Floats
    """Natural log-probabilities of valid answers, given a valid answer; the right one first. Shape (questions, 1 +
    wrong)."""
    invalid: Floats
    """Log-odds of giving no valid answer. Shape (questions,)."""


def base_answers(model: BaseModel, benchmark: SimBenchmark, questions: Latents) -> Answers:
    """Answers of a Base model: the right one has the log-odds level + slope ability + spread x, wrong ones the rest."""
    right = benchmark.level + benchmark.slope * model.ability + benchmark.spread * questions.ease
    wrong = log_softmax(_ATTRACTION * questions.attraction - _DECAY * np.arange(benchmark.wrong), axis=1)
    logp = np.column_stack([-np.logaddexp(0, -right), wrong - np.logaddexp(0, right)[:, None]])
    trouble = 0.5 * (np.sqrt(3) * questions.trouble - questions.ease)
    return Answers(logp, model.invalid + benchmark.invalid + trouble)


def rl_answers(base: Answers, effect: RLEffect, transfer: float) -> Answers:
    """RL as a transform of Base: q ~ p^gamma e^(r [right]) p / (p + tau); then new support nu; then termination."""
    gamma = 1 + (effect.sharpening - 1) * transfer
    survival = -np.log1p(effect.loss * transfer * np.exp(-base.logp))
    logits = gamma * base.logp + survival
    logits[:, 0] += effect.reward * transfer
    q = softmax(logits, axis=1) * (1 - effect.support * transfer)
    q[:, 0] += effect.support * transfer
    with np.errstate(divide="ignore"):
        return Answers(np.log(q), base.invalid - effect.termination * transfer)


def native(design: Design, seed: int, cell: Cell, questions: Latents) -> Answers:
    """Answers of the checkpoint of a cell; where RL follows from Base's samples or is Base, those of its Base."""
    model, benchmark = design.models[cell.model], design.benchmarks[cell.benchmark]
    if cell.side == "base" or design.mode in ("planted", *CONTINUOUS, "equal"):
        return base_answers(design.bases[model.base], benchmark, questions)
    if design.mode == "transform":
        base = base_answers(design.bases[model.base], benchmark, questions)
        return rl_answers(base, model.effect, benchmark.transfer)
    # An unrelated RL model was made from a random Base model, independent of the model's own one.
    deviation = float(generator("simulate", seed, "stranger", cell.model).standard_normal())
    stranger = BaseModel(_STRANGE_ABILITY + _STRANGE_SPREAD * deviation, _STRANGE_INVALID)
    return rl_answers(base_answers(stranger, benchmark, questions), RLEffect(), benchmark.transfer)


def question_latents(design: Design, seed: int, cell: Cell) -> Latents:
    """The questions for the checkpoint of a cell: those of its Base, unless RL is unrelated to Base.

    More questions leave the first ones as they are.
    """
    item = design.benchmarks[cell.benchmark]
    if cell.side == "rl" and design.mode == "unrelated":
        random = generator("simulate", seed, "stranger", cell.model, cell.benchmark)
        values = random.standard_normal((item.questions, 2 + item.wrong))
        return Latents(values[:, 0], values[:, 1], values[:, 2:])
    common = generator("simulate", seed, "questions", cell.benchmark).standard_normal((item.questions, 2 + item.wrong))
    base = design.models[cell.model].base
    skill = generator("simulate", seed, "skill", base, cell.benchmark).standard_normal(item.questions)
    ease = np.sqrt(design.shared) * common[:, 0] + np.sqrt(1 - design.shared) * skill
    return Latents(ease, common[:, 1], common[:, 2:])


def under(answers: Answers, policy: PolicyEffect) -> tuple[Floats, Floats]:
    """Probabilities under a policy: of each answer, (questions, 1 + wrong), and of no valid answer, (questions,)."""
    invalid = expit(answers.invalid + policy.derail)
    p = softmax(policy.concentration * answers.logp, axis=1) * (1 - invalid)[:, None]
    return p, invalid


# ---- the planted law: what RL is made from Base by, so that the law holds for every question


def planted_policy(design: Design, policy: str) -> str:
    """The Base policy that an RL policy is made from: pi for the default policy, otherwise the policy itself."""
    return design.planted.policy if policy == design.default_policy else policy


def planted_constants(design: Design, cell: Cell) -> tuple[float, float]:
    """Constants of a cell: alpha and beta."""
    regime = design.benchmarks[cell.benchmark].regime
    return math.exp(design.planted.mu[regime] + design.models[cell.model].delta), design.planted.beta[regime]


def planted_path(design: Design, cell: Cell) -> dict[int, int]:
    """N(b) for every budget of a cell: the power of two nearest to alpha b^beta in log2, halves rounded up.

    Clipped to B for b in B and to the pool for larger budgets, as by the rule with the larger B. The rounding does not
    use ``boptr.fit``, because the truth must not come from the code that it tests.
    """
    alpha, beta = planted_constants(design, cell)
    pool = design.pools(cell)[design.default_policy]
    path = {}
    for budget in budgets_of(design, pool):
        log2 = math.log2(alpha) + beta * math.log2(budget)
        top = max(design.budgets) if budget <= max(design.budgets) else pool
        path[budget] = min(max(2 ** math.floor(log2 + 0.5 + 1e-9), 1), top)
    return path


def groups(path: dict[int, int], samples: int) -> list[Sequence[int]]:
    """For each RL sample, the group of Base samples that it is made from.

    The RL sample equals the first right Base sample of its group, or the first one if none is right.

    ``path``: budget to N(b), both increasing, budgets starting with 1. ``samples``: number of RL samples; those after
    the last budget repeat earlier ones. For every budget b the first b groups cover exactly the Base samples 0
    .. N(b) - 1. So one of the first b RL samples is right if and only if one of the first N(b) Base samples is. If no
    Base sample remains for an RL sample, its group is an earlier one.
    """
    chosen: list[Sequence[int]] = []
    used = 0
    for budget, n in path.items():
        parts = np.array_split(np.arange(used, n), budget - len(chosen))
        chosen += [part.tolist() or [(len(chosen) + i) % n] for i, part in enumerate(parts)]
        used = n
    return chosen + [[i % used] for i in range(len(chosen), samples)]


def planted_shares(design: Design, seed: int, cell: Cell, shares: Floats) -> Floats:
    """What RL answers in modes ``continuous`` and ``ceiling``, from what Base answers.

    ``shares``: probabilities of Base, the right answer first. The right answer follows the law, the other
    outcomes keep their proportions. The random part of a question is the same under all policies.
    """
    random = 1 - generator("simulate", seed, "law", cell.model, cell.benchmark).random((shares.shape[1], 3))
    right = power_law(shares[0], *planted_constants(design, cell), random[:, 0], -np.log(random[:, 1]))
    if design.mode == "ceiling":
        right = np.where(random[:, 2] <= design.planted.ceiling, right, 0)
    return np.vstack([right, shares[1:] * ((1 - right) / (1 - shares[0]))])


def power_law(solved: Floats, alpha: float, beta: float, uniform: Floats, exponential: Floats) -> Floats:
    """Probabilities of RL, such that b of its samples solve as much as alpha b^beta of Base, for every real b > 0.

    ``solved``: p, the probability that a sample of Base is right. ``alpha``: positive. ``beta``: in [0, 1]; above 1
    Base would have to be made from RL. ``uniform``, ``exponential``: draws from the uniform distribution on (0, 1) and
    from the standard exponential one. All arrays have shape (questions,). Returns q, with mean of (1 - q)^b =
    (1 - p)^(alpha b^beta) over the draws, for every p.

    With t = -log(1 - p) and S positive and stable of index beta, -log(1 - q) = (alpha t)^(1 / beta) S, because
    E exp(-b S) = exp(-b^beta). S is drawn as by Kanter (1975), Ann. Probab. 3, 697-707; see Bertoin (1999), Lect. Notes
    Math. 1717 (subordination). At beta = 1, S = 1: RL is the best of alpha samples of Base. At beta = 0 RL solves a
    question always, with probability 1 - (1 - p)^alpha, or never.
    """
    angle = np.pi * uniform
    log_s = xlogy(beta, np.sin(beta * angle)) - np.log(np.sin(angle))
    log_s += xlogy(1 - beta, np.sin((1 - beta) * angle) / exponential)
    with np.errstate(divide="ignore", over="ignore"):
        log_t = (np.log(alpha * -np.log1p(-solved)) + log_s) / beta
        q: Floats = -np.expm1(-np.exp(log_t))
    return q


# ---- estimates in the population of questions

POPULATION = 2**15
"""Questions that represent the population: scrambled Sobol points, whose means err by about 1e-5."""


@dataclass(frozen=True, eq=False)
class Truth:
    """Population estimates of a simulated study."""

    design: Design
    seed: int
    """As given to ``simulate``. The population is the same for all seeds, except in mode ``unrelated``, where the seed
    draws the RL models."""
    _curves: dict[tuple[Cell, str, float], float] = field(default_factory=dict, repr=False)

    def P(  # noqa: N802
        self, model: str, side: Side, benchmark: str, policies: Sequence[str], budgets: Sequence[float]
    ) -> Floats:
        """Expected pass@n, over samples and questions.

        ``budgets``: n > 0, where it is no whole number by 1 - (1 - p)^n; for RL in mode ``planted`` only budgets of the
        cell. Raises InputError if the design does not sample this side, or no law is planted at a budget.
        """
        cell = self._cell(model, side, benchmark)
        if side == "rl" and self.design.mode == "planted":
            path = planted_path(self.design, cell)
            missing = [n for n in budgets if n not in path]
            if missing:
                raise InputError(f"budgets: no law is planted at {missing}; {benchmark} has {sorted(path)}")
            policies = [planted_policy(self.design, name) for name in policies]
            return self.P(model, "base", benchmark, policies, [path[int(n)] for n in budgets])
        if side == "rl" and self.design.mode in CONTINUOUS:
            alpha, beta = planted_constants(self.design, cell)
            policies = [planted_policy(self.design, name) for name in policies]
            reached = self.P(model, "base", benchmark, policies, [alpha * n**beta for n in budgets])
            return reached * (self.design.planted.ceiling if self.design.mode == "ceiling" else 1)
        self._compute(cell, policies, budgets)
        curves = [[self._curves[cell, name, n] for n in budgets] for name in policies]
        return np.array(curves).reshape(len(policies), len(budgets))

    def equivalent(self, model: str, benchmark: str, policy: str, budgets: Sequence[int]) -> Floats:
        """N*(b): the real number of samples at which Base solves as much as RL with b of the default policy.

        ``policy``: of Base. The result is within 2^-20 to 2^40; inf where Base never solves as much.
        """
        targets = self.P(model, "rl", benchmark, [self.design.default_policy], budgets)[0]
        ((_, log_wrong),) = self._log_wrong(self._cell(model, "base", benchmark), [policy])

        def excess(log2_n: float, target: float) -> float:
            return float(-np.expm1(2**log2_n * log_wrong).mean() - target)

        found = [brentq(excess, -20, 40, (target,)) if excess(40, target) > 0 else np.inf for target in targets]
        return np.exp2(found)

    def mech_p(self, model: str, benchmark: str, path: Sequence[tuple[str, int]]) -> float:
        """True error of a path: 100 mean_b |P_Base(pi_b, N_b) - P_RL(b)|, in percentage points.

        ``path``: Base operating points, one for each budget of the design.
        """
        budgets = self.design.budgets
        base = [self.P(model, "base", benchmark, [name], [n])[0, 0] for name, n in path]
        rl = self.P(model, "rl", benchmark, [self.design.default_policy], budgets)[0]
        return float(100 * np.abs(np.array(base) - rl).mean())

    def record(self) -> dict[str, Any]:
        """The content of ``truth.json``, as plain JSON types."""
        design = self.design
        curves = {}
        for model in design.models:
            for benchmark, item in design.benchmarks.items():
                if (model, benchmark) not in design.missing:
                    curves[f"{model}/{benchmark}"] = {
                        side: self.P(model, side, benchmark, [design.default_policy], design.budgets)[0].tolist()
                        for side in sides_of(item)
                    }
        return {
            "mode": design.mode,
            "seed": self.seed,
            "default_policy": design.default_policy,
            "budgets": list(design.budgets),
            "models": {name: asdict(model) for name, model in design.models.items()},
            "population": curves,
            "planted": self._planted() if design.mode in ("planted", *CONTINUOUS) else None,
        }

    def _planted(self) -> dict[str, Any]:
        design, law = self.design, self.design.planted
        cells = {}
        for model in design.models:
            for benchmark, item in design.benchmarks.items():
                if item.role in BASE_ONLY or (model, benchmark) in design.missing:
                    continue
                cell = self._cell(model, "rl", benchmark)
                alpha, beta = planted_constants(design, cell)
                cells[f"{model}/{benchmark}"] = {"alpha": alpha, "beta": beta, "policy": law.policy}
                if design.mode == "planted":
                    path = {str(b): n for b, n in planted_path(design, cell).items()}
                    cells[f"{model}/{benchmark}"]["path"] = path
        ceiling = law.ceiling if design.mode == "ceiling" else 1
        return {"mu": dict(law.mu), "beta": dict(law.beta), "ceiling": ceiling, "cells": cells}

    def _cell(self, model: str, side: Side, benchmark: str) -> Cell:
        design = self.design
        if side == "rl" and design.benchmarks[benchmark].role in BASE_ONLY:
            raise InputError(f"{benchmark} has no RL side: its role is {design.benchmarks[benchmark].role}")
        name = design.models[model].base if side == "base" else model
        return Cell(checkpoint(name, side), model, side, benchmark)

    def _compute(self, cell: Cell, policies: Sequence[str], budgets: Sequence[float]) -> None:
        """Compute the mean over questions of 1 - (1 - p)^n at the points that have none yet."""
        missing = {name for name in policies if any((cell, name, n) not in self._curves for n in budgets)}
        for name, log_wrong in self._log_wrong(cell, missing) if missing else ():
            for n in {*budgets, *self.design.budgets}:
                self._curves[cell, name, n] = float(-np.expm1(n * log_wrong).mean())

    def _log_wrong(self, cell: Cell, policies: Iterable[str]) -> Iterator[tuple[str, Floats]]:
        """Policies, each with log(1 - p) of every question of the population."""
        answers = native(self.design, self.seed, cell, _population(self.design.benchmarks[cell.benchmark].wrong))
        for policy in policies:
            p, _ = under(answers, self.design.effect(cell.benchmark, policy))
            yield policy, np.log1p(-p[:, 0])


@functools.cache
def _population(wrong: int) -> Latents:
    """Latent variables of the population: low-discrepancy normals."""
    points = qmc.Sobol(2 + wrong, rng=np.random.default_rng(0)).random(POPULATION)
    values = ndtri(np.clip(points, 1e-12, 1 - 1e-12))
    return Latents(values[:, 0], values[:, 1], values[:, 2:])
