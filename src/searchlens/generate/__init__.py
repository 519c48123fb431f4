"""The only stage that needs a model: one job samples one pool of policies of one (checkpoint, benchmark).

The engine starts once, and only if something is lacking. Where it repeats bit for bit, chunks are sampled one after
the other, so that the batches of a chunk, and with them its last digits, depend on it alone; elsewhere all chunks share
one run of the driver. Finished chunks are kept beside the shards, so a killed job resumes behind them; a shard is
published once its chunks are all there. The manifest is written last.
"""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from searchlens import files, shards
from searchlens.engines.base import EngineMemoryError
from searchlens.errors import InputError
from searchlens.generate._chunks import Chunk, Gap, Made
from searchlens.generate._job import Job, Prompter
from searchlens.generate._sample import sample
from searchlens.grid import Grid, Pool
from searchlens.progress import Progress
from searchlens.store import gaps, shards_of

__all__ = ["Chunk", "Gap", "Job", "Made", "Prompter", "generate", "sample"]

log = logging.getLogger(__name__)


def generate(grid: Grid, checkpoint: str, benchmark: str, manifest: Path, *, threads: int = 1) -> None:
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

    Raises
    ------
    InputError
        Unknown pool, checkpoint files missing or changed, prompt too long, results folder not writable, memory too
        small, or another job sampling the same pool.
    JobError
        The engine died, or too many searches failed. Finished chunks are kept.
    """
    pool = grid.find_pool(checkpoint, benchmark, str(manifest))
    job = Job(grid, pool, threads)
    lock = grid.results / "locks" / f"{checkpoint}.{benchmark}.{pool.name}"
    with files.exclusive(lock, f"sampling {checkpoint}/{benchmark} {pool.name}"):
        _discard_damaged_gaps(job)
        try:
            _fill(job)
            short = None
        except EngineMemoryError as error:
            short = error.max_rows, str(error)
        if short:  # outside of the handler, whose traceback keeps the engine's memory
            _fill_with_half(job, *short)
        files.replace_text(manifest, json.dumps(_describe(grid, pool), indent=1))
    if "engine" in job.__dict__:
        job.engine.close()


def _fill_with_half(job: Job, rows: int, said: str) -> None:
    half = max(1, rows // 2)
    log.warning("out of memory with %d rows (%s): trying again with %d", rows, said, half)
    job.restart(half)
    try:
        _fill(job)
    except EngineMemoryError as error:
        where = f"checkpoints.{job.pool.checkpoint}"
        more = f", or change {where}.vllm.gpu_memory_utilization" if job.spec["engine"] == "vllm" else ""
        less = f"{where}.max_rows" + (f" or {where}.vllm.max_model_len" if more else "")
        raise InputError(
            f"the engine ran out of memory with max_rows {rows}, and again with {half}: {error}",
            f"lower {less}{more}; finished chunks are kept",
        ) from None


def _fill(job: Job) -> None:
    """Sample what is lacking, and publish each shard once it is whole."""
    lacking, pool = job.gaps(), job.pool
    todo = {chunk: gap for gap in lacking for chunk in gap.chunks if not _kept(chunk)}
    left, total = Counter(todo.values()), sum(chunk.samples for chunk in todo)
    cell = f"{pool.checkpoint}/{pool.benchmark}"
    log.info("%s %s: %d policies, %d samples to draw", cell, pool.name, len(pool.generations), total)
    for gap in lacking:
        if not left[gap]:
            gap.publish()
    rounds = _rounds(job, list(todo))
    progress = Progress(cell, total, "samples")  # behind the engine's start

    def done(count: int, chunk: Chunk) -> None:
        progress.add(count, ", ".join(chunk.generation.policies))

    for chunks in rounds:
        for chunk, made in sample(job, chunks, done):
            chunk.keep(made)
            left[todo[chunk]] -= 1
            if not left[todo[chunk]]:
                todo[chunk].publish()


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


def _describe(grid: Grid, pool: Pool) -> dict[str, Any]:
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
    """Move aside sidecars and files of shards that ``gaps`` calls missing, so that publishing does not meet them."""
    for generation in job.pool.generations:
        folder = job.grid.folder(job.pool.checkpoint, job.pool.benchmark, generation.id)
        if gaps(folder, generation.samples, generation.start):
            gone = [shard for shard in shards_of(folder) if not shard.present]
            for path in shards.set_aside(job.grid, gone):
                log.warning("moved aside %s", path)
