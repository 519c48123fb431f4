"""Budget equivalents: how many samples of Base equal b samples of RL.

N*(b) is the number of samples at which pass@k of Base equals pass@b of RL. It is continuous: pass@k is read at real k
(``analysis.pool.missed``). N* of the sample solves that equation; in bootstrap draws log2 k is interpolated
linearly in pass@k between ``knots``. Both curves are means over subsets of the pool, so no sample is left out and their
order does not matter.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl
from scipy import optimize, special, stats

from searchlens.analysis.classes import Pool, effective, knots
from searchlens.analysis.uncertainty import Floats, Resamples, unseen

EQUIVALENTS = pl.Schema(
    {
        "budget": pl.UInt32(),
        "state": pl.String(),
        **dict.fromkeys(("n", "lo", "hi"), pl.Float64()),
        **dict.fromkeys(("lo_open", "hi_open"), pl.Boolean()),
        **dict.fromkeys(("band_lo", "band_hi"), pl.Float64()),
        "pool": pl.UInt32(),
        **dict.fromkeys(("slope", "slope_lo", "slope_hi"), pl.Float64()),
    }
)


@dataclass(frozen=True, eq=False)
class Equivalents:
    """Budget equivalents of one pair on one benchmark, of the sample and of every bootstrap draw over questions."""

    budgets: tuple[int, ...]
    """Samples of RL, b."""
    largest: int
    """Samples in the smallest pool of Base: N* cannot be read beyond it."""
    log2_n: Floats
    """log2 N*(b), the sample first. -inf: Base solves more with one sample than RL with b. inf: RL solves at least as
    much with b as Base with its whole pool. Shape (budgets, 1 + draws)."""
    level: npt.NDArray[np.bool_]
    """RL solves as much with b as Base with its whole pool, no more. Shape (budgets,)."""
    lower: Floats
    """The draws whose percentiles are lower ends; of one policy the same."""
    questions: Floats
    """Number of questions on which N*(b) rests: ``effective`` of Base at N* minus RL at b. Shape (budgets,)."""
    unsolved: Floats
    """Number of questions on which the share left unsolved rests: (sum m)^2 / sum m^2, m the mean of Base at N* and RL
    at b. Shape (budgets,)."""


def equivalents(base: Sequence[Pool], rl: Pool, budgets: Sequence[int], resamples: Resamples) -> Equivalents:
    """N*(b) of the best of several policies of Base, or of the only one; b is at most RL's pool.

    Of several policies, the one that solves most at each k counts: the upper edge of Base (``upper_edge``).
    """
    largest = min(pool.samples for pool in base)
    ks = knots(largest)
    weights = np.concatenate([np.ones((resamples.questions, 1), np.float32), resamples.weights], axis=1)
    target = rl.solved(budgets).T @ weights / resamples.questions
    curves = np.stack([pool.solved(ks).T @ weights / resamples.questions for pool in base])
    leading = np.take_along_axis(curves, curves[..., :1].argmax(axis=0)[None], axis=0)[0]
    lower = log2_n = inverse(np.maximum.accumulate(leading, axis=0), np.log2(ks), target)
    if len(base) > 1:
        log2_n = inverse(upper_edge(curves, resamples.questions), np.log2(ks), 2 * target[:, :1] - target)
    log2_n[:, 0] = [_exact(base, *each) for each in zip(target[:, 0], log2_n[:, 0], strict=True)]
    at = np.minimum(np.exp2(np.clip(log2_n[:, 0], 0, math.log2(largest))), largest)  # 2^(log2 20) is above 20
    level = np.abs(target[:, 0] - curves[:, -1, 0].max()) < SAME
    solved = np.stack([pool.solved(at) for pool in base])
    best = solved.mean(axis=1).argmax(axis=0)
    at_n, theirs = solved[best, :, np.arange(len(best))].T, rl.solved(budgets)
    rests_on = effective(at_n - theirs), effective(np.sqrt(2 - at_n - theirs))
    return Equivalents(tuple(budgets), largest, log2_n, level, lower, *rests_on)


def _exact(base: Sequence[Pool], target: float, log2_n: float) -> float:
    """log2 N* by bisection between the neighbouring knots; the chord between them is up to 13% off."""
    ks = knots(min(pool.samples for pool in base))
    right = int(np.clip(np.searchsorted(np.log2(ks), log2_n), 1, len(ks) - 1))

    def lacking(k: float) -> float:
        return max(float(pool.solved([k]).mean()) for pool in base) - target

    if not math.isfinite(log2_n) or lacking(ks[right - 1]) >= 0 or lacking(ks[right]) <= 0:
        return log2_n
    return math.log2(optimize.brentq(lacking, ks[right - 1], ks[right], rtol=1e-6))


def upper_edge(curves: Floats, questions: int) -> Floats:
    """The largest of several curves at each position, with draws that allow for its optimism.

    Curves have the shape (policies, positions, 1 + draws): the sample first, then bootstrap draws over that many
    questions. In the result, shape (positions, 1 + draws), a draw is the largest of the sample minus the largest
    change, from the sample to the draw, of any policy within sqrt(log Q) standard errors of the best. It does not fall
    along the first axis.

    The largest of several noisy curves lies above the largest true one, and the largest of their resampled curves above
    that again: plain percentiles miss on one side. The largest has a derivative only in directions: that of the largest
    among those policies that may be the best. The draws are mirrored at the sample (basic bootstrap), so that their
    percentiles move away from the optimism instead of doubling it; what they are compared with must be mirrored, too.
    Where policies differ by a few standard errors, these draws allow for too much optimism. So they give upper ends of
    N* alone; lower ends come from draws of the policy that is the best of the sample.

    Fang and Santos (2019), Rev. Econ. Stud. 86, 377-412, arXiv:1404.3763.
    """
    sample = curves[..., :1]
    behind = np.take_along_axis(curves, sample.argmax(axis=0)[None], axis=0) - curves
    near = behind[..., :1] <= math.sqrt(math.log(questions)) * behind[..., 1:].std(axis=2, ddof=1, keepdims=True)
    change = np.where(near, curves - sample, -np.inf).max(axis=0)
    return np.maximum.accumulate(sample.max(axis=0) - change, axis=0)


SAME = 1e-9
"""Proportions that differ by less are equal: more than rounding errors, less than one sample of one question."""


def inverse(curve: Floats, position: Floats, target: Floats) -> Floats:
    """Where curves that do not fall, shape (positions, draws), reach their targets, shape (targets, draws).

    Interpolated linearly, on a flat part the first position; -inf below the first value of the curve, inf from its last
    value on.
    """
    below = (curve[None] < target[:, None] - SAME).sum(axis=1)
    right = np.clip(below, 1, len(curve) - 1)
    at = np.arange(curve.shape[1])
    low, high = curve[right - 1, at], curve[right, at]
    rise = high - low
    share = np.divide(target - low, rise, out=np.zeros_like(target), where=rise > 0)
    found = position[right - 1] + np.clip(share, 0, 1) * (position[right] - position[right - 1])
    found = np.where(target < curve[0] - SAME, -np.inf, found)
    return np.where(target >= curve[-1] - SAME, np.inf, found)


def summary(read: Equivalents, confidence: float) -> pl.DataFrame:
    """N*(b) with intervals, and the local exponent from each budget to the next: ``EQUIVALENTS``, a row per budget.

    Where N* is below 1 or above the pool, ``n`` is null and ``state`` says which, or ``level`` where RL solves as much
    as Base with its whole pool; an end of an interval that lies there is 1 or the pool, and ``lo_open`` or ``hi_open``
    is set.

    ``lo`` to ``hi``: expanded percentiles (``tails``) of the bootstrap over questions, pointwise. Of several policies
    the upper end allows for the optimism of the best (``upper_edge``). It is open where the share left unsolved rests
    on fewer than z^2 questions, 3.8 at 95%: as many hard ones may be absent from a sample (``unseen``), and draws
    cannot show those.

    ``band_lo`` to ``band_hi``: a band that contains N*(b) at all budgets within the pool at once with the nominal
    coverage. It has percentiles of the same draws as ends, at the share at which that proportion of the draws lies
    within it at all these budgets (``joint_confidence``), expanded in the same way. So it contains the intervals, and
    like them it reaches 1 or the pool only if draws do; half-widths in standard deviations of the draws would not,
    since draws outside of the pool inflate these. Coverage: validation/equivalents.py.

    ``slope``: log2 N*(2b) - log2 N*(b), or the same over log2 of the step between two budgets; a power law has the same
    slope, beta, everywhere.

    Mandel and Betensky (2008), Comput. Stat. Data Anal. 52, 2158-2165; Montiel Olea and Plagborg-Moller (2019), J.
    Appl. Econometrics 34, 1-17 (simultaneous bands from quantiles of the bootstrap).
    """
    end = math.log2(read.largest)
    draws = np.clip(read.log2_n, 0, end)
    sample, resampled = draws[:, 0], draws[:, 1:]
    beyond = np.where(read.level, "level", "above")
    outside = np.where(np.isneginf(read.log2_n[:, 0]), "below", np.where(np.isposinf(read.log2_n[:, 0]), beyond, ""))
    lower, within = np.clip(read.lower[:, 1:], 0, end), outside == ""

    def ends(level: float) -> tuple[Floats, Floats]:
        share = tails(level, read.questions)
        return np.minimum(_quantiles(lower, share), sample), np.maximum(_quantiles(resampled, 1 - share), sample)

    low, high = ends(confidence)
    band_low, band_high = ends(joint_confidence(lower[within], resampled[within], confidence))
    few = _few(read.unsolved, confidence)
    high, band_high = np.where(few, end, high), np.where(few, end, band_high)
    columns = {"n": sample, "lo": low, "hi": high, "band_lo": band_low, "band_hi": band_high}
    frame = {
        "budget": read.budgets,
        "state": np.where(within, "within", outside),
        **{name: [float(2**each) for each in column] for name, column in columns.items()},
        "lo_open": low <= 0,
        "hi_open": high >= end,
        "pool": read.largest,
        **pl.DataFrame([_slope(read, i, confidence) for i in range(len(within))]).to_dict(),
    }
    known = pl.when(state="within").then(pl.col("n", "band_lo", "band_hi"))
    return pl.DataFrame(frame).with_columns(known).select(EQUIVALENTS.names()).cast(EQUIVALENTS)


def _few(questions: Floats, confidence: float) -> npt.NDArray[np.bool_]:
    """Whether these are fewer than z^2: then ``unseen`` of as many is more than a half."""
    return np.asarray(unseen(questions, confidence) > 0.5)


def tails(confidence: float, questions: Floats) -> Floats:
    """Share of draws below an interval, such that it has the nominal coverage also where few questions decide.

    Of the number of questions m on which each number rests, at least 2, it is the normal probability of Student's
    quantile times sqrt(m / (m - 1)). Hesterberg (2015), Am. Stat. 69, 371-386 (expanded percentile interval).
    """
    m = np.maximum(questions, 2)
    share: Floats = special.ndtr(special.stdtrit(m - 1, (1 - confidence) / 2) * np.sqrt(m / (m - 1)))
    return share


def _quantiles(rows: Floats, shares: Floats) -> Floats:
    return np.array([np.quantile(row, share) for row, share in zip(rows, shares, strict=True)])


def joint_confidence(lower: Floats, upper: Floats, confidence: float) -> float:
    """Pointwise level at which equal-tailed percentile intervals contain this share of the draws at all places at once.

    Lower and upper ends are percentiles of the two draws, shape (places, draws). ``confidence`` itself for one place or
    none. The depth of a draw at a place is the smaller of two shares: of draws at most as large as its lower value, and
    of draws at least as large as its upper one. The tail is the quantile of the least depth over places.
    """
    if len(lower) < 2:
        return confidence
    draws = lower.shape[1]
    below = stats.rankdata(lower, method="max", axis=1)
    above = stats.rankdata(-upper, method="max", axis=1)
    depth = np.minimum(below, above).min(axis=0) / (draws + 1)
    tail = min(float(np.quantile(depth, 1 - confidence, method="inverted_cdf")), (1 - confidence) / 2)
    return 1 - 2 * tail


def _slope(read: Equivalents, i: int, confidence: float) -> dict[str, float | None]:
    """The local exponent from budget i to the next, null unless N* lies within the pool at both.

    Without an interval where draws leave the pool too often, or too few questions decide or are unsolved (``_few``).
    """
    unknown: dict[str, float | None] = dict.fromkeys(("slope", "slope_lo", "slope_hi"))
    if i + 1 == len(read.budgets):
        return unknown
    step = math.log2(read.budgets[i + 1] / read.budgets[i])
    with np.errstate(invalid="ignore"):
        slopes = (read.log2_n[i + 1] - read.log2_n[i]) / step
    if not np.isfinite(slopes[0]):
        return unknown
    pair = slice(i, i + 2)
    tail = tails(confidence, read.questions[pair]).min()
    few = _few(np.minimum(read.questions, read.unsolved)[pair], confidence).any()
    known = slopes[1:][np.isfinite(slopes[1:])]
    if len(known) < confidence * (len(slopes) - 1) or few:
        return unknown | {"slope": float(slopes[0])}
    lo, hi = np.quantile(known, [tail, 1 - tail])
    return {"slope": float(slopes[0]), "slope_lo": float(lo), "slope_hi": float(hi)}


CROSSINGS = pl.Schema(
    {
        "exchange": pl.Float64(),
        "state": pl.String(),
        **dict.fromkeys(("crossing", "lo", "hi"), pl.Float64()),
        **dict.fromkeys(("lo_open", "hi_open"), pl.Boolean()),
        **dict.fromkeys(("first", "last"), pl.Float64()),
    }
)
"""In samples of RL. ``exchange``: samples of Base that cost as much as one of RL. ``first`` to ``last``: where both
pools can be read. ``state``: ``below`` if RL is nowhere above Base there, ``above`` if Base is nowhere above RL later;
then ``crossing`` is null. An end of the interval that lies there is ``first`` or ``last``, and ``lo_open`` or
``hi_open`` is set."""
STEPS = 8
"""Positions at which the curves are compared, in an octave; in between the difference is interpolated."""


def crossing(base: Pool, rl: Pool, resamples: Resamples, confidence: float, *, exchange: float = 1.0) -> pl.DataFrame:
    """The budget of RL from which on Base solves as much at the same cost: ``CROSSINGS``, one row.

    ``exchange``: samples of Base that cost as much as one of RL, taken as known. No row if there is no budget at which
    both pools can be read. With D(b) = P_rl(b) - P_base(exchange * b) the crossing is the last b with D > 0, if D < 0
    later. ``lo`` is an expanded percentile (``tails``) of the last b with D above half a question, ``hi``
    of the last b with D above minus half a question: where both solve nearly all questions to the end, the samples
    cannot show which is ahead, and ``hi_open`` is set. Coverage: validation/equivalents.py.

    Cost is a number of samples, or of generated tokens: then one sample of RL is worth as many samples of Base as it
    has mean tokens in units of Base's. Both curves are means over subsets of the pools, at real numbers of samples, so
    that no sample is left out.
    """
    first, last = max(0.0, -math.log2(exchange)), min(math.log2(rl.samples), math.log2(base.samples / exchange))
    if not last > first:
        return pl.DataFrame(schema=CROSSINGS)
    x = np.linspace(first, last, max(math.ceil(STEPS * (last - first)), 1) + 1)
    # without the rounding errors that would put the first and last outside of a pool
    ours, theirs = np.clip(exchange * 2**x, 1, base.samples), np.clip(2**x, 1, rl.samples)
    gaps = rl.solved(theirs) - base.solved(ours)
    weights = np.concatenate([np.ones((resamples.questions, 1), np.float32), resamples.weights], axis=1)
    curves = gaps.T @ weights / resamples.questions
    half = 0.5 / resamples.questions
    found = float(last_positive(x, curves[:, :1] - SAME)[0])
    if math.isfinite(found) and not (curves[x > found, 0] < -SAME).any():
        found = math.inf
    at = float(np.clip(found, first, last))
    share = float(tails(confidence, effective(gaps[:, [int(np.abs(x - at).argmin())]]))[0])
    low, high = (np.clip(last_positive(x, curves[:, 1:] + shift), first, last) for shift in (-half, half))
    lo, hi = min(float(np.quantile(low, share)), at), max(float(np.quantile(high, 1 - share)), at)
    inside = math.isfinite(found)
    record = {
        "exchange": exchange,
        "state": "within" if inside else "below" if found < 0 else "above",
        "crossing": float(2**at) if inside else None,
        "lo": float(2**lo),
        "hi": float(2**hi),
        "lo_open": lo <= first,
        "hi_open": hi >= last,
        "first": float(2**first),
        "last": float(2**last),
    }
    return pl.DataFrame([record], CROSSINGS)


def last_positive(x: Floats, gaps: Floats) -> Floats:
    """Where curves, shape (positions, draws), cease to be positive for the last time, interpolated linearly.

    -inf if a curve is nowhere positive, inf if it is at the last position.
    """
    positive = gaps > 0
    last = len(x) - 1 - positive[::-1].argmax(axis=0)
    low = np.minimum(last, len(x) - 2)
    at = np.arange(gaps.shape[1])
    before, after = gaps[low, at], gaps[low + 1, at]
    drop = before - after
    share = np.divide(before, drop, out=np.zeros_like(before), where=drop > 0)
    found = x[low] + np.clip(share, 0, 1) * (x[low + 1] - x[low])
    found = np.where(last == len(x) - 1, np.inf, found)
    return np.where(positive.any(axis=0), found, -np.inf)
