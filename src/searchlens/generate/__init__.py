"""The only stage that needs a model: one job samples one pool of policies of one (checkpoint, benchmark).

The engine starts once, and only if something is lacking. Where it repeats bit for bit, chunks are sampled one after
the other, so that the batches of a chunk, and with them its last digits, depend on it alone; elsewhere all chunks share
one run of the driver. Finished chunks are kept beside the shards, so a killed job resumes behind them; a shard is
published once its chunks are all there. The manifest is written last.

Two jobs may make the same pool at once, such as one that nobody waits for any more and the one that was started in its
place. Nothing is published twice or half, and they share the work: the second begins at the other end, and neither
begins a chunk that the other has finished.
"""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from searchlens.engines.base import EngineMemoryError
from searchlens.errors import InputError, JobError, JobStoppedError
from searchlens.generate._chunks import Chunk, Gap, Made
from searchlens.generate._job import Job, Prompter
from searchlens.generate._notice import Notice, Overdue, told_to_end
from searchlens.generate._record import Record
from searchlens.generate._sample import sample
from searchlens.grid import Grid, JobPool
from searchlens.progress import Progress
from searchlens.store import files, shards
from searchlens.store.ranges import missing_ranges, shards_of

__all__ = ["Chunk", "Gap", "Job", "Made", "Notice", "Overdue", "Prompter", "generate", "sample", "told_to_end"]

log = logging.getLogger(__name__)


def generate(
    grid: Grid, checkpoint: str, benchmark: str, manifest: Path, *, threads: int = 1, notice: Notice | None = None
) -> None:
    """Sample what the store lacks of one pool, then write its manifest.

    Where memory runs out, the engine is started again, once, with half as many rows.

    Parameters
    ----------
    grid : Grid
    checkpoint, benchmark : str
    manifest : Path
        ``Grid.current_manifest`` of the pool; its name says which pool.
    threads : int
        CPU threads of the engine.
    notice : Notice, optional
        Of ``told_to_end``: once it is given, no chunk is begun any more, and those under way are finished until the
        grace is over.

    Raises
    ------
    InputError
        Unknown pool, checkpoint files missing or changed, prompt too long, results folder not writable, or memory too
        small.
    JobError
        The engine died, or too many searches failed. Finished chunks are kept.
    JobStoppedError
        The notice was given before the pool was whole. Finished chunks are kept.
    """
    pool, notice = grid.find_pool(checkpoint, benchmark, str(manifest)), notice or Notice()
    with (
        Record(grid.layout.job_record(*pool.key), manifest.name) as record,
        files.alone(grid.layout.lock(*pool.key)) as alone,
    ):
        job = Job(grid, pool, threads)
        if not alone:
            log.warning("another job is making %s/%s %s: beginning at the other end", checkpoint, benchmark, pool.name)
        _discard_damaged_gaps(job)
        try:
            _fill_in_memory(_Filling(job, record, notice, backwards=not alone))
        except (Overdue, JobError):
            notice.over()
            if not notice.signal:
                raise
            raise _stopped(job, notice) from None  # also where the signal took an engine's other processes first
        notice.over()
        if any(True for _ in grid.lacking(pool)):
            if notice.signal:
                raise _stopped(job, notice)
            raise JobError(
                f"{pool.name}: shards were moved or lost while it ran", "run again: it makes what is missing"
            )
        if not manifest.exists() or grid.current_manifest(pool) != manifest:
            files.replace_text(manifest, json.dumps(_describe(grid, pool), indent=1))
    if "engine" in job.__dict__:
        job.engine.close()


def _stopped(job: Job, notice: Notice) -> JobStoppedError:
    left = sum(chunk.samples for gap in job.gaps() for chunk in gap.chunks if not chunk.is_there)
    return JobStoppedError(
        f"stopped by {notice.signal}: {job.pool.checkpoint}/{job.pool.benchmark} {job.pool.name} has"
        f" {left:,} samples left to draw; what was finished is kept: run again, and it goes on behind it"
    )


