"""How large a study must be to distinguish two rows of a table.

The statistical model (``docs/power.md``): each model's difference of two rows, averaged over benchmarks, is the gap,
plus a deviation of the model, plus noise from finitely many questions and samples. The test is the two-sided paired t
test over models at level alpha / contrasts, the strictest step of Holm's correction.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt
from scipy.stats import nct, norm, t

from searchlens.analysis.uncertainty import Floats
from searchlens.boptr.cohort import CohortPlan, read_cohort
from searchlens.boptr.rows import ROWS, At, Curve, Row
from searchlens.boptr.rule import Reason, Rule, attempt
from searchlens.boptr.view import sample_view
from searchlens.config.boptr import BoptrOptions
from searchlens.errors import InputError, counted, require_known

Free = Literal["models", "questions", "seeds"]
Contributions = Mapping[tuple[str, str], Floats]
"""(model, benchmark) to each question's part in the difference of two errors, shape (questions, seeds)."""

LARGEST = 4096
"""Largest factor by which a design is enlarged; what needs more is reported as not enough."""
_NODES = 40
"""Values at which the shared part is integrated over: more are more exact and take longer."""


@dataclass(frozen=True)
class Design:
    """Size of a study. Raises InputError for fewer than two models, or no questions or seeds."""

    questions: tuple[int, ...]
    """Number on each benchmark."""
    models: int
    """Number of Base/RL pairs, at least 2."""
    seeds: int = 1
    """Number of independent pools of samples on both sides, over which curves are averaged before errors are computed.
    A pool that is twice as large as that of ``Components.sample_sd`` is worth nearly two."""

    def __post_init__(self) -> None:
        if self.models < 2:
            raise InputError(f"--models: {self.models}; a test over models needs at least 2")
        if not self.questions or min(self.questions) < 1 or self.seeds < 1:
            raise InputError(
                f"--questions: {list(self.questions)}, --seeds: {self.seeds}; at least one of each is needed"
            )

    def scaled(self, free: Free, factor: float) -> Design:
        """The design with one of its sizes multiplied by a factor and rounded up."""
        if free == "questions":
            return replace(self, questions=tuple(math.ceil(n * factor) for n in self.questions))
        return replace(self, **{free: math.ceil(getattr(self, free) * factor)})


@dataclass(frozen=True)
class Components:
    """Standard deviations of the difference of two rows, in percentage points; InputError if out of range."""

    question_sd: float
    """Over the questions of one cell: of a question's part in the difference, averaged over samples."""
    sample_sd: float
    """Over pools of samples: of the part of one question."""
    model_sd: float
    """Over models: of the true difference, averaged over benchmarks."""
    shared: float = 0.0
    """Share of the question variance that all models have in common, in [0, 1]. It moves all models together, so more
    models do not average it out, and the test over models does not notice it."""

    def __post_init__(self) -> None:
        deviations = (self.question_sd, self.sample_sd, self.model_sd)
        if not all(0 <= value < math.inf for value in deviations) or not 0 <= self.shared <= 1:
            found = ", ".join(f"--{item.name.replace('_', '-')}: {getattr(self, item.name)}" for item in fields(self))
            raise InputError(f"{found}; allowed: finite numbers of at least 0, and --shared of at most 1")


TYPICAL = Components(question_sd=9, sample_sd=10, model_sd=2.7, shared=0.2)
"""Root mean squares (of ``shared`` the mean) over seven contrasts of V3 in the recorded cohort (``docs/power.md``)."""


def power(design: Design, components: Components, gap: float, alpha: float = 0.05, contrasts: int = 1) -> float:
    """Probability that the test, in either direction, is significant, so at gap 0 and ``shared`` 0 it is the level.

    The gap is the true difference of mean errors in percentage points, of either sign. ``alpha`` is the familywise
    level; each of the contrasts that are tested together is tested at alpha / contrasts. Without any variation the
    power is 1 for every gap but 0.

    The prediction assumes errors larger than their noise. With smaller errors the power is lower, because noise
    inflates the smaller of two errors more, so that the gap shrinks (``docs/power.md`` has the sizes).
    """
    # Variance of a model's measured difference: the part of the single model, and the part common to all models.
    size = sum(1 / n for n in design.questions) / len(design.questions) ** 2
    question, shared = components.question_sd**2, components.shared
    single = components.model_sd**2 + size * ((1 - shared) * question + components.sample_sd**2 / design.seeds)
    common = size * shared * question
    level = alpha / contrasts
    if single == 0:
        return 1.0 if gap or common else level
    # Equally likely values of the shared part.
    shifts = np.sqrt(common) * norm.ppf((np.arange(_NODES) + 0.5) / _NODES) if common else np.zeros(1)
    degrees = design.models - 1
    limit = t.ppf(1 - level / 2, degrees)
    noncentrality = np.abs(gap + shifts) / np.sqrt(single / design.models)
    # scipy's series fail for large noncentralities: from 5 on the lower tail is below 1e-8, from 37 on the upper one 1.
    upper = nct.sf(limit, degrees, np.minimum(noncentrality, 37))
    lower = nct.cdf(-limit, degrees, np.minimum(noncentrality, 5))
    significant = np.where(noncentrality > 30 + limit, 1.0, upper + lower)
    return float(np.clip(significant, 0, 1).mean())


