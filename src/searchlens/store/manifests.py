"""Manifests: what a sampling job wrote of its pool when it was done.

Standard library only, because the planner imports it.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from searchlens.errors import InputError
from searchlens.store.files import read_json
from searchlens.store.hashing import digest
from searchlens.store.layout import Layout


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
        entries = content["generations"]
        if other := next((entry for entry in entries if digest(entry["spec"], 12) != entry["id"]), None):
            return f"{manifest}: the specification of generation {other['id']} does not have this id"
        if not all(isinstance(name, str) for entry in entries for name in entry["policies"]):
            return f"{manifest} is not a manifest: policies are no names"
        return Listed(
            content["checkpoint"],
            content["benchmark"],
            frozenset((entry["id"], entry.get("start", 0), entry["samples"]) for entry in entries),
            frozenset((each["id"], one["file"], one["sha256"]) for each in entries for one in each.get("shards", ())),
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
