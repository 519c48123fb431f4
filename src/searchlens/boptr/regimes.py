"""Regime discovery: the exponent that each cell prefers by itself, and what the floor regime costs or gains.

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

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any, Literal

import numpy as np
import polars as pl

from searchlens.analysis.uncertainty import Floats, Interval
from searchlens.boptr import fit, inference
from searchlens.boptr.fit import Array, Fit, Ints, Lattice
from searchlens.boptr.inference import ErrorDraws
from searchlens.boptr.rows import (
    At,
    Point,
    Predict,
    Prediction,
    Row,
    boptr,
    budgets_text,
    operating_points,
    point_counts,
    point_errors,
    readout_interval,
)
from searchlens.boptr.rule import Columns, Found, Path, Reason, Rule, records, schema
from searchlens.boptr.view import Readouts, View, bootstrap_view
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
interval if both maps predict the same, and whether the intervals of the two paths' readouts
(``rows.readout_interval``) overlap at every budget."""


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
                    "own": _own_beta(own, benchmark),
                },
                _constrained(rule, boot, refits, constraint, model, benchmark),
            )
            for model, benchmark, constraint in cells
        ),
    )


def _constrained(
    rule: Rule, boot: View, refits: View, constraint: Constraint, model: str, benchmark: str
) -> dict[str, Any] | Reason:
    if rule.plan.benchmarks[benchmark].role == "held_out":
        return Reason("held_out")
    problem = _problem(rule, rule.view, constraint, model, benchmark)
    if isinstance(problem, Reason):
        return problem
    best = problem.fit()
    points = problem.points(best)
    se = float(point_errors(boot, model, benchmark, points, rule.plan.budgets).plain[1:].std(ddof=1))
    scale = 100 / rule.view.total(benchmark)
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
        "exact": problem.tied(0),
        "tied": problem.tied(se / scale),
    }


@dataclass(frozen=True, eq=False)
class _Problem:
    """One fit: counts P of the policies ``at`` that a constraint allows, and the RL target R; axes as in ``View``."""

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
        """Operating points of a fit in draw 0."""
        policy = np.broadcast_to(self.at[best.policy], best.path.shape)
        return operating_points(self.rule, self.base, Path(policy, best.path))

    def tied(self, margin: float) -> list[float]:
        """Exponents whose smallest error is within ``margin`` questions of the best, in draw 0."""
        betas, error = _errors_by_beta(self.P, self.R, self.rule.lattice(), free=self.constraint == "R0")
        exponents: list[float] = betas[error <= error.min() + margin + fit.SAME].tolist()
        return exponents


def _problem(rule: Rule, view: View, constraint: Constraint, model: str, benchmark: str) -> _Problem | Reason:
    base, target = view.base(model, benchmark), view.target(model, benchmark)
    if base is None or target is None:
        return Reason("no_base" if base is None else "no_rl")
    at = base.autoregressive
    if constraint == "R2":
        if rule.plan.default_policy not in base.index:
            return Reason("policy_missing")
        at = np.array([base.index[rule.plan.default_policy]])
    return _Problem(rule, constraint, base, at, base.P[at], target, rule.options.beta[rule.regime(benchmark)])


def _errors_by_beta(P: Array, R: Array, grid: Lattice, *, free: bool) -> tuple[Floats, Floats]:
    """Betas of the lattice and the smallest error at each, in questions, in draw 0."""
    error = fit.errors(P[..., :1], R[..., :1])
    error = error.min(axis=0, keepdims=True) if free else error
    total = fit.path_errors(error, grid.paths).min(axis=1)[:, 0] / P.shape[1]
    betas = np.unique(grid.beta)
    return betas, np.array([total[grid.path[grid.beta == beta]].min() for beta in betas], float)


def _refitted(rule: Rule, refits: View, constraint: Constraint, benchmark: str) -> tuple[float | None, float | None]:
    problem = _problem(rule, refits, constraint, rule.plan.anchor_model, benchmark)
    assert isinstance(problem, _Problem)
    drawn, grid = problem.fit().beta, np.unique(rule.lattice().beta)
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
    rows: list[tuple[Columns, Found]] = []
    for left_out in (None, *rule.plan.fitted_models):
        own = rule.with_constants("own", () if left_out is None else (left_out,))
        for benchmark in rule.plan.with_role("fitted", "held_out"):
            cell = {"benchmark": benchmark, "regime": rule.regime(benchmark), "without": left_out}
            beta = _own_beta(own, benchmark)
            rows.append((cell, Reason("too_few_models") if beta is None else {"beta": beta}))
    return records(BETA_STABILITY, rows)


