"""The only stage that needs a model: one job samples one pool of policies of one (checkpoint, benchmark).

The engine starts once, and only if something is lacking. Finished chunks are kept beside the shards, so a killed job
resumes at the last chunk; a chunk is a block of questions of one generation, and its batches depend on it alone. The
manifest is written last.
"""

from __future__ import annotations

import json
import logging
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from polars.exceptions import PolarsError
from tokenizers import Tokenizer

from searchlens import files, grading, policies, search, seeds, shards
from searchlens.benchmarks import Question, prompts
from searchlens.engines.base import Engine
from searchlens.errors import InputError
from searchlens.grid import Generation, Grid, Pool
from searchlens.progress import Progress
from searchlens.search.driver import Failure, Outcome, Usage, run
from searchlens.search.task import Candidate, Controller, Task
from searchlens.store import fingerprint, gaps, shards_of

log = logging.getLogger(__name__)


@dataclass(frozen=True)
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
        return self.folder / "chunks" / f"s{self.start:05d}-{self.stop:05d}.q{self.first:05d}-{self.last:05d}.chunk"

    @property
    def samples(self) -> int:
        """Number of samples in it."""
        return (self.stop - self.start) * (self.last - self.first)


def chunks_of(
    generation: Generation, folder: Path, start: int, stop: int, questions: int, chunk_samples: int
) -> list[Chunk]:
    """Cut a missing range into blocks of whole questions of about ``chunk_samples`` samples each, of equal size."""
    blocks = max(1, round(questions * (stop - start) / chunk_samples))
    edges = [round(questions * i / blocks) for i in range(blocks + 1)]
    return [Chunk(generation, folder, start, stop, a, b) for a, b in pairwise(edges) if a < b]


class Prompter:
    """Questions to token ids and back, with the checkpoint's own tokenizer.

    Parameters
    ----------
    folder : Path
        Checkpoint.
    template : str
        Name of the prompt template.
    """

    def __init__(self, folder: Path, template: str) -> None:
        self.template = template
        self.tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        spelled = (self.tokenizer.token_to_id(token) for token in prompts.template(template).stop_tokens)
        self.stop_ids = tuple(dict.fromkeys([*_stop_ids(folder), *(token for token in spelled if token is not None)]))

    def encode(self, question: Question) -> tuple[int, ...]:
        """Token ids of the rendered prompt."""
        return tuple(self.tokenizer.encode(prompts.render(self.template, question.text)).ids)

    def decode(self, tokens: Sequence[Sequence[int]]) -> list[str]:
        """Texts without special tokens."""
        return self.tokenizer.decode_batch([list(row) for row in tokens], skip_special_tokens=True)

    def text(self, tokens: Sequence[int]) -> str:
        """One text without special tokens."""
        return self.decode([tokens])[0]

    def holding(self, delimiter: str) -> tuple[int, ...]:
        """Token ids whose text holds a delimiter."""
        texts = self.decode([[token] for token in range(self.tokenizer.get_vocab_size())])
        return tuple(token for token, text in enumerate(texts) if delimiter in text)


def _stop_ids(folder: Path) -> tuple[int, ...]:
    for name in ("generation_config.json", "config.json"):
        path = folder / name
        eos = json.loads(path.read_text()).get("eos_token_id") if path.exists() else None
        if eos is not None:
            return tuple(eos) if isinstance(eos, list) else (eos,)
    raise InputError(
        f"checkpoint {folder} names no end-of-sequence token", "set eos_token_id in its generation_config.json"
    )


