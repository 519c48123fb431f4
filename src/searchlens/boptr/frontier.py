"""Base alone, and how much RL a scale needs: alpha from Base features alone (Z0), or from one anchor and them (Z1).

P_max@16 is the pass rate of the best autoregressive policy at the largest budget, P_0 that of the default policy at one
sample,

    u = sqrt((1 - P_0) (P_max - P_0)),

and N* is the saturation knee of the default policy. Searches do not count, because the expanded pool differs between
models. ``fingerprint`` reads them from a Base on the RL-training split (base@rltrain), ``descriptive`` on benchmarks
without an RL side.

Paper, appendix "RL-information budget frontier". A prior is a scale f that is read from the model's fingerprint on
base@rltrain: f = 2^(4u), which spans the budgets 1 to 16, or f = N*. ``FRONTIER_ROWS`` are the main rows,
``SWEEP_ROWS`` the rows over lambda and tau. ``probe`` is the regression of ln alpha_math on P_max@16.

"No RL" refers to alpha only: beta_g and the selector's prototype come from RL in every row, and so does mu_g outside of
math with the cohort's own exponents.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl
from scipy import stats

from searchlens.analysis.uncertainty import Floats
from searchlens.boptr import fit
from searchlens.boptr.rows import At, Predict, Prediction, Row, anchor_log_alpha, estimate_interval, point_counts
from searchlens.boptr.rule import Reason, Rule, by_cell, defined, kept, schema
from searchlens.boptr.view import View
from searchlens.catalogue import frame
from searchlens.config.boptr import LN2

# ---- the knee

TAU = 0.02
"""Tolerance of N* in the main rows, as a proportion (printed)."""


def knee(values: npt.ArrayLike, budgets: Sequence[int], tau: float) -> Floats:
    """N*: the smallest budget at which a curve, shape (budgets, ...), reaches its last value minus ``tau``, in its
    unit.

    Between two budgets the curve is linear in log2 b. For a curve that falls again, the first time counts. 1 for a
    constant curve, NaN if any value is NaN. Paper, appendix on the RL-information frontier: "the smallest budget within
    tau of the per-cell ceiling, log2-interpolated".

    >>> float(knee([0.2, 0.4, 0.6, 0.6], [1, 2, 4, 8], tau=0.1).round(3))
    2.828
    """
    curve = np.asarray(values, float)
    # GUARD: a value exactly tau below the last has reached it, whatever its floating-point error.
    level = curve[-1] - tau - fit.GUARD
    first = (curve >= level).argmax(axis=0)
    before = np.maximum(first - 1, 0)
    above, below = (np.take_along_axis(curve, at[None], axis=0)[0] for at in (first, before))
    steps = np.log2(np.asarray(budgets, float))
    rise = np.where(above > below, above - below, 1.0)
    share = np.where(first == before, 0.0, (level - below) / rise)
    budget: Floats = 2.0 ** (steps[before] + share * (steps[first] - steps[before]))
    return np.where(np.isnan(curve).any(axis=0), np.nan, budget)


# ---- the RL-training split


class Fingerprint(NamedTuple):
    """Features of one Base, each of shape (draws,)."""

    p_max: Floats
    p0: Floats
    """``p_max``, ``p0``: pass rates, in [0, 1]."""
    u: Floats
    """Sampling-headroom prior; NaN if P_max < P_0, which does not occur: no estimate of P falls with the budget."""
    log2_n_star: Floats
    """Saturation knee, in [0, log2 max(B)]."""


FEATURES = Fingerprint._fields


@kept(shared=True)
def fingerprint(rule: Rule, model: str, tau: float = TAU) -> Fingerprint:
    """Features of a model's Base on its own RL-training split; ``tau`` is the tolerance of N*, a proportion."""
    split = rule.plan.rltrain(model)
    base = rule.view.base(model, split) if split else None
    if split is None or base is None:
        raise Reason("no_rltrain")
    if rule.plan.default_policy not in base.index:
        raise Reason("policy_missing")
    draws, total, P = rule.view.draws, rule.view.total(split), base.P.astype(float)
    default = np.broadcast_to(P[base.index[rule.plan.default_policy]], (rule.view.levels, draws))
    p_max = np.broadcast_to(P[base.autoregressive, -1].max(axis=0), draws) / total
    p0 = default[0] / total
    with np.errstate(invalid="ignore"):
        u = np.sqrt((1 - p0) * (p_max - p0))
    # In questions, so that a knee exactly halfway between two budgets stays there: round_B rounds halves up.
    return Fingerprint(p_max, p0, u, np.log2(knee(default, rule.plan.budgets, round(tau * total, 6))))


