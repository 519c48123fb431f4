"""Regime discovery: which exponent each cell prefers by itself, and what the floor regime costs or gains.

``regime_betas`` has a row per model, benchmark and policy constraint: R0 (a policy for each budget), R1 (one policy),
R2 (the RL default policy), each fitted over both grids on the AR pool. ``beta`` is the fit, ``lo`` to ``hi`` its
interval with the fit made again in each bootstrap draw (anchor model only). ``exact`` are the exponents that reach the
same error, ``tied`` those within one bootstrap standard deviation ``se`` of it. ``assigned`` is the frozen exponent of
the regime, ``own`` the cohort's estimate for this benchmark. A held-out benchmark has its regime ``a_priori`` and no
fit. Where ``exact`` has several exponents the last resort of the fit is the one nearest to ``assigned``, in the draws
too: then agreement with it is no evidence, and neither is a narrow interval.

``beta_stability`` repeats the cohort's own estimate with each model left out.

``beta_sensitivity`` compares the three regimes with two, in which the floor benchmarks are math.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import polars as pl

from searchlens.boptr import fit
from searchlens.boptr.fit import Array, Fit, Ints, Lattice
from searchlens.boptr.points import Point, interval, operating_points, point_counts, point_errors
from searchlens.boptr.rows import At, Prediction, Row, boptr, path_text
from searchlens.boptr.rule import Path, Reason, Rule
from searchlens.boptr.view import Readouts, View, bootstrap_view
from searchlens.uncertainty import Floats, wilson

Constraint = Literal["R0", "R1", "R2"]
CONSTRAINTS: tuple[Constraint, ...] = ("R0", "R1", "R2")
REFITS = 1000
"""At most so many bootstrap draws are fitted again for the interval of beta."""

REGIME_BETAS = pl.Schema(
    {
        "model": pl.String(),
        "benchmark": pl.String(),
        "regime": pl.String(),
        "a_priori": pl.Boolean(),
        "constraint": pl.String(),
        "beta": pl.Float64(),
        "lo": pl.Float64(),
        "hi": pl.Float64(),
        "alpha": pl.Float64(),
        "policy": pl.String(),
        "path": pl.String(),
        "error": pl.Float64(),
        "se": pl.Float64(),
        "exact": pl.List(pl.Float64()),
        "tied": pl.List(pl.Float64()),
        "assigned": pl.Float64(),
        "own": pl.Float64(),
        "reason": pl.String(),
    }
)
"""Errors and ``se`` in percentage points; ``lo`` and ``hi`` are those of ``beta``; R0 names a policy for each budget,
separated by spaces."""

BETA_STABILITY = pl.Schema(
    {
        "benchmark": pl.String(),
        "regime": pl.String(),
        "without": pl.String(),
        "beta": pl.Float64(),
        "reason": pl.String(),
    }
)
"""``without`` is null where no model is left out."""

BETA_SENSITIVITY = pl.Schema(
    {
        "map": pl.String(),
        "model": pl.String(),
        "benchmark": pl.String(),
        "policy": pl.String(),
        "path": pl.String(),
        "error": pl.Float64(),
        "lo": pl.Float64(),
        "hi": pl.Float64(),
        "overlap": pl.Boolean(),
        "reason": pl.String(),
    }
)
"""Percentage points; benchmark null: the mean over the fitted benchmarks. Rows ``three - two`` hold paired differences
of errors, and whether the Wilson intervals of the two paths' readouts overlap at every budget."""


# ---- the exponents of single cells


def regime_betas(rule: Rule, boot: View) -> pl.DataFrame:
    """R0, R1 and R2 of every fitted model on every fitted benchmark (paper, table of regime discovery).

    Parameters
    ----------
    rule : Rule
        On the sample.
    boot : View
        Bootstrap view of the same cohort.

    Returns
    -------
    polars.DataFrame
        ``REGIME_BETAS``.
    """
    own = rule.with_constants("own")
    again = bootstrap_view(rule.view.cohort, min(REFITS, rule.options.draws), rule.options.seed)
    rows = []
    for model in rule.plan.fitted_models:
        for benchmark in rule.plan.with_role("fitted", "held_out"):
            known = {
                "model": model,
                "benchmark": benchmark,
                "regime": rule.regime(benchmark),
                "a_priori": rule.plan.benchmarks[benchmark].role == "held_out",
                "assigned": rule.options.beta[rule.regime(benchmark)],
                "own": float(own.beta(benchmark)[0]) if _estimable(own, benchmark) else None,
            }
            for constraint in CONSTRAINTS:
                found = _constrained(rule, boot, again, constraint, model, benchmark)
                rows.append({**known, "constraint": constraint, **found})
    return pl.DataFrame(rows, REGIME_BETAS)