class Job:
    """Everything that sampling one pool needs; expensive parts are made when first used.

    Parameters
    ----------
    grid : Grid
    pool : Pool
    threads : int
        CPU threads of the engine.
    """

    def __init__(self, grid: Grid, pool: Pool, threads: int) -> None:
        self.grid, self.pool, self.threads = grid, pool, threads
        self.spec = grid.config["checkpoints"][pool.checkpoint]
        self.folder = grid.root / self.spec["path"]
        self.questions = grid.questions(pool.benchmark)
        self.max_tokens = int(grid.config["benchmarks"][pool.benchmark]["max_tokens"])
        self._grader = grading.grader(grid.benchmark(pool.benchmark)["grader"])
        self._step_ids: dict[str, tuple[int, ...]] = {}

    @cached_property
    def prompter(self) -> Prompter:
        """The checkpoint's tokenizer and template."""
        return Prompter(self.folder, self.spec["template"])

    @cached_property
    def prompts(self) -> list[tuple[int, ...]]:
        """Token ids of every question's prompt, in benchmark order."""
        return [self.prompter.encode(question) for question in self.questions]

    def step_ids(self, delimiter: str) -> tuple[int, ...]:
        """Tokens that end a thought under a policy; none where its delimiter is empty."""
        if delimiter not in self._step_ids:
            self._step_ids[delimiter] = self.prompter.holding(delimiter) if delimiter else ()
        return self._step_ids[delimiter]

    def answer(self, tokens: Sequence[int]) -> str | None:
        """The final answer that token ids state, without knowing the gold one."""
        stopped = bool(tokens) and tokens[-1] in self.prompter.stop_ids
        return self._grader.extract(self.prompter.text(tokens), stopped).answer

    @cached_property
    def engine(self) -> Engine:
        """Checks the weights against their declared fingerprint, then loads them."""
        declared = self.spec["sha256"]
        if declared and (found := fingerprint(self.folder)) != declared:
            raise InputError(
                f"checkpoint {self.folder} has fingerprint {found[:12]}…, the configuration declares {declared[:12]}…",
                f"restore the files, or update checkpoints.{self.pool.checkpoint}.sha256 if the change is meant",
            )
        import torch  # takes seconds to import

        from searchlens.engines.transformers import TransformersEngine

        device = self.spec["device"]
        if device == "auto":
            device = "cuda" if torch.cuda.is_available() else "cpu"

        started = time.monotonic()
        engine = TransformersEngine(
            str(self.folder),
            device=device,
            dtype=self.spec["dtype"],
            max_rows=self.spec["max_rows"],
            threads=self.threads,
        )
        log.info("loaded %s in %.1f s", self.pool.checkpoint, time.monotonic() - started)
        return engine

    @cached_property
    def hardware(self) -> shards.Provenance:
        """What runs the engine; seconds are filled in per shard."""
        import torch

        from searchlens import __version__

        device = (
            f"cuda ({torch.cuda.get_device_name()})"
            if str(getattr(self.engine, "device", "cpu")).startswith("cuda")
            else "cpu"
        )
        return shards.Provenance(0.0, device, 1, f"{self.spec['engine']} {__version__} torch {torch.__version__}")

    def lacking(self) -> list[tuple[Generation, int, int, list[Chunk]]]:
        """Missing ranges with the chunks each is cut into."""
        size = int(self.grid.config["chunk_samples"])
        found = []
        for generation, start, stop in self.grid.lacking(self.pool):
            folder = self.grid.folder(self.pool.checkpoint, self.pool.benchmark, generation.id)
            found.append(
                (generation, start, stop, chunks_of(generation, folder, start, stop, len(self.questions), size))
            )
        return found


def _runs(job: Job, chunk: Chunk) -> Iterator[tuple[tuple[int, int], Controller]]:
    """Controllers of every run that a chunk needs samples of, keyed by question and run."""
    policy = policies.from_spec(chunk.generation.id, chunk.generation.spec["policy"])
    step_ids = job.step_ids(str(policy.parameters.get("delimiter", "")))
    first, last = chunk.start // policy.width, -(-chunk.stop // policy.width)
    for q in range(chunk.first, chunk.last):
        for run_ in range(first, last):
            seed = seeds.sample_seed(chunk.generation.id, job.questions[q].id, run_)
            task = Task(
                job.prompts[q], seed, job.max_tokens, job.prompter.stop_ids, step_ids, job.prompter.text, job.answer
            )
            yield (q, run_), search.start(task, policy)


_NOTHING: dict[str, Any] = {
    "text": "",
    "tokens": [],
    "logprobs": [],
    "sampling_logprobs": [],
    "n_tokens": 0,
    "mean_logprob": None,
}


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


