"""What a fit identifies: many (alpha, beta) give one path of budgets, and several paths nearly the same error.

``identified_scale`` has a row per model: the fitted alpha at the frozen exponent, with the interval of alpha that
predicts exactly the same. ``identified_set`` has a row per cell: every (alpha, beta, pi) that the data cannot tell from
the best. ``formula_same`` is the paper's table "Formula-same, parameters-different", with that interval beside alpha.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl

from searchlens.boptr import fit
from searchlens.boptr.fit import Fit
from searchlens.boptr.points import operating_points, point_errors
from searchlens.boptr.rule import Path, Reason, Rule
from searchlens.boptr.view import Readouts, View

IDENTIFIED_SCALE = pl.Schema(
    {
        "model": pl.String(),
        "benchmark": pl.String(),
        "beta": pl.Float64(),
        "alpha": pl.Float64(),
        "alpha_lo": pl.Float64(),
        "alpha_hi": pl.Float64(),
        "boundary": pl.Float64(),
        "delta": pl.Float64(),
        "delta_lo": pl.Float64(),
        "delta_hi": pl.Float64(),
        "policy": pl.String(),
        "path": pl.String(),
        "error": pl.Float64(),
        "reason": pl.String(),
    }
)
"""``benchmark`` is the anchor's. Between ``alpha_lo`` (closed) and ``alpha_hi`` (open) the path N(b) is the same; 0 and
inf: it cannot change on that side. ``boundary``: how far log2 alpha may move before it does. ``delta_lo`` and
``delta_hi``: the offsets that this implies. ``policy``, ``path`` and ``error`` (percentage points) are those of the
fit. Intervals are null under linear rounding."""

IDENTIFIED_SET = pl.Schema(
    {
        "model": pl.String(),
        "benchmark": pl.String(),
        "alpha": pl.Float64(),
        "beta": pl.Float64(),
        "policy": pl.String(),
        "path": pl.String(),
        "error": pl.Float64(),
        "se": pl.Float64(),
        "triples": pl.UInt32(),
        "of": pl.UInt32(),
        "paths": pl.UInt32(),
        "policies": pl.UInt32(),
        "alpha_min": pl.Float64(),
        "alpha_max": pl.Float64(),
        "beta_min": pl.Float64(),
        "beta_max": pl.Float64(),
        "reason": pl.String(),
    }
)
"""The R1 fit on the AR pool, then the set of (alpha, beta, pi) on the grids whose error is at most ``error + se``:
its ``triples`` ``of`` all, its distinct ``paths`` N(b) and ``policies``, and the range of each parameter in it. ``se``:
bootstrap standard deviation of the fitted path's error. Percentage points."""

FORMULA_SAME = pl.Schema(
    {
        name: IDENTIFIED_SCALE[name]
        for name in ("model", "alpha", "alpha_lo", "alpha_hi", "policy", "path", "error", "reason")
    }
)
"""Columns as in ``IDENTIFIED_SCALE``: beta is the regime's, policy is locked over budgets."""


def identified_scale(rule: Rule) -> pl.DataFrame:
    """The fitted scale of every model on the anchor benchmark, and what of it the path identifies.

    Parameters
    ----------
    rule : Rule
        On the sample.

    Returns
    -------
    polars.DataFrame
        ``IDENTIFIED_SCALE``.

    Notes
    -----
    A model of the cohort counts in mu, so its offset moves by (1 - 1/M) of its ln alpha, M being the number of models
    that mu averages; the others' alphas are held. With M = 1 the offset is zero whatever alpha is.
    """
    benchmark = rule.plan.anchor_benchmark
    beta = float(rule.beta(benchmark)[0])
    rows: list[dict[str, Any]] = []
    for model in rule.plan.models:
        row: dict[str, Any] = {"model": model, "benchmark": benchmark}
        found, delta = rule.scale(model, benchmark, beta), rule.delta(model)
        if isinstance(found, Reason):
            rows.append({**row, "reason": found.code})
            continue
        assert not isinstance(delta, Reason)
        row |= {"beta": beta, "alpha": float(found.alpha[0]), "delta": float(delta[0])}
        rows.append({**row, **_interval(rule, model, row), **_fitted(rule, model, benchmark, found)})
    return pl.DataFrame(rows, IDENTIFIED_SCALE)


