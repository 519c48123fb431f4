"""Errors of every row in every cell, and their means over cells: the frames that most tables are made of.

``errors`` has one record per row, cell, pool and set of constants; ``means`` has one per mean. A *scope* (a table of
the paper) has rows and *columns*; a column is a set of cells. A mean is taken over those cells of the column in which
the row is defined: ``cells`` of ``of``. The ``matched`` columns keep only the cells in which all rows of the scope are
defined, so rows are comparable in these columns alone. Pools are never mixed in a mean. The column ``rule`` of both
frames holds the key of a row (``rows.Row``).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, Literal

import numpy as np
import polars as pl

from searchlens.analysis.uncertainty import Floats
from searchlens.boptr import fit, inference
from searchlens.boptr.cohort import CohortPlan
from searchlens.boptr.evaluate import Cell, Constants, Draws, Evaluation, Key, Score
from searchlens.boptr.frontier import FRONTIER_ROWS, SWEEP_ROWS
from searchlens.boptr.offsets import V5B_ROWS
from searchlens.boptr.protocol import HELD_OUT_LIMIT
from searchlens.boptr.regimes import TWO_REGIMES
from searchlens.boptr.rows import ROWS, Row, path_text
from searchlens.boptr.rule import Path, PoolName, schema
from searchlens.boptr.variants import VARIANT_ROWS
from searchlens.catalogue import frame
from searchlens.config.boptr import REGIMES, BoptrOptions

PAPER, OWN, WITHOUT = Constants(), Constants("own"), Constants("paper", "without")
MAIN_ROWS = (*ROWS, *V5B_ROWS, *FRONTIER_ROWS, TWO_REGIMES)
HORIZONTAL = ("H1", "H2", "H3", "H4", "H5", "V5b", "H6", "H7")
RIVALS = ("mean RL", "Base+gain", "low temp")
VERTICAL = ("H1", "H2", "H3", "V1", "V2", "V2-δ0", "V3", "V5b")
DECOMPOSITION = ("V1", "V2", "V2-δ0", "V3", "V5b", "Z1-N*", "Z0-u")
ABLATION = ("V3", "A1", "A2", "A3", "H6", "ORACLE-1D")
FRONTIER = ("Z0-u", "Z0-N*", "B0", "V2", "Z1-u", "Z1-N*", "V3", "V1")
NEW = ("V3", "V5b", "V2-δ0")
HELD_OUT = ("V3", "V5b", "V2-δ0", "V1", "H1")
How = Literal["micro", "macro"]
_KEY = "exponents mu rule label kind pool rl"
_VALUES = "error lo hi lo_reselected hi_reselected corrected lo_corrected hi_corrected"
ERRORS = schema(
    f"{_KEY} model group benchmark role regime {_VALUES} alpha beta alpha_lo alpha_hi boundary policy path reason",
    rl=pl.String,
)
"""``error`` in percentage points: ``lo`` to ``hi`` is its percentile interval with the path fixed, ``lo_reselected`` to
``hi_reselected`` with the path chosen again in each draw. ``corrected`` is the error without its two biases
(``evaluate.Score``), with an interval that contains it and has a width. Every alpha from ``alpha_lo`` to ``alpha_hi``
gives the same path; ``boundary`` is the distance of log2 alpha to the nearer end. If the policy differs between
budgets, ``policy`` lists one per budget, separated by spaces. ``reason`` is a code of ``rule.REASONS`` if the error is
undefined, else null."""
MEANS = schema(f"{_KEY} scope column {_VALUES} cells of reason", rl=pl.String)
"""As ``ERRORS``, of a mean over ``cells`` of the ``of`` cells of a column."""


@dataclass(frozen=True)
class Column:
    """A set of cells and how to average over it."""

    name: str
    cells: tuple[Cell, ...]
    """(model, benchmark)."""
    how: How = "micro"
    """Mean over cells, or mean of the models' means."""
    matched: bool = False
    """Keep only the cells in which every row of the scope is defined."""


@dataclass(frozen=True)
class Scope:
    """One table."""

    name: str
    rows: tuple[Row, ...]
    columns: tuple[Column, ...]
    apart: tuple[str, ...] = ()
    """Keys of rows that do not decide which cells are matched, because they are undefined in many cells."""


def grid(models: Iterable[str], benchmarks: Sequence[str]) -> tuple[Cell, ...]:
    """All cells of some models and benchmarks."""
    return tuple((model, benchmark) for model in models for benchmark in benchmarks)


