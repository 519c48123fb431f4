"""How large a study must be to tell two rows apart.

The model behind every number here (``docs/power.md``): each model's difference of two rows, averaged over benchmarks,
is the gap, plus the model's own deviation, plus noise of finitely many questions and samples. The test is the two-sided
paired t test over models at alpha / contrasts, which is Holm's correction at its strictest.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt
import polars as pl
from polars.exceptions import PolarsError
from scipy.stats import nct, norm, t

from searchlens.boptr.cohort import CohortPlan, read_cohort
from searchlens.boptr.options import BoptrOptions
from searchlens.boptr.rows import ROWS, At, Curve, Row
from searchlens.boptr.rule import Reason, Rule
from searchlens.boptr.view import sample_view
from searchlens.errors import InputError
from searchlens.uncertainty import Floats

Free = Literal["models", "questions", "seeds"]
Contributions = Mapping[tuple[str, str], Floats]
"""(model, benchmark) to the parts of single questions in the difference of two errors, shape (questions, seeds)."""

COLUMNS = ("model", "benchmark", "question", "seed", "difference")
LARGEST = 4096
"""No design is made larger than this many times."""
_NODES = 40


@dataclass(frozen=True)
class Design:
    """Size of a study.

    Attributes
    ----------
    questions : tuple of int
        Of each benchmark.
    models : int
        Base/RL pairs, at least 2.
    seeds : int
        Independent pools of samples, both sides, over which curves are averaged before errors are taken. A pool of
        twice as many samples as the largest budget is two.
    """

    questions: tuple[int, ...]
    models: int
    seeds: int = 1

    def __post_init__(self) -> None:
        """Refuse a study without variation between models, or without data."""
        if self.models < 2:
            raise InputError(f"models: {self.models}; a test over models needs at least 2")
        if not self.questions or min(self.questions) < 1 or self.seeds < 1:
            raise InputError(f"questions: {list(self.questions)}, seeds: {self.seeds}; at least one of each is needed")

    def scaled(self, free: Free, factor: float) -> Design:
        """The design with one of its sizes multiplied, rounded up."""
        if free == "questions":
            return replace(self, questions=tuple(int(np.ceil(n * factor)) for n in self.questions))
        if free == "models":
            return replace(self, models=int(np.ceil(self.models * factor)))
        return replace(self, seeds=int(np.ceil(self.seeds * factor)))


@dataclass(frozen=True)
class Components:
    """Where the difference of two rows varies, in percentage points.

    Attributes
    ----------
    question_sd : float
        Standard deviation over questions of one cell of the question's part in the difference, expected over samples.
    sample_sd : float
        The same between pools of samples for one question.
    model_sd : float
        Standard deviation over models of the true difference (mean over benchmarks).
    shared : float
        Share of the question variance that all models have in common, in [0, 1]: it moves all models together, so more
        models do not average it out and the test over models does not see it.
    """

    question_sd: float
    sample_sd: float
    model_sd: float
    shared: float = 0.0

    def __post_init__(self) -> None:
        """Refuse negative spreads."""
        if min(self.question_sd, self.sample_sd, self.model_sd) < 0 or not 0 <= self.shared <= 1:
            raise InputError(f"{self}: standard deviations are at least 0, the shared part is between 0 and 1")


TYPICAL = Components(question_sd=4.2, sample_sd=23.0, model_sd=0.9, shared=0.1)
"""Of four simulated studies of the paper's size, three pools of samples each; four contrasts (``docs/power.md``)."""


def power(design: Design, components: Components, gap: float, alpha: float = 0.05, contrasts: int = 1) -> float:
    """Probability that the test finds a true gap.

    Parameters
    ----------
    design : Design
    components : Components
    gap : float
        True difference of mean errors, percentage points, either sign.
    alpha : float
        Familywise level, in (0, 1).
    contrasts : int
        Tested together; each at alpha / contrasts.

    Returns
    -------
    float
        Either direction counts as found, so it is the level itself at gap 0 and ``shared`` 0. 1 for any gap without
        variation.

    Notes
    -----
    Errors are taken to exceed their noise. A study of smaller errors finds less than is predicted: noise inflates the
    smaller of two errors more, and the gap shrinks (``docs/power.md`` has the sizes).
    """
    own, common = _variances(design, components)
    level = alpha / contrasts
    if own == 0 and common == 0:
        return 1.0 if gap else level
    # Equally likely values of what all models share.
    shifts = np.sqrt(common) * norm.ppf((np.arange(_NODES) + 0.5) / _NODES) if common else np.zeros(1)
    if own == 0:
        return 1.0
    degrees = design.models - 1
    limit = t.ppf(1 - level / 2, degrees)
    far = np.abs(gap + shifts) / np.sqrt(own / design.models)
    # Further out the series of the noncentral t fail, and nothing is missed, or found with the wrong sign.
    near = np.minimum(far, 37)
    found = np.where(far > 30 + limit, 1.0, nct.sf(limit, degrees, near) + nct.cdf(-limit, degrees, np.minimum(far, 6)))
    return float(np.clip(found, 0, 1).mean())


