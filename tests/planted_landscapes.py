"""Cohorts whose counts of solved questions are written down, so that every answer is known by hand."""

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
import polars as pl

from searchlens.boptr.cohort import Benchmark, Cohort, CohortPlan, DenseLandscape, Model
from searchlens.boptr.fit import Ints, round_position
from searchlens.boptr.rule import Rule
from searchlens.boptr.view import View, bootstrap_view, sample_view
from searchlens.config.boptr import BoptrOptions

DEFAULT = "topp0.95_t1.0"
BUDGETS = (1, 2, 4, 8, 16)
QUESTIONS = 60
NO_RATES = pl.DataFrame(schema={"policy": str, "metric": str, "value": float, "lo": float, "hi": float})

Counts = Mapping[str, Sequence[int]]


def dense_landscape(counts: Counts, questions: int = QUESTIONS) -> DenseLandscape:
    """Counts of solved questions by policy at 1, 2, 4, ...: always the first questions, so that curves are nested."""
    points = {(name, 2**i): 0 for name, curve in counts.items() for i in range(len(curve))}
    points = {point: row for row, point in enumerate(points)}
    solved = [count for curve in counts.values() for count in curve]
    credit = (np.arange(questions) < np.array(solved)[:, None]).astype(np.float32)
    tokens = dict.fromkeys(counts, 100.0)
    return DenseLandscape(np.arange(questions, dtype=np.uint32), points, dict.fromkeys("PQT", credit), tokens, NO_RATES)


def cohort(
    cells: Mapping[tuple[str, str], tuple[Counts, Sequence[int] | None]],
    benchmarks: Mapping[str, Benchmark],
    new: Sequence[str] = (),
    questions: int = QUESTIONS,
) -> Cohort:
    """Cells (model, benchmark) with Base counts by policy and the RL default curve; the first one is the anchor."""
    names = dict.fromkeys(model for model, _ in cells)
    models = {m: Model(base=f"{m}-base", rl=f"{m}-rl", group="new" if m in new else "upper") for m in names}
    landscapes = {}
    for (model, benchmark), (base, rl) in cells.items():
        landscapes[f"{model}-base", benchmark] = dense_landscape(base, questions)
        if rl is not None:
            landscapes[f"{model}-rl", benchmark] = dense_landscape({DEFAULT: rl}, questions)
    anchor_model, anchor_benchmark = next(iter(cells))
    plan = CohortPlan(anchor_model, anchor_benchmark, models, benchmarks, DEFAULT, BUDGETS)
    return Cohort(plan, landscapes, "first_k")


def views(found: Cohort, draws: int = 200, **options: object) -> tuple[Rule, View]:
    """The rule on the sample, and bootstrap draws."""
    chosen = BoptrOptions(draws=draws, estimator="first_k", **options)  # type: ignore[arg-type]
    return Rule(sample_view(found), chosen), bootstrap_view(found, draws, chosen.seed)


def along(curve: Sequence[int], path: Sequence[int]) -> list[int]:
    """The curve read at budgets ``path``."""
    return [curve[n.bit_length() - 1] for n in path]


# ---- N-hat(b) of the paper's rule at one scale and exponent, as budgets


def round_budget(x: npt.ArrayLike, budgets: Sequence[int]) -> Ints:
    """round_B: the allowed budget nearest to ``x`` > 0."""
    return np.asarray(budgets)[round_position(np.log2(np.asarray(x, float)), len(budgets))]


def budget_path(alpha: float, beta: float, budgets: Sequence[int]) -> tuple[int, ...]:
    """N-hat(b) for every b in B."""
    path = round_budget(alpha * np.asarray(budgets, float) ** beta, budgets)
    return tuple(int(n) for n in path)
