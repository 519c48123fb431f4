"""A cohort: the Base and RL landscapes of several models on several benchmarks.

``CohortPlan`` says which models and benchmarks there are: ``cohort.yaml`` next to the landscapes, or the configuration.
``Cohort`` has their landscapes. A cell that was not sampled has no entry; a number that would need it is undefined, and
a ``rule.Reason`` says why.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import polars as pl
import yaml
from pydantic import ConfigDict, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass as checked_dataclass

from searchlens.analysis.points import Landscape, placed
from searchlens.analysis.uncertainty import Floats
from searchlens.config.boptr import Estimator, Group, Regime, Role
from searchlens.config.limits import Quantity
from searchlens.errors import InputError
from searchlens.search import kinds
from searchlens.search.kinds import PolicyByName
from searchlens.search.policy import from_spec
from searchlens.store import files, yaml_text
from searchlens.store.frames import read_frame

Source = Literal["sampled", "imported", "recorded", "simulated"]
CREDITS = ("P", "Q", "T")
"""Metrics that BOPTR reads; ``column`` says in which estimator."""
PLAN_FILE = "cohort.yaml"
_DESCRIBED = "docs/columns.md describes it"

_STRICT = ConfigDict(extra="forbid", strict=True)


@checked_dataclass(frozen=True, config=_STRICT)
class Model:
    """One Base/RL pair."""

    base: str
    """Base checkpoint: the name of its landscape folder."""
    rl: str | None = None
    """RL checkpoint; None if the model has no RL side."""
    group: Group = "upper"
    """Upper and lower cohort. A new model is predicted with all parameters frozen; nothing is fitted on it."""
    parameters: Quantity | None = None
    """Number of parameters, for the size feature of V4."""
    rltrain: str | None = None
    """Benchmark of role ``rltrain`` that samples this model's RL-training split. None: the only benchmark of that role,
    if there is exactly one. Empty: the model has no such benchmark."""
    batches: Mapping[str, Mapping[Literal["base", "rl"], str]] = field(default_factory=dict)
    """Batch id to side (``base`` or ``rl``) to checkpoint: the same weights, sampled with another seed."""


@checked_dataclass(frozen=True, config=_STRICT)
class Benchmark:
    """One set of questions and its role in the analysis."""

    regime: Regime
    """g(d), assigned before anything is evaluated."""
    role: Role = "fitted"
    """Fitted benchmarks are those of the paper's main tables. Held-out ones are predicted with all parameters frozen.
    Descriptive ones have no RL side. ``rltrain`` gives features of Base (base@rltrain) and is not predicted."""
    title: str = ""
    """Name in tables and figures; empty: the key."""


@checked_dataclass(frozen=True, config=_STRICT)
class CohortPlan:
    """The models and benchmarks of a cohort; refused if the anchor is no fitted cell or the budgets are not 1, 2, 4,
    ...
    """

    anchor_model: str
    anchor_benchmark: str
    """``anchor_model``, ``anchor_benchmark``: the cell on which the rule was found."""
    models: Mapping[str, Model]
    benchmarks: Mapping[str, Benchmark]
    """``models``, ``benchmarks``: in the order of tables."""
    default_policy: str = "topp0.95_t1.0"
    """pi_0 of the RL target curve."""
    budgets: tuple[int, ...] = (1, 2, 4, 8, 16)
    """B: powers of two from 1."""
    source: Source = "sampled"
    """Where the samples come from. Tables and figures print it."""
    policies: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Entries of the configuration's section ``policies``, for names that do not spell their policy. Without an entry
    such a name counts as a search, by the controller with which it begins (``search.kinds.controller``)."""
    sources: Mapping[str, Source] = field(default_factory=dict)
    """``source`` by benchmark, where it differs; the least direct one of the models."""

    def __post_init__(self) -> None:
        _require(self.anchor_model, self.fitted_models, "anchor_model", "the upper and lower models")
        _require(self.anchor_benchmark, self.with_role("fitted"), "anchor_benchmark", "the fitted benchmarks")
        for name, model in self.models.items():
            if model.rltrain:
                _require(model.rltrain, self.with_role("rltrain"), f"models.{name}.rltrain", "benchmarks of that role")
        if list(self.budgets) != [2**i for i in range(len(self.budgets))] or len(self.budgets) < 2:
            raise InputError(
                f"budgets: {list(self.budgets)} are not the powers of two 1, 2, 4, ...",
                "BOPTR rounds to powers of two and needs at least 1 and 2",
            )

    @cached_property
    def configured(self) -> PolicyByName:
        """The policies of ``policies`` by name."""
        return kinds.from_specs(self.policies)

    def with_role(self, *roles: Role) -> list[str]:
        """Benchmarks of these roles, in order."""
        return [name for name, benchmark in self.benchmarks.items() if benchmark.role in roles]

    def in_group(self, *groups: Group) -> list[str]:
        """Models of these groups, in order."""
        return [name for name, model in self.models.items() if model.group in groups]

    def said_source(self, benchmarks: Iterable[str]) -> str:
        """Where samples on some benchmarks come from, such as ``from recorded samples``; empty if all were drawn."""
        source_of = {name: self.sources.get(name, self.source) for name in benchmarks}
        if len(set(source_of.values())) == 1:
            (source,) = set(source_of.values())
            return "" if source == "sampled" else f"from {source} samples"
        parts = [
            f"{', '.join(self.title(name) for name in source_of if source_of[name] == source)} from {source} samples"
            for source in dict.fromkeys(source for source in source_of.values() if source != "sampled")
        ]
        return "; ".join(parts)

    @property
    def cells(self) -> list[tuple[str, str]]:
        """(checkpoint, benchmark) of every cell that may have been sampled, batches included."""
        checkpoints = dict.fromkeys(
            name
            for model in self.models.values()
            for name in (model.base, model.rl, *(c for batch in model.batches.values() for c in batch.values()))
            if name
        )
        return [(checkpoint, benchmark) for checkpoint in checkpoints for benchmark in self.benchmarks]

    @property
    def fitted_models(self) -> list[str]:
        """Models that parameters are fitted on: all but the new ones."""
        return self.in_group("upper", "lower")

    def title(self, benchmark: str) -> str:
        """Name of a benchmark in tables and figures."""
        return self.benchmarks[benchmark].title or benchmark

    def rltrain(self, model: str) -> str | None:
        """The benchmark that samples the model's RL-training split; None if there is none, or no single one."""
        name, splits = self.models[model].rltrain, self.with_role("rltrain")
        if name is None and len(splits) == 1:
            return splits[0]
        return name or None