def _rows(job: Job, outcome: Outcome, width: int) -> list[dict[str, Any]]:
    """What a run has to show, one row per candidate; a failed one shows its reason ``width`` times."""
    spent = {"generated": outcome.usage.generated, "requests": outcome.usage.requests}
    if isinstance(outcome, Failure):
        failed = {**_NOTHING, "score": -math.inf, "finish": "failed", "details": json.dumps({"failed": outcome.reason})}
        rows = [dict(failed) for _ in range(width)]
    else:
        if len(outcome.candidates) != width:
            raise RuntimeError(f"a controller returned {len(outcome.candidates)} candidates, it should return {width}")
        texts = job.prompter.decode([c.tokens.tolist() for c in outcome.candidates])
        rows = [_row(candidate, text) for candidate, text in zip(outcome.candidates, texts, strict=True)]
    return [{**row, **(spent if place == 0 else dict.fromkeys(spent, 0))} for place, row in enumerate(rows)]


@dataclass(frozen=True)
class Made:
    """Samples and what the engine did for them.

    Attributes
    ----------
    frame : DataFrame
        ``shards.SAMPLES``, by question, then sample.
    seconds : float
    prefilled, reused : int
        As in ``shards.Provenance``.
    steps : int
        Times that the engine drew one token for every running sample.
    """

    frame: pl.DataFrame
    seconds: float
    prefilled: int
    reused: int
    steps: int

    @property
    def told(self) -> dict[str, str]:
        """What is kept beside the samples of a finished chunk."""
        return {key: repr(getattr(self, key)) for key in ("seconds", "prefilled", "reused", "steps")}


def sample_chunk(job: Job, chunk: Chunk, done: Callable[[int], None]) -> Made:
    """Draw the samples of a chunk.

    Raises
    ------
    RuntimeError
        More searches failed than ``failed_share`` allows; the message says which first and why.
    """
    width = policies.from_spec(chunk.generation.id, chunk.generation.spec["policy"]).width
    started, steps, usage = time.monotonic(), job.engine.steps, Usage()
    rows: list[dict[str, Any]] = []
    failed: list[tuple[int, int, str]] = []
    for (q, run_), outcome in run(_runs(job, chunk), job.engine):
        usage += outcome.usage
        if isinstance(outcome, Failure):
            failed.append((q, run_, outcome.reason))
        for place, row in enumerate(_rows(job, outcome, width)):
            sample = run_ * width + place
            if chunk.start <= sample < chunk.stop:
                rows.append({"position": q, "question": job.questions[q].id, "sample": sample, "run": run_, **row})
        done(width)
    _report(job, chunk, failed)
    frame = pl.DataFrame(rows, schema={"position": pl.UInt32(), **shards.SAMPLES}).sort("position", "sample")
    return Made(
        frame.drop("position"), time.monotonic() - started, usage.prefilled, usage.reused, job.engine.steps - steps
    )


def _report(job: Job, chunk: Chunk, failed: list[tuple[int, int, str]]) -> None:
    """Say what failed; too much of it ends the job before it is taken for a result."""
    if not failed:
        return
    q, run_, reason = min(failed)
    example = f"{job.pool.benchmark} question {job.questions[q].id}, run {run_}: {reason}"
    runs = chunk.samples / policies.from_spec(chunk.generation.id, chunk.generation.spec["policy"]).width
    if len(failed) > job.grid.config["failed_share"] * runs:
        raise RuntimeError(f"{len(failed)} searches of {', '.join(chunk.generation.policies)} failed; {example}")
    log.warning("%d searches of %s failed and count as unsolved; %s", len(failed), chunk.generation.policies, example)


def _finished(chunk: Chunk) -> Made | None:
    """A chunk that an earlier job finished, with what it took; an unreadable one is removed."""
    if not chunk.path.exists():
        return None
    try:
        frame = pl.read_parquet(chunk.path)
        told = pl.read_parquet_metadata(chunk.path)
        if frame.height == chunk.samples and frame.schema == shards.SAMPLES:
            return Made(frame, float(told["seconds"]), *(int(told[key]) for key in ("prefilled", "reused", "steps")))
    except (PolarsError, OSError, KeyError, ValueError):
        pass
    log.warning("%s is unreadable and is made again", chunk.path)
    chunk.path.unlink()
    return None


