"""Chunks to samples: their searches run through the driver together, and each chunk is handed out once it is whole."""

from __future__ import annotations

import json
import logging
import math
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl

from searchlens import policies, seeds
from searchlens.engines.base import Engine, EngineMemoryError
from searchlens.errors import InputError, JobError
from searchlens.generate._chunks import Chunk, Made
from searchlens.generate._job import Job
from searchlens.generate._stops import cut
from searchlens.search.driver import Failure, Outcome, Usage, run, start
from searchlens.search.task import Candidate, Search, Task
from searchlens.store import provenance, shards

log = logging.getLogger(__name__)

_NOTHING: dict[str, Any] = {
    "text": "",
    "tokens": [],
    "logprobs": [],
    "sampling_logprobs": [],
    "n_tokens": 0,
    "mean_logprob": None,
}

Key = tuple[int, int, int]
"""Place of the chunk, question, run."""


def sample(job: Job, chunks: Iterable[Chunk], done: Callable[[int, Chunk], None]) -> Iterator[tuple[Chunk, Made]]:
    """Draw the samples of chunks in one run of the driver, and hand each chunk out as soon as its last run has ended.

    Searches are started chunk by chunk, as others end, so that the engine stays full from the first chunk to the last;
    only what belongs to chunks under way is in memory. A sample depends on its own seed, never on when it ended.

    Time is shared out whenever a chunk is whole. The seconds since the last time go to the chunks under way in
    proportion to the tokens that were computed, generated or prefilled, for those of their runs that ended since; the
    engine's steps in proportion to the generated ones. So seconds and steps of all chunks add up to what there was,
    and tokens per step of a chunk are the mean number of requests that drew tokens together while it was made, its own
    and others'. A chunk that runs alone gets all.

    Parameters
    ----------
    job : Job
    chunks : iterable of Chunk
        Taken from it as their first searches can start.
    done : callable
        Told the number of samples, and their chunk, after every run.

    Yields
    ------
    tuple of (Chunk, Made)
        In order of completion.

    Raises
    ------
    InputError
        The engine refuses a request.
    JobError
        More searches of a chunk failed than ``failed_share`` allows, or the engine died.
    EngineMemoryError
        The device's memory did not suffice.
    """
    under_way: dict[int, _Part] = {}
    meter = _Meter(job.engine)

    def searches() -> Iterator[tuple[Key, Search]]:
        for place, chunk in enumerate(chunks):
            under_way[place] = part = _Part(job, chunk)
            for question, run_ in part.keys:
                yield (place, question, run_), part.start(question, run_)

    for (place, question, run_), outcome in _outcomes(searches(), job.engine):
        part = under_way[place]
        part.add(question, run_, outcome)
        done(part.policy.width, part.chunk)
        if not part.left:
            meter.share(under_way.values())
            del under_way[place]
            yield part.chunk, part.made()


def _outcomes(searches: Iterable[tuple[Key, Search]], engine: Engine) -> Iterator[tuple[Key, Outcome]]:
    """The driver's, with one message for everything that an engine can die of."""
    try:
        yield from run(searches, engine)
    except (InputError, EngineMemoryError):
        raise
    except Exception as error:
        log.exception("the engine died")
        raise JobError(
            f"the engine died: {type(error).__name__}: {error}",
            "what it died of stands above; finished chunks are kept: run again, and it goes on behind them",
        ) from error


class _Meter:
    """Shares out seconds and steps; ``sample`` says how."""

    def __init__(self, engine: Engine) -> None:
        self.engine, self.time, self.steps = engine, time.monotonic(), engine.steps

    def share(self, parts: Collection[_Part]) -> None:
        """Share out what passed since the last time."""
        now, steps = time.monotonic(), self.engine.steps
        computed = _shares([part.since.generated + part.since.prefilled for part in parts])
        generated = _shares([part.since.generated for part in parts])
        for part, of_seconds, of_steps in zip(parts, computed, generated, strict=True):
            part.seconds += of_seconds * (now - self.time)
            part.steps += of_steps * (steps - self.steps)
            part.usage, part.since = part.usage + part.since, Usage()
        self.time, self.steps = now, steps


def _shares(amounts: Sequence[int]) -> list[float]:
    """Amounts as shares of their sum; equal ones where there is none."""
    total = sum(amounts)
    return [amount / total if total else 1 / len(amounts) for amount in amounts]


