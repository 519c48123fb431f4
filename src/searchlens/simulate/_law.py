"""The planted law: which Base samples stand behind each RL sample, so that it holds for every question."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from searchlens.simulate._design import Cell, Design, budgets_of


def planted_policy(design: Design, model: str, benchmark: str, policy: str) -> str:
    """The Base policy behind an RL policy: pi for the default policy, the policy itself otherwise."""
    if policy != design.default_policy:
        return policy
    return design.planted.policies.get((model, benchmark), design.planted.policy)


def planted_path(design: Design, cell: Cell) -> dict[int, int]:
    """N(b) for every budget of a cell: nearest power of two to alpha b^beta in log2, half up.

    Clipped to B for b in B, and to the pool for budgets beyond, as the rule with the longer B would. Stated here anew,
    because a truth taken from the code that it tests would be none.
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
    """For each RL sample, the Base samples of which it is the first right one, or the first if none is right.

    Parameters
    ----------
    path : dict
        Budget to N(b), both increasing, budgets starting with 1.
    samples : int
        RL samples; those beyond the last budget repeat earlier ones.

    Returns
    -------
    list of sequence of int, length samples
        The first b groups cover exactly the Base samples 0 .. N(b)-1, for every budget b: so any of the first b RL
        samples is right exactly where any of the first N(b) Base samples is. An RL sample for which no Base sample is
        left repeats an earlier one.
    """
    chosen: list[Sequence[int]] = []
    done = 0
    for budget, n in path.items():
        fresh = np.array_split(np.arange(done, n), budget - len(chosen))
        chosen += [part.tolist() or [(len(chosen) + i) % n] for i, part in enumerate(fresh)]
        done = n
    last = done
    return chosen + [[i % last] for i in range(len(chosen), samples)]