def _made(job: Job, chunk: Chunk, progress: Progress) -> Made:
    if kept := _finished(chunk):
        log.info("%s: %d samples kept from an earlier run", chunk.path.name, chunk.samples)
        progress.add(chunk.samples)
        return kept
    made = sample_chunk(job, chunk, lambda count: progress.add(count, ", ".join(chunk.generation.policies)))
    files.replace(chunk.path, lambda path: shards.write_parquet(made.frame, path, made.told))
    return made


def _make_range(
    job: Job, generation: Generation, start: int, stop: int, chunks: list[Chunk], progress: Progress
) -> None:
    made = [_made(job, chunk, progress) for chunk in chunks]
    folder = job.grid.folder(job.pool.checkpoint, job.pool.benchmark, generation.id)
    samples, steps = pl.concat([part.frame for part in made]), sum(part.steps for part in made)
    provenance = replace(
        job.hardware,
        wall_seconds=sum(part.seconds for part in made),
        prefilled=sum(part.prefilled for part in made),
        reused=sum(part.reused for part in made),
        mean_running=int(samples["generated"].sum()) / steps if steps else 0.0,
    )
    shards.publish(
        folder,
        start,
        stop,
        samples,
        generation_id=generation.id,
        policies=generation.policies,
        provenance=provenance,
    )
    for chunk in chunks:
        chunk.path.unlink(missing_ok=True)
    if (folder / "chunks").is_dir() and not any((folder / "chunks").iterdir()):
        (folder / "chunks").rmdir()


def _describe(grid: Grid, pool: Pool) -> dict[str, Any]:
    entries = []
    for generation in pool.generations:
        folder = grid.folder(pool.checkpoint, pool.benchmark, generation.id)
        present = [shard for shard in shards_of(folder) if shard.present]
        entries.append(
            {
                "id": generation.id,
                "policies": list(generation.policies),
                "samples": generation.samples,
                "spec": generation.spec,
                "shards": [
                    {"file": s.path.name, "rows": s.sidecar["rows"], "sha256": s.sidecar["sha256"]} for s in present
                ],
            }
        )
    return {"pool": pool.name, "checkpoint": pool.checkpoint, "benchmark": pool.benchmark, "generations": entries}


def generate(grid: Grid, checkpoint: str, benchmark: str, manifest: Path, *, threads: int = 1) -> None:
    """Sample what the store lacks of one pool, then write its manifest.

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
        Unknown pool, checkpoint files missing or changed, prompt too long, results folder not writable, or another
        job sampling the same pool.
    """
    pool = grid.find_pool(checkpoint, benchmark, str(manifest))
    job = Job(grid, pool, threads)
    lock = grid.results / "locks" / f"{checkpoint}.{benchmark}.{pool.name}"
    with files.exclusive(lock, f"sampling {checkpoint}/{benchmark} {pool.name}"):
        _discard_damaged_gaps(job)
        lacking = job.lacking()
        total = sum(chunk.samples for *_, chunks in lacking for chunk in chunks)
        log.info(
            "%s/%s %s: %d policies, %d samples to draw", checkpoint, benchmark, pool.name, len(pool.generations), total
        )
        progress = Progress(f"{checkpoint}/{benchmark}", total, "samples")
        for generation, start, stop, chunks in lacking:
            _make_range(job, generation, start, stop, chunks, progress)
        files.replace_text(manifest, json.dumps(_describe(grid, pool), indent=1))
    if total:
        job.engine.close()


def _discard_damaged_gaps(job: Job) -> None:
    """Move aside sidecars and files of shards that ``gaps`` calls missing, so that publishing does not meet them."""
    for generation in job.pool.generations:
        folder = job.grid.folder(job.pool.checkpoint, job.pool.benchmark, generation.id)
        if gaps(folder, generation.samples):
            gone = [shard for shard in shards_of(folder) if not shard.present]
            for path in shards.set_aside(job.grid, gone):
                log.warning("moved aside %s", path)
