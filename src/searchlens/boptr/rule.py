"""BOPTR-P1 on one view of a cohort: regime exponents, mu_g, delta_m, N-hat and pi-hat (paper, section "SearchPath").

    N_hat(b) = round_B(exp(mu_g + delta_m) b^beta_g),  pi_hat = argmin L,  P_hat(b) = P_Base(pi_hat, N_hat(b))

Everything is computed on first use and kept. Arrays have a last axis of draws (``View``).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import wraps
from typing import Any, Literal, ParamSpec, TypeVar

import numpy as np
import polars as pl
from polars.datatypes import DataTypeClass

from searchlens.analysis.uncertainty import Floats
from searchlens.boptr import fit, selector
from searchlens.boptr.cohort import CohortPlan
from searchlens.boptr.fit import Array, Fit, Ints, Lattice
from searchlens.boptr.view import Counts, Readouts, View
from searchlens.config.boptr import DEFAULTS, LN2, BoptrOptions, Regime

T = TypeVar("T")
Given = ParamSpec("Given")
Exponents = Literal["paper", "own"]
PoolName = Literal["ar", "full"]


@dataclass(frozen=True)
class Reason:
    """Why a number is not defined."""

    code: str
    """Key of ``REASONS``."""

    def __post_init__(self) -> None:
        """Check the code."""
        if self.code not in REASONS:
            raise ValueError(f"unknown reason {self.code!r}")

    @property
    def text(self) -> str:
        """The reason as a sentence."""
        return REASONS[self.code]


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
    """``policy``, ``budget``: positions in the cell's readouts. Shape (budgets, draws)."""
    alpha: Floats | None = None
    beta: Floats | None = None
    """``alpha``, ``beta``: parameters of a path that follows the law; None for other paths. Shape (draws,)."""
    skip: np.ndarray | None = None
    """Budgets to leave out of the mean, because the cell has no such point; None: no budget. Shape (budgets, draws)."""


