"""What the uncertainty of pass@1 is made of, and whether a second run would have the same winner."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl
from scipy import special

from searchlens.analysis.class_pools import Pool
from searchlens.analysis.uncertainty import Floats, Interval, Resamples, quantiles, with_width

VARIANCE = pl.Schema(
    {
        "side": pl.String(),
        **dict.fromkeys(("questions", "samples", "batches"), pl.UInt32()),
        **{f"{part}{end}": pl.Float64() for part in ("questions_part", "decoding") for end in ("", "_lo", "_hi")},
        "seeds": pl.Float64(),
        "total": pl.Float64(),
    }
)
"""Variances of pass@1, a proportion. ``seeds`` is null without batches."""


def of_one_sample(pool: Pool) -> Floats:
    """Unbiased p (1 - p) of each question, c (n - c) / (n (n - 1)); NaN for a single sample, which has no spread."""
    n, c = np.asarray(pool.n), pool.correct
    return np.where(n > 1, c * (n - c) / (n * np.maximum(n - 1, 1)), np.nan)


def beats(base: Pool, rl: Pool, resamples: Resamples, confidence: float = 0.95) -> tuple[float, float, float]:
    """Probability that RL solves more questions than Base if both answer the same questions once more, once each.

    Value and interval over questions of Phi(D / sqrt(s_B^2 + s_R^2)), D the difference of pass@1 and s^2 = sum p (1 -
    p) / Q^2 the variance of one run over Q questions. Without any spread 1, 0, or 1/2 for a tie. NaN if a side has a
    single sample. A rerun has new samples, not new questions. Normal approximation: of use from some twenty questions
    on.

    arXiv:2512.07795 (2025), on reruns of evaluations; the formula is that of two means of independent trials.
    """
    difference = (rl.correct / rl.n) - (base.correct / base.n)
    noise = (of_one_sample(base) + of_one_sample(rl)) / len(difference)
    columns = np.column_stack([difference, noise])
    value = float(_winner(*columns.mean(axis=0)[:, None])[0])
    if not np.isfinite(value):
        return value, value, value
    (lo,), (hi,) = quantiles(_winner(*resamples.means(columns))[None], confidence)
    return value, float(min(lo, value)), float(max(hi, value))


def _winner(difference: Floats, noise: Floats) -> Floats:
    spread = np.sqrt(np.maximum(noise, 0))
    far = np.where(difference > 0, np.inf, -np.inf)
    score = np.divide(
        difference, spread, out=np.where(difference == 0, 0.0, far), where=(spread > 0) | np.isnan(spread)
    )
    found: Floats = special.ndtr(score)
    return found


def parts(
    side: str, pool: Pool, resamples: Resamples, *, batches: Sequence[Pool] = (), confidence: float = 0.95
) -> pl.DataFrame:
    """The variance of pass@1 over this benchmark's questions, in parts: one row, ``VARIANCE``, in squared proportions.

    ``questions_part``: Var(p) / Q, which only more questions reduce. ``decoding``: mean p (1 - p) / (Q n), which more
    samples reduce. ``total``: their sum, the sample variance of c / n over Q. ``seeds``: what the means of batches, the
    same policy sampled again with other seeds, vary beyond decoding; null without batches.

    Var(p) is the sample variance of c / n without the share of decoding in it, at least 0. With a single question or a
    single sample a part is null. Intervals: percentile bootstrap over questions; ``seeds`` has none, since a handful of
    seeds say little. Another training run is no part: that needs checkpoints that were trained again.

    Miller (2024), arXiv:2411.00640.
    """
    share, noise = pool.correct / pool.n, of_one_sample(pool) / pool.n
    count = len(share)
    columns = np.column_stack([share, share**2, noise])
    value = _parts(columns.mean(axis=0)[:, None], count)[:, 0]
    draws = _parts(resamples.means(columns), count)
    record: dict[str, object] = {"side": side, "questions": count, "samples": pool.samples, "batches": len(batches)}
    for name, point, resampled in zip(("questions_part", "decoding"), value, draws, strict=True):
        known = bool(np.isfinite(point) and count > 1)
        ends = np.quantile(resampled, [(1 - confidence) / 2, (1 + confidence) / 2]) if known else (np.nan, np.nan)
        lo, hi = with_width(point, Interval(*map(np.asarray, ends)), count, confidence, (0, 1 / (4 * count)))
        record |= {name: float(point), f"{name}_lo": float(lo), f"{name}_hi": float(hi)}
    record |= {"total": float(value.sum()), "seeds": _seeds([pool, *batches])}
    return pl.DataFrame([record], VARIANCE).with_columns(pl.selectors.float().fill_nan(None))


def _parts(means: Floats, questions: int) -> Floats:
    """Parts of questions and of decoding, shape (2, draws), from means of p, p^2 and p (1 - p) / n."""
    share, square, noise = means
    noise = np.maximum(noise, 0)  # a draw of questions without noise may round below 0
    with np.errstate(invalid="ignore", divide="ignore"):
        spread = (square - share**2) * np.float64(questions) / (questions - 1)
    return np.stack([np.maximum(spread - noise, 0), noise]) / questions


def _seeds(pools: Sequence[Pool]) -> float:
    """Variance of pass@1 between batches, beyond that of decoding; NaN for a single batch. Never below 0."""
    if len(pools) < 2:
        return float("nan")
    means = [pool.correct.mean() / pool.samples for pool in pools]
    decoding = [of_one_sample(pool).mean() / (len(pool.correct) * pool.samples) for pool in pools]
    return float(max(0.0, np.var(means, ddof=1) - np.mean(decoding)))
