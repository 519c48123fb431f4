"""The jobs that make the cohort. Each writes its record last, so a record means that the job is done.

OUT/NAME-base, OUT/NAME-rl          weights, tokenizer, model card
OUT/benchmarks                      the nine test sets; the three of rltrain once levels are measured
OUT/levels.json                     measured levels
OUT/records/JOB.json                recipe as used, curves, dev numbers, seconds
OUT/steps/NAME-STEP                 RL step checkpoints
OUT/work                            corpora, and states of what is under way; can be deleted when all is done
OUT/logs/JOB.log                    what a job printed
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import zlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from searchlens.zoo import model as models
from searchlens.zoo.benchmarks import row, write_benchmarks
from searchlens.zoo.cohort import COHORT, MEASURED, CohortPair, with_needs
from searchlens.zoo.corpus import Tokens, build_corpus
from searchlens.zoo.evaluate import DEFAULT, POLICIES, draw_all, summarised
from searchlens.zoo.model import Decoder
from searchlens.zoo.pretrain import pretrain
from searchlens.zoo.recipe import Recipe
from searchlens.zoo.rlvr import train_rlvr
from searchlens.zoo.saved import Saved
from searchlens.zoo.schedule import TrainingJob, run
from searchlens.zoo.splits import Cell, cells_of, measure_success, measured_levels, rltrain
from searchlens.zoo.tokenizer import train_tokenizer

KEEP_EVERY = 20
"""RL steps between two step checkpoints."""
PAIRED = ("math", "aime", "gpqa", "ifeval", "olympiad")
"""Roles of which records hold, per question, whether it is solved: paired intervals need that."""


def plan(names: list[str], cohort: Mapping[str, CohortPair] = COHORT) -> list[TrainingJob]:
    """All jobs of some pairs (none: of all), with their expected seconds on one H200."""
    pairs = {name: cohort[name] for name in with_needs(names, cohort)}
    anchor = next(iter(cohort))  # whose Base measures the levels
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
    """Where a cohort is made, and how fast.

    Attributes
    ----------
    out : Path
        The folder.
    cohort : mapping
        Its pairs; the first one's Base measures the levels.
    device : str
        As torch names it.
    workers : int
        Processes that write a corpus.
    scale : float
        Dev questions relative to the benchmarks' numbers.
    every : float
        Seconds between two saved states.
    """

    out: Path
    cohort: Mapping[str, CohortPair] = field(default_factory=lambda: COHORT)
    device: str = "cpu"
    workers: int = 1
    scale: float = 1.0
    every: float = 20.0

    def record(self, job: str) -> Path:
        """The file that says that a job is done."""
        return self.out / "records" / f"{job}.json"

    def done(self, job: str) -> bool:
        """Whether a job is done. A corpus that was deleted is wanted again only if some Base still has to read it."""
        kind, _, family = job.partition("-")
        if kind != "corpus" or not self.record(job).exists():
            return self.record(job).exists()
        readers = (name for name, pair in self.cohort.items() if pair.family == family and not pair.base)
        kept = (self.out / "work" / family / "corpus.npz").exists()
        return kept or all(self.record(f"base-{name}").exists() for name in readers)

    def do(self, job: str) -> None:
        """Do one job, from its last saved state if there is one."""
        started = time.monotonic()
        kind, _, rest = job.partition("-")
        name, _, side = rest.rpartition("-")
        if kind == "corpus":
            made = self._corpus(rest)
        elif kind == "base":
            made = self._base(rest)
        elif kind == "rl":
            made = self._rl(rest)
        elif kind == "dev":
            made = self._dev(name, side)
        else:
            made = self._levels()
        hardware = torch.cuda.get_device_name() if self.device.startswith("cuda") else "CPU"
        made |= {"hardware": hardware, "seconds": round(time.monotonic() - started, 1)}
        _write(self.record(job), made)

    def levels(self) -> dict[Cell, int]:
        """The measured levels."""
        found = json.loads((self.out / "levels.json").read_text(encoding="utf-8"))
        return {(cell["kind"], cell["level"]): cell["measured"] for cell in found}

    def _saved(self, job: str, recipe: Recipe) -> Saved:
        """A job's state; one that another recipe has left is not found."""
        return Saved(self.out / "work" / f"{job}-{zlib.crc32(repr(recipe).encode()):08x}.pt", self.every)

    def _recipe(self, family: str) -> Recipe:
        return next(pair.recipe for pair in self.cohort.values() if pair.family == family)

    def _tokenizer(self, family: str) -> PreTrainedTokenizerFast:
        return AutoTokenizer.from_pretrained(self.out / "work" / family)

    def _corpus(self, family: str) -> dict[str, Any]:
        recipe, folder = self._recipe(family), self.out / "work" / family
        tokenizer = train_tokenizer(recipe)
        corpus = build_corpus(recipe, tokenizer.backend_tokenizer.to_str(), self.workers)
        tokenizer.save_pretrained(folder)
        np.savez(folder / "corpus.npz", flat=corpus.flat, lengths=corpus.lengths, prompts=corpus.prompts)
        return {"documents": len(corpus.lengths), "tokens": len(corpus.flat)}

    def _base(self, name: str) -> dict[str, Any]:
        pair, saved = self.cohort[name], self._saved(f"base-{name}", self.cohort[name].recipe)
        with np.load(self.out / "work" / pair.family / "corpus.npz") as arrays:
            corpus = Tokens(**arrays)
        trained, curve = pretrain(corpus, pair.recipe, self.device, saved)
        models.save(trained, self._tokenizer(pair.family), self.out / f"{name}-base")
        saved.clear()
        return {"recipe": asdict(pair.recipe), "curve": curve}

    def _levels(self) -> dict[str, Any]:
        name, pair = next(iter(self.cohort.items()))
        model, tokenizer = self._load(f"{name}-base")
        questions = max(1, round(100 * self.scale))
        success = measure_success(model, tokenizer.backend_tokenizer, pair.recipe, questions)
        levels = measured_levels(success)
        shown = [
            {"kind": kind, "level": level, "measured": levels[kind, level], "success": round(share, 4)}
            for (kind, level), share in success.items()
        ]
        write_benchmarks(self.out / "benchmarks", pair.recipe)
        for split in MEASURED:
            problems = rltrain(split, levels, pair.recipe.benchmark_seed)
            lines = (json.dumps(row(f"rltrain-{split}", i, p)) for i, p in enumerate(problems, start=1))
            path = self.out / "benchmarks" / f"rltrain-{split}.jsonl"
            path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        _write(self.out / "levels.json", shown)
        return {"by": f"{name}-base", "questions": questions, "levels": shown}

    def _rl(self, name: str) -> dict[str, Any]:
        pair = self.cohort[name]
        cells = cells_of(pair, self.levels())
        recipe = replace(pair.recipe, rlvr=replace(pair.recipe.rlvr, cells=cells))
        saved = self._saved(f"rl-{name}", recipe)
        start, tokenizer = self._load(f"{pair.start}-rl" if pair.start else f"{pair.base or name}-base")
        shown: list[dict[str, float]] = []
        if pair.demonstrations is not None:
            start, shown = self._demonstrate(name, start, tokenizer)

        def each(step: int, model: Decoder) -> None:
            if step % KEEP_EVERY == 0:
                models.save(model, tokenizer, self.out / "steps" / f"{name}-{step}")

        trained, curve = train_rlvr(start, tokenizer.backend_tokenizer, recipe, saved, each)
        models.save(trained, tokenizer, self.out / f"{name}-rl")
        saved.clear()
        return {"recipe": asdict(recipe), "demonstrations": shown, "curve": curve}

    def _demonstrate(
        self, name: str, base: Decoder, tokenizer: PreTrainedTokenizerFast
    ) -> tuple[Decoder, list[dict[str, float]]]:
        pair = self.cohort[name]
        assert pair.demonstrations is not None
        recipe = replace(pair.recipe, corpus=pair.demonstrations.corpus, pretraining=pair.demonstrations.pretraining)
        folder, curve = self.out / "work" / f"{name}-shown", self.out / "work" / f"{name}-shown.json"
        if not curve.exists():
            corpus = build_corpus(recipe, tokenizer.backend_tokenizer.to_str(), self.workers)
            trained, points = pretrain(corpus, recipe, self.device, start=base)
            models.save(trained, tokenizer, folder)
            _write(curve, points)
        return models.load(folder, self.device), json.loads(curve.read_text(encoding="utf-8"))

    def _dev(self, name: str, side: str) -> dict[str, Any]:
        pair = self.cohort[name]
        model, tokenizer = self._load(f"{name}-{side}")
        roles = {role: made for role, made in pair.recipe.roles.items() if side == "base" or role != "stem"}
        recipe = replace(pair.recipe, roles=roles)
        drawn = draw_all(model, tokenizer.backend_tokenizer, recipe, "dev", tuple(POLICIES), self.scale)
        solved = {
            f"{role}/{policy}": {str(k): "".join("01"[x] for x in outcome.solved(k).astype(int)) for k in (1, 16)}
            for (role, policy), (_, outcome) in drawn.items()
            if role in PAIRED and policy != "greedy"
        }
        return {"numbers": summarised(drawn), "solved": solved, "steps": self._steps(name) if side == "rl" else {}}

    def _steps(self, name: str) -> dict[str, Any]:
        """Math on dev at every RL step checkpoint, under the default policy."""
        pair = self.cohort[name]
        recipe = replace(pair.recipe, roles={"math": pair.recipe.roles["math"]})
        found: dict[str, Any] = {}
        for folder in sorted((self.out / "steps").glob(f"{name}-*"), key=lambda path: int(path.name.split("-")[-1])):
            model, tokenizer = models.load(folder, self.device), AutoTokenizer.from_pretrained(folder)
            drawn = draw_all(model, tokenizer.backend_tokenizer, recipe, "dev", (DEFAULT,), self.scale)
            found[folder.name.split("-")[-1]] = summarised(drawn)["math"][DEFAULT]["pass_at"]
        return found

    def _load(self, name: str) -> tuple[Decoder, PreTrainedTokenizerFast]:
        folder = self.out / name
        return models.load(folder, self.device), AutoTokenizer.from_pretrained(folder)