def kept(*, shared: bool = False) -> Callable[[Callable[Given, T]], Callable[Given, T]]:
    """A function of a rule whose results the rule keeps (``Rule.keep``), by its other arguments, as they are given."""

    def decorator(make: Callable[Given, T]) -> Callable[Given, T]:
        @wraps(make)
        def found(*args: Given.args, **named: Given.kwargs) -> T:
            rule, *others = args
            assert isinstance(rule, Rule)
            key = (make.__qualname__, *others, *named.items())
            return rule.keep(key, lambda: make(*args, **named), shared=shared)

        return found

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
            results[key] = make()
        return results[key]  # type: ignore[return-value]

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

    def cell(self, model: str, benchmark: str, metric: str = "P") -> tuple[Readouts, Counts] | Reason:
        """Base readouts and the RL target of a metric in a cell; ``no_base`` or ``no_rl``."""
        base, target = self.view.base(model, benchmark), self.view.target(model, benchmark, metric)
        if base is None:
            return Reason("no_base")
        return Reason("no_rl") if target is None else (base, target)

    # ---- fits

    def lattice(self, beta: float | None = None) -> Lattice:
        """All (alpha, beta) of the grids; with ``beta``, all alpha at this one exponent."""
        alphas = tuple(fit.alpha_grid(self.options.alpha_low, self.options.alpha_high))
        betas = tuple(fit.beta_grid(self.options.beta_top)) if beta is None else (beta,)
        return fit.lattice(alphas, betas, self.view.levels, self.options.rounding)

    def smooth(self, model: str, benchmark: str, pool: PoolName = "ar") -> Fit | Reason:
        """R1: the cell's own (alpha, beta, pi) with one policy for all budgets, as a position in the cell."""
        return self.keep(("smooth", model, benchmark, pool), lambda: self._smooth(model, benchmark, pool), shared=True)

    def _smooth(self, model: str, benchmark: str, pool: PoolName) -> Fit | Reason:
        cell = self.cell(model, benchmark)
        if isinstance(cell, Reason):
            return cell
        base, target = cell
        at = base.pool(pool)
        beta_g = self.options.beta[self.regime(benchmark)]
        args = (self._along(base.P[at]), self._along(target), self.lattice(), self.options.ties, beta_g)
        return _placed(fit.fit_locked(*args), at)

    def scale(self, model: str, benchmark: str, beta: float, draws: Ints | None = None) -> Fit | Reason:
        """The cell's own (alpha, pi) of the AR pool at a fixed beta, in all draws or in ``draws``."""
        cell = self.cell(model, benchmark)
        if isinstance(cell, Reason):
            return cell
        base, target = cell
        at = base.autoregressive
        P, R = self._along(base.P[at]), self._along(target)
        if draws is not None:
            P, R = P[:, :, draws], R[:, draws]
        return _placed(fit.fit_locked(P, R, self.lattice(beta), self.options.ties, beta), at)

    def _along(self, counts: Counts) -> Counts:
        """The counts on the view's axis of draws, also if they are equal in all draws."""
        return np.broadcast_to(counts, (*counts.shape[:-1], self.view.draws))

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
        sources = self._sources(benchmark)
        if self.exponents == "paper" or not sources:
            return np.full(self.view.draws, constant)
        return self._own_beta(sources, constant)

    @kept()
    def _sources(self, benchmark: str) -> tuple[str, ...]:
        regime = self.regime(benchmark)
        fitted = [d for d in self.plan.with_role("fitted") if self.regime(d) == regime and self._sampled(d)]
        others = tuple(d for d in fitted if d != benchmark)
        return others or tuple(fitted)

    def _sampled(self, benchmark: str) -> list[str]:
        return [m for m in self.cohort_models if not isinstance(self.cell(m, benchmark), Reason)]

    @kept()
    def _own_beta(self, sources: tuple[str, ...], constant: float) -> Floats:
        total, betas = np.zeros((1, 1)), np.zeros(1)
        for benchmark in sources:
            for model in self._sampled(benchmark):
                betas, error = self._by_beta(model, benchmark)
                total = total + error / self.view.total(benchmark)
        # Exponents that lead every cell to the same path have the same sum to the bit, in either readout. Under prefix
        # other paths may have equal counts, whose sums differ by the rounding of float64.
        tied = total <= total.min(axis=0) + 1e-9
        distance = np.round(np.abs(betas - constant), 9)[:, None]
        chosen: Floats = betas[np.where(tied, distance, np.inf).argmin(axis=0)]
        return chosen

    @kept(shared=True)
    def _by_beta(self, model: str, benchmark: str) -> tuple[Floats, Array]:
        cell = self.cell(model, benchmark)
        assert not isinstance(cell, Reason)
        base, target = cell
        return fit.best_by_beta(self._along(base.P[base.autoregressive]), self._along(target), self.lattice())

    # ---- mu_g and delta_m

    def log_alpha(self, model: str, benchmark: str, at: str | None = None) -> Floats | Reason:
        """Natural logarithm of the alpha that a cell has at beta_g, shape (draws,).

        ``at`` is the benchmark d whose beta_g is used, by default the cell's own. A constant that is applied to d must
        use beta_g(d), which is estimated without d; the cell's own beta_g may have been estimated from d.
        """
        beta = self.beta(at or benchmark)
        key = ("log_alpha", model, benchmark, content_key(beta))
        return self.keep(key, lambda: self._log_alpha(model, benchmark, beta), shared=True)

    def _log_alpha(self, model: str, benchmark: str, beta: Floats) -> Floats | Reason:
        log_alpha = np.empty(self.view.draws)
        for value in np.unique(beta):
            draws = np.flatnonzero(beta == value)
            cell = self.scale(model, benchmark, float(value), draws)
            if isinstance(cell, Reason):
                return cell
            log_alpha[draws] = np.log(cell.alpha)
        return log_alpha

    def delta(self, model: str) -> Floats | Reason:
        """delta_m = ln alpha of (m, anchor benchmark) minus the cohort's mean, shape (draws,)."""
        log_alpha = self.log_alpha(model, self.plan.anchor_benchmark)
        if isinstance(log_alpha, Reason):
            return Reason("no_calibration")
        delta: Floats = log_alpha - self.mean_log_alpha((self.plan.anchor_benchmark,))
        return delta

    @kept()
    def mean_log_alpha(self, benchmarks: tuple[str, ...], at: str | None = None) -> Floats:
        """Mean of ``log_alpha`` over the cohort's models and these benchmarks; 0 if no cell was sampled."""
        cells = [
            value
            for d in benchmarks
            for m in self.cohort_models
            if not isinstance(value := self.log_alpha(m, d, at), Reason)
        ]
        return mean_log_alpha(np.stack(cells)) if cells else np.zeros(self.view.draws)

    def mu(self, benchmark: str) -> Floats:
        """mu_g of a benchmark's regime, shape (draws,).

        In the anchor's regime the cohort mean of ln alpha on the anchor benchmark. In the others a constant with the
        paper's exponents, 0 (nonmath) or ln 2 (floor; option ``mu_floor``), and the mean over the regime's cells with
        the cohort's own.
        """
        regime = self.regime(benchmark)
        if regime == self.regime(self.plan.anchor_benchmark):
            return self.mean_log_alpha((self.plan.anchor_benchmark,), benchmark)
        if self.exponents == "own" and (sources := self._sources(benchmark)):
            return self.mean_log_alpha(sources, benchmark)
        if regime == "floor" and self.options.mu_floor == "cohort_mean" and (sources := self._sources(benchmark)):
            return self.mean_log_alpha(sources, benchmark)
        return np.full(self.view.draws, LN2 if regime == "floor" else 0.0)

    def moved(self, benchmark: str, delta: Floats | Reason) -> Floats | Reason:
        """Ln alpha of a model with this offset, mu_g + delta_m."""
        return delta if isinstance(delta, Reason) else self.mu(benchmark) + delta

    # ---- the path

    def n_hat(self, log_alpha: Floats, beta: Floats) -> Ints:
        """Positions of N-hat(b) on the budget axis, shape (budgets, draws)."""
        slope = np.arange(self.view.levels)[:, None] * beta
        return fit.round_position(log_alpha / LN2 + slope, self.view.levels, self.options.rounding)

    @kept(shared=True)
    def prototype(self) -> Array | Reason:
        """r-bar: features of the policy of the anchor cell's R1 fit, along the path of that fit."""
        locked = self.smooth(*self.anchor)
        if isinstance(locked, Reason):
            return locked
        return selector.prototype(self.features(*self.anchor), locked.policy, locked.path, self.options)

    def features(self, model: str, benchmark: str) -> selector.Features:
        """r(pi, n) of a cell with a Base."""
        base = self.view.base(model, benchmark)
        assert base is not None
        key = ("features", self.plan.models[model].base, benchmark)
        return self.keep(key, lambda: selector.features(base, self.options), shared=True)

    def select(self, model: str, benchmark: str, path: Ints) -> Ints | Reason:
        """pi-hat along a path of budgets, as positions in the cell, shape (draws,)."""
        proto, base = self.prototype(), self.view.base(model, benchmark)
        if base is None:
            return Reason("no_base")
        if isinstance(proto, Reason):
            return Reason("no_prototype")
        candidates = self.candidates(base, benchmark)
        if not len(candidates):
            return Reason("policy_missing")

        def chosen() -> Ints:
            cost = selector.COST_WEIGHT * selector.relative_cost(base)
            key = ("distances", self.plan.models[model].base, benchmark)
            distance = self.keep(
                key, lambda: selector.distances(self.features(model, benchmark), proto, self.options), shared=True
            )
            return selector.select(distance, path, cost, candidates, base.policies)

        # Many rows take the same path, whatever their constants.
        key = ("select", self.plan.models[model].base, benchmark, content_key(path.astype(np.uint8)))
        return self.keep(key, chosen, shared=True)

    def candidates(self, base: Readouts, benchmark: str) -> Ints:
        """Positions of the policies that the selector may choose: the AR pool (``exclude_default_on_anchor``)."""
        at = base.autoregressive
        if self.options.exclude_default_on_anchor and benchmark == self.plan.anchor_benchmark:
            at = np.array([i for i in at if base.policies[i] != self.plan.default_policy], int)
        return at

    def path(self, model: str, benchmark: str, log_alpha: Floats | Reason, beta: Floats | None = None) -> Path | Reason:
        """The rule's path at a scale, shape (draws,): N-hat, then pi-hat along it; ``beta`` is beta_g by default."""
        if isinstance(log_alpha, Reason):
            return log_alpha
        if not np.isfinite(log_alpha).all():
            return Reason("non_finite_alpha")
        exponent = self.beta(benchmark) if beta is None else beta
        budget = self.n_hat(log_alpha, exponent)
        chosen = self.select(model, benchmark, budget)
        if isinstance(chosen, Reason):
            return chosen
        return Path(np.broadcast_to(chosen, budget.shape), budget, np.exp(log_alpha), exponent)


