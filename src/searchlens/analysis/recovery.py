"""Where the RL model's default curve lies inside the Base landscape: gaps, the support region, near points and paths.

Paper, sections "Same-policy gaps", "Base+Search Envelopes" and "Recovery paths". Near points, paths and their geometry
are of ``first_k`` estimates. A *candidate* is any Base operating point; its budget may exceed the target's.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import compress, product
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import polars as pl

from searchlens.analysis.points import Landscape, placed
from searchlens.analysis.uncertainty import Floats, Interval, Resamples, quantiles, unseen, with_width, without_rounding
from searchlens.catalogue import declared
from searchlens.config.general import General
from searchlens.config.recovery import RecoveryOptions
from searchlens.errors import InputError
from searchlens.store.columns import (
    COORDINATES,
    COUNTS,
    ESTIMATORS,
    GEOMETRY,
    NEAR_MATCH,
    PATH,
    SAME_POLICY,
    SUPPORT,
)

ROUNDING = 1e-7
"""Proportions that differ by less are equal: expectations have single precision, and one question weighs far more."""

PATH_LAMBDA = 0.01
"""Weight of the distance between consecutive points on the budget-monotone path."""

Point = tuple[str, int]
"""Policy and budget."""

EnvelopeInterval = Literal["corrected", "fixed", "reselected"]
"""Interval of the recovery gap: ``support`` explains them."""

Components = Mapping[str, Sequence[Hashable]]
"""Policy name to its local policy, controller, evaluator, transition and scheduler."""


@dataclass(frozen=True, eq=False)
class Curves:
    """One metric and estimator of one checkpoint, at the points that have one."""

    points: list[Point]
    """List of (policy, budget). Operating points in the order of the landscape."""
    credit: Floats
    """Estimate of each question, in [0, 1]. Shape (points, questions)."""

    @cached_property
    def values(self) -> Floats:
        """Mean over questions of each point; sums of 0/1 are exact, so equal counts give equal values."""
        mean: Floats = self.credit.sum(axis=1) / self.credit.shape[1]
        return mean


def compared(base: Landscape, rl: Landscape, default_policy: str) -> list[tuple[str, str]]:
    """Metric and estimator of every comparison: metrics declared as ``compared``, as far as both landscapes know them.

    Of the default policy, if a side has it: the expected vote of a pool of more than 512 samples is null.
    """
    of_default = pl.col("policy") == default_policy
    counted = of_default | ~of_default.any()  # ``target`` says where it is missing
    keys = [
        set(side.points.filter(counted).drop_nulls("value").select("metric", "estimator").iter_rows())
        for side in (base, rl)
    ]
    return [key for key in product(declared("metric", compared=True), ESTIMATORS) if key in keys[0] & keys[1]]


def compared_prefixes(base: Landscape, rl: Landscape, default_policy: str) -> list[str]:
    """Metrics of every comparison of first-k estimates."""
    return [metric for metric, estimator in compared(base, rl, default_policy) if estimator == "first_k"]


def read(base: Landscape, rl: Landscape, metric: str, estimator: str) -> tuple[Curves, Curves]:
    """Curves of both checkpoints, questions in the same order; an InputError if these differ."""
    of_base, of_rl = (np.unique(landscape.hits["question"].to_numpy()) for landscape in (base, rl))
    if not np.array_equal(of_base, of_rl):
        odd = np.setxor1d(of_base, of_rl)[0]
        raise InputError(
            f"recovery: Base has {len(of_base)} questions and RL {len(of_rl)}; question {odd} is in only one of them",
            "score both checkpoints on the same benchmark",
        )
    column = metric if estimator == "first_k" else f"{metric}_unbiased"
    return _curves(base.hits, column, of_base), _curves(rl.hits, column, of_base)


def _curves(hits: pl.DataFrame, column: str, questions: npt.NDArray[np.uint32]) -> Curves:
    points, point = placed(hits)
    credit = np.full((len(points), len(questions)), np.nan)
    credit[point, np.searchsorted(questions, hits["question"].to_numpy())] = hits[column].cast(pl.Float64).to_numpy()
    known = ~np.isnan(credit).any(axis=1)  # a search whose width does not divide a budget has no expectation there
    return Curves(list(compress(points, known)), credit[known])


def target(rl: Curves, default_policy: str) -> tuple[list[int], Floats]:
    """Budgets of the RL target curve, increasing, and its credit, shape (budgets, questions)."""
    at = sorted((budget, i) for i, (policy, budget) in enumerate(rl.points) if policy == default_policy)
    if not at:
        names = ", ".join(dict.fromkeys(policy for policy, _ in rl.points))
        raise InputError(f"recovery: RL has no samples of the default policy {default_policy!r}; it has {names}")
    return [budget for budget, _ in at], rl.credit[[i for _, i in at]]


def same_policy(base: Landscape, rl: Landscape, general: General) -> pl.DataFrame:
    """A_RL(pi, n) - A_Base(pi, n) at every operating point that both models have: ``store.columns.SAME_POLICY``.

    ``rl_minus_base`` has a paired bootstrap interval (``uncertainty.with_width``): a draw takes the same questions from
    both models. Where no question differs, the interval is what 0 differences in so many questions leave open.
    """
    parts = [SAME_POLICY.to_frame()]
    for metric, estimator in compared(base, rl, general.default_policy):
        ours, theirs = read(base, rl, metric, estimator)
        in_rl = {point: i for i, point in enumerate(theirs.points)}
        left = [i for i, point in enumerate(ours.points) if point in in_rl]
        if not left:
            continue
        points = [ours.points[i] for i in left]
        right = [in_rl[point] for point in points]
        difference = theirs.credit[right] - ours.credit[left]
        gap, questions = difference.sum(axis=1) / difference.shape[1], difference.shape[1]
        drawn = Resamples.draw(questions, general.draws, general.seed).interval(difference.T, general.confidence)
        lo, hi = with_width(gap, drawn, questions, general.confidence)
        keys = {
            "metric": metric,
            "estimator": estimator,
            "policy": [p for p, _ in points],
            "budget": [n for _, n in points],
        }
        values = {"base": ours.values[left], "rl": theirs.values[right], "rl_minus_base": gap, "lo": lo, "hi": hi}
        parts.append(pl.DataFrame({**keys, **values}, SAME_POLICY))
    return pl.concat(parts).with_columns(pl.col("lo", "hi").fill_nan(None))


def counts(same: pl.DataFrame, default_policy: str) -> pl.DataFrame:
    """Number of policies under which Base is above RL, or at least level, with and without the RL default policy.

    ``store.columns.COUNTS``, of the result of ``same_policy``. ``ahead`` counts no ties, ``ahead_or_level`` does, as
    the paper, also those of two models that solve nothing: ``both_zero`` is the number of those, and no verdict should
    count them. The paper prints counts over 24 policies (with the default) and draws a figure over 23 (without).
    """
    ahead, level = (pl.col("rl_minus_base") < -ROUNDING, pl.col("rl_minus_base") <= ROUNDING)
    other = pl.col("policy") != default_policy
    nothing = pl.max_horizontal("base", "rl") <= ROUNDING
    grouped = same.group_by("metric", "estimator", "budget", maintain_order=True).agg(
        ahead=ahead.sum(),
        ahead_or_level=level.sum(),
        policies=pl.len(),
        ahead_without_default=(ahead & other).sum(),
        ahead_or_level_without_default=(level & other).sum(),
        policies_without_default=other.sum(),
        both_zero=nothing.sum(),
        both_zero_without_default=(nothing & other).sum(),
    )
    return grouped.sort([pl.col("metric"), pl.col("estimator") == "unbiased", pl.col("budget")]).cast(COUNTS)


def support(
    base: Landscape, rl: Landscape, options: RecoveryOptions, general: General, kind: EnvelopeInterval = "corrected"
) -> pl.DataFrame:
    """The RL target curve against the Base+search envelope: ``store.columns.SUPPORT``.

    ``envelope`` is the largest Base value over all policies and all n <= b, at the smallest such n and then the first
    policy by name; it never falls with b. ``low`` is the ``support_q`` quantile over policies at budget b exactly (null
    if Base has no b), and ``inside`` says whether low <= rl <= envelope. ``rl_minus_best`` = rl - envelope. ``rl_lo``
    and ``rl_hi`` are the interval of RL's point in its landscape. If Base has no point at n <= b, everything about the
    envelope is null.

    The envelope is the best of many noisy estimates, so it lies above the best true value, and the gap below the true
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
    rows = []
    for metric, estimator in compared(base, rl, general.default_policy):
        base_curves, rl_curves = read(base, rl, metric, estimator)
        bands = rl.points.filter(policy=general.default_policy, metric=metric, estimator=estimator)
        ends = {budget: (lo, hi) for budget, lo, hi in bands.select("budget", "lo", "hi").iter_rows()}
        drawn = Resamples.draw(base_curves.credit.shape[1], general.draws, general.seed).means(base_curves.credit.T)
        for budget, credit in zip(*target(rl_curves, general.default_policy), strict=True):
            cloud = [v for v, (_, n) in zip(base_curves.values, base_curves.points, strict=True) if n == budget]
            row = {"metric": metric, "estimator": estimator, "budget": budget, "rl": float(credit.sum() / len(credit))}
            row["low"] = float(np.quantile(cloud, options.support_q)) if cloud else None
            row["rl_lo"], row["rl_hi"] = ends[budget]
            rows.append(row | _envelope(base_curves, drawn, row, credit, general, kind))
    columns = ("low", "rl_minus_best_lo", "rl_minus_best_hi", "rl_lo", "rl_hi")
    return pl.DataFrame(rows, SUPPORT).with_columns(pl.col(columns).fill_nan(None))