# ---- a prior in place of RL

Prior = Literal["u", "N*"]
PRIORS: tuple[Prior, ...] = ("u", "N*")
LAMBDAS = (0.0, 0.25, 0.5, 0.75, 1.0)
"""Lambda in the sweep: how far row Z1 moves the anchor's ln alpha by the prior; 0: not at all."""
TAUS = (0.01, TAU, 0.05)
"""Tolerances of N* in the sweep."""


def log_prior(rule: Rule, model: str, prior: Prior, tau: float = TAU) -> Floats:
    """Ln f of a model, shape (draws,), or why it is undefined.

    f = 2^(u log2 max(B)), which is 1 if Base solves everything with one sample; or the saturation knee.
    """
    features = fingerprint(rule, model, tau)
    position = (rule.view.levels - 1) * features.u if prior == "u" else features.log2_n_star
    if not np.isfinite(position).all():
        raise Reason("non_finite_alpha")
    return LN2 * position


def zero_rl(rule: Rule, at: At, prior: Prior, tau: float = TAU) -> Prediction:
    """Z0: alpha_math = f_m; in other regimes mu_g + delta_m, with delta_m = ln f_m minus the cohort's mean of ln f."""
    log_f = log_prior(rule, at.model, prior, tau)
    if rule.regime(at.benchmark) == rule.regime(rule.plan.anchor_benchmark):
        return rule.path(*at.cell, log_f)
    cohort = defined((name, partial(log_prior, rule, name, prior, tau)) for name in rule.cohort_models)
    if not cohort:
        raise Reason("too_few_models")
    return rule.path(*at.cell, rule.mu(at.benchmark) + log_f - np.mean(list(cohort.values()), axis=0))


def one_anchor(rule: Rule, at: At, prior: Prior, weight: float = 1.0, tau: float = TAU) -> Prediction:
    """Z1: ln alpha_m = ln alpha_anchor + lambda (ln f_m - ln f_anchor), with alpha_anchor of B0.

    ``weight`` is lambda; with 0 the row is B0 wherever the prior is defined.
    """
    log_f, of_anchor = (log_prior(rule, name, prior, tau) for name in (at.model, rule.plan.anchor_model))
    return rule.path(*at.cell, anchor_log_alpha(rule, at.benchmark) + weight * (log_f - of_anchor))


_NO_RL, _ONE = "none for α", "anchor, anchor benchmark"

FRONTIER_ROWS = (
    Row("Z0-u", "prior from log2, no RL (Z0-u)", "frontier", _NO_RL, partial(zero_rl, prior="u")),
    Row("Z0-N*", "prior from N*, no RL (Z0-N*)", "frontier", _NO_RL, partial(zero_rl, prior="N*")),
    Row("Z1-u", "that prior with the anchor (Z1-u)", "frontier", _ONE, partial(one_anchor, prior="u")),
    Row("Z1-N*", "that prior with the anchor (Z1-N*)", "frontier", _ONE, partial(one_anchor, prior="N*")),
)


def _swept(key: str, predict: Predict) -> Row:
    return Row(key, key, "frontier", _ONE if key.startswith("Z1") else _NO_RL, predict)


