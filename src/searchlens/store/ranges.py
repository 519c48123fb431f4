"""Which samples the store has: shards, as their sidecars describe them, and the ranges that no shard covers.

Only ``uncovered`` decides whether samples are missing; planner, job, scorer and verifier all call it.

Standard library only, because the planner imports it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from searchlens.store.files import read_json
from searchlens.store.hashing import file_sha256
from searchlens.store.layout import parse_sidecar


@dataclass(frozen=True)
class Shard:
    """One published range of samples, as its sidecar describes it."""

    path: Path
    start: int
    stop: int
    sidecar: Mapping[str, Any]

    @cached_property
    def present(self) -> bool:
        """Whether the file exists and has the content that its sidecar states.

        Size and modification time are compared; only a file whose time differs (edited, or copied without times) is
        hashed. ``searchlens verify`` hashes all and brings the times of sound files up to date.
        """
        try:
            stat = self.path.stat()
        except FileNotFoundError:
            return False
        if stat.st_size != self.sidecar["bytes"]:
            return False
        return bool(stat.st_mtime_ns == self.sidecar["mtime_ns"]) or file_sha256(self.path) == self.sidecar["sha256"]


def gpu_seconds(sidecar: Mapping[str, Any]) -> float:
    """GPU time of a shard, by its sidecar: seconds of sampling times GPUs held, 0 on a CPU."""
    if "gpu_seconds" in sidecar:
        return float(sidecar["gpu_seconds"])
    on_gpu = str(sidecar["device"]).startswith("cuda")
    return float(sidecar["wall_seconds"] * sidecar["device_count"]) if on_gpu else 0.0


def shards_of(folder: Path) -> list[Shard]:
    """The shards of one generation, ordered by start; those without a file are included."""
    if not folder.is_dir():
        return []
    shards = filter(None, map(shard_at, folder.iterdir()))
    return sorted(shards, key=lambda shard: (shard.start, shard.stop))


def shard_at(sidecar: Path) -> Shard | None:
    """The shard that a file describes; None if its name is not that of a sidecar."""
    samples = parse_sidecar(sidecar)
    if samples is None:
        return None
    return Shard(sidecar.with_suffix(".parquet"), *samples, read_json(sidecar))


def missing_ranges(folder: Path, samples: int, start: int = 0) -> list[tuple[int, int]]:
    """Ranges of [start, samples) that no present shard covers.

    Parameters
    ----------
    folder : Path
        ``generations/<checkpoint>/<benchmark>/<id>``.
    samples : int
        Samples per question wanted.
    start : int
        First sample of the range.

    Returns
    -------
    list of (start, stop)
        In order, disjoint; empty if nothing is missing.
    """
    return uncovered(shards_of(folder), samples, start)


def uncovered(shards: Iterable[Shard], samples: int, start: int = 0) -> list[tuple[int, int]]:
    """``missing_ranges`` of shards that have been listed, in order of their start."""
    missing, reached = [], start
    for shard in shards:
        if reached >= samples:
            break
        if shard.stop <= reached or not shard.present:
            continue
        if shard.start > reached:
            missing.append((reached, min(shard.start, samples)))
        reached = shard.stop
    if reached < samples:
        missing.append((reached, samples))
    return [(first, last) for first, last in missing if first < last]