def required(
    design: Design,
    components: Components,
    gap: float,
    target_power: float = 0.8,
    free: Free = "models",
    alpha: float = 0.05,
    contrasts: int = 1,
) -> Design | None:
    """The smallest design with sufficient power, as of ``power``, if one of its sizes may grow; at least the given one.

    Questions grow by the same factor on all benchmarks. None if ``LARGEST`` times the size does not suffice: questions
    and seeds cannot replace models if the models differ.
    """

    def enough(factor: float) -> bool:
        return power(design.scaled(free, factor), components, gap, alpha, contrasts) >= target_power

    if enough(1):
        return design
    if not enough(LARGEST):
        return None
    high = next(2**i for i in itertools.count(1) if enough(2**i))
    low = high / 2
    while design.scaled(free, high) != design.scaled(free, low) and high - low > 1e-4 * high:
        middle = (low + high) / 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return design.scaled(free, high)


# ---- components of a study


def contribution(predicted: npt.ArrayLike, target: npt.ArrayLike) -> Floats:
    """Each question's part in the error of a cell, in percentage points, shape (questions, seeds); their mean is it.

    It is 100 mean_b sign(d_b) (predicted - target), of shares in [0, 1], shape (budgets, questions, seeds), where d_b
    is the difference of the means over questions and seeds. This is the error linearised at d_b. If d_b is within its
    noise of zero, the spread of the error is smaller.
    """
    gaps = np.asarray(predicted, float) - np.asarray(target, float)
    signs = np.sign(gaps.mean(axis=(1, 2), keepdims=True))
    return np.asarray(100 * (signs * gaps).mean(axis=0))


def row_contributions(rule: Rule, first: Row, second: Row) -> Contributions:
    """Each question's part in the error of one row, minus its part in that of another, by the first of their pools.

    The rule is on the sample view. A row that predicts a curve has such parts if the curve is a sum of others
    (``Curve.terms``). The cells are those of fitted models and benchmarks in which both rows are defined; each has one
    seed.
    """
    found = {}
    for model, benchmark in itertools.product(rule.plan.fitted_models, rule.plan.with_role("fitted")):
        ours, theirs = (_row_contribution(rule, row, model, benchmark) for row in (first, second))
        if ours is not None and theirs is not None:
            found[model, benchmark] = ours - theirs
    return found


def _row_contribution(rule: Rule, row: Row, model: str, benchmark: str) -> Floats | None:
    plan, rl = rule.plan, rule.view.cohort.rl(model, benchmark)
    prediction = attempt(row.predict, rule, At(model, benchmark, row.pools[0]))
    if isinstance(prediction, Reason) or rl is None or plan.default_policy not in rl.complete(plan.budgets):
        return None
    target = rl.block("P", [plan.default_policy], plan.budgets)[0]
    if isinstance(prediction, Curve):
        return contribution(_curve_parts(rule, prediction, benchmark)[:, :, None], target[:, :, None])
    base, counts = rule.view.cohort.base(model, benchmark), rule.view.base(model, benchmark)
    if base is None or counts is None:
        return None
    skip = prediction.skip
    counted = [i for i in range(len(plan.budgets)) if skip is None or not skip[i, 0]]
    chosen = [(counts.policies[prediction.policy[i, 0]], plan.budgets[prediction.budget[i, 0]]) for i in counted]
    points = [base.points[point] for point in chosen]
    return contribution(base.credit["P"][points][:, :, None], target[counted][:, :, None])


def _curve_parts(rule: Rule, curve: Curve, benchmark: str) -> Floats:
    """Each question's part in a predicted curve, shape (budgets, questions)."""
    plan, landscapes = rule.plan, rule.view.cohort.landscapes
    blocks = [
        share * landscapes[name, benchmark].block("P", [plan.default_policy], plan.budgets)[0].astype(float)
        for share, name in curve.terms
    ]
    parts = np.sum(blocks, axis=0)
    mean = parts.mean(axis=1, keepdims=True)
    # A clipped prediction does not move with its questions.
    predicted: Floats = np.where((mean < 0) | (mean > 1), np.clip(mean, 0, 1), parts)
    return predicted


