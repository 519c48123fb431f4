"""Features of a Base checkpoint on the prompts that its RL was trained on (base@rltrain); no RL is read.

P_max@16 is the pass rate of the best autoregressive policy at the largest budget, P_0 that of the default policy at one
sample,

    u = sqrt((1 - P_0) headroom),

and N* is the saturation knee of the default policy (paper, appendix "RL-information budget frontier"). Searches do not
count, because the expanded pool differs between models.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from searchlens.boptr.knee import TAU, knee
from searchlens.boptr.rule import Reason, Rule
from searchlens.uncertainty import Floats

FEATURES = ("p_max", "p0", "u", "log2_n_star")
"""Order of ``Fingerprint.vector``."""


@dataclass(frozen=True, eq=False)
class Fingerprint:
    """Features of one Base, each of shape (draws,)."""

    p_max: Floats
    p0: Floats
    """``p_max``, ``p0``: pass rates, in [0, 1]."""
    u: Floats
    """Sampling-headroom prior; NaN if P_max < P_0, which does not occur: no readout of P falls with the budget."""
    log2_n_star: Floats
    """Saturation knee, in [0, log2 max(B)]."""

    @property
    def vector(self) -> Floats:
        """All of ``FEATURES``, shape (features, draws)."""
        return np.stack([getattr(self, name) for name in FEATURES])


def fingerprint(rule: Rule, model: str, tau: float = TAU) -> Fingerprint | Reason:
    """Features of a model's Base on its own RL-training split.

    Parameters
    ----------
    tau : float, optional
        Tolerance of N*, a proportion.

    Returns
    -------
    Fingerprint or Reason
        ``no_rltrain`` if Base was not sampled on the split at every budget, ``policy_missing`` if not under the default
        policy.
    """
    return rule.keep(("fingerprint", model, tau), lambda: _fingerprint(rule, model, tau), shared=True)


def _fingerprint(rule: Rule, model: str, tau: float) -> Fingerprint | Reason:
    split = rule.plan.rltrain(model)
    base = rule.view.base(model, split) if split else None
    if split is None or base is None:
        return Reason("no_rltrain")
    if rule.plan.default_policy not in base.index:
        return Reason("policy_missing")
    draws, total, P = rule.view.draws, rule.view.total(split), base.P.astype(float)
    default = np.broadcast_to(P[base.index[rule.plan.default_policy]], (rule.view.levels, draws))
    p_max = np.broadcast_to(P[base.autoregressive, -1].max(axis=0), draws) / total
    p0 = default[0] / total
    headroom = p_max - p0 if rule.options.headroom == "pmax_minus_p0" else 1 - p0
    with np.errstate(invalid="ignore"):
        u = np.sqrt((1 - p0) * headroom)
    # In questions, so that a knee exactly halfway between two budgets stays there: round_B rounds halves up.
    questions = round(tau * total, 6)
    return Fingerprint(p_max, p0, u, np.log2(knee(default, rule.plan.budgets, questions)))
