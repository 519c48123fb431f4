"""Sections ``study``, ``pairs`` and ``cost``; the whole configuration, written and read as plain JSON types."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, make_dataclass
from functools import cache
from importlib import import_module
from typing import Annotated, Any, Literal

from searchlens.config.addons import addons
from searchlens.config.boptr import BoptrOptions, Group, Regime
from searchlens.config.health import HealthOptions
from searchlens.config.landscape import LandscapeOptions
from searchlens.config.limits import Limit, Name, Positive, Proportion, Quantity, Seed, Strict, Tokens, record
from searchlens.config.measures import MeasuresOptions
from searchlens.config.policies import PolicySpec
from searchlens.config.recovery import RecoveryOptions
from searchlens.config.sampled import BenchmarkSpec, CheckpointSpec, PromptFamily


@dataclass(frozen=True, kw_only=True)
class HandoverSpec(Strict):
    """How Base continues beginnings of texts: right and wrong ones of RL, and its own right ones."""

    questions: Positive = 50
    """Of each benchmark, the first to which a scored text of RL is right; all of them if there are fewer."""
    texts: Positive = 1
    """Of each question and kind of text, the first of the stream; all of them if there are fewer."""
    continuations: Positive = 8
    """Of each beginning."""
    fractions: tuple[Annotated[float, Limit(gt=0, lt=1)], ...] = (0.125, 0.25, 0.5, 0.75)
    """Beginnings by their share of the text."""
    tokens: tuple[Positive, ...] = (1, 2, 4, 8, 16, 32)
    """Beginnings by their tokens; a shorter text is its own beginning."""


@dataclass(frozen=True, kw_only=True)
class LikelihoodSpec(Strict):
    """Which texts are scored under both sides of a pair."""

    questions: Positive = 100
    """Of each benchmark, counted from the first; all of them if it has fewer."""
    samples: Positive = 16
    """Of each question and side, the first of the stream; all of them if it has fewer."""
    policy: Name | None = None
    """Key of ``policies``, random and without search or penalties; null: the first that draws at temperature 1 without
    filters. On vLLM it must be such a policy."""
    tokens: bool = False
    """Keep log p and rank of every token (docs/columns.md), for the explorer's page of a question."""
    handover: HandoverSpec | None = None
    """Let Base continue beginnings of the texts (table ``handover``). null: not."""


@dataclass(frozen=True, kw_only=True)
class TraceSpec(Strict):
    """Which searches are recorded, for people to look at (docs/search.md): the first run of some questions."""

    questions: Positive = 3
    """Of each benchmark, counted from the first; all of them if it has fewer."""
    policies: tuple[Name, ...] | Literal["searches", "all"] = "searches"
    """Keys of ``policies``. searches: all whose controller is not ``autoregressive``."""


@dataclass(frozen=True, kw_only=True)
class StudySpec(Strict):
    """What a run does."""

    pairs: tuple[Name, ...]
    """Keys of ``pairs`` to analyse."""
    benchmarks: tuple[Name, ...]
    """Keys of ``benchmarks`` to analyse."""
    sample: tuple[Name, ...] | Literal["all"] = "all"
    """Benchmarks to sample; the others are read from ``recorded_counts``. all: sample every cell that has none."""
    recorded_counts: str | None = None
    """Folder of recorded counts written by ``searchlens record``, as ``<checkpoint>/<benchmark>.arrow.xz``, such as
    ``zoo:recorded`` of the micro zoo. A cell with estimates there is read from them and not sampled, unless ``sample``
    lists its benchmark; null: no folder."""
    imports: Literal["named", "all", "none"] = "named"
    """Imported samples (docs/import.md) that belong to the study. named: those whose pair or benchmark is listed above;
    all: everything in the results folder; none: nothing."""
    figures: tuple[Annotated[str, Limit(pattern=r"^[^/]+/[^/]+$")], ...] | Literal["all"] = "all"
    """``<pair>/<benchmark>`` of the cells with figures of their own; tables and overview figures show all cells."""
    agreement: Annotated[int, Limit(ge=0, le=1_000_000)] = 200
    """Graded samples of each cell with a mathematical grader that math-verify alone judges, too, chosen at random
    (table ``grader_agreement``); 0: none."""
    likelihood: LikelihoodSpec | None = None
    """Score texts of each side of a pair under the other side, too (tables ``cross_likelihood`` and ``bounds``). It
    loads the weights of both checkpoints. null: none."""
    trace: TraceSpec | None = None
    """Record what some searches do while they are sampled (docs/columns.md). ``searchlens trace`` records searches
    whose samples exist already. null: none."""


ROLES: tuple[Literal["base", "rl"], ...] = ("base", "rl")


