"""Samples and verdicts of a study in the formats of other tools. An exporter writes a ``Pool``: the samples of one
checkpoint on one benchmark under one policy, with their questions.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import polars as pl

from searchlens.api.study import Study
from searchlens.catalogue import declaration, find
from searchlens.errors import InputError
from searchlens.search.policy import from_spec
from searchlens.store.files import move, temporary_folder

Record = dict[str, Any]
ROWS = 50_000
"""Samples in memory at once."""


@dataclass(frozen=True)
class Pool:
    """Samples of one policy."""

    checkpoint: str
    benchmark: str
    policy: str
    asked: Mapping[str, Any]
    """Parameters of its local policy under the names of ``Sampling``; empty if only the study knows the policy."""
    max_tokens: int | None
    grader: str
    withheld: str
    """Why no question and no text may be exported; empty if they may."""
    fingerprint: str
    """Of the study's configuration."""
    questions: tuple[Record, ...]
    """``id``, ``prompt`` and ``gold`` in the order of the benchmark; the last two are None if they are withheld."""
    drawn: int
    """Samples of a question."""
    read: Callable[[list[int]], pl.DataFrame]
    """Gives ``Study.samples`` of some questions, by their positions."""

    @cached_property
    def verdicts(self) -> pl.DataFrame:
        """``sample`` and ``correct`` of every sample."""
        return pl.concat(block.select("sample", "correct") for block in self._blocks())

    def _blocks(self) -> Iterator[pl.DataFrame]:
        """Samples ordered by question, then sample, of as many questions together as have some ``ROWS``."""
        size = max(1, ROWS // max(1, self.drawn))
        for start in range(0, len(self.questions), size):
            yield self.read(list(range(start, min(start + size, len(self.questions))))).sort("question", "sample")

    @property
    def key(self) -> bytes:
        """32 bytes that tell this pool from those of other cells, policies and configurations."""
        names = [self.fingerprint, self.checkpoint, self.benchmark, self.policy]
        return hashlib.sha256(json.dumps(names).encode()).digest()

    @property
    def samples(self) -> int:
        """Largest number of samples of a question."""
        return int(self.verdicts["sample"].max() or 0) + 1 if len(self.verdicts) else 0  # type: ignore[arg-type]

    @property
    def accuracy(self) -> float | None:
        """Mean of the verdicts that are known."""
        mean = self.verdicts["correct"].cast(pl.Float64).mean()
        return float(mean) if isinstance(mean, float) else None

    def rows(self) -> Iterator[tuple[Record, Record]]:
        """Each question with each of its samples; texts and answers are None if they are withheld."""
        hidden = dict.fromkeys(("text", "answer")) if self.withheld else {}
        for frame in self._blocks():
            for row in frame.iter_rows(named=True):
                yield self.questions[row["question"]], row | hidden

    def folder(self, out: Path) -> Path:
        """Where files of this pool alone are written."""
        folder = out / self.checkpoint / self.benchmark / self.policy
        folder.mkdir(parents=True, exist_ok=True)
        return folder


def pools(study: Study, only: Collection[str] = ()) -> Iterator[Pool]:
    """Every policy, or those that are named, of every cell that has samples here; an ``InputError`` if no cell has a
    named one.
    """
    known: set[str] = set()
    for row in study.cells.filter(pl.col("source") != "recorded").iter_rows(named=True):
        checkpoint, benchmark = row["checkpoint"], row["benchmark"]
        for policy in study.streams(checkpoint, benchmark):
            known.add(policy)
            if not only or policy in only:
                yield _pool(study, checkpoint, benchmark, policy)
    if missing := set(only) - known:
        raise InputError(f"no policy {', '.join(sorted(missing))}; policies with samples: {', '.join(sorted(known))}")


def _pool(study: Study, checkpoint: str, benchmark: str, policy: str) -> Pool:
    withheld, settings = study.withheld(benchmark), study.config.benchmarks.get(benchmark)
    shown = [(q.id, None, None) if withheld else (q.id, q.text, q.gold) for q in study.questions(benchmark)]
    try:
        asked = asdict(from_spec(policy, study.config.policies.get(policy)).local)
    except InputError:  # no name spells it
        asked = {}
    return Pool(
        checkpoint=checkpoint,
        benchmark=benchmark,
        policy=policy,
        asked=asked,
        max_tokens=settings.max_tokens if settings else None,
        grader=settings.grader if settings else "correct",
        withheld=withheld,
        fingerprint=study.fingerprint,
        questions=tuple(dict(zip(("id", "prompt", "gold"), one, strict=True)) for one in shown),
        drawn=study.streams(checkpoint, benchmark)[policy][1],
        read=partial(study.samples, checkpoint, benchmark, policy),
    )


def lost(to: str) -> str:
    """What a format cannot hold, as the exporter declares it."""
    return str(declaration("exporter", to).options["lost"])


def export(study: Study, to: str, out: Path, policies: Iterable[str] = ()) -> list[Path]:
    """Write every policy, or those that are named, of every cell that has samples; ``out`` appears when all are
    written.

    Returns the files. An ``InputError`` if the format is unknown, the folder has files, or nothing is there to be
    written.
    """
    write = find("exporter", to)
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise InputError(f"{out} is there and not an empty folder", "name a new one, so that no file is overwritten")
    with temporary_folder(out.absolute()) as folder:
        written = [path.relative_to(folder) for pool in pools(study, set(policies)) for path in write(pool, folder)]
        if not written:
            raise InputError(f"{study.results} has no samples to export", "sample it first: recorded cells have none")
        move(folder, out.absolute())
    return [out / path for path in written]
