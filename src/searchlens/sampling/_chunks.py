"""Missing shards, cut into chunks. A chunk is the unit that a job saves as soon as it is finished."""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import polars as pl

from searchlens.plan import Generation
from searchlens.store import files, layout, shards, traces
from searchlens.store.frames import read_unvouched, write_checked
from searchlens.store.provenance import join

log = logging.getLogger(__name__)

_SUMMED = ("wall_seconds", "prefilled", "reused", "gpu_seconds")
_JOINED = ("device", "engine", "host", "version", "commit", "config", "slurm_job")


@dataclass(frozen=True)
class ChunkSamples:
    """The samples of a chunk and their cost."""

    frame: pl.DataFrame
    """``shards.SAMPLES``, sorted by question, then sample."""
    steps: float
    """Decode steps of the engine; the chunk's share of them, if others were sampled at the same time."""
    provenance: shards.Provenance
    """Without ``mean_running``, which ``concatenate`` sets."""
    trace: pl.DataFrame | None = None
    """``TRACES``: what was recorded of their searches; None if nothing was to be."""


def concatenate(parts: Sequence[ChunkSamples]) -> tuple[pl.DataFrame, shards.Provenance]:
    """Return the samples of a shard from its chunks, and their total cost. Chunks may come from several machines."""
    frame, steps = pl.concat([part.frame for part in parts]), sum(part.steps for part in parts)
    provenances = [part.provenance for part in parts]
    costs: dict[str, Any] = {name: sum(getattr(each, name) for each in provenances) for name in _SUMMED}
    where: dict[str, Any] = {name: join(getattr(each, name) for each in provenances) for name in _JOINED}
    return frame, replace(
        provenances[-1],
        **costs,
        **where,
        mean_running=int(frame["generated"].sum()) / steps if steps else 0.0,
        finished=max(each.finished for each in provenances),
    )


@dataclass(frozen=True, eq=False)
class Chunk:
    """Samples [start, stop) of questions [first, last) of one generation."""

    generation: Generation
    folder: Path
    start: int
    stop: int
    first: int
    last: int

    @property
    def path(self) -> Path:
        """File of the finished chunk until its shard is published. Its name is not that of a ``.parquet`` file, so that
        no glob takes it for a shard.
        """
        return layout.chunk(self.folder, (self.start, self.stop), (self.first, self.last))

    @property
    def trace_path(self) -> Path:
        """File of what was recorded of its searches, beside it."""
        return layout.chunk_trace(self.path)

    @property
    def samples(self) -> int:
        """Number of samples."""
        return (self.stop - self.start) * (self.last - self.first)

    def save(self, samples: ChunkSamples) -> None:
        """Write the finished chunk, unless another job has written it."""
        if self.exists:  # with the record of its own searches, which on a GPU drew other tokens
            return
        if (trace := samples.trace) is not None:  # first, because a chunk that exists is not sampled again
            files.replace(self.trace_path, lambda path: traces.write(trace, path))
        metadata = {"steps": repr(samples.steps), "provenance": json.dumps(asdict(samples.provenance))}
        files.publish(self.path, lambda path: write_checked(samples.frame, path, metadata))

    @property
    def exists(self) -> bool:
        """Whether this job or another one has finished the chunk. Cheap: nothing is read."""
        # In this order, because another job removes a chunk only after it has written the shard's sidecar.
        return (
            self.path.exists() or (self.folder / layout.shard_name(self.start, self.stop)).with_suffix(".json").exists()
        )

    def load(self) -> ChunkSamples | None:
        """Return the finished chunk, None if there is none. A file that is damaged is moved to a name of its own."""
        try:
            content = read_unvouched(self.path)
        except FileNotFoundError:  # also if another job has just published it in a shard
            return None
        with suppress(KeyError, TypeError, ValueError):
            if content and content[0].schema == shards.SAMPLES:
                provenance = shards.Provenance(**json.loads(content[1]["provenance"]))
                return ChunkSamples(content[0], float(content[1]["steps"]), provenance)
        damaged = self.path.with_suffix(".unreadable")
        log.warning("%s is damaged and will be sampled again; moved to %s", self.path, damaged.name)
        files.move(self.path, damaged)
        return None


@dataclass(frozen=True, eq=False)
class MissingShard:
    """Samples [start, stop) of a generation, which the store does not have: one shard, in chunks."""

    generation: Generation
    folder: Path
    traces: Path
    """Folder of what is recorded of its searches."""
    start: int
    stop: int
    chunks: tuple[Chunk, ...]

    def publish(self) -> None:
        """Publish the finished chunks as one shard, unless another job has, and remove their files.

        Nothing is done if a chunk is damaged or gone meanwhile: the job draws it again in its next pass.
        """
        parts = [samples for chunk in self.chunks if (samples := chunk.load())]
        if len(parts) == len(self.chunks):
            frame, provenance = concatenate(parts)
            # What was recorded goes first: a shard that exists is not published again.
            then = "; `searchlens trace` records these searches again"
            recorded = (traces.found(chunk.trace_path, then) for chunk in self.chunks)
            if rows := [found for found in recorded if found is not None]:
                traces.publish(self.traces, self.start, self.stop, pl.concat(rows))
            of: dict[str, Any] = {"generation_id": self.generation.id, "policies": self.generation.policies}
            shards.publish(self.folder, self.start, self.stop, frame, **of, provenance=provenance)
        elif not (self.folder / layout.shard_name(self.start, self.stop)).with_suffix(".json").exists():
            return  # no other job has published it
        remove_chunks(self.folder, self.start, self.stop)


def remove_chunks(folder: Path, start: int, stop: int) -> None:
    """Remove the finished chunks of a shard that is there, and the leases on them."""
    files.remove(layout.chunks_of(folder, (start, stop)))
    with suppress(OSError):  # the folder is not empty, or another job has removed it
        layout.chunks(folder).rmdir()
