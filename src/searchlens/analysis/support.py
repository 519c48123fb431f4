"""Support: which questions a side solves at all, and what RL keeps, loses and adds of what Base solves."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

import numpy as np
import polars as pl
from scipy import stats
from statsmodels.stats.multitest import multipletests

from searchlens.analysis.classes import Pool
from searchlens.analysis.measures import with_ends
from searchlens.analysis.pool import Bools
from searchlens.analysis.uncertainty import Floats, Resamples

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
        "p_holm": multipletests(p, method="holm")[1] if len(p) else p,
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
