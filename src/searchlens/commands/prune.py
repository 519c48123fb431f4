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
    """What a study no longer uses."""

    generations: list[Path]
    """Folders of samples."""
    traces: list[Path]
    """Folders of records of searches."""
    manifests: list[Path]
    temporary: list[Path]
    """Files that killed jobs were writing, and folders in which they put something together."""

    def paths(self) -> list[Path]:
        """All of them; manifests first, so that none is left that names what is gone."""
        return [*self.manifests, *self.generations, *self.traces, *self.temporary]


def unused(grid: Grid) -> Unused:
    """All in the cells of a study, and no others, that it no longer uses; InputError if an id cannot be computed."""
    if missing := grid.placeholders():
        raise InputError(
            f"cannot tell which samples are unused while inputs are missing: {'; '.join(missing)}",
            "run prune on the machine that has the lock file and the questions",
        )
    layout, cells = grid.layout, set(grid.study.cells)
    used = {item.id for item in grid.study.every_import}
    used |= {g.id for cell in cells for g in grid.jobs.streams(*cell)}  # also of a cell that had another name
    samples, traces = (
        [folder for folder in layout.every(pattern("*", "*", "*")) if folder.name not in used]
        for pattern in (layout.generation, layout.traces)
    )
    current = {path for cell in cells for path in grid.manifests(*cell)}  # not those that a later fill round replaced
    return Unused(
        # Also imported samples of other cells, because no record names them.
        [folder for folder in samples if folder.parts[-3:-1] in cells or _was_imported(folder)],
        [folder for folder in traces if folder.parts[-3:-1] in cells],
        [path for path in layout.manifests() if path.parts[-3:-1] in cells and path not in current],
        [path for path in layout.temporary() if _age(path) > ABANDONED_SECONDS],
    )


def delete(paths: list[Path]) -> None:
    """Delete files and whole folders."""
    files.remove(paths)


def _was_imported(folder: Path) -> bool:
    shards = shards_of(folder)
    return bool(shards) and all(shard.sidecar.get("engine") == "imported" for shard in shards)


def _age(path: Path) -> float:
    """Seconds since a file, or anything in a folder, was written; 0 if some of it has just disappeared."""
    try:
        return time.time() - max(each.stat().st_mtime for each in (path, *path.rglob("*")))
    except FileNotFoundError:
        return 0.0
