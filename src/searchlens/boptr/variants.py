"""Rule variants v5, v6 and v7, and the two oracles that they are compared with (``docs/rule-variants.md``).

v5 is the paper's rule. v6 replaces the selector's P - Q and Q by one signed axis and first finish. v7 has two heads,
one fitted on P and one on Q, each with its own scale and selector, and predicts the mean of their two curves. Every
variant is run at two levels of information: the anchor's scale alone, or an offset from each model's own pair.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path as File
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from searchlens.analysis.uncertainty import Floats
from searchlens.boptr import fit
from searchlens.boptr.fit import Array, Features, Fit, Ints
from searchlens.boptr.protocol import study_cells
from searchlens.boptr.rows import ROWS, At, Blend, Prediction, Row, anchor_scale, calibrated, curve, path_text
from searchlens.boptr.rule import Path, PoolName, Reason, Rule, records, schema
from searchlens.boptr.view import CellCounts, Counts
from searchlens.catalogue import frame
from searchlens.store.files import read_bytes

SIGNED_WEIGHTS = (1.0, 1.0, 1.0, 0.5, 0.2)
"""Weights W of v6: rank of P, A, rank of T, controller, log cost."""
SUPPORT_WEIGHTS = (1.0, 0.5, 0.2)
"""Weights W of v7's support head: rank of P, controller, log cost."""
CONCENTRATION_WEIGHTS = (1.0, 1.0)
"""Weights W of v7's concentration head: A, rank of T."""


class Ranks(NamedTuple):
    """Ranks of a cell's estimates on the scale of the selector, each of shape (policies, budgets, draws)."""

    P: Array
    Q: Array
    T: Array


Coordinates = Callable[[Ranks, Floats], Features]
"""Features of a cell, from its ranks and its fixed coordinates."""


# ---- coordinates


def first_finish(rule: Rule, model: str, benchmark: str) -> Counts:
    """T counts of a cell's policies, shape (policies, budgets, draws).

    ``unknown_tokens`` if token counts, and so T, are unknown for any policy that may be chosen.
    """

    def finished() -> Counts:
        landscape, base = rule.view.cohort.base(model, benchmark), rule.base(model, benchmark)
        assert landscape is not None
        counts = rule.view.counts(landscape, benchmark, "T", base.policies, rule.plan.budgets)
        if np.isnan(counts[base.autoregressive]).any():
            raise Reason("unknown_tokens")
        return counts

    return rule.keep(("T", rule.plan.models[model].base, benchmark), finished)


def ranks(rule: Rule, model: str, benchmark: str) -> Ranks:
    """Ranks of a cell whose T is known; those of P and Q are the ranks of the paper's rule."""
    base, finished = rule.base(model, benchmark), first_finish(rule, model, benchmark)
    P, _, Q = rule.features(model, benchmark).ranks
    return Ranks(P, Q, fit.percentile_rank(finished, finished[base.autoregressive]))


def signed_axis(rank: Ranks) -> Array:
    """A: rank of Q minus rank of P; positive if a policy concentrates, 0 at one sample.

    Shape (policies, budgets, draws), in [-1, 1] on the percentile scale.
    """
    return rank.Q - rank.P


_COORDINATES: dict[str, Coordinates] = {
    "v6": lambda rank, fixed: Features((rank.P, signed_axis(rank), rank.T), fixed, SIGNED_WEIGHTS),
    "v7 support": lambda rank, fixed: Features((rank.P,), fixed, SUPPORT_WEIGHTS),
    "v7 concentration": lambda rank, fixed: Features((signed_axis(rank), rank.T), fixed[:0], CONCENTRATION_WEIGHTS),
}
"""r6 = [rank(P), A, rank(T), ctrl, log cost]; r_S = [rank(P), ctrl, log cost]; r_A = [A, rank(T)]."""


# ---- rules with other fits and other selectors


