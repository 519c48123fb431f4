"""Errors of every tier in every cell, with their bootstrap draws.

Two readings of one bootstrap over questions, with draws shared by all rows: the path that the sample chose is kept in
every draw (``fixed``, the paper's), or chosen again in each (``reselected``). Beside them stands a ``corrected`` error,
since a mean of absolute errors is biased upwards where the true errors are small, and downwards where the path was
chosen on the very questions it is scored on.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from searchlens.boptr import inference
from searchlens.boptr.cohort import Cohort
from searchlens.boptr.options import BoptrOptions
from searchlens.boptr.rule import Exponents, Path, PoolName, Reason, Rule, content_key
from searchlens.boptr.tiers import At, Blend, Curve, Prediction, Tier, mech
from searchlens.boptr.view import View, bootstrap_view, pairing_view, sample_view
from searchlens.policies.kinds import is_search
from searchlens.progress import Progress
from searchlens.uncertainty import Floats

Draws = npt.NDArray[np.float32]

CHUNK = 2000
"""Bootstrap draws in which paths are chosen again at once: bounds memory."""


@dataclass(frozen=True)
class Constants:
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
        return like.with_constants(self.exponents, like.options.mu_without if self.mu == "without" else ())


@dataclass(frozen=True)
class Key:
    """One number: a tier in a cell, under some constants, in a pool."""

    constants: Constants
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
    fixed, reselected : ndarray of float32, shape (1 + draws,), or None
        Bootstrap draws of the error, the sample's first.
    corrected : ndarray of float32, shape (1 + draws,)
        Without these two biases, along the fixed draws: ``inference.refitted`` where paths were chosen again, otherwise
        ``inference.corrected``, which knows of the first bias alone.
    """

    prediction: Path | Curve
    error: float
    fixed: Draws
    reselected: Draws | None
    corrected: Draws


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
        The rule with each set of constants, on the sample.
    """

    scores: dict[Key, Score]
    reasons: dict[Key, Reason]
    rules: dict[Constants, Rule]


@dataclass(frozen=True)
class Task:
    """Rows to evaluate with some constants, on some benchmarks; ``reselect``: choose their paths again, too."""

    constants: Constants
    tiers: tuple[Tier, ...]
    benchmarks: tuple[str, ...]
    reselect: bool = True


def has_expanded_pool(cohort: Cohort, model: str, benchmark: str) -> bool:
    """Whether Base was searched by a controller in this cell."""
    found = cohort.base(model, benchmark)
    return found is not None and any(is_search(name) for name in found.complete(cohort.plan.budgets))


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
    fixed = _fixed(bootstrap_view(cohort, options.draws, options.seed), points, defined, tiers)
    again = _reselected(cohort, options, [task for task in tasks if task.reselect]) if options.reselect else {}
    scores, known = {}, {}
    for key, prediction in defined.items():
        error, corrected = fixed[key]
        in_draw, in_sample = again.get(key, (None, None))
        if in_draw is not None and in_sample is not None:
            same = id(corrected), id(in_draw)
            if same not in known:
                known[same] = inference.refitted(corrected, error, in_draw, in_sample).astype(np.float32)
            corrected = known[same]
        scores[key] = Score(prediction, float(error[0]), error, in_draw, corrected)
    return Scores(scores, reasons, points.rules)


# ---- predictions


@dataclass(frozen=True, eq=False)
class _Predicted:
    predictions: dict[Key, Prediction]
    rules: dict[Constants, Rule]


def _predict(view: View, options: BoptrOptions, tasks: Sequence[Task]) -> _Predicted:
    rules = _rules(view, options, tasks)
    return _Predicted(dict(_predictions(view, options, tasks, rules)), rules)


def _rules(view: View, options: BoptrOptions, tasks: Sequence[Task]) -> dict[Constants, Rule]:
    like = Rule(view, options)
    return {constants: constants.rule(like) for constants in dict.fromkeys(task.constants for task in tasks)}


def _predictions(
    view: View, options: BoptrOptions, tasks: Sequence[Task], rules: Mapping[Constants, Rule] | None = None
) -> Iterator[tuple[Key, Prediction]]:
    """Every number's prediction, once."""
    rules = rules or _rules(view, options, tasks)
    seen = set()
    for task in tasks:
        for key, tier in _keys(view.cohort, task):
            if key not in seen:
                seen.add(key)
                yield key, _predicted(rules[task.constants], tier, key)


