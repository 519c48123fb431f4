"""The jobs that make the cohort, and their schedule: processes spread over devices, longest remaining chain first.

Each writes its record last, so a job with a record is done.

FOLDER/NAME-base, FOLDER/NAME-rl    weights, tokenizer
FOLDER/benchmarks                   the nine test sets and, once levels are measured, those of rltrain
FOLDER/levels.json                  measured levels
FOLDER/records/JOB.json.gz          recipe as used, curves, dev numbers, seconds
FOLDER/steps/NAME-STEP              RL step checkpoints
FOLDER/work                         corpora, and states of unfinished jobs; can be deleted when all is done
FOLDER/logs/JOB.log                 output of a job
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from graphlib import TopologicalSorter
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from searchlens.store.files import replace_text
from searchlens.zoo import record_file
from searchlens_lab.zoo import model as models
from searchlens_lab.zoo.cohort import COHORT, MEASURED, RANKED, RLTRAIN, CohortPair, with_needs
from searchlens_lab.zoo.corpus import Tokens, build_corpus, train_tokenizer
from searchlens_lab.zoo.evaluate import (
    DEFAULT,
    POLICIES,
    rows_for,
    sample_role,
    sample_roles,
    summarise,
    write_benchmarks,
    write_rows,
)
from searchlens_lab.zoo.model import Decoder
from searchlens_lab.zoo.pretrain import StateFile, pretrain, write_record
from searchlens_lab.zoo.recipe import Recipe
from searchlens_lab.zoo.rlvr import train_rlvr
from searchlens_lab.zoo.sample import Sampler
from searchlens_lab.zoo.tasks import Problem, distinct


@dataclass(frozen=True, slots=True)
class TrainingJob:
    """One process."""

    name: str
    needs: tuple[str, ...]
    """Names of jobs that have to be done before this one."""
    gpu: bool
    """Whether it takes a place on a device. The other jobs use all cores, so they run one at a time."""
    seconds: float
    """Expected duration; it only decides the order."""


@dataclass(frozen=True, slots=True)
class _RunningJob:
    job: TrainingJob
    device: str
    process: subprocess.Popen[bytes]
    started: float


def urgency(jobs: Sequence[TrainingJob]) -> dict[str, float]:
    """Seconds from the start of each job to the end of the longest chain of jobs that wait for it."""
    longest: dict[str, float] = {}
    for job in reversed(ordered(jobs)):
        after = [longest[other.name] for other in jobs if job.name in other.needs]
        longest[job.name] = job.seconds + max(after, default=0.0)
    return longest


def ordered(jobs: Sequence[TrainingJob]) -> list[TrainingJob]:
    """The jobs, each after those that it needs; needs that are not among ``jobs`` count as done.

    Raises ValueError if jobs wait for each other in a circle.
    """
    by_name = {job.name: job for job in jobs}
    order = TopologicalSorter({job.name: [need for need in job.needs if need in by_name] for job in jobs})
    return [by_name[name] for name in order.static_order()]


def run(
    jobs: Sequence[TrainingJob],
    done: Callable[[TrainingJob], bool],
    launch: Callable[[TrainingJob, str], subprocess.Popen[bytes]],
    devices: Sequence[str],
    slots: int = 1,
    seconds: float = float("inf"),
    pause: float = 0.2,
    say: Callable[[str], None] = print,
) -> list[str]:
    """Run the jobs that are not done; returns the names of those that are still not done at the end.

    A failed job stops only the jobs that need it. After ``seconds``, running jobs are asked to end; call again to
    resume. ``launch`` starts a job on one of the devices, which have ``slots`` each, or on "" if it needs none.
    """
    rank = urgency(jobs)
    queue = sorted((job for job in jobs if not done(job)), key=lambda job: -rank[job.name])
    finished = {job.name for job in jobs} - {job.name for job in queue}
    running: list[_RunningJob] = []
    start = time.monotonic()

    def report(text: str) -> None:
        say(f"{time.monotonic() - start:6.0f} s  {text}")

    while queue or running:
        for entry in list(running):
            status = entry.process.poll()
            if status is None:
                continue
            running.remove(entry)
            success = status == 0 and done(entry.job)
            if success:
                finished.add(entry.job.name)
            report(f"{entry.job.name}: {'done' if success else 'FAILED'} in {time.monotonic() - entry.started:.0f} s")
        if time.monotonic() - start > seconds:
            for entry in running:
                entry.process.terminate()
            for entry in running:
                entry.process.wait(30)
            break
        for job in [job for job in queue if set(job.needs) <= finished]:
            device = _place(job, running, devices, slots)
            if device is None:
                continue
            queue.remove(job)
            running.append(_RunningJob(job, device, launch(job, device), time.monotonic()))
            report(f"{job.name}: started{f' on {device}' if device else ''}")
        if queue and not running:
            break
        time.sleep(pause)
    return [job.name for job in jobs if not done(job)]


def _place(job: TrainingJob, running: Sequence[_RunningJob], devices: Sequence[str], slots: int) -> str | None:
    """The device with the fewest jobs, the empty string for a job that needs none, or None if there is no room."""
    if not job.gpu:
        return None if any(not entry.job.gpu for entry in running) else ""
    load = {device: sum(device == entry.device for entry in running) for device in devices}
    device = min(devices, key=lambda name: load[name])
    return device if load[device] < slots else None


# ---- jobs

Cell = tuple[str, int]
LEVELS = 5
"""Number of measured levels."""


def measured_levels(success: Mapping[Cell, float]) -> dict[Cell, int]:
    """Rank kinds-and-levels by the share of right samples; each fifth of the ranking is one level, 1 the easiest."""
    ranked = sorted(success, key=lambda cell: -success[cell])  # ties keep their order
    return {cell: 1 + LEVELS * i // len(ranked) for i, cell in enumerate(ranked)}


def cells_of(split: str, levels: Mapping[Cell, int]) -> tuple[Cell, ...]:
    """The kinds and nominal levels from which the RL of a split draws."""
    return tuple(cell for cell in RANKED if levels[cell] in MEASURED[split])


def rltrain(split: str, levels: Mapping[Cell, int], seed: int) -> list[Problem]:
    """Distinct questions as the RL of a split sees them, with equal numbers for each kind and level."""
    cells = cells_of(split, levels)
    rng = random.Random(f"rltrain-{split}/{seed}")
    problems = [
        problem
        for i, (kind, level) in enumerate(cells)
        for problem in distinct(rng, kind, "train", (RLTRAIN + i) // len(cells), (level,))
    ]
    rng.shuffle(problems)
    return problems


KEEP_EVERY = 20
"""RL steps between two step checkpoints."""
PAIRED = ("math", "aime", "gpqa", "ifeval", "olympiad")
"""Roles whose records say for each question whether it is solved, which paired intervals need."""


def plan(names: list[str], cohort: Mapping[str, CohortPair] = COHORT) -> list[TrainingJob]:
    """All jobs of some pairs (of all pairs if ``names`` is empty), with their expected seconds on one H200."""
    pairs = {name: cohort[name] for name in with_needs(names, cohort)}
    anchor = next(iter(cohort))  # its Base measures the levels
    bases = [name for name in cohort if (name in pairs or name == anchor) and not cohort[name].base]
    jobs = [
        TrainingJob(f"corpus-{family}", (), gpu=False, seconds=50)
        for family in dict.fromkeys(cohort[name].family for name in bases)
    ]
    for name in bases:
        shape, steps = cohort[name].recipe.shape, cohort[name].recipe.pretraining.steps
        seconds = 140 * steps / 6_000 * shape.layers / 5 * max(0.75, shape.hidden / 128) ** 1.5
        jobs.append(TrainingJob(f"base-{name}", (f"corpus-{cohort[name].family}",), gpu=True, seconds=seconds))
        jobs.append(TrainingJob(f"dev-{name}-base", (f"base-{name}",), gpu=True, seconds=25))
    jobs.append(TrainingJob("levels", (f"base-{anchor}",), gpu=True, seconds=15))
    for name, pair in pairs.items():
        needs = ("levels", f"base-{pair.base or name}", *((f"rl-{pair.start}",) if pair.start else ()))
        jobs.append(TrainingJob(f"rl-{name}", needs, gpu=True, seconds=0.6 * pair.recipe.rlvr.steps))
        jobs.append(TrainingJob(f"dev-{name}-rl", (f"rl-{name}",), gpu=True, seconds=25))
    return jobs


@dataclass(frozen=True, slots=True)
class Workshop:
    """Does the jobs of one cohort in one folder."""

    folder: Path
    cohort: Mapping[str, CohortPair] = field(default_factory=lambda: COHORT)
    """Its pairs by name; the Base of the first one measures the levels."""
    device: str = "cpu"
    """As torch names it."""
    workers: int = 1
    """Processes that write a corpus."""
    scale: float = 1.0
    """Number of dev questions relative to the benchmarks' own."""

    def record(self, job: str) -> Path:
        """The record of a job; it exists once the job is done."""
        return record_file(self.folder, job)

    def done(self, job: str) -> bool:
        """Whether a job is done. A deleted corpus counts as done unless a Base still has to read it."""
        kind, _, family = job.partition("-")
        if kind != "corpus" or not self.record(job).exists():
            return self.record(job).exists()
        readers = (name for name, pair in self.cohort.items() if pair.family == family and not pair.base)
        exists = (self.folder / "work" / family / "corpus.npz").exists()
        return exists or all(self.record(f"base-{name}").exists() for name in readers)

    def do(self, job: str) -> None:
        """Do one job, resuming from its saved state if there is one."""
        started = time.monotonic()
        kind, _, name = job.partition("-")
        kinds = {"corpus": self._corpus, "base": self._base, "levels": self._levels, "rl": self._rl, "dev": self._dev}
        record = kinds[kind](name)
        hardware = torch.cuda.get_device_name() if self.device.startswith("cuda") else "CPU"
        record |= {"hardware": hardware, "seconds": round(time.monotonic() - started, 1)}
        write_record(self.folder, job, record)

    def levels(self) -> dict[Cell, int]:
        """The measured levels."""
        cells = json.loads((self.folder / "levels.json").read_text(encoding="utf-8"))
        return {(cell["kind"], cell["level"]): cell["measured"] for cell in cells}

    def _state_file(self, job: str, recipe: Recipe) -> StateFile:
        """The state of a training job. Its name holds a digest of the recipe: no other recipe resumes from it."""
        return StateFile(self.folder / "work" / f"{job}-{zlib.crc32(repr(recipe).encode()):08x}.pt")

    def _corpus(self, family: str) -> dict[str, Any]:
        recipe = next(pair.recipe for pair in self.cohort.values() if pair.family == family)
        folder = self.folder / "work" / family
        tokenizer = train_tokenizer(recipe)
        corpus = build_corpus(recipe, tokenizer.backend_tokenizer.to_str(), self.workers)
        tokenizer.save_pretrained(folder)
        np.savez(folder / "corpus.npz", flat=corpus.flat, lengths=corpus.lengths, prompts=corpus.prompts)
        return {"documents": len(corpus.lengths), "tokens": len(corpus.flat)}

    def _base(self, name: str) -> dict[str, Any]:
        pair = self.cohort[name]
        state_file = self._state_file(f"base-{name}", pair.recipe)
        with np.load(self.folder / "work" / pair.family / "corpus.npz") as arrays:
            corpus = Tokens(**arrays)
        trained, curve = pretrain(corpus, pair.recipe, self.device, state_file)
        tokenizer = AutoTokenizer.from_pretrained(self.folder / "work" / pair.family, trust_remote_code=False)
        models.save(trained, tokenizer, self.folder / f"{name}-base")
        state_file.clear()
        return {"recipe": asdict(pair.recipe), "curve": curve}

    def _levels(self, _: str) -> dict[str, Any]:
        name, pair = next(iter(self.cohort.items()))
        model, tokenizer = self._load(f"{name}-base")
        questions = max(1, round(100 * self.scale))
        rng, limit = random.Random(f"levels/{pair.recipe.benchmark_seed}"), pair.recipe.rlvr.max_tokens
        problems = [p for kind, level in RANKED for p in distinct(rng, kind, "train", questions, (level,))]
        sampler = Sampler(model, rows_for(model), pair.recipe.prompt_tokens, limit)
        hits = sample_role(sampler, tokenizer.backend_tokenizer, problems, POLICIES[DEFAULT], 16, limit).hits
        success = {cell: float(hits[i * questions : (i + 1) * questions].mean()) for i, cell in enumerate(RANKED)}
        levels = measured_levels(success)
        cells = [
            {"kind": kind, "level": level, "measured": levels[kind, level], "success": round(share, 4)}
            for (kind, level), share in success.items()
        ]
        write_benchmarks(self.folder / "benchmarks", pair.recipe, packed=True)
        for split in MEASURED:
            problems = rltrain(split, levels, pair.recipe.benchmark_seed)
            write_rows(self.folder / "benchmarks", f"rltrain-{split}", problems, packed=True)
        _write(self.folder / "levels.json", cells)
        return {"by": f"{name}-base", "questions": questions, "levels": cells}

    def _rl(self, name: str) -> dict[str, Any]:
        pair = self.cohort[name]
        cells = (*cells_of(pair.split, self.levels()), *pair.more)
        recipe = replace(pair.recipe, rlvr=replace(pair.recipe.rlvr, cells=cells))
        state_file = self._state_file(f"rl-{name}", recipe)
        start, tokenizer = self._load(f"{pair.start}-rl" if pair.start else f"{pair.base or name}-base")
        reading: list[dict[str, float]] = []
        if pair.demonstrations is not None:
            start, reading = self._demonstrate(name, start, tokenizer)

        def keep(step: int, model: Decoder) -> None:
            if step % KEEP_EVERY == 0:
                models.save(model, tokenizer, self.folder / "steps" / f"{name}-{step}")

        trained, curve = train_rlvr(start, tokenizer.backend_tokenizer, recipe, state_file, keep)
        models.save(trained, tokenizer, self.folder / f"{name}-rl")
        state_file.clear()
        return {"recipe": asdict(recipe), "demonstrations": reading, "curve": curve}

    def _demonstrate(
        self, name: str, base: Decoder, tokenizer: PreTrainedTokenizerFast
    ) -> tuple[Decoder, list[dict[str, float]]]:
        """Let a Base read its pair's demonstrations; returns the model and the curve of that training."""
        pair = self.cohort[name]
        assert pair.demonstrations is not None
        recipe = replace(pair.recipe, corpus=pair.demonstrations.corpus, pretraining=pair.demonstrations.pretraining)
        folder = self.folder / "work" / f"{name}-shown"
        curve = folder.with_suffix(".json")
        if not curve.exists():
            corpus = build_corpus(recipe, tokenizer.backend_tokenizer.to_str(), self.workers)
            trained, points = pretrain(corpus, recipe, self.device, start=base)
            models.save(trained, tokenizer, folder)
            _write(curve, points)
        return models.load(folder, self.device), json.loads(curve.read_text(encoding="utf-8"))

    def _dev(self, model_name: str) -> dict[str, Any]:
        name, _, side = model_name.rpartition("-")
        pair = self.cohort[name]
        model, tokenizer = self._load(model_name)
        roles = {name: role for name, role in pair.recipe.roles.items() if side == "base" or name != "stem"}
        recipe = replace(pair.recipe, roles=roles)
        results = sample_roles(model, tokenizer.backend_tokenizer, recipe, "dev", tuple(POLICIES), self.scale)
        solved = {
            f"{role}/{policy}": {str(k): "".join("01"[x] for x in outcome.solved(k).astype(int)) for k in (1, 16)}
            for (role, policy), (_, outcome) in results.items()
            if role in PAIRED and policy != "greedy"
        }
        return {"numbers": summarise(results), "solved": solved, "steps": self._steps(name) if side == "rl" else {}}

    def _steps(self, name: str) -> dict[str, Any]:
        """pass@k of math on dev at every RL step checkpoint, under the default policy."""
        pair = self.cohort[name]
        recipe = replace(pair.recipe, roles={"math": pair.recipe.roles["math"]})
        curves: dict[str, Any] = {}
        for folder in sorted((self.folder / "steps").glob(f"{name}-*"), key=lambda path: int(path.name.split("-")[-1])):
            model, tokenizer = self._load(f"steps/{folder.name}")
            results = sample_roles(model, tokenizer.backend_tokenizer, recipe, "dev", (DEFAULT,), self.scale)
            curves[folder.name.split("-")[-1]] = summarise(results)["math"][DEFAULT]["pass_at"]
        return curves

    def _load(self, name: str) -> tuple[Decoder, PreTrainedTokenizerFast]:
        folder = self.folder / name
        return models.load(folder, self.device), AutoTokenizer.from_pretrained(folder, trust_remote_code=False)


