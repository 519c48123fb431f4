"""The parameters of each stage, from the configuration and the plan, as frozen records.

A rule of the workflow tracks exactly what a function here returns, and the stage gets exactly that. A stage never sees
the grid, so it cannot depend on anything that is not tracked. Samples, scores and frames are files and not included.

Standard library only, because the planner imports it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from searchlens.benchmarks import options
from searchlens.config.general import General
from searchlens.config.health import HealthOptions
from searchlens.config.landscape import LandscapeOptions
from searchlens.config.measures import MeasuresOptions
from searchlens.config.model import ROLES, HandoverSpec, LikelihoodSpec
from searchlens.config.recovery import RecoveryOptions
from searchlens.plan._grid import Grid
from searchlens.search.policy import Policy
from searchlens.store.provenance import config_fingerprint

Specs = Mapping[str, Mapping[str, Any]]
"""Resolved policies by name, without those that are spelled out by their names."""


def hash_of(needs: Any) -> str:
    """Hash of the result of a function of this module: 16 hexadecimal digits."""
    return hashlib.sha256(json.dumps(needs, sort_keys=True, default=vars).encode()).hexdigest()[:16]


@dataclass(frozen=True)
class Stream:
    """One stream of samples of a cell: its generation id, the names of its policies, and their controller."""

    id: str
    policies: tuple[str, ...]
    controller: str


@dataclass(frozen=True)
class CellSamples:
    """Where the samples of a cell come from, and the streams that they are drawn from."""

    checkpoint: str
    benchmark: str
    streams: tuple[Stream, ...]
    """Empty if everything was imported."""
    recorded_counts: str
    """Path of the recorded counts that the cell is read from; empty if it is sampled."""
    questions: int


def cell_samples(grid: Grid, checkpoint: str, benchmark: str) -> CellSamples:
    """The streams of one cell."""
    path = grid.study.recorded_counts.get((checkpoint, benchmark))
    generations = grid.jobs.streams(checkpoint, benchmark) if path else grid.jobs.generations(checkpoint, benchmark)
    streams = tuple(Stream(g.id, g.policies, g.spec["policy"]["controller"]["name"]) for g in generations)
    return CellSamples(checkpoint, benchmark, streams, str(path or ""), grid.inputs.count(benchmark))


# ---- one cell


@dataclass(frozen=True)
class Score:
    """Parameters of grading a cell."""

    grader: str
    q_instructions: str
    """Option of the landscape: how answers that cannot be extracted are put into classes."""
    golds: str
    """Hash of the questions with their golds: after a correction of a gold, the cell is graded again."""
    samples: CellSamples
    imports: tuple[tuple[str, str, int], ...]
    """(id, policy, samples)."""
    default_policy: str
    """Its samples are also graded against golds of other questions."""
    seed: int
    """Decides which."""


def score(grid: Grid, checkpoint: str, benchmark: str) -> Score:
    """Parameters of grading a cell."""
    return Score(
        grid.study.benchmark(benchmark).grader,
        grid.config.landscape.q_instructions,
        grid.inputs.content_hash(benchmark),
        cell_samples(grid, checkpoint, benchmark),
        tuple((item.id, item.policy, item.samples) for item in grid.study.imported(checkpoint, benchmark)),
        grid.study.default_policy,
        grid.config.seed,
    )


@dataclass(frozen=True)
class Agreement:
    """Parameters of judging some samples of a cell a second time."""

    score: Score
    size: int
    """Number of samples."""


def agreement(grid: Grid, checkpoint: str, benchmark: str) -> Agreement:
    """Parameters of judging some samples of a cell a second time."""
    return Agreement(score(grid, checkpoint, benchmark), grid.config.study.agreement)


@dataclass(frozen=True)
class Landscape:
    """Parameters of the landscape of a cell."""

    budgets: tuple[int, ...]
    """At which it is read, extension included."""
    vote_budgets: tuple[int, ...]
    """At which votes over classes and over plain strings are compared."""
    options: LandscapeOptions
    seed: int
    """Of the bootstrap draws."""
    smallest_budgets: Mapping[str, int]
    """Smallest budget at which a policy can be read, by name, if it is not 1."""
    grader: str
    """That of the benchmark."""


def landscape(grid: Grid, benchmark: str) -> Landscape:
    """Parameters of the landscape of a cell of a benchmark."""
    policies = _policies(grid, benchmark).items()
    return Landscape(
        tuple(grid.study.read_budgets(benchmark)),
        grid.config.budgets,
        grid.config.landscape,
        grid.config.seed,
        {name: policy.smallest_budget for name, policy in policies if policy.smallest_budget > 1},
        grid.study.benchmark(benchmark).grader,
    )


@dataclass(frozen=True)
class Recovery:
    """Parameters of comparing a pair on a benchmark."""

    budgets: tuple[int, ...]
    """B; only BOPTR reads beyond it."""
    references: tuple[str, ...]
    """Policies that are not compared."""
    options: RecoveryOptions
    general: General
    policies: Specs
    """Specification of every policy of the benchmark."""


def recovery(grid: Grid, benchmark: str) -> Recovery:
    """Parameters of comparing a pair on a benchmark."""
    config = grid.config
    general = _general(grid, config.landscape.draws)
    return Recovery(config.budgets, config.references, config.recovery, general, _specs(grid, benchmark))


def _general(grid: Grid, draws: int) -> General:
    confidence = grid.config.landscape.confidence
    return General(default_policy=grid.study.default_policy, draws=draws, seed=grid.config.seed, confidence=confidence)


def _policies(grid: Grid, benchmark: str) -> dict[str, Policy]:
    """Every policy that a cell of a benchmark may have, by name, without imported ones of unknown kind."""
    names = [item.policy for item in grid.study.imports if item.benchmark == benchmark]
    if benchmark in grid.config.benchmarks:
        searches = grid.jobs.search_policies(benchmark)
        names = [*grid.study.pool_policies(benchmark), *grid.config.references, *searches, *names]
    return {name: policy for name in names if (policy := grid.jobs.policy(name))}


def _specs(grid: Grid, benchmark: str) -> Specs:
    configured = grid.config.policies
    return {name: policy.resolved() for name, policy in _policies(grid, benchmark).items() if configured.get(name)}


# ---- one pair


@dataclass(frozen=True)
class PairCell:
    """What figures and tables state about a pair on a benchmark."""

    pair: str
    benchmark: str
    base: str
    rl: str
    """``base``, ``rl``: checkpoints."""
    title: str
    """Of the benchmark."""
    source: str
    """``sampled``, ``imported`` or ``recorded``: the least direct of both sides."""
    parameters: float | None
    """Number of parameters of the model, if the configuration has it."""
    policies: Specs
    """Specification of every policy of the benchmark."""
    is_floor: bool
    """RL gains little there, so that neither side may solve anything."""


def _pair_cell(grid: Grid, pair: str, benchmark: str) -> PairCell:
    roles = grid.study.pairs[pair]
    return PairCell(
        pair,
        benchmark,
        roles["base"],
        roles["rl"],
        grid.study.benchmark(benchmark).title or benchmark,
        grid.study.least_direct((checkpoint, benchmark) for checkpoint in roles.values()),
        grid.config.pairs[pair].parameters if pair in grid.config.pairs else None,
        _specs(grid, benchmark),
        grid.study.benchmark(benchmark).regime == "floor",
    )


@dataclass(frozen=True)
class Figures:
    """Parameters of the figures of a pair on a benchmark, or of the whole study."""

    cells: tuple[PairCell, ...]
    samples: Mapping[str, CellSamples]
    """Of both sides, ``Base`` and ``RL``, of a pair; none for the figures of the study."""
    budgets: tuple[int, ...]
    options: RecoveryOptions
    general: General
    """``options``, ``general``: the legends state them."""
    health: HealthOptions
    handover: tuple[tuple[str, str], ...] = ()
    """Pairs and benchmarks whose texts Base continued; none for the figures of a pair."""


def figures(grid: Grid, pair: str, benchmark: str) -> Figures:
    """Parameters of the figures of a pair on a benchmark."""
    sides = zip(("Base", "RL"), ROLES, strict=True)
    samples = {side: cell_samples(grid, grid.study.pairs[pair][role], benchmark) for side, role in sides}
    return _figures(grid, [(pair, benchmark)], samples)


def overview(grid: Grid) -> Figures:
    """Parameters of the overview figures."""
    section = grid.config.study.likelihood
    continued = grid.jobs.likelihood_cells if section and section.handover else ()
    return replace(_figures(grid, grid.study.pair_cells, {}), handover=continued)


def _figures(grid: Grid, cells: Iterable[tuple[str, str]], samples: Mapping[str, CellSamples]) -> Figures:
    drawn = tuple(_pair_cell(grid, *cell) for cell in cells)
    config = grid.config
    general = _general(grid, config.landscape.draws)
    return Figures(drawn, samples, config.budgets, config.recovery, general, config.health)


# ---- the whole study


@dataclass(frozen=True)
class Tables:
    """Parameters of the tables of a study."""

    cells: tuple[CellSamples, ...]
    pair_cells: tuple[PairCell, ...]
    budgets: tuple[int, ...]
    default_policy: str
    references: tuple[str, ...]
    """Policies that are left out of the interval widths."""
    models: Mapping[str, str]
    """Name of each checkpoint in the cost table."""
    sources: tuple[str, ...]
    """``sampled``, ``imported`` or ``recorded``, for each of ``cells``."""
    health: HealthOptions
    without_agreement: tuple[str, ...]
    """For each of ``cells``, why no samples are judged by two graders; empty if some are."""
    without_likelihood: tuple[str, ...]
    """For each of ``pair_cells``, why no texts are scored under both sides; empty if some are."""
    unknown_wordings: tuple[str, ...]
    """A sentence for each benchmark some of whose questions are in no known wording."""


def tables(grid: Grid) -> Tables:
    """Parameters of the tables of a study."""
    config = grid.config
    return Tables(
        tuple(cell_samples(grid, *cell) for cell in grid.study.cells),
        tuple(_pair_cell(grid, *cell) for cell in grid.study.pair_cells),
        config.budgets,
        grid.study.default_policy,
        config.references,
        _model_names(grid),
        tuple(grid.study.source(*cell) for cell in grid.study.cells),
        config.health,
        tuple(grid.study.without_agreement(*cell) for cell in grid.study.cells),
        tuple(grid.jobs.without_likelihood(*cell) for cell in grid.study.pair_cells),
        tuple(grid.inputs.unknown_wordings),
    )


def _model_names(grid: Grid) -> dict[str, str]:
    """Base and RL, with the first of their pairs if there are several.

    Batches are checkpoints of their own: ``Base anchor, batch 123``.
    """
    several = len(grid.study.pairs) > 1
    names: dict[str, str] = {}
    for pair, roles in grid.study.pairs.items():
        batches = grid.config.pairs[pair].batches if pair in grid.config.pairs else {}
        for role, side in {"base": "Base", "rl": "RL"}.items():
            name = f"{side} {pair}" if several else side
            repeats = {f"{name}, batch {key}": batch.sides.get(role) for key, batch in batches.items()}
            for title, checkpoint in ({name: roles.get(role)} | repeats).items():
                if checkpoint:
                    names.setdefault(checkpoint, title)
    return names


@dataclass(frozen=True)
class Measures:
    """Parameters of the measures of all samples."""

    cells: tuple[tuple[str, str, Mapping[str, tuple[str, ...]]], ...]
    """(pair, benchmark, role to its checkpoint and those that are the same weights sampled again with other seeds)."""
    choices: Mapping[str, tuple[int, ...]]
    """Benchmark to the number of lettered options of each question, 0 for an open one. Benchmarks without any, or whose
    questions are absent, are left out."""
    references: tuple[str, ...]
    """Policies that are not compared."""
    options: MeasuresOptions
    """With the names of the pairs that are joined in ``joint_pairs``."""
    general: General


def measures(grid: Grid) -> Measures:
    """Parameters of the measures of all samples."""
    config, cells = grid.config, grid.study.pair_cells
    present = [b for b in dict.fromkeys(b for _, b in cells) if not grid.inputs.absent(b)]
    choices = {benchmark: tuple(map(options, grid.inputs.questions(benchmark))) for benchmark in present}
    studied = list(dict.fromkeys(pair for pair, _ in cells))
    fitted = [pair for pair in studied if grid.study.is_fitted(pair)]
    joined = config.measures.joint_pairs or fitted or studied
    section = replace(config.measures, joint_pairs=tuple(pair for pair in studied if pair in joined))
    return Measures(
        tuple((*cell, {role: sides(grid, *cell, role) for role in ROLES}) for cell in cells),
        {benchmark: numbers for benchmark, numbers in choices.items() if any(numbers)},
        config.references,
        section,
        _general(grid, section.draws),
    )


def sides(grid: Grid, pair: str, benchmark: str, role: str) -> tuple[str, ...]:
    """The checkpoint of one side of a pair, and those that are the same, sampled again with other seeds."""
    repeats = grid.config.pairs[pair].batches.values() if pair in grid.config.pairs else ()
    cells = set(grid.study.cells)
    again = (side for batch in repeats if (side := batch.sides.get(role)) and (side, benchmark) in cells)
    return grid.study.pairs[pair][role], *again


def explorer(grid: Grid) -> dict[str, Any]:
    """What the page of a study depends on besides files of results."""
    names = dict.fromkeys(benchmark for _, benchmark in grid.study.cells)
    return {
        "config": config_fingerprint(grid.config),
        "questions": {name: grid.inputs.content_hash(name) for name in names},
        "policies": {name: _specs(grid, name) for name in names},
    }


@dataclass(frozen=True)
class Likelihood:
    """Parameters of scoring texts of a pair on a benchmark under both sides."""

    pair: str
    benchmark: str
    policy: str
    sides: Mapping[str, tuple[str, str]]
    """``base``, then ``rl``: checkpoint, and id of the stream of its texts, which depends on weights, questions,
    template and policy."""
    questions: int
    samples: int
    """``questions``, ``samples``: how many of them, counted from the first."""
    confidence: float
    """Option ``landscape.confidence``."""
    draws: int
    """Option ``measures.draws``."""
    seed: int
    grader: str
    tokens: bool
    handover: HandoverSpec | None


def likelihood(grid: Grid, pair: str, benchmark: str) -> Likelihood:
    """Parameters of scoring texts of one of ``Grid.likelihood_cells`` under both sides."""
    config, section = grid.config, grid.config.study.likelihood or LikelihoodSpec()
    policy = grid.jobs.scored_policy(benchmark)
    assert policy is not None, "not one of likelihood_cells"
    samples = [section.samples]
    sides: dict[str, tuple[str, str]] = {}
    for role in ROLES:
        checkpoint = grid.study.pairs[pair][role]
        (stream,) = (g for g in grid.jobs.generations(checkpoint, benchmark) if policy in g.policies)
        sides[role] = checkpoint, stream.id
        samples.append(stream.samples)
    return Likelihood(
        pair,
        benchmark,
        policy,
        sides,
        min(section.questions, grid.inputs.count(benchmark)),
        min(samples),
        config.landscape.confidence,
        config.measures.draws,
        config.seed,
        grid.study.benchmark(benchmark).grader,
        section.tokens,
        section.handover,
    )


def boptr(grid: Grid) -> dict[str, Any]:
    """The cohort (``cohort``) and options (``options``) of BOPTR, without what decides words alone."""
    study = transfer(grid)
    benchmarks = {name: spec | {"title": ""} for name, spec in study["cohort"]["benchmarks"].items()}
    return {"cohort": study["cohort"] | {"benchmarks": benchmarks}, "options": study["options"]}


def transfer(grid: Grid) -> dict[str, Any]:
    """The cohort (``cohort``) and options (``options``) of BOPTR, and the limits of the health check (``health``)."""
    cohort = grid.study.cohort_plan()
    specs = (item for benchmark in cohort["benchmarks"] for item in _specs(grid, benchmark).items())
    options = grid.config.boptr
    mu_without = tuple(name for name in options.mu_without if name in cohort["models"])
    return {
        "cohort": cohort | {"policies": dict(specs)},
        "options": replace(options.on(cohort["benchmarks"]), mu_without=mu_without),
        "health": grid.config.health,
    }
