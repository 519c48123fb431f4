"""Readings of the recovery analysis that the paper leaves open."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

EnvelopeInterval = Literal["corrected", "fixed", "reselected"]


@dataclass(frozen=True)
class RecoveryOptions:
    """Every choice of the recovery stage.

    Attributes
    ----------
    default_policy : str
        pi_0, whose RL curve is the target.
    support_q : float
        Quantile of the Base policy cloud below which a value lies outside the support region, in [0, 1].
    epsilon : float
        Near-match tolerance, as a proportion; the ends belong to it.
    path_lambda : float
        Weight of the distance between neighbours on the budget-monotone path.
    l_comp, l_z, l_b : float
        Weights of d(u, u'): components, behaviour, budget.
    envelope_interval : {"corrected", "fixed", "reselected"}
        Interval of the recovery gap; see ``support``.
    draws, seed : int
        Bootstrap draws; the same seed gives the landscape's draws.
    confidence : float
        Nominal coverage, in (0, 1).
    """

    default_policy: str = "topp0.95_t1.0"
    support_q: float = 0.10
    epsilon: float = 0.03
    path_lambda: float = 0.01
    l_comp: float = 1.0
    l_z: float = 1.0
    l_b: float = 1.0
    envelope_interval: EnvelopeInterval = "corrected"
    draws: int = 2000
    seed: int = 0
    confidence: float = 0.95


DEFAULTS = RecoveryOptions()