class _Votes(Rule):
    """A rule whose scales are fitted on Q instead of P, at the same exponents."""

    def __init__(self, rule: Rule) -> None:
        super().__init__(rule.view, rule.options, rule.exponents)
        self.cohort_models, self._rule = rule.cohort_models, rule

    def cell(self, model: str, benchmark: str, metric: str = "Q") -> tuple[CellCounts, Counts]:
        """Base estimates and the RL target of a cell, with Q in the place of P."""
        base, target = super().cell(model, benchmark, metric)
        return replace(base, P=base.Q), target

    def beta(self, benchmark: str) -> Floats:
        """beta_g of the paper's rule: all variants and heads share it."""
        return self._rule.beta(benchmark)


class _Head(Rule):
    """A rule with other selector coordinates; exponents and scales are those of ``fits``."""

    def __init__(self, rule: Rule, fits: Rule, coordinates: Coordinates) -> None:
        super().__init__(rule.view, rule.options, rule.exponents)
        self.cohort_models = rule.cohort_models
        self._rule, self._fits, self._coordinates = rule, fits, coordinates

    def beta(self, benchmark: str) -> Floats:
        return self._fits.beta(benchmark)

    def log_alpha(self, model: str, benchmark: str, at: str | None = None) -> Floats:
        return self._fits.log_alpha(model, benchmark, at)

    def smooth(self, model: str, benchmark: str, pool: PoolName = "ar") -> Fit:
        return self._fits.smooth(model, benchmark, pool)

    def select(self, model: str, benchmark: str, path: Ints) -> Ints:
        for cell in ((model, benchmark), self.anchor):
            first_finish(self._rule, *cell)
        return super().select(model, benchmark, path)

    def features(self, model: str, benchmark: str) -> Features:
        rule, key = self._rule, ("ranks", self.plan.models[model].base, benchmark)
        rank = rule.keep(key, lambda: ranks(rule, model, benchmark))
        return self._coordinates(rank, rule.features(model, benchmark).fixed)


def _votes(rule: Rule) -> Rule:
    return rule.keep("votes", lambda: _Votes(rule))


def _head(rule: Rule, name: str, fits: Rule) -> Rule:
    return rule.keep(name, lambda: _Head(rule, fits, _COORDINATES[name]))


# ---- variants

Core = Callable[[Rule, At], Path]
"""v5, the paper's rule: the scale of each model's own pair (``rows.calibrated``) or the anchor's (``anchor_scale``)."""


def signed(rule: Rule, at: At, core: Core) -> Prediction:
    """v6: the scale of v5, and a selector on rank(P), the signed axis A and rank(T)."""
    return core(_head(rule, "v6", rule), at)


def decoupled(rule: Rule, at: At, core: Core) -> Prediction:
    """v7: the mean of P along the paths of a support head (fitted on P) and a concentration head (fitted on Q)."""
    support = core(_head(rule, "v7 support", rule), at)
    concentration = core(_head(rule, "v7 concentration", _votes(rule)), at)
    base, draws = rule.base(*at.cell), rule.view.draws
    mean: Counts = np.mean([curve(head, base, draws) for head in (support, concentration)], axis=0)
    return Blend(mean, paths=(support, concentration))


_ROW = {row.key: row for row in ROWS}
_OWN, _ANCHOR = "own pair on the anchor benchmark; cohort through μ", "anchor, anchor benchmark"
VARIANT_ROWS = (
    replace(_ROW["H6"], key="per-budget oracle", label="per-budget oracle"),
    replace(_ROW["H7"], key="smooth path", label="smooth path"),
    Row("v5", "v5 shared-core", "rule", _OWN, calibrated),
    Row("v6", "v6 signed SAT", "rule", _OWN, partial(signed, core=calibrated)),
    Row("v7", "v7 axis-decoupled", "rule", _OWN + "; P and Q", partial(decoupled, core=calibrated)),
    Row("v5-anchor", "v5 shared-core, one anchor", "rule", _ANCHOR, anchor_scale),
    Row("v6-anchor", "v6 signed SAT, one anchor", "rule", _ANCHOR, partial(signed, core=anchor_scale)),
    Row(
        "v7-anchor",
        "v7 axis-decoupled, one anchor",
        "rule",
        _ANCHOR + "; P and Q",
        partial(decoupled, core=anchor_scale),
    ),
)
"""v5 is V3 and MAIN of the other tables; v5-anchor is B0. The oracles are H6 and H7."""


