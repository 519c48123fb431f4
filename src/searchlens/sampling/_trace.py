"""Record searches whose samples exist already: draw their first runs again, and keep the record if nothing differs."""

from __future__ import annotations

from itertools import zip_longest
from pathlib import Path

import polars as pl

from searchlens.errors import InputError, JobError, require_known
from searchlens.plan import Generation, Grid, JobPool, Traced
from searchlens.sampling._chunks import Chunk
from searchlens.sampling._job import Job
from searchlens.sampling._sample import sample
from searchlens.search.policy import from_spec
from searchlens.store import shards, traces
from searchlens.store.ranges import Shard, shards_of


def trace(grid: Grid, checkpoint: str, benchmark: str, policy: str, traced: Traced, *, threads: int = 1) -> list[Path]:
    """Record the first runs of a policy on the first questions, as far as there are any, and return the files.

    A sample depends on its seed alone, so drawing it again on the same kind of machine gives the same tokens. All of
    them are compared with the stored ones, and nothing is written if one differs.

    Raises InputError if nothing is sampled under this policy here, or samples are missing, and JobError if tokens
    differ.
    """
    generation = _generation(grid, checkpoint, benchmark, policy)
    job = Job(grid, JobPool(checkpoint, benchmark, (generation,)), threads, traced)
    folder = grid.folder(checkpoint, benchmark, generation.id)
    width = from_spec(generation.id, generation.spec["policy"]).width
    stop, last = min(traced.runs * width, generation.samples), min(traced.questions, len(job.questions))
    chunk = Chunk(generation, folder, 0, stop, 0, last)
    stored = shards.read_generation(folder, generation.id, chunk.stop, ("question", "sample", "tokens"))
    try:
        ((_, drawn),) = sample(job, [chunk], lambda *_: None)
    finally:
        if "engine" in job.__dict__:
            job.engine.close()
    first = [shard for shard in shards_of(folder) if shard.present and shard.start < chunk.stop]
    _require_equal(stored, drawn.frame, first, f"{drawn.provenance.engine} on {drawn.provenance.device}")
    assert drawn.trace is not None, "these searches were recorded"
    return [
        traces.publish(
            grid.layout.traces(checkpoint, benchmark, generation.id),
            shard.start,
            shard.stop,
            rows,
            generation_id=generation.id,
            policies=generation.policies,
            provenance=drawn.provenance,
        )
        for shard in first
        if (
            rows := drawn.trace.filter(pl.col("run") >= shard.start // width, pl.col("run") < -(-shard.stop // width))
        ).height
    ]


def _generation(grid: Grid, checkpoint: str, benchmark: str, policy: str) -> Generation:
    generations = grid.jobs.generations(checkpoint, benchmark)
    if not generations:
        source = grid.study.source(checkpoint, benchmark)
        raise InputError(
            f"{checkpoint}/{benchmark} is {source}, not sampled here: its searches cannot be drawn again",
            "name a cell that this study samples (`searchlens plan` lists them)",
        )
    require_known(policy, [name for each in generations for name in each.policies], "policy")
    return next(each for each in generations if policy in each.policies)


def _require_equal(stored: pl.DataFrame, drawn: pl.DataFrame, first: list[Shard], here: str) -> None:
    """Refuse samples that are not the stored ones, token by token."""
    both = drawn.select("question", "sample", "tokens").join(
        stored, on=["question", "sample"], how="left", suffix="_stored", maintain_order="left"
    )
    for question, number, tokens, tokens_stored in both.iter_rows():
        if tokens == tokens_stored:
            continue
        place = next(i for i, (one, other) in enumerate(zip_longest(tokens, tokens_stored)) if one != other)
        by = " and ".join(dict.fromkeys(f"{shard.sidecar['engine']} on {shard.sidecar['device']}" for shard in first))
        raise JobError(
            f"question {question}, sample {number}: drawn again by {here}, it differs from the stored one, drawn by"
            f" {by}, from token {place} on; nothing was written",
            "record it where it was sampled, or set study.trace and sample it again (`searchlens rerun`)",
        )