def _variances(design: Design, components: Components) -> tuple[float, float]:
    """Variance of one model's measured difference that is its own, and that all models share."""
    size = sum(1 / n for n in design.questions) / len(design.questions) ** 2
    question, shared = components.question_sd**2, components.shared
    own = components.model_sd**2 + size * ((1 - shared) * question + components.sample_sd**2 / design.seeds)
    return own, size * shared * question


def required(
    design: Design,
    components: Components,
    gap: float,
    target_power: float = 0.8,
    free: Free = "models",
    alpha: float = 0.05,
    contrasts: int = 1,
) -> Design | None:
    """The smallest design of sufficient power when one size is free.

    Parameters
    ----------
    design : Design
        Its other sizes are kept. Questions of all benchmarks grow by one factor.
    components, gap, alpha, contrasts
        As in ``power``.
    target_power : float
        In (0, 1).
    free : {"models", "questions", "seeds"}

    Returns
    -------
    Design or None
        The given design if it suffices (it is never made smaller); None if ``LARGEST`` times as much does not suffice:
        questions and seeds cannot replace models that differ.
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
    """Each question's part in the error of a cell.

    Parameters
    ----------
    predicted, target : array_like, shape (budgets, questions, seeds)
        Readouts in [0, 1] of the predicted and of the RL curve.

    Returns
    -------
    ndarray, shape (questions, seeds)
        100 mean_b sign(d_b) (predicted - target), with d_b the difference of the means over questions and seeds; its
        mean is the error in percentage points. It is the error's linear part: where d_b is within its noise of zero,
        the true spread is smaller.
    """
    gaps = np.asarray(predicted, float) - np.asarray(target, float)
    signs = np.sign(gaps.mean(axis=(1, 2), keepdims=True))
    return np.asarray(100 * (signs * gaps).mean(axis=0))


def row_contributions(rule: Rule, first: Row, second: Row) -> pl.DataFrame:
    """Parts of single questions in the error of one row minus that of another.

    Parameters
    ----------
    rule : Rule
        On the sample view.
    first, second : Row
        With their own pool; rows that predict a curve instead of Base operating points have no parts of questions.

    Returns
    -------
    polars.DataFrame
        ``COLUMNS``: the cells of fitted models and benchmarks in which both rows are defined; ``seed`` is 0.
    """
    rows = []
    for model, benchmark in itertools.product(rule.plan.fitted_models, rule.plan.with_role("fitted")):
        parts = [_row_contribution(rule, row, model, benchmark) for row in (first, second)]
        if parts[0] is None or parts[1] is None:
            continue
        difference = (parts[0] - parts[1])[:, 0]
        cell = {"model": model, "benchmark": benchmark, "question": np.arange(len(difference)), "seed": 0}
        rows.append(pl.DataFrame({**cell, "difference": difference}))
    return pl.concat(rows) if rows else pl.DataFrame({name: [] for name in COLUMNS})


def _row_contribution(rule: Rule, row: Row, model: str, benchmark: str) -> Floats | None:
    cohort, plan = rule.view.cohort, rule.plan
    base, rl, readouts = cohort.base(model, benchmark), cohort.rl(model, benchmark), rule.view.base(model, benchmark)
    path = row.predict(rule, At(model, benchmark, row.pools[0]))
    if isinstance(path, Reason | Curve) or base is None or rl is None or readouts is None:
        return None
    kept = [i for i in range(len(plan.budgets)) if path.skip is None or not path.skip[i, 0]]
    points = [base.points[readouts.policies[path.policy[i, 0]], plan.budgets[path.budget[i, 0]]] for i in kept]
    target = rl.block("P", [plan.default_policy], [plan.budgets[i] for i in kept])[0]
    return contribution(base.credit["P"][points][:, :, None], target[:, :, None])


def landscape_contributions(
    folder: Path, plan: CohortPlan, options: BoptrOptions, first: str, second: str
) -> Contributions:
    """The parts of ``row_contributions``, from the landscapes of a study.

    Parameters
    ----------
    folder : Path
        ``<checkpoint>/<benchmark>/{hits,points}.parquet`` for what the plan names; what is absent is left out.
    plan : CohortPlan
    options : BoptrOptions
    first, second : str
        Keys of two rows.

    Returns
    -------
    Contributions
        One seed.

    Raises
    ------
    InputError
        No such row, a damaged landscape, an anchor without one, or no cell in which both rows choose Base operating
        points.
    """
    known = {row.key: row for row in ROWS}
    for name in (first, second):
        if name not in known:
            raise InputError(f"there is no row {name!r}; allowed: {', '.join(known)}")
    rule = Rule(sample_view(read_cohort(folder, plan)), options)
    rows = row_contributions(rule, known[first], known[second])
    if rows.is_empty():
        raise InputError(
            f"{folder} has no cell in which both {first} and {second} choose Base operating points",
            "sample and score both sides of a pair on a benchmark with the role fitted, or name other tiers",
        )
    return _cells(rows)


def read_contributions(path: Path) -> Contributions:
    """A parquet file with ``COLUMNS``; every question of a cell has the same seeds.

    Raises
    ------
    InputError
        The file cannot be read, lacks columns, or is not a full grid of questions and seeds in some cell.
    """
    try:
        rows = pl.read_parquet(path)
    except (OSError, PolarsError) as error:
        raise InputError(f"cannot read {path}: {error}") from None
    missing = [name for name in COLUMNS if name not in rows.columns]
    if missing:
        raise InputError(f"{path} lacks the columns {', '.join(missing)}", "docs/power.md describes the file")
    if rows.is_empty():
        raise InputError(f"{path} has no rows", "docs/power.md describes the file")
    for (model, benchmark), cell in rows.group_by("model", "benchmark"):
        seeds, questions = cell["seed"].n_unique(), cell["question"].n_unique()
        if seeds * questions != len(cell):
            raise InputError(
                f"{path}: {model}/{benchmark} has {len(cell)} rows, not {questions} questions x {seeds} seeds"
            )
    return _cells(rows)


def _cells(rows: pl.DataFrame) -> Contributions:
    """Rows with ``COLUMNS`` by cell, questions and seeds in order."""
    return {
        (str(model), str(benchmark)): cell["difference"]
        .cast(pl.Float64)
        .to_numpy()
        .reshape(-1, cell["seed"].n_unique())
        for (model, benchmark), cell in rows.sort(*COLUMNS[:4]).group_by("model", "benchmark", maintain_order=True)
    }


def estimate_components(contributions: Contributions) -> Components:
    """Components from the parts of single questions.

    Parameters
    ----------
    contributions : mapping
        (model, benchmark) to ndarray, shape (questions, seeds), at least 2 questions; questions of a benchmark in the
        same order for all models.

    Returns
    -------
    Components
        Moment estimates, floored at 0. With a single seed everything is counted as question variance, so that more
        seeds seem not to help. A single model does not tell ``model_sd`` and ``shared``: they are then ``TYPICAL``'s.

    Raises
    ------
    ValueError
        No cells.
    """
    cells = list(contributions.values())
    if not cells:
        raise ValueError("no cells to estimate from")
    sample = float(np.mean([cell.var(axis=1, ddof=1).mean() if cell.shape[1] > 1 else 0.0 for cell in cells]))
    means = {key: cell.mean(axis=1) for key, cell in contributions.items()}
    seen = float(np.mean([cell.var(ddof=1) for cell in means.values()]))
    question = max(seen - sample / cells[0].shape[1], 0.0)
    if len({model for model, _ in contributions}) == 1:
        return Components(math.sqrt(question), math.sqrt(sample), TYPICAL.model_sd, TYPICAL.shared)
    shared = min(max(_covariance(means) / question, 0.0), 1.0) if question else 0.0
    model = _between_models(means, shared * question)
    return Components(math.sqrt(question), math.sqrt(sample), math.sqrt(model), shared)


def _covariance(means: Mapping[tuple[str, str], Floats]) -> float:
    """Mean covariance over questions between the models of a benchmark; 0 without two models."""
    found = []
    for a, b in itertools.combinations(means, 2):
        if a[1] == b[1] and len(means[a]) == len(means[b]):
            found.append(np.cov(means[a], means[b])[0, 1])
    return float(np.mean(found)) if found else 0.0


def _between_models(means: Mapping[tuple[str, str], Floats], common: float) -> float:
    """Variance of the models' differences beyond the noise of their questions."""
    values, noise = [], []
    for model in dict.fromkeys(model for model, _ in means):
        own = [cell for (name, _), cell in means.items() if name == model]
        values.append(np.mean([cell.mean() for cell in own]))
        noise.append(sum((cell.var(ddof=1) - common) / len(cell) for cell in own) / len(own) ** 2)
    return float(max(np.var(values, ddof=1) - np.mean(noise), 0.0))


# ---- for people


def report(design: Design, components: Components, gap: float, alpha: float = 0.05, contrasts: int = 1) -> str:
    """Power of a design, and what would raise it to 80% and 90%."""
    sizes = "+".join(map(str, design.questions))
    lines = [
        f"gap {gap:g} pp, {design.models} models, {sizes} questions, {design.seeds} seed(s), "
        f"alpha {alpha:g}/{contrasts}",
        ", ".join(f"{item.name} {getattr(components, item.name):.3g}" for item in fields(components)),
        f"power {power(design, components, gap, alpha, contrasts):.2f}",
        "",
        f"{'target':8}{'models':>10}  {'questions':<28}{'seeds':>8}",
    ]
    for target in (0.8, 0.9):
        models = required(design, components, gap, target, "models", alpha, contrasts)
        questions = required(design, components, gap, target, "questions", alpha, contrasts)
        seeds = required(design, components, gap, target, "seeds", alpha, contrasts)
        more = "+".join(map(str, questions.questions)) if questions else "not enough"
        cells = (models.models if models else "never"), more, (seeds.seeds if seeds else "never")
        lines.append(f"{target:<8.0%}{cells[0]:>10}  {cells[1]:<28}{cells[2]:>8}")
    return "\n".join(lines)
