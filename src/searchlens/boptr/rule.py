"""BOPTR-P1 on one view of a cohort: regime exponents, mu_g, delta_m, N-hat and pi-hat (paper, section "SearchPath").

    N_hat(b) = round_B(exp(mu_g + delta_m) b^beta_g),  pi_hat = argmin L,  P_hat(b) = P_Base(pi_hat, N_hat(b))

Everything is computed on first use and kept. Arrays have a last axis of draws (``View``).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial, wraps
from typing import Any, Literal, ParamSpec, TypeVar

import numpy as np
import polars as pl
from polars.datatypes import DataTypeClass

from searchlens.analysis.uncertainty import Floats
from searchlens.boptr import fit
from searchlens.boptr.cohort import CohortPlan
from searchlens.boptr.fit import Array, Fit, Ints, Lattice
from searchlens.boptr.view import CellCounts, Counts, View
from searchlens.config.boptr import DEFAULTS, LN2, BoptrOptions, Regime

K = TypeVar("K")
T = TypeVar("T")
Given = ParamSpec("Given")
Exponents = Literal["paper", "own"]
PoolName = Literal["ar", "full"]


class Reason(Exception):  # noqa: N818
    """Why a number is not defined: raised where that shows. ``code`` is a key of ``REASONS``."""

    def __init__(self, code: str) -> None:
        if code not in REASONS:
            raise ValueError(f"unknown reason {code!r}")
        super().__init__(code)
        self.code = code

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Reason) and self.code == other.code

    def __hash__(self) -> int:
        return hash(self.code)


def attempt(make: Callable[Given, T], *args: Given.args, **named: Given.kwargs) -> T | Reason:
    """What a function returns, or why it is not defined."""
    try:
        return make(*args, **named)
    except Reason as reason:
        return Reason(reason.code)  # without the traceback, which holds the arrays of every frame


def defined(things: Iterable[tuple[K, Callable[[], T]]]) -> dict[K, T]:
    """What is made for each key, those left out that are not defined."""
    each = {key: attempt(make) for key, make in things}
    return {key: thing for key, thing in each.items() if not isinstance(thing, Reason)}


REASONS = {
    "no_base": "Base was not sampled on this benchmark at every budget",
    "no_rl": "RL was not sampled on this benchmark under the default policy at every budget",
    "no_anchor_cell": "the anchor was not sampled on this benchmark",
    "no_calibration": "the model has no Base/RL pair on the anchor benchmark to fit its offset on",
    "no_prototype": "the anchor cell has no pair sampled at every budget, so there is no prototype to select by",
    "policy_missing": "a policy that the row needs is not in this cell's pool",
    "no_expanded_pool": "no policy of the expanded pool was sampled in this cell",
    "no_rltrain": "Base was not sampled on the RL-training split",
    "too_few_models": "fewer fitted models than the row needs",
    "outside_cohort": "the model's Base is not one of the fitted cohort's",
    "non_finite_alpha": "the prior gives no finite, positive scale",
    "no_extension": "the pools do not reach beyond the budgets of B",
    "no_batches": "nothing was sampled a second time",
    "one_model": "with a single model the offset is zero by definition",
    "held_out": "the benchmark is held out: its regime was assigned beforehand and nothing is fitted on it",
    "no_other_models": "no other model was sampled on this benchmark",
    "no_matched_cells": "no cell is defined for every row of the table",
    "constant": "the values are all alike, so the statistic is not defined",
    "no_support": "no question is solved, so a ratio to P is not defined",
    "unknown_tokens": "token counts are unknown, so nothing is known to finish first",
    "no_rates": "stop and extraction rates were not recorded on both sides",
    "no_difference": "Base and RL solve equally many questions at every budget, so nothing crosses",
    "one_question": "a single question has no spread to resample",
}


@dataclass(frozen=True, eq=False)
class Path:
    """A path through one Base landscape."""

    policy: Ints
    budget: Ints
    """``policy``, ``budget``: positions in the cell's estimates. Shape (budgets, draws)."""
    alpha: Floats | None = None
    beta: Floats | None = None
    """``alpha``, ``beta``: parameters of a path that follows the law; None for other paths. Shape (draws,)."""
    skip: np.ndarray | None = None
    """Budgets to leave out of the mean, because the cell has no such point; None: no budget. Shape (budgets, draws)."""


