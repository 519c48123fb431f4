"""What a job lacks, cut into chunks: the unit that is kept beside the shards once it is finished."""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from pathlib import Path

import polars as pl
from polars.exceptions import PolarsError

from searchlens.grid import Generation
from searchlens.store import files, layout, shards
from searchlens.store.provenance import join

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Made:
    """Samples and what making them took.

    Attributes
    ----------
    frame : DataFrame
        ``shards.SAMPLES``, by question, then sample.
    steps : float
        Times that the engine drew one token for every running request; a share of them where it ran others beside.
    provenance : Provenance
        ``mean_running`` is left to ``together``.
    """

    frame: pl.DataFrame
    steps: float
    provenance: shards.Provenance


def together(parts: Sequence[Made]) -> tuple[pl.DataFrame, shards.Provenance]:
    """The samples of a shard from its chunks, with what they took in all, and wherever they were made."""
    frame, steps = pl.concat([part.frame for part in parts]), sum(part.steps for part in parts)
    told = [part.provenance for part in parts]
    return frame, replace(
        told[-1],
        wall_seconds=sum(one.wall_seconds for one in told),
        prefilled=sum(one.prefilled for one in told),
        reused=sum(one.reused for one in told),
        gpu_seconds=sum(one.gpu_seconds for one in told),
        mean_running=int(frame["generated"].sum()) / steps if steps else 0.0,
        device=join(one.device for one in told),
        engine=join(one.engine for one in told),
        host=join(one.host for one in told),
        version=join(one.version for one in told),
        commit=join(one.commit for one in told),
        config=join(one.config for one in told),
        slurm_job=join(one.slurm_job for one in told),
        finished=max(one.finished for one in told),
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
        """Where a finished chunk waits for its shard; not a ``.parquet`` name, so that no glob takes it for one."""
        return layout.chunk(self.folder, (self.start, self.stop), (self.first, self.last))

    @property
    def samples(self) -> int:
        """Number of samples in it."""
        return (self.stop - self.start) * (self.last - self.first)

    def keep(self, made: Made) -> None:
        """Write it whole, unless another job has."""
        told = {"steps": repr(made.steps), "provenance": json.dumps(asdict(made.provenance))}
        files.publish(self.path, lambda path: shards.write_parquet(made.frame, path, told))

    @property
    def is_there(self) -> bool:
        """Whether this job or another has finished it; cheap, and its content is not looked at."""
        # In this order: another job removes a chunk only behind the shard's sidecar.
        return (
            self.path.exists() or (self.folder / layout.shard_name(self.start, self.stop)).with_suffix(".json").exists()
        )

    def kept(self) -> Made | None:
        """What an earlier job finished; an unreadable one is removed."""
        if not self.path.exists():
            return None
        try:
            frame, told = pl.read_parquet(self.path), pl.read_parquet_metadata(self.path)
            if frame.height == self.samples and frame.schema == shards.SAMPLES:
                return Made(frame, float(told["steps"]), shards.Provenance(**json.loads(told["provenance"])))
        except (PolarsError, OSError, KeyError, TypeError, ValueError):
            pass
        if self.path.exists():  # or another job has just put it into a shard
            log.warning("%s is unreadable and is made again", self.path)
            self.path.unlink(missing_ok=True)
        return None


@dataclass(frozen=True, eq=False)
class Gap:
    """Samples [start, stop) of a generation that the store lacks: one shard, in chunks."""

    generation: Generation
    folder: Path
    start: int
    stop: int
    chunks: tuple[Chunk, ...]

    @classmethod
    def cut(
        cls, generation: Generation, folder: Path, start: int, stop: int, questions: int, chunk_samples: int
    ) -> Gap:
        """Cut it into blocks of whole questions of about ``chunk_samples`` samples each, of equal size."""
        blocks = max(1, round(questions * (stop - start) / chunk_samples))
        edges = [round(questions * i / blocks) for i in range(blocks + 1)]
        chunks = tuple(Chunk(generation, folder, start, stop, a, b) for a, b in pairwise(edges) if a < b)
        return cls(generation, folder, start, stop, chunks)

    @property
    def is_published(self) -> bool:
        """Whether the shard is in the store, by this job or another."""
        return (self.folder / layout.shard_name(self.start, self.stop)).with_suffix(".json").exists()

    def publish(self) -> None:
        """Put its chunks, all finished, into the store as one shard, unless another job has, and remove them."""
        parts = [made for chunk in self.chunks if (made := chunk.kept())]
        if len(parts) == len(self.chunks):
            self._put(parts)
        elif not self.is_published:
            raise RuntimeError(f"{self.folder}: a chunk cannot be read back")
        for chunk in self.chunks:
            chunk.path.unlink(missing_ok=True)
        with suppress(OSError):  # not empty, or another job was faster
            layout.chunks(self.folder).rmdir()

    def _put(self, parts: Sequence[Made]) -> None:
        frame, provenance = together(parts)
        shards.publish(
            self.folder,
            self.start,
            self.stop,
            frame,
            generation_id=self.generation.id,
            policies=self.generation.policies,
            provenance=provenance,
        )