def make_cohort(folder: Path, names: list[str], devices: list[str], slots: int = 1, minutes: float = 0.0) -> list[str]:
    """Make pairs of the cohort, or all, each job in a process of its own; returns the jobs that are not done."""
    workshop = Workshop(folder)
    for name in ("records", "logs", "work"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    cores = os.cpu_count() or 1
    threads = max(1, cores // (2 * len(devices) * slots))  # of a job on a GPU

    def launch(job: TrainingJob, device: str) -> subprocess.Popen[bytes]:
        visible = "" if device == "cpu" else device
        environment = os.environ | {
            "CUDA_VISIBLE_DEVICES": visible,
            "OMP_NUM_THREADS": str(threads if job.gpu else 1),
            "TOKENIZERS_PARALLELISM": "true" if job.gpu else "false",
            "RAYON_NUM_THREADS": str(threads if job.gpu else 1),
        }
        workers = threads if job.gpu else max(1, cores - 2 * len(devices) * slots)
        command = [sys.executable, "-m", "searchlens_lab.zoo", "job", "--name", job.name, "--output", str(folder)]
        command += ["--workers", str(workers), "--device", "cuda" if visible else "cpu"]
        with (folder / "logs" / f"{job.name}.log").open("ab") as log:
            return subprocess.Popen(command, env=environment, stdout=log, stderr=subprocess.STDOUT)

    seconds = 60 * minutes or float("inf")
    return run(plan(names), lambda job: workshop.done(job.name), launch, devices, slots, seconds)


def _write(path: Path, value: object) -> None:
    """Write JSON; the file is replaced whole or not at all."""
    replace_text(path, json.dumps(value) + "\n")
