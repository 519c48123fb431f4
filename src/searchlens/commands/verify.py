"""`searchlens verify`: check the integrity of a results folder, made here or copied from elsewhere.

Only the folder is needed, at any path. Shards are compared with their sidecars, ids with the specifications that they
are hashes of, manifests with the store, and records of searches with the samples that they drew; every derived table
is read.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import polars as pl
from polars.exceptions import PolarsError

from searchlens.errors import InputError
from searchlens.search.recorder import differing_run
from searchlens.store import shards, traces
from searchlens.store.files import read_json
from searchlens.store.hashing import digest
from searchlens.store.layout import RESULTS_FOLDERS, Layout
from searchlens.store.ranges import shards_of


@dataclass
class Verified:
    """Result of ``verify``.

    Attributes
    ----------
    shards, manifests, tables, traces : int
        Numbers of checked files.
    damaged : list of str
        One message for each damaged or missing file.
    notes : list of str
        One message for each unfinished file; these are harmless.
    """

    shards: int = 0
    manifests: int = 0
    tables: int = 0
    traces: int = 0
    damaged: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def counts(self) -> str:
        """What was checked, in words."""
        traces = f", {self.traces} traces" if self.traces else ""
        return f"{self.shards} shards, {self.manifests} manifests{traces} and {self.tables} tables checked"


def rendered(report: Verified) -> str:
    """A line for each damaged or unfinished file, and the counts."""
    return "\n".join([*report.damaged, *report.notes, f"{report.counts}, {len(report.damaged)} damaged or missing"])


def verify(results: Path) -> Verified:
    """Check everything in a results folder; every shard is hashed and read.

    Raises
    ------
    InputError
        There is no such folder, or nothing in it was ever sampled, scored or configured.
    """
    layout = Layout(results)
    if not layout.is_results_folder():
        raise InputError(f"{results} is not a results folder: it has none of {', '.join(RESULTS_FOLDERS)}")
    report = Verified()
    for _, why in shards.verify(layout):
        report.shards += 1
        report.damaged += [why] if why else []
    report.notes += _strays(layout)
    for path in layout.trace_files():
        report.traces += 1
        if path.with_suffix(".json").exists():
            report.damaged += _trace(layout, path)
        else:
            report.notes.append(f"{path} has no sidecar: its job was killed; `searchlens trace` records again")
    for path in layout.latest_manifests():
        report.manifests += 1
        report.damaged += _manifest(layout, path)
    for path in layout.snapshots():
        report.damaged += _snapshot(path)
    for path in layout.derived():
        report.tables += 1
        report.damaged += _table(path)
    return report


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
                yield f"{path}: the specification of generation {entry['id']} does not have this id"
            folder = layout.generation(content["checkpoint"], content["benchmark"], entry["id"])
            reached = entry.get("start", 0)
            for shard in shards_of(folder):  # a damaged shard is reported above
                reached = max(reached, shard.stop) if shard.start <= reached else reached
            if reached < entry["samples"]:
                yield f"{path} lists samples {reached} to {entry['samples']} of {folder}, which are missing"
    except InputError as error:
        yield error.message
    except (KeyError, TypeError) as error:
        yield f"{path} is not a manifest: {error!r}"


def _trace(layout: Layout, path: Path) -> Iterator[str]:
    try:
        rows = traces.read(path)
        shard = layout.generation(*path.parts[-4:-1]) / path.name
        if not shard.exists():
            return
        recorded = pl.col("question").is_in(rows["id"].unique().to_list())
        samples = pl.scan_parquet(shard).filter(recorded).select("question", "run", "sample", "tokens").collect()
        if run := differing_run(rows, samples):
            yield f"{path}: run {run[1]} of question {run[0]} drew other samples than {shard} has; delete the record"
    except InputError as error:
        yield error.message
    except (PolarsError, OSError):
        return  # the shard is damaged, which is reported above


def _snapshot(path: Path) -> Iterator[str]:
    try:
        if digest(read_json(path), 12) != path.stem:
            yield f"{path} has a configuration whose hash is not its name"
    except InputError as error:
        yield error.message


def _table(path: Path) -> Iterator[str]:
    try:
        pl.read_parquet(path)
    except (PolarsError, OSError) as error:
        yield f"{path} is not readable Parquet ({str(error).splitlines()[0]}): delete it and run again"