def _envelope(
    base: Curves, drawn: Floats, row: Mapping[str, Any], rl: Floats, general: General, kind: EnvelopeInterval
) -> dict[str, Any]:
    """What ``support`` says about the envelope at ``row["budget"]``; ``drawn``: means of Base in each draw."""
    reach = sorted((n, policy, i) for i, (policy, n) in enumerate(base.points) if n <= row["budget"])
    if not reach:
        return {}
    members = [i for _, _, i in reach]
    heights = base.values[members]
    best = int(np.round(heights, 9).argmax())
    height, low = float(heights[best]), row["low"]
    budgets = np.array([n for n, _, _ in reach])
    interval = _gap_interval(base.credit[members], drawn[members], budgets, best, rl, general, kind)
    return {
        "envelope": height,
        "envelope_policy": reach[best][1],
        "envelope_budget": reach[best][0],
        "rl_minus_best": row["rl"] - height,
        **dict(zip(("rl_minus_best_lo", "rl_minus_best_hi", "optimism"), interval, strict=True)),
        "inside": None if low is None else low - ROUNDING <= row["rl"] <= height + ROUNDING,
    }


def _gap_interval(
    credit: Floats,
    drawn: Floats,
    budgets: npt.NDArray[np.int64],
    best: int,
    rl: Floats,
    general: General,
    kind: EnvelopeInterval,
) -> tuple[float, float, float]:
    """Ends of the interval of mean(rl) minus the envelope, and its optimism.

    ``credit`` of the points within reach, shape (points, questions); ``drawn``: their means in each draw, shape
    (points, draws); ``best``: the envelope's point.
    """
    questions, confidence = len(rl), general.confidence
    resamples = Resamples.draw(questions, general.draws, general.seed)
    optimism = float((drawn.max(axis=0) - drawn[best]).mean())
    if kind == "reselected" and questions > 1:
        lo, hi = without_rounding(quantiles(resamples.means(rl[:, None]) - drawn.max(axis=0), confidence))
    else:
        lo, hi = resamples.interval((rl - credit[best])[:, None], confidence)
    if kind == "corrected" and questions > 1:
        height = credit.mean(axis=1)
        change = drawn - height[:, None]
        shrunk = _shrunk(height, change, budgets)
        moved = resamples.means(rl[:, None]) - rl.mean() - ((shrunk[:, None] + change).max(axis=0) - shrunk.max())
        gap, least = rl.mean() - height[best], unseen(questions, confidence)
        lo = np.minimum(lo, gap - least).clip(-1)
        hi = np.maximum(gap - quantiles(moved, confidence).lo, gap + least).clip(None, 1)
        lo, hi = without_rounding(Interval(lo, hi))
    return float(lo[0]), float(hi[0]), optimism


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


