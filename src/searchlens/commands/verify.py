"""`searchlens verify`: whether a results folder, made here or copied from elsewhere, is what it says it is.

Nothing but the folder is needed, and nothing in it depends on where it lies: shards are held against their sidecars,
ids against what they stand for, manifests against the store, and every derived table is read.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import polars as pl
from polars.exceptions import PolarsError

from searchlens.errors import InputError
from searchlens.grid import latest_manifests
from searchlens.store import shards
from searchlens.store.files import read_json
from searchlens.store.hashing import digest
from searchlens.store.ranges import shards_of

_DERIVED = ("verdicts", "scores", "landscape", "recovery", "boptr")


@dataclass
class Verified:
    """What was found.

    Attributes
    ----------
    shards, manifests, tables : int
        How many were looked at.
    damaged : list of str
        What is not as it should be, one message each.
    notes : list of str
        What is unfinished, and harmless.
    """

    shards: int = 0
    manifests: int = 0
    tables: int = 0
    damaged: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def verify(results: Path) -> Verified:
    """Look at everything in a results folder; every shard is hashed and read.

    Raises
    ------
    InputError
        There is no such folder, or nothing in it was ever sampled, scored or configured.
    """
    known = ("generations", "manifests", "config", *_DERIVED)
    if not any((results / name).is_dir() for name in known):
        raise InputError(f"{results} is no results folder: it has none of {', '.join(known)}")
    found = Verified()
    for _, why in shards.verify(results):
        found.shards += 1
        found.damaged += [why] if why else []
    found.notes += _strays(results)
    for path in latest_manifests(results):
        found.manifests += 1
        found.damaged += _manifest(results, path)
    for path in sorted((results / "config").glob("*.json")):
        found.damaged += _snapshot(path)
    for path in (path for name in _DERIVED for path in sorted((results / name).rglob("*.parquet"))):
        found.tables += 1
        found.damaged += _table(path)
    return found


def _strays(results: Path) -> Iterator[str]:
    """Shards that a job was killed behind, before it had written the sidecar."""
    for path in sorted((results / "generations").glob("*/*/*/*.parquet")):
        if not path.with_suffix(".json").exists():
            yield f"{path} has no sidecar yet: the next run takes it over"


def _manifest(results: Path, path: Path) -> Iterator[str]:
    try:
        content = read_json(path)
        for entry in content["generations"]:
            if digest(entry["spec"], 12) != entry["id"]:
                yield f"{path}: what it says of {entry['id']} is not what that id stands for"
            folder = results / "generations" / content["checkpoint"] / content["benchmark"] / entry["id"]
            reached = entry.get("start", 0)
            for shard in shards_of(folder):  # one that is there in name only was told of already
                reached = max(reached, shard.stop) if shard.start <= reached else reached
            if reached < entry["samples"]:
                yield f"{path} counts on samples {reached} to {entry['samples']} of {folder}, which are not there"
    except InputError as error:
        yield error.message
    except (KeyError, TypeError) as error:
        yield f"{path} is no manifest: {error!r}"


def _snapshot(path: Path) -> Iterator[str]:
    try:
        if digest(read_json(path), 12) != path.stem:
            yield f"{path} is not the configuration that its name stands for"
    except InputError as error:
        yield error.message


def _table(path: Path) -> Iterator[str]:
    try:
        pl.read_parquet(path)
    except (PolarsError, OSError) as error:
        yield f"{path} is not readable Parquet ({str(error).splitlines()[0]}): delete it and run again"
