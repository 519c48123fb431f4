"""Texts of both sides of a pair, with log p of each under both checkpoints."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from searchlens.engines.base import EngineMemoryError, Given
from searchlens.engines.kind import engine_kind
from searchlens.errors import InputError, JobError
from searchlens.plan import Grid, JobPool
from searchlens.sampling import Job
from searchlens.store import shards
from searchlens.store.columns import SCORED_TEXTS

if TYPE_CHECKING:
    from searchlens.plan import needs

log = logging.getLogger(__name__)

_KEY = ["question", "sample"]


def scored_texts(grid: Grid, cell: needs.Likelihood, right: Mapping[str, pl.DataFrame], threads: int) -> pl.DataFrame:
    """Draw nothing, and score the first samples of both sides under both checkpoints, one after the other.

    A text is scored after the prompt of the checkpoint that scores it, as that checkpoint would have drawn it. Its stop
    token counts; so log p of a text that ended is that of the whole text, not of its beginning. ``right`` has for each
    side the columns ``question`` (position in the benchmark), ``sample`` and ``right`` of the cell's policy. Returns
    ``store.columns.SCORED_TEXTS``, in the order of side, question and sample.

    Raises InputError if samples are missing, or a token of a text means another thing to the other checkpoint, and
    JobError if the device is out of memory.
    """
    jobs = {side: Job(grid, JobPool(part.checkpoint, cell.benchmark, ()), threads) for side, part in cell.sides.items()}
    ids = [question.id for question in jobs["base"].questions[: cell.questions]]
    order = pl.DataFrame({"id": ids, "question": range(len(ids))}, {"id": pl.String(), "question": pl.UInt32()})
    parts = []
    for side, part in cell.sides.items():
        folder = grid.folder(part.checkpoint, cell.benchmark, part.stream)
        drawn = shards.read_generation(folder, part.stream, cell.samples, ["question", "sample", "tokens", "logprobs"])
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
