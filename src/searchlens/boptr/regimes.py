"""Fits of single cells: what a fit identifies, the exponent that each cell prefers, what the floor regime changes.

Many (alpha, beta) give the same path of budgets, and several paths nearly the same error. ``identified_scale`` has a
record per model: the fitted alpha at the frozen exponent, and the interval of alpha with exactly the same predictions.
``identified_set`` has a record per cell: the set of (alpha, beta, pi) that the data do not distinguish from the best.
``formula_same`` is the paper's table "Formula-same, parameters-different", with the interval of alpha added.

``regime_betas`` has a record per model, benchmark and policy constraint: R0 (a policy per budget), R1 (one policy), R2
(the RL default policy), each fitted over both grids on the AR pool. ``beta`` is the fitted exponent, ``lo`` to ``hi``
its interval with the fit repeated in each bootstrap draw (anchor model only): it contains ``beta``, and reaches to both
neighbours on the grid if every draw gives the same exponent, since a grid cannot say less. ``exact`` lists the
exponents that reach the same error, ``tied`` those within one bootstrap standard deviation ``se`` of it. ``assigned``
is the frozen exponent of the regime, ``own`` the cohort's estimate for this benchmark. A held-out benchmark has its
regime ``a_priori`` and no fit. If ``exact`` has several exponents, the fit takes the one nearest to ``assigned``, in
the draws too. Then neither agreement with ``assigned`` nor a narrow interval is evidence.

``beta_stability`` repeats the cohort's own estimate with each model left out.

``beta_sensitivity`` compares the three regimes with two, in which the floor benchmarks count as math.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Any, Literal

import numpy as np
import polars as pl

from searchlens.analysis.uncertainty import Interval
from searchlens.boptr import fit, inference
from searchlens.boptr.fit import Fit, Ints
from searchlens.boptr.inference import ErrorDraws
from searchlens.boptr.protocol import study_cells
from searchlens.boptr.rows import (
    At,
    Row,
    boptr,
    both_sides,
    budgets_text,
    estimate_interval,
    operating_points,
    point_counts,
    point_errors,
)
from searchlens.boptr.rule import Columns, Path, Reason, Rule, by_cell, records, schema
from searchlens.boptr.view import CellCounts, Counts, View, bootstrap_view
from searchlens.catalogue import frame

Constraint = Literal["R0", "R1", "R2"]
CONSTRAINTS: tuple[Constraint, ...] = ("R0", "R1", "R2")
REFITS = 1000
"""Most bootstrap draws in which beta is fitted again: more take longer, and beta lies on a coarse grid anyway."""

REGIME_BETAS = schema(
    "model benchmark regime a_priori constraint beta lo hi alpha policy path error se exact tied assigned own reason"
)
"""``error`` and ``se`` in percentage points; ``lo`` to ``hi`` is the interval of ``beta``. For R0 ``policy`` lists one
policy per budget, separated by spaces."""

BETA_STABILITY = schema("benchmark regime without beta reason")
"""``without``: the model that is left out, null for none."""

BETA_SENSITIVITY = schema(
    "map model benchmark policy path error lo hi corrected lo_corrected hi_corrected overlap reason"
)
"""Percentage points, as ``transfer.ERRORS`` but corrected for the bias of absolute values alone; benchmark null: the
mean over the fitted benchmarks. Records with ``map`` ``three - two`` hold paired differences of errors, without an
interval if both maps predict the same, and whether the intervals of the two paths' estimates
(``rows.estimate_interval``) overlap at every budget."""

IDENTIFIED_SCALE = schema(
    "model benchmark beta alpha alpha_lo alpha_hi boundary delta delta_lo delta_hi policy path error reason"
)
"""``benchmark`` is the anchor benchmark. Every alpha from ``alpha_lo`` (closed) to ``alpha_hi`` (open) gives the same
path N(b); 0 or inf: the path cannot change on that side. ``boundary``: distance of log2 alpha to the nearer end.
``delta_lo``, ``delta_hi``: the offsets at the two ends. ``policy``, ``path`` and ``error`` (percentage points) belong
to the fit."""

IDENTIFIED_SET = schema(
    "model benchmark alpha beta policy path error se triples of paths policies alpha_min alpha_max beta_min beta_max "
    "reason"
)
"""First the R1 fit on the AR pool; then the set of all (alpha, beta, pi) on the grids whose error is at most ``error``
plus ``se``, the bootstrap standard deviation of the fitted path's error (both in percentage points): its size
``triples`` of ``of``, its numbers of distinct ``paths`` N(b) and ``policies``, and the range of each parameter."""

FORMULA_SAME = schema("model alpha alpha_lo alpha_hi policy path error reason")
"""Columns as in ``IDENTIFIED_SCALE``: the exponent is the regime's, and one policy serves all budgets."""