def _require(name: str, allowed: Sequence[str], key: str, what: str) -> None:
    if name not in allowed:
        raise InputError(f"{key}: {name!r} is not among {what}; there are {', '.join(allowed) or '(none)'}")


def read_plan(path: Path) -> CohortPlan:
    """The plan in a YAML file; an InputError names every mistake in it."""
    try:
        plan = TypeAdapter(CohortPlan).validate_json(json.dumps(yaml_text.read(path), default=str))
        for name, spec in plan.policies.items():
            from_spec(name, spec)
        return plan
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}", _DESCRIBED) from None
    except InputError as error:
        raise InputError(error.message, error.hint or _DESCRIBED) from None
    except ValidationError as error:
        lines = [
            f"  {'.'.join(map(str, item['loc']))}: {item['msg']}, found {item['input']!r}" for item in error.errors()
        ]
        raise InputError(f"{path}, mistakes: {len(lines)}\n" + "\n".join(lines), _DESCRIBED) from None
    except (RecursionError, TypeError, ValueError) as error:
        raise InputError(f"{path} has values that JSON has not: {error}", _DESCRIBED) from None


def write_plan(plan: CohortPlan, path: Path) -> None:
    """Write the plan as YAML that ``read_plan`` reads back."""
    content = {**asdict(plan), "budgets": list(plan.budgets)}  # type: ignore[call-overload]
    if not plan.policies:
        del content["policies"]
    files.replace_text(path, yaml.safe_dump(content, sort_keys=False))


