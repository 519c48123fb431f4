"""What jobs would refuse of the prompts of a study, and where those of a pair differ. No engine starts."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, replace
from importlib.util import find_spec
from os.path import commonprefix
from typing import Any

from searchlens.errors import InputError
from searchlens.plan import Grid, JobPool
from searchlens.sampling._job import Job

_HAS_TOKENIZERS = find_spec("tokenizers") is not None
"""Not where studies are only planned and read."""


def prompts(grid: Grid, *, shown: bool) -> tuple[list[str], list[str], list[dict[str, Any]]]:
    """Refusals of jobs, and notes on what is drawn all the same, of all cells whose inputs are here; each once.

    The third list has the first prompt of each such cell (``Prompt``), if they are to be ``shown``.
    """
    refusals: list[str] = []
    notes = [] if _HAS_TOKENIZERS else ["prompts are not checked: tokenizers is not installed here"]
    jobs: dict[tuple[str, str], Job] = {}
    for cell in _cells_here(grid):
        job = _job(grid, *cell)
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
    sent = [_first(grid, job) for job in jobs.values()] if shown else []
    if shown and not sent:
        notes.append("no prompt is shown: this study samples no cell whose questions and checkpoint are here")
    return list(dict.fromkeys(refusals)), list(dict.fromkeys(notes)), sent


def _first(grid: Grid, job: Job) -> dict[str, Any]:
    """The first prompt of a cell; without its question, if that is not to be shown in plain text."""
    question, benchmark = job.questions[0], job.pool.benchmark
    shown = replace(question, text="…") if grid.study.terms(benchmark) else question
    named = {"checkpoint": job.pool.checkpoint, "benchmark": benchmark, "question": question.id}
    return {**named, "prompt": asdict(job.prompter.shown([shown])[0])}


def drawn_otherwise(grid: Grid) -> Iterator[str]:
    """Shards of the study that were drawn with other prompts, stops or masks than a job would use now, in words."""
    words = {"stops": "other stop tokens", "masked": "other masked tokens", "prompt": "another prompt"}
    for cell in _cells_here(grid):
        record = _job(grid, *cell).prompter.record
        for shard in (shard for g in grid.jobs.generations(*cell) for shard in grid.stored(*cell, g)):
            drawn = json.loads(shard.sidecar.get("specials") or "{}")
            for what in (word for key, word in words.items() if key in drawn and drawn[key] != record[key]):
                yield f"{shard.path} was drawn with {what} than {cell[0]} has now"


def _cells_here(grid: Grid) -> Iterator[tuple[str, str]]:
    """Cells that this study samples, whose questions and tokenizer are on this machine."""
    for checkpoint, benchmark in grid.study.cells if _HAS_TOKENIZERS else ():
        if (
            grid.jobs.generations(checkpoint, benchmark)
            and not grid.inputs.absent(benchmark)
            and grid.inputs.is_here(checkpoint)
        ):
            yield checkpoint, benchmark


def _job(grid: Grid, checkpoint: str, benchmark: str) -> Job:
    return Job(grid, JobPool(checkpoint, benchmark, grid.jobs.generations(checkpoint, benchmark)), threads=1)


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
