"""Cohorts of a few hand-made estimates."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import polars as pl

from searchlens.boptr.cohort import Benchmark, Cohort, CohortPlan, DenseLandscape, Model
from searchlens.boptr.rule import Rule
from searchlens.boptr.view import View, bootstrap_view, sample_view
from searchlens.config.boptr import BoptrOptions
from searchlens_lab.simulate import Design, paper_design

DEFAULT = "topp0.95_t1.0"
BUDGETS = (1, 2)
RATES = {"policy": pl.String(), "metric": pl.String(), "value": pl.Float64(), "lo": pl.Float64(), "hi": pl.Float64()}
Rate = tuple[float, float, float]


def hits(count: int, questions: int, first: int = 0) -> npt.NDArray[np.float32]:
    """``count`` solved questions in a row."""
    credit = np.zeros(questions, np.float32)
    credit[first : first + count] = 1
    return credit


def dense_landscape(
    P: Mapping[str, Sequence[npt.ArrayLike]],
    Q: Mapping[str, Sequence[npt.ArrayLike]] | None = None,
    T: Mapping[str, Sequence[npt.ArrayLike]] | None = None,
    tokens: float | Mapping[str, float] = 100.0,
    rates: Mapping[str, Rate] | None = None,
    budgets: Sequence[int] = BUDGETS,
) -> DenseLandscape:
    """Estimates of policies, a row of questions per budget; Q and T are P unless given; rates of the default policy."""
    points = {(name, n): i for i, (name, n) in enumerate((name, n) for name in P for n in budgets)}
    credit = {
        metric: np.array([row for name in P for row in (given or P)[name]], np.float32)
        for metric, given in (("P", P), ("Q", Q), ("T", T))
    }
    known = tokens if isinstance(tokens, Mapping) else dict.fromkeys(P, tokens)
    rows = [(DEFAULT, metric, *rate) for metric, rate in (rates or {}).items()]
    frame = pl.DataFrame(rows, RATES, orient="row")
    return DenseLandscape(np.arange(credit["P"].shape[1], dtype=np.uint32), points, credit, dict(known), frame)


def cohort(
    landscapes: Mapping[tuple[str, str], DenseLandscape],
    models: Mapping[str, Model] | None = None,
    benchmarks: Mapping[str, Benchmark] | None = None,
    budgets: Sequence[int] = BUDGETS,
) -> Cohort:
    """Model ``m`` (checkpoints ``base``, ``rl``) on ``math`` by default; the first of each is the anchor."""
    models = models or {"m": Model(base="base", rl="rl")}
    benchmarks = benchmarks or {"math": Benchmark(regime="math")}
    plan = CohortPlan(next(iter(models)), next(iter(benchmarks)), models, benchmarks, DEFAULT, budgets)
    return Cohort(plan, dict(landscapes), "first_k")


def lacking(cohort: Cohort, cells: Iterable[tuple[str, str]], names: Iterable[str]) -> Cohort:
    """The cohort without some policies in the landscapes (checkpoint, benchmark) of some cells."""
    gone = set(names)
    landscapes = dict(cohort.landscapes)
    for cell in cells:
        points = {(name, n): row for (name, n), row in landscapes[cell].points.items() if name not in gone}
        landscapes[cell] = replace(landscapes[cell], points=points)
    return Cohort(cohort.plan, landscapes)


def part_of_paper(
    models: Sequence[str], benchmarks: Sequence[str], policies: Sequence[str], questions: int, **more: object
) -> Design:
    """Part of the paper's simulated study; nothing is searched, extended, repeated or missing unless given."""
    whole = paper_design()
    chosen = {name: whole.models[name] for name in models}
    bases = {pair.base for pair in chosen.values()}
    asked = {name: replace(whole.benchmarks[name], questions=questions) for name in benchmarks}
    rest = {"extension": {}, "batches": {}, "searches": {}, "missing": frozenset()}
    parts = {"bases": {name: base for name, base in whole.bases.items() if name in bases}, "benchmarks": asked}
    return replace(whole, models=chosen, policies=tuple(policies), **parts, **rest | more)


def views(found: Cohort, draws: int = 2000, **options: object) -> tuple[Rule, View]:
    """The rule on the sample, and bootstrap draws."""
    return Rule(sample_view(found), BoptrOptions(estimator="first_k", **options)), bootstrap_view(found, draws, 42)  # type: ignore[arg-type]