def make_cohort(
    out: Path, names: list[str], devices: list[str], slots: int = 1, minutes: float = 0.0, rehearse: bool = False
) -> list[str]:
    """Make a cohort, each job as a process of its own; returns the jobs that are not done.

    Parameters
    ----------
    names : list of str
        Pairs; empty for all.
    devices : list of str
        GPUs by number; ``cpu`` for none.
    slots : int
        Jobs side by side on each device.
    minutes : float
        End then, keeping states; 0: when all is done.
    rehearse : bool
        With the recipes of :func:`searchlens.zoo.cohort.rehearsal`.
    """
    shop = Workshop(out)
    for folder in ("records", "logs", "work"):
        (out / folder).mkdir(parents=True, exist_ok=True)
    cores = os.cpu_count() or 1
    mine = max(1, cores // (2 * len(devices) * slots))

    def launch(job: TrainingJob, device: str) -> subprocess.Popen[bytes]:
        shown = "" if device == "cpu" else device
        environment = os.environ | {
            "CUDA_VISIBLE_DEVICES": shown,
            "OMP_NUM_THREADS": str(mine if job.gpu else 1),
            "TOKENIZERS_PARALLELISM": "true" if job.gpu else "false",
            "RAYON_NUM_THREADS": str(mine if job.gpu else 1),
        }
        workers = mine if job.gpu else max(1, cores - 2 * len(devices) * slots)
        command = [sys.executable, "-m", "searchlens.zoo", "job", "--name", job.name, "--output", str(out)]
        command += ["--workers", str(workers), "--device", "cuda" if shown else "cpu"]
        command += ["--rehearse"] if rehearse else []
        with (out / "logs" / f"{job.name}.log").open("ab") as log:
            return subprocess.Popen(command, env=environment, stdout=log, stderr=subprocess.STDOUT)

    seconds = 60 * minutes or float("inf")
    return run(plan(names), lambda job: shop.done(job.name), launch, devices, slots, seconds)


def _write(path: Path, value: object) -> None:
    """Write JSON, whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(".part")
    part.write_text(json.dumps(value) + "\n", encoding="utf-8")
    part.replace(path)
