"""Chunks to samples: all searches run through the driver together, and each chunk is returned when it is finished."""

from __future__ import annotations

import json
import logging
import math
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

from searchlens import seeds
from searchlens.engines.base import Engine, EngineMemoryError
from searchlens.errors import InputError, JobError
from searchlens.sampling._chunks import Chunk, ChunkSamples
from searchlens.sampling._job import Job
from searchlens.search.driver import Failure, Outcome, Usage, run, start
from searchlens.search.policy import Policy, from_spec
from searchlens.search.recorder import Recorder
from searchlens.search.task import Candidate, Search, unrecorded
from searchlens.store import provenance, shards
from searchlens.store.columns import TRACES

log = logging.getLogger(__name__)

_SCORES: Mapping[str, Callable[..., Any]] = {"mean_logprob": np.mean, "sequence_logprob": np.sum}
"""Evaluators whose score is a function of log-probabilities alone, which can be computed again for a cut text."""


class _Sample(NamedTuple):
    """A sample of a run, as it is stored, and the position of its question; without what follows from these."""

    position: int
    sample: int
    question: str
    run: int
    text: str
    tokens: npt.NDArray[np.integer]
    logprobs: npt.NDArray[np.floating]
    sampling_logprobs: npt.NDArray[np.floating]
    score: float
    finish: str
    generated: int = 0
    requests: int = 0
    details: str | None = None


Key = tuple[int, int, int]
"""Number of the chunk, question, run."""


def sample(
    job: Job, chunks: Iterable[Chunk], on_run: Callable[[int, Chunk], None]
) -> Iterator[tuple[Chunk, ChunkSamples]]:
    """Draw the samples of chunks in one run of the driver, and yield each chunk as soon as its last search has ended.

    Searches are started chunk by chunk, as others end, so the engine stays full from the first chunk to the last, and
    only the samples of running chunks are in memory. A sample depends on its own seed, never on when it ended. Chunks
    are taken one by one, when the driver can start more searches. After every search, ``on_run`` is called with the
    number of its samples and their chunk.

    Costs are shared out whenever a chunk is finished. The seconds since the last time go to the running chunks in
    proportion to the tokens computed (generated or prefilled) for their searches that ended since then; the engine's
    steps in proportion to the generated tokens. So seconds and steps of all chunks add up to the total. Generated
    tokens per step of a chunk are the mean number of rows, its own and others', that were decoded together while it was
    sampled. A chunk that runs alone gets everything.

    Raises InputError if the engine refuses a request, JobError if more searches of a chunk failed than ``failed_share``
    allows, or the engine died, and EngineMemoryError.
    """
    running: dict[int, _RunningChunk] = {}
    meter = _Meter(job.engine)

    def searches() -> Iterator[tuple[Key, Search]]:
        for number, chunk in enumerate(chunks):
            running[number] = entry = _RunningChunk(job, chunk)
            for question, run_ in entry.keys:
                yield (number, question, run_), entry.start(question, run_)

    for (number, question, run_), outcome in _outcomes(searches(), job.engine):
        entry = running[number]
        entry.add(question, run_, outcome)
        on_run(entry.policy.width, entry.chunk)
        if not entry.unfinished:
            meter.share(running.values())
            del running[number]
            yield entry.chunk, entry.samples()


def _outcomes(searches: Iterable[tuple[Key, Search]], engine: Engine) -> Iterator[tuple[Key, Outcome]]:
    """Run the driver; any failure of the engine becomes a JobError."""
    try:
        yield from run(searches, engine)
    except (InputError, EngineMemoryError):
        raise
    except Exception as error:
        if isinstance(error, OSError) and error.filename:  # of the store, which is looked at for the next chunk
            raise
        log.exception("the engine died")
        raise JobError(
            f"the engine died: {type(error).__name__}: {error}",
            "the cause is in the traceback above; finished chunks are kept: run the same command to resume",
        ) from error


class _Meter:
    """Shares out seconds and steps, as ``sample`` describes."""

    def __init__(self, engine: Engine) -> None:
        self.engine, self.time, self.steps = engine, time.monotonic(), engine.steps

    def share(self, chunks: Collection[_RunningChunk]) -> None:
        """Share out the seconds and steps since the last time."""
        now, steps = time.monotonic(), self.engine.steps
        computed = _shares([chunk.new_usage.generated + chunk.new_usage.prefilled for chunk in chunks])
        generated = _shares([chunk.new_usage.generated for chunk in chunks])
        for chunk, of_seconds, of_steps in zip(chunks, computed, generated, strict=True):
            chunk.seconds += of_seconds * (now - self.time)
            chunk.steps += of_steps * (steps - self.steps)
            chunk.usage, chunk.new_usage = chunk.usage + chunk.new_usage, Usage()
        self.time, self.steps = now, steps


def _shares(amounts: Sequence[int]) -> list[float]:
    """Return amounts as shares of their sum; equal shares if the sum is 0."""
    total = sum(amounts)
    return [amount / total if total else 1 / len(amounts) for amount in amounts]


