"""`searchlens verify`: check the integrity of a results folder, made here or copied from elsewhere.

Only the folder is needed, at any path. Shards are compared with their sidecars, ids with the specifications that they
are hashes of, manifests with the store, and records of searches with the samples that they drew; every derived table
is read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import polars as pl

from searchlens.errors import InputError
from searchlens.plan import Grid
from searchlens.sampling import drawn_otherwise
from searchlens.search.recorder import differing_run
from searchlens.store import files, shards, traces
from searchlens.store.files import digest
from searchlens.store.frames import DAMAGED
from searchlens.store.layout import RESULTS_FOLDERS, Layout
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
        traces = f", {self.traces} traces" if self.traces else ""
        return f"{self.shards} shards, {self.manifests} manifests{traces} and {self.tables} tables checked"


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
    layout = Layout(results)
    if not layout.is_results_folder():
        raise InputError(f"{results} is not a results folder: it has none of {', '.join(RESULTS_FOLDERS)}")
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
        if path.with_suffix(".json").exists():
            harmed += _add(report, path, _trace(layout, path))
        else:
            report.notes.append(f"{path} has no sidecar: its job was killed; `searchlens trace` records again")
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
