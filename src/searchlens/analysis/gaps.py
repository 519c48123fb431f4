"""Same-policy gaps and the support region (paper, sections "Same-policy gaps" and "Base+Search Envelopes")."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl

from searchlens.analysis.paths import ROUNDING, Components, Curves, compared, geometry, near_match, path, read, target
from searchlens.analysis.points import Landscape
from searchlens.analysis.uncertainty import Floats, Interval, Resamples, quantiles, unseen, with_width, without_rounding
from searchlens.config.recovery import DEFAULTS, RecoveryOptions
from searchlens.store.columns import COUNTS, SAME_POLICY, SUPPORT


def same_policy(base: Landscape, rl: Landscape, options: RecoveryOptions = DEFAULTS) -> pl.DataFrame:
    """A_RL(pi, n) - A_Base(pi, n) at every operating point that both models have: ``store.columns.SAME_POLICY``.

    ``rl_minus_base`` has a paired bootstrap interval (``uncertainty.with_width``): a draw takes the same questions from
    both models. Where no question differs, the interval is what 0 differences in so many questions leave open.
    """
    keys = compared(base, rl, options.default_policy)
    rows = [row for metric, readout in keys for row in _same_policy(base, rl, metric, readout, options)]
    return pl.DataFrame(rows, SAME_POLICY).with_columns(pl.col("lo", "hi").fill_nan(None))


def _same_policy(
    base: Landscape, rl: Landscape, metric: str, readout: str, options: RecoveryOptions
) -> Iterator[dict[str, Any]]:
    base_curves, rl_curves = read(base, rl, metric, readout)
    in_rl = rl_curves.index()
    shared = [(i, in_rl[point]) for i, point in enumerate(base_curves.points) if point in in_rl]
    if not shared:
        return
    left, right = (list(side) for side in zip(*shared, strict=True))
    difference = rl_curves.credit[right] - base_curves.credit[left]
    questions = difference.shape[1]
    gap = difference.sum(axis=1) / questions
    drawn = _resamples(base_curves, options).interval(difference.T, options.confidence)
    lo, hi = with_width(gap, drawn, questions, options.confidence)
    base_values, rl_values = base_curves.values[left], rl_curves.values[right]
    for k, i in enumerate(left):
        policy, budget = base_curves.points[i]
        keys = {"metric": metric, "readout": readout, "policy": policy, "budget": budget}
        values = {"base": base_values[k], "rl": rl_values[k], "rl_minus_base": gap[k]}
        yield {**keys, **values, "lo": lo[k], "hi": hi[k]}


def counts(same: pl.DataFrame, options: RecoveryOptions = DEFAULTS) -> pl.DataFrame:
    """Number of policies under which Base is above RL, or at least level, with and without the RL default policy.

    ``store.columns.COUNTS``, of the result of ``same_policy``. ``ahead`` counts no ties, ``ahead_or_level`` does, as
    the paper, also those of two models that solve nothing: ``both_zero`` is the number of those, and no verdict should
    count them. The paper prints counts over 24 policies (with the default) and draws a figure over 23 (without).
    """
    ahead, level = (pl.col("rl_minus_base") < -ROUNDING, pl.col("rl_minus_base") <= ROUNDING)
    other = pl.col("policy") != options.default_policy
    nothing = pl.max_horizontal("base", "rl") <= ROUNDING
    grouped = same.group_by("metric", "readout", "budget", maintain_order=True).agg(
        ahead=ahead.sum(),
        ahead_or_level=level.sum(),
        policies=pl.len(),
        ahead_without_default=(ahead & other).sum(),
        ahead_or_level_without_default=(level & other).sum(),
        policies_without_default=other.sum(),
        both_zero=nothing.sum(),
        both_zero_without_default=(nothing & other).sum(),
    )
    return grouped.sort([pl.col("metric"), pl.col("readout") == "expected", pl.col("budget")]).cast(COUNTS)


def support(base: Landscape, rl: Landscape, options: RecoveryOptions = DEFAULTS) -> pl.DataFrame:
    """The RL target curve against the Base+search envelope: ``store.columns.SUPPORT``.

    ``envelope`` is the largest Base value over all policies and all n <= b, at the smallest such n and then the first
    policy by name; it never falls with b. ``low`` is the ``support_q`` quantile over policies at budget b exactly (null
    if Base has no b), and ``inside`` says whether low <= rl <= envelope. ``rl_minus_best`` = rl - envelope. ``rl_lo``
    and ``rl_hi`` are the interval of RL's point in its landscape. If Base has no point at n <= b, everything about the
    envelope is null.

    The envelope is the best of many noisy readouts, so it lies above the best true value, and the gap below the true
    gap. ``optimism`` estimates by how much: the mean over draws of what choosing the best again in each draw adds.
    Intervals:

    ``fixed``: paired bootstrap with the envelope's operating point held fixed, as the paper holds its paths. Right for
    that point, too low for the gap. Has no width where RL and that point agree on every question.

    ``corrected`` (default): the lower end is that of ``fixed``. The upper end is a basic one, the gap minus a quantile
    of its change in the draws, which removes the optimism instead of doubling it; the envelope changes in a world in
    which the points of each budget are shrunk to their mean by the share of their variance that noise explains.
    Policies that only noise tells apart are equal there, so that all of them compete for the envelope, and policies
    that differ stay apart. Both ends are at least as far from the gap as the upper end of the Wilson interval of 0 out
    of N questions: draws only repeat differences that occurred in the sample. So the interval contains the gap, and has
    a width even where RL and Base agree on every question.

    ``reselected``: the envelope is chosen again in each draw: twice in all, in the pool and in the draw, which doubles
    the bias.

    Measured coverage of the true gap: docs/validation.md, "Interval of the recovery gap". Fang and Santos (2019), Rev.
    Econ. Stud. 86, 377-412, arXiv:1404.3763 (why draws of a largest mean are biased); Efron and Morris (1973), J. Am.
    Stat. Assoc. 68, 117-130 (shrinkage).
    """
    keys = compared(base, rl, options.default_policy)
    rows = [row for metric, readout in keys for row in _support(base, rl, metric, readout, options)]
    columns = ("low", "rl_minus_best_lo", "rl_minus_best_hi", "rl_lo", "rl_hi")
    return pl.DataFrame(rows, SUPPORT).with_columns(pl.col(columns).fill_nan(None))


def _support(
    base: Landscape, rl: Landscape, metric: str, readout: str, options: RecoveryOptions
) -> Iterator[dict[str, Any]]:
    base_curves, rl_curves = read(base, rl, metric, readout)
    bands = rl.points.filter(policy=options.default_policy, metric=metric, readout=readout)
    ends = {budget: (lo, hi) for budget, lo, hi in bands.select("budget", "lo", "hi").iter_rows()}
    drawn = _resamples(base_curves, options).means(base_curves.credit.T)
    for budget, credit in zip(*target(rl_curves, options.default_policy), strict=True):
        value = float(credit.sum() / len(credit))
        cloud = [v for v, (_, n) in zip(base_curves.values, base_curves.points, strict=True) if n == budget]
        low = float(np.quantile(cloud, options.support_q)) if cloud else None
        row = {"metric": metric, "readout": readout, "budget": budget, "rl": value, "low": low}
        row["rl_lo"], row["rl_hi"] = ends[budget]
        yield {**row, **_envelope(base_curves, drawn, budget, credit, value, low, options)}


def _envelope(
    base: Curves, drawn: Floats, budget: int, rl: Floats, value: float, low: float | None, options: RecoveryOptions
) -> dict[str, Any]:
    reach = sorted((n, policy, i) for i, (policy, n) in enumerate(base.points) if n <= budget)
    if not reach:
        return {}
    members = [i for _, _, i in reach]
    heights = base.values[members]
    best = int(np.round(heights, 9).argmax())
    height = float(heights[best])
    gap = _gap_interval(base.credit[members], drawn[members], [n for n, _, _ in reach], best, rl, options)
    return {
        "envelope": height,
        "envelope_policy": reach[best][1],
        "envelope_budget": reach[best][0],
        "rl_minus_best": value - height,
        "rl_minus_best_lo": gap.lo,
        "rl_minus_best_hi": gap.hi,
        "optimism": gap.optimism,
        "inside": None if low is None else low - ROUNDING <= value <= height + ROUNDING,
    }


class _Gap(NamedTuple):
    lo: float
    hi: float
    optimism: float


def _gap_interval(
    credit: Floats, drawn: Floats, budgets: Sequence[int], best: int, rl: Floats, options: RecoveryOptions
) -> _Gap:
    """Interval of mean(rl) minus the envelope.

    ``credit`` of the points within reach, shape (points, questions); ``drawn``: their means in each draw, shape
    (points, draws); ``best``: the envelope's point.
    """
    questions = len(rl)
    resamples = Resamples.draw(questions, options.draws, options.seed)
    optimism = float((drawn.max(axis=0) - drawn[best]).mean())
    if options.envelope_interval == "reselected" and questions > 1:
        lo, hi = without_rounding(quantiles(resamples.means(rl[:, None]) - drawn.max(axis=0), options.confidence))
        return _Gap(float(lo[0]), float(hi[0]), optimism)
    lo, hi = resamples.interval((rl - credit[best])[:, None], options.confidence)
    if options.envelope_interval == "corrected" and questions > 1:
        height = credit.mean(axis=1)
        change = drawn - height[:, None]
        shrunk = _shrunk(height, change, np.asarray(budgets))
        moved = resamples.means(rl[:, None]) - rl.mean() - ((shrunk[:, None] + change).max(axis=0) - shrunk.max())
        gap, least = rl.mean() - height[best], unseen(questions, options.confidence)
        lo = np.minimum(lo, gap - least).clip(-1)
        hi = np.maximum(gap - quantiles(moved, options.confidence).lo, gap + least).clip(None, 1)
        lo, hi = without_rounding(Interval(lo, hi))
    return _Gap(float(lo[0]), float(hi[0]), optimism)


def _shrunk(height: Floats, change: Floats, budgets: npt.NDArray[np.int64]) -> Floats:
    """Points of each budget shrunk to their mean: by the noise variance over their whole variance, at most entirely."""
    shrunk = height.copy()
    for budget in np.unique(budgets):
        at = budgets == budget
        spread = height[at] - height[at].mean()
        noise = float(((change[at] - change[at].mean(axis=0)) ** 2).mean(axis=1).sum())
        total = float((spread**2).sum())
        kept = max(0.0, 1 - noise / total) if total > 0 else 0.0
        shrunk[at] = height[at].mean() + kept * spread
    return shrunk


def _resamples(curves: Curves, options: RecoveryOptions) -> Resamples:
    return Resamples.draw(curves.credit.shape[1], options.draws, options.seed)


def recover(
    base: Landscape, rl: Landscape, components: Components, options: RecoveryOptions = DEFAULTS
) -> dict[str, pl.DataFrame]:
    """Every table of the recovery stage: ``catalogue.RECOVERY_FRAMES``, of the metrics that are ``compared``.

    An InputError: the two landscapes have different questions, RL has no samples of the default policy, or a policy of
    Base has no components.
    """
    same = same_policy(base, rl, options)
    return {
        "same_policy": same,
        "counts": counts(same, options),
        "support": support(base, rl, options),
        "near_match": near_match(base, rl, options),
        "path": path(base, rl, components, options),
        "geometry": geometry(base, rl),
    }
