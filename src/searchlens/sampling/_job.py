"""What sampling one pool needs: questions as token ids, answers as the grader reads them, and the engine.

Without an engine, it says what jobs would refuse of the prompts of a study, and where those of a pair differ.
"""

from __future__ import annotations

import gc
import json
import logging
import math
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, replace
from functools import cached_property
from importlib.util import find_spec
from itertools import pairwise
from os.path import commonprefix
from pathlib import Path
from typing import Any

from searchlens import __version__, catalogue, grading
from searchlens.benchmarks.prompter import Prompter
from searchlens.config.sampled import CheckpointSpec
from searchlens.engines.base import Engine
from searchlens.engines.kind import engine_kind, take_gpu
from searchlens.errors import InputError
from searchlens.plan import Generation, Grid, JobPool, Traced
from searchlens.sampling._chunks import Chunk, MissingShard
from searchlens.search.evaluators import SelfEvaluation, evaluator
from searchlens.search.policy import Policy, from_spec
from searchlens.search.task import Task, unrecorded
from searchlens.store import provenance, shards
from searchlens.store.checkpoints import context
from searchlens.store.files import canonical

log = logging.getLogger(__name__)


class Job:
    """Everything that sampling one pool needs. Expensive parts are made when they are first used.

    ``traced`` says which searches are recorded, instead of the configuration. ``max_rows``, the most rows that the
    engine decodes together, is that of the configuration until memory runs out.
    """

    def __init__(self, grid: Grid, pool: JobPool, threads: int, traced: Traced | None = None) -> None:
        self.grid, self.pool, self.threads = grid, pool, threads
        self._traced = traced
        self.spec = grid.config.checkpoints[pool.checkpoint]
        self.folder = grid.inputs.checkpoint_folder(pool.checkpoint)
        self.questions = grid.inputs.questions(pool.benchmark)
        self.max_tokens = int(grid.config.benchmarks[pool.benchmark].max_tokens)
        self.max_rows: int | None = self.spec.max_rows
        self._grader = grading.grader(grid.study.benchmark(pool.benchmark).grader)
        self._step_ids: dict[str, tuple[int, ...]] = {}

    def traced(self, generation: Generation) -> Traced | None:
        """Return which searches of a stream are recorded, None for none."""
        return self._traced or self.grid.jobs.traced(generation)

    @cached_property
    def prompter(self) -> Prompter:
        """The checkpoint's tokenizer and template."""
        self.grid.inputs.require_whole(self.pool.checkpoint)
        template = self.grid.inputs.template(self.pool.checkpoint, self.pool.benchmark)
        return Prompter(self.folder, template, self.spec.stop_tokens, self.grid.inputs.specials(self.pool.checkpoint))

    @cached_property
    def prompts(self) -> list[tuple[int, ...]]:
        """Token ids of the prompt of every question, in the order of the benchmark."""
        return self.prompter.prompts(self.questions)

    def step_ids(self, delimiter: str) -> tuple[int, ...]:
        """Return the tokens that end a thought; none if the policy's delimiter is empty."""
        if delimiter not in self._step_ids:
            self._step_ids[delimiter] = self.prompter.tokens_with(delimiter) if delimiter else ()
        return self._step_ids[delimiter]

    def answer(self, tokens: Sequence[int]) -> str | None:
        """Return the final answer that token ids state, None if they state none. The gold answer is not used."""
        text = self.prompter.text(tokens)
        end = self.prompter.end(tokens, text)
        stopped = end is not None or (bool(tokens) and tokens[-1] in self.prompter.stop_ids)
        return self._grader.guide(end.text if end else text, stopped).answer

    def task(
        self, question: int, seed: int, step_ids: tuple[int, ...] = (), note: Callable[..., None] = unrecorded
    ) -> Task:
        """Return what a policy may know of one run on a question, which is given by its position."""
        prompter, template = self.prompter, self.prompter.template
        what = self.prompts[question], seed, self.max_tokens, prompter.stop_ids, step_ids, prompter.text, self.answer
        return Task(*what, template.check_every, template.stop_texts, prompter.spell, note)

    @cached_property
    def engine(self) -> Engine:
        """The engine, with the checkpoint loaded. Weights and prompts are checked before.

        Raises InputError if the files are not the pinned or declared ones, a prompt does not fit, or a policy needs
        more different tokens than can be drawn; and EngineMemoryError.
        """
        self.grid.inputs.checked_folder(self.pool.checkpoint)
        self.check_lengths()
        started = time.monotonic()
        given: dict[str, Any] = {"max_rows": self.max_rows, "threads": self.threads, "masked": self.prompter.masked}
        given["adapter"] = self.grid.inputs.adapter(self.pool.checkpoint)
        engine = start_engine(self.folder, self.spec, **given)
        log.info("loaded %s in %.1f s", self.pool.checkpoint, time.monotonic() - started)
        self.check_lengths(engine.max_model_len)
        first = () if self.grid.study.terms(self.pool.benchmark) else self.prompts[0]  # logs are plain text
        log.info("%s", self.prompter.described(first))
        return engine

    def evaluator_tokens(self, where: str, policy: Policy) -> int:
        """Return how many tokens the policy's evaluator has the model read or draw after a candidate.

        ``where`` begins messages. An InputError says that the policy needs more different tokens at one position than
        can be drawn, or one token for a text of several.
        """
        prompter = self.prompter
        for role, component in (("controller", policy.controller), ("evaluator", policy.evaluator)):
            for key, most in component.vocabulary_limits(policy, prompter.drawable, prompter.stop_ids).items():
                if (value := getattr(component, key)) > most:
                    raise InputError(
                        f"{where}: {role} {component.name}: {key} is {value}; allowed: at most {most}, because"
                        f" {prompter.drawable} tokens can be drawn"
                    )
        policy_evaluator = evaluator(policy.evaluator)
        if not isinstance(policy_evaluator, SelfEvaluation):
            return 0
        question, *_ = policy_evaluator.spelled(prompter.spell, f"{where}: evaluator self_evaluation")
        return len(question) + 1

    @cached_property
    def _evaluator_tokens(self) -> int:
        """Most tokens that any policy's evaluator needs after a candidate."""
        policies = {each.policies[0]: from_spec(each.id, each.spec["policy"]) for each in self.pool.generations}
        return max((self.evaluator_tokens(f"policy {name!r}", each) for name, each in policies.items()), default=0)

    def check_lengths(self, *limits: int) -> None:
        """Refuse prompts that no model should see, or that do not fit together with answer and evaluator's question."""
        kind = engine_kind(self.spec)
        known = (*limits, self.spec.context, kind.max_model_len, context(self.folder, embedded=kind.embedded))
        limit = min((limit for limit in known if limit is not None), default=math.inf)
        longest = max(map(len, self.prompts), default=0)
        needed = longest + self.max_tokens + self._evaluator_tokens
        if needed > limit:
            question = f", {self._evaluator_tokens} of an evaluator's question" if self._evaluator_tokens else ""
            raise InputError(
                f"{self.pool.benchmark}: its longest prompt of {longest} tokens{question} and max_tokens"
                f" {self.max_tokens} need {needed} tokens, the limit of {self.pool.checkpoint} is {limit}",
                f"lower benchmarks.{self.pool.benchmark}.max_tokens; prompts are never cut",
            )

    def close(self) -> None:
        """Close the engine, if it was started, and free the device."""
        if "engine" in self.__dict__:
            self.engine.close()
            del self.engine
        gc.collect()  # objects in reference cycles would keep the device's memory in use
        if torch := sys.modules.get("torch"):  # which takes seconds to import
            torch.cuda.empty_cache()

    def take_over(self, other: Job) -> None:
        """Go on with the engine of another job if it has this checkpoint loaded; otherwise close it.

        Raises InputError as ``engine``, if this job's prompts do not fit.
        """
        is_loaded = self.pool.checkpoint == other.pool.checkpoint and "engine" in other.__dict__
        if not is_loaded or self.prompter.masked != other.prompter.masked:
            other.close()
            return
        self.max_rows, self.engine = other.max_rows, other.engine
        del other.engine
        self.check_lengths(self.engine.max_model_len)

    @cached_property
    def hardware(self) -> shards.Provenance:
        """Where and with what the samples are drawn; the costs are set for each chunk."""
        import torch

        cuda = str(getattr(self.engine, "device", "cpu")).startswith("cuda")
        device = f"cuda ({torch.cuda.get_device_name()})" if cuda else "cpu"
        version = getattr(self.engine, "version", __version__)
        return shards.Provenance(
            0.0,
            device,
            engine_kind(self.spec).gpus,
            f"{self.spec.engine} {version} torch {torch.__version__}",
            host=provenance.host(),
            version=__version__,
            commit=provenance.commit(),
            config=provenance.config_fingerprint(self.grid.config),
            slurm_job=provenance.slurm_job(),
            specials=canonical(self.prompter.record),
        )

    def missing_shards(self) -> list[MissingShard]:
        """Return the shards that the store does not have, in the order of the configuration.

        Each is cut into chunks of whole questions, of equal size, about ``chunk_samples`` samples each.
        """
        size, count = int(self.grid.config.chunk_samples), len(self.questions)
        cell, store = (self.pool.checkpoint, self.pool.benchmark), self.grid.layout
        folders = {g.id: (store.generation(*cell, g.id), store.traces(*cell, g.id)) for g in self.pool.generations}
        shards = []
        for generation, start, stop in self.grid.missing(self.pool):
            folder, recorded = folders[generation.id]
            blocks = max(1, round(count * (stop - start) / size))
            edges = [round(count * i / blocks) for i in range(blocks + 1)]
            chunks = (Chunk(generation, folder, start, stop, a, b) for a, b in pairwise(edges) if a < b)
            shards.append(MissingShard(generation, folder, recorded, start, stop, tuple(chunks)))
        return shards


