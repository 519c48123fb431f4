"""Errors of every row in every cell, with their bootstrap draws.

The bootstrap over questions is read in two ways, on the same draws. ``fixed``: every draw scores the path that was
chosen on the sample (the paper's reading). ``reselected``: every draw chooses its own path and scores that one. There
is also a ``corrected`` error, because a mean of absolute errors is biased twice: upwards where the true errors are
small, and downwards where the path was chosen on the questions that it is scored on.
"""

from __future__ import annotations

import gc
import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from typing import NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from searchlens.analysis.uncertainty import Floats
from searchlens.boptr import inference
from searchlens.boptr.cohort import Cohort
from searchlens.boptr.inference import ErrorDraws
from searchlens.boptr.rows import At, Blend, Curve, Prediction, Row, mech
from searchlens.boptr.rule import Exponents, Path, PoolName, Reason, Rule, attempt, content_key
from searchlens.boptr.view import View, bootstrap_view, nested_view, sample_view
from searchlens.config.boptr import BoptrOptions
from searchlens.progress import Progress
from searchlens.search.kinds import is_search

T = TypeVar("T")
Draws = npt.NDArray[np.float32]
Cell = tuple[str, str]
"""Model and benchmark."""

CHUNK = 2000
"""Draws for which paths are chosen again at a time: more take fewer passes and more memory (2000: 1.8 GiB)."""
NESTED = 2000
"""Draws from draws, at most."""


@dataclass(frozen=True)
class Constants:
    """The constants of a rule: exponents beta_g and means mu_g."""

    exponents: Exponents = "paper"
    """beta_g frozen as in the paper, or estimated from this cohort."""
    mu: str = "cohort"
    """mu_g over all fitted models, or over all but those of option ``mu_without``."""

    def rule(self, like: Rule) -> Rule:
        """The rule with these constants, on the view and with the options of another rule."""
        return like.with_constants(self.exponents, like.options.mu_without if self.mu == "without" else ())


@dataclass(frozen=True)
class Key:
    """One number: a row (its key) in a cell, with a set of constants and a pool."""

    constants: Constants
    row: str
    pool: PoolName
    model: str
    benchmark: str

    @property
    def at(self) -> At:
        """Where the row predicts."""
        return At(self.model, self.benchmark, self.pool)


@dataclass(frozen=True, eq=False, kw_only=True)
class Score(ErrorDraws):
    """One number that is defined, in float32: ``plain`` is the reading ``fixed``.

    ``corrected`` is ``inference.iterated`` if paths were chosen again, otherwise ``inference.corrected``, which removes
    the first bias only. With fewer draws chosen again than drawn the noise is that of the sample's path.
    """

    prediction: Prediction
    """On the sample."""
    error: float
    """mech_P, percentage points."""
    reselected: Draws | None
    """The error in the sample, then in the bootstrap draws, paths chosen again; None if the number is undefined in some
    draw, or with option ``reselect`` 0. Shape (1 + draws,), of float32."""


@dataclass(frozen=True, eq=False)
class Evaluation:
    """All numbers of a study.

    Numbers whose paths agree in all draws share their arrays, which saves both memory and the time for intervals.
    """

    scores: dict[Key, Score]
    """Numbers that are defined."""
    reasons: dict[Key, Reason]
    """Why the others are not."""
    rules: dict[Constants, Rule]
    """The rule with each set of constants, on the sample."""


@dataclass(frozen=True)
class Task:
    """What to evaluate: rows on benchmarks, with a set of constants."""

    constants: Constants
    rows: tuple[Row, ...]
    benchmarks: tuple[str, ...]
    reselect: bool = True
    """Whether paths are also chosen again in the draws."""
    without: tuple[str, ...] = ()
    """Models whose cells are left out."""


def has_expanded_pool(cohort: Cohort, model: str, benchmark: str) -> bool:
    """Whether Base was sampled with a search at every budget in this cell."""
    plan, base = cohort.plan, cohort.base(model, benchmark)
    return base is not None and any(is_search(name, plan.configured) for name in base.complete(plan.budgets))


