"""Section ``study``: what a run does."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from searchlens.config.limits import (
    STRICT,
    Bounds,
    Name,
    Pattern,
    Positive,
)


@dataclass(frozen=True, kw_only=True)
class LikelihoodSpec:
    """How many texts are scored under both sides of a pair."""

    __pydantic_config__ = STRICT

    questions: Positive = 100
    """Of each benchmark, counted from the first; all of them if it has fewer."""
    samples: Positive = 16
    """Of each question and side, the first of the stream; all of them if it has fewer."""


@dataclass(frozen=True, kw_only=True)
class TraceSpec:
    """Which searches are recorded, for people to look at (docs/search.md): the first run of some questions."""

    __pydantic_config__ = STRICT

    questions: Positive = 3
    """Of each benchmark, counted from the first; all of them if it has fewer."""
    policies: tuple[Name, ...] | Literal["searches", "all"] = "searches"
    """Keys of ``policies``. searches: all whose controller is not ``autoregressive``."""


@dataclass(frozen=True, kw_only=True)
class StudySpec:
    """What a run does."""

    __pydantic_config__ = STRICT

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
