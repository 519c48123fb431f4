"""Options of the recovery stage: choices that the paper leaves open."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from searchlens.config.limits import Nonnegative, Proportion, Strict

EnvelopeInterval = Literal["corrected", "fixed", "reselected"]


@dataclass(frozen=True, kw_only=True)
class RecoverySection(Strict):
    """Choices about the recovery analysis (paper, section "Base+Search Envelopes") that the paper leaves open."""

    support_q: Proportion = 0.10
    """Lower edge of the support region: this quantile of the Base policies at a budget."""
    epsilon: Proportion = 0.03
    """Tolerance of the near-match set, as a proportion; both ends belong to it."""
    l_comp: Nonnegative = 1.0
    """Weight of the share of components that differ, in the distance d(u, u') of operating points."""
    l_z: Nonnegative = 1.0
    """Weight of the difference in behaviour (P, Q, T, D, C), in the same distance."""
    l_b: Nonnegative = 1.0
    """Weight of the difference in log budget, in the same distance."""


@dataclass(frozen=True, kw_only=True)
class RecoveryOptions(RecoverySection):
    """Section ``recovery``, and what the stage takes from the rest of the configuration."""

    default_policy: str = "topp0.95_t1.0"
    """pi_0, whose RL curve is the target."""
    draws: int = 2000
    """Bootstrap draws, as many as the landscape's."""
    seed: int = 0
    """The same seed as the landscape's gives the same draws."""
    confidence: float = 0.95
    """Nominal coverage of all intervals, in (0, 1)."""
    path_lambda: float = 0.01
    """Weight of the distance between consecutive points on the budget-monotone path."""
    envelope_interval: EnvelopeInterval = "corrected"
    """Interval of the recovery gap. corrected: it allows for the optimism of taking the best of many readouts; fixed:
    the best operating point is kept in every draw; reselected: it is chosen again in every draw."""


DEFAULTS = RecoveryOptions()