@dataclass(frozen=True, eq=False)
class DenseLandscape:
    """The landscape of one checkpoint on one benchmark, as arrays."""

    questions: npt.NDArray[np.uint32]
    """Increasing. Shape (questions,)."""
    points: dict[tuple[str, int], int]
    """(policy, budget) to its row in ``credit``, policies in the order of the pool."""
    credit: dict[str, npt.NDArray[np.float32]]
    """``P``, ``Q``, ``T``: arrays of float32, shape (points, questions), in [0, 1]: P and Q by the estimator of the
    cohort, T always in its first-k estimate. T is NaN where token counts are unknown."""
    tokens: dict[str, float]
    """Policy to mean generated tokens per sample; NaN if unknown."""
    rates: pl.DataFrame
    """policy, metric (``valid`` or ``stopped``), value, lo, hi: expected rates per sample with 95% intervals."""
    health: pl.DataFrame | None = None
    """``store.columns.HEALTH``; None if it was not recorded."""
    votes_fall: bool = False
    """Whether ``votes_fall`` is true of the first-k estimate of Q."""

    @cached_property
    def policies(self) -> tuple[str, ...]:
        """All policies, in order."""
        return tuple(dict.fromkeys(policy for policy, _ in self.points))

    def complete(self, budgets: Sequence[int]) -> tuple[str, ...]:
        """Policies that were sampled at every one of these budgets, in order."""
        return tuple(policy for policy in self.policies if all((policy, n) in self.points for n in budgets))

    def block(self, metric: str, names: Sequence[str], budgets: Sequence[int]) -> npt.NDArray[np.float32]:
        """Estimates of policies at budgets, shape (policies, budgets, questions); a KeyError if one was not sampled."""
        rows = [[self.points[name, n] for n in budgets] for name in names]
        estimates: npt.NDArray[np.float32] = self.credit[metric][np.array(rows, int).reshape(len(names), len(budgets))]
        return estimates

    def values(self, metric: str, policy: str, budgets: Sequence[int]) -> Floats:
        """Means over questions of one policy at budgets."""
        mean: Floats = self.block(metric, [policy], budgets)[0].mean(axis=1, dtype=float)
        return mean


def column(metric: str, estimator: Estimator) -> str:
    """The column of ``hits.parquet`` that holds a metric of ``CREDITS``."""
    return f"{metric}_unbiased" if estimator == "unbiased" and metric != "T" else metric


def votes_fall(points: Mapping[tuple[str, int], int], Q: npt.NDArray[np.float32]) -> bool:
    """Whether any policy loses any question with a larger budget: a vote has overruled a right answer.

    ``points`` has budgets of a policy increasing, and ``Q``, shape (points, questions), holds first-k estimates: an
    expectation may fall or not, with a vote and without.
    """
    same_policy = np.array([before == after for (before, _), (after, _) in pairwise(points)], bool)
    return bool((np.diff(Q, axis=0)[same_policy] < 0).any())


def dense_landscape(landscape: Landscape, estimator: Estimator = "unbiased") -> DenseLandscape:
    """A landscape as arrays, with P and Q by an estimator; refused if a question or an unbiased vote is missing.

    A point without an expectation, such as a search at a budget that is no whole number of runs, is left out under
    ``unbiased``.
    """
    hits, solved = landscape.hits, column("P", estimator)
    if estimator == "unbiased":
        hits = hits.filter(pl.col(solved).is_not_null().any().over("policy", "budget"))
    questions = np.unique(hits["question"].to_numpy())
    if not len(questions):
        raise InputError("a landscape has no estimates", "make it again from scores that have rows")
    listed, row = placed(hits)
    points = {point: i for i, point in enumerate(listed)}
    place = np.searchsorted(questions, hits["question"].to_numpy())

    def dense(name: str) -> npt.NDArray[np.float32]:
        credit = np.full((len(points), len(questions)), np.nan, np.float32)
        credit[row, place] = hits[name].cast(pl.Float32).to_numpy()
        return credit

    credit = {metric: dense(column(metric, estimator)) for metric in CREDITS}
    for (name, n), at in points.items():
        if missing := int(np.isnan(credit["P"][at]).sum()):
            raise InputError(
                f"landscape: {name!r} at budget {n} has {len(questions) - missing} of {len(questions)} questions",
                "make it again from its scores",
            )
        if estimator == "unbiased" and np.isnan(credit["Q"][at]).any():
            raise InputError(
                f"landscape: {name!r} at budget {n} has no expected self-consistency",
                "pools of more than 512 samples have none: sample fewer, or set boptr.estimator: first_k",
            )
    # Tokens and rates per sample are read at the smallest budget of each policy.
    names = list(dict.fromkeys(policy for policy, _ in points))
    expected = landscape.points.filter(pl.col("estimator") == "unbiased", pl.col("policy").is_in(names))
    smallest = expected.filter(pl.col("budget") == pl.col("budget").min().over("policy"))
    cost = smallest.filter(pl.col("metric") == "C").select("policy", pl.col("value") / pl.col("budget"))
    tokens = {name: float("nan") if value is None else value for name, value in cost.iter_rows()}
    rates = smallest.filter(pl.col("metric").is_in(["valid", "stopped"])).select(
        "policy", "metric", "value", "lo", "hi"
    )
    return DenseLandscape(questions, points, credit, tokens, rates, votes_fall=votes_fall(points, dense("Q")))