def average(scores: Sequence[Score], cells: Sequence[Cell], how: How) -> Score:
    """The mean of the scores of one row in some cells, draw by draw, with the first one's prediction.

    ``reselected`` is None if any score has none; ``corrected`` has as many draws as the shortest.
    """
    weights = cell_weights(cells, how)

    def mean(parts: Sequence[Draws]) -> Draws:
        return np.tensordot(weights, np.stack(parts), axes=1).astype(np.float32)

    reselected = [score.reselected for score in scores if score.reselected is not None]
    shortest = min(len(score.corrected) for score in scores)
    variances = weights**2 * np.array(
        [score.corrected[1:].var() if len(score.corrected) > 1 else 0 for score in scores]
    )
    # Degrees of freedom of a sum of variances (Welch and Satterthwaite).
    freedoms = np.array([score.freedom for score in scores])
    total = float((variances**2 / freedoms).sum())
    return Score(
        plain=mean([score.plain for score in scores]),
        corrected=mean([score.corrected[:shortest] for score in scores]),
        questions=min(score.questions for score in scores),
        freedom=float(variances.sum() ** 2 / total) if total > 0 else float(freedoms.min()),
        prediction=scores[0].prediction,
        error=float(weights @ np.array([score.error for score in scores])),
        reselected=mean(reselected) if len(reselected) == len(scores) else None,
    )


def cell_weights(cells: Sequence[Cell], how: How) -> Floats:
    """Weight of each cell in a mean, shape (cells,): equal for all cells, or equal for all models."""
    if how == "micro":
        return np.full(len(cells), 1 / len(cells))
    models = [model for model, _ in cells]
    return np.array([1 / (len(set(models)) * models.count(model)) for model in models])


def _values(score: Score, confidence: float) -> dict[str, Any]:
    values = score.columns(confidence)
    ends = (None, None) if score.reselected is None else inference.interval(score.reselected, confidence)
    values["error"] = score.error  # draws are of single precision
    return values | {"lo_reselected": inference.defined(ends[0]), "hi_reselected": inference.defined(ends[1])}


def _key(constants: Constants, row: Row, pool: str) -> dict[str, Any]:
    names = {"rule": row.key, "label": row.label, "kind": row.kind, "pool": pool, "rl": row.rl}
    return {"exponents": constants.exponents, "mu": constants.mu, **names}


def errors_frame(evaluation: Evaluation, plan: CohortPlan, rows: Mapping[str, Row], confidence: float) -> pl.DataFrame:
    """The frame ``errors``, by the order of ``rows``: a record per row, cell, pool and constants, defined or not."""
    records: list[dict[str, Any]] = []
    values: dict[tuple[int, ...], dict[str, Any]] = {}
    for key in [*evaluation.scores, *evaluation.reasons]:
        benchmark = plan.benchmarks[key.benchmark]
        record = _key(key.constants, rows[key.row], key.pool)
        record |= {"model": key.model, "group": plan.models[key.model].group}
        record |= {"benchmark": key.benchmark, "role": benchmark.role, "regime": benchmark.regime}
        if key in evaluation.scores:
            score = evaluation.scores[key]
            # Rows that take the same path share their arrays (``Evaluation``): their intervals are computed once.
            arrays = id(score.plain), id(score.reselected), id(score.corrected)
            if arrays not in values:
                values[arrays] = _values(score, confidence)
            record |= values[arrays] | _path(evaluation, key, plan)
        else:
            record["reason"] = evaluation.reasons[key].code
        records.append(record)
    order = {name: i for i, name in enumerate(rows)}
    records.sort(key=lambda r: (r["mu"], r["exponents"] != "paper", order[r["rule"]], r["pool"]))
    return pl.DataFrame(records, ERRORS)


def _path(evaluation: Evaluation, key: Key, plan: CohortPlan) -> dict[str, Any]:
    path = evaluation.scores[key].prediction
    base = evaluation.rules[key.constants].view.base(key.model, key.benchmark)
    if not isinstance(path, Path) or base is None:
        return {}
    names = [base.policies[i] for i in path.policy[:, 0]]
    columns: dict[str, Any] = {"path": path_text(path, tuple(plan.budgets))}
    columns["policy"] = names[0] if len(set(names)) == 1 else " ".join(names)
    if path.alpha is not None and path.beta is not None:
        alpha, beta, levels = float(path.alpha[0]), float(path.beta[0]), len(plan.budgets)
        low, high = fit.identified_alpha(alpha, beta, levels)
        columns |= {"alpha": alpha, "beta": beta, "alpha_lo": low, "alpha_hi": high}
        columns["boundary"] = fit.boundary_distance(alpha, beta, levels)
    return columns