def evaluate(cohort: Cohort, options: BoptrOptions, tasks: Sequence[Task]) -> Evaluation:
    """Errors of every row of every task in every cell.

    A row that can search the pool ``full`` has a number for it in every cell. It is undefined with the reason
    ``no_expanded_pool`` if the cell (for a copied path, the cell it is copied from) has no expanded pool.
    """
    sample, reasons = sample_view(cohort), dict[Key, Reason]()
    rules = _rules(sample, options, tasks)
    defined = dict(_predictions(rules, tasks, reasons))
    rows = {row.key: row for task in tasks for row in task.rows}
    cells: dict[Cell, dict[Key, Prediction]] = {}
    for key, prediction in defined.items():
        cells.setdefault(key.at.cell, {})[key] = prediction
    on_draws = Rule(bootstrap_view(cohort, options.draws, options.seed), options)
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        parts = pool.map(lambda cell: _fixed(on_draws, cell, cells[cell], rules, rows), cells)
        fixed = {key: errors for part in parts for key, errors in part.items()}
    again = [task for task in tasks if task.reselect]
    noise = {key: number.noise for key, number in fixed.items()}
    reselected = _reselected(cohort, options, again, noise) if options.reselect else {}
    nested = _nested(cohort, options, again) if options.reselect else {}
    scores: dict[Key, Score] = {}
    # Numbers that share their arrays share the result. The arrays outlive this loop, so their ids stay distinct.
    iterated: dict[tuple[int, int], Draws] = {}
    for key, prediction in defined.items():
        of, chosen = fixed[key].errors, reselected.get(key)
        corrected = of.corrected
        if chosen is not None and chosen.in_sample is not None:
            arrays = id(corrected), id(chosen)
            if arrays not in iterated:
                iterated[arrays] = _iterated(of, chosen, nested.get(key))
            corrected = iterated[arrays]
        in_draw = None if chosen is None else chosen.in_draw
        of = replace(of, corrected=corrected)
        scores[key] = Score(**vars(of), prediction=prediction, error=float(of.plain[0]), reselected=in_draw)
    return Evaluation(scores, reasons, rules)


class _OnDraws(NamedTuple):
    """A number on bootstrap draws, its path held fixed: ``noise`` is the standard error of the gap at each budget."""

    errors: ErrorDraws
    noise: Floats


class _Chosen(NamedTuple):
    """Errors of each draw's own path: plain ones in that draw and in the sample, and both ``inference.folded``.

    Of a curve without paths only the first is known.
    """

    in_draw: Draws
    in_sample: Draws | None = None
    folded_in_draw: Draws | None = None
    folded_in_sample: Draws | None = None


def _iterated(fixed: ErrorDraws, chosen: _Chosen, nested: float | None) -> Draws:
    """``inference.iterated``; with too few draws chosen again the noise is that of the sample's path."""
    assert chosen.in_sample is not None and chosen.folded_in_draw is not None and chosen.folded_in_sample is not None
    shift = (chosen.in_sample - chosen.in_draw)[1:].astype(float)
    inside, outside = chosen.folded_in_draw[1:], chosen.folded_in_sample[1:]
    below = np.nan if nested is None else nested
    found = inference.iterated(float(fixed.plain[0]), shift, [below], inside, outside)
    if len(chosen.in_draw) < len(fixed.plain):
        drawn = fixed.corrected[1:].astype(float)
        found = found[0] + np.concatenate([[0.0], drawn - drawn.mean()])
    return found.astype(np.float32)


# ---- predictions


def _rules(view: View, options: BoptrOptions, tasks: Sequence[Task]) -> dict[Constants, Rule]:
    rule = Rule(view, options)
    return {constants: constants.rule(rule) for constants in dict.fromkeys(task.constants for task in tasks)}


def _predictions(
    rules: Mapping[Constants, Rule], tasks: Sequence[Task], reasons: dict[Key, Reason] | None = None
) -> Iterator[tuple[Key, Prediction]]:
    """Every number that is defined, once; ``reasons`` receives the reasons of the others."""
    done = set()
    for task in tasks:
        rule = rules[task.constants]
        models = [name for name in rule.plan.models if name not in task.without]
        for row in task.rows:
            for cell in product(row.pools, models, task.benchmarks):
                key = Key(task.constants, row.key, *cell)
                if key not in done:
                    done.add(key)
                    prediction = attempt(predicted, rule, row, key)
                    if not isinstance(prediction, Reason):
                        yield key, prediction
                    elif reasons is not None:
                        reasons[key] = prediction


def predicted(rule: Rule, row: Row, key: Key) -> Prediction:
    """What a row predicts, if the cell and the pool are there."""
    rule.cell(key.model, key.benchmark)
    if key.pool == "full":
        anchor = rule.plan.anchor_model, key.benchmark
        sources = {"": key.at.cell, "anchor cell": rule.anchor, "same benchmark": anchor}
        if not has_expanded_pool(rule.view.cohort, *sources[row.copies]):
            raise Reason("no_expanded_pool")
    return row.predict(rule, key.at)


# ---- the sample's paths on bootstrap draws


