"""Base alone: the saturation knee, features on the RL-training split (base@rltrain), benchmarks without an RL side.

P_max@16 is the pass rate of the best autoregressive policy at the largest budget, P_0 that of the default policy at one
sample,

    u = sqrt((1 - P_0) headroom),

and N* is the saturation knee of the default policy (paper, appendix "RL-information budget frontier"). Searches do not
count, because the expanded pool differs between models. No RL is read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from searchlens.analysis.uncertainty import Floats
from searchlens.boptr import fit
from searchlens.boptr.fit import GUARD
from searchlens.boptr.rows import point_counts, readout_interval
from searchlens.boptr.rule import Reason, Rule, by_cell, kept, schema
from searchlens.boptr.view import View
from searchlens.catalogue import frame

# ---- the knee

TAU = 0.02
"""Tolerance of N* in the main rows, as a proportion (printed)."""


def knee(values: npt.ArrayLike, budgets: Sequence[int], tau: float) -> Floats:
    """N*: the smallest budget at which a curve, shape (budgets, ...), reaches its last value minus ``tau``, in its
    unit.

    Between two budgets the curve is linear in log2 b. For a curve that falls again, the first time counts. 1 for a
    constant curve, NaN if any value is NaN. Paper, appendix on the RL-information frontier: "the smallest budget within
    tau of the per-cell ceiling, log2-interpolated".

    >>> float(knee([0.2, 0.4, 0.6, 0.6], [1, 2, 4, 8], tau=0.1).round(3))
    2.828
    """
    curve = np.asarray(values, float)
    # GUARD: a value exactly tau below the last has reached it, whatever its floating-point error.
    level = curve[-1] - tau - GUARD
    first = (curve >= level).argmax(axis=0)
    before = np.maximum(first - 1, 0)
    above, below = (np.take_along_axis(curve, at[None], axis=0)[0] for at in (first, before))
    steps = np.log2(np.asarray(budgets, float))
    rise = np.where(above > below, above - below, 1.0)
    share = np.where(first == before, 0.0, (level - below) / rise)
    budget: Floats = 2.0 ** (steps[before] + share * (steps[first] - steps[before]))
    return np.where(np.isnan(curve).any(axis=0), np.nan, budget)


# ---- the RL-training split

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


@kept(shared=True)
def fingerprint(rule: Rule, model: str, tau: float = TAU) -> Fingerprint | Reason:
    """Features of a model's Base on its own RL-training split; ``tau`` is the tolerance of N*, a proportion."""
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
    return Fingerprint(p_max, p0, u, np.log2(knee(default, rule.plan.budgets, round(tau * total, 6))))


# ---- benchmarks without an RL side

DESCRIPTIVE = schema("model benchmark questions b value lo hi p_max policy headroom knee reason")
"""Proportions. ``p_max``: the largest P at max(B) in the AR pool, reached by ``policy`` (the first one of the pool).
``headroom``: as option ``headroom`` defines it. ``knee``: N*, the budget at which the default policy comes within
``TAU`` of its value at max(B)."""


@frame("descriptive")
def descriptive(rule: Rule, boot: View) -> pl.DataFrame:
    """Base on the descriptive benchmarks: a record per budget of B, or one record with a reason."""
    cells = [(model, benchmark) for model in rule.plan.models for benchmark in rule.plan.with_role("descriptive")]
    return by_cell(DESCRIPTIVE, cells, partial(_cell, rule, boot))


def _cell(rule: Rule, boot: View, model: str, benchmark: str) -> list[dict[str, Any]] | Reason:
    base, options, default = rule.view.base(model, benchmark), rule.options, rule.plan.default_policy
    if base is None:
        return Reason("no_base")
    if default not in base.index:
        return Reason("policy_missing")
    total = rule.view.total(benchmark)
    values = base.P[base.index[default], :, 0].astype(float) / total
    landscape = rule.view.cohort.base(model, benchmark)
    assert landscape is not None
    counts = point_counts(boot, landscape, benchmark, [(default, b) for b in rule.plan.budgets])
    ends = readout_interval(boot, counts, benchmark, options.confidence)
    members = base.autoregressive
    best = members[fit.first_least(-base.P[members, -1, 0])]
    p_max = float(base.P[best, -1, 0]) / total
    of_cell = {
        "questions": int(total),
        "p_max": p_max,
        "policy": base.policies[best],
        "headroom": p_max - values[0] if options.headroom == "pmax_minus_p0" else 1 - values[0],
        "knee": float(knee(values, rule.plan.budgets, TAU)),
    }
    by_budget = zip(rule.plan.budgets, values, ends.lo, ends.hi, strict=True)
    return [{**of_cell, "b": b, "value": value, "lo": lo, "hi": hi} for b, value, lo, hi in by_budget]