class _Part:
    """A chunk under way."""

    def __init__(self, job: Job, chunk: Chunk) -> None:
        self.job, self.chunk = job, chunk
        self.policy = policies.from_spec(chunk.generation.id, chunk.generation.spec["policy"])
        self.step_ids = job.step_ids(self.policy.delimiter)
        first, last = chunk.start // self.policy.width, -(-chunk.stop // self.policy.width)
        self.keys = [(q, run_) for q in range(chunk.first, chunk.last) for run_ in range(first, last)]
        self.left = len(self.keys)
        self.rows: list[dict[str, Any]] = []
        self.failed: list[tuple[int, int, str]] = []
        self.usage = self.since = Usage()
        self.seconds = self.steps = 0.0

    def start(self, question: int, run_: int) -> Search:
        """The search of one run."""
        job = self.job
        seed = seeds.sample_seed(self.chunk.generation.id, job.questions[question].id, run_)
        prompter = job.prompter
        task = Task(
            job.prompts[question],
            seed,
            job.max_tokens,
            prompter.stop_ids,
            self.step_ids,
            prompter.text,
            job.answer,
            prompter.template.check_every,
            job.length,
            prompter.spell,
        )
        return start(task, self.policy)

    def add(self, question: int, run_: int, outcome: Outcome) -> None:
        """Take what a run came to."""
        self.left -= 1
        outcome = _checked(outcome, self.policy, self.job.engine.vocab_size)
        self.since += outcome.usage
        if isinstance(outcome, Failure):
            self.failed.append((question, run_, outcome.reason))
        width = self.policy.width
        for place, row in enumerate(_rows(self.job, outcome, self.policy)):
            sample_ = run_ * width + place
            if self.chunk.start <= sample_ < self.chunk.stop:
                name = self.job.questions[question].id
                self.rows.append({"position": question, "question": name, "sample": sample_, "run": run_, **row})

    def made(self) -> Made:
        """The samples, in the order of the stream.

        Raises
        ------
        JobError
            Too many failed.
        """
        self._report()
        frame = pl.DataFrame(self.rows, schema={"position": pl.UInt32(), **shards.SAMPLES}).sort("position", "sample")
        hardware = self.job.hardware
        gpus = hardware.device_count if hardware.device.startswith("cuda") else 0
        took = replace(
            hardware,
            wall_seconds=self.seconds,
            prefilled=self.usage.prefilled,
            reused=self.usage.reused,
            gpu_seconds=self.seconds * gpus,
            finished=provenance.now(),
        )
        return Made(frame.drop("position"), self.steps, took)

    def _report(self) -> None:
        """Say what failed; too much of it ends the job before it is taken for a result."""
        if not self.failed:
            return
        job, names = self.job, self.chunk.generation.policies
        q, run_, reason = min(self.failed)
        example = f"{job.pool.benchmark} question {job.questions[q].id}, run {run_}: {reason}"
        if len(self.failed) > job.grid.config["failed_share"] * len(self.keys):
            raise JobError(f"{len(self.failed)} searches of {', '.join(names)} failed; {example}")
        log.warning("%d searches of %s failed and count as unsolved; %s", len(self.failed), names, example)


def _checked(outcome: Outcome, policy: policies.Policy, vocab_size: int) -> Outcome:
    """What a run came to; a failure where its controller, which may be a user's own, returned what are no samples."""
    if isinstance(outcome, Failure):
        return outcome
    flaw = _flaw(outcome.candidates, policy.width, vocab_size)
    return Failure(f"controller {policy.controller.name} returned {flaw}", outcome.usage) if flaw else outcome


def _flaw(found: object, width: int, vocab_size: int) -> str | None:
    """What is wrong with the candidates of a run; None where nothing is."""
    if not isinstance(found, list) or not all(isinstance(one, Candidate) for one in found):
        return f"{found!r:.200}, not a list of candidates"
    if len(found) != width:
        return f"{len(found)} candidates, it should return {width}"
    return next((flaw for one in found if (flaw := _flaw_of(one, vocab_size))), None)


def _flaw_of(candidate: Candidate, vocab_size: int) -> str | None:
    tokens = candidate.tokens
    if not isinstance(tokens, np.ndarray) or tokens.ndim != 1 or not len(tokens) or tokens.dtype.kind not in "iu":
        return f"a candidate with tokens {tokens!r:.200}, no array of ids"
    if tokens.min() < 0 or tokens.max() >= vocab_size:
        outside = tokens.min() if tokens.min() < 0 else tokens.max()
        return f"a candidate with token id {outside}, but ids go from 0 to {vocab_size - 1}"
    for name in ("logprobs", "sampling_logprobs"):
        if np.shape(getattr(candidate, name)) != tokens.shape:
            return f"a candidate of {len(tokens)} tokens with {name} of shape {np.shape(getattr(candidate, name))}"
    if not math.isfinite(candidate.score):
        return f"a candidate with score {candidate.score}"
    return None


def _row(candidate: Candidate, text: str) -> dict[str, Any]:
    return {
        "text": text,
        "tokens": candidate.tokens,
        "logprobs": candidate.logprobs,
        "sampling_logprobs": candidate.sampling_logprobs,
        "n_tokens": len(candidate.tokens),
        "mean_logprob": float(np.mean(candidate.logprobs, dtype=np.float64)),
        "score": candidate.score,
        "finish": candidate.finish,
        "details": json.dumps(dict(candidate.details), sort_keys=True) if candidate.details else None,
    }


def _rows(job: Job, outcome: Outcome, policy: policies.Policy) -> list[dict[str, Any]]:
    """What a run has to show, one row per candidate; a failed one shows its reason as many times."""
    width = policy.width
    spent = {"generated": outcome.usage.generated, "requests": outcome.usage.requests}
    if isinstance(outcome, Failure):
        failed = {**_NOTHING, "score": -math.inf, "finish": "failed", "details": json.dumps({"failed": outcome.reason})}
        rows = [dict(failed) for _ in range(width)]
    else:
        tokens = [candidate.tokens.tolist() for candidate in outcome.candidates]
        texts = job.prompter.decode(tokens)
        ends = [job.prompter.end(*each) for each in zip(tokens, texts, strict=True)]
        rows = [
            _row(cut(candidate, end.length, policy.evaluator.name), end.text) if end else _row(candidate, text)
            for candidate, text, end in zip(outcome.candidates, texts, ends, strict=True)
        ]
    return [{**row, **(spent if place == 0 else dict.fromkeys(spent, 0))} for place, row in enumerate(rows)]
