"""pass@k beyond the samples that were drawn, by a distribution of difficulty, and how often its intervals are right."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl
from scipy import optimize, special
from scipy.stats import norm

from searchlens.analysis.classes import Pool
from searchlens.analysis.pool import Ints
from searchlens.analysis.uncertainty import Floats
from searchlens.seeds import resampler

EXTRAPOLATED = pl.Schema(
    {
        "side": pl.String(),
        "model": pl.String(),
        **dict.fromkeys(("samples", "k"), pl.UInt32()),
        **dict.fromkeys(("value", "lo", "hi"), pl.Float64()),
        **dict.fromkeys(("trial_samples", "trials", "inside"), pl.UInt32()),
        "trial_error": pl.Float64(),
    }
)
MODELS = {"beta": False, "zero-inflated beta": True}
"""Distribution of the chance of a right answer over questions; whether a share of them has none."""
REACH = 4
"""pass@k is extrapolated to so many times the samples; trials predict the whole pool from this part of it."""
NEAR = 0.02
"""By how much the measured coverage of an extrapolation may differ from the nominal one."""
SMALLEST = 64
"""A smaller pool is not extrapolated, whatever its trials say. From 4 of 16 samples intervals are so wide that nearly
all contain pass@16, but from 16 half of those of a Base miss pass@64 (validation/extrapolation.py)."""
_BOUNDS = [(-7.0, 9.0), (-7.0, 9.0), (-12.0, 7.0)]
"""Of log a, log b and the logit of the share without any chance."""


@dataclass(frozen=True, eq=False)
class Fit:
    """A beta-binomial distribution of counts, fitted by maximum likelihood."""

    theta: Floats
    """log a, log b and, if zero-inflated, logit z."""
    covariance: Floats
    """Of theta over questions (sandwich), which allows for a wrong model of the difficulty."""

    def solved(self, k: int, confidence: float) -> tuple[float, float, float]:
        """pass@k, (1 - z) (1 - B(a, b + k) / B(a, b)), with its interval, symmetric in the logit."""
        value = float(special.logit(np.clip(_solved(self.theta, k), 1e-12, 1 - 1e-12)))
        steps = 1e-4 * np.eye(len(self.theta))
        up, down = (
            special.logit(np.array([_solved(self.theta + sign * step, k) for step in steps]).clip(1e-12, 1 - 1e-12))
            for sign in (1, -1)
        )
        slope: Floats = (up - down) / 2e-4
        half = float(norm.ppf((1 + confidence) / 2) * np.sqrt(max(0.0, float(slope @ self.covariance @ slope))))
        low, high = special.expit([value - half, value + half])
        return float(special.expit(value)), float(low), float(high)


def fit(correct: Ints, samples: int, *, zero_inflated: bool = False) -> Fit | None:
    """Beta-binomial fit of counts of right samples; zero-inflated, a share z of the questions has no chance of one.

    None if it is not determined: every question has 0 right samples, or every one has n, or only one differs. Schaeffer
    et al. (2025), arXiv:2502.17578; Kazdan et al. (2025), arXiv:2510.05197.
    """
    counts = np.bincount(correct, minlength=samples + 1)
    seen = np.flatnonzero(counts)
    if len(seen) < 2 or counts[1:].sum() < 2 or counts[:-1].sum() < 2:
        return None
    weights = counts[seen].astype(float)
    mean = np.clip(correct.mean() / samples, 0.01, 0.99)
    start = np.log([mean, 1 - mean])
    if zero_inflated:
        start = np.append(start, -2.0)
    bounds = _BOUNDS[: len(start)]

    def loss(theta: Floats) -> tuple[float, Floats]:
        value, slope = _likelihood(theta, seen, samples)
        return -float(weights @ value), -(weights @ slope)

    theta = optimize.minimize(loss, start, jac=True, bounds=bounds, method="L-BFGS-B").x
    changes = [
        weights @ (_likelihood(theta + step, seen, samples)[1] - _likelihood(theta - step, seen, samples)[1]) / 2e-4
        for step in 1e-4 * np.eye(len(theta))
    ]
    inverse, slope = np.linalg.pinv(np.array(changes), rcond=1e-9), _likelihood(theta, seen, samples)[1]
    return Fit(theta, inverse @ (slope.T * weights @ slope) @ inverse)


def _likelihood(theta: Floats, c: Ints, n: int) -> tuple[Floats, Floats]:
    """Logarithm of the likelihood of each count, without its constant, and its slope in theta."""
    a, b = np.exp(theta[:2])
    value = special.betaln(c + a, n - c + b) - special.betaln(a, b)
    both = special.digamma(n + a + b) - special.digamma(a + b)
    slope = np.column_stack(
        [
            a * (special.digamma(c + a) - special.digamma(a) - both),
            b * (special.digamma(n - c + b) - special.digamma(b) - both),
        ]
    )
    if len(theta) == 2:
        return value, slope
    share = special.expit(theta[2])
    drawn = np.log1p(-share) + value
    mixed = np.where(c == 0, np.logaddexp(np.log(share), drawn), drawn)
    posterior = np.exp(drawn - mixed)
    return mixed, np.column_stack([posterior[:, None] * slope, (1 - posterior) - share])


def _solved(theta: Floats, k: int) -> float:
    a, b = np.exp(theta[:2])
    reached = -np.expm1(special.betaln(a, b + k) - special.betaln(a, b))
    return float(reached * (1 - special.expit(theta[2]) if len(theta) > 2 else 1.0))


def extrapolated(side: str, pool: Pool, *, trials: int, seed: int, confidence: float = 0.95) -> pl.DataFrame:
    """pass@k at ``REACH`` times the samples, and how often the same method finds what is known: ``EXTRAPOLATED``.

    In each trial as many questions as there are are drawn with replacement, with n / ``REACH`` of the samples of each;
    pass@n is predicted from these and compared with that of the pool. There is a row for each of ``MODELS``: ``inside``
    of ``trials`` intervals contain the share of questions that the whole pool solves, give or take half a question,
    since it is a whole number of questions; ``trial_error`` is the mean of predicted minus found. A trial whose counts
    determine no fit is not inside and has no error. Without rows for a pool of fewer than 2 ``REACH`` samples.
    """
    few = pool.samples // REACH
    if few < 2:
        return pl.DataFrame(schema=EXTRAPOLATED)
    count, truth = len(pool.correct), float((pool.correct > 0).mean())
    rng = resampler(seed, count, trials)
    half = 0.5 / count
    chosen = pool.correct[rng.integers(0, count, (trials, count))]
    drawn = rng.hypergeometric(chosen, pool.samples - chosen, few)
    records = []
    for model, inflated in MODELS.items():
        tried = [_read(counts, few, pool.samples, inflated, confidence) for counts in drawn]
        value, lo, hi = _read(pool.correct, pool.samples, REACH * pool.samples, inflated, confidence)
        errors = np.array([found - truth for found, _, _ in tried])
        records.append(
            {
                "side": side,
                "model": model,
                "samples": pool.samples,
                "k": REACH * pool.samples,
                "value": value,
                "lo": lo,
                "hi": hi,
                "trial_samples": few,
                "trials": trials,
                "inside": sum(low - half <= truth <= high + half for _, low, high in tried),
                "trial_error": float(errors[np.isfinite(errors)].mean()) if np.isfinite(errors).any() else None,
            }
        )
    return pl.DataFrame(records, EXTRAPOLATED).with_columns(pl.selectors.float().fill_nan(None))


def judged(rows: pl.DataFrame, confidence: float) -> pl.DataFrame:
    """``EXTRAPOLATED`` with the measured coverage of benchmark and model, and whether that is near the nominal one.

    ``coverage`` is the share of all trials on the benchmark, of every pair and side, whose interval contains what the
    pool solves; ``trusted``: it differs from ``confidence`` by at most ``NEAR``, and the pool has at least ``SMALLEST``
    samples. Pools that determine no fit do not count; without any other, coverage is null and nothing is trusted.
    """
    fitted = pl.col("value").is_not_null()
    inside, trials = (pl.col(name).filter(fitted).sum().over("benchmark", "model") for name in ("inside", "trials"))
    share = (inside / trials).fill_nan(None)
    near = ((share - confidence).abs() <= NEAR + 1e-9).fill_null(False)
    return rows.with_columns(coverage=share, trusted=near & (pl.col("samples") >= SMALLEST))


def _read(counts: Ints, samples: int, k: int, inflated: bool, confidence: float) -> tuple[float, float, float]:
    found = fit(counts, samples, zero_inflated=inflated)
    return found.solved(k, confidence) if found else (float("nan"),) * 3
