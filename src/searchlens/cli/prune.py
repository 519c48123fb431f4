"""`searchlens prune`: samples and manifests that the configuration no longer names, and leftovers of killed jobs.

`searchlens rerun` takes samples out of the store, so that the next run draws them again; `searchlens imports` lists
imported ones, or takes them back.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from searchlens.errors import InputError, unknown
from searchlens.plan import Grid, Import
from searchlens.store import files
from searchlens.store.ranges import Shard, shards_of
from searchlens.store.shards import set_aside

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


def _was_imported(folder: Path) -> bool:
    shards = shards_of(folder)
    return bool(shards) and all(shard.sidecar.get("engine") == "imported" for shard in shards)


def _age(path: Path) -> float:
    """Seconds since a file, or anything in a folder, was written; 0 if some of it has just disappeared."""
    try:
        return time.time() - max(each.stat().st_mtime for each in (path, *path.rglob("*")))
    except FileNotFoundError:
        return 0.0


def set_cell_aside(grid: Grid, checkpoint: str, benchmark: str, policy: str | None) -> tuple[list[Shard], list[Path]]:
    """Move the shards of a cell, or of a policy of it, out of the store; returns them, and their files' new paths."""
    generations = [g for g in grid.jobs.generations(checkpoint, benchmark) if policy is None or policy in g.policies]
    own = {g.id: grid.folder(checkpoint, benchmark, g.id) for g in generations}
    folders = dict.fromkeys(folder for key, first in own.items() for folder in (first, *grid.folders[key]))
    shards = [shard for folder in folders for shard in shards_of(folder)]
    return shards, set_aside(grid.layout, shards)


def listing(grid: Grid) -> list[str]:
    """One line for each imported pool: its name, samples, where it came from, and whether this study reads it."""
    used = {item.name for item in grid.study.imports}
    lines = []
    for item in grid.study.every_import:
        source = ", ".join(str(file) for file in item.log.get("files", [])) or "a file that was not recorded"
        note = "" if item.name in used else "; not in this study (study.imports)"
        lines.append(f"{item.name}: {item.samples:,} samples of each question, from {source}{note}")
    return lines or [f"nothing was imported into {grid.layout.results}"]


def remove(grid: Grid, name: str) -> list[Path]:
    """Take imports back: their records, their samples, and the questions of a benchmark that came with them alone.

    The name is ``pair/benchmark``, or more precisely ``pair/benchmark/role`` or ``pair/benchmark/role/policy``. Returns
    what was deleted. Raises InputError if nothing that was imported has this name.
    """
    wanted = name.strip("/").split("/")
    every, count = grid.study.every_import, len(wanted)
    gone = [item for item in every if count >= 2 and item.name.split("/")[:count] == wanted]
    if not gone:
        known = unknown(name, (item.name for item in every))
        raise InputError(f"import {known}", "PAIR/BENCHMARK, or PAIR/BENCHMARK/ROLE/POLICY")
    kept = [item for item in every if item not in gone]
    paths = [path for path in dict.fromkeys(_paths(grid, gone, kept)) if path.exists()]
    for path in paths:
        files.remove([path])
        for folder in path.parents:
            if not folder.is_relative_to(grid.layout.results) or any(folder.iterdir()):
                break
            files.remove([folder])
    return paths


def _paths(grid: Grid, gone: Sequence[Import], kept: Sequence[Import]) -> list[Path]:
    """Records last: until they are gone, the same command goes on where it was interrupted."""
    paths = list[Path]()
    places = {(item.checkpoint, item.benchmark, item.id) for item in kept}
    for item in gone:
        place = (item.checkpoint, item.benchmark, item.id)
        if place not in places:
            paths += [grid.layout.generation(*place), grid.layout.recorded(*place)]
            paths.append(grid.layout.compared(item.checkpoint, item.benchmark))
        if item.benchmark not in {other.benchmark for other in kept}:
            paths.append(grid.layout.imported_questions(item.benchmark))
    return paths + [grid.layout.import_record(item.benchmark, item.pair, item.role, item.policy) for item in gone]