def start_engine(folder: Path, spec: CheckpointSpec, **given: Any) -> Engine:
    """Load a checkpoint into the engine that its section of the configuration names; ``given`` is not from there."""
    import torch  # takes seconds to import

    device, kind = spec.device, engine_kind(spec)
    if device != "cpu" and kind.gpus == 1:
        take_gpu()
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    given |= {key: getattr(spec, key) for key in ("dtype", *kind.reads)} | {"device": device, **kind.options}
    engine: Engine = catalogue.find("engine", kind.name)(folder, **given)
    return engine


# ---- the prompts of a study

_HAS_TOKENIZERS = find_spec("tokenizers") is not None
"""Not where studies are only planned and read."""


def prompts(grid: Grid, *, shown: bool) -> tuple[list[str], list[str], list[dict[str, Any]]]:
    """Refusals of jobs, and notes on what is drawn all the same, of all cells whose inputs are here; each once.

    The third list has the first prompt of each such cell (``Prompt``), if they are to be ``shown``.
    """
    refusals: list[str] = []
    notes = [] if _HAS_TOKENIZERS else ["prompts are not checked: tokenizers is not installed here"]
    jobs: dict[tuple[str, str], Job] = {}
    for job in _jobs_here(grid):
        cell = job.pool.checkpoint, job.pool.benchmark
        try:
            job.check_lengths()
            notes += [f"{cell[0]}: {note}" for note in job.prompter.notes]
            if (job.folder / "adapter_config.json").exists():
                notes.append(
                    f"{cell[0]}: the adapter in {job.folder} is not added; name it by `adapter` if it should be"
                )
            jobs[cell] = job
        except InputError as error:
            refusals.append(f"checkpoints.{cell[0]}: {error.message} ({error.hint})")
    for pair, benchmark in grid.study.pair_cells:
        sides = [jobs.get((grid.study.pairs[pair][role], benchmark)) for role in ("base", "rl")]
        if all(sides):
            notes += [f"{pair}/{benchmark}: {what}" for what in _difference(*filter(None, sides))]
    sent = []
    for (checkpoint, benchmark), job in (jobs if shown else {}).items():
        question = job.questions[0]
        named = {"checkpoint": checkpoint, "benchmark": benchmark, "question": question.id}
        if grid.study.terms(benchmark):  # which do not let it be shown in plain text
            question = replace(question, text="…")
        sent.append({**named, "prompt": asdict(job.prompter.shown([question])[0])})
    if shown and not sent:
        notes.append("no prompt is shown: this study samples no cell whose questions and checkpoint are here")
    return list(dict.fromkeys(refusals)), list(dict.fromkeys(notes)), sent