def kept(*, shared: bool = False) -> Callable[[Callable[Given, T]], Callable[Given, T]]:
    """A function of a rule whose results the rule keeps (``Rule.keep``), by its other arguments, as they are given."""

    def decorator(make: Callable[Given, T]) -> Callable[Given, T]:
        @wraps(make)
        def once(*args: Given.args, **named: Given.kwargs) -> T:
            rule, *others = args
            assert isinstance(rule, Rule)
            key = (make.__qualname__, *others, *named.items())
            return rule.keep(key, lambda: make(*args, **named), shared=shared)

        return once

    return decorator


class Rule:
    """BOPTR-P1 fitted on a view, with the paper's exponents or the cohort's own, some models left out of the cohort
    mean mu.
    """

    def __init__(
        self,
        view: View,
        options: BoptrOptions = DEFAULTS,
        exponents: Exponents = "paper",
        without: Iterable[str] = (),
    ) -> None:
        self.view, self.options, self.exponents = view, options, exponents
        self.cohort_models = [name for name in view.plan.fitted_models if name not in set(without)]
        self._results: dict[Hashable, object] = {}
        self._shared_results: dict[Hashable, object] = {}

    def with_constants(self, exponents: Exponents, without: Iterable[str] = ()) -> Rule:
        """The rule with other constants on the same view; both share the results that need no constants."""
        other = Rule(self.view, self.options, exponents, without)
        other._shared_results = self._shared_results
        return other

    def keep(self, key: Hashable, make: Callable[[], T], *, shared: bool = False) -> T:
        """The result of ``make``, computed once per key; ``shared``: once for all constants (``with_constants``)."""
        results = self._shared_results if shared else self._results
        if key not in results:
            results[key] = attempt(make)
        if isinstance(result := results[key], Reason):
            raise Reason(result.code)
        return result  # type: ignore[return-value]

    # ---- cells

    @property
    def plan(self) -> CohortPlan:
        """Models and benchmarks of the cohort."""
        return self.view.plan

    @property
    def anchor(self) -> tuple[str, str]:
        """The anchor cell."""
        return self.plan.anchor_model, self.plan.anchor_benchmark

    def regime(self, benchmark: str) -> Regime:
        """g(d)."""
        return self.plan.benchmarks[benchmark].regime

    def base(self, model: str, benchmark: str) -> CellCounts:
        """Base estimates of a cell, or ``no_base``."""
        base = self.view.base(model, benchmark)
        if base is None:
            raise Reason("no_base")
        return base

    def cell(self, model: str, benchmark: str, metric: str = "P") -> tuple[CellCounts, Counts]:
        """Base estimates and the RL target of a metric in a cell; ``no_base`` or ``no_rl``."""
        base, target = self.base(model, benchmark), self.view.target(model, benchmark, metric)
        if target is None:
            raise Reason("no_rl")
        return base, target

    def sampled(self, benchmark: str) -> list[str]:
        """Models of the cohort with both sides on a benchmark."""
        view = self.view
        return [m for m in self.cohort_models if view.base(m, benchmark) and view.target(m, benchmark) is not None]

    # ---- fits

    def lattice(self, beta: float | None = None) -> Lattice:
        """All (alpha, beta) of the grids; with ``beta``, all alpha at this one exponent."""
        return fit.lattice(fit.ALPHAS, fit.BETAS if beta is None else (beta,), self.view.levels)

    def smooth(self, model: str, benchmark: str, pool: PoolName = "ar") -> Fit:
        """R1: the cell's own (alpha, beta, pi) with one policy for all budgets, as a position in the cell."""
        key = ("smooth", model, benchmark, pool)
        return self.keep(key, lambda: self._fit(model, benchmark, pool, None, slice(None)), shared=True)

    def scale(self, model: str, benchmark: str, beta: float) -> Fit:
        """The cell's own (alpha, pi) of the AR pool at a fixed beta."""
        return self._fit(model, benchmark, "ar", beta, slice(None))

    def _fit(self, model: str, benchmark: str, pool: PoolName, beta: float | None, draws: Ints | slice) -> Fit:
        """The best (alpha, beta, pi) in some draws, pi as a position in the cell; ``beta`` may be fixed."""
        at, P, R = self._sides(model, benchmark, pool)
        beta_g = self.options.beta[self.regime(benchmark)] if beta is None else beta
        best = fit.fit_locked(P[..., draws], R[..., draws], self.lattice(beta), beta_g)
        return replace(best, policy=at[best.policy])

    def _sides(self, model: str, benchmark: str, pool: PoolName = "ar") -> tuple[Ints, Counts, Counts]:
        """Positions of a pool, its counts and the RL target, these on the view's axis of draws."""
        base, target = self.cell(model, benchmark)
        at = base.pool(pool)
        P, R = (np.broadcast_to(side, (*side.shape[:-1], self.view.draws)) for side in (base.P[at], target))
        return at, P, R

    # ---- beta_g

    def beta(self, benchmark: str) -> Floats:
        """beta_g of a benchmark's regime, shape (draws,).

        With the paper's exponents, the constant of option ``beta``. With the cohort's own, the argmin over the grid of
        the R1 error summed over the cohort's models and the regime's fitted benchmarks; the constant if the regime has
        no sampled cell. A fitted benchmark is left out of its own estimate if its regime has another one. Ties go to
        the beta nearest to the constant, then to the smaller, as in the fits. The smallest of tied exponents would be
        the most brittle: on multiple choice all of 0.8 to 1.2 give N = b, but 0.8 for a small range of alpha only.
        """
        constant = self.options.beta[self.regime(benchmark)]
        sources = self.sources(benchmark)
        if self.exponents == "paper" or not sources:
            return np.full(self.view.draws, constant)
        return self._own_beta(sources, constant)

    @kept()
    def sources(self, benchmark: str) -> tuple[str, ...]:
        """The sampled benchmarks that estimate the own constants of a benchmark's regime."""
        regime = self.regime(benchmark)
        fitted = tuple(d for d in self.plan.with_role("fitted") if self.regime(d) == regime and self.sampled(d))
        return tuple(d for d in fitted if d != benchmark) or fitted

    @kept()
    def _own_beta(self, sources: tuple[str, ...], constant: float) -> Floats:
        total, betas = np.zeros((1, 1)), np.zeros(1)
        for benchmark in sources:
            for model in self.sampled(benchmark):
                betas, error = self._by_beta(model, benchmark)
                total = total + error / self.view.total(benchmark)
        # Exponents that lead every cell to the same path have the same sum to the bit. Under the estimator first_k
        # other paths may have equal counts, whose sums differ by the rounding of float64.
        tied = total <= total.min(axis=0) + 1e-9
        distance = np.round(np.abs(betas - constant), 9)[:, None]
        chosen: Floats = betas[np.where(tied, distance, np.inf).argmin(axis=0)]
        return chosen

    @kept(shared=True)
    def _by_beta(self, model: str, benchmark: str) -> tuple[Floats, Array]:
        _, P, R = self._sides(model, benchmark)
        return fit.best_by_beta(P, R, self.lattice())

    # ---- mu_g and delta_m

    def log_alpha(self, model: str, benchmark: str, at: str | None = None) -> Floats:
        """Natural logarithm of the alpha that a cell has at beta_g, shape (draws,).

        ``at`` is the benchmark d whose beta_g is used, by default the cell's own. A constant that is applied to d must
        use beta_g(d), which is estimated without d; the cell's own beta_g may have been estimated from d.
        """
        beta = self.beta(at or benchmark)

        def fitted() -> Floats:
            log_alpha = np.empty(self.view.draws)
            for value in np.unique(beta):
                draws = np.flatnonzero(beta == value)
                log_alpha[draws] = np.log(self._fit(model, benchmark, "ar", float(value), draws).alpha)
            return log_alpha

        return self.keep(("log_alpha", model, benchmark, content_key(beta)), fitted, shared=True)

    def delta(self, model: str) -> Floats:
        """delta_m = ln alpha of (m, anchor benchmark) minus the cohort's mean, (draws,); or ``no_calibration``."""
        try:
            log_alpha = self.log_alpha(model, self.plan.anchor_benchmark)
        except Reason:
            raise Reason("no_calibration") from None
        return log_alpha - self.mean_log_alpha((self.plan.anchor_benchmark,))

    def log_alphas(self, benchmark: str, at: str | None = None) -> dict[str, Floats]:
        """``log_alpha`` on a benchmark by model, of those of the cohort that have one."""
        return defined((m, partial(self.log_alpha, m, benchmark, at)) for m in self.cohort_models)

    @kept()
    def mean_log_alpha(self, benchmarks: tuple[str, ...], at: str | None = None) -> Floats:
        """Mean of ``log_alpha`` over the cohort's models and these benchmarks; 0 if no cell was sampled."""
        cells = [value for d in benchmarks for value in self.log_alphas(d, at).values()]
        return np.asarray(np.mean(cells, axis=0)) if cells else np.zeros(self.view.draws)

    def mu(self, benchmark: str) -> Floats:
        """mu_g of a benchmark's regime, shape (draws,).

        In the anchor's regime the cohort mean of ln alpha on the anchor benchmark. In the others a constant with the
        paper's exponents, 0 (nonmath) or ln 2 (floor), and the mean over the regime's cells with the cohort's own.
        """
        regime = self.regime(benchmark)
        if regime == self.regime(self.plan.anchor_benchmark):
            return self.mean_log_alpha((self.plan.anchor_benchmark,), benchmark)
        if self.exponents == "own" and (sources := self.sources(benchmark)):
            return self.mean_log_alpha(sources, benchmark)
        return np.full(self.view.draws, LN2 if regime == "floor" else 0.0)

    # ---- the path

    def n_hat(self, log_alpha: Floats, beta: Floats) -> Ints:
        """Positions of N-hat(b) on the budget axis, shape (budgets, draws)."""
        slope = np.arange(self.view.levels)[:, None] * beta
        return fit.round_position(log_alpha / LN2 + slope, self.view.levels)

    @kept(shared=True)
    def prototype(self) -> Array:
        """r-bar: features of the policy of the anchor cell's R1 fit, along the path of that fit."""
        locked = self.smooth(*self.anchor)
        return fit.prototype(self.features(*self.anchor), locked.policy, locked.path)

    def features(self, model: str, benchmark: str) -> fit.Features:
        """r(pi, n) of a cell with a Base."""
        key = ("features", self.plan.models[model].base, benchmark)
        return self.keep(key, lambda: fit.features(self.base(model, benchmark)), shared=True)

    def select(self, model: str, benchmark: str, path: Ints) -> Ints:
        """pi-hat along a path of budgets, as positions in the cell, shape (draws,)."""
        base = self.base(model, benchmark)
        try:
            proto = self.prototype()
        except Reason:
            raise Reason("no_prototype") from None

        def chosen() -> Ints:
            cost = fit.COST_WEIGHT * fit.relative_cost(base)
            key = ("distances", self.plan.models[model].base, benchmark)
            distance = self.keep(key, lambda: fit.distances(self.features(model, benchmark), proto), shared=True)
            return fit.select(distance, path, cost, base.autoregressive, base.policies)

        # Many rows take the same path, whatever their constants.
        key = ("select", self.plan.models[model].base, benchmark, content_key(path.astype(np.uint8)))
        return self.keep(key, chosen, shared=True)

    def path(self, model: str, benchmark: str, log_alpha: Floats, beta: Floats | None = None) -> Path:
        """The rule's path at a scale, shape (draws,): N-hat, then pi-hat along it; ``beta`` is beta_g by default."""
        if not np.isfinite(log_alpha).all():
            raise Reason("non_finite_alpha")
        exponent = self.beta(benchmark) if beta is None else beta
        budget = self.n_hat(log_alpha, exponent)
        chosen = self.select(model, benchmark, budget)
        return Path(np.broadcast_to(chosen, budget.shape), budget, np.exp(log_alpha), exponent)