def near_match(base: Landscape, rl: Landscape, options: RecoveryOptions, default_policy: str) -> pl.DataFrame:
    """Every Base operating point within ``epsilon`` of the RL target, at each target budget.

    ``store.columns.NEAR_MATCH``: nearest first, then smaller budget, then policy name. A point at distance
    ``epsilon`` belongs to the set.
    """
    rows = []
    for metric in compared_prefixes(base, rl, default_policy):
        for budget, goal, curves, error in _targets(base, rl, metric, default_policy):
            size = np.round(np.abs(error), 9)
            nearest = sorted(range(len(error)), key=lambda i: (size[i], *curves.points[i][::-1]))
            near = [i for i in nearest if abs(error[i]) <= options.epsilon + ROUNDING]
            rows += [{"metric": metric, **_match(budget, goal, curves, i, error)} for i in near]
    return pl.DataFrame(rows, NEAR_MATCH)


def path(
    base: Landscape,
    rl: Landscape,
    components: Components,
    options: RecoveryOptions,
    default_policy: str,
    path_lambda: float = PATH_LAMBDA,
) -> pl.DataFrame:
    """Two paths of Base operating points that follow the RL target curve: ``store.columns.PATH``.

    ``closest``: at each budget the candidate with the smallest absolute error, whether or not within ``epsilon``; ties
    to the smaller budget, then to the candidate nearest to the previous choice in d, then by name.

    ``monotone``: the path with non-decreasing budgets that minimises the sum of absolute errors (proportions) plus
    ``path_lambda`` times the distances d between neighbours, found exactly by dynamic programming; ties to smaller
    budgets, then names, earliest target first.
    """
    base_points = geometry(base, rl).filter(model="base")
    distances = distance(base_points, components, options)
    order = {point: i for i, point in enumerate(base_points.select("policy", "budget").iter_rows())}
    rows = []
    for metric in compared_prefixes(base, rl, default_policy):
        targets = list(_targets(base, rl, metric, default_policy))
        curves = targets[0][2]
        at = [order[point] for point in curves.points]
        between = distances[np.ix_(at, at)]
        errors = np.stack([error for _, _, _, error in targets])
        monotone = _monotone(curves, errors, path_lambda * between)
        chosen = {"closest": _closest(curves, errors, between), "monotone": monotone}
        for kind, steps in chosen.items():
            for (budget, goal, _, error), i in zip(targets, steps, strict=True):
                rows.append({"metric": metric, "kind": kind, **_match(budget, goal, curves, i, error)})
    return pl.DataFrame(rows, PATH)


