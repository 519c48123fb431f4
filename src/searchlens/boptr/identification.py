"""What a fit identifies: many (alpha, beta) give the same path of budgets, and several paths nearly the same error.

``identified_scale`` has a record per model: the fitted alpha at the frozen exponent, and the interval of alpha with
exactly the same predictions. ``identified_set`` has a record per cell: the set of (alpha, beta, pi) that the data do
not distinguish from the best. ``formula_same`` is the paper's table "Formula-same, parameters-different", with the
interval of alpha added.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl

from searchlens.boptr import fit
from searchlens.boptr.columns import schema
from searchlens.boptr.fit import Fit
from searchlens.boptr.points import budgets_text, operating_points, point_errors
from searchlens.boptr.protocol import study_cells
from searchlens.boptr.rule import Path, Reason, Rule
from searchlens.boptr.view import Readouts, View
from searchlens.catalogue import frame

IDENTIFIED_SCALE = schema(
    "model benchmark beta alpha alpha_lo alpha_hi boundary delta delta_lo delta_hi policy path error reason"
)
"""``benchmark`` is the anchor benchmark. Every alpha from ``alpha_lo`` (closed) to ``alpha_hi`` (open) gives the same
path N(b); 0 or inf: the path cannot change on that side. ``boundary``: distance of log2 alpha to the nearer end.
``delta_lo``, ``delta_hi``: the offsets at the two ends. ``policy``, ``path`` and ``error`` (percentage points) belong
to the fit. Intervals are null with linear rounding."""

IDENTIFIED_SET = schema(
    "model benchmark alpha beta policy path error se triples of paths policies alpha_min alpha_max beta_min beta_max "
    "reason"
)
"""First the R1 fit on the AR pool; then the set of all (alpha, beta, pi) on the grids whose error is at most ``error``
plus ``se``, the bootstrap standard deviation of the fitted path's error (both in percentage points): its size
``triples`` of ``of``, its numbers of distinct ``paths`` N(b) and ``policies``, and the range of each parameter."""

FORMULA_SAME = schema("model alpha alpha_lo alpha_hi policy path error reason")
"""Columns as in ``IDENTIFIED_SCALE``: the exponent is the regime's, and one policy serves all budgets."""


@frame("identified_scale", of=("rule",))
def identified_scale(rule: Rule) -> pl.DataFrame:
    """The fitted scale of every model on the anchor benchmark, and the interval that the path identifies.

    Notes
    -----
    mu is a mean over M models. If a model is one of these, its offset changes by (1 - 1/M) of the change of its ln
    alpha, the other models' alphas being fixed. With M = 1 the offset is zero whatever alpha is, and has no interval.
    """
    benchmark = rule.plan.anchor_benchmark
    beta = float(rule.beta(benchmark)[0])
    records: list[dict[str, Any]] = []
    for model in rule.plan.models:
        record: dict[str, Any] = {"model": model, "benchmark": benchmark}
        best, offset = rule.scale(model, benchmark, beta), rule.delta(model)
        if isinstance(best, Reason):
            records.append({**record, "reason": best.code})
            continue
        assert not isinstance(offset, Reason)
        alpha, delta = float(best.alpha[0]), float(offset[0])
        interval = _interval(rule, model, alpha, beta, delta)
        fitted = _fitted(rule, model, benchmark, best)
        records.append({**record, "beta": beta, "alpha": alpha, "delta": delta, **interval, **fitted})
    return pl.DataFrame(records, IDENTIFIED_SCALE)


def _interval(rule: Rule, model: str, alpha: float, beta: float, delta: float) -> dict[str, float | None]:
    if rule.options.rounding != "log2":
        return {}
    low, high = fit.identified_alpha(alpha, beta, rule.view.levels)
    share = _offset_share(rule, model)
    with np.errstate(divide="ignore"):
        ends = (delta + share * float(np.log(end) - np.log(alpha)) for end in (low, high))
        lo, hi = ends if share else (None, None)
    boundary = fit.boundary_distance(alpha, beta, rule.view.levels)
    return {"alpha_lo": low, "alpha_hi": high, "delta_lo": lo, "delta_hi": hi, "boundary": boundary}


def _offset_share(rule: Rule, model: str) -> float:
    """Change of delta_m per change of ln alpha_m."""
    averaged = [m for m in rule.cohort_models if not isinstance(rule.cell(m, rule.plan.anchor_benchmark), Reason)]
    return 1 - 1 / len(averaged) if model in averaged else 1.0


def _fitted(rule: Rule, model: str, benchmark: str, best: Fit) -> dict[str, Any]:
    base = rule.view.base(model, benchmark)
    assert base is not None
    points = operating_points(rule, base, Path(best.policy, best.path))
    error = 100 * float(best.error[0]) / rule.view.total(benchmark)
    return {"policy": points[0][0], "path": budgets_text(points), "error": error}


@frame("formula_same", of=("rule",))
def formula_same(rule: Rule) -> pl.DataFrame:
    """Scale and locked policy of every model at the shared exponent; returns ``FORMULA_SAME``."""
    return identified_scale(rule).select(list(FORMULA_SAME))


@frame("identified_set")
def identified_set(rule: Rule, boot: View) -> pl.DataFrame:
    """The set of parameters that the data do not distinguish from the R1 fit of every cell.

    Parameters
    ----------
    boot : View
        Bootstrap view of the same cohort; the fitted path is that of the sample.

    Returns
    -------
    polars.DataFrame
        ``IDENTIFIED_SET``, for every model on every fitted and held-out benchmark.
    """
    records: list[dict[str, Any]] = []
    for model, benchmark in study_cells(rule.plan):
        best = rule.smooth(model, benchmark)
        columns = {"reason": best.code} if isinstance(best, Reason) else _cell(rule, boot, model, benchmark, best)
        records.append({"model": model, "benchmark": benchmark, **columns})
    return pl.DataFrame(records, IDENTIFIED_SET)


def _cell(rule: Rule, boot: View, model: str, benchmark: str, best: Fit) -> dict[str, Any]:
    cell = rule.cell(model, benchmark)
    assert not isinstance(cell, Reason)
    points = operating_points(rule, cell[0], Path(best.policy, best.path))
    se = float(point_errors(boot, model, benchmark, points, rule.plan.budgets).plain[1:].std(ddof=1))
    margin = se * rule.view.total(benchmark) / 100
    return {
        "alpha": float(best.alpha[0]),
        "beta": float(best.beta[0]),
        **_fitted(rule, model, benchmark, best),
        "se": se,
        **_within(rule, *cell, margin),
    }


def _within(rule: Rule, base: Readouts, target: fit.Array, margin: float) -> dict[str, Any]:
    """Size and ranges of the set of (alpha, beta, pi) whose error is within ``margin`` questions of the smallest."""
    grid, P = rule.lattice(), base.P[base.autoregressive]
    error = fit.path_errors(fit.errors(P, target), grid.paths)[:, :, 0] / rule.view.levels
    within = error <= error.min() + margin + fit.SAME
    pairs = within.any(axis=1)[grid.path]
    return {
        "triples": int(within[grid.path].sum()),
        "of": grid.alpha.size * len(P),
        "paths": int(within.any(axis=1).sum()),
        "policies": int(within.any(axis=0).sum()),
        "alpha_min": float(grid.alpha[pairs].min()),
        "alpha_max": float(grid.alpha[pairs].max()),
        "beta_min": float(grid.beta[pairs].min()),
        "beta_max": float(grid.beta[pairs].max()),
    }
