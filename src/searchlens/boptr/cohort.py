"""A cohort: Base and RL landscapes of several models on several benchmarks, and what each of them stands for.

``CohortPlan`` says which models and benchmarks there are (``cohort.yaml`` beside the landscapes, or the configuration);
``Cohort`` holds their readouts. A model, a benchmark or a cell that is absent is absent here too; what that leaves
undefined is said by a ``Reason`` wherever it would have been used.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
import numpy.typing as npt
import polars as pl
import yaml
from polars.exceptions import PolarsError
from pydantic import ConfigDict, Field, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass as checked_dataclass

from searchlens.boptr.options import Group, Regime, Role
from searchlens.errors import InputError
from searchlens.landscape.points import Landscape
from searchlens.store import files
from searchlens.uncertainty import Floats

Source = Literal["sampled", "imported", "recorded", "simulated"]
CREDITS = ("P", "Q", "T")
"""Prefix readouts that BOPTR uses."""
PLAN_FILE = "cohort.yaml"
_DESCRIBED = "docs/data.md describes it"

_STRICT = ConfigDict(extra="forbid", strict=True)


@checked_dataclass(frozen=True, config=_STRICT)
class Model:
    """One Base/RL pair.

    Attributes
    ----------
    base : str
        Base checkpoint: the name of its landscape folder.
    rl : str or None
        RL checkpoint; None for a model of which only Base is known.
    group : {"upper", "lower", "new"}
        Upper and lower cohort; a new model is predicted with everything frozen and fits nothing.
    parameters : float or None
        Number of parameters, for the size feature of V4.
    rltrain : str or None
        Benchmark that samples this model's own RL-training split (role ``rltrain``); None: the only such benchmark;
        empty: none, where a study leaves it out.
    batches : mapping
        Batch id to role (``base`` or ``rl``) to checkpoint: the same weights sampled again with another seed.
    """

    base: str
    rl: str | None = None
    group: Group = "upper"
    parameters: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    rltrain: str | None = None
    batches: Mapping[str, Mapping[Literal["base", "rl"], str]] = field(default_factory=dict)


@checked_dataclass(frozen=True, config=_STRICT)
class Benchmark:
    """One set of questions and its part in the analysis.

    Attributes
    ----------
    regime : {"math", "nonmath", "floor"}
        g(d), assigned before anything is evaluated.
    role : {"fitted", "held_out", "descriptive", "rltrain"}
        Fitted benchmarks are those of the paper's main tables; held-out ones are predicted with everything frozen;
        descriptive ones have no RL side; ``rltrain`` gives base@rltrain features and is predicted by nobody.
    title : str
        Name in tables and figures; the key when empty.
    """

    regime: Regime
    role: Role = "fitted"
    title: str = ""


@checked_dataclass(frozen=True, config=_STRICT)
class CohortPlan:
    """Which models and benchmarks make up a cohort.

    Attributes
    ----------
    anchor_model, anchor_benchmark : str
        The cell on which the rule was found.
    models, benchmarks : mapping
        In the order of tables.
    default_policy : str
        pi_0 of the RL target curve.
    budgets : tuple of int
        B: powers of two from 1.
    source : {"sampled", "imported", "recorded", "simulated"}
        Where the samples come from, the least direct source of all; said in figures and tables.
    """

    anchor_model: str
    anchor_benchmark: str
    models: Mapping[str, Model]
    benchmarks: Mapping[str, Benchmark]
    default_policy: str = "topp0.95_t1.0"
    budgets: tuple[int, ...] = (1, 2, 4, 8, 16)
    source: Source = "sampled"

    def __post_init__(self) -> None:
        """Refuse a cohort without an anchor to fit on, unknown splits, and budgets that are no doubling sequence."""
        _require(self.anchor_model, self.fitted_models, "anchor_model", "the models that fit")
        _require(self.anchor_benchmark, self.with_role("fitted"), "anchor_benchmark", "the fitted benchmarks")
        for name, model in self.models.items():
            if model.rltrain:
                _require(model.rltrain, self.with_role("rltrain"), f"models.{name}.rltrain", "benchmarks of that role")
        if list(self.budgets) != [2**i for i in range(len(self.budgets))] or len(self.budgets) < 2:
            raise InputError(f"budgets: {list(self.budgets)}; BOPTR rounds in powers of two: 1, 2, 4, ...")

    def with_role(self, *roles: Role) -> list[str]:
        """Benchmarks of these roles, in order."""
        return [name for name, benchmark in self.benchmarks.items() if benchmark.role in roles]

    def in_group(self, *groups: Group) -> list[str]:
        """Models of these groups, in order."""
        return [name for name, model in self.models.items() if model.group in groups]

    @property
    def fitted_models(self) -> list[str]:
        """Models that may fit parameters: all but the new ones."""
        return self.in_group("upper", "lower")

    def title(self, benchmark: str) -> str:
        """Name of a benchmark for people."""
        return self.benchmarks[benchmark].title or benchmark

    def rltrain(self, model: str) -> str | None:
        """The benchmark that samples the model's own RL-training split."""
        own, known = self.models[model].rltrain, self.with_role("rltrain")
        if own is None and len(known) == 1:
            return known[0]
        return own or None