def geometry(base: Landscape, rl: Landscape) -> pl.DataFrame:
    """z(u) = [P, Q, T, D, C] of every operating point of both models: ``store.columns.GEOMETRY``, first-k estimates.

    C is the natural logarithm of the generated tokens per question, scaled so that the Base landscape spans [0, 1]; RL
    points share the scale and may lie outside. C is 0 if all Base points cost the same. C and T are null where token
    counts are unknown.
    """
    wide = []
    for model, landscape in (("base", base), ("rl", rl)):
        rows = landscape.points.filter(pl.col("metric").is_in(COORDINATES), estimator="first_k")
        points = rows.pivot("metric", index=["policy", "budget"], values="value", maintain_order=True)
        wide.append(points.with_columns(pl.col("C").clip(1).log(), model=pl.lit(model)))
    cost = wide[0]["C"].drop_nulls().to_numpy()
    span = float(np.ptp(cost)) if len(cost) else 0.0
    scaled = (pl.col("C") - float(cost.min())) / span if span > 0 else pl.lit(0.0)
    return pl.concat(wide).with_columns(C=scaled).select(GEOMETRY.names()).cast(GEOMETRY)


def distance(points: pl.DataFrame, components: Components, options: RecoveryOptions) -> Floats:
    """d(u, u') = l_comp d_comp + l_z |z - z'|_1 + l_b |ln n - ln n'| between all rows of ``geometry``.

    d_comp is the fraction of the five components of the policies that differ. Coordinates unknown on either side count
    as equal.
    """
    unknown = sorted(set(points["policy"]) - set(components))
    if unknown:
        raise InputError(
            f"recovery: policy {unknown[0]!r} has no components; components are given for {sorted(components)}"
        )
    columns = zip(*(components[policy] for policy in points["policy"]), strict=True)
    codes = np.array([[column.index(value) for value in column] for column in columns])
    z = points.select(COORDINATES).to_numpy()
    log_budget = np.log(points["budget"].to_numpy().astype(float))
    differ = (codes[:, :, None] != codes[:, None, :]).mean(axis=0)
    behaviour = np.nansum(np.abs(z[:, None, :] - z[None, :, :]), axis=2)
    budget = np.abs(log_budget[:, None] - log_budget[None, :])
    total: Floats = options.l_comp * differ + options.l_z * behaviour + options.l_b * budget
    return total