def _keys(cohort: Cohort, task: Task) -> Iterator[tuple[Key, Tier]]:
    for tier in task.tiers:
        for pool in tier.pools:
            for model in cohort.plan.models:
                for benchmark in task.benchmarks:
                    yield Key(task.constants, tier.key, pool, model, benchmark), tier


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


# ---- the sample's paths on bootstrap draws


def _fixed(
    view: View, points: _Predicted, defined: Mapping[Key, Path | Curve], tiers: Mapping[str, Tier]
) -> dict[Key, tuple[Draws, Draws]]:
    """Errors and corrected errors of every number."""
    cells: dict[tuple[str, str], list[Key]] = {}
    for key in defined:
        cells.setdefault((key.model, key.benchmark), []).append(key)
    like = Rule(view, next(iter(points.rules.values())).options)
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        parts = pool.map(lambda cell: _fixed_cell(view, cell, cells[cell], points, tiers, like), cells)
        return {key: found for part in parts for key, found in part.items()}


def _fixed_cell(
    view: View,
    cell: tuple[str, str],
    keys: Sequence[Key],
    points: _Predicted,
    tiers: Mapping[str, Tier],
    like: Rule,
) -> dict[Key, tuple[Draws, Draws]]:
    """The numbers of one cell, reading only the points that some path visits; curves follow the draws."""
    landscape, target = view.cohort.base(*cell), view.target(*cell)
    assert landscape is not None and target is not None
    visited: dict[tuple[str, int], int] = {}
    places: dict[Key, tuple[tuple[int, ...], ...]] = {}
    percent = np.float32(100 / view.total(cell[1]))
    found = {}
    for key in keys:
        prediction = points.predictions[key]
        if isinstance(prediction, Path | Blend):
            paths = prediction.paths if isinstance(prediction, Blend) else (prediction,)
            steps = [_steps(points.rules[key.constants], key, path) for path in paths]
            places[key] = tuple(
                tuple(-1 if step is None else visited.setdefault(step, len(visited)) for step in path) for path in steps
            )
        else:
            again = tiers[key.tier].predict(key.constants.rule(like), _at(key))
            assert isinstance(again, Curve)
            found[key] = _both((again.counts - target) * percent)
    counts = landscape.credit["P"][[landscape.points[point] for point in visited]] @ view.weights[cell[1]]
    errors = {place: _both(_gaps(counts, target, place) * percent) for place in set(places.values())}
    return found | {key: errors[place] for key, place in places.items()}


def _steps(rule: Rule, key: Key, path: Path) -> list[tuple[str, int] | None]:
    """Policy and budget at every b; nothing where the budget is left out."""
    base, budgets = rule.view.base(key.model, key.benchmark), rule.plan.budgets
    assert base is not None
    skip = np.zeros(len(path.budget), bool) if path.skip is None else path.skip[:, 0]
    steps = zip(path.policy[:, 0], path.budget[:, 0], skip, strict=True)
    return [None if gone else (base.policies[i], budgets[n]) for i, n, gone in steps]


def _gaps(counts: Draws, target: Draws, places: tuple[tuple[int, ...], ...]) -> Draws:
    """Signed differences of the mean over paths, at the budgets that are not left out (-1)."""
    kept = [b for b, point in enumerate(places[0]) if point >= 0]
    curves: list[Draws] = [counts[[place[b] for b in kept]] for place in places]
    gaps: Draws = sum(curves[1:], curves[0]) / np.float32(len(curves)) - target[kept]
    return gaps


def _both(gaps: Draws) -> tuple[Draws, Draws]:
    return np.abs(gaps).mean(axis=0), inference.corrected(gaps).astype(np.float32)


# ---- paths chosen again in every draw