def _fill_in_memory(filling: _Filling) -> None:
    """Fill the pool; where memory does not suffice, with half as many rows."""
    try:
        filling.run()
        return
    except EngineMemoryError as error:
        rows, said = error.max_rows, str(error)
    # outside of the handler, whose traceback keeps the engine's memory
    job, half = filling.job, max(1, rows // 2)
    log.warning("out of memory with %d rows (%s): trying again with %d", rows, said, half)
    job.restart(half)
    try:
        filling.run()
    except EngineMemoryError as error:
        where = f"checkpoints.{job.pool.checkpoint}"
        more = f", or change {where}.vllm.gpu_memory_utilization" if job.spec["engine"] == "vllm" else ""
        less = f"{where}.max_rows" + (f" or {where}.vllm.max_model_len" if more else "")
        raise InputError(
            f"the engine ran out of memory with max_rows {rows}, and again with {half}: {error}",
            f"lower {less}{more}; finished chunks are kept",
        ) from None


class _Filling:
    """Samples what is lacking, and publishes each shard once it is whole."""

    def __init__(self, job: Job, record: Record, notice: Notice, *, backwards: bool) -> None:
        self.job, self.record, self.notice, self.backwards = job, record, notice, backwards

    def run(self) -> None:
        """Go through all chunks that are not there."""
        lacking, pool = self.job.gaps(), self.job.pool
        self._gap = {chunk: gap for gap in lacking for chunk in gap.chunks if not _kept(chunk)}
        self._left, total = Counter(self._gap.values()), sum(chunk.samples for chunk in self._gap)
        self.record.begin(total)
        cell = f"{pool.checkpoint}/{pool.benchmark}"
        log.info("%s %s: %d policies, %d samples to draw", cell, pool.name, len(pool.generations), total)
        for gap in lacking:
            if not self._left[gap]:
                gap.publish()
        if self.notice.signal:
            return  # before the engine starts
        rounds = _rounds(self.job, list(self._gap))
        self._progress = Progress(cell, total, "samples")  # behind the engine's start
        for chunks in reversed(rounds) if self.backwards else rounds:
            for chunk, made in sample(self.job, self._begun(chunks), self._count):
                chunk.keep(made)
                self._settle(chunk)

    def _begun(self, chunks: Sequence[Chunk]) -> Iterator[Chunk]:
        for chunk in reversed(chunks) if self.backwards else chunks:
            if self.notice.signal:
                return
            if chunk.is_there:
                self._count(chunk.samples, chunk)
                self._settle(chunk)
            else:
                yield chunk

    def _count(self, samples: int, chunk: Chunk) -> None:
        self.record.drawn += samples
        self._progress.add(samples, ", ".join(chunk.generation.policies))

    def _settle(self, chunk: Chunk) -> None:
        """Take note of a chunk that is there; with the last one of a shard, publish it."""
        gap = self._gap[chunk]
        self._left[gap] -= 1
        if not self._left[gap]:
            gap.publish()


def _kept(chunk: Chunk) -> bool:
    if chunk.kept() is None:
        return False
    log.info("%s: %d samples kept from an earlier run", chunk.path.name, chunk.samples)
    return True


def _rounds(job: Job, chunks: Sequence[Chunk]) -> list[list[Chunk]]:
    """Which chunks share a run of the driver.

    Searches come first: a chain of many requests takes the longest however many run beside it, and what is drawn in one
    request fills the batch until the last of them ends.
    """
    if not chunks:
        return []
    if job.engine.repeatable:
        return [[chunk] for chunk in chunks]
    return [sorted(chunks, key=lambda chunk: _is_plain(chunk.generation.spec))]


def _is_plain(spec: Any) -> bool:
    return bool(spec["policy"]["controller"]["name"] == "autoregressive")


def _describe(grid: Grid, pool: JobPool) -> dict[str, Any]:
    entries = []
    for generation in pool.generations:
        folder = grid.folder(pool.checkpoint, pool.benchmark, generation.id)
        present = [shard for shard in shards_of(folder) if shard.present]
        entries.append(
            {
                "id": generation.id,
                "policies": list(generation.policies),
                "start": generation.start,
                "samples": generation.samples,
                "spec": generation.spec,
                "shards": [
                    {"file": s.path.name, "rows": s.sidecar["rows"], "sha256": s.sidecar["sha256"]} for s in present
                ],
            }
        )
    return {"pool": pool.name, "checkpoint": pool.checkpoint, "benchmark": pool.benchmark, "generations": entries}


def _discard_damaged_gaps(job: Job) -> None:
    """Move aside sidecars and files of shards that ``missing_ranges`` names, so that publishing does not meet them."""
    for generation in job.pool.generations:
        folder = job.grid.folder(job.pool.checkpoint, job.pool.benchmark, generation.id)
        if missing_ranges(folder, generation.samples, generation.start):
            gone = [shard for shard in shards_of(folder) if not shard.present]
            for path in shards.set_aside(job.grid.layout, gone):
                log.warning("moved aside %s", path)
