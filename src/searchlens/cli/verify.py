"""`searchlens verify` and `prune`: whether a results folder is whole, and what of it the configuration no longer names.

To check one, only the folder is needed, at any path. Shards are compared with their sidecars, ids with the
specifications that they are hashes of, manifests with the store, and records of searches with the samples that they
drew; every derived table is read.

`searchlens rerun` takes samples out of the store, so that the next run draws them again; `searchlens imports` lists
imported ones, or takes them back.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import polars as pl

from searchlens.errors import InputError, counted, unknown
from searchlens.plan import Grid, Import
from searchlens.search.recorder import differing_run
from searchlens.store import files, shards, traces
from searchlens.store.files import digest
from searchlens.store.frames import DAMAGED
from searchlens.store.layout import Layout
from searchlens.store.ranges import Listed, Shard, listed, shards_of, vouched


@dataclass
class Verified:
    """Result of ``verify``."""

    shards: int = 0
    manifests: int = 0
    tables: int = 0
    traces: int = 0
    """``shards``, ``manifests``, ``tables``, ``traces``: numbers of checked files."""
    damaged: list[str] = field(default_factory=list)
    """One message for each damaged or missing file."""
    notes: list[str] = field(default_factory=list)
    """One message for each unfinished file; these are harmless."""
    repaired: list[str] = field(default_factory=list)
    """One message for each file that was set aside or written again."""
    advice: list[str] = field(default_factory=list)
    """What to do about what is damaged, one sentence for each kind of file."""

    @property
    def counts(self) -> str:
        """What was checked, in words."""
        traces = f", {counted(self.traces, 'trace')}" if self.traces else ""
        counts = f"{counted(self.shards, 'shard')}, {counted(self.manifests, 'manifest')}{traces}"
        return f"{counts} and {counted(self.tables, 'table')} checked"


def rendered(report: Verified) -> str:
    """A line for each damaged, unfinished or repaired file, and the counts."""
    counts = f"{report.counts}, {len(report.damaged)} damaged or missing"
    return "\n".join([*report.damaged, *report.notes, *report.repaired, counts])


def verify(results: Path, *, repair: bool = False, study: Grid | None = None) -> Verified:
    """Check everything in a results folder; every shard is hashed and read.

    ``repair``: move what is damaged into ``aside/``, and write new sidecars of whole shards that lost theirs, at once;
    a run does this only with what it needs. Checkpoints of a given study are compared with what the samples were drawn
    with. Raises InputError if there is no such folder, or nothing in it was ever sampled, scored or configured.
    """
    from searchlens.sampling import drawn_otherwise

    layout = Layout(results)
    layout.require_results()
    report, unusable, harmed = Verified(), list[Shard](), list[Path]()
    for shard, why in shards.verify(layout):
        report.shards += 1
        if why:
            report.damaged.append(why)
            unusable.append(shard)
    killed = (path for path in layout.shards() if not path.with_suffix(".json").exists())
    again = "the next run takes it over, or sets it aside if it is not whole"
    report.notes += [f"{path} has no sidecar: {again}" for path in killed]
    for path in layout.trace_files():
        report.traces += 1
        harmed += _add(report, path, _trace(layout, path))
    for path in layout.latest_manifests():
        report.manifests += 1
        content = listed(path)
        harmed += _add(report, path, [content] if isinstance(content, str) else [])
        report.damaged += _missing(layout, path, content) if isinstance(content, Listed) else []
    for path in layout.snapshots():
        harmed += _add(report, path, _snapshot(path))
    for path in layout.derived():
        report.tables += 1
        harmed += _add(report, path, _table(path))
    if repair:
        report.repaired += _repaired(layout, unusable, harmed)
    report.advice += _advice(report, unusable, harmed)
    try:
        otherwise = list(drawn_otherwise(study)) if study else []
    except InputError as error:
        report.notes.append(f"samples are not compared with their checkpoints: {error.message}")
        return report
    report.damaged += otherwise
    if otherwise:
        report.advice.append("restore the files of the checkpoint, or set its samples aside with `searchlens rerun`")
    return report


def _add(report: Verified, path: Path, reasons: Iterable[str]) -> list[Path]:
    """Report a file; itself, if it is damaged."""
    found = list(reasons)
    report.damaged += found
    return [path] if found else []


def _advice(report: Verified, unusable: Sequence[Shard], harmed: Sequence[Path]) -> Iterator[str]:
    imported = [shard for shard in unusable if shard.sidecar.get("engine") == "imported"]
    if len(report.damaged) > len(harmed) + len(imported):
        yield "the next run samples damaged shards again, and only them"
    if imported:
        yield "import damaged imports again: `searchlens imports` names their logs"
    if harmed and not report.repaired:
        yield "`searchlens verify --repair` sets other damaged files aside; the next run makes them again"


def _repaired(layout: Layout, unusable: Sequence[Shard], harmed: Sequence[Path]) -> list[str]:
    """Set damaged files aside, and describe whole shards without a sidecar anew; what was done, in words."""
    before = set(layout.sidecars())
    torn = [shard.path.with_suffix(".json") for shard in unusable if not shard.sidecar]
    moved = files.aside(layout, torn)
    moved += shards.set_aside(layout, [shard for shard in unusable if shard.sidecar])
    for folder in layout.every(layout.generation("*", "*", "*")):
        moved += shards.repair(layout, folder, vouched(layout, *folder.parts[-3:]))
    moved += files.aside(layout, harmed)
    anew = sorted((set(layout.sidecars()) - before) | {path for path in torn if path.exists()})
    return [*(f"set aside: {path}" for path in moved), *(f"described anew: {path}" for path in anew)]


def _missing(layout: Layout, path: Path, content: Listed) -> Iterator[str]:
    for key, start, samples in sorted(content.ranges):
        folder = layout.generation(content.checkpoint, content.benchmark, key)
        reached = start
        for shard in shards_of(folder):  # a damaged shard is reported above
            reached = max(reached, shard.stop) if shard.start <= reached else reached
        if reached < samples:
            yield f"{path} lists samples {reached} to {samples} of {folder}, which are missing"


def _trace(layout: Layout, path: Path) -> Iterator[str]:
    try:
        rows = traces.read(path)
        shard = layout.generation(*path.parts[-4:-1]) / path.name
        if not shard.exists():
            return
        recorded = pl.col("question").is_in(rows["id"].unique().to_list())
        content = files.read_bytes(shard)
        samples = pl.scan_parquet(content).filter(recorded).select("question", "run", "sample", "tokens").collect()
        if run := differing_run(rows, samples):
            yield f"{path}: run {run[1]} of question {run[0]} drew other samples than {shard} has; delete the record"
    except InputError as error:
        yield error.message
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException):
        return  # the shard is damaged, which is reported above


def _snapshot(path: Path) -> Iterator[str]:
    try:
        if digest(files.read_json(path), 12) != path.stem:
            yield f"{path} has a configuration whose hash is not its name"
    except InputError as error:
        yield error.message


def _table(path: Path) -> Iterator[str]:
    content = files.read_bytes(path)
    try:
        pl.read_parquet(content)
    except DAMAGED as error:
        yield f"{path} is not readable Parquet ({str(error).splitlines()[0]})"


# ---- what is not used

ABANDONED_SECONDS = 24 * 3600.0
"""Age after which a temporary file or folder counts as abandoned: longer than any job needs to write one file."""


def unused(grid: Grid) -> dict[str, list[Path]]:
    """All in the cells of a study, and no others, that it no longer uses; InputError if an id cannot be computed.

    Manifests are first, so that none is left that names what is gone.
    """
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
    return {
        "manifest": [path for path in layout.manifests() if path.parts[-3:-1] in cells and path not in current],
        # Also imported samples of other cells, because no record names them.
        "generation folder": [each for each in samples if each.parts[-3:-1] in cells or _was_imported(each)],
        "trace folder": [folder for folder in traces if folder.parts[-3:-1] in cells],
        "temporary file": [path for path in layout.temporary() if _age(path) > ABANDONED_SECONDS],
    }


def _was_imported(folder: Path) -> bool:
    found = shards_of(folder)
    return bool(found) and all(shard.sidecar.get("engine") == "imported" for shard in found)


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
    stored = [shard for folder in folders for shard in shards_of(folder)]
    return stored, shards.set_aside(grid.layout, stored)


def listing(grid: Grid) -> list[str]:
    """One line for each imported pool: its name, samples, where it came from, and whether this study reads it."""
    used = {item.name for item in grid.study.imports}
    lines = []
    for item in grid.study.every_import:
        source = ", ".join(str(file) for file in item.log.get("files", [])) or "a file that was not recorded"
        note = "" if item.name in used else "; not in this study (study.imports)"
        lines.append(f"{item.name}: {counted(item.samples, 'sample')} of each question, from {source}{note}")
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
        raise InputError(f"import {known}", "`searchlens imports` lists names, of which PAIR/BENCHMARK is enough")
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
