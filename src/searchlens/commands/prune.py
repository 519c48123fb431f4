"""`searchlens prune`: samples and manifests that the configuration no longer names, and leftovers of killed jobs."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

from searchlens.errors import InputError
from searchlens.grid import Grid
from searchlens.store import files
from searchlens.store.ranges import shards_of

ABANDONED_SECONDS = 24 * 3600.0
"""Age after which a temporary file or folder counts as abandoned: longer than any job needs to write one file."""


@dataclass(frozen=True)
class Unused:
    """What a study no longer uses.

    Attributes
    ----------
    generations : list of Path
        Folders of samples.
    traces : list of Path
        Folders of records of searches.
    manifests : list of Path
    temporary : list of Path
        Files that killed jobs were writing, and folders in which they put something together.
    """

    generations: list[Path]
    traces: list[Path]
    manifests: list[Path]
    temporary: list[Path]

    def paths(self) -> list[Path]:
        """All of them; manifests first, so that none is left that names what is gone."""
        return [*self.manifests, *self.generations, *self.traces, *self.temporary]


def unused(grid: Grid) -> Unused:
    """Everything in the cells of a study that it no longer uses; folders of other checkpoints are left alone.

    Raises
    ------
    InputError
        Ids cannot be computed, because weights or questions are not pinned or missing.
    """
    if missing := grid.placeholders():
        raise InputError(
            f"cannot tell which samples are unused while inputs are missing: {'; '.join(missing)}",
            "run prune on the machine that has the lock file and the questions",
        )
    abandoned = [path for path in grid.layout.temporary() if _age(path) > ABANDONED_SECONDS]
    return Unused(_unused_generations(grid), _unused_traces(grid), _stale_manifests(grid), abandoned)


def delete(paths: list[Path]) -> None:
    """Delete files and whole folders."""
    files.remove(paths)


def _unused_generations(grid: Grid) -> list[Path]:
    """Folders of the cells of the study that no cell uses, and imported samples that no record names."""
    cells, used = set(grid.cells), _used(grid)
    folders = grid.layout.every(grid.layout.generation("*", "*", "*"))
    unused = (folder for folder in folders if folder.name not in used)
    return [folder for folder in unused if folder.parts[-3:-1] in cells or _was_imported(folder)]


def _used(grid: Grid) -> set[str]:
    """Ids of all streams and imports: a cell that had another name takes its samples from there."""
    return {g.id for cell in grid.cells for g in grid.streams(*cell)} | {item.id for item in grid.every_import}


def _unused_traces(grid: Grid) -> list[Path]:
    """Folders of records of searches in the cells of the study that no cell uses."""
    cells, used = set(grid.cells), _used(grid)
    folders = grid.layout.every(grid.layout.traces("*", "*", "*"))
    return [folder for folder in folders if folder.name not in used and folder.parts[-3:-1] in cells]


def _was_imported(folder: Path) -> bool:
    shards = shards_of(folder)
    return bool(shards) and all(shard.sidecar.get("engine") == "imported" for shard in shards)


def _stale_manifests(grid: Grid) -> list[Path]:
    """Manifests of no current pool, or replaced by a later fill round."""
    cells = set(grid.cells)
    current = {path for cell in cells for path in grid.manifests(*cell)}
    return [path for path in grid.layout.manifests() if path.parts[-3:-1] in cells and path not in current]


def _age(path: Path) -> float:
    """Seconds since a file, or anything in a folder, was written; 0 if some of it has just disappeared."""
    try:
        return time.time() - max(each.stat().st_mtime for each in (path, *path.rglob("*")))
    except FileNotFoundError:
        return 0.0