def _own_beta(own: Rule, benchmark: str) -> float | None:
    """The cohort's own exponent; None if no cell of the benchmark's regime can be fitted (``Rule.beta``)."""
    alike = [d for d in own.plan.with_role("fitted") if own.regime(d) == own.regime(benchmark)]
    sampled = any(not isinstance(own.cell(m, d), Reason) for m in own.cohort_models for d in alike)
    return float(own.beta(benchmark)[0]) if sampled else None


# ---- three regimes or two


def two_regimes(rule: Rule, at: At) -> Prediction:
    """H5 with every floor benchmark treated as math: mu_g, beta_g and offset of the anchor cell."""
    if rule.regime(at.benchmark) != "floor":
        return boptr(rule, at)
    name, source = rule.anchor
    return rule.path(*at.cell, rule.moved(source, rule.delta(name)), rule.beta(source))


TWO_REGIMES = Row("H5 two regimes", "H5 two regimes (floor as math)", "rule", "anchor; cohort through μ", two_regimes)
MAPS = {"three regimes": boptr, "two regimes": two_regimes}


@frame("beta_sensitivity")
def beta_sensitivity(rule: Rule, boot: View) -> pl.DataFrame:
    """Three regimes against two on the anchor model (paper, table of the sensitivity of the floor assignment)."""
    model, confidence = rule.plan.anchor_model, rule.options.confidence
    rows: list[tuple[Columns, Found]] = []
    maps = {
        name: {d: _mapped(rule, boot, predict, model, d) for d in rule.plan.with_role("fitted")}
        for name, predict in MAPS.items()
    }
    for name, cells in maps.items():
        for d, cell in cells.items():
            rows.append(({"map": name, "benchmark": d}, cell if isinstance(cell, Reason) else cell.columns(confidence)))
        errors = [cell.errors for cell in cells.values() if isinstance(cell, _Cell)]
        rows.append(({"map": name}, ErrorDraws.mean(errors).columns(confidence) if errors else Reason("no_rl")))
    rows += [({"map": "three - two"}, columns) for columns in _differences(rule, *maps.values())]
    return records(BETA_SENSITIVITY, (({"model": model, **cell}, found) for cell, found in rows))


def _differences(
    rule: Rule, three: Mapping[str, _Cell | Reason], two: Mapping[str, _Cell | Reason]
) -> Iterator[dict[str, Any]]:
    """Three regimes minus two, on each floor benchmark and on average."""
    confidence, gaps, same = rule.options.confidence, [], True
    for d in three:
        a, b = three[d], two[d]
        if isinstance(a, Reason) or isinstance(b, Reason):
            continue
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
    """A path of the sample: its policy and budgets, the intervals of its readouts and the error in every draw."""

    policy: str
    path: str
    ends: Interval
    errors: ErrorDraws

    def columns(self, confidence: float) -> dict[str, Any]:
        """What is known of the path."""
        return {"policy": self.policy, "path": self.path, **self.errors.columns(confidence)}


def _mapped(rule: Rule, boot: View, predict: Predict, model: str, benchmark: str) -> _Cell | Reason:
    cell = rule.cell(model, benchmark)
    path = cell if isinstance(cell, Reason) else predict(rule, At(model, benchmark))
    if isinstance(path, Reason):
        return path
    base, landscape = rule.view.base(model, benchmark), rule.view.cohort.base(model, benchmark)
    assert isinstance(path, Path) and base is not None and landscape is not None
    points = operating_points(rule, base, path)
    ends = readout_interval(boot, point_counts(boot, landscape, benchmark, points), benchmark, rule.options.confidence)
    errors = point_errors(boot, model, benchmark, points, rule.plan.budgets)
    return _Cell(points[0][0], budgets_text(points), ends, errors)