def _reselected(cohort: Cohort, options: BoptrOptions, tasks: Sequence[Task]) -> dict[Key, tuple[Draws, Draws | None]]:
    """Errors with paths of each draw's own, in that draw and in the sample (None for curves).

    Nothing for a number that is undefined in any draw.
    """
    draws = min(options.reselect, options.draws)
    starts = range(0, draws, CHUNK)
    told = Progress("choosing paths again", draws, "draws")
    parts = []
    for start in starts:
        view = bootstrap_view(cohort, options.draws, options.seed, start, min(start + CHUNK, draws))
        parts.append(_errors(view, _predictions(view, options, tasks)))
        gc.collect()  # a rule and the variants made from it refer to each other, and hold all arrays of their draws
        told.add(min(CHUNK, draws - told.done))
    whole = {key: [part[key] for part in parts] for key in parts[0] if all(key in part for part in parts)}
    # Rows that agree in every draw share their arrays.
    alike = {key: tuple(map(id, found)) for key, found in whole.items()}
    distinct = {alike[key]: found for key, found in whole.items()}
    joined = {same: tuple(map(_joined, zip(*found, strict=True))) for same, found in distinct.items()}
    return {key: joined[alike[key]] for key in whole}  # type: ignore[misc]


def _joined(parts: Sequence[Draws | None]) -> Draws | None:
    """Chunks one after the other; each begins with the sample, which is kept once."""
    known = [part for part in parts if part is not None]
    return np.concatenate([known[0], *(part[1:] for part in known[1:])]) if len(known) == len(parts) else None


def _errors(view: View, predictions: Iterable[tuple[Key, Prediction]]) -> dict[Key, tuple[Draws, Draws | None]]:
    """Errors of predictions that are made on this very view, one after the other: all paths at once need gigabytes."""
    shared: dict[tuple[str, str, bytes], tuple[Draws, Draws | None]] = {}
    found = {}
    for key, prediction in predictions:
        if isinstance(prediction, Reason):
            continue
        same = (key.model, key.benchmark, _content(prediction))
        if same not in shared:
            shared[same] = _mech(view, key, prediction), _in_sample(view, key, prediction)
        found[key] = shared[same]
    return found


def _in_sample(view: View, key: Key, prediction: Path | Curve) -> Draws | None:
    """Errors of each draw's path in the sample."""
    base, target = view.base(key.model, key.benchmark), view.target(key.model, key.benchmark)
    assert base is not None and target is not None
    if isinstance(prediction, Blend):
        paths = prediction.paths
    elif isinstance(prediction, Path):
        paths = (prediction,)
    else:
        return None
    gap = np.mean([base.P[path.policy, path.budget, 0] for path in paths], axis=0) - target[:, :1]
    size, skip = np.abs(gap), paths[0].skip
    if skip is None:
        mean = size.sum(axis=0) / np.float64(len(size))
    else:
        kept = ~np.broadcast_to(skip, gap.shape)
        mean = (size * kept).sum(axis=0) / kept.sum(axis=0)
    return np.asarray(100 * mean / view.total(key.benchmark), np.float32)


def _content(prediction: Path | Curve) -> bytes:
    if isinstance(prediction, Curve):
        return content_key(prediction.counts)
    parts: list[np.ndarray] = [prediction.policy.astype(np.uint16), prediction.budget.astype(np.uint8)]
    if isinstance(prediction, Path) and prediction.skip is not None:
        parts.append(prediction.skip)
    return content_key(*parts)


def _mech(view: View, key: Key, prediction: Path | Curve) -> Draws:
    base, target = view.base(key.model, key.benchmark), view.target(key.model, key.benchmark)
    assert target is not None
    return mech(prediction, base, target, view.total(key.benchmark), view.draws).astype(np.float32)


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
        Over those cells of the exchanged models in which the tier is defined; tiers without any are left out.
    """
    view = pairing_view(cohort, options.permutations, options.seed)
    if len(view.partners) < 2:
        return view.partners, {}
    rule = task.constants.rule(Rule(view, options))
    means = {}
    for tier in task.tiers:
        total, cells = np.zeros(view.draws), 0
        for model in view.partners:
            for benchmark in task.benchmarks:
                key = Key(task.constants, tier.key, "ar", model, benchmark)
                prediction = _predicted(rule, tier, key)
                if not isinstance(prediction, Reason):
                    total += _mech(view, key, prediction)
                    cells += 1
        if cells:
            means[tier.key] = total / cells
    return view.partners, means