@dataclass(frozen=True, eq=False)
class Cohort:
    """The landscapes of a cohort; refused without the anchor, or if checkpoints differ in a benchmark's questions."""

    plan: CohortPlan
    landscapes: dict[tuple[str, str], DenseLandscape]
    """(checkpoint, benchmark) to its landscape, for everything that was sampled."""
    estimator: Estimator = "unbiased"
    """Of P and Q in all landscapes."""

    def __post_init__(self) -> None:
        plan = self.plan
        model = plan.models[plan.anchor_model]
        for role, checkpoint in (("Base", model.base), ("RL", model.rl)):
            if (checkpoint, plan.anchor_benchmark) not in self.landscapes:
                raise InputError(
                    f"the anchor {plan.anchor_model}/{plan.anchor_benchmark} has no {role} landscape ({checkpoint})",
                    "the rule is fitted on the anchor: sample it, or name another anchor",
                )
        first: dict[str, tuple[str, DenseLandscape]] = {}
        for (checkpoint, benchmark), landscape in self.landscapes.items():
            other, reference = first.setdefault(benchmark, (checkpoint, landscape))
            if not np.array_equal(landscape.questions, reference.questions):
                raise InputError(
                    f"{other}/{benchmark} has {len(reference.questions)} questions, {checkpoint}/{benchmark} has"
                    f" {len(landscape.questions)}, and they are not the same ones",
                    "score every checkpoint on the same questions",
                )

    @cached_property
    def questions(self) -> dict[str, int]:
        """Number of questions of every benchmark that was sampled."""
        return {benchmark: len(landscape.questions) for (_, benchmark), landscape in self.landscapes.items()}

    def base(self, model: str, benchmark: str) -> DenseLandscape | None:
        """Base landscape of a cell; None if it was not sampled."""
        return self.landscapes.get((self.plan.models[model].base, benchmark))

    def rl(self, model: str, benchmark: str) -> DenseLandscape | None:
        """RL landscape of a cell; None if it was not sampled."""
        checkpoint = self.plan.models[model].rl
        return self.landscapes.get((checkpoint, benchmark)) if checkpoint else None


def read_cohort(folder: Path, plan: CohortPlan, estimator: Estimator = "unbiased") -> Cohort:
    """Read ``<folder>/<checkpoint>/<benchmark>/{hits,points}.parquet`` for everything that the plan names.

    A cell without files is left out, the anchor excepted. Damaged files are an InputError.
    """
    landscapes = {}
    for checkpoint, benchmark in plan.cells:
        place = folder / checkpoint / benchmark
        points, hits, health = (place / f"{name}.parquet" for name in ("points", "hits", "health"))
        if not (points.exists() or hits.exists()):
            continue
        try:
            read = dense_landscape(Landscape(*(read_frame(part, "landscape") for part in (points, hits))), estimator)
            counts = read_frame(health, "landscape") if health.exists() else None
        except InputError as error:
            hint = "make it again from its scores"
            raise InputError(f"landscape {place} cannot be read: {error.message}", hint) from None
        landscapes[checkpoint, benchmark] = replace(read, health=counts)
    return Cohort(plan, landscapes, estimator)
