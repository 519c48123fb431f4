"""The planted law: the Base samples that each RL sample is made from, so that the law holds for every question."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from searchlens.simulate._design import Cell, Design, budgets_of


def planted_policy(design: Design, model: str, benchmark: str, policy: str) -> str:
    """The Base policy that an RL policy is made from: pi for the default policy, otherwise the policy itself."""
    if policy != design.default_policy:
        return policy
    return design.planted.policies.get((model, benchmark), design.planted.policy)


def planted_path(design: Design, cell: Cell) -> dict[int, int]:
    """N(b) for every budget of a cell: the power of two nearest to alpha b^beta in log2, halves rounded up.

    Clipped to B for b in B and to the pool for larger budgets, as by the rule with the larger B. The rounding does not
    use ``boptr.fit``, because the truth must not come from the code that it tests.
    """
    regime = design.benchmarks[cell.benchmark].regime
    alpha = design.planted.mu[regime] + design.models[cell.model].delta
    pool = design.pools(cell)[design.default_policy]
    path = {}
    for budget in budgets_of(design, pool):
        log2 = (alpha + design.planted.beta[regime] * math.log(budget)) / math.log(2)
        top = max(design.budgets) if budget <= max(design.budgets) else pool
        path[budget] = min(max(2 ** math.floor(log2 + 0.5 + 1e-9), 1), top)
    return path


def groups(path: dict[int, int], samples: int) -> list[Sequence[int]]:
    """For each RL sample, the group of Base samples that it is made from.

    The RL sample equals the first right Base sample of its group, or the first one if none is right.

    Parameters
    ----------
    path : dict
        Budget to N(b), both increasing, budgets starting with 1.
    samples : int
        Number of RL samples; those after the last budget repeat earlier ones.

    Returns
    -------
    list of sequence of int, length samples
        For every budget b the first b groups cover exactly the Base samples 0 .. N(b) - 1. So one of the first b RL
        samples is right if and only if one of the first N(b) Base samples is. If no Base sample remains for an RL
        sample, its group is an earlier one.
    """
    chosen: list[Sequence[int]] = []
    used = 0
    for budget, n in path.items():
        parts = np.array_split(np.arange(used, n), budget - len(chosen))
        chosen += [part.tolist() or [(len(chosen) + i) % n] for i, part in enumerate(parts)]
        used = n
    return chosen + [[i % used] for i in range(len(chosen), samples)]
