"""Numbers of both sides of a pair under one policy, as counts of right samples of every question give them.

How reliably questions are solved (pass@k asks whether any of k samples is right, Cover@tau, G-Pass@k, mG-Pass@k and
pass^k how many of them are); what guessing alone would solve; what the uncertainty of pass@1 is made of; which
questions a side solves at all, and what RL keeps, loses and adds of what Base solves.

Guessing of lettered options follows from their number. Of open answers it is measured: ``wrong_key`` is pass@k of
the same samples, graded against the golds of other questions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache

import numpy as np
import numpy.typing as npt
import polars as pl
from scipy import special, stats

from searchlens.analysis.classes import Pool
from searchlens.analysis.pool import Bools, missed
from searchlens.analysis.uncertainty import Floats, Interval, Resamples, holm, quantiles, with_width, without_rounding

BASE, RL, DIFFERENCE = "Base", "RL", "RL - Base"
PASS, GUESS_NULL, WRONG_KEY, WITHOUT_WRONG_KEY = "pass@k", "guess null", "wrong_key", "wrong_key-corrected pass@k"
"""The measure that is of the questions alone, the same for both sides; pass@k against the golds of other questions."""

MEASURES = pl.Schema(
    {
        "measure": pl.String(),
        "k": pl.UInt32(),
        "tau": pl.Float64(),
        "side": pl.String(),
        **dict.fromkeys(("value", "lo", "hi"), pl.Float64()),
    }
)
"""``k`` and ``tau`` are null for a measure that has none."""
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

SLACK = 1e-9
"""A share of samples that misses its threshold by less meets it: 0.05 of 20 samples is 1 sample."""


def compared(
    measure: str,
    base: Floats,
    rl: Floats,
    resamples: Resamples,
    confidence: float,
    *,
    most: float = 1.0,
    ks: list[int] | None = None,
    taus: list[float] | None = None,
) -> pl.DataFrame:
    """Means over questions of Base, of RL, and of their difference: ``MEASURES``, three rows for each column.

    A column of a side, shape (questions, columns), that contains NaN is not known: its rows have no value. ``most`` is
    the largest possible value of a question, the smallest being 0: the width of an interval where all questions agree.
    ``ks`` and ``taus`` have one entry per column. Intervals are percentile bootstrap, never without a width.
    """
    values = np.concatenate([base, rl, rl - base], axis=1)
    means, columns = values.mean(axis=0), base.shape[1]
    lo, hi = (ends.reshape(3, columns) for ends in resamples.interval(values, confidence))
    means = means.reshape(3, columns)
    ends = [
        with_width(mean, Interval(*pair), len(values), confidence, limit)
        for mean, *pair, limit in zip(means, lo, hi, [(0.0, most), (0.0, most), (-most, most)], strict=True)
    ]
    return _frame(measure, means, Interval(*map(np.stack, zip(*ends, strict=True))), ks=ks, taus=taus)


def _frame(
    measure: str, values: Floats, ends: Interval, *, ks: list[int] | None = None, taus: list[float] | None = None
) -> pl.DataFrame:
    """Rows of Base, RL and their difference, from arrays of shape (3, columns); NaN is null."""
    count = values.shape[1]
    given: dict[str, Sequence[float | None]] = {"k": ks or [None] * count, "tau": taus or [None] * count}
    frame = {
        "measure": measure,
        **{name: [each for each in column for _ in range(3)] for name, column in given.items()},
        "side": [BASE, RL, DIFFERENCE] * count,
        **{name: array.T.ravel() for name, array in (("value", values), ("lo", ends.lo), ("hi", ends.hi))},
    }
    return pl.DataFrame(frame, MEASURES).with_columns(pl.col("value", "lo", "hi").fill_nan(None))


def with_ends(
    name: str, value: float, draws: Floats, rests_on: int, confidence: float, limits: tuple[float, float]
) -> dict[str, float | None]:
    """A statistic with its percentile interval, which always has a width; none if draws are undefined too often."""
    known = draws[np.isfinite(draws)]
    if not np.isfinite(value):
        return dict.fromkeys((name, f"{name}_lo", f"{name}_hi"))
    if len(known) < confidence * len(draws):
        return {name: value, f"{name}_lo": None, f"{name}_hi": None}
    ends = np.quantile(known, [(1 - confidence) / 2, (1 + confidence) / 2])
    lo, hi = with_width(value, Interval(*ends), rests_on, confidence, limits)
    return {name: value, f"{name}_lo": float(lo), f"{name}_hi": float(hi)}


def cover(pool: Pool, taus: Sequence[float]) -> Floats:
    """Cover@tau: whether at least a share tau of a question's samples is right; 0 or 1, shape (questions, taus).

    The pool has as many samples of every question. The share c / n stands for the chance of a right answer; with few
    samples it is noisy, and a tau below 1 / n asks for one right sample. pass@k is the integral over tau of Cover@tau
    times k (1 - tau)^(k - 1). arXiv:2510.08325 (2025).
    """
    return (pool.correct[:, None] >= _whole(taus, pool.samples)).astype(float)


def g_pass(pool: Pool, k: int, taus: Sequence[float]) -> Floats:
    """G-Pass@k at tau: probability that at least ceil(tau k) of k samples are right, the mean over all k-subsets.

    Shape (questions, taus). tau = 1 is pass^k, C(c, k) / C(n, k): all of k samples are right; a tau of 1 / k or less is
    pass@k. Liu et al. (2024), arXiv:2412.13147; Yao et al. (2024), arXiv:2406.12045 (pass^k).
    """
    return _at_least(pool, k, _whole(taus, k))


def mg_pass(pool: Pool, k: int) -> Floats:
    """mG-Pass@k: twice the integral of G-Pass@k over tau from 0.5 to 1, as (2 / k) times the sum over i of G-Pass@k at
    tau = i / k, i from ceil(k / 2) + 1 to k.

    Shape (questions, 1), from 0 to 1 - 1 / k for odd k, to 1 for even k; k is at least 2, because with one sample the
    sum has no term. Liu et al. (2024), arXiv:2412.13147.
    """
    if k < 2:
        raise ValueError("mG-Pass@k needs k of at least 2")
    terms = np.arange(-(-k // 2) + 1, k + 1, dtype=float)
    total: Floats = 2 / k * _at_least(pool, k, terms).sum(axis=1, keepdims=True)
    return total


def _at_least(pool: Pool, k: int, right: Floats) -> Floats:
    if not 1 <= k <= pool.samples:
        raise ValueError(f"k = {k} is not in [1, {pool.samples}]")

    def table(n: int) -> Floats:
        return np.asarray(stats.hypergeom.sf(right[None, :] - 1, n, np.arange(n + 1)[:, None], k))

    return pool.rows(table, pool.correct)


def _whole(taus: Sequence[float], samples: int) -> Floats:
    """Right samples that a share of ``samples`` asks for."""
    if not all(0 < tau <= 1 for tau in taus):
        raise ValueError(f"thresholds {list(taus)} are not all in (0, 1]")
    return np.ceil(np.asarray(taus) * samples - SLACK)


def entropy(pool: Pool) -> Floats:
    """Entropy of the answers to each question in nats, plain and corrected: shape (questions, 2).

    Plain is -sum f log f over the shares f of the classes; samples without an answer are one class. It is too low by
    about (K - 1) / (2 n), K the number of classes that occur, which the second adds (Miller and Madow). K counts only
    what occurred, so that this is too low, too, where most samples have answers of their own: neither can exceed log n
    by much.

    Miller (1955), Note on the bias of information estimates; Wu et al. (2025), arXiv:2507.14843 (entropy of answers).
    """
    sizes, _ = pool.sizes
    counted = np.column_stack([sizes, pool.samples - pool.answered])
    shares = counted / pool.samples
    plain = -(shares * np.log(np.where(counted > 0, shares, 1))).sum(axis=1)
    return np.column_stack([plain, plain + ((counted > 0).sum(axis=1) - 1) / (2 * pool.samples)])


def guess_chance(options: npt.ArrayLike) -> Floats:
    """Probability g that a guess is right: 1 / options; 0 for a question without options.

    >>> guess_chance([4, 8, 0]).tolist()
    [0.25, 0.125, 0.0]
    """
    number = np.asarray(options, float)
    found: Floats = np.divide(1.0, number, out=np.zeros_like(number), where=number > 0)
    return found


def guess_null(guess: Floats, budgets: Sequence[int]) -> Floats:
    """pass@k of guessing alone, 1 - (1 - g)^k; shape (questions, budgets)."""
    return np.asarray(1 - (1 - guess[:, None]) ** np.asarray(budgets))


def wrong_key(pool: Pool, budgets: Sequence[int]) -> Floats:
    """pass@k of the same samples if each question had the gold of another one: shape (questions, budgets).

    1 - C(n - l, k) / C(n, k), l the samples that a wrong key accepts, which the pool must know. Where its mean is near
    pass@k, pass@k shows no knowledge of the questions, only of what answers are like. Not to be subtracted from pass@k:
    a sample that knows the answer does not guess besides (``beside_wrong_key``).
    """
    if pool.wrong_key is None:
        raise ValueError(f"what wrong keys accept of {pool.policy} is unknown")
    return 1 - pool.rows(lambda n: missed(n, list(budgets)), pool.wrong_key)


def beside_wrong_key(
    base: Pool, rl: Pool, budgets: Sequence[int], resamples: Resamples, confidence: float
) -> pl.DataFrame:
    """Wrong-key rates of both sides and of their difference, and pass@k without them: 1 - (1 - P) / (1 - L).

    ``MEASURES``, without rows if they are unknown; budgets above a pool are left out. P, pass@k, and L, that rate, of
    both sides are drawn together. Of means over questions, also below 0; null if L is 1.

    Assumption: a question is solved if it is known or by a wrong key, independently of each other, and L is alike on
    known and unknown questions: (1 - P) = (1 - known) (1 - L). It fails where a model repeats one answer to what it
    knows: wrong keys hardly ever accept it, L is too small for its other questions, and too little is taken away.
    """
    ks = [k for k in budgets if k <= min(base.samples, rl.samples)]
    if base.wrong_key is None or rl.wrong_key is None or not ks:
        return pl.DataFrame(schema=MEASURES)
    ours, theirs = wrong_key(base, ks), wrong_key(rl, ks)
    columns = np.hstack([base.solved(ks), rl.solved(ks), ours, theirs])
    means = np.column_stack([columns.mean(axis=0), resamples.means(columns)])
    solved, guessed = means.reshape(2, 2, len(ks), -1)
    known = 1 - np.divide(1 - solved, 1 - guessed, out=np.full_like(solved, np.nan), where=guessed < 1)
    every = np.concatenate([known, known[1:] - known[:1]])
    ends = np.quantile(every[..., 1:], [(1 - confidence) / 2, (1 + confidence) / 2], axis=2)
    if len(columns) == 1:
        ends[:] = np.nan  # one question has no spread
    within = with_width(every[..., 0], without_rounding(Interval(*ends)), len(columns), confidence)
    plain = compared(WRONG_KEY, ours, theirs, resamples, confidence, ks=ks)
    return pl.concat([plain, _frame(WITHOUT_WRONG_KEY, every[..., 0], within, ks=ks)])


def guess_corrected(pool: Pool, guess: Floats, budgets: Sequence[int]) -> Floats:
    """pass@k without what guessing adds: 1 - [C(n - c, k) / C(n, k)] / (1 - g)^k, shape (questions, budgets).

    Also negative: a question that is solved less often than by guessing is not cut at 0, so that means stay unbiased.
    Unbiased if a sample either knows the answer, with some probability, or else guesses evenly: then it is wrong with
    probability (1 - known) (1 - g), and the result is the pass@k of knowing. Where a model avoids or prefers wrong
    options, it is not. The divisor (1 - g)^k makes it useless at large k: of four options it is 0.32 at k = 4 and 0.01
    at k = 16.

    The correction for guessing of multiple-choice tests (Lord and Novick 1968, Statistical Theories of Mental Test
    Scores), applied to the probability that all of k samples are wrong.
    """
    return np.asarray(1 - (1 - pool.solved(budgets)) / (1 - guess[:, None]) ** np.asarray(budgets))


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
    return special.ndtr(score)


def variance_parts(
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
        spread = resampled if count > 1 else resampled * np.nan  # one question has no spread
        record |= with_ends(name, float(point), spread, count, confidence, (0, 1 / (4 * count)))
    pools = [pool, *batches]
    means = [each.correct.mean() / each.samples for each in pools]
    within = [of_one_sample(each).mean() / (len(each.correct) * each.samples) for each in pools]
    seeds = max(0.0, np.var(means, ddof=1) - np.mean(within)) if batches else float("nan")
    record |= {"total": float(value.sum()), "seeds": float(seeds)}
    return pl.DataFrame([record], VARIANCE).with_columns(pl.selectors.float().fill_nan(None))


def _parts(means: Floats, questions: int) -> Floats:
    """Parts of questions and of decoding, shape (2, draws), from means of p, p^2 and p (1 - p) / n."""
    share, square, noise = means
    noise = np.maximum(noise, 0)  # a draw of questions without noise may round below 0
    with np.errstate(invalid="ignore", divide="ignore"):
        spread = (square - share**2) * np.float64(questions) / (questions - 1)
    return np.stack([np.maximum(spread - noise, 0), noise]) / questions


# ---- support

COUNTS = ("kept", "shrunk", "expanded", "out")
RATIOS = ("srr", "ndr", "sds", "nscr")
SUPPORT = pl.Schema(
    {
        **dict.fromkeys(("questions", "base_samples", "rl_samples"), pl.UInt32()),
        **dict.fromkeys(("base_epsilon", "rl_epsilon"), pl.Float64()),
        **dict.fromkeys(COUNTS, pl.UInt32()),
        **{f"{name}{end}": pl.Float64() for name in COUNTS for end in ("_lo", "_hi")},
        **{f"{name}{end}": pl.Float64() for name in RATIOS for end in ("", "_lo", "_hi")},
        **dict.fromkeys(("shrunk_significant", "expanded_significant"), pl.UInt32()),
        **dict.fromkeys(("shrunk_null", "expanded_null", "significant_null"), pl.Float64()),
    }
)
CHANGES = pl.Schema(
    {
        "question": pl.UInt32(),
        "change": pl.String(),
        **dict.fromkeys(("base", "rl"), pl.UInt32()),
        **dict.fromkeys(("p", "p_holm"), pl.Float64()),
    }
)


def epsilon(samples: int) -> float:
    """The chance of a right answer that n samples miss with probability 0.05, 1 - 0.05^(1 / n).

    >>> round(epsilon(64), 3), round(epsilon(256), 3)
    (0.046, 0.012)
    """
    return float(stats.beta.ppf(0.95, 1, samples))


def ratios(counts: Mapping[str, Floats]) -> dict[str, Floats]:
    """Ratios of support, of counts P ``kept``, S ``shrunk`` and E ``expanded``; NaN where the denominator is 0.

    ``srr``: support retention rate P / (P + S). ``ndr``: net discovery rate E / (P + E). ``sds``: support dynamic
    score, their harmonic mean; NaN if either is. ``nscr``: net support change rate (E - S) / (P + E + S). Wu et al.
    (2025), arXiv:2507.14843.
    """
    kept, shrunk, expanded = (np.asarray(counts[name], float) for name in COUNTS[:3])
    srr, ndr = _over(kept, kept + shrunk), _over(expanded, kept + expanded)
    return {
        "srr": srr,
        "ndr": ndr,
        "sds": _over(2 * srr * ndr, srr + ndr),
        "nscr": _over(expanded - shrunk, kept + expanded + shrunk),
    }


def _over(part: Floats, whole: Floats) -> Floats:
    with np.errstate(invalid="ignore"):
        return np.divide(part, whole, out=np.full_like(whole, np.nan), where=whole > 0)


def support(
    base: Pool, rl: Pool, resamples: Resamples, *, confidence: float = 0.95
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """How many questions keep, lose and gain support, with intervals, and each change with its p-value.

    A question is in the support of a side if at least one of its samples is right. ``SUPPORT``, one row: ``kept`` (both
    sides), ``shrunk`` (Base alone), ``expanded`` (RL alone), ``out`` (neither), and ``ratios`` of these. A ratio of
    nothing is null; its interval is null if it is undefined in more draws than the interval leaves out. ``CHANGES``:
    the questions that are shrunk or expanded, with Fisher's exact p of the two counts, two-sided, and the same after
    Holm's correction for the number of changes; significant is a p of at most 1 - confidence.

    A larger pool finds more support: pools of the same size compare best. One right sample of n is weak evidence: a
    question with a small chance enters and leaves the support at random. ``shrunk_null``, ``expanded_null`` and
    ``significant_null`` say how often (``by_chance``).
    """
    ours, theirs = base.correct > 0, rl.correct > 0
    parts = np.stack([ours & theirs, ours & ~theirs, ~ours & theirs, ~ours & ~theirs], axis=1)
    questions, level = len(ours), 1 - confidence
    counts = dict(zip(COUNTS, parts.sum(axis=0), strict=True))
    draws = dict(zip(COUNTS, np.rint(resamples.means(parts) * questions), strict=True))
    record: dict[str, object] = {"questions": questions, "base_samples": base.samples, "rl_samples": rl.samples}
    record |= {"base_epsilon": epsilon(base.samples), "rl_epsilon": epsilon(rl.samples)}
    for name in COUNTS:
        record |= with_ends(name, float(counts[name]), draws[name], questions, confidence, (0, questions))
        record[name] = int(counts[name])
    denominators = {
        "srr": counts["kept"] + counts["shrunk"],
        "ndr": counts["kept"] + counts["expanded"],
        "sds": counts["kept"] + min(counts["shrunk"], counts["expanded"]),
        "nscr": questions - counts["out"],
    }
    resampled = ratios(draws)
    for name, value in ratios(counts).items():
        limits = (-1.0, 1.0) if name == "nscr" else (0.0, 1.0)
        record |= with_ends(name, float(value), resampled[name], int(denominators[name]), confidence, limits)
    changed = changes(base, rl, parts[:, 1], parts[:, 2])
    significant = changed.filter(pl.col("p") <= level)["change"]
    record |= {f"{name}_significant": int((significant == name).sum()) for name in COUNTS[1:3]}
    record |= by_chance(base, rl, level)
    return pl.DataFrame([record], SUPPORT), changed


def changes(base: Pool, rl: Pool, shrunk: Bools, expanded: Bools) -> pl.DataFrame:
    """The questions whose support changes, ``CHANGES``, with Fisher's exact test of their right and wrong samples."""
    changed = np.flatnonzero(shrunk | expanded)
    ours, theirs = base.correct[changed], rl.correct[changed]
    p = np.array(
        [_fisher(c, base.samples, d, rl.samples) for c, d in zip(ours.tolist(), theirs.tolist(), strict=True)], float
    )
    columns = {
        "question": base.questions[changed],
        "change": np.where(shrunk[changed], "shrunk", "expanded"),
        "base": ours,
        "rl": theirs,
        "p": p,
        "p_holm": holm(p),
    }
    return pl.DataFrame(columns).cast(CHANGES)