# ---- the exponents of single cells


@frame("regime_betas")
def regime_betas(rule: Rule, boot: View) -> pl.DataFrame:
    """R0, R1 and R2 of every fitted model on every fitted benchmark (paper, table of regime discovery)."""
    own = rule.with_constants("own")
    refits = bootstrap_view(rule.view.cohort, min(REFITS, rule.options.draws), rule.options.seed)
    cells = product(rule.plan.fitted_models, rule.plan.with_role("fitted", "held_out"), CONSTRAINTS)
    return records(
        REGIME_BETAS,
        (
            (
                {
                    "model": model,
                    "benchmark": benchmark,
                    "regime": rule.regime(benchmark),
                    "a_priori": rule.plan.benchmarks[benchmark].role == "held_out",
                    "constraint": constraint,
                    "assigned": rule.options.beta[rule.regime(benchmark)],
                    "own": float(own.beta(benchmark)[0]) if own.sources(benchmark) else None,
                },
                partial(_constrained, rule, boot, refits, constraint, model, benchmark),
            )
            for model, benchmark, constraint in cells
        ),
    )


def _constrained(
    rule: Rule, boot: View, refits: View, constraint: Constraint, model: str, benchmark: str
) -> dict[str, Any]:
    if rule.plan.benchmarks[benchmark].role == "held_out":
        raise Reason("held_out")
    base, at, target, best = _fit(rule, constraint, model, benchmark)
    points = operating_points(rule, base, Path(np.broadcast_to(at[best.policy], best.path.shape), best.path))
    se = float(point_errors(boot, model, benchmark, points, rule.plan.budgets).plain[1:].std(ddof=1))
    scale, grid = 100 / rule.view.total(benchmark), rule.lattice()
    error = fit.errors(base.P[at], target)
    error = error.min(axis=0, keepdims=True) if constraint == "R0" else error
    total = fit.path_errors(error, grid.paths).min(axis=1)[:, 0] / rule.view.levels
    least = {beta: float(total[grid.path[grid.beta == beta]].min()) for beta in np.unique(grid.beta).tolist()}
    limit = min(least.values()) + fit.SAME
    lo, hi = _refitted(rule, refits, constraint, benchmark) if model == rule.plan.anchor_model else (None, None)
    return {
        "beta": float(best.beta[0]),
        "lo": lo,
        "hi": hi,
        "alpha": float(best.alpha[0]),
        "policy": " ".join([policy for policy, _ in points] if constraint == "R0" else [points[0][0]]),
        "path": budgets_text(points),
        "error": float(best.error[0]) * scale,
        "se": se,
        "exact": [beta for beta, error in least.items() if error <= limit],
        "tied": [beta for beta, error in least.items() if error <= limit + se / scale],
    }


def _fit(rule: Rule, constraint: Constraint, model: str, benchmark: str) -> tuple[CellCounts, Ints, Counts, Fit]:
    """Base, the policies of it that a constraint allows, the RL target, and the best (alpha, beta) of these."""
    base, target = rule.cell(model, benchmark)
    at = base.autoregressive
    if constraint == "R2":
        if rule.plan.default_policy not in base.index:
            raise Reason("policy_missing")
        at = np.array([base.index[rule.plan.default_policy]])
    make = fit.fit_free if constraint == "R0" else fit.fit_locked
    best = make(base.P[at], target, rule.lattice(), rule.options.beta[rule.regime(benchmark)])
    return base, at, target, best


