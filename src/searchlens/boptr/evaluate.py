"""Errors of every row in every cell, with their bootstrap draws.

The bootstrap over questions is read in two ways, on the same draws. ``fixed``: every draw scores the path that was
chosen on the sample (the paper's reading). ``reselected``: every draw chooses its own path and scores that one. There
is also a ``corrected`` error, because a mean of absolute errors is biased twice: upwards where the true errors are
small, and downwards where the path was chosen on the questions that it is scored on.
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
from searchlens.boptr.rows import At, Blend, Curve, Prediction, Row, mech
from searchlens.boptr.rule import Exponents, Path, PoolName, Reason, Rule, content_key
from searchlens.boptr.view import View, bootstrap_view, pairing_view, sample_view
from searchlens.policies.kinds import is_search
from searchlens.progress import Progress
from searchlens.uncertainty import Floats

Draws = npt.NDArray[np.float32]

CHUNK = 2000
"""Draws for which paths are chosen again at a time: more take fewer passes and more memory (2000: 1.8 GiB)."""


@dataclass(frozen=True)
class Constants:
    """The constants of a rule: exponents beta_g and means mu_g.

    Attributes
    ----------
    exponents : {"paper", "own"}
        beta_g frozen as in the paper, or estimated from this cohort.
    mu : {"cohort", "without"}
        mu_g over all fitted models, or over all but those of option ``mu_without``.
    """

    exponents: Exponents = "paper"
    mu: str = "cohort"

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


@dataclass(frozen=True, eq=False)
class Score:
    """One number that is defined.

    Attributes
    ----------
    prediction : Path or Curve
        On the sample.
    error : float
        mech_P, percentage points.
    fixed, reselected : ndarray of float32, shape (1 + draws,), or None
        The error in the sample, then in the bootstrap draws, by either reading. ``reselected`` is None if the number is
        undefined in some draw, or with option ``reselect`` 0.
    corrected : ndarray of float32, shape (1 + draws,)
        The same draws without the biases: ``inference.refitted`` if paths were chosen again, otherwise
        ``inference.corrected``, which removes the first bias only.
    questions : float
        Number of questions of the cell; of a mean over cells the smallest.
    """

    prediction: Path | Curve
    error: float
    fixed: Draws
    reselected: Draws | None
    corrected: Draws
    questions: float


@dataclass(frozen=True, eq=False)
class Evaluation:
    """All numbers of a study.

    Numbers whose paths agree in all draws share their arrays, which saves both memory and the time for intervals.

    Attributes
    ----------
    scores : dict
        Numbers that are defined.
    reasons : dict
        Why the others are not.
    rules : dict
        The rule with each set of constants, on the sample.
    """

    scores: dict[Key, Score]
    reasons: dict[Key, Reason]
    rules: dict[Constants, Rule]


@dataclass(frozen=True)
class Task:
    """What to evaluate: rows on benchmarks, with a set of constants.

    Attributes
    ----------
    constants : Constants
    rows : tuple of Row
    benchmarks : tuple of str
    reselect : bool
        Whether paths are also chosen again in the draws.
    without : tuple of str
        Models whose cells are left out.
    """

    constants: Constants
    rows: tuple[Row, ...]
    benchmarks: tuple[str, ...]
    reselect: bool = True
    without: tuple[str, ...] = ()


def has_expanded_pool(cohort: Cohort, model: str, benchmark: str) -> bool:
    """Whether Base was sampled with a search at every budget in this cell."""
    plan, base = cohort.plan, cohort.base(model, benchmark)
    return base is not None and any(is_search(name, plan.configured) for name in base.complete(plan.budgets))


def evaluate(cohort: Cohort, options: BoptrOptions, tasks: Sequence[Task]) -> Evaluation:
    """Errors of every row of every task in every cell.

    Parameters
    ----------
    cohort : Cohort
    options : BoptrOptions
        ``draws``, ``seed`` and ``reselect`` among others.
    tasks : sequence of Task

    Returns
    -------
    Evaluation
        A row that can search the pool ``full`` has a number for it in every cell. It is undefined with the reason
        ``no_expanded_pool`` if the cell (for a copied path, the cell it is copied from) has no expanded pool.
    """
    sample = sample_view(cohort)
    rules = _rules(sample, options, tasks)
    predictions = dict(_predictions(sample, tasks, rules))
    defined = {key: p for key, p in predictions.items() if not isinstance(p, Reason)}
    reasons = {key: p for key, p in predictions.items() if isinstance(p, Reason)}
    rows = {row.key: row for task in tasks for row in task.rows}
    fixed = _fixed(bootstrap_view(cohort, options.draws, options.seed), defined, rules, rows)
    again = [task for task in tasks if task.reselect]
    reselected = _reselected(cohort, options, again) if options.reselect else {}
    scores: dict[Key, Score] = {}
    # Numbers that share both arrays share the result. The arrays outlive this loop, so their ids stay distinct.
    refitted: dict[tuple[int, int], Draws] = {}
    for key, prediction in defined.items():
        error, corrected = fixed[key]
        in_draw, in_sample = reselected.get(key, (None, None))
        if in_draw is not None and in_sample is not None:
            arrays = id(corrected), id(in_draw)
            if arrays not in refitted:
                refitted[arrays] = inference.refitted(corrected, error, in_draw, in_sample).astype(np.float32)
            corrected = refitted[arrays]
        scores[key] = Score(prediction, float(error[0]), error, in_draw, corrected, sample.total(key.benchmark))
    return Evaluation(scores, reasons, rules)


# ---- predictions


def _rules(view: View, options: BoptrOptions, tasks: Sequence[Task]) -> dict[Constants, Rule]:
    rule = Rule(view, options)
    return {constants: constants.rule(rule) for constants in dict.fromkeys(task.constants for task in tasks)}


def _predictions(
    view: View, tasks: Sequence[Task], rules: Mapping[Constants, Rule]
) -> Iterator[tuple[Key, Prediction]]:
    """The prediction of every number; a number that occurs in several tasks comes once."""
    done = set()
    for task in tasks:
        for key, row in _keys(view.cohort, task):
            if key not in done:
                done.add(key)
                yield key, _prediction(rules[task.constants], row, key)


def _keys(cohort: Cohort, task: Task) -> Iterator[tuple[Key, Row]]:
    for row in task.rows:
        for pool in row.pools:
            for model in (name for name in cohort.plan.models if name not in task.without):
                for benchmark in task.benchmarks:
                    yield Key(task.constants, row.key, pool, model, benchmark), row


def _prediction(rule: Rule, row: Row, key: Key) -> Prediction:
    cell = rule.cell(key.model, key.benchmark)
    if isinstance(cell, Reason):
        return cell
    if key.pool == "full":
        anchor = rule.plan.anchor_model, key.benchmark
        sources = {"": key.at.cell, "anchor cell": rule.anchor, "same benchmark": anchor}
        if not has_expanded_pool(rule.view.cohort, *sources[row.copies]):
            return Reason("no_expanded_pool")
    return row.predict(rule, key.at)


# ---- the sample's paths on bootstrap draws


def _fixed(
    view: View, predictions: Mapping[Key, Path | Curve], rules: Mapping[Constants, Rule], rows: Mapping[str, Row]
) -> dict[Key, tuple[Draws, Draws]]:
    """Errors and corrected errors of every number, cell by cell in parallel."""
    cells: dict[tuple[str, str], dict[Key, Path | Curve]] = {}
    for key, prediction in predictions.items():
        cells.setdefault(key.at.cell, {})[key] = prediction
    on_draws = Rule(view, next(iter(rules.values())).options)
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        parts = pool.map(lambda cell: _fixed_cell(on_draws, cell, cells[cell], rules, rows), cells)
        return {key: errors for part in parts for key, errors in part.items()}


def _fixed_cell(
    on_draws: Rule,
    cell: tuple[str, str],
    predictions: Mapping[Key, Path | Curve],
    rules: Mapping[Constants, Rule],
    rows: Mapping[str, Row],
) -> dict[Key, tuple[Draws, Draws]]:
    """The numbers of one cell. Only points that a path visits are counted; curves are predicted again in each draw."""
    view = on_draws.view
    landscape, target = view.cohort.base(*cell), view.target(*cell)
    assert landscape is not None and target is not None
    percent = np.float32(100 / view.total(cell[1]))
    visited: dict[tuple[str, int], int] = {}
    visits: dict[Key, tuple[tuple[int, ...], ...]] = {}
    errors: dict[Key, tuple[Draws, Draws]] = {}
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
            errors[key] = _both((curve.counts - target) * percent)
    counts = landscape.credit["P"][[landscape.points[point] for point in visited]] @ view.weights[cell[1]]
    of_paths = {places: _both(_gaps(counts, target, places) * percent) for places in set(visits.values())}
    return errors | {key: of_paths[places] for key, places in visits.items()}


def _paths(prediction: Path | Curve) -> tuple[Path, ...]:
    """The paths whose mean a prediction is; none for a curve without paths."""
    if isinstance(prediction, Path):
        return (prediction,)
    return prediction.paths if isinstance(prediction, Blend) else ()


def _steps(rule: Rule, key: Key, path: Path) -> list[tuple[str, int] | None]:
    """Policy and budget at every b; None at a budget that is left out."""
    base, budgets = rule.view.base(key.model, key.benchmark), rule.plan.budgets
    assert base is not None
    skip = np.zeros(len(path.budget), bool) if path.skip is None else path.skip[:, 0]
    steps = zip(path.policy[:, 0], path.budget[:, 0], skip, strict=True)
    return [None if skipped else (base.policies[i], budgets[n]) for i, n, skipped in steps]


def _gaps(counts: Draws, target: Draws, places: tuple[tuple[int, ...], ...]) -> Draws:
    """Mean of several paths minus the target, at the budgets that are not left out (-1)."""
    at = [b for b, point in enumerate(places[0]) if point >= 0]
    curves: list[Draws] = [counts[[place[b] for b in at]] for place in places]
    gaps: Draws = sum(curves[1:], curves[0]) / np.float32(len(curves)) - target[at]
    return gaps


def _both(gaps: Draws) -> tuple[Draws, Draws]:
    """Errors and corrected errors."""
    return np.abs(gaps).mean(axis=0), inference.corrected(gaps).astype(np.float32)


# ---- paths chosen again in every draw


def _reselected(cohort: Cohort, options: BoptrOptions, tasks: Sequence[Task]) -> dict[Key, tuple[Draws, Draws | None]]:
    """Errors of each draw's own path, in that draw and in the sample (None for curves without paths).

    A number that is undefined in some draw is left out.
    """
    draws = min(options.reselect, options.draws)
    progress = Progress("choosing paths again", draws, "draws")
    chunks = []
    for start in range(0, draws, CHUNK):
        view = bootstrap_view(cohort, options.draws, options.seed, start, min(start + CHUNK, draws))
        chunks.append(_errors(view, _predictions(view, tasks, _rules(view, options, tasks))))
        gc.collect()  # rules of one view refer to each other in a circle and hold all arrays of their draws
        progress.add(min(CHUNK, draws - progress.done))
    complete = {key: [chunk[key] for chunk in chunks] for key in chunks[0] if all(key in chunk for chunk in chunks)}
    # Numbers that share their arrays in every chunk share the joined ones. ``chunks`` keeps all of them alive.
    arrays = {key: tuple(map(id, parts)) for key, parts in complete.items()}
    distinct = {arrays[key]: parts for key, parts in complete.items()}
    joined = {ids: tuple(map(_joined, zip(*parts, strict=True))) for ids, parts in distinct.items()}
    return {key: joined[ids] for key, ids in arrays.items()}  # type: ignore[misc]


def _joined(chunks: Sequence[Draws | None]) -> Draws | None:
    """Chunks one after another. Each begins with the sample, of which only the first is kept."""
    arrays = [chunk for chunk in chunks if chunk is not None]
    return np.concatenate([arrays[0], *(a[1:] for a in arrays[1:])]) if len(arrays) == len(chunks) else None


def _errors(view: View, predictions: Iterable[tuple[Key, Prediction]]) -> dict[Key, tuple[Draws, Draws | None]]:
    """Errors of predictions that are made on this view, one after another: all paths at once would take gigabytes."""
    by_content: dict[tuple[str, str, bytes], tuple[Draws, Draws | None]] = {}
    errors = {}
    for key, prediction in predictions:
        if isinstance(prediction, Reason):
            continue
        content = (key.model, key.benchmark, _content(prediction))
        if content not in by_content:
            by_content[content] = _mech(view, key, prediction), _in_sample(view, key, prediction)
        errors[key] = by_content[content]
    return errors


def _in_sample(view: View, key: Key, prediction: Path | Curve) -> Draws | None:
    """Errors of each draw's path in the sample."""
    base, target = view.base(key.model, key.benchmark), view.target(key.model, key.benchmark)
    assert base is not None and target is not None
    paths = _paths(prediction)
    if not paths:
        return None
    gap = np.mean([base.P[path.policy, path.budget, 0] for path in paths], axis=0) - target[:, :1]
    size, skip = np.abs(gap), paths[0].skip
    if skip is None:
        mean = size.sum(axis=0) / np.float64(len(size))
    else:
        counted = ~np.broadcast_to(skip, gap.shape)
        mean = (size * counted).sum(axis=0) / counted.sum(axis=0)
    return np.asarray(100 * mean / view.total(key.benchmark), np.float32)


