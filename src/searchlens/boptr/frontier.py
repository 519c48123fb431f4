"""How much RL a scale needs: alpha from Base features alone (Z0), or from one anchor and Base features (Z1).

Paper, appendix "RL-information budget frontier". A prior is a scale f that is read from the model's fingerprint on
base@rltrain: f = 2^(4u), which spans the budgets 1 to 16, or f = N*. ``FRONTIER_ROWS`` are the main rows,
``SWEEP_ROWS`` the rows over lambda and tau. ``probe`` is the regression of ln alpha_math on P_max@16.

"No RL" refers to alpha only: beta_g and the selector's prototype come from RL in every row, and so does mu_g outside of
math with the cohort's own exponents.
"""

from __future__ import annotations

from functools import partial
from typing import Literal

import numpy as np
import polars as pl
from scipy import stats

from searchlens.analysis.uncertainty import Floats
from searchlens.boptr.descriptive import TAU, fingerprint
from searchlens.boptr.rows import At, Prediction, Row, anchor_log_alpha
from searchlens.boptr.rule import Reason, Rule, mean_log_alpha, schema
from searchlens.catalogue import frame
from searchlens.config.boptr import LN2

Prior = Literal["u", "N*"]
PRIORS: tuple[Prior, ...] = ("u", "N*")
LAMBDAS = (0.0, 0.25, 0.5, 0.75, 1.0)
"""Lambda in the sweep: how far row Z1 moves the anchor's ln alpha by the prior; 0: not at all."""
TAUS = (0.01, TAU, 0.05)
"""Tolerances of N* in the sweep."""


def log_prior(rule: Rule, model: str, prior: Prior, tau: float = TAU) -> Floats | Reason:
    """Ln f of a model, shape (draws,), or why it is undefined.

    f = 2^(u log2 max(B)), which is 1 if Base solves everything with one sample; or the saturation knee.
    """
    features = fingerprint(rule, model, tau)
    if isinstance(features, Reason):
        return features
    position = (rule.view.levels - 1) * features.u if prior == "u" else features.log2_n_star
    return LN2 * position if np.isfinite(position).all() else Reason("non_finite_alpha")


def zero_rl(rule: Rule, at: At, prior: Prior, tau: float = TAU) -> Prediction:
    """Z0: alpha_math = f_m; in other regimes mu_g + delta_m, with delta_m = ln f_m minus the cohort's mean of ln f."""
    log_f = log_prior(rule, at.model, prior, tau)
    if isinstance(log_f, Reason):
        return log_f
    if rule.regime(at.benchmark) == rule.regime(rule.plan.anchor_benchmark):
        return rule.path(*at.cell, log_f)
    cohort = [
        value for name in rule.cohort_models if not isinstance(value := log_prior(rule, name, prior, tau), Reason)
    ]
    if not cohort:
        return Reason("too_few_models")
    return rule.path(*at.cell, rule.mu(at.benchmark) + log_f - mean_log_alpha(np.stack(cohort)))


def one_anchor(rule: Rule, at: At, prior: Prior, weight: float = 1.0, tau: float = TAU) -> Prediction:
    """Z1: ln alpha_m = ln alpha_anchor + lambda (ln f_m - ln f_anchor), with alpha_anchor of B0.

    ``weight`` is lambda; with 0 the row is B0 wherever the prior is defined.
    """
    log_f, of_anchor = (log_prior(rule, name, prior, tau) for name in (at.model, rule.plan.anchor_model))
    scale = anchor_log_alpha(rule, at.benchmark)
    for part in (log_f, of_anchor, scale):
        if isinstance(part, Reason):
            return part
    return rule.path(*at.cell, scale + weight * (log_f - of_anchor))  # type: ignore[operator]


_NO_RL, _ONE = "none for α", "anchor, anchor benchmark"

FRONTIER_ROWS = (
    Row("Z0-u", "Z0-u (log2 prior)", "frontier", _NO_RL, partial(zero_rl, prior="u")),
    Row("Z0-N*", "Z0-N*", "frontier", _NO_RL, partial(zero_rl, prior="N*")),
    Row("Z1-u", "Z1-u (λ=1.0)", "frontier", _ONE, partial(one_anchor, prior="u")),
    Row("Z1-N*", "Z1-N* (λ=1.0)", "frontier", _ONE, partial(one_anchor, prior="N*")),
)


def _sweep_rows() -> tuple[Row, ...]:
    blends = [
        (f"Z1-{prior} λ={weight:g}", _ONE, partial(one_anchor, prior=prior, weight=weight))
        for prior in PRIORS
        for weight in LAMBDAS
    ]
    knees = [
        sweep
        for tau in TAUS
        for sweep in (
            (f"Z0-N* τ={tau:g}", _NO_RL, partial(zero_rl, prior="N*", tau=tau)),
            (f"Z1-N* τ={tau:g}", _ONE, partial(one_anchor, prior="N*", tau=tau)),
        )
    ]
    return tuple(Row(key, key, "frontier", rl, predict) for key, rl, predict in (*blends, *knees))


SWEEP_ROWS = _sweep_rows()
"""Z1 at every lambda, and both N* rows at every tau; otherwise as the main rows."""


_PROBE = schema("n intercept slope slope_lo slope_hi r r_lo r_hi reason")


@frame("probe", of=("rule",))
def probe(rule: Rule) -> pl.DataFrame:
    """Ordinary least squares of ln alpha_math on P_max@16 of base@rltrain over the cohort's models, on the sample.

    One record: ``n`` models; the slope with its t interval; Pearson r with its Fisher z interval, null with fewer than
    four models. Undefined with fewer than three, or if either variable is the same for all of them (``constant``).
    """
    points = []
    for name in rule.cohort_models:
        alpha, features = rule.log_alpha(name, rule.plan.anchor_benchmark), fingerprint(rule, name)
        if not isinstance(alpha, Reason) and not isinstance(features, Reason):
            points.append((features.p_max[0], alpha[0]))
    n = len(points)
    if n < 3:
        return pl.DataFrame([{"n": n, "reason": "too_few_models"}], _PROBE)
    x, y = np.array(points).T
    if min(np.ptp(x), np.ptp(y)) <= 1e-9:
        return pl.DataFrame([{"n": n, "reason": "constant"}], _PROBE)
    confidence = rule.options.confidence
    line = stats.linregress(x, y)
    half = line.stderr * stats.t.ppf(0.5 + confidence / 2, n - 2)
    row = {"n": n, "intercept": line.intercept, "slope": line.slope, "slope_lo": line.slope - half}
    row |= {"slope_hi": line.slope + half, "r": line.rvalue}
    if n > 3:
        interval = stats.pearsonr(x, y).confidence_interval(confidence)
        row |= {"r_lo": interval.low, "r_hi": interval.high}
    return pl.DataFrame([row], _PROBE)
