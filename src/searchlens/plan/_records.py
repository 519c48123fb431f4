"""Records of a grid: streams of samples, the pools that jobs sample, and imported pools."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from searchlens.store.files import read_json
from searchlens.store.hashing import digest


@dataclass(frozen=True)
class Generation:
    """One stream of samples per question: everything that decides its tokens is in ``spec``."""

    id: str
    """12 hexadecimal digits of the sha256 of ``spec``."""
    policies: tuple[str, ...]
    """The configured names that resolve to it, in configuration order."""
    samples: int
    """Samples per question wanted; not part of the id."""
    spec: Mapping[str, Any]
    """Plain JSON."""
    start: int = 0
    """The first sample: above 0 in pools after the first, if a stream takes several jobs."""

    @property
    def range(self) -> tuple[str, int] | tuple[str, int, int]:
        """Id and range of samples: they distinguish it from the other generations of a pool."""
        return (self.id, self.start, self.samples) if self.start else (self.id, self.samples)


@dataclass(frozen=True)
class Traced:
    """What of a stream is recorded while it is sampled."""

    questions: int
    runs: int = 1
    """``questions``, ``runs``: the first questions of the benchmark, and the first runs of each."""
    run_bytes: int = 1_000_000
    """Most bytes of one run's record, before compression: 100 for each row and 12 for each token, and its texts. What
    comes later is left out, and the record says so."""

    def holds(self, question: int, run: int) -> bool:
        """Whether a run of a question, by its position, is recorded."""
        return question < self.questions and run < self.runs


@dataclass(frozen=True)
class JobPool:
    """The generations that one job makes with one engine start."""

    checkpoint: str
    benchmark: str
    generations: tuple[Generation, ...]

    @cached_property
    def name(self) -> str:
        """``pool-<hash8>``, a hash of the ids and sample ranges in any order."""
        return "pool-" + digest(sorted(g.range for g in self.generations), 8)

    @property
    def key(self) -> tuple[str, str, str]:
        """Checkpoint, benchmark and name: the parts of the paths of the pool."""
        return self.checkpoint, self.benchmark, self.name


@dataclass(frozen=True)
class Import:
    """One imported pool of samples (``searchlens import``)."""

    pair: str
    role: str
    checkpoint: str
    benchmark: str
    policy: str
    """``pair``, ``role``, ``checkpoint``, ``benchmark``, ``policy``: what the samples are of."""
    id: str
    """Of their folder in the store."""
    samples: int
    """Samples per question."""
    grader: str
    """Of the benchmark."""
    questions: str
    """Path of the benchmark's questions."""
    part_of: str = ""
    """Family of the known benchmark of which the questions are a part, and whose terms hold for them; empty: none."""
    log: Mapping[str, Any] = field(default_factory=dict)
    """Where they came from: files, format, model, sampling parameters as found, and what was chosen or inferred."""

    @property
    def name(self) -> str:
        """``pair/benchmark/role/policy``."""
        return "/".join((self.pair, self.benchmark, self.role, self.policy))

    @classmethod
    def read(cls, path: Path) -> Import:
        """One registry file."""
        return cls(**read_json(path))