def _content(prediction: Path | Curve) -> bytes:
    if isinstance(prediction, Curve):
        return content_key(prediction.counts)
    parts: list[np.ndarray] = [prediction.policy.astype(np.uint16), prediction.budget.astype(np.uint8)]
    if prediction.skip is not None:
        parts.append(prediction.skip)
    return content_key(*parts)


def _mech(view: View, key: Key, prediction: Path | Curve) -> Draws:
    base, target = view.base(key.model, key.benchmark), view.target(key.model, key.benchmark)
    assert target is not None
    return mech(prediction, base, target, view.total(key.benchmark), view.draws).astype(np.float32)


# ---- the mismatched null


def mismatched(cohort: Cohort, options: BoptrOptions, task: Task) -> tuple[tuple[str, ...], dict[str, Floats]]:
    """Mean error of each row over the fitted cells when every Base is paired with the RL of another model.

    Every rule is fitted again on each pairing, so that nothing of the true pairing is left in it.

    Parameters
    ----------
    cohort : Cohort
    options : BoptrOptions
        ``permutations`` and ``seed`` among others.
    task : Task
        Pool ``ar`` only.

    Returns
    -------
    partners : tuple of str
        The models whose RL sides were exchanged. With fewer than two, nothing can be exchanged and ``means`` is empty.
    means : dict
        Key of a row to its mean error (percentage points) under every pairing, shape (permutations,), the true one
        first. The mean is over those cells of the exchanged models in which the row is defined; a row without any is
        left out.
    """
    view = pairing_view(cohort, options.permutations, options.seed)
    if len(view.partners) < 2:
        return view.partners, {}
    rule = task.constants.rule(Rule(view, options))
    means = {}
    for row in task.rows:
        total, cells = np.zeros(view.draws), 0
        for model in view.partners:
            for benchmark in task.benchmarks:
                key = Key(task.constants, row.key, "ar", model, benchmark)
                prediction = _prediction(rule, row, key)
                if not isinstance(prediction, Reason):
                    total += _mech(view, key, prediction)
                    cells += 1
        if cells:
            means[row.key] = total / cells
    return view.partners, means