def _fixed(
    on_draws: Rule,
    cell: Cell,
    predictions: Mapping[Key, Prediction],
    rules: Mapping[Constants, Rule],
    rows: Mapping[str, Row],
) -> dict[Key, _OnDraws]:
    """The numbers of one cell. Only points that a path visits are counted; curves are predicted again in each draw."""
    view = on_draws.view
    landscape, rl, target = view.cohort.base(*cell), view.cohort.rl(*cell), view.target(*cell)
    assert landscape is not None and rl is not None and target is not None
    total = view.total(cell[1])
    percent = np.float32(100 / total)
    visited: dict[tuple[str, int], int] = {}
    visits: dict[Key, tuple[tuple[int, ...], ...]] = {}
    errors: dict[Key, _OnDraws] = {}
    for key, prediction in predictions.items():
        paths = _paths(prediction)
        if paths:
            steps = [_steps(rules[key.constants], key, path) for path in paths]
            visits[key] = tuple(
                tuple(-1 if step is None else visited.setdefault(step, len(visited)) for step in path) for path in steps
            )
        else:
            curve = rows[key.row].predict(key.constants.rule(on_draws), key.at)
            assert isinstance(curve, Curve)
            errors[key] = _on_draws((curve.counts - target) * percent, total, len(target), range(len(target)))
    credit = landscape.credit["P"][[landscape.points[point] for point in visited]]
    goal = rl.block("P", [view.plan.default_policy], view.plan.budgets)[0]
    counts = credit @ view.weights[cell[1]]
    of_paths = {}
    for places in set(visits.values()):
        gaps, at = _gaps(counts, target, places) * percent, _counted(places)
        signed = np.sign(gaps[:, :1]) * _gaps(credit, goal, places)
        of_paths[places] = _on_draws(gaps, total, len(target), at, inference.freedom(signed.mean(axis=0)))
    return errors | {key: of_paths[places] for key, places in visits.items()}


def _paths(prediction: Prediction) -> tuple[Path, ...]:
    """The paths whose mean a prediction is; none for a curve without paths."""
    if isinstance(prediction, Path):
        return (prediction,)
    return prediction.paths if isinstance(prediction, Blend) else ()


def _steps(rule: Rule, key: Key, path: Path) -> list[tuple[str, int] | None]:
    """Policy and budget at every b; None at a budget that is left out."""
    base, budgets = rule.base(key.model, key.benchmark), rule.plan.budgets
    skip = np.zeros(len(path.budget), bool) if path.skip is None else path.skip[:, 0]
    steps = zip(path.policy[:, 0], path.budget[:, 0], skip, strict=True)
    return [None if skipped else (base.policies[i], budgets[n]) for i, n, skipped in steps]


def _gaps(counts: Draws, target: Draws, places: tuple[tuple[int, ...], ...]) -> Draws:
    """Mean of several paths minus the target, at the budgets that are not left out (-1)."""
    at = _counted(places)
    curves: list[Draws] = [counts[[place[b] for b in at]] for place in places]
    return sum(curves[1:], curves[0]) / np.float32(len(curves)) - target[at]


def _counted(places: tuple[tuple[int, ...], ...]) -> list[int]:
    """Budgets that are not left out."""
    return [b for b, point in enumerate(places[0]) if point >= 0]


def _on_draws(gaps: Draws, questions: float, levels: int, at: Sequence[int], freedom: float = math.inf) -> _OnDraws:
    """Errors from signed gaps at the budgets ``at`` of ``levels``; no ``freedom`` of curves without paths is known."""
    noise = np.zeros(levels)
    if gaps.shape[1] > 2:
        noise[list(at)] = gaps[:, 1:].std(axis=1, ddof=1)
    corrected = inference.corrected(gaps).astype(np.float32)
    return _OnDraws(ErrorDraws(np.abs(gaps).mean(axis=0), corrected, questions, freedom), noise)


# ---- paths chosen again in every draw


def _reselected(
    cohort: Cohort, options: BoptrOptions, tasks: Sequence[Task], noise: Mapping[Key, Floats]
) -> dict[Key, _Chosen]:
    """Errors of each draw's own path, in that draw and in the sample.

    A number that is undefined in some draw is left out.
    """
    draws = min(options.reselect, options.draws)
    progress = Progress("choosing paths again", draws, "draws")
    chunks = []
    for start in range(0, draws, CHUNK):
        view = bootstrap_view(cohort, options.draws, options.seed, start, min(start + CHUNK, draws))
        predictions = _predictions(_rules(view, options, tasks), tasks)
        chunks.append(_shared(((k, p) for k, p in predictions if k in noise), partial(_chosen, view, noise)))
        gc.collect()  # rules of one view refer to each other in a circle and hold all arrays of their draws
        progress.add(min(CHUNK, draws - progress.done))
    complete = {key: [chunk[key] for chunk in chunks] for key in chunks[0] if all(key in chunk for chunk in chunks)}
    # Numbers that share their arrays in every chunk share the joined ones. ``chunks`` keeps all of them alive.
    arrays = {key: tuple(map(id, parts)) for key, parts in complete.items()}
    distinct = {arrays[key]: parts for key, parts in complete.items()}
    joined = {ids: _Chosen(*map(_joined, zip(*parts, strict=True))) for ids, parts in distinct.items()}  # type: ignore[arg-type]
    return {key: joined[ids] for key, ids in arrays.items()}


