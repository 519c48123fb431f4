"""Errors of every tier in every cell, with their bootstrap draws.

Two readings of one bootstrap over questions, with draws shared by all rows: the path that the sample chose is kept in
every draw (``fixed``, the paper's), or chosen again in each (``reselected``). Beside them stands a cross-fitted
estimate (``corrected``), since a mean of absolute errors is biased upwards where the true errors are small, and
downwards where the path was chosen on the very curve it is scored on.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from searchlens.boptr.cohort import Cohort, expanded
from searchlens.boptr.options import BoptrOptions
from searchlens.boptr.rule import Exponents, Path, PoolName, Reason, Rule
from searchlens.boptr.tiers import At, Curve, Prediction, Tier, curve, mech
from searchlens.boptr.view import View, bootstrap_view, half_views, pairing_view, sample_view
from searchlens.progress import Progress
from searchlens.uncertainty import Floats

Draws = npt.NDArray[np.float32]

CHUNK = 500
"""Bootstrap draws worked on at once: bounds memory."""
SPLITS = 100
"""Random halvings behind a cross-fitted estimate."""


@dataclass(frozen=True)
class Variant:
    """Which constants a rule is run with.

    Attributes
    ----------
    exponents : {"paper", "own"}
        beta_g frozen as in the paper, or estimated from this cohort.
    mu : {"cohort", "without"}
        mu over all fitted models, or without those of option ``mu_without``.
    """

    exponents: Exponents = "paper"
    mu: str = "cohort"

    def rule(self, like: Rule) -> Rule:
        """The rule with these constants, on the view and options of another."""
        return like.variant(self.exponents, like.options.mu_without if self.mu == "without" else ())


@dataclass(frozen=True)
class Key:
    """One number: a tier in a cell, under a variant and a pool."""

    variant: Variant
    tier: str
    pool: PoolName
    model: str
    benchmark: str


@dataclass(frozen=True, eq=False)
class Score:
    """One defined number.

    Attributes
    ----------
    prediction : Path or Curve
        On the sample.
    error : float
        mech_P, percentage points.
    fixed, reselected : ndarray of float32, shape (draws,), or None
        Bootstrap draws of the error.
    corrected : float
        Cross-fitted estimate; NaN where the halves are too small.
    """

    prediction: Path | Curve
    error: float
    fixed: Draws
    reselected: Draws | None
    corrected: float


@dataclass(frozen=True, eq=False)
class Scores:
    """All numbers of a study.

    Attributes
    ----------
    scores : dict
        Where defined.
    reasons : dict
        Where not.
    rule : dict
        The rule of each variant on the sample.
    """

    scores: dict[Key, Score]
    reasons: dict[Key, Reason]
    rules: dict[Variant, Rule]


@dataclass(frozen=True)
class Task:
    """Tiers to evaluate under a variant, on some benchmarks."""

    variant: Variant
    tiers: tuple[Tier, ...]
    benchmarks: tuple[str, ...]


def has_expanded_pool(cohort: Cohort, model: str, benchmark: str) -> bool:
    """Whether Base was searched by a controller in this cell."""
    found = cohort.base(model, benchmark)
    return found is not None and any(expanded(name) for name in found.complete(cohort.plan.budgets))


def evaluate(
    cohort: Cohort,
    options: BoptrOptions,
    tasks: Sequence[Task],
) -> Scores:
    """Errors of every tier of every task in every cell.

    Parameters
    ----------
    cohort : Cohort
    options : BoptrOptions
        ``draws``, ``seed`` and ``reselect`` among them.
    tasks : sequence of Task

    Returns
    -------
    Scores
        A tier with the pool ``full`` is asked wherever its cell, or the anchor's, has an expanded pool; elsewhere that
        number has the reason ``no_expanded_pool``.
    """
    points = _predict(sample_view(cohort), options, tasks)
    defined = {key: p for key, p in points.predictions.items() if not isinstance(p, Reason)}
    reasons = {key: p for key, p in points.predictions.items() if isinstance(p, Reason)}
    tiers = {tier.key: tier for task in tasks for tier in task.tiers}
    starts = range(0, options.draws, CHUNK)

    def chunk(start: int) -> tuple[dict[Key, Draws], dict[Key, Draws]]:
        view = bootstrap_view(cohort, options.draws, options.seed, start, min(start + CHUNK, options.draws))
        fixed = _fixed(view, options, defined, tiers, points.rules)
        if not options.reselect:
            return fixed, {}
        again = _predict(view, options, tasks).predictions
        return fixed, _errors(view, {key: again[key] for key in defined})

    with ThreadPoolExecutor(max_workers=min(os.cpu_count() or 1, len(starts))) as pool:
        told = Progress("bootstrap over questions", options.draws, "draws")
        parts = []
        for part in pool.map(chunk, starts):
            parts.append(part)
            told.add(min(CHUNK, options.draws - told.done))
    corrected = _cross_fitted(cohort, options, tasks, defined, tiers)
    scores = {}
    for key, prediction in defined.items():
        fixed = np.concatenate([part[0][key][1:] for part in parts])
        reselected = np.concatenate([part[1][key][1:] for part in parts]) if options.reselect else None
        scores[key] = Score(prediction, float(parts[0][0][key][0]), fixed, reselected, corrected[key])
    return Scores(scores, reasons, points.rules)


# ---- predictions


@dataclass(frozen=True, eq=False)
class _Predicted:
    predictions: dict[Key, Prediction]
    rules: dict[Variant, Rule]


def _predict(view: View, options: BoptrOptions, tasks: Sequence[Task]) -> _Predicted:
    like = Rule(view, options)
    rules = {variant: variant.rule(like) for variant in dict.fromkeys(task.variant for task in tasks)}
    found: dict[Key, Prediction] = {}
    for task in tasks:
        rule = rules[task.variant]
        for key, tier in _keys(view.cohort, task):
            if key not in found:
                found[key] = _predicted(rule, tier, key)
    return _Predicted(found, rules)


def _keys(cohort: Cohort, task: Task) -> Iterator[tuple[Key, Tier]]:
    for tier in task.tiers:
        for pool in tier.pools:
            for model in cohort.plan.models:
                for benchmark in task.benchmarks:
                    yield Key(task.variant, tier.key, pool, model, benchmark), tier


def _predicted(rule: Rule, tier: Tier, key: Key) -> Prediction:
    cell = rule.cell(key.model, key.benchmark)
    if isinstance(cell, Reason):
        return cell
    if key.pool == "full":
        own = key.model, key.benchmark
        sources = {"": own, "anchor cell": rule.anchor, "same benchmark": (rule.plan.anchor_model, key.benchmark)}
        if not has_expanded_pool(rule.view.cohort, *sources[tier.copies]):
            return Reason("no_expanded_pool")
    return tier.predict(rule, _at(key))


def _at(key: Key) -> At:
    return At(key.model, key.benchmark, key.pool)


# ---- errors


def _errors(view: View, predictions: Mapping[Key, Prediction]) -> dict[Key, Draws]:
    """Errors of predictions that were made on this very view."""
    shared: dict[tuple[str, str, bytes], Draws] = {}
    found = {}
    for key, prediction in predictions.items():
        if isinstance(prediction, Reason):
            found[key] = np.full(view.draws, np.nan, np.float32)
            continue
        same = (key.model, key.benchmark, _content(prediction))
        if same not in shared:
            shared[same] = _mech(view, key, prediction)
        found[key] = shared[same]
    return found


def _fixed(
    view: View,
    options: BoptrOptions,
    predictions: Mapping[Key, Path | Curve],
    tiers: Mapping[str, Tier],
    rules: Mapping[Variant, Rule],
) -> dict[Key, Draws]:
    """Errors of the sample's paths on the view's draws, reading only the points that some path visits.

    Curves are no paths: they follow the draws.
    """
    found: dict[Key, Draws] = {}
    cells: dict[tuple[str, str], list[Key]] = {}
    like = Rule(view, options)
    for key, prediction in predictions.items():
        if isinstance(prediction, Curve):
            again = tiers[key.tier].predict(key.variant.rule(like), _at(key))
            assert not isinstance(again, Reason)
            found[key] = _mech(view, key, again)
        else:
            cells.setdefault((key.model, key.benchmark), []).append(key)
    for cell, keys in cells.items():
        found |= _fixed_cell(view, cell, {key: predictions[key] for key in keys}, rules)
    return found


def _fixed_cell(
    view: View, cell: tuple[str, str], predictions: Mapping[Key, Path | Curve], rules: Mapping[Variant, Rule]
) -> dict[Key, Draws]:
    surface, target = view.cohort.base(*cell), view.target(*cell)
    assert surface is not None and target is not None
    budgets, total = view.plan.budgets, view.total(cell[1])
    visited: dict[tuple[str, int], int] = {}
    places = {}
    for key, path in predictions.items():
        base = rules[key.variant].view.base(*cell)
        assert base is not None and isinstance(path, Path)
        steps = [(base.policies[i], budgets[n]) for i, n in zip(path.policy[:, 0], path.budget[:, 0], strict=True)]
        skip = np.zeros(len(steps), bool) if path.skip is None else path.skip[:, 0]
        places[key] = tuple(
            -1 if gone else visited.setdefault(p, len(visited)) for p, gone in zip(steps, skip, strict=True)
        )
    counts = surface.credit["P"][[surface.points[point] for point in visited]] @ view.weights[cell[1]]
    errors = {place: _along(counts, target, place) * np.float32(100 / total) for place in set(places.values())}
    return {key: errors[place] for key, place in places.items()}


def _along(counts: Draws, target: Draws, place: tuple[int, ...]) -> Draws:
    """Mean absolute difference over the budgets of a path that are not left out (-1)."""
    kept = [b for b, point in enumerate(place) if point >= 0]
    mean: Draws = np.abs(counts[[place[b] for b in kept]] - target[kept]).mean(axis=0)
    return mean


def _content(prediction: Path | Curve) -> bytes:
    if isinstance(prediction, Curve):
        return prediction.counts.tobytes()
    skip = b"" if prediction.skip is None else prediction.skip.tobytes()
    return prediction.policy.tobytes() + prediction.budget.tobytes() + skip


def _mech(view: View, key: Key, prediction: Path | Curve) -> Draws:
    base, target = view.base(key.model, key.benchmark), view.target(key.model, key.benchmark)
    assert target is not None
    return mech(prediction, base, target, view.total(key.benchmark), view.draws).astype(np.float32)


# ---- cross-fitting


def _cross_fitted(
    cohort: Cohort,
    options: BoptrOptions,
    tasks: Sequence[Task],
    defined: Mapping[Key, Prediction],
    tiers: dict[str, Tier],
) -> dict[Key, float]:
    halves = half_views(cohort, SPLITS, options.seed)
    chosen = [_predict(view, options, tasks).predictions for view in halves]
    return {
        key: float(
            np.mean(
                [_signed(halves[i], halves[1 - i], key, _honest(key, prediction, chosen[i], tiers)) for i in (0, 1)]
            )
        )
        for key, prediction in defined.items()
    }


def _honest(key: Key, fixed: Prediction, chosen: dict[Key, Prediction], tiers: dict[str, Tier]) -> Prediction:
    """The sample's path; chosen on the first half alone where the tier is fitted to what it is scored on."""
    tier = tiers[key.tier]
    return chosen[key] if tier.reads_target or tier.copies or isinstance(fixed, Curve) else fixed