def landscape_contributions(
    folder: Path, plan: CohortPlan, options: BoptrOptions, first: str, second: str
) -> Contributions:
    """The parts of ``row_contributions``, with one seed, from the landscapes of a study, by the keys of two rows.

    The folder holds ``<checkpoint>/<benchmark>/{hits,points}.parquet`` for the cells of the plan that were sampled.
    Raises InputError if there is no such row, a landscape is damaged, the anchor has none, or there is no cell in which
    both rows predict question by question.
    """
    row_by_key = {row.key: row for row in ROWS}
    for name in (first, second):
        require_known(name, row_by_key, "row")
    rule = Rule(sample_view(read_cohort(folder, plan, estimator=options.estimator)), options)
    contributions = row_contributions(rule, row_by_key[first], row_by_key[second])
    if not contributions:
        raise InputError(
            f"{folder} has no cell in which both {first} and {second} predict question by question",
            "sample and score both sides of a pair on a benchmark with the role fitted, or name other rows",
        )
    return contributions


def estimate_components(contributions: Contributions) -> Components:
    """Components, by moments and at least 0, from each question's part in the difference of two rows.

    There are at least two questions, in the same order for all models. With a single seed all variance counts as
    question variance, so more seeds seem useless. With a single model ``model_sd`` and ``shared`` cannot be estimated;
    they are those of ``TYPICAL``. Raises ValueError if there are no cells.
    """
    cells = list(contributions.values())
    if not cells:
        raise ValueError("no cells to estimate from")
    sample = float(np.mean([cell.var(axis=1, ddof=1).mean() if cell.shape[1] > 1 else 0.0 for cell in cells]))
    means = {key: cell.mean(axis=1) for key, cell in contributions.items()}
    measured = float(np.mean([cell.var(ddof=1) for cell in means.values()]))
    question = max(measured - sample / cells[0].shape[1], 0.0)
    if len({model for model, _ in contributions}) == 1:
        return Components(math.sqrt(question), math.sqrt(sample), TYPICAL.model_sd, TYPICAL.shared)
    # Mean covariance over questions of two models on a benchmark.
    pairs = [(a, b) for a, b in itertools.combinations(means, 2) if a[1] == b[1] and len(means[a]) == len(means[b])]
    covariance = float(np.mean([np.cov(means[a], means[b])[0, 1] for a, b in pairs])) if pairs else 0.0
    shared = min(max(covariance / question, 0.0), 1.0) if question else 0.0
    model = _between_models(means, shared * question)
    return Components(math.sqrt(question), math.sqrt(sample), math.sqrt(model), shared)


def _between_models(means: Mapping[tuple[str, str], Floats], common: float) -> float:
    """Variance of the models' differences, minus the noise of their questions; at least 0."""
    values, noise = [], []
    for model in dict.fromkeys(model for model, _ in means):
        cells = [cell for (name, _), cell in means.items() if name == model]
        values.append(np.mean([cell.mean() for cell in cells]))
        noise.append(sum((cell.var(ddof=1) - common) / len(cell) for cell in cells) / len(cells) ** 2)
    return float(max(np.var(values, ddof=1) - np.mean(noise), 0.0))


# ---- report


def report(design: Design, components: Components, gap: float, alpha: float = 0.05, contrasts: int = 1) -> str:
    """Power of a design, and the sizes for 80% and 90%, as text; InputError if a number is out of its range."""
    for name, value, fits, allowed in (
        ("gap", gap, 0 < gap < math.inf, "a finite number > 0"),
        ("alpha", alpha, 0 < alpha < 1, "a number > 0, < 1"),
        ("contrasts", contrasts, contrasts >= 1, "a whole number >= 1"),
    ):
        if not fits:
            raise InputError(f"--{name}: {value}; allowed: {allowed}")
    sizes = "+".join(map(str, design.questions))
    lines = [
        f"gap {gap:g} pp, {design.models} models, {sizes} questions, {counted(design.seeds, 'seed')}, "
        f"alpha {alpha:g}/{contrasts}",
        ", ".join(f"{item.name} {getattr(components, item.name):.3g}" for item in fields(components)),
        f"power {power(design, components, gap, alpha, contrasts):.2f}",
        "",
        f"{'target':8}{'models':>10}  {'questions':<28}{'seeds':>8}",
    ]
    never: dict[str, list[str]] = {}
    for target in (0.8, 0.9):
        cells: dict[str, str] = dict.fromkeys(get_args(Free), "-")
        for free in get_args(Free):
            if (found := required(design, components, gap, target, free, alpha, contrasts)) is not None:
                size = getattr(found, free)
                cells[free] = str(size) if isinstance(size, int) else "+".join(map(str, size))
        lines.append(f"{target:<8.0%}{cells['models']:>10}  {cells['questions']:<28}{cells['seeds']:>8}")
        for name in [name for name, cell in cells.items() if cell == "-"]:
            never.setdefault(name, []).append(f"{target:.0%}")
    lines += [f"-: {LARGEST:,} times as many {name} do not reach {' or '.join(goals)}" for name, goals in never.items()]
    return "\n".join(lines)