SWEEP_ROWS = (
    *(_swept(f"Z1-{f} λ={w:g}", partial(one_anchor, prior=f, weight=w)) for f in PRIORS for w in LAMBDAS),
    *(
        _swept(f"{row}-N* τ={tau:g}", partial(predict, prior="N*", tau=tau))
        for tau in TAUS
        for row, predict in (("Z0", zero_rl), ("Z1", one_anchor))
    ),
)
"""Z1 at every lambda, and both N* rows at every tau; otherwise as the main rows."""


_PROBE = schema("n intercept slope slope_lo slope_hi r r_lo r_hi reason")


@frame("probe", of=("rule",))
def probe(rule: Rule) -> pl.DataFrame:
    """Ordinary least squares of ln alpha_math on P_max@16 of base@rltrain over the cohort's models, on the sample.

    One record: ``n`` models; the slope with its t interval; Pearson r with its Fisher z interval, null with fewer than
    four models. Undefined with fewer than three, or if either variable is the same for all of them (``constant``).
    """
    alphas = rule.log_alphas(rule.plan.anchor_benchmark)
    features = defined((name, partial(fingerprint, rule, name)) for name in alphas)
    n = len(features)
    x, y = np.array([(found.p_max[0], alphas[name][0]) for name, found in features.items()]).reshape(n, 2).T
    if n < 3 or min(np.ptp(x), np.ptp(y)) <= 1e-9:
        return pl.DataFrame([{"n": n, "reason": "too_few_models" if n < 3 else "constant"}], _PROBE)
    confidence = rule.options.confidence
    line = stats.linregress(x, y)
    half = line.stderr * stats.t.ppf(0.5 + confidence / 2, n - 2)
    row = {"n": n, "intercept": line.intercept, "slope": line.slope, "slope_lo": line.slope - half}
    row |= {"slope_hi": line.slope + half, "r": line.rvalue}
    if n > 3:
        interval = stats.pearsonr(x, y).confidence_interval(confidence)
        row |= {"r_lo": interval.low, "r_hi": interval.high}
    return pl.DataFrame([row], _PROBE)


# ---- benchmarks without an RL side

DESCRIPTIVE = schema("model benchmark questions b value lo hi p_max policy headroom knee reason")
"""Proportions. ``p_max``: the largest P at max(B) in the AR pool, reached by ``policy`` (the first one of the pool).
``headroom``: P_max minus P_0. ``knee``: N*, the budget at which the default policy comes within
``TAU`` of its value at max(B)."""


@frame("descriptive")
def descriptive(rule: Rule, boot: View) -> pl.DataFrame:
    """Base on the descriptive benchmarks: a record per budget of B, or one record with a reason."""
    cells = [(model, benchmark) for model in rule.plan.models for benchmark in rule.plan.with_role("descriptive")]
    return by_cell(DESCRIPTIVE, cells, partial(_cell, rule, boot))


def _cell(rule: Rule, boot: View, model: str, benchmark: str) -> list[dict[str, Any]]:
    base, options, default = rule.base(model, benchmark), rule.options, rule.plan.default_policy
    if default not in base.index:
        raise Reason("policy_missing")
    total = rule.view.total(benchmark)
    values = base.P[base.index[default], :, 0].astype(float) / total
    landscape = rule.view.cohort.base(model, benchmark)
    assert landscape is not None
    counts = point_counts(boot, landscape, benchmark, [(default, b) for b in rule.plan.budgets])
    ends = estimate_interval(boot, counts, benchmark, options.confidence)
    members = base.autoregressive
    best = members[fit.first_least(-base.P[members, -1, 0])]
    p_max = float(base.P[best, -1, 0]) / total
    of_cell = {
        "questions": int(total),
        "p_max": p_max,
        "policy": base.policies[best],
        "headroom": p_max - values[0],
        "knee": float(knee(values, rule.plan.budgets, TAU)),
    }
    by_budget = zip(rule.plan.budgets, values, ends.lo, ends.hi, strict=True)
    return [{**of_cell, "b": b, "value": value, "lo": lo, "hi": hi} for b, value, lo, hi in by_budget]
