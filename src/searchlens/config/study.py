"""Section ``study``: what a run does."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from searchlens.config.base import Name, Section, unknown
from searchlens.schemas.options import Positive

if TYPE_CHECKING:
    from searchlens.config.model import Config


class LikelihoodSpec(Section):
    """How many texts are scored under both sides of a pair."""

    questions: Positive = 100
    """Of each benchmark, counted from the first; all of them if it has fewer."""
    samples: Positive = 16
    """Of each question and side, the first of the stream; all of them if it has fewer."""


class TraceSpec(Section):
    """Which searches are recorded, for people to look at (docs/search.md): the first run of some questions."""

    questions: Positive = 3
    """Of each benchmark, counted from the first; all of them if it has fewer."""
    policies: list[Name] | Literal["searches", "all"] = "searches"
    """Keys of ``policies``. searches: all whose controller is not ``autoregressive``."""


class StudySpec(Section):
    """What a run does."""

    pairs: list[Name]
    """Keys of ``pairs`` to analyse."""
    benchmarks: list[Name]
    """Keys of ``benchmarks`` to analyse."""
    sample: list[Name] | Literal["all"] = "all"
    """Benchmarks to sample; the others are read from ``readouts``. all: sample every cell without readouts."""
    readouts: str | None = None
    """Folder of compact readouts written by ``searchlens record``, as ``<checkpoint>/<benchmark>.arrow.xz``, such as
    ``zoo:recorded`` of the micro zoo. A cell with readouts there is read from them and not sampled, unless ``sample``
    lists its benchmark; null: no folder."""
    imports: Literal["named", "all", "none"] = "named"
    """Imported samples (docs/import.md) that belong to the study. named: those whose pair or benchmark is listed above;
    all: everything in the results folder; none: nothing."""
    figures: list[Annotated[str, Field(pattern=r"^[^/]+/[^/]+$")]] | Literal["all"] = "all"
    """``<pair>/<benchmark>`` of the cells with figures of their own; tables and overview figures show all cells."""
    agreement: Annotated[int, Field(ge=0, le=1_000_000)] = 200
    """Graded samples of each cell with a mathematical grader that math-verify alone judges, too, chosen at random
    (table ``grader_agreement``); 0: none."""
    likelihood: LikelihoodSpec | None = None
    """Score texts of each side of a pair under the other side, too (table ``cross_likelihood``): of the policy that
    draws at temperature 1 without filters. It loads the weights of both checkpoints. null: none."""
    trace: TraceSpec | None = None
    """Record what some searches do while they are sampled (docs/data.md, traces). ``searchlens trace`` records searches
    whose samples exist already. null: none."""


def errors(config: Config) -> Iterator[str]:
    """Mistakes in this section."""
    study = config.study
    sampled = [] if study.sample == "all" else study.sample
    drawn = [] if study.figures == "all" else study.figures
    cells = [f"{pair}/{benchmark}" for pair in study.pairs for benchmark in study.benchmarks]
    lists = {f"study.{key}": getattr(study, key) for key in ("pairs", "benchmarks", "sample", "figures")}
    lists |= {f"pools.{pool}": names for pool, names in config.pools.items()} | {"references": config.references}
    for where, names in lists.items():
        repeated = [] if names == "all" else [name for name in names if names.count(name) > 1]
        for name in dict.fromkeys(repeated):
            yield f"{where}: {name!r} is there more than once"
    traced = [] if study.trace is None or isinstance(study.trace.policies, str) else study.trace.policies
    for key, names, known in (
        ("pairs", study.pairs, list(config.pairs)),
        ("benchmarks", study.benchmarks, list(config.benchmarks)),
        ("sample", sampled, list(config.benchmarks)),
        ("figures", drawn, cells),
        ("trace.policies", traced, list(config.policies)),
    ):
        for name in names:
            if name not in known:
                yield unknown(f"study.{key}", name, known)
    if study.sample != "all" and study.readouts is None:
        for name in study.benchmarks:
            if name not in sampled:
                yield f"study.sample: does not list {name!r}, and there is no study.readouts to read it from"