def _interval(rule: Rule, model: str, row: dict[str, Any]) -> dict[str, float]:
    if rule.options.rounding != "log2":
        return {}
    alpha, beta, delta = row["alpha"], row["beta"], row["delta"]
    ends = fit.identified_alpha(alpha, beta, rule.view.levels)
    share = _offset_share(rule, model)
    with np.errstate(divide="ignore"):
        moved = [delta + share * float(np.log(end) - np.log(alpha)) if share else delta for end in ends]
    found = {"alpha_lo": ends[0], "alpha_hi": ends[1], "delta_lo": moved[0], "delta_hi": moved[1]}
    return {**found, "boundary": fit.boundary_distance(alpha, beta, rule.view.levels)}


def _offset_share(rule: Rule, model: str) -> float:
    """By how much delta_m moves when ln alpha_m moves by one."""
    averaged = [m for m in rule.cohort_models if not isinstance(rule.cell(m, rule.plan.anchor_benchmark), Reason)]
    return 1 - 1 / len(averaged) if model in averaged else 1.0


def _fitted(rule: Rule, model: str, benchmark: str, found: Fit) -> dict[str, Any]:
    base = rule.view.base(model, benchmark)
    assert base is not None
    points = operating_points(rule, base, _path(found))
    path = "/".join(str(n) for _, n in points)
    error = 100 * float(found.error[0]) / rule.view.total(benchmark)
    return {"policy": points[0][0], "path": path, "error": error}


def _path(found: Fit) -> Path:
    return Path(found.policy, found.path)


def formula_same(rule: Rule) -> pl.DataFrame:
    """Scale and locked policy of every model at the shared exponent; returns ``FORMULA_SAME``."""
    return identified_scale(rule).select(list(FORMULA_SAME))


def identified_set(rule: Rule, boot: View) -> pl.DataFrame:
    """What the R1 fit of every cell leaves open.

    Parameters
    ----------
    rule : Rule
        On the sample.
    boot : View
        Bootstrap view of the same cohort; the fitted path stays that of the sample.

    Returns
    -------
    polars.DataFrame
        ``IDENTIFIED_SET``, for every model on every fitted and held-out benchmark.
    """
    rows: list[dict[str, Any]] = []
    for model in rule.plan.models:
        for benchmark in rule.plan.with_role("fitted", "held_out"):
            row = {"model": model, "benchmark": benchmark}
            best = rule.smooth(model, benchmark)
            found = {"reason": best.code} if isinstance(best, Reason) else _cell(rule, boot, model, benchmark, best)
            rows.append({**row, **found})
    return pl.DataFrame(rows, IDENTIFIED_SET)


def _cell(rule: Rule, boot: View, model: str, benchmark: str, best: Fit) -> dict[str, Any]:
    cell = rule.cell(model, benchmark)
    assert not isinstance(cell, Reason)
    points = operating_points(rule, cell[0], _path(best))
    se = float(point_errors(boot, model, benchmark, points, rule.plan.budgets)[1:].std(ddof=1))
    margin = se * rule.view.total(benchmark) / 100
    return {
        "alpha": float(best.alpha[0]),
        "beta": float(best.beta[0]),
        **_fitted(rule, model, benchmark, best),
        "se": se,
        **_within(rule, *cell, margin),
    }


def _within(rule: Rule, base: Readouts, target: fit.Array, margin: float) -> dict[str, Any]:
    """Size and extent of the set of triples whose error is within ``margin`` questions of the smallest."""
    grid, P = rule.lattice(), base.P[base.autoregressive]
    error = fit.path_errors(fit.errors(P, target), grid.paths)[:, :, 0] / rule.view.levels
    kept = error <= error.min() + margin + fit.SAME
    pairs = kept.any(axis=1)[grid.path]
    return {
        "triples": int(kept[grid.path].sum()),
        "of": grid.alpha.size * len(P),
        "paths": int(kept.any(axis=1).sum()),
        "policies": int(kept.any(axis=0).sum()),
        "alpha_min": float(grid.alpha[pairs].min()),
        "alpha_max": float(grid.alpha[pairs].max()),
        "beta_min": float(grid.beta[pairs].min()),
        "beta_max": float(grid.beta[pairs].max()),
    }
