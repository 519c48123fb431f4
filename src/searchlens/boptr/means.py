"""Means of errors over cells, and the frame of the errors themselves: tables are made of these two.

``errors_frame`` has one row per tier, cell, pool and set of constants. ``means_frame`` has one row per mean: a *scope*
(a table of the paper) has *columns*, and each column is a set of cells. A mean is taken over those of its cells in
which the tier is defined; ``cells`` and ``of`` say how many these are, and the ``matched`` columns keep the cells that
all rows of the scope share, so that only these compare rows. Pools are never mixed in a mean.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import polars as pl

from searchlens.boptr import fit, inference
from searchlens.boptr.cohort import CohortPlan
from searchlens.boptr.evaluate import Constants, Draws, Key, Score, Scores
from searchlens.boptr.rule import Path, PoolName
from searchlens.boptr.tiers import Tier, path_text

Cell = tuple[str, str]
"""Model and benchmark."""
How = Literal["micro", "macro"]

_VALUES = {
    "error": pl.Float64(),
    "lo": pl.Float64(),
    "hi": pl.Float64(),
    "lo_reselected": pl.Float64(),
    "hi_reselected": pl.Float64(),
    "corrected": pl.Float64(),
    "lo_corrected": pl.Float64(),
    "hi_corrected": pl.Float64(),
}
_ROW = {
    "exponents": pl.String(),
    "mu": pl.String(),
    "tier": pl.String(),
    "label": pl.String(),
    "kind": pl.String(),
    "pool": pl.String(),
    "rl": pl.String(),
}
ERRORS = pl.Schema(
    {
        **_ROW,
        "model": pl.String(),
        "group": pl.String(),
        "benchmark": pl.String(),
        "role": pl.String(),
        "regime": pl.String(),
        **_VALUES,
        "alpha": pl.Float64(),
        "beta": pl.Float64(),
        "alpha_lo": pl.Float64(),
        "alpha_hi": pl.Float64(),
        "boundary": pl.Float64(),
        "policy": pl.String(),
        "path": pl.String(),
        "reason": pl.String(),
    }
)
"""Errors in percentage points with percentile intervals for the fixed and the re-selected path, and the corrected error
with its own; ``alpha_lo`` to ``alpha_hi`` is the interval that gives the same path, ``boundary`` the
distance of log2 alpha to its nearer end; several policies of one path are separated by spaces."""

MEANS = pl.Schema(
    {
        **_ROW,
        "scope": pl.String(),
        "column": pl.String(),
        **_VALUES,
        "cells": pl.UInt32(),
        "of": pl.UInt32(),
        "reason": pl.String(),
    }
)


@dataclass(frozen=True)
class Column:
    """A set of cells and how to average over it.

    Attributes
    ----------
    name : str
    cells : tuple of (model, benchmark)
    how : {"micro", "macro"}
        Mean over cells, or mean of the models' means.
    matched : bool
        Keep the cells that every row of the scope defines.
    """

    name: str
    cells: tuple[Cell, ...]
    how: How = "micro"
    matched: bool = False


@dataclass(frozen=True)
class Scope:
    """One table: rows by columns.

    Attributes
    ----------
    name : str
    rows : tuple of Tier
    columns : tuple of Column
    apart : tuple of str
        Tiers that do not decide which cells are matched (undefined too widely).
    """

    name: str
    rows: tuple[Tier, ...]
    columns: tuple[Column, ...]
    apart: tuple[str, ...] = ()


def grid(models: Iterable[str], benchmarks: Sequence[str]) -> tuple[Cell, ...]:
    """All cells of some models and benchmarks."""
    return tuple((model, benchmark) for model in models for benchmark in benchmarks)


def average(scores: Sequence[Score], cells: Sequence[Cell], how: How) -> Score:
    """The mean of some cells' scores, draw by draw; corrected draws are lost where one of them has none."""
    weights = _weights(cells, how)

    def mean(parts: Sequence[Draws]) -> Draws:
        return np.tensordot(weights, np.stack(parts), axes=1).astype(np.float32)

    again = [score.reselected for score in scores if score.reselected is not None]
    corrected = [score.corrected for score in scores]
    along = min(len(part) for part in corrected)
    return Score(
        scores[0].prediction,
        float(weights @ np.array([score.error for score in scores])),
        mean([score.fixed for score in scores]),
        mean(again) if len(again) == len(scores) else None,
        mean([part[:along] for part in corrected]),
    )


def _weights(cells: Sequence[Cell], how: How) -> np.ndarray:
    if how == "micro":
        return np.full(len(cells), 1 / len(cells))
    models = [model for model, _ in cells]
    return np.array([1 / (len(set(models)) * models.count(model)) for model in models])


def _values(score: Score, confidence: float) -> dict[str, Any]:
    readings = {
        "": (score.fixed, "percentile"),
        "_reselected": (score.reselected, "percentile"),
        "_corrected": (score.corrected, "centred"),
    }
    row: dict[str, Any] = {"error": score.error, "corrected": _known(score.corrected[0])}
    for name, (draws, kind) in readings.items():
        ends = (None, None) if draws is None else inference.interval(draws, confidence, kind)  # type: ignore[arg-type]
        row |= {f"lo{name}": _known(ends[0]), f"hi{name}": _known(ends[1])}
    return row