class _RunningChunk:
    """A chunk whose searches, all its ``keys``, have started; ``unfinished`` of them have not ended.

    ``usage`` and ``new_usage`` are of its ended searches, until and since costs were last shared out; ``seconds`` and
    ``steps`` are its share of the costs.
    """

    def __init__(self, job: Job, chunk: Chunk) -> None:
        self.job, self.chunk = job, chunk
        self.policy = from_spec(chunk.generation.id, chunk.generation.spec["policy"])
        self.step_ids = job.step_ids(self.policy.delimiter)
        first, last = chunk.start // self.policy.width, -(-chunk.stop // self.policy.width)
        self.keys = [(q, run_) for q in range(chunk.first, chunk.last) for run_ in range(first, last)]
        self.unfinished = len(self.keys)
        self.ended: list[tuple[int, int, Outcome]] = []
        self.traced = job.traced(chunk.generation)
        self.recorders: dict[tuple[int, int], Recorder] = {}
        self.traces: list[pl.DataFrame] = []
        self.usage = self.new_usage = Usage()
        self.seconds = self.steps = 0.0

    def start(self, question: int, run_: int) -> Search:
        job = self.job
        seed = seeds.sample_seed(self.chunk.generation.id, job.questions[question].id, run_)
        recorder = None
        if self.traced and self.traced.holds(question, run_):
            recorder = self.recorders[question, run_] = Recorder(job.prompter.text, self.traced.run_bytes)
        task = job.task(question, seed, self.step_ids, recorder.note if recorder else unrecorded)
        search = start(task, self.policy)
        return recorder.watch(search) if recorder else search

    def add(self, question: int, run_: int, outcome: Outcome) -> None:
        self.unfinished -= 1
        self.new_usage += outcome.usage
        outcome = _checked(outcome, self.policy, self.job.engine.vocab_size)
        if recorder := self.recorders.pop((question, run_), None):
            name = self.job.questions[question].id
            self.traces.append(trace_rows(recorder, outcome, (question, name, run_), self.policy.width))
        self.ended.append((question, run_, outcome))

    def samples(self) -> ChunkSamples:
        """Return the samples, by question, then sample. Raises JobError if too many searches failed."""
        self.ended.sort(key=itemgetter(0, 1))
        failures = [(q, run_, outcome.reason) for q, run_, outcome in self.ended if isinstance(outcome, Failure)]
        if failures:
            job, names = self.job, self.chunk.generation.policies
            q, run_, reason = failures[0]
            example = f"{job.pool.benchmark} question {job.questions[q].id}, run {run_}: {reason}"
            if len(failures) > job.grid.config.failed_share * len(self.keys):  # too many to count them as unsolved
                raise JobError(f"{len(failures)} searches of {', '.join(names)} failed; {example}")
            log.warning("%d searches of %s failed and count as unsolved; %s", len(failures), names, example)
        found = (each for run_ in self.ended for each in _samples(self.job, *run_, self.policy))
        frame = _frame([each for each in found if self.chunk.start <= each.sample < self.chunk.stop])
        hardware = self.job.hardware
        gpus = hardware.device_count if hardware.device.startswith("cuda") else 0
        costs = replace(
            hardware,
            wall_seconds=self.seconds,
            prefilled=self.usage.prefilled,
            reused=self.usage.reused,
            gpu_seconds=self.seconds * gpus,
            finished=provenance.now(),
        )
        trace = pl.concat(self.traces).sort("question", "run", "row") if self.traces else None
        return ChunkSamples(frame, self.steps, costs, trace)


def _samples(job: Job, question: int, run_: int, outcome: Outcome, policy: Policy) -> Iterator[_Sample]:
    """Yield the samples of a run, one per candidate; the first has its costs. Those of a failed run are empty."""
    name, number = job.questions[question].id, run_ * policy.width
    if isinstance(outcome, Failure):
        nothing = np.zeros(0, np.float32)
        failed = Candidate._make((nothing, nothing, nothing, "failed", -math.inf, {"failed": outcome.reason}))
        found = [(failed, "")] * policy.width
    else:
        found = [_ended(job, candidate, policy) for candidate in outcome.candidates]
    taken = outcome.usage.generated, outcome.usage.requests
    for sample_, (kept, text) in enumerate(found, number):
        arrays = kept.tokens, kept.logprobs, kept.sampling_logprobs
        details = json.dumps(dict(kept.details), sort_keys=True) if kept.details else None
        yield _Sample(question, sample_, name, run_, text, *arrays, kept.score, kept.finish, *taken, details)
        taken = 0, 0


def _ended(job: Job, candidate: Candidate, policy: Policy) -> tuple[Candidate, str]:
    """Return a candidate up to a stop text, and what it says before that."""
    tokens = candidate.tokens.tolist()
    text = job.prompter.text(tokens)
    end = job.prompter.end(tokens, text)
    return (cut(candidate, end.length, policy.evaluator.name), end.text) if end else (candidate, text)


