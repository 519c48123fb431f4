"""The whole configuration, and how it is written and read as plain JSON types."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, make_dataclass
from functools import cache
from importlib import import_module
from typing import Any

from searchlens.config.addons import addons
from searchlens.config.benchmarks import BenchmarkSpec
from searchlens.config.boptr import BoptrOptions
from searchlens.config.checkpoints import CheckpointSpec, PromptFamily
from searchlens.config.cost import CostSpec
from searchlens.config.health import HealthOptions
from searchlens.config.landscape import LandscapeOptions
from searchlens.config.limits import Name, Nonnegative, Positive, Proportion, Quantity, Seed, Strict, record
from searchlens.config.policies import PolicySpec
from searchlens.config.readings import ReadingsOptions
from searchlens.config.recovery import RecoveryOptions
from searchlens.config.study import PairSpec, StudySpec


@dataclass(frozen=True, kw_only=True)
class Config(Strict):
    """The whole configuration: the files under ``config/`` merged, later ones over earlier ones."""

    results: str = "results"
    """Folder for everything a run writes."""
    seed: Seed = 42
    """Seed of the sample streams. Part of the generation id."""
    samples: Positive = 16
    """Samples per question: the largest budget. A larger number extends the streams; samples that exist are kept."""
    budgets: tuple[Positive, ...] = (1, 2, 4, 8, 16)
    """B, the allowed budgets, in increasing order."""
    default_policy: str | None = "topp0.95_t1.0"
    """pi_0, the policy of the RL target curve. null, for imported samples: a policy that the RL side of every pair has
    on every benchmark; topp0.95_t1.0, if it is among several, else the first by name."""
    target_minutes: Quantity = 120.0
    """Wall time that a generation job should take by the estimates of ``cost``, without its engine's start. Policies of
    a cell are packed into jobs of up to this time, and a longer policy is split. Without a measured speed a cell is one
    job."""
    pool_size: Positive = 64
    """Largest number of policies per generation job; each job starts the engine once."""
    chunk_samples: Positive = 4096
    """Samples per chunk; a killed job resumes after its last finished chunk."""
    grace_seconds: Nonnegative = 20.0
    """Time that a job has to finish its chunks after SIGTERM or SIGUSR1. It must be shorter than the time from the
    signal to the kill, such as Slurm's KillWait of 30 seconds."""
    failed_share: Proportion = 0.01
    """Largest share of a chunk's searches that may fail, each recorded with its reason; more end the job."""
    extensions: tuple[str, ...] = ()
    """Python files, relative to the study's folder, or installed modules that declare metrics, tables, figures,
    controllers, graders, benchmark families or engines of your own (CONTRIBUTING.md)."""
    lock: str = "config/lock.json"
    """File to which ``searchlens pin`` writes the commit and the files of each ``hub`` name."""
    study: StudySpec
    checkpoints: Mapping[Name, CheckpointSpec]
    templates: Mapping[Name, PromptFamily] = field(default_factory=dict)
    """Prompt templates of your own, by name; one of a shipped name stands in its place (docs/templates.md)."""
    pairs: Mapping[Name, PairSpec]
    benchmarks: Mapping[Name, BenchmarkSpec]
    policies: Mapping[Name, PolicySpec | None]
    """Policies by name; null: the name says it all, such as topp0.8_t0.9."""
    pools: Mapping[Name, tuple[Name, ...]]
    """Lists of policies, by name; a benchmark is sampled under the policies of one pool."""
    references: tuple[Name, ...] = ()
    """Policies that are sampled in every cell and shown in figures, but belong to no pool."""
    landscape: LandscapeOptions = field(default_factory=LandscapeOptions)
    recovery: RecoveryOptions = field(default_factory=RecoveryOptions)
    readings: ReadingsOptions = field(default_factory=ReadingsOptions)
    boptr: BoptrOptions = field(default_factory=BoptrOptions)
    health: HealthOptions = field(default_factory=HealthOptions)
    cost: CostSpec = field(default_factory=CostSpec)


@cache
def added() -> dict[str, Any]:
    """Sections of the configuration that add-ons declare: name to module (``Addon.sections``)."""
    return {name: import_module(module) for addon in addons() for name, module in addon.sections.items()}


@cache
def whole() -> type[Config]:
    """The configuration with all sections that are added; each may be null, as it is by default."""
    sections: list[Any] = [(name, module.RECORD | None, field(default=None)) for name, module in added().items()]
    return make_dataclass("Config", sections, bases=(Config,), frozen=True, kw_only=True)


def plain(config: Config) -> dict[str, Any]:
    """The configuration with its defaults, as the JSON types of a snapshot."""
    return asdict(config)


def from_plain(content: Mapping[str, Any]) -> Config:
    """The configuration of a snapshot. Its values were checked before; keys of other versions are left out."""
    config: Config = record(whole(), content)
    return config
