"""`searchlens imports`: lists what was imported into a results folder, and takes some of it back."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from searchlens.errors import InputError, unknown
from searchlens.grid import Grid, Import
from searchlens.store import files


def listing(grid: Grid) -> str:
    """One line for each imported pool: its name, samples, where it came from, and whether this study reads it."""
    if not grid.study.every_import:
        return f"nothing was imported into {grid.layout.results}"
    used = {item.name for item in grid.study.imports}
    lines = []
    for item in grid.study.every_import:
        source = ", ".join(str(file) for file in item.log.get("files", [])) or "a file that was not recorded"
        note = "" if item.name in used else "; not in this study (study.imports)"
        lines.append(f"{item.name}: {item.samples:,} samples of each question, from {source}{note}")
    return "\n".join(lines)


def remove(grid: Grid, name: str) -> list[Path]:
    """Take imports back: their records, their samples, and the questions of a benchmark that came with them alone.

    The name is ``pair/benchmark``, or more precisely ``pair/benchmark/role`` or ``pair/benchmark/role/policy``. Returns
    what was deleted. Raises InputError if nothing that was imported has this name.
    """
    wanted = name.strip("/").split("/")
    gone = [
        item for item in grid.study.every_import if len(wanted) >= 2 and item.name.split("/")[: len(wanted)] == wanted
    ]
    if not gone:
        raise InputError(
            f"import {unknown(name, (item.name for item in grid.study.every_import))}",
            "PAIR/BENCHMARK, or PAIR/BENCHMARK/ROLE/POLICY",
        )
    kept = [item for item in grid.study.every_import if item not in gone]
    paths = [path for path in dict.fromkeys(_paths(grid, gone, kept)) if path.exists()]
    for path in paths:
        files.remove([path])
        _remove_empty_parents(path, grid.layout.results)
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


def _remove_empty_parents(path: Path, results: Path) -> None:
    for folder in path.parents:
        if not folder.is_relative_to(results) or any(folder.iterdir()):
            return
        files.remove([folder])
