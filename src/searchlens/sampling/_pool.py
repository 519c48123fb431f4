"""Sample one pool: the order of its chunks, the publication of its shards, and what happens if a job has to stop.

If the engine repeats bit for bit, chunks are sampled one after the other: the batches of a chunk, and with them its
last digits, then depend on the chunk alone. Otherwise all chunks share one run of the driver.

Several processes may sample the same pool at once: workers, or a job whose scheduler was killed and the one that
replaces it. Nothing is published twice or half, and they share the work: none begins a chunk that another has finished
or samples now (``store.leases``). A worker leaves these to the others; a job, which may be the only one that still
runs, samples them last, and from the other end.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from searchlens.engines.base import EngineMemoryError
from searchlens.engines.kind import engine_kind
from searchlens.errors import InputError, JobError, JobStoppedError, counted
from searchlens.plan import Grid, JobPool, cost
from searchlens.progress import Progress
from searchlens.sampling._chunks import Chunk, MissingShard, remove_chunks
from searchlens.sampling._job import Job
from searchlens.sampling._sample import sample
from searchlens.search.policy import from_spec
from searchlens.store import files, layout, provenance
from searchlens.store.leases import Leases
from searchlens.store.ranges import shards_of, vouched
from searchlens.store.shards import repair, take_over

log = logging.getLogger(__name__)


SIGNALS = (signal.SIGTERM, signal.SIGUSR1, signal.SIGHUP)
"""SIGTERM is what Slurm, its preemption and most batch systems send; SIGUSR1 is the usual choice of ``--signal``.
SIGHUP comes when a terminal is closed, unless ``nohup`` has the process ignore it."""


class GraceExpired(BaseException):
    """The grace period has ended. Not an ``Exception``, so that no handler on the way takes it for a failure."""


@dataclass
class Notice:
    """Whether a job was asked to stop."""

    signal: str = ""
    """The name of the first signal; empty until one has come. Later signals change nothing: a scheduler may signal a
    process both by itself and with its group."""

    def end_grace(self) -> None:
        """Stop the timer of the grace period, so that ``GraceExpired`` does not interrupt what is written now."""
        signal.setitimer(signal.ITIMER_REAL, 0)


@contextmanager
def stop_signals(grace: float) -> Iterator[Notice]:
    """Note the first of ``SIGNALS`` in place of ending; ``grace`` seconds later, ``GraceExpired``. Main thread only."""
    notice = Notice()

    def note(number: int, _: Any) -> None:
        if not notice.signal:
            notice.signal = signal.Signals(number).name
            signal.setitimer(signal.ITIMER_REAL, max(grace, 1e-6))  # 0 would disable the timer

    def expire(_: int, __: Any) -> None:
        raise GraceExpired

    ignored = {signal.SIGHUP} if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN else set()
    handlers = {**dict.fromkeys(set(SIGNALS) - ignored, note), signal.SIGALRM: expire}
    previous = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        yield notice
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        for number, handler in previous.items():
            signal.signal(number, handler)


_PASSES = 4
"""How often a job looks whether anything is missing before it takes that for a fault."""
_PAUSE = 0.5
"""Seconds before the second pass, a multiple before later ones: another job may put back what it has moved."""


def generate(
    grid: Grid, checkpoint: str, benchmark: str, manifest: Path, *, threads: int = 1, notice: Notice | None = None
) -> None:
    """Sample what the store does not have of one pool, then write the pool's manifest, whose name identifies the pool.

    If memory runs out, the engine is started once more, with half as many rows. After a signal (``notice``) no chunk is
    begun, and the running ones have the grace period to finish. Finished chunks are kept in any case.

    Raises InputError if the pool is unknown, checkpoint files are missing or changed, a prompt is too long, the results
    folder is not writable, or memory is too small; JobError if the engine died, or too many searches failed;
    JobStoppedError if a signal came before the pool was complete.
    """
    job = Job(grid, grid.jobs.find_pool(checkpoint, benchmark, str(manifest)), threads)
    fill(job, manifest, notice or Notice(), Leases())
    job.close()


def fill(job: Job, manifest: Path, notice: Notice, leases: Leases, *, shared: bool = False) -> None:
    """``generate`` with the engine of a job, which stays open. ``shared``: leave to others the chunks that they sample
    now, so that the pool may not be complete afterwards.
    """
    grid, pool = job.grid, job.pool
    with Record(grid.layout.job_record(*pool.key), manifest.name, leases) as record:
        try:
            _sample_until_whole(_PoolSampler(job, record, notice, leases, shared=shared))
        except (GraceExpired, JobError):
            notice.end_grace()
            if not notice.signal:
                raise
            # The signal may also have ended the engine's worker processes first: then that is no failure.
            raise _stopped(job, notice) from None
        notice.end_grace()
        if any(grid.missing(pool)):
            if notice.signal:
                raise _stopped(job, notice)
            if shared:
                return
            raise JobError(
                f"{pool.name}: shards were moved or lost while the job ran",
                "run the same command to sample the missing ones",
            )
        for g in pool.generations:
            cell = pool.checkpoint, pool.benchmark
            take_over(grid.layout, grid.stored(*cell, g), grid.folder(*cell, g.id))
        _sweep(job)
        for path in files.aside(grid.layout, grid.damaged_manifests(pool)):
            log.warning("moved aside %s, a manifest that does not list its pool", path)
        if not manifest.exists() or grid.current_manifest(pool) != manifest:
            files.replace_text(manifest, json.dumps(_describe(grid, pool), indent=1))


def _stopped(job: Job, notice: Notice) -> JobStoppedError:
    chunks = [chunk for shard in job.missing_shards() for chunk in shard.chunks if not chunk.exists]
    return JobStoppedError(
        f"stopped by {notice.signal}: {job.pool.checkpoint}/{job.pool.benchmark} {job.pool.name} has"
        f" {sum(chunk.samples for chunk in chunks):,} samples left to draw; finished chunks are kept: run the same"
        " command to resume"
    )


def _sample_until_whole(sampler: _PoolSampler) -> None:
    """Sample the pool, and again what is missing if shards were set aside meanwhile, as by a job that repairs, too."""
    for number in range(_PASSES):
        if number:
            time.sleep(_PAUSE * number)
        _repair(sampler.job)
        _sweep(sampler.job)
        _sample_within_memory(sampler)
        if sampler.notice.signal or sampler.shared or not any(sampler.job.grid.missing(sampler.job.pool)):
            return


def _sample_within_memory(sampler: _PoolSampler) -> None:
    """Sample the pool; if memory runs out, once more with half as many rows."""
    try:
        sampler.run()
        return
    except EngineMemoryError as error:
        rows, reason = error.max_rows, str(error)
    # Outside of the handler, because the error's traceback keeps the engine's memory in use.
    job, half = sampler.job, max(1, rows // 2)
    log.warning("out of memory with %d rows (%s): trying again with %d", rows, reason, half)
    job.close()
    job.max_rows = half
    try:
        sampler.run()
    except EngineMemoryError as error:
        kind, where = engine_kind(job.spec), f"checkpoints.{job.pool.checkpoint}."
        lower = " or ".join(where + key for key in ["max_rows", *kind.keys("max_model_len")])
        change = "".join(f", or change {where}{key}" for key in kind.keys("gpu_memory_utilization"))
        raise InputError(
            f"the engine ran out of memory with max_rows {rows}, and again with {half}: {error}",
            f"lower {lower}{change}; finished chunks are kept",
        ) from None


class _PoolSampler:
    """Samples the missing chunks of a pool, and publishes each shard once it is complete."""

    def __init__(self, job: Job, record: Record, notice: Notice, leases: Leases, *, shared: bool) -> None:
        self.job, self.record, self.notice, self.leases, self.shared = job, record, notice, leases, shared

    def run(self) -> None:
        """Sample all chunks that no job has finished."""
        shards, pool = self.job.missing_shards(), self.job.pool
        self._shard = {chunk: shard for shard in shards for chunk in shard.chunks}
        cell = f"{pool.checkpoint}/{pool.benchmark}"
        if kept := [chunk for chunk in self._shard if chunk.load() is not None]:
            samples = sum(chunk.samples for chunk in kept)
            log.info("%s: %d samples in %s are there already", cell, samples, counted(len(kept), "chunk"))
        for chunk in kept:
            del self._shard[chunk]
        self._finished, self._of_others = set[Chunk](), defaultdict[MissingShard, set[Chunk]](set)
        self._unfinished, total = Counter(self._shard.values()), sum(chunk.samples for chunk in self._shard)
        work = sum(self._tokens(chunk.samples, chunk) for chunk in self._shard)
        self.record.begin(total)
        log.info("%s %s: %d policies, %d samples to draw", cell, pool.name, len(pool.generations), total)
        for shard in shards:
            if not self._unfinished[shard]:
                shard.publish()
        if self.notice.signal:
            return  # before the engine starts
        try:
            free = [chunk for chunk in self._shard if self.leases.is_free(chunk.path)]
            for chunk in set(self._shard) - set(free):
                self._of_others[self._shard[chunk]].add(chunk)
            any(self.leases.take(chunk.path) for chunk in free)  # one, which others see while the engine starts
            rounds = _rounds(self.job, free)
            self._progress = Progress(cell, total, "samples", work)  # after the engine's start, which it does not count
            self._sample(rounds, leased=True)
            left = [chunk for chunk in self._shard if chunk not in self._finished]
            if left and not self.notice.signal:
                log.info("%s: other processes sample %s now", cell, counted(len(left), "chunk"))
                self._sample([] if self.shared else _rounds(self.job, left), leased=False)
        finally:
            self.leases.close()

    def _sample(self, rounds: Sequence[Sequence[Chunk]], *, leased: bool) -> None:
        """Sample chunks; ``leased``: but for those that another process samples now; otherwise the last one first."""
        for chunks in rounds if leased else reversed(rounds):
            together = chunks if leased else list(reversed(chunks))
            for chunk, samples in sample(self.job, self._pending(together, leased=leased), self._count):
                chunk.save(samples)
                self._finish(chunk)
                self.leases.give_back(chunk.path)  # now, so that no worker publishes the shard as well

    def _pending(self, chunks: Sequence[Chunk], *, leased: bool) -> Iterator[Chunk]:
        """Yield the chunks that are to be sampled, until a signal comes."""
        for chunk in chunks:
            if self.notice.signal:
                return
            of_others = self._of_others[self._shard[chunk]]
            if leased and not chunk.exists and not self.leases.take(chunk.path):
                of_others.add(chunk)
                continue
            of_others.discard(chunk)
            if not chunk.exists:
                yield chunk
            elif chunk not in self._finished:  # another process has finished it
                self.leases.give_back(chunk.path, remove=True)
                self._count(chunk.samples, chunk)
                self._finish(chunk)

    def _count(self, samples: int, chunk: Chunk) -> None:
        tokens = self._tokens(samples, chunk)
        self.record.drawn += samples
        self.record.tokens += tokens
        self.record.unfinished[chunk.generation.id] += samples
        self._progress.add(samples, ", ".join(chunk.generation.policies), tokens)

    def _tokens(self, samples: int, chunk: Chunk) -> float:
        """Tokens that samples of a chunk were planned to draw."""
        return samples * self.job.grid.jobs.tokens_each(chunk.generation.policies[0], self.job.pool.benchmark)

    def _finish(self, chunk: Chunk) -> None:
        """Count a finished chunk, and what others have finished since; publish their shard if it was the last one."""
        shard = self._shard[chunk]
        since = {each for each in self._of_others[shard] if each.exists}
        self._of_others[shard] -= since
        for each in since:
            self._count(each.samples, each)
        for each in (chunk, *since):
            self.record.unfinished[each.generation.id] -= each.samples
        self._finished |= {chunk, *since}
        self._unfinished[shard] -= 1 + len(since)
        if not self._unfinished[shard]:
            shard.publish()


def _rounds(job: Job, chunks: Sequence[Chunk]) -> list[list[Chunk]]:
    """Return the chunks of each run of the driver. Starts the engine, if there is any chunk.

    In a shared run the longest come first, by the tokens that a run is expected to draw: a chain of many requests takes
    the longest, however many others run at the same time, and policies that need one request per sample fill the batch
    until the last chain ends. No sample depends on the order.
    """
    if not chunks:
        return []
    if job.engine.repeatable:
        return [[chunk] for chunk in chunks]
    texts = job.grid.jobs.texts(job.pool.benchmark)
    policies = {each.id: from_spec(each.id, each.spec["policy"]) for each in job.pool.generations}
    lengths = {name: cost.tokens_per_run(policy, texts) for name, policy in policies.items()}
    return [sorted(chunks, key=lambda chunk: lengths[chunk.generation.id], reverse=True)]


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


def _repair(job: Job) -> None:
    """Set damaged shards aside."""
    for generation in job.pool.generations:
        cell = (job.pool.checkpoint, job.pool.benchmark, generation.id)
        for path in repair(job.grid.layout, job.grid.folder(*cell), vouched(job.grid.layout, *cell)):
            log.warning("moved aside %s", path)


def _sweep(job: Job) -> None:
    """Remove the chunks that a killed process left of shards that are there."""
    for generation in job.pool.generations:
        folder = job.grid.folder(job.pool.checkpoint, job.pool.benchmark, generation.id)
        for shard in shards_of(folder) if layout.chunks(folder).exists() else ():
            if shard.present:
                remove_chunks(folder, shard.start, shard.stop)


BEAT_SECONDS = 30.0
"""Seconds between two reports of a running job."""


class Record:
    """Writes the job record regularly, which ``searchlens status`` reads and no job does, and keeps up its leases.

    If several processes sample the same pool, the file is that of the last writer.
    """

    def __init__(self, path: Path, manifest: str, leases: Leases) -> None:
        self.path, self.leases = path, leases
        self.total, self.drawn, self.tokens, self._begun = 0, 0, 0.0, time.monotonic()
        self.unfinished: Counter[str] = Counter()
        """Those of the samples ``drawn`` whose chunk is not saved, by generation. ``tokens`` were planned for all."""
        self._identity = {
            "manifest": manifest,
            "host": provenance.host(),
            "pid": os.getpid(),
            "slurm_job": provenance.slurm_job(),
            "started": provenance.now(),
        }
        self._has_ended = threading.Event()
        self._thread = threading.Thread(target=self._beat, daemon=True)

    def begin(self, total: int) -> None:
        """Set how many samples are to be drawn, and count ``drawn`` from 0."""
        self.total, self.drawn, self.tokens, self._begun = total, 0, 0.0, time.monotonic()
        self.unfinished.clear()
        self._write("running")

    def __enter__(self) -> Record:
        self._write("running")
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self._has_ended.set()
        self._thread.join()
        if error is None:
            self._write("done")
        elif isinstance(error, (JobStoppedError, KeyboardInterrupt)):
            self._write("stopped", str(error) or "interrupted")
        else:
            self._write("failed", f"{type(error).__name__}: {error}")

    def _beat(self) -> None:
        while not self._has_ended.wait(BEAT_SECONDS):
            self.leases.beat()
            self._write("running")

    def _write(self, state: str, message: str = "") -> None:
        report: dict[str, Any] = {"state": state, "message": message, "updated": time.time()}
        report |= {"drawn": self.drawn, "total": self.total}
        report |= {"tokens": self.tokens, "seconds": time.monotonic() - self._begun}
        text = json.dumps({**self._identity, **report, "unfinished": dict(self.unfinished)}, indent=1)
        with suppress(OSError, InputError):  # a job does not fail because its record cannot be written
            files.replace_text(self.path, text)