def _constrained(
    rule: Rule, boot: View, again: View, constraint: Constraint, model: str, benchmark: str
) -> dict[str, Any]:
    if rule.plan.benchmarks[benchmark].role == "held_out":
        return {"reason": "held_out"}
    problem = _problem(rule, rule.view, constraint, model, benchmark)
    if isinstance(problem, Reason):
        return {"reason": problem.code}
    best = problem.fit()
    points = problem.points(best)
    se = float(point_errors(boot, model, benchmark, points, rule.plan.budgets)[1:].std(ddof=1))
    scale = 100 / rule.view.total(benchmark)
    names = list(dict.fromkeys(policy for policy, _ in points)) if constraint != "R0" else [p for p, _ in points]
    lo, hi = _refitted(rule, again, constraint, benchmark) if model == rule.plan.anchor_model else (None, None)
    return {
        "beta": float(best.beta[0]),
        "lo": lo,
        "hi": hi,
        "alpha": float(best.alpha[0]),
        "policy": " ".join(names),
        "path": "/".join(str(n) for _, n in points),
        "error": float(best.error[0]) * scale,
        "se": se,
        "exact": problem.tied(0),
        "tied": problem.tied(se / scale),
    }


@dataclass(frozen=True, eq=False)
class _Problem:
    """One fit: counts of the pool that a constraint allows, shape (policies, budgets, draws), and the target."""

    rule: Rule
    constraint: Constraint
    base: Readouts
    at: Ints
    P: Array
    R: Array
    beta_g: float

    def fit(self) -> Fit:
        """The best (alpha, beta) with its policy or policies."""
        make = fit.fit_free if self.constraint == "R0" else fit.fit_locked
        return make(self.P, self.R, self.rule.lattice(), self.rule.options.ties, self.beta_g)

    def points(self, best: Fit) -> list[Point]:
        """Operating points of a fit in the first draw."""
        policy = np.broadcast_to(self.at[best.policy], best.path.shape)
        return operating_points(self.rule, self.base, Path(policy, best.path))

    def tied(self, margin: float) -> list[float]:
        """Exponents whose smallest error is within ``margin`` questions of the best, in the first draw."""
        betas, error = _errors_by_beta(self.P, self.R, self.rule.lattice(), free=self.constraint == "R0")
        chosen: list[float] = betas[error <= error.min() + margin + fit.SAME].tolist()
        return chosen


def _problem(rule: Rule, view: View, constraint: Constraint, model: str, benchmark: str) -> _Problem | Reason:
    base, target = view.base(model, benchmark), view.target(model, benchmark)
    if base is None or target is None:
        return Reason("no_base" if base is None else "no_rl")
    at = base.autoregressive
    if constraint == "R2":
        if rule.plan.default_policy not in base.index:
            return Reason("policy_missing")
        at = np.array([base.index[rule.plan.default_policy]])
    beta_g = rule.options.beta[rule.regime(benchmark)]
    return _Problem(rule, constraint, base, at, base.P[at], target, beta_g)


def _errors_by_beta(P: Array, R: Array, grid: Lattice, *, free: bool) -> tuple[Floats, Floats]:
    """Smallest error of the first draw at every beta of the lattice, in questions."""
    error = fit.errors(P[..., :1], R[..., :1])
    error = error.min(axis=0, keepdims=True) if free else error
    total = fit.path_errors(error, grid.paths).min(axis=1)[:, 0] / P.shape[1]
    betas = np.unique(grid.beta)
    return betas, np.array([total[grid.path[grid.beta == beta]].min() for beta in betas], float)


def _refitted(rule: Rule, again: View, constraint: Constraint, benchmark: str) -> tuple[float | None, float | None]:
    problem = _problem(rule, again, constraint, rule.plan.anchor_model, benchmark)
    assert isinstance(problem, _Problem)
    return interval(problem.fit().beta, rule.options.confidence)


# ---- the cohort's own exponents


def beta_stability(rule: Rule) -> pl.DataFrame:
    """The cohort's own beta of every benchmark, with all models and with each left out.

    Returns
    -------
    polars.DataFrame
        ``BETA_STABILITY``. A fitted benchmark is left out of its own estimate where its regime has another one, so a
        held-out benchmark shows the estimate from the whole regime.
    """
    rows = []
    for left_out in (None, *rule.plan.fitted_models):
        own = rule.with_constants("own", () if left_out is None else (left_out,))
        for benchmark in rule.plan.with_role("fitted", "held_out"):
            row = {"benchmark": benchmark, "regime": rule.regime(benchmark), "without": left_out}
            known = _estimable(own, benchmark)
            found = {"beta": float(own.beta(benchmark)[0])} if known else {"reason": "too_few_models"}
            rows.append({**row, **found})
    return pl.DataFrame(rows, BETA_STABILITY)


