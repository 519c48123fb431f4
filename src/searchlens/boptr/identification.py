"""What a fit identifies: many (alpha, beta) give the same path of budgets, and several paths nearly the same error.

``identified_scale`` has a record per model: the fitted alpha at the frozen exponent, and the interval of alpha with
exactly the same predictions. ``identified_set`` has a record per cell: the set of (alpha, beta, pi) that the data do
not distinguish from the best. ``formula_same`` is the paper's table "Formula-same, parameters-different", with the
interval of alpha added.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import polars as pl

from searchlens.boptr import fit
from searchlens.boptr.fit import Fit
from searchlens.boptr.protocol import study_cells
from searchlens.boptr.rows import budgets_text, operating_points, point_errors
from searchlens.boptr.rule import Path, Reason, Rule, by_cell, schema
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

    mu is a mean over M models. If a model is one of these, its offset changes by (1 - 1/M) of the change of its ln
    alpha, the other models' alphas being fixed. With M = 1 the offset is zero whatever alpha is, and has no interval.
    """
    cells = [(model, rule.plan.anchor_benchmark) for model in rule.plan.models]
    return by_cell(IDENTIFIED_SCALE, cells, partial(_scale, rule))


def _scale(rule: Rule, model: str, benchmark: str) -> dict[str, Any] | Reason:
    beta = float(rule.beta(benchmark)[0])
    best, offset = rule.scale(model, benchmark, beta), rule.delta(model)
    if isinstance(best, Reason):
        return best
    assert not isinstance(offset, Reason)
    alpha, delta = float(best.alpha[0]), float(offset[0])
    columns = {"beta": beta, "alpha": alpha, "delta": delta, **_fitted(rule, model, benchmark, best)}
    if rule.options.rounding != "log2":
        return columns
    low, high = fit.identified_alpha(alpha, beta, rule.view.levels)
    columns |= {"alpha_lo": low, "alpha_hi": high, "boundary": fit.boundary_distance(alpha, beta, rule.view.levels)}
    if share := _offset_share(rule, model):
        with np.errstate(divide="ignore"):
            ends = (delta + share * float(np.log(end) - np.log(alpha)) for end in (low, high))
            columns |= dict(zip(("delta_lo", "delta_hi"), ends, strict=True))
    return columns


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
    """Scale and locked policy of every model at the shared exponent."""
    return identified_scale(rule).select(list(FORMULA_SAME))


@frame("identified_set")
def identified_set(rule: Rule, boot: View) -> pl.DataFrame:
    """The set of parameters that the data do not distinguish from the R1 fit of the sample, in every cell."""
    return by_cell(IDENTIFIED_SET, study_cells(rule.plan), partial(_set, rule, boot))


def _set(rule: Rule, boot: View, model: str, benchmark: str) -> dict[str, Any] | Reason:
    best, cell = rule.smooth(model, benchmark), rule.cell(model, benchmark)
    if isinstance(cell, Reason):
        return cell
    assert not isinstance(best, Reason)
    points = operating_points(rule, cell[0], Path(best.policy, best.path))
    se = float(point_errors(boot, model, benchmark, points, rule.plan.budgets).plain[1:].std(ddof=1))
    return {
        "alpha": float(best.alpha[0]),
        "beta": float(best.beta[0]),
        **_fitted(rule, model, benchmark, best),
        "se": se,
        **_within(rule, *cell, se * rule.view.total(benchmark) / 100),
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