def mean_log_alpha(log_alpha: Floats) -> Floats:
    """mu: the mean over models (first axis) of ln alpha."""
    mean: Floats = np.asarray(log_alpha, float).mean(axis=0)
    return mean


def content_key(*arrays: np.ndarray) -> bytes:
    """A hash of the contents of arrays, by which equal paths are computed once."""
    hashed = hashlib.sha256()
    for array in arrays:
        hashed.update(np.ascontiguousarray(array).data)
    return hashed.digest()


def _placed(best: Fit, at: Ints) -> Fit:
    """The fit with policies as positions in the whole cell, instead of in the pool ``at``."""
    return replace(best, policy=at[best.policy])


Columns = Mapping[str, Any]
Found = Columns | Iterable[Columns] | Reason
"""What is known of a cell: one record, several, or why there is none."""

_NAMES: dict[DataTypeClass | pl.DataType, str] = {
    pl.String: """
        model benchmark group role regime pool policy path reason budgets scope batch metric detail
        exponents mu tier label kind column first second verdict verdict_models constraint without map item claim check
        status flag severity signature decision reading branch feature scale selection head readout
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


def records(columns: pl.Schema, cells: Iterable[tuple[Columns, Found]]) -> pl.DataFrame:
    """A frame of cells and what is known of each; a cell of which nothing is known has one record with the reason."""
    rows: list[Columns] = []
    for cell, found in cells:
        known = {"reason": found.code} if isinstance(found, Reason) else found
        rows += [{**cell, **each} for each in ([known] if isinstance(known, Mapping) else known)]
    return pl.DataFrame(rows, columns)


def by_cell(columns: pl.Schema, cells: Iterable[tuple[str, str]], find: Callable[[str, str], Found]) -> pl.DataFrame:
    """``records`` of what is found in each (model, benchmark)."""
    return records(columns, (({"model": model, "benchmark": name}, find(model, name)) for model, name in cells))