@frame("rule_variants", of=(), in_words=True)
def variant_table() -> pl.DataFrame:
    """What each variant is, in the columns of the paper's table; measured numbers are joined on the row columns.

    ``rule`` and ``rule_anchor``: key in ``VARIANT_ROWS`` of the variant with own pairs and with the anchor's scale
    alone; null if it has no such row.
    """
    columns = ("variant", "state", "parameters", "use", "interpretation", "rule", "rule_anchor")
    return pl.read_csv(read_bytes(File(__file__).with_name("variants.csv")), schema=dict.fromkeys(columns, pl.String()))


# ---- what the fits identify


SCALES = schema("model estimator alpha alpha_lo alpha_hi reason")
HEADS = schema("rule model benchmark head policy alpha beta path reason")


@frame("variant_scales", of=("rule",), in_words=True)
def variant_scales(rule: Rule) -> pl.DataFrame:
    """The fitted alpha of every model on the anchor benchmark: on P (v5, v6, support head of v7) and on Q (v7).

    ``alpha_lo`` and ``alpha_hi``: the smallest and the largest alpha of the grid that reach the same error under any
    policy of the pool.
    """
    sides = (("P", rule), ("Q", _votes(rule)))
    return records(
        SCALES,
        (
            ({"model": m, "estimator": name}, partial(_scale_ends, fits, m))
            for m in rule.plan.models
            for name, fits in sides
        ),
    )


def _scale_ends(fits: Rule, model: str) -> dict[str, float]:
    benchmark = fits.plan.anchor_benchmark
    try:
        (base, target), log_alpha = fits.cell(model, benchmark), fits.log_alpha(model, benchmark)
    except Reason:
        raise Reason("no_calibration") from None
    grid = fits.lattice(float(fits.beta(benchmark)[0]))
    error = fit.path_errors(fit.errors(base.P[base.autoregressive], target), grid.paths).min(axis=1)[:, 0]
    tied = grid.alpha[error[grid.path] <= error.min() + fit.SAME]
    return {"alpha": float(np.exp(log_alpha[0])), "alpha_lo": float(tied.min()), "alpha_hi": float(tied.max())}


@frame("variant_heads", of=("rule",))
def variant_heads(rule: Rule) -> pl.DataFrame:
    """The heads of v7 in every cell, a record for each (support, concentration), at both levels of information."""
    rows = [row for row in VARIANT_ROWS if row.key.startswith("v7")]
    cells = itertools.product(rows, study_cells(rule.plan), enumerate(("support", "concentration")))
    return records(
        HEADS,
        (
            (
                {"rule": row.key, "model": model, "benchmark": benchmark, "head": head},
                partial(_of_head, rule, row, At(model, benchmark), i),
            )
            for row, (model, benchmark), (i, head) in cells
        ),
    )


def _of_head(rule: Rule, row: Row, at: At, head: int) -> dict[str, Any]:
    prediction, base = row.predict(rule, at), rule.base(*at.cell)
    assert isinstance(prediction, Blend)
    path = prediction.paths[head]
    assert path.alpha is not None and path.beta is not None
    return {
        "policy": base.policies[int(path.policy[0, 0])],
        "alpha": float(path.alpha[0]),
        "beta": float(path.beta[0]),
        "path": path_text(path, tuple(rule.plan.budgets)),
    }