@dataclass(frozen=True, kw_only=True)
class BatchSpec(Strict):
    """The weights of a pair sampled again: checkpoints with the same ``path`` or ``hub`` and another ``seed``."""

    base: Name | None = None
    """Checkpoint that repeats Base; null: Base is not repeated."""
    rl: Name | None = None
    """Checkpoint that repeats RL; null: RL is not repeated."""

    @property
    def sides(self) -> dict[str, str]:
        """Checkpoint by role, of the sides that are repeated."""
        return {role: name for role in ROLES if (name := getattr(self, role))}


@dataclass(frozen=True, kw_only=True)
class PairSpec(Strict):
    """A Base checkpoint and the checkpoint that RL made from it."""

    base: Name
    """Key of ``checkpoints``."""
    rl: Name
    """Key of ``checkpoints``."""
    group: Group = "upper"
    """Cohort of BOPTR. Parameters are fitted to upper and lower pairs; a new pair is only predicted."""
    parameters: Quantity | None = None
    """Number of parameters: the size feature of V4, and the size by which ``cost`` estimates speed where the shape of
    the network does not."""
    rltrain: Name | None = None
    """Benchmark of role ``rltrain`` with questions of this pair's own RL-training split; null: the only one there
    is."""
    templates: Literal["shared", "own"] = "shared"
    """shared: Base and RL have the same prompt template, both with or both without worked examples. own: each has its
    own, so that the difference between them includes that of the prompts."""
    searches: bool = True
    """Whether this pair's Base is also sampled under the searches of a benchmark."""
    batches: Mapping[Name, BatchSpec] = field(default_factory=dict)
    """Repeated samples of the same weights on the fitted benchmarks, by a name such as their seed."""


GpuName = Literal["H200", "H100", "A100", "L40S"]


@dataclass(frozen=True, kw_only=True)
class ThroughputSpec(Strict):
    """How fast one model was sampled, on an engine or device whose limit is not known."""

    parameters: Quantity
    """Number of parameters of that model; a larger model is assumed to be slower in proportion."""
    tokens_per_second: Quantity
    """Generated tokens per second of all requests together, with a full batch."""
    source: str
    """Engine, device and conditions of the measurement; printed with every estimate."""


@dataclass(frozen=True, kw_only=True)
class EfficiencySpec(Strict):
    """How near vLLM came to the limit of a GPU, measured."""

    gpu: GpuName
    """The GPU that it was measured on."""
    share: Annotated[float, Limit(ge=0.001, le=1)]
    """Tokens per second over the limit of that GPU for that model (``searchlens.plan.cost``), where the GPU and not
    its host decided."""
    searches: Annotated[float, Limit(ge=0.001, le=1)] | None = None
    """The same share for searches. null: that of other samples."""
    host_us: Quantity | None = None
    """Microseconds that the host of one engine needs for a token: none draws faster, however small its model; several
    that share the GPU (``checkpoints.<name>.vllm.processes``) do. null: not measured."""
    searches_host_us: Quantity | None = None
    """The same for searches, whose requests are shorter and cost the host more. null: that of other samples."""
    source: str
    """Version of the engine, model and conditions of the measurement; printed with every estimate."""


@dataclass(frozen=True, kw_only=True)
class CostSpec(Strict):
    """What ``searchlens plan`` and ``target_minutes`` assume before anything has been sampled."""

    tokens_per_sample: Mapping[Regime, Tokens] = field(default_factory=dict)
    """Mean tokens of a sample, by regime; half of ``max_tokens`` for a regime that is not listed."""
    source: str = ""
    """Where ``tokens_per_sample`` comes from; printed with every estimate."""
    tokens_per_thought: Tokens | None = None
    """Mean tokens of a thought, for searches over thoughts; null: half of the limit that a policy sets for one."""
    distinct_thoughts: Annotated[float, Limit(ge=0, le=1)] = 1.0
    """Probability that a further thought after the same path is a new one: near 1 for paragraphs, 0.3 for the short
    lines of the micro zoo, of which there are few."""
    prompt_tokens: Tokens = 150.0
    """Mean tokens of a prompt, whose keys and values stay in memory."""
    gpu: GpuName | None = None
    """GPU of the jobs whose checkpoint has ``engine: vllm`` and ``device: cuda``: their speed is its limit times
    ``efficiency``. null: ``throughput`` is used for them, too."""
    efficiency: tuple[EfficiencySpec, ...] = ()
    """Measured shares of the limit; the first that was measured on ``gpu`` counts, or else the first."""
    throughput: tuple[ThroughputSpec, ...] = ()
    """Measured speeds of other jobs. A model is estimated from the one nearest in log size; empty: no hours are
    estimated."""


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
    grace_seconds: Annotated[float, Limit(ge=0, le=1e6)] = 20.0
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
    measures: MeasuresOptions = field(default_factory=MeasuresOptions)
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