def _joined(chunks: Sequence[Draws | None]) -> Draws | None:
    """Chunks one after another. Each begins with the sample, of which only the first is kept."""
    arrays = [chunk for chunk in chunks if chunk is not None]
    return np.concatenate([arrays[0], *(a[1:] for a in arrays[1:])]) if len(arrays) == len(chunks) else None


def _shared(predictions: Iterable[tuple[Key, Prediction]], make: Callable[[Key, Prediction], T]) -> dict[Key, T]:
    """What is made of predictions, one after another: all at once would take gigabytes. Equal ones share it."""
    made: dict[tuple[str, str, bytes], T] = {}
    by_key = {}
    for key, prediction in predictions:
        content = (key.model, key.benchmark, _content(prediction))
        if content not in made:
            made[content] = make(key, prediction)
        by_key[key] = made[content]
    return by_key


def _chosen(view: View, noise: Mapping[Key, Floats], key: Key, prediction: Prediction) -> _Chosen:
    in_draw, paths = scored(view, key, prediction), _paths(prediction)
    if not paths:
        return _Chosen(in_draw)
    gaps = _path_gaps(view, key, paths, np.arange(view.draws))
    in_sample = _path_gaps(view, key, paths, np.zeros(view.draws, int))
    folded = [inference.folded(side, noise[key], paths[0].skip).astype(np.float32) for side in (gaps, in_sample)]
    return _Chosen(in_draw, _mean_size(in_sample, paths[0]), *folded)


def _path_gaps(view: View, key: Key, paths: Sequence[Path], at: npt.NDArray[np.int64]) -> Floats:
    """Signed gaps of each draw's path in the draws ``at``, percentage points, shape (budgets, draws)."""
    base, target = view.base(key.model, key.benchmark), view.target(key.model, key.benchmark)
    assert base is not None and target is not None
    goal = np.broadcast_to(target, (len(target), view.draws))[:, at]
    last = base.P.shape[2] - 1
    curves = [base.P[path.policy, path.budget, np.minimum(at, last)] for path in paths]
    return np.asarray(100 * (np.mean(curves, axis=0) - goal) / view.total(key.benchmark), float)


def _mean_size(gaps: Floats, path: Path) -> Draws:
    """Mean |gap| over the budgets that a path does not leave out."""
    size = np.abs(gaps)
    if path.skip is None:
        return np.asarray(size.sum(axis=0) / np.float64(len(size)), np.float32)
    counted = ~np.broadcast_to(path.skip, gaps.shape)
    return np.asarray((size * counted).sum(axis=0) / counted.sum(axis=0), np.float32)


def _nested(cohort: Cohort, options: BoptrOptions, tasks: Sequence[Task]) -> dict[Key, float]:
    """Mean of (error in a draw - error in a draw from it) of the path that is chosen on the second.

    At most ``NESTED`` draws, which is enough for a mean. Numbers without paths, and those undefined in some draw, are
    left out.
    """
    parent = bootstrap_view(cohort, options.draws, options.seed, 0, min(options.reselect, options.draws, NESTED))
    view = nested_view(parent, options.seed)

    def mean(key: Key, prediction: Prediction) -> float:
        paths = _paths(prediction)
        sides = (_path_gaps(side, key, paths, np.arange(view.draws)) for side in (view, parent))
        inside, outside = (_mean_size(gaps, paths[0]) for gaps in sides)
        difference = (outside - inside)[1:].astype(float)
        return float(difference[~np.isnan(difference)].mean()) if difference.size else math.nan

    predictions = _predictions(_rules(view, options, tasks), tasks)
    means = _shared(((k, p) for k, p in predictions if _paths(p)), mean)
    gc.collect()
    return means


def _content(prediction: Prediction) -> bytes:
    if isinstance(prediction, Curve):
        return content_key(prediction.counts)
    parts: list[np.ndarray] = [prediction.policy.astype(np.uint16), prediction.budget.astype(np.uint8)]
    if prediction.skip is not None:
        parts.append(prediction.skip)
    return content_key(*parts)


def scored(view: View, key: Key, prediction: Prediction) -> Draws:
    """mech_P of a prediction that was made on this view, in every draw."""
    base, target = view.base(key.model, key.benchmark), view.target(key.model, key.benchmark)
    assert target is not None
    return mech(prediction, base, target, view.total(key.benchmark), view.draws).astype(np.float32)