def content_key(*arrays: np.ndarray) -> bytes:
    """A hash of the contents of arrays, by which equal paths are computed once."""
    hashed = hashlib.sha256()
    for array in arrays:
        hashed.update(np.ascontiguousarray(array).data)
    return hashed.digest()


Columns = Mapping[str, Any]
Find = Callable[[], Columns | Iterable[Columns]]
"""Makes what is known of a cell, one record or several, or raises the ``Reason`` why there is none."""

_NAMES: dict[DataTypeClass | pl.DataType, str] = {
    pl.String: """
        model benchmark group role regime pool policy path reason budgets scope batch metric detail
        exponents mu rule label kind column first second verdict verdict_models constraint without map item claim check
        status flag severity signature decision variant branch feature scale selection head estimator
    """,
    pl.Float64: """
        error lo hi lo_reselected hi_reselected corrected lo_corrected hi_corrected lo_models hi_models
        alpha alpha_lo alpha_hi boundary beta assigned own se delta delta_lo delta_hi
        alpha_min alpha_max beta_min beta_max
        difference p p_holm lo_both hi_both spread p_both p_both_holm null_mean null_lowest mean sd
        base rl rl_minus_base rl_minus_best value
        beta_q alpha_q mech_q gap gap_lo gap_hi envelope envelope_lo envelope_hi rl_lo rl_hi
        crossing_share share never tie_share
        mean_abs mean_signed chance largest p_max headroom knee p0 u log2_n_star delta_hat ridge tail largest_z
        intercept slope slope_lo slope_hi r r_lo r_hi
        pearson_r loo_pseudo_r2 loo_pseudo_r2_raw score score_raw q05 q50 q95
    """,
    pl.UInt32: "b questions models cells of differing crossing tie median triples paths policies pairings",
    pl.Int64: "n points budget batches shuffle k",
    pl.Boolean: "a_priori decides diagnostic meets_criterion overlap recoverable",
    pl.List(pl.Float64): "exact tied",
}
TYPES = {name: dtype for dtype, names in _NAMES.items() for name in names.split()}


def schema(names: str, **exceptions: DataTypeClass) -> pl.Schema:
    """The schema of a frame: its columns, separated by spaces; ``exceptions`` have another type than in ``TYPES``."""
    return pl.Schema({name: exceptions.get(name) or TYPES[name] for name in names.split()})


def records(columns: pl.Schema, cells: Iterable[tuple[Columns, Find]]) -> pl.DataFrame:
    """A frame of cells and what is known of each; a cell of which nothing is known has one record with the reason."""
    rows: list[Columns] = []
    for cell, find in cells:
        try:
            known = find()
            rows += [{**cell, **each} for each in ([known] if isinstance(known, Mapping) else known)]
        except Reason as reason:
            rows.append({**cell, "reason": reason.code})
    return pl.DataFrame(rows, columns)


def by_cell(
    columns: pl.Schema, cells: Iterable[tuple[str, str]], find: Callable[[str, str], Columns | Iterable[Columns]]
) -> pl.DataFrame:
    """``records`` of what is found in each (model, benchmark)."""
    return records(columns, (({"model": model, "benchmark": d}, partial(find, model, d)) for model, d in cells))
