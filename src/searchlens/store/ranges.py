"""Which samples the store has: shards, as their sidecars describe them, and the ranges that no shard covers.

Manifests list what a sampling job wrote of its pool when it was done.

Only ``uncovered`` decides whether samples are missing; planner, job, scorer and verifier all call it.

Standard library only, because the planner imports it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from searchlens.errors import InputError
from searchlens.store.files import digest, entries, file_sha256, patiently, read_bytes, read_json
from searchlens.store.layout import Layout, parse_sidecar

_NUMBER = (int, float)
_REQUIRED: Mapping[str, type | tuple[type, ...]] = {
    **dict.fromkeys(("generation", "sha256", "device"), str),
    **dict.fromkeys(("start", "stop", "rows", "tokens", "generated", "requests", "bytes", "mtime_ns"), int),
    **dict.fromkeys(("wall_seconds", "gpu_seconds", "device_count", "prefilled", "reused", "mean_running"), _NUMBER),
}
_OPTIONAL: Mapping[str, type | tuple[type, ...]] = {
    "policies": list,
    **dict.fromkeys(("engine", "host", "version", "commit", "config", "slurm_job", "finished"), str),
}


@dataclass(frozen=True)
class Shard:
    """One published range of samples, as its sidecar describes it."""

    path: Path
    start: int
    stop: int
    """``start``, ``stop``: as the name of the file says."""
    sidecar: Mapping[str, Any]
    """Empty if it is damaged."""
    flaw: str = ""
    """What is wrong with the sidecar: it is damaged, or is that of another shard; empty if nothing is."""

    @cached_property
    def present(self) -> bool:
        """Whether the file exists and has the content that its sidecar states.

        Size and modification time are compared; only a file whose time differs (edited, copied without times, or found
        damaged by a reader) is hashed. ``searchlens verify`` hashes all and brings the times of sound files up to date.
        """
        if self.flaw:
            return False
        try:
            stat = patiently(self.path, self.path.stat)
            if stat.st_size != self.sidecar["bytes"]:
                return False
            same_time: bool = stat.st_mtime_ns == self.sidecar["mtime_ns"]
            return same_time or file_sha256(self.path) == self.sidecar["sha256"]
        except FileNotFoundError:
            return False


def shards_of(folder: Path) -> list[Shard]:
    """The shards of one generation, ordered by start; those without a file, or with a flaw, are included."""
    return sorted(filter(None, map(shard_at, entries(folder))), key=lambda shard: (shard.start, shard.stop))


def shard_at(sidecar: Path) -> Shard | None:
    """The shard of a sidecar; None if its name is none of these, or it has just been moved away. May raise OSError."""
    samples = parse_sidecar(sidecar)
    if samples is None:
        return None
    path = sidecar.with_suffix(".parquet")
    try:
        text = read_bytes(sidecar)
    except FileNotFoundError:
        return None
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        return Shard(path, *samples, {}, f"its sidecar is damaged: {error}")
    if flaw := _flaw(content):
        return Shard(path, *samples, {}, flaw)
    stated = (content["generation"], content["start"], content["stop"])
    if stated != (sidecar.parent.name, *samples):
        flaw = f"its sidecar is of samples {stated[1]} to {stated[2]} of generation {stated[0]!r}"
    return Shard(path, *samples, content, flaw)


def _flaw(content: Any) -> str:
    """What a sidecar lacks; empty if nothing."""
    if not isinstance(content, dict):
        return "its sidecar is damaged: it is no mapping"
    for key, kind in _REQUIRED.items():
        if key not in content:
            return f"its sidecar has no key {key!r}"
        if not isinstance(content[key], kind):
            return f"its sidecar has {key}: {content[key]!r}"
    wrong = (key for key, kind in _OPTIONAL.items() if key in content and not isinstance(content[key], kind))
    return next((f"its sidecar has {key}: {content[key]!r}" for key in wrong), "")


def uncovered(shards: Iterable[Shard], samples: int, start: int = 0) -> list[tuple[int, int]]:
    """Ranges of [start, samples) that no present shard covers, in order and disjoint; shards are in order, too."""
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
    return missing


# ---- manifests


class Listed(NamedTuple):
    """What a manifest lists."""

    checkpoint: str
    benchmark: str
    ranges: frozenset[tuple[str, int, int]]
    """Generation id, and first and last sample wanted."""
    hashes: frozenset[tuple[str, str, str]]
    """Generation id, name and sha256 of every shard."""


def listed(manifest: Path) -> Listed | str:
    """What a manifest lists, or why it cannot be used: it was torn or edited, or another job has just set it aside."""
    try:
        return _listed(manifest, manifest.stat().st_mtime_ns)
    except FileNotFoundError:
        return f"{manifest} is missing"


@lru_cache(maxsize=65_536)
def _listed(manifest: Path, _: int) -> Listed | str:
    """Read a manifest once; the second argument is its time, so that an edited one is read again."""
    try:
        content = read_json(manifest)
        streams = content["generations"]
        if other := next((entry for entry in streams if digest(entry["spec"], 12) != entry["id"]), None):
            return f"{manifest}: the specification of generation {other['id']} does not have this id"
        if not all(isinstance(name, str) for entry in streams for name in entry["policies"]):
            return f"{manifest} is not a manifest: policies are no names"
        return Listed(
            content["checkpoint"],
            content["benchmark"],
            frozenset((entry["id"], entry.get("start", 0), entry["samples"]) for entry in streams),
            frozenset((each["id"], one["file"], one["sha256"]) for each in streams for one in each.get("shards", ())),
        )
    except InputError as error:
        return error.message
    except (KeyError, TypeError, AttributeError) as error:
        return f"{manifest} is not a manifest: {error!r}"


def vouched(layout: Layout, checkpoint: str, benchmark: str, generation_id: str) -> dict[str, set[str]]:
    """Name of a shard to the hashes that the manifests of its cell state of it."""
    found: dict[str, set[str]] = {}
    for path in layout.every(layout.manifest(checkpoint, benchmark, "pool-*")):
        content = listed(path)
        if isinstance(content, Listed):
            for each, name, sha256 in content.hashes:
                if each == generation_id:
                    found.setdefault(name, set()).add(sha256)
    return found