def _targets(
    base: Landscape, rl: Landscape, metric: str, default_policy: str
) -> Iterator[tuple[int, float, Curves, Floats]]:
    """For each target budget: the budget, its RL value, the candidates, and RL - Base at each of them."""
    curves, rl_curves = read(base, rl, metric, "first_k")
    questions = curves.credit.shape[1]
    solved = curves.credit.sum(axis=1)
    for budget, credit in zip(*target(rl_curves, default_policy), strict=True):
        yield budget, float(credit.sum() / questions), curves, (credit.sum() - solved) / questions


def _match(budget: int, goal: float, curves: Curves, i: int, error: Floats) -> dict[str, Any]:
    policy, n = curves.points[i]
    keys = {"target_budget": budget, "target": goal, "policy": policy, "budget": n}
    return {**keys, "value": curves.values[i], "rl_minus_base": error[i]}


def _closest(curves: Curves, errors: Floats, between: Floats) -> list[int]:
    steps: list[int] = []
    for error in errors:
        size = np.round(np.abs(error), 9)
        near = np.round(between[steps[-1]], 9) if steps else np.zeros(len(error))
        steps.append(min(range(len(error)), key=lambda i: (size[i], curves.points[i][1], near[i], curves.points[i][0])))
    return steps


def _monotone(curves: Curves, errors: Floats, move: Floats) -> list[int]:
    """Shortest path: costs from the last target backwards, then the first of the best choices forwards."""
    order = sorted(range(len(curves.points)), key=lambda i: curves.points[i][::-1])
    budget = np.array([curves.points[i][1] for i in order])
    move = move[np.ix_(order, order)]
    move[budget[:, None] > budget[None, :]] = np.inf
    local = np.abs(errors)[:, order]
    cost_to_end = [local[-1]]
    for cost in local[-2::-1]:
        cost_to_end.insert(0, cost + (move + cost_to_end[0]).min(axis=1))
    steps = [int(np.round(cost_to_end[0], 12).argmin())]
    for rest in cost_to_end[1:]:
        steps.append(int(np.round(move[steps[-1]] + rest, 12).argmin()))
    return [order[i] for i in steps]


def recover(
    base: Landscape, rl: Landscape, components: Components, options: RecoveryOptions, general: General
) -> dict[str, pl.DataFrame]:
    """Every table of the recovery stage: ``catalogue.RECOVERY_FRAMES``, of the metrics that are ``compared``.

    An InputError: the two landscapes have different questions, RL has no samples of the default policy, or a policy of
    Base has no components.
    """
    same, default = same_policy(base, rl, general), general.default_policy
    return {
        "same_policy": same,
        "counts": counts(same, default),
        "support": support(base, rl, options, general),
        "near_match": near_match(base, rl, options, default),
        "path": path(base, rl, components, options, default),
        "geometry": geometry(base, rl),
    }