def _require(name: str, known: Sequence[str], key: str, what: str) -> None:
    if name not in known:
        raise InputError(f"{key}: {name!r} is not among {what}; there are {', '.join(known) or '(none)'}")


def read_plan(path: Path) -> CohortPlan:
    """The plan in a YAML file.

    Raises
    ------
    InputError
        The file cannot be read, has unknown or missing keys or values of the wrong type, or lacks its anchor.
    """
    try:
        content = yaml.safe_load(path.read_text())
        return TypeAdapter(CohortPlan).validate_json(json.dumps(content, default=str))
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}", _DESCRIBED) from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise InputError(f"{path} is not YAML: {error}", _DESCRIBED) from None
    except InputError as error:
        raise InputError(f"{path}: {error.message}", _DESCRIBED) from None
    except ValidationError as error:
        lines = [
            f"  {'.'.join(map(str, item['loc']))}: {item['msg']}, found {item['input']!r}" for item in error.errors()
        ]
        raise InputError(f"{path}, mistakes: {len(lines)}\n" + "\n".join(lines), _DESCRIBED) from None


def write_plan(plan: CohortPlan, path: Path) -> None:
    """Write the plan as YAML that ``read_plan`` reads back."""
    content = {**asdict(plan), "budgets": list(plan.budgets)}  # type: ignore[call-overload]
    files.replace_text(path, yaml.safe_dump(content, sort_keys=False))


@dataclass(frozen=True, eq=False)
class DenseLandscape:
    """What one checkpoint reaches on one benchmark.

    Attributes
    ----------
    questions : ndarray of uint32, shape (questions,)
        Increasing.
    points : dict
        (policy, budget) to its row in ``credit``, policies in the order of the pool.
    credit : dict
        ``P``, ``Q``, ``T``: arrays of float32, shape (points, questions), prefix readouts in [0, 1]; T may be NaN where
        token counts are unknown.
    tokens : dict
        Policy to mean generated tokens per sample; NaN where unknown.
    rates : polars.DataFrame
        policy, metric (``valid`` or ``stopped``), value, lo, hi: expected rates per sample with 95% intervals.
    """

    questions: npt.NDArray[np.uint32]
    points: dict[tuple[str, int], int]
    credit: dict[str, npt.NDArray[np.float32]]
    tokens: dict[str, float]
    rates: pl.DataFrame

    @cached_property
    def policies(self) -> tuple[str, ...]:
        """All policies, in order."""
        return tuple(dict.fromkeys(policy for policy, _ in self.points))

    def complete(self, budgets: Sequence[int]) -> tuple[str, ...]:
        """Policies that were sampled at every one of these budgets, in order."""
        return tuple(policy for policy in self.policies if all((policy, n) in self.points for n in budgets))

    def block(self, metric: str, names: Sequence[str], budgets: Sequence[int]) -> npt.NDArray[np.float32]:
        """Readouts of policies at budgets, shape (policies, budgets, questions).

        Raises
        ------
        KeyError
            A point that was not sampled.
        """
        rows = [[self.points[name, n] for n in budgets] for name in names]
        chosen: npt.NDArray[np.float32] = self.credit[metric][np.array(rows, int).reshape(len(names), len(budgets))]
        return chosen

    def values(self, metric: str, policy: str, budgets: Sequence[int]) -> Floats:
        """Means over questions of one policy at budgets."""
        mean: Floats = self.block(metric, [policy], budgets)[0].mean(axis=1, dtype=float)
        return mean