def _known(value: Any) -> float | None:
    return float(value) if value is not None and np.isfinite(value) else None


def _row(constants: Constants, tier: Tier, pool: str) -> dict[str, Any]:
    names = {"tier": tier.key, "label": tier.label, "kind": tier.kind, "pool": pool, "rl": tier.rl}
    return {"exponents": constants.exponents, "mu": constants.mu, **names}


# ---- errors


def errors_frame(found: Scores, plan: CohortPlan, tiers: Mapping[str, Tier], confidence: float) -> pl.DataFrame:
    """One row per tier, cell, pool and set of constants, defined or not."""
    rows: list[dict[str, Any]] = []
    values: dict[tuple[int, ...], dict[str, Any]] = {}
    for key in [*found.scores, *found.reasons]:
        row = _row(key.constants, tiers[key.tier], key.pool)
        row |= {"model": key.model, "group": plan.models[key.model].group, "benchmark": key.benchmark}
        benchmark = plan.benchmarks[key.benchmark]
        row |= {"role": benchmark.role, "regime": benchmark.regime}
        if key in found.scores:
            score = found.scores[key]
            # Rows that take the same path share their arrays.
            same = id(score.fixed), id(score.reselected), id(score.corrected)
            if same not in values:
                values[same] = _values(score, confidence)
            row |= values[same] | _path(found, key, plan)
        else:
            row["reason"] = found.reasons[key].code
        rows.append(row)
    order = {name: i for i, name in enumerate(tiers)}
    rows.sort(key=lambda row: (row["mu"], row["exponents"] != "paper", order[row["tier"]], row["pool"]))
    return pl.DataFrame(rows, ERRORS)


def _path(found: Scores, key: Key, plan: CohortPlan) -> dict[str, Any]:
    path = found.scores[key].prediction
    base = found.rules[key.constants].view.base(key.model, key.benchmark)
    if not isinstance(path, Path) or base is None:
        return {}
    names = [base.policies[i] for i in path.policy[:, 0]]
    row: dict[str, Any] = {"path": path_text(path, tuple(plan.budgets))}
    row["policy"] = names[0] if len(set(names)) == 1 else " ".join(names)
    if path.alpha is not None and path.beta is not None:
        alpha, beta, levels = float(path.alpha[0]), float(path.beta[0]), len(plan.budgets)
        low, high = fit.identified_alpha(alpha, beta, levels)
        row |= {"alpha": alpha, "beta": beta, "alpha_lo": low, "alpha_hi": high}
        row["boundary"] = fit.boundary_distance(alpha, beta, levels)
    return row


# ---- means


def means_frame(found: Scores, scopes: Sequence[Scope], sets: Sequence[Constants], confidence: float) -> pl.DataFrame:
    """Every mean of every scope, of the rows that were evaluated with each set of constants."""
    evaluated = {(key.constants, key.tier) for key in (*found.scores, *found.reasons)}
    rows = [
        {**_row(constants, tier, pool), "scope": scope.name, "column": column.name, **values}
        for scope in scopes
        for constants in sets
        for tier, pool, column, values in _scope_rows(found, scope, constants, confidence)
        if (constants, tier.key) in evaluated
    ]
    return pl.DataFrame(rows, MEANS)


def _scope_rows(
    found: Scores, scope: Scope, constants: Constants, confidence: float
) -> Iterable[tuple[Tier, PoolName, Column, dict[str, Any]]]:
    for pool in ("ar", "full"):
        rows = [tier for tier in scope.rows if pool in tier.pools]
        deciding = [tier for tier in rows if tier.key not in scope.apart]
        for column in scope.columns:
            cells = column.cells
            if column.matched:
                cells = tuple(
                    cell
                    for cell in cells
                    if all(Key(constants, t.key, pool, *cell) in found.scores for t in deciding)  # type: ignore[arg-type]
                )
            for tier in rows:
                yield tier, pool, column, _mean(found, constants, tier, pool, column, cells, confidence)  # type: ignore[misc,arg-type]


def _mean(
    found: Scores,
    constants: Constants,
    tier: Tier,
    pool: PoolName,
    column: Column,
    cells: tuple[Cell, ...],
    confidence: float,
) -> dict[str, Any]:
    keys = {cell: Key(constants, tier.key, pool, *cell) for cell in cells}
    defined = [cell for cell in cells if keys[cell] in found.scores]
    counts = {"cells": len(defined), "of": len(column.cells)}
    if not defined:
        reasons = [found.reasons[key].code for key in keys.values() if key in found.reasons]
        return {**counts, "reason": reasons[0] if reasons else "no_matched_cells"}
    mean = average([found.scores[keys[cell]] for cell in defined], defined, column.how)
    return {**counts, **_values(mean, confidence)}