def drawn_otherwise(grid: Grid) -> Iterator[str]:
    """Shards of the study that were drawn with other prompts, stops or masks than a job would use now, in words."""
    words = {"stops": "other stop tokens", "masked": "other masked tokens", "prompt": "another prompt"}
    for job in _jobs_here(grid):
        cell, record = (job.pool.checkpoint, job.pool.benchmark), job.prompter.record
        for shard in (shard for g in grid.jobs.generations(*cell) for shard in grid.stored(*cell, g)):
            drawn = json.loads(shard.sidecar.get("specials") or "{}")
            for what in (word for key, word in words.items() if key in drawn and drawn[key] != record[key]):
                yield f"{shard.path} was drawn with {what} than {cell[0]} has now"


def _jobs_here(grid: Grid) -> Iterator[Job]:
    """Jobs of the cells that this study samples, whose questions and tokenizer are on this machine."""
    for checkpoint, benchmark in grid.study.cells if _HAS_TOKENIZERS else ():
        generations = grid.jobs.generations(checkpoint, benchmark)
        if generations and not grid.inputs.absent(benchmark) and grid.inputs.is_here(checkpoint):
            yield Job(grid, JobPool(checkpoint, benchmark, generations), threads=1)


def _difference(base: Job, rl: Job) -> Iterator[str]:
    """Where the prompts of the sides of a pair begin to differ, in words."""
    for question, ours, theirs in zip(base.questions, base.prompts, rl.prompts, strict=True):
        if ours == theirs:
            continue
        place = len(commonprefix([ours, theirs]))  # noqa: RUF071  # of tokens, not of paths
        tokens = ours[place : place + 1], theirs[place : place + 1]
        first, second = (job.prompter.names(each) or "nothing" for job, each in zip((base, rl), tokens, strict=True))
        yield (
            f"prompts of {base.pool.checkpoint} and {rl.pool.checkpoint} differ, first in question {question.id} at"
            f" token {place + 1}: {first} and {second}"
        )
        return