def _refitted(rule: Rule, refits: View, constraint: Constraint, benchmark: str) -> tuple[float | None, float | None]:
    *_, best = _fit(Rule(refits, rule.options), constraint, rule.plan.anchor_model, benchmark)
    drawn, grid = best.beta, np.unique(rule.lattice().beta)
    lo, hi = inference.interval(drawn, rule.options.confidence)
    if np.isnan(lo):
        return None, None
    if lo == hi == drawn[0]:
        at = int(np.abs(grid - drawn[0]).argmin())
        lo, hi = grid[max(at - 1, 0)], grid[min(at + 1, len(grid) - 1)]
    return float(min(lo, drawn[0])), float(max(hi, drawn[0]))


# ---- the cohort's own exponents


@frame("beta_stability", of=("rule",))
def beta_stability(rule: Rule) -> pl.DataFrame:
    """The cohort's own beta of every benchmark, with all models and with each left out.

    A fitted benchmark is left out of its own estimate if its regime has another one, so only a held-out benchmark shows
    the estimate from the whole regime.
    """
    rows: list[Columns] = []
    for left_out in (None, *rule.plan.fitted_models):
        own = rule.with_constants("own", () if left_out is None else (left_out,))
        for benchmark in rule.plan.with_role("fitted", "held_out"):
            cell = {"benchmark": benchmark, "regime": rule.regime(benchmark), "without": left_out}
            known = own.sources(benchmark)
            rows.append(cell | ({"beta": own.beta(benchmark)[0]} if known else {"reason": "too_few_models"}))
    return pl.DataFrame(rows, BETA_STABILITY)


# ---- three regimes or two


def two_regimes(rule: Rule, at: At) -> Path:
    """H5 with every floor benchmark treated as math: mu_g, beta_g and offset of the anchor cell."""
    if rule.regime(at.benchmark) != "floor":
        return boptr(rule, at)
    name, source = rule.anchor
    return rule.path(*at.cell, rule.mu(source) + rule.delta(name), rule.beta(source))


TWO_REGIMES = Row("H5 two regimes", "paper's rule, two regimes (H5)", "rule", "anchor; cohort through μ", two_regimes)
MAPS = {"three regimes": boptr, "two regimes": two_regimes}


@frame("beta_sensitivity")
def beta_sensitivity(rule: Rule, boot: View) -> pl.DataFrame:
    """Three regimes against two on the anchor model (paper, table of the sensitivity of the floor assignment)."""
    model, confidence = rule.plan.anchor_model, rule.options.confidence
    rows: list[Columns] = []
    maps: list[dict[str, _Cell]] = []
    for name, predict in MAPS.items():
        cells: dict[str, _Cell] = {}
        for d in rule.plan.with_role("fitted"):
            try:
                cell = cells[d] = _mapped(rule, boot, predict, model, d)
                path = {"policy": cell.policy, "path": cell.path}
                rows.append({"map": name, "benchmark": d, **path, **cell.errors.columns(confidence)})
            except Reason as reason:
                rows.append({"map": name, "benchmark": d, "reason": reason.code})
        errors = [cell.errors for cell in cells.values()]
        rows.append({"map": name} | (ErrorDraws.mean(errors).columns(confidence) if errors else {"reason": "no_rl"}))
        maps.append(cells)
    rows += [{"map": "three - two", **columns} for columns in _differences(rule, *maps)]
    return pl.DataFrame([{"model": model, **row} for row in rows], BETA_SENSITIVITY)


def _differences(rule: Rule, three: Mapping[str, _Cell], two: Mapping[str, _Cell]) -> Iterator[dict[str, Any]]:
    """Three regimes minus two, on each floor benchmark and on average."""
    confidence, gaps, same = rule.options.confidence, [], True
    for d in (d for d in three if d in two):
        a, b = three[d], two[d]
        gaps.append(a.errors.minus(b.errors))
        equal = (a.policy, a.path) == (b.policy, b.path)
        same &= equal
        if rule.regime(d) == "floor":
            columns = _difference(gaps[-1], confidence, same=equal)
            yield {"benchmark": d, **columns, "overlap": overlap(a.ends, b.ends)}
    if gaps:
        yield _difference(ErrorDraws.mean(gaps), confidence, same=same)