def _signed(first: View, second: View, key: Key, prediction: Prediction) -> float:
    """Sign from one half, size from the other: 100 mean_b sign(d1_b) d2_b, averaged over the splits."""
    if isinstance(prediction, Reason):
        return float("nan")
    gaps = []
    for view in (first, second):
        base, target = view.base(key.model, key.benchmark), view.target(key.model, key.benchmark)
        assert target is not None
        gaps.append((curve(prediction, base, view.draws) - target) / view.total(key.benchmark))
    signed = np.sign(gaps[0]) * gaps[1]
    if isinstance(prediction, Path) and prediction.skip is not None:
        signed = np.where(prediction.skip, np.nan, signed)
    return 100 * float(np.nanmean(signed))


# ---- the mismatched null


def mismatched(cohort: Cohort, options: BoptrOptions, task: Task) -> tuple[tuple[str, ...], dict[str, Floats]]:
    """Mean error over the fitted cells of each tier when Base_i is paired with the RL of another model.

    Every rule is fitted anew on each pairing, so nothing of the true pairing is left in it.

    Returns
    -------
    partners : tuple of str
        The models whose RL sides were exchanged; fewer than two leave nothing to exchange.
    means : dict
        Tier key to the mean error (percentage points) of every pairing, shape (permutations,), the true one first.
        Tiers that are undefined in any of the cells are left out; only cells of exchanged models count.
    """
    view = pairing_view(cohort, options.permutations, options.seed)
    if len(view.partners) < 2:
        return view.partners, {}
    rule = task.variant.rule(Rule(view, options))
    means = {}
    for tier in task.tiers:
        total, cells = np.zeros(view.draws), 0
        for model in view.partners:
            for benchmark in task.benchmarks:
                key = Key(task.variant, tier.key, "ar", model, benchmark)
                prediction = _predicted(rule, tier, key)
                if not isinstance(prediction, Reason):
                    total += _mech(view, key, prediction)
                    cells += 1
        if cells:
            means[tier.key] = total / cells
    return view.partners, means
