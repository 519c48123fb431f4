"""The planted law: what RL is made from Base by, so that the law holds for every question."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from scipy.special import xlogy

from searchlens.analysis.uncertainty import Floats
from searchlens.seeds import generator
from searchlens_lab.simulate._design import Cell, Design, budgets_of


def planted_policy(design: Design, model: str, benchmark: str, policy: str) -> str:
    """The Base policy that an RL policy is made from: pi for the default policy, otherwise the policy itself."""
    if policy != design.default_policy:
        return policy
    return design.planted.policies.get((model, benchmark), design.planted.policy)


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

    Parameters
    ----------
    solved : ndarray, shape (questions,)
        p, the probability that a sample of Base is right.
    alpha : float
        Positive.
    beta : float
        In [0, 1]. Above 1 Base would have to be made from RL.
    uniform, exponential : ndarray, shape (questions,)
        Draws from the uniform distribution on (0, 1) and from the standard exponential one.

    Returns
    -------
    ndarray, shape (questions,)
        q, with mean of (1 - q)^b = (1 - p)^(alpha b^beta) over the draws, for every p.

    Notes
    -----
    With t = -log(1 - p) and S positive and stable of index beta, -log(1 - q) = (alpha t)^(1 / beta) S, because
    E exp(-b S) = exp(-b^beta). S is drawn as by Kanter. At beta = 1, S = 1: RL is the best of alpha samples of Base. At
    beta = 0 RL solves a question always, with probability 1 - (1 - p)^alpha, or never.

    References
    ----------
    Kanter (1975), Ann. Probab. 3, 697-707; Bertoin (1999), Lect. Notes Math. 1717 (subordination).
    """
    angle = np.pi * uniform
    log_s = xlogy(beta, np.sin(beta * angle)) - np.log(np.sin(angle))
    log_s += xlogy(1 - beta, np.sin((1 - beta) * angle) / exponential)
    with np.errstate(divide="ignore", over="ignore"):
        log_t = (np.log(alpha * -np.log1p(-solved)) + log_s) / beta
        q: Floats = -np.expm1(-np.exp(log_t))
    return q