def means_frame(
    evaluation: Evaluation, scopes: Sequence[Scope], sets: Sequence[Constants], confidence: float
) -> pl.DataFrame:
    """Every mean of every scope, of the rows that were evaluated with each set of constants; returns ``MEANS``."""
    evaluated = {(key.constants, key.row) for key in (*evaluation.scores, *evaluation.reasons)}
    records = []
    pools: tuple[PoolName, ...] = ("ar", "full")
    for scope, constants, pool in product(scopes, sets, pools):
        rows = [row for row in scope.rows if pool in row.pools]
        deciding = [row.key for row in rows if row.key not in scope.apart]
        for column in scope.columns:
            cells = [
                cell
                for cell in column.cells
                if not column.matched or all(Key(constants, row, pool, *cell) in evaluation.scores for row in deciding)
            ]
            for row in (row for row in rows if (constants, row.key) in evaluated):
                keys = {cell: Key(constants, row.key, pool, *cell) for cell in cells}
                values = {"scope": scope.name, "column": column.name, **_mean(evaluation, keys, column, confidence)}
                records.append({**_key(constants, row, pool), **values})
    return pl.DataFrame(records, MEANS)


def _mean(evaluation: Evaluation, keys: Mapping[Cell, Key], column: Column, confidence: float) -> dict[str, Any]:
    defined = {cell: evaluation.scores[key] for cell, key in keys.items() if key in evaluation.scores}
    counts = {"cells": len(defined), "of": len(column.cells)}
    if not defined:
        reasons = [evaluation.reasons[key].code for key in keys.values() if key in evaluation.reasons]
        return {**counts, "reason": reasons[0] if reasons else "no_matched_cells"}
    return {**counts, **_values(average(list(defined.values()), list(defined), column.how), confidence)}


# ---- which cells each mean is taken over


def means(evaluation: Evaluation, plan: CohortPlan, options: BoptrOptions, sets: Sequence[Constants]) -> pl.DataFrame:
    """The frame ``means``: every scope, and the ablation without the models that option ``mu_without`` leaves out."""
    means = means_frame(evaluation, scopes(plan), sets, options.confidence)
    if WITHOUT not in evaluation.rules:
        return means
    kept = [name for name in plan.fitted_models if name not in options.mu_without]
    ablation = Scope("ablation", pick(ABLATION), _by_regime(plan, kept))
    return pl.concat([means, means_frame(evaluation, [ablation], [WITHOUT], options.confidence)])


def pick(keys: Iterable[str]) -> tuple[Row, ...]:
    """The main rows of these keys."""
    row_by_key = {row.key: row for row in MAIN_ROWS}
    return tuple(row_by_key[key] for key in keys)


WITHOUT_ROWS = pick((*ABLATION, "cell-fit"))
"""Evaluated again without the models that option ``mu_without`` leaves out."""


def scopes(plan: CohortPlan) -> list[Scope]:
    """The tables of means, each with its rows and its columns of cells."""
    fitted, held_out = plan.with_role("fitted"), plan.with_role("held_out")
    models = plan.fitted_models
    everything = grid(models, fitted)
    overall = (
        Column("macro", everything, "macro"),
        Column("micro", everything),
        Column("matched macro", everything, "macro", matched=True),
        Column("matched micro", everything, matched=True),
    )
    sweeps, horizontal, by_model = (*pick(FRONTIER), *SWEEP_ROWS), list[Scope](), list[Column]()
    for model in plan.models:
        columns = [Column(d, ((model, d),)) for d in fitted]
        columns += [Column("mean", grid([model], fitted)), Column("matched mean", grid([model], fitted), matched=True)]
        columns += [Column(d, ((model, d),)) for d in held_out]
        columns.append(Column("held-out mean", grid([model], held_out)))
        rows = pick((*HORIZONTAL, *RIVALS))
        horizontal.append(Scope(f"horizontal/{model}", rows, tuple(columns), ("V5b", *RIVALS)))
    for group in ("upper", "lower"):
        members = plan.in_group(group)  # type: ignore[arg-type]
        by_model += [Column(m, grid([m], fitted)) for m in members]
        if members:
            by_model.append(Column(f"{group} mean", grid(members, fitted), "macro"))
    return [
        *horizontal,
        Scope("vertical", pick((*VERTICAL, *RIVALS)), (*by_model, *overall), ("V5b", *RIVALS)),
        Scope("decomposition", pick(DECOMPOSITION), overall, ("V5b", "Z1-N*", "Z0-u")),
        Scope("ablation", pick(ABLATION), _by_regime(plan, models)),
        Scope("frontier", sweeps, overall, tuple(row.key for row in sweeps if row.kind == "frontier")),
        Scope("variants", VARIANT_ROWS, _by_regime(plan, models)),
        Scope("new models", pick(NEW), tuple(Column(m, grid([m], fitted)) for m in plan.in_group("new"))),
        Scope(
            "held out",
            pick(HELD_OUT),
            (
                *(Column(d, grid(models, [d])) for d in held_out),
                *(Column(m, grid([m], held_out)) for m in models),
                Column("all cells", grid(models, held_out)),
            ),
        ),
    ]


