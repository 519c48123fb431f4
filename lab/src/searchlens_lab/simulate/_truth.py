"""The truth of a simulated study: readouts in the population of questions, and the planted parameters."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from scipy.optimize import brentq
from scipy.special import ndtri
from scipy.stats import qmc

from searchlens.analysis.uncertainty import Floats
from searchlens.errors import InputError
from searchlens_lab.simulate._answers import Latents, native, under
from searchlens_lab.simulate._design import BASE_ONLY, CONTINUOUS, Cell, Design, Side, checkpoint
from searchlens_lab.simulate._law import planted_constants, planted_path, planted_policy

POPULATION = 2**15
"""Questions that represent the population: scrambled Sobol points, whose means err by about 1e-5."""


@dataclass(frozen=True, eq=False)
class Truth:
    """Population readouts of a simulated study."""

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
            policies = [planted_policy(self.design, model, benchmark, name) for name in policies]
            return self.P(model, "base", benchmark, policies, [path[int(n)] for n in budgets])
        if side == "rl" and self.design.mode in CONTINUOUS:
            alpha, beta = planted_constants(self.design, cell)
            policies = [planted_policy(self.design, model, benchmark, name) for name in policies]
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
                sides: tuple[Side, ...] = ("base",) if item.role in BASE_ONLY else ("base", "rl")
                if (model, benchmark) not in design.missing:
                    curves[f"{model}/{benchmark}"] = {side: self._record(model, side, benchmark) for side in sides}
        return {
            "mode": design.mode,
            "seed": self.seed,
            "default_policy": design.default_policy,
            "budgets": list(design.budgets),
            "models": {name: asdict(model) for name, model in design.models.items()},
            "population": curves,
            "planted": self._planted() if design.mode in ("planted", *CONTINUOUS) else None,
        }

    def _record(self, model: str, side: Side, benchmark: str) -> list[float]:
        return [float(p) for p in self.P(model, side, benchmark, [self.design.default_policy], self.design.budgets)[0]]

    def _planted(self) -> dict[str, Any]:
        design, law = self.design, self.design.planted
        cells = {}
        for model in design.models:
            for benchmark, item in design.benchmarks.items():
                if item.role in BASE_ONLY or (model, benchmark) in design.missing:
                    continue
                cell = self._cell(model, "rl", benchmark)
                alpha, beta = planted_constants(design, cell)
                policy = planted_policy(design, model, benchmark, design.default_policy)
                cells[f"{model}/{benchmark}"] = {"alpha": alpha, "beta": beta, "policy": policy}
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
