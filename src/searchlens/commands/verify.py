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
from searchlens.store import shards
from searchlens.store.files import read_json
from searchlens.store.hashing import digest
from searchlens.store.layout import RESULTS_FOLDERS, Layout
from searchlens.store.ranges import shards_of


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
    layout = Layout(results)
    if not layout.is_results_folder():
        raise InputError(f"{results} is no results folder: it has none of {', '.join(RESULTS_FOLDERS)}")
    found = Verified()
    for _, why in shards.verify(layout):
        found.shards += 1
        found.damaged += [why] if why else []
    found.notes += _strays(layout)
    for path in layout.latest_manifests():
        found.manifests += 1
        found.damaged += _manifest(layout, path)
    for path in layout.snapshots():
        found.damaged += _snapshot(path)
    for path in layout.derived():
        found.tables += 1
        found.damaged += _table(path)
    return found


def _strays(layout: Layout) -> Iterator[str]:
    """Shards whose job was killed before it wrote the sidecar."""
    for path in layout.shards():
        if not path.with_suffix(".json").exists():
            yield f"{path} has no sidecar yet: the next run takes it over"


def _manifest(layout: Layout, path: Path) -> Iterator[str]:
    try:
        content = read_json(path)
        for entry in content["generations"]:
            if digest(entry["spec"], 12) != entry["id"]:
                yield f"{path}: what it says of {entry['id']} is not what that id stands for"
            folder = layout.generation(content["checkpoint"], content["benchmark"], entry["id"])
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