def _estimable(rule: Rule, benchmark: str) -> bool:
    """Whether any cell of the benchmark's regime can be fitted; the paper's constant stands in otherwise."""
    alike = [d for d in rule.plan.with_role("fitted") if rule.regime(d) == rule.regime(benchmark)]
    return any(not isinstance(rule.cell(m, d), Reason) for m in rule.cohort_models for d in alike)


# ---- three regimes or two


def two_regimes(rule: Rule, at: At) -> Prediction:
    """H5 with every floor benchmark treated as math: mu and beta of the anchor benchmark, the anchor's offset."""
    if rule.regime(at.benchmark) != "floor":
        return boptr(rule, at)
    name, source = rule.anchor
    delta = rule.delta(name)
    return delta if isinstance(delta, Reason) else rule.path(*at.cell, rule.mu(source) + delta, rule.beta(source))


TWO_REGIMES = Row("H5 two regimes", "H5 two regimes (floor as math)", "rule", "anchor; cohort through μ", two_regimes)
MAPS = {"three regimes": boptr, "two regimes": two_regimes}


def beta_sensitivity(rule: Rule, boot: View) -> pl.DataFrame:
    """Three regimes against two on the anchor model (paper, table of the sensitivity of the floor assignment).

    Parameters
    ----------
    rule : Rule
        On the sample.
    boot : View
        Bootstrap view of the same cohort; paths stay those of the sample.

    Returns
    -------
    polars.DataFrame
        ``BETA_SENSITIVITY``.
    """
    model, confidence = rule.plan.anchor_model, rule.options.confidence
    cells = {name: dict(_mapped(rule, boot, model, name)) for name in MAPS}
    rows: list[dict[str, Any]] = []
    for name, found in cells.items():
        rows += [{"map": name, "benchmark": d, **_described(cell, confidence)} for d, cell in found.items()]
        rows.append({"map": name, **_mean([c for c in found.values() if isinstance(c, _Cell)], confidence)})
    pairs = {d: (three, cells["two regimes"][d]) for d, three in cells["three regimes"].items()}
    defined = {d: (a, b) for d, (a, b) in pairs.items() if isinstance(a, _Cell) and isinstance(b, _Cell)}
    for d, pair in defined.items():
        if rule.regime(d) == "floor":
            difference = _valued(pair[0].errors - pair[1].errors, confidence)
            overlap = wilson_overlap(pair[0].counts, pair[1].counts, rule.view.total(d), confidence)
            rows.append({"map": "three - two", "benchmark": d, **difference, "overlap": overlap})
    if defined:
        mean = np.mean([three.errors - two.errors for three, two in defined.values()], axis=0)
        rows.append({"map": "three - two", **_valued(mean, confidence)})
    return pl.DataFrame([{"model": model, **row} for row in rows], BETA_SENSITIVITY)


def wilson_overlap(first: Array, second: Array, total: float, confidence: float) -> bool:
    """Whether the Wilson intervals of two readouts (counts out of ``total``) overlap at every budget."""
    one, other = wilson(first, total, confidence), wilson(second, total, confidence)
    return bool(np.all((one.lo <= other.hi) & (other.lo <= one.hi)))


@dataclass(frozen=True, eq=False)
class _Cell:
    """A path of the sample: its points, their counts in the sample and its error in every draw."""

    policy: str
    path: str
    counts: Array
    errors: Floats


def _mapped(rule: Rule, boot: View, model: str, which: str) -> Iterator[tuple[str, _Cell | Reason]]:
    for benchmark in rule.plan.with_role("fitted"):
        cell = rule.cell(model, benchmark)
        if isinstance(cell, Reason):
            yield benchmark, cell
            continue
        path = MAPS[which](rule, At(model, benchmark))
        if isinstance(path, Reason):
            yield benchmark, path
            continue
        assert isinstance(path, Path)
        points = operating_points(rule, cell[0], path)
        landscape = rule.view.cohort.base(model, benchmark)
        assert landscape is not None
        counts = point_counts(rule.view, landscape, benchmark, points)[:, 0]
        errors = point_errors(boot, model, benchmark, points, rule.plan.budgets)
        yield benchmark, _Cell(points[0][0], path_text(path, tuple(rule.plan.budgets)), counts, errors)


def _described(cell: _Cell | Reason, confidence: float) -> dict[str, Any]:
    if isinstance(cell, Reason):
        return {"reason": cell.code}
    return {"policy": cell.policy, "path": cell.path, **_valued(cell.errors, confidence)}


def _mean(cells: list[_Cell], confidence: float) -> dict[str, Any]:
    if not cells:
        return {"reason": "no_rl"}
    return _valued(np.mean([cell.errors for cell in cells], axis=0), confidence)


def _valued(draws: Floats, confidence: float) -> dict[str, Any]:
    """A statistic with its interval."""
    lo, hi = interval(draws, confidence)
    return {"error": float(draws[0]), "lo": lo, "hi": hi}
