"""What is done with samples that exist: their searches are recorded, or their texts are scored under both sides.

Searches are recorded by drawing their first runs again; the record is kept if nothing differs.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from searchlens.engines.base import EngineMemoryError, Given, Sampling
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

    A text is scored under the cell's policy, after the prompt of the checkpoint that scores it, as that checkpoint
    would have drawn it. Its stop token counts; so log p of a text that ended is that of the whole text, not of its
    beginning. ``right`` has for each side the columns ``question`` (position in the benchmark), ``sample``, ``right``
    and ``wrong_key`` of the cell's policy. Returns ``store.columns.SCORED_TEXTS`` with all lists, in the order of side,
    question and sample, and a column ``recorded``: log p as its side recorded it while drawing.

    Raises InputError if samples are missing, a token of a text means another thing to the other checkpoint, or an
    engine cannot score the policy, and JobError if the device is out of memory.
    """
    pools = {side: JobPool(checkpoint, cell.benchmark, ()) for side, (checkpoint, _) in cell.sides.items()}
    jobs = {side: Job(grid, pool, threads) for side, pool in pools.items()}
    ids = [question.id for question in jobs["base"].questions[: cell.questions]]
    order = pl.DataFrame({"id": ids, "question": range(len(ids))}, {"id": pl.String(), "question": pl.UInt32()})
    parts = []
    for side, (checkpoint, stream) in cell.sides.items():
        folder = grid.folder(checkpoint, cell.benchmark, stream)
        drawn = shards.read_generation(folder, cell.samples, ["question", "sample", "tokens", "sampling_logprobs"])
        texts = drawn.rename({"question": "id"}).join(order, on="id").join(right[side], on=_KEY, how="left")
        parts.append(texts.sort(*_KEY).with_columns(side=pl.lit(side)))
    texts = pl.concat(parts)
    _check_tokens(jobs, texts["tokens"].explode().unique().drop_nulls())
    numbers: dict[tuple[int, tuple[int, ...]], int] = {}
    keys = [(question, tuple(tokens)) for question, tokens in texts.select("question", "tokens").iter_rows()]
    place = [numbers.setdefault(key, len(numbers)) for key in keys]
    distinct = pl.DataFrame({"text": range(len(numbers))})
    for side, job in jobs.items():
        distinct = distinct.with_columns(_scores(job, list(numbers), grid.jobs.local(cell.policy), side))
    scored = texts.with_columns(
        text=pl.Series(place, dtype=pl.Int64),
        recorded=pl.col("sampling_logprobs").list.eval(pl.element().cast(pl.Float64)).list.sum(),
    ).join(distinct, on="text", maintain_order="left")
    for side in cell.sides:
        own = scored.filter(side=side)
        per_token = (own[f"logp_{side}"] - own["recorded"]).abs() / own["tokens"].list.len()
        name = f"{cell.pair}/{cell.benchmark}"
        log.info("%s: log p of %s's own texts, scored and recorded: at most %.2g a token", name, side, per_token.max())
    lengths = {"token_ids": pl.col("tokens"), "tokens": pl.col("tokens").list.len()}
    return scored.with_columns(**lengths).select(*SCORED_TEXTS.names(), "recorded").cast(dict(SCORED_TEXTS))  # type: ignore[arg-type]


def _scores(job: Job, texts: Sequence[tuple[int, tuple[int, ...]]], local: Sampling, side: str) -> pl.DataFrame:
    """What one checkpoint says of distinct texts, given by question and tokens."""
    try:
        each = job.engine.score([Given(job.prompts[question], tokens) for question, tokens in texts], local)
    except EngineMemoryError as error:
        raise out_of_memory(job, "scoring", error) from None
    finally:
        job.close()
    lists = {"logps": [scored.sampling_logprobs for scored in each], "ranks": [scored.ranks for scored in each]}
    totals = {
        "logp": [float(np.sum(scored.sampling_logprobs, dtype=np.float64)) for scored in each],
        "whole": [_ends(job, tokens) for _, tokens in texts],
    }
    return pl.DataFrame({f"{name}_{side}": values for name, values in (lists | totals).items()})


def out_of_memory(job: Job, doing: str, error: EngineMemoryError) -> JobError:
    """What is said if the device has too little memory for texts that are scored or continued."""
    shares = engine_kind(job.spec).keys("gpu_memory_utilization")
    lower = [f"lower checkpoints.{job.pool.checkpoint}.{key}" for key in shares]
    return JobError(
        f"{job.pool.checkpoint} ran out of memory while {doing} texts of {job.pool.benchmark}: {error}",
        *(lower or ["use a device with more memory; nothing that was sampled is lost"]),
    )


def _ends(job: Job, tokens: tuple[int, ...]) -> bool:
    """Whether a text ends where this checkpoint would have ended it, and not before."""
    prompter, stops = job.prompter, frozenset(job.prompter.stop_ids)
    if not stops.isdisjoint(tokens[:-1]):
        return False
    if prompter.template.stop_texts and (end := prompter.end(tokens, prompter.text(tokens))):
        return end.length == len(tokens)
    return tokens[-1] in stops or len(tokens) == job.max_tokens


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
