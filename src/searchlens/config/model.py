"""The whole configuration."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

from pydantic import Field, create_model

from searchlens.benchmarks.prompts import PromptFamily
from searchlens.boptr.options import BoptrOptions
from searchlens.config.base import Name, Section
from searchlens.config.benchmarks import BenchmarkSpec
from searchlens.config.checkpoints import CheckpointSpec, is_studied
from searchlens.config.cost import CostSpec
from searchlens.config.pairs import PairSpec
from searchlens.config.policies import PolicySpec
from searchlens.config.study import StudySpec
from searchlens.health.options import HealthOptions
from searchlens.landscape.options import LandscapeSection
from searchlens.project import ZOO_PREFIX
from searchlens.project.addons import addons
from searchlens.readings.options import ReadingsSection
from searchlens.recovery.options import RecoverySection
from searchlens.schemas.options import Nonnegative, Positive, Proportion, Quantity, Seed


class Config(Section):
    """The whole configuration: the files under ``config/`` merged, later ones over earlier ones."""

    results: str = "results"
    """Folder for everything a run writes."""
    seed: Seed = 42
    """Seed of the sample streams. Part of the generation id."""
    samples: Positive = 16
    """Samples per question: the largest budget. A larger number extends the streams; samples that exist are kept."""
    budgets: list[Positive] = [1, 2, 4, 8, 16]
    """B, the allowed budgets, in increasing order."""
    default_policy: str | None = "topp0.95_t1.0"
    """pi_0, the policy of the RL target curve. null, for imported samples: a policy that the RL side of every pair has
    on every benchmark; topp0.95_t1.0, if it is among several, else the first by name."""
    target_minutes: Quantity = 120
    """Wall time that a generation job should take by the estimates of ``cost``, without its engine's start. Policies of
    a cell are packed into jobs of up to this time, and a longer policy is split. Without a measured speed a cell is one
    job."""
    pool_size: Positive = 64
    """Largest number of policies per generation job; each job starts the engine once."""
    chunk_samples: Positive = 4096
    """Samples per chunk; a killed job resumes after its last finished chunk."""
    grace_seconds: Nonnegative = 20
    """Time that a job has to finish its chunks after SIGTERM or SIGUSR1. It must be shorter than the time from the
    signal to the kill, such as Slurm's KillWait of 30 seconds."""
    failed_share: Proportion = 0.01
    """Largest share of a chunk's searches that may fail, each recorded with its reason; more end the job."""
    extensions: list[str] = []
    """Python files, relative to the study's folder, or installed modules that declare metrics, tables, figures,
    controllers, graders, benchmark families or engines of your own (CONTRIBUTING.md)."""
    lock: str = "config/lock.json"
    """File to which ``searchlens pin`` writes the commit and the files of each ``hub`` name."""
    study: StudySpec
    checkpoints: dict[Name, CheckpointSpec]
    templates: dict[Name, PromptFamily] = {}
    """Prompt templates of your own, by name; one of a shipped name stands in its place (docs/templates.md)."""
    pairs: dict[Name, PairSpec]
    benchmarks: dict[Name, BenchmarkSpec]
    policies: dict[Name, PolicySpec | None]
    """Policies by name; null: the name says it all, such as topp0.8_t0.9."""
    pools: dict[Name, list[Name]]
    """Lists of policies, by name; a benchmark is sampled under the policies of one pool."""
    references: list[Name] = []
    """Policies that are sampled in every cell and shown in figures, but belong to no pool."""
    landscape: LandscapeSection = LandscapeSection()
    recovery: RecoverySection = RecoverySection()
    readings: ReadingsSection = ReadingsSection()
    boptr: BoptrOptions = BoptrOptions()
    health: HealthOptions = HealthOptions()
    cost: CostSpec = CostSpec()


@cache
def added() -> dict[str, Any]:
    """Sections of the configuration that add-ons declare: name to module (``Addon.sections``)."""
    return {name: import_module(module) for addon in addons() for name, module in addon.sections.items()}


@cache
def whole() -> type[Config]:
    """The configuration with all sections that are added; each may be null, as it is by default."""
    sections: dict[str, Any] = {
        name: (module.RECORD | None, Field(None, description=f"{module.MEANING}; null: none."))
        for name, module in added().items()
    }
    return create_model("Config", __base__=Config, __doc__=Config.__doc__, **sections)


def errors(config: Config) -> Iterator[str]:
    """Mistakes at the top level."""
    if sorted(set(config.budgets)) != config.budgets or not config.budgets:
        yield f"budgets: {config.budgets} must increase"
    elif config.budgets[-1] > config.samples:
        yield f"budgets: the largest, {config.budgets[-1]}, exceeds samples ({config.samples})"
    for where, path in _paths(config):
        if why := _no_path(path):
            yield f"{where}: {why}, found {path[:40]!r}"
        elif where in ("results", "study.readouts") and (path[0] == "-" or {"{", "}"} & set(path)):
            rule = "must not have { or }, which Snakemake reads as a place to fill in, nor begin with - as an option"
            yield f"{where}: {rule}, found {path[:40]!r}"


def absent(config: Config) -> Iterator[str]:
    """Files and folders that the study needs for its samples and that are not there."""
    names = {f"benchmarks.{name}" for name in config.study.benchmarks}
    names |= {f"checkpoints.{name}" for name in config.checkpoints if is_studied(config, name)}
    for where, path in _paths(config) if config.study.readouts is None else ():
        is_needed = where.removesuffix(".path").removesuffix(".examples") in names and not path.startswith(ZOO_PREFIX)
        if is_needed and not _no_path(path) and not Path(path).exists():
            yield f"{where}: {path} does not exist"


def _paths(config: Config) -> Iterator[tuple[str, str]]:
    """Every key that names a file or folder, with its value."""
    yield "results", config.results
    yield "lock", config.lock
    yield from (("extensions", name) for name in config.extensions)
    if config.study.readouts is not None:
        yield "study.readouts", config.study.readouts
    for name, checkpoint in config.checkpoints.items():
        if checkpoint.path is not None:
            yield f"checkpoints.{name}.path", checkpoint.path
    for name, benchmark in config.benchmarks.items():
        paths = [benchmark.path] if isinstance(benchmark.path, str) else benchmark.path or []
        yield from ((f"benchmarks.{name}.path", path) for path in paths)
        if benchmark.examples:
            yield f"benchmarks.{name}.examples.path", benchmark.examples.path


def _no_path(path: str) -> str:
    """Why a text cannot be the name of a file; empty if it can."""
    if not path.strip():
        return "needs a name"
    if not path.isprintable():
        return "must not have line breaks or other characters that cannot be printed"
    if any(len(part.encode()) > _LONGEST_NAME for part in path.split("/")) or len(path.encode()) > _LONGEST_PATH:
        return f"has a name of more than {_LONGEST_NAME} bytes, or more than {_LONGEST_PATH} in all"
    return ""


_LONGEST_NAME, _LONGEST_PATH = 255, 4000
"""Bytes; what file systems of Linux allow, less what is added to a path."""
