"""Benchmarks without an RL side: what Base reaches on them.

``descriptive`` has a record per model, benchmark and budget: the ``value`` of the default policy with its
interval (``points.readout_interval``). Columns that belong to the whole cell are repeated in each of its records.
"""

from __future__ import annotations

from typing import Any

import polars as pl

from searchlens.boptr import fit
from searchlens.boptr.columns import schema
from searchlens.boptr.knee import TAU, knee
from searchlens.boptr.points import point_counts, readout_interval
from searchlens.boptr.rule import Reason, Rule
from searchlens.boptr.view import View
from searchlens.catalogue import frame

DESCRIPTIVE = schema("model benchmark questions b value lo hi p_max policy headroom knee reason")
"""Proportions. ``p_max``: the largest P at max(B) in the AR pool, reached by ``policy`` (the first one of the pool).
``headroom``: as option ``headroom`` defines it. ``knee``: N*, the budget at which the default policy comes within
``TAU`` of its value at max(B)."""


@frame("descriptive")
def descriptive(rule: Rule, boot: View) -> pl.DataFrame:
    """Base on the descriptive benchmarks.

    Returns
    -------
    polars.DataFrame
        ``DESCRIPTIVE``: a record per budget of B, or one record with a reason: ``no_base`` if Base was not sampled at
        every budget, ``policy_missing`` if not under the default policy.
    """
    records: list[dict[str, Any]] = []
    for model in rule.plan.models:
        for benchmark in rule.plan.with_role("descriptive"):
            cell = _cell(rule, boot, model, benchmark)
            by_budget = [{"reason": cell.code}] if isinstance(cell, Reason) else cell
            records += [{"model": model, "benchmark": benchmark, **columns} for columns in by_budget]
    return pl.DataFrame(records, DESCRIPTIVE)


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