def _difference(gap: ErrorDraws, confidence: float, *, same: bool) -> dict[str, Any]:
    columns = gap.columns(confidence, limits=(-100.0, 100.0))
    return {name: columns[name] for name in ("error", "corrected")} if same else columns


def overlap(first: Interval, second: Interval) -> bool:
    """Whether intervals overlap at every budget."""
    return bool(np.all((first.lo <= second.hi) & (second.lo <= first.hi)))


@dataclass(frozen=True, eq=False)
class _Cell:
    """A path of the sample: its policy and budgets, the intervals of its estimates and the error in every draw."""

    policy: str
    path: str
    ends: Interval
    errors: ErrorDraws


def _mapped(rule: Rule, boot: View, predict: Callable[[Rule, At], Path], model: str, benchmark: str) -> _Cell:
    (base, _), (landscape, _) = rule.cell(model, benchmark), both_sides(rule.view, model, benchmark)
    points = operating_points(rule, base, predict(rule, At(model, benchmark)))
    ends = estimate_interval(boot, point_counts(boot, landscape, benchmark, points), benchmark, rule.options.confidence)
    errors = point_errors(boot, model, benchmark, points, rule.plan.budgets)
    return _Cell(points[0][0], budgets_text(points), ends, errors)


# ---- what a fit identifies


@frame("identified_scale", of=("rule",))
def identified_scale(rule: Rule) -> pl.DataFrame:
    """The fitted scale of every model on the anchor benchmark, and the interval that the path identifies.

    mu is a mean over M models. If a model is one of these, its offset changes by (1 - 1/M) of the change of its ln
    alpha, the other models' alphas being fixed. With M = 1 the offset is zero whatever alpha is, and has no interval.
    """
    cells = [(model, rule.plan.anchor_benchmark) for model in rule.plan.models]
    return by_cell(IDENTIFIED_SCALE, cells, partial(_scale, rule))


def _scale(rule: Rule, model: str, benchmark: str) -> dict[str, Any]:
    beta = float(rule.beta(benchmark)[0])
    best = rule.scale(model, benchmark, beta)
    alpha, delta = float(best.alpha[0]), float(rule.delta(model)[0])
    columns = {"beta": beta, "alpha": alpha, "delta": delta, **_fitted(rule, model, benchmark, best)}
    low, high = fit.identified_alpha(alpha, beta, rule.view.levels)
    columns |= {"alpha_lo": low, "alpha_hi": high, "boundary": fit.boundary_distance(alpha, beta, rule.view.levels)}
    averaged = rule.sampled(benchmark)
    if share := 1 - 1 / len(averaged) if model in averaged else 1.0:
        with np.errstate(divide="ignore"):
            ends = (delta + share * float(np.log(end) - np.log(alpha)) for end in (low, high))
            columns |= dict(zip(("delta_lo", "delta_hi"), ends, strict=True))
    return columns


def _fitted(rule: Rule, model: str, benchmark: str, best: Fit) -> dict[str, Any]:
    points = operating_points(rule, rule.base(model, benchmark), Path(best.policy, best.path))
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


def _set(rule: Rule, boot: View, model: str, benchmark: str) -> dict[str, Any]:
    best, cell = rule.smooth(model, benchmark), rule.cell(model, benchmark)
    points = operating_points(rule, cell[0], Path(best.policy, best.path))
    se = float(point_errors(boot, model, benchmark, points, rule.plan.budgets).plain[1:].std(ddof=1))
    return {
        "alpha": float(best.alpha[0]),
        "beta": float(best.beta[0]),
        **_fitted(rule, model, benchmark, best),
        "se": se,
        **_within(rule, *cell, se * rule.view.total(benchmark) / 100),
    }


def _within(rule: Rule, base: CellCounts, target: fit.Array, margin: float) -> dict[str, Any]:
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