def dense_landscape(landscape: Landscape, without: Sequence[str] = ()) -> DenseLandscape:
    """The readouts of a landscape as dense arrays, references such as greedy left out.

    Raises
    ------
    InputError
        There are no readouts, or an operating point lacks a question that others have.
    """
    hits = landscape.hits.filter(~pl.col("policy").is_in(list(without)))
    names = hits["policy"].unique(maintain_order=True).to_list()
    policy = hits["policy"].cast(pl.Enum(names)).to_physical().to_numpy().astype(np.int64)
    budgets, budget = np.unique(hits["budget"].to_numpy(), return_inverse=True)
    codes, point = np.unique(policy * len(budgets) + budget, return_inverse=True)
    questions = np.unique(hits["question"].to_numpy())
    if not len(questions):
        raise InputError("a landscape has no readouts", "was it made from scores without rows?")
    column = np.searchsorted(questions, hits["question"].to_numpy())
    credit = {}
    for metric in CREDITS:
        credit[metric] = np.full((len(codes), len(questions)), np.nan, np.float32)
        credit[metric][point, column] = hits[metric].cast(pl.Float32).to_numpy()
    points = {(names[c // len(budgets)], int(budgets[c % len(budgets)])): i for i, c in enumerate(codes.tolist())}
    for (name, n), row in points.items():
        if lacking := int(np.isnan(credit["P"][row]).sum()):
            raise InputError(
                f"landscape: {name!r} at budget {n} has {len(questions) - lacking} of {len(questions)} questions",
                "make it again from its scores",
            )
    rows = landscape.points.filter(pl.col("readout") == "expected", pl.col("policy").is_in(names))
    smallest = rows.filter(pl.col("budget") == pl.col("budget").min().over("policy"))
    cost = smallest.filter(pl.col("metric") == "C").select("policy", pl.col("value") / pl.col("budget"))
    kept = smallest.filter(pl.col("metric").is_in(["valid", "stopped"]))
    rates = kept.select("policy", "metric", "value", "lo", "hi")
    tokens = {name: float("nan") if value is None else value for name, value in cost.iter_rows()}
    return DenseLandscape(questions, points, credit, tokens, rates)


@dataclass(frozen=True, eq=False)
class Cohort:
    """The landscapes of a cohort.

    Attributes
    ----------
    plan : CohortPlan
    landscapes : dict
        (checkpoint, benchmark) to its readouts; absent where nothing was sampled.
    """

    plan: CohortPlan
    landscapes: dict[tuple[str, str], DenseLandscape]

    def __post_init__(self) -> None:
        """Refuse a cohort whose anchor was not sampled, or with two sets of questions for one benchmark."""
        plan = self.plan
        model = plan.models[plan.anchor_model]
        for role, checkpoint in (("Base", model.base), ("RL", model.rl)):
            if (checkpoint, plan.anchor_benchmark) not in self.landscapes:
                raise InputError(
                    f"the anchor {plan.anchor_model}/{plan.anchor_benchmark} has no {role} landscape ({checkpoint})",
                    "every rule starts from the anchor: sample it, or name another anchor",
                )
        first: dict[str, tuple[str, DenseLandscape]] = {}
        for (checkpoint, benchmark), found in self.landscapes.items():
            other, reference = first.setdefault(benchmark, (checkpoint, found))
            if not np.array_equal(found.questions, reference.questions):
                raise InputError(
                    f"{other}/{benchmark} has {len(reference.questions)} questions, {checkpoint}/{benchmark} has"
                    f" {len(found.questions)}, and they are not the same ones",
                    "score every checkpoint on the same questions",
                )

    def base(self, model: str, benchmark: str) -> DenseLandscape | None:
        """Base readouts of a cell, or None."""
        return self.landscapes.get((self.plan.models[model].base, benchmark))

    def rl(self, model: str, benchmark: str) -> DenseLandscape | None:
        """RL readouts of a cell, or None."""
        checkpoint = self.plan.models[model].rl
        return self.landscapes.get((checkpoint, benchmark)) if checkpoint else None


def read_cohort(folder: Path, plan: CohortPlan, without: Sequence[str] = ()) -> Cohort:
    """Read ``<folder>/<checkpoint>/<benchmark>/{hits,points}.parquet`` for everything that the plan names.

    Parameters
    ----------
    folder : Path
        A landscape folder.
    plan : CohortPlan
    without : sequence of str
        Policies that are references, not part of any pool.

    Raises
    ------
    InputError
        A damaged file (named), or an anchor that was not sampled. Other absent cells are simply absent.
    """
    checkpoints = dict.fromkeys(
        name
        for model in plan.models.values()
        for name in (model.base, model.rl, *(c for batch in model.batches.values() for c in batch.values()))
        if name
    )
    landscapes = {}
    for checkpoint in checkpoints:
        for benchmark in plan.benchmarks:
            place = folder / checkpoint / benchmark
            if any((place / f"{name}.parquet").exists() for name in ("hits", "points")):
                landscapes[checkpoint, benchmark] = _read(place, without)
    return Cohort(plan, landscapes)


def _read(place: Path, without: Sequence[str]) -> DenseLandscape:
    try:
        return dense_landscape(
            Landscape(*(pl.read_parquet(place / f"{name}.parquet") for name in ("points", "hits"))), without
        )
    except (PolarsError, OSError, InputError) as error:
        reason = error.message if isinstance(error, InputError) else str(error).splitlines()[0]
        raise InputError(f"landscape {place} cannot be read: {reason}", "make it again from its scores") from None
