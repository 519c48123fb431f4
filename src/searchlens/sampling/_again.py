"""What is done with samples that exist: their searches are recorded, or their texts are scored under both sides.

Searches are recorded by drawing their first runs again; the record is kept if nothing differs.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from searchlens.engines.base import EngineMemoryError, Given
from searchlens.engines.kind import engine_kind
from searchlens.errors import InputError, JobError, require_known
from searchlens.plan import Grid, JobPool, Traced
from searchlens.sampling._chunks import Chunk
from searchlens.sampling._job import Job
from searchlens.sampling._sample import sample
from searchlens.search.policy import from_spec
from searchlens.store import shards, traces
from searchlens.store.columns import SCORED_TEXTS
from searchlens.store.ranges import Shard, shards_of

if TYPE_CHECKING:
    from searchlens.plan import needs

log = logging.getLogger(__name__)

_KEY = ["question", "sample"]


# ---- recording


def trace(grid: Grid, checkpoint: str, benchmark: str, policy: str, traced: Traced, *, threads: int = 1) -> list[Path]:
    """Record the first runs of a policy on the first questions, as far as there are any, and return the files.

    A sample depends on its seed alone, so drawing it again on the same kind of machine gives the same tokens. All of
    them are compared with the stored ones, and nothing is written if one differs.

    Raises InputError if nothing is sampled under this policy here, or samples are missing, and JobError if tokens
    differ.
    """
    generations = grid.jobs.generations(checkpoint, benchmark)
    if not generations:
        source = grid.study.source(checkpoint, benchmark)
        raise InputError(
            f"{checkpoint}/{benchmark} is {source}, not sampled here: its searches cannot be drawn again",
            "name a cell that this study samples (`searchlens plan` lists them)",
        )
    require_known(policy, [name for each in generations for name in each.policies], "policy")
    generation = next(each for each in generations if policy in each.policies)
    job = Job(grid, JobPool(checkpoint, benchmark, (generation,)), threads, traced)
    folder = grid.folder(checkpoint, benchmark, generation.id)
    width = from_spec(generation.id, generation.spec["policy"]).width
    stop, last = min(traced.runs * width, generation.samples), min(traced.questions, len(job.questions))
    chunk = Chunk(generation, folder, 0, stop, 0, last)
    stored = shards.read_generation(folder, chunk.stop, ("question", "sample", "tokens"))
    try:
        ((_, drawn),) = sample(job, [chunk], lambda *_: None)
    finally:
        if "engine" in job.__dict__:
            job.engine.close()
    first = [shard for shard in shards_of(folder) if shard.present and shard.start < chunk.stop]
    _require_equal(stored, drawn.frame, first, f"{drawn.provenance.engine} on {drawn.provenance.device}")
    assert drawn.trace is not None, "these searches were recorded"
    published, own = [], grid.layout.traces(checkpoint, benchmark, generation.id)
    for shard in first:
        runs = pl.col("run") >= shard.start // width, pl.col("run") < -(-shard.stop // width)
        if (rows := drawn.trace.filter(*runs)).height:
            published.append(traces.publish(own, shard.start, shard.stop, rows))
    return published


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


# ---- scoring


def scored_texts(grid: Grid, cell: needs.Likelihood, right: Mapping[str, pl.DataFrame], threads: int) -> pl.DataFrame:
    """Draw nothing, and score the first samples of both sides under both checkpoints, one after the other.

    A text is scored after the prompt of the checkpoint that scores it, as that checkpoint would have drawn it. Its stop
    token counts; so log p of a text that ended is that of the whole text, not of its beginning. ``right`` has for each
    side the columns ``question`` (position in the benchmark), ``sample`` and ``right`` of the cell's policy. Returns
    ``store.columns.SCORED_TEXTS``, in the order of side, question and sample.

    Raises InputError if samples are missing, or a token of a text means another thing to the other checkpoint, and
    JobError if the device is out of memory.
    """
    pools = {side: JobPool(checkpoint, cell.benchmark, ()) for side, (checkpoint, _) in cell.sides.items()}
    jobs = {side: Job(grid, pool, threads) for side, pool in pools.items()}
    ids = [question.id for question in jobs["base"].questions[: cell.questions]]
    order = pl.DataFrame({"id": ids, "question": range(len(ids))}, {"id": pl.String(), "question": pl.UInt32()})
    parts = []
    for side, (checkpoint, stream) in cell.sides.items():
        folder = grid.folder(checkpoint, cell.benchmark, stream)
        drawn = shards.read_generation(folder, cell.samples, ["question", "sample", "tokens", "logprobs"])
        texts = drawn.rename({"question": "id"}).join(order, on="id").join(right[side], on=_KEY, how="left")
        parts.append(texts.sort(*_KEY).with_columns(side=pl.lit(side)))
    texts = pl.concat(parts)
    _check_tokens(jobs, texts["tokens"].explode().unique().drop_nulls())
    scores = {f"logp_{side}": _scores(job, texts) for side, job in jobs.items()}
    scored = texts.with_columns(
        **scores, recorded=pl.col("logprobs").list.eval(pl.element().cast(pl.Float64)).list.sum()
    )
    for side in cell.sides:
        own = scored.filter(side=side)
        per_token = (own[f"logp_{side}"] - own["recorded"]).abs() / own["tokens"].list.len()
        name = f"{cell.pair}/{cell.benchmark}"
        log.info("%s: log p of %s's own texts, scored and recorded: at most %.2g a token", name, side, per_token.max())
    return scored.with_columns(tokens=pl.col("tokens").list.len()).select(SCORED_TEXTS.names()).cast(SCORED_TEXTS)


def _scores(job: Job, texts: pl.DataFrame) -> pl.Series:
    """Return log p of every text under one checkpoint; equal texts of a question are scored once."""
    keys = [(question, tuple(tokens)) for question, tokens in texts.select("question", "tokens").iter_rows()]
    distinct = list(dict.fromkeys(keys))
    try:
        each = job.engine.score([Given(job.prompts[question], tokens) for question, tokens in distinct])
    except EngineMemoryError as error:
        shares = engine_kind(job.spec).keys("gpu_memory_utilization")
        lower = [f"lower checkpoints.{job.pool.checkpoint}.{key}" for key in shares]
        raise JobError(
            f"{job.pool.checkpoint} ran out of memory while scoring texts of {job.pool.benchmark}: {error}",
            *(lower or ["use a device with more memory; nothing that was sampled is lost"]),
        ) from None
    finally:
        job.close()
    totals = {key: float(np.sum(logprobs, dtype=np.float64)) for key, logprobs in zip(distinct, each, strict=True)}
    return pl.Series([totals[key] for key in keys], dtype=pl.Float64)


def _check_tokens(jobs: Mapping[str, Job], used: Iterable[int]) -> None:
    """Refuse texts with a token that the tokenizers of both checkpoints spell differently."""
    (_, base), (_, rl) = jobs.items()
    for token in used:
        ours, theirs = (job.prompter.tokenizer.id_to_token(token) for job in (base, rl))
        if ours != theirs:
            raise InputError(
                f"token {token} is {ours!r} to {base.pool.checkpoint} and {theirs!r} to {rl.pool.checkpoint}",
                "cross-likelihoods need two checkpoints with one tokenizer: set study.likelihood to null",
            )
