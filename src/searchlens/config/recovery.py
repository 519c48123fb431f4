"""Options of the recovery stage: choices that the paper leaves open."""

from __future__ import annotations

from dataclasses import dataclass

from searchlens.config.limits import Nonnegative, Proportion, Strict


@dataclass(frozen=True, kw_only=True)
class RecoveryOptions(Strict):
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