def cut(candidate: Candidate, length: int, evaluator: str) -> Candidate:
    """Return a candidate cut to its first ``length`` tokens, as one that stopped there.

    If the evaluator's score is a function of log-probabilities alone, it is computed again for the cut text. Otherwise
    the candidate keeps the score by which the search chose it.
    """
    tokens, logprobs = candidate.tokens[:length], candidate.logprobs[:length]
    rescore = _SCORES.get(evaluator)
    score = float(rescore(logprobs, dtype=np.float64)) if rescore else candidate.score
    return Candidate(tokens, logprobs, candidate.sampling_logprobs[:length], "stop", score, candidate.details)


def trace_rows(recorder: Recorder, outcome: Outcome, run: tuple[int, str, int], width: int) -> pl.DataFrame:
    """Rows of ``TRACES`` of a run that has ended, given by the question's position and id, and its number."""
    try:
        if isinstance(outcome, Failure):
            recorder.finish([], outcome.reason, outcome.usage)
        else:
            recorder.finish(outcome.candidates, usage=outcome.usage)
        return _trace_frame(recorder.rows, run, width)
    except Exception as error:  # whatever a controller of one's own may have noted: its samples are not lost by it
        mistake = json.dumps({"notes": len(recorder.rows), "mistake": f"{type(error).__name__}: {error}"})
    row: dict[str, Any] = {"step": 0, "kind": "cut", "detail": mistake}
    costs = {"requests": outcome.usage.requests, "generated": outcome.usage.generated}
    return _trace_frame([{**row, **costs}], run, width)


def _trace_frame(rows: list[dict[str, Any]], run: tuple[int, str, int], width: int) -> pl.DataFrame:
    question, name, number = run
    of_run = {"question": question, "id": name, "run": number}
    numbered = [{**of_run, "row": i, **row} for i, row in enumerate(rows)]
    for row in numbered:
        if "sample" in row:
            row["sample"] += number * width
    return pl.DataFrame(numbered, schema=TRACES)


def _frame(found: Sequence[_Sample]) -> pl.DataFrame:
    columns: dict[str, Any] = dict(zip(_Sample._fields, zip(*found, strict=True), strict=True))
    lengths = np.array([len(tokens) for tokens in columns["tokens"]])
    ends = np.concatenate(([0], np.cumsum(lengths)))
    lists = {}
    for name, kind in (("tokens", np.int32), ("logprobs", np.float32), ("sampling_logprobs", np.float32)):
        flat = np.concatenate(columns[name], dtype=kind, casting="unsafe")
        lists[name] = pl.Series(pa.LargeListArray.from_arrays(ends, flat))  # polars would take them one by one
    means = np.full(len(found), np.nan)
    logprobs = np.concatenate(columns["logprobs"], dtype=np.float64)
    means[lengths > 0] = np.add.reduceat(logprobs, ends[:-1][lengths > 0]) / lengths[lengths > 0]
    mean_logprob = pl.Series(means).fill_nan(None)
    table = {**columns, **lists, "n_tokens": lengths, "mean_logprob": mean_logprob}
    return pl.DataFrame({name: table[name] for name in shards.SAMPLES}, schema=shards.SAMPLES)


def _checked(outcome: Outcome, policy: Policy, vocab_size: int) -> Outcome:
    """The outcome of a run of a policy, or a failure if its samples are invalid.

    Token ids go from 0 to ``vocab_size - 1``.
    """
    if isinstance(outcome, Failure):
        return outcome
    if not (flaw := _list_flaw(outcome.candidates, policy.width)):
        flaw = next(filter(None, (_candidate_flaw(candidate, vocab_size) for candidate in outcome.candidates)), None)
    return Failure(f"controller {policy.controller.name} returned {flaw}", outcome.usage) if flaw else outcome


def _list_flaw(result: object, width: int) -> str | None:
    if not isinstance(result, list) or not all(isinstance(candidate, Candidate) for candidate in result):
        return f"{result!r:.200}, not a list of candidates"
    if len(result) != width:
        return f"{len(result)} candidates, it should return {width}"
    return None


def _candidate_flaw(candidate: Candidate, vocab_size: int) -> str | None:
    tokens = candidate.tokens
    if not isinstance(tokens, np.ndarray) or tokens.ndim != 1 or not len(tokens) or tokens.dtype.kind not in "iu":
        return f"a candidate with tokens {tokens!r:.200}, no array of ids"
    if tokens.min() < 0 or tokens.max() >= vocab_size:
        outside = tokens.min() if tokens.min() < 0 else tokens.max()
        return f"a candidate with token id {outside}, but ids go from 0 to {vocab_size - 1}"
    for name in ("logprobs", "sampling_logprobs"):
        if np.shape(getattr(candidate, name)) != tokens.shape:
            return f"a candidate of {len(tokens)} tokens with {name} of shape {np.shape(getattr(candidate, name))}"
        if np.isnan(getattr(candidate, name)).any():
            return f"a candidate with {name} that are not numbers"
    if not math.isfinite(candidate.score):
        return f"a candidate with score {candidate.score}"
    return None
