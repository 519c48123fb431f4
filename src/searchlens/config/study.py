"""Sections ``study``: what a run does, and ``pairs``: which checkpoints are compared."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Literal

from searchlens.config.boptr import Group
from searchlens.config.limits import Bounds, Name, Pattern, Positive, Quantity, Strict


@dataclass(frozen=True, kw_only=True)
class LikelihoodSpec(Strict):
    """How many texts are scored under both sides of a pair."""

    questions: Positive = 100
    """Of each benchmark, counted from the first; all of them if it has fewer."""
    samples: Positive = 16
    """Of each question and side, the first of the stream; all of them if it has fewer."""


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
    """Benchmarks to sample; the others are read from ``readouts``. all: sample every cell without readouts."""
    readouts: str | None = None
    """Folder of compact readouts written by ``searchlens record``, as ``<checkpoint>/<benchmark>.arrow.xz``, such as
    ``zoo:recorded`` of the micro zoo. A cell with readouts there is read from them and not sampled, unless ``sample``
    lists its benchmark; null: no folder."""
    imports: Literal["named", "all", "none"] = "named"
    """Imported samples (docs/import.md) that belong to the study. named: those whose pair or benchmark is listed above;
    all: everything in the results folder; none: nothing."""
    figures: tuple[Annotated[str, Pattern(r"^[^/]+/[^/]+$")], ...] | Literal["all"] = "all"
    """``<pair>/<benchmark>`` of the cells with figures of their own; tables and overview figures show all cells."""
    agreement: Annotated[int, Bounds(ge=0, le=1_000_000)] = 200
    """Graded samples of each cell with a mathematical grader that math-verify alone judges, too, chosen at random
    (table ``grader_agreement``); 0: none."""
    likelihood: LikelihoodSpec | None = None
    """Score texts of each side of a pair under the other side, too (table ``cross_likelihood``): of the policy that
    draws at temperature 1 without filters. It loads the weights of both checkpoints. null: none."""
    trace: TraceSpec | None = None
    """Record what some searches do while they are sampled (docs/data.md, traces). ``searchlens trace`` records searches
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