def _by_regime(plan: CohortPlan, models: Sequence[str]) -> tuple[Column, ...]:
    """The fitted cells of some models by regime, and all of them."""
    fitted = plan.with_role("fitted")
    regimes = [(name, [d for d in fitted if plan.benchmarks[d].regime == name]) for name in REGIMES]
    return (*(Column(name, grid(models, d)) for name, d in regimes), Column("all cells", grid(models, fitted)))


# ---- parts of the errors


@frame("percell", of=("errors",))
def percell(errors: pl.DataFrame) -> pl.DataFrame:
    """The calibrated rule (V3) and the cell's own fit: one record per fitted cell of the cohort and set of constants.

    The values after ``mech_anchor`` are its own, as in ``ERRORS``. ``gap`` is anchor minus cell; it may be negative,
    because the cell's scale is fitted with another policy than the one that the selector chooses.
    """
    keys = ["exponents", "mu", "model", "benchmark"]
    rows = errors.filter(pl.col("role") == "fitted", pl.col("group") != "new", pl.col("pool") == "ar")
    rule = rows.filter(rule="V3").rename({"error": "mech_anchor"})
    cell = rows.filter(rule="cell-fit").select(*keys, mech_cell="error")
    both = rule.join(cell, on=keys, how="left", maintain_order="left")
    of_rule = ["regime", "beta", "alpha", "alpha_lo", "alpha_hi", "boundary", "policy", "path"]
    values = [name for name in inference.ERROR_COLUMNS if name != "error"]
    gap = pl.col("mech_anchor") - pl.col("mech_cell")
    return both.select(*keys, *of_rule, "mech_cell", "mech_anchor", *values, gap.alias("gap"), "reason")


@frame("held_out_criterion", of=("errors",))
def held_out_criterion(errors: pl.DataFrame) -> pl.DataFrame:
    """Whether the mean error of each held-out benchmark stays within the limit that was set before sampling.

    Of the calibrated rule (V3) on fitted models and the AR pool; ``benchmark`` null: all together. ``oracle``: mean of
    the R1 fits (V1) of the same cells; ``beyond``: the cells above the limit as ``model error``; ``gap``: mean minus
    oracle.
    """
    rows = errors.filter(
        pl.col("role") == "held_out", pl.col("group") != "new", pl.col("pool") == "ar", pl.col("mu") == "cohort"
    )
    keys = ["exponents", "model", "benchmark"]
    rule = rows.filter(rule="V3").select(*keys, "error")
    both = rule.join(rows.filter(rule="V1").select(*keys, oracle="error"), on=keys, how="left", maintain_order="left")
    beyond = pl.concat_str("model", pl.col("error").round(2), separator=" ").filter(pl.col("error") > HELD_OUT_LIMIT)
    return (
        pl.concat([both, both.with_columns(benchmark=pl.lit(None, pl.String))])
        .group_by("exponents", "benchmark", maintain_order=True)
        .agg(
            mean=pl.col("error").mean(),
            oracle=pl.col("oracle").filter(pl.col("error").is_not_null()).mean(),
            cells=pl.col("error").count(),
            beyond=beyond.str.join(", "),
        )
        .with_columns(gap=pl.col("mean") - pl.col("oracle"), criterion=HELD_OUT_LIMIT)
        .with_columns(meets=pl.col("mean") <= pl.col("criterion"))
    )
