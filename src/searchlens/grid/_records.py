"""What a grid is made of: streams of samples, the pools that jobs make of them, what was imported; names of files."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from searchlens.store.files import read_json
from searchlens.store.hashing import digest


@dataclass(frozen=True)
class Generation:
    """One stream of samples per question: everything that decides its tokens is in ``spec``.

    Attributes
    ----------
    id : str
        12 hexadecimal digits of the sha256 of ``spec``.
    policies : tuple of str
        The configured names that resolve to it, in configuration order.
    samples : int
        Samples per question wanted; not part of the id.
    spec : mapping
        Plain JSON.
    start : int
        The first of them: above 0 in the pools of a stream that takes several jobs.
    """

    id: str
    policies: tuple[str, ...]
    samples: int
    spec: Mapping[str, Any]
    start: int = 0

    @property
    def range(self) -> tuple[str, int] | tuple[str, int, int]:
        """What tells it from the other generations of a pool."""
        return (self.id, self.start, self.samples) if self.start else (self.id, self.samples)


@dataclass(frozen=True)
class Pool:
    """The generations that one job makes with one engine start."""

    checkpoint: str
    benchmark: str
    generations: tuple[Generation, ...]

    @cached_property
    def name(self) -> str:
        """``pool-<hash8>``, by the ids and sample ranges whatever their order."""
        return "pool-" + digest(sorted(g.range for g in self.generations), 8)


@dataclass(frozen=True)
class Import:
    """One pool of samples that somebody brought (``searchlens import``)."""

    pair: str
    role: str
    checkpoint: str
    benchmark: str
    policy: str
    id: str
    samples: int
    grader: str
    questions: str

    @classmethod
    def read(cls, path: Path) -> Import:
        """One registry file."""
        return cls(**read_json(path))


# ---- file names


def import_path(results: Path, benchmark: str, pair: str, role: str, policy: str) -> Path:
    """Registry file of one imported pool."""
    return results / "imports" / benchmark / pair / role / f"{policy}.json"


READOUTS_SUFFIX = ".arrow.xz"


def readouts_path(folder: Path, checkpoint: str, benchmark: str) -> Path:
    """Compact readouts of a cell, in a folder of them."""
    return folder / checkpoint / f"{benchmark}{READOUTS_SUFFIX}"


def sidecar_of(readouts: Path) -> Path:
    """What says of compact readouts what they were drawn from."""
    return readouts.with_name(readouts.name.removesuffix(READOUTS_SUFFIX) + ".json")


_MANIFEST = re.compile(r"(pool-[0-9a-f]{8})(?:\.r(\d+))?\.json")


def manifest_name(pool: str, fill: int) -> str:
    """Of a fill round of a pool: 0 is the first one."""
    return f"{pool}.json" if fill == 0 else f"{pool}.r{fill}.json"


def parse_manifest(path: Path) -> tuple[str, int] | None:
    """Name of the pool and fill round of a manifest; None for any other file."""
    match = _MANIFEST.fullmatch(path.name)
    return (match[1], int(match[2] or 0)) if match else None


def latest_manifests(results: Path) -> list[Path]:
    """Of every pool that a results folder has, current or not, the manifest of the highest fill round."""
    latest: dict[tuple[Path, str], tuple[int, Path]] = {}
    for path in (results / "manifests").glob("*/*/pool-*.json"):
        if found := parse_manifest(path):
            pool, fill = (path.parent, found[0]), found[1]
            latest[pool] = max(latest.get(pool, (fill, path)), (fill, path))
    return sorted(path for _, path in latest.values())