def by_chance(base: Pool, rl: Pool, level: float) -> dict[str, float]:
    """How many questions would change their support if both sides were alike on every question.

    Expected numbers: ``shrunk_null``, ``expanded_null``, and ``significant_null``, of either kind with a p-value of at
    most ``level``. Exact: the right samples of a question are dealt to the two sides at random, in every way, as in
    Fisher's test.
    """
    found = dict.fromkeys(("shrunk_null", "expanded_null", "significant_null"), 0.0)
    totals, questions = np.unique(base.correct + rl.correct, return_counts=True)
    for total, count in zip(totals.tolist(), questions.tolist(), strict=True):
        for name, ours in (("shrunk_null", total), ("expanded_null", 0)) if total else ():
            theirs = total - ours
            if ours > base.samples or theirs > rl.samples:
                continue
            share = count * stats.hypergeom.pmf(ours, base.samples + rl.samples, total, base.samples)
            found[name] += float(share)
            if _fisher(ours, base.samples, theirs, rl.samples) <= level:
                found["significant_null"] += float(share)
    return found


@cache
def _fisher(ours: int, our_samples: int, theirs: int, their_samples: int) -> float:
    return float(stats.fisher_exact(np.array([[ours, our_samples - ours], [theirs, their_samples - theirs]])).pvalue)
