"""What the scripts of this folder share: what some work takes, and studies whose samples are made up."""

from __future__ import annotations

import json
import multiprocessing
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import chdir
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import polars as pl
import yaml

from searchlens.config import check
from searchlens.plan import Grid
from searchlens.store import shards, snapshots

MICRO = Path(__file__).parents[1] / "resources/zoo/micro-1m-base"
OURS = (sys.executable, "-m", "searchlens")
DEFAULT = "topp0.95_t1.0"
IN_SHARD = 20
"""Most samples of a question in a shard."""
WRONG = 5
"""Possible answers to a question."""
Made = TypeVar("Made")


# ---- measuring


@dataclass(frozen=True, order=True)
class Spent:
    """CPU and wall seconds, and the largest memory of a process in kB."""

    cpu: float
    wall: float
    peak: float = float("nan")

    def __str__(self) -> str:
        return f"{self.wall:.2f} s, {self.cpu:.2f} CPU s"

    @property
    def gib(self) -> float:
        """The largest memory in GiB."""
        return self.peak / 2**20


def spent(work: Callable[[], Made]) -> tuple[Made, Spent]:
    """The result of some work, and what it took with the processes that it started and that have ended."""
    who = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    wall, before = time.perf_counter(), [resource.getrusage(each) for each in who]
    made = work()
    wall, after = time.perf_counter() - wall, [resource.getrusage(each) for each in who]
    cpu = sum(b.ru_utime + b.ru_stime - a.ru_utime - a.ru_stime for a, b in zip(before, after, strict=True))
    return made, Spent(cpu, wall, max(each.ru_maxrss for each in after))


def alone(work: Callable[..., Made], *args: Any) -> Made:
    """The result of some work in a process of its own, so that nothing before counts as its memory."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as process:
        return process.submit(work, *args).result()


def command(words: Sequence[str], folder: Path) -> tuple[str, Spent]:
    """What a command prints, and what it took, with its own children. It must succeed."""
    wall = time.perf_counter()
    with tempfile.TemporaryFile("w+") as output:
        process = subprocess.Popen(words, cwd=folder, stdout=output, stderr=output)
        _, status, used = os.wait4(process.pid, 0)
        wall = time.perf_counter() - wall
        process.returncode = os.waitstatus_to_exitcode(status)
        output.seek(0)
        text = output.read()
    if process.returncode:
        raise SystemExit(f"{' '.join(words)}:\n{text}")
    return text, Spent(used.ru_utime + used.ru_stime, wall, used.ru_maxrss)


# ---- studies


def study(
    folder: Path,
    *,
    pairs: int = 1,
    benchmarks: int = 1,
    policies: int,
    questions: int,
    vocabulary: int = 2,
    **settings: Any,
) -> dict[str, Any]:
    """Write checkpoints and questions; returns the configuration.

    Policies differ in their temperature. Weights are those of the micro Base, which are small.
    ``vocabulary``: words of the tokenizer, which are none of a language. ``**settings``: more sections.
    """
    names = [*(f"temp_{0.01 * (i + 10):.2f}".rstrip("0").rstrip(".") for i in range(policies - 1)), DEFAULT]
    sides = {f"p{i}": {"base": f"p{i}-base", "rl": f"p{i}-rl"} for i in range(pairs)}
    models = [model for pair in sides.values() for model in pair.values()]
    shape = json.loads((MICRO / "config.json").read_text())
    shape["vocab_size"] = max(shape["vocab_size"], vocabulary)
    absent = dict.fromkeys(("truncation", "padding", "normalizer", "pre_tokenizer", "post_processor", "decoder"))
    words = {"type": "WordLevel", "vocab": {f"word{i}": i for i in range(vocabulary)}, "unk_token": "word0"}
    tokenizer = json.dumps({"version": "1.0", **absent, "added_tokens": [], "model": words})
    for model in models:
        (folder / model).mkdir()
        (folder / model / "config.json").write_text(json.dumps(shape | {"name": model}))
        (folder / model / "tokenizer.json").write_text(tokenizer)
        (folder / model / "model.safetensors").symlink_to(MICRO / "model.safetensors")
    sums = [f"sums{i}" for i in range(benchmarks)]
    for more, name in enumerate(sums):
        rows = [{"id": f"q{i}", "question": f"What is {i}+{more}?", "gold": str(i + more)} for i in range(questions)]
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return {
        "study": {"pairs": list(sides), "benchmarks": sums},
        "checkpoints": {model: {"path": model} for model in models},
        "pairs": sides,
        "benchmarks": {
            name: {"path": f"{name}.jsonl", "grader": "math", "max_tokens": 4096, "pool": "all"} for name in sums
        },
        "policies": dict.fromkeys(names),
        "pools": {"all": names},
        "references": [],
        "equivalence": None,
        **settings,
    }


def drawn(samples: int) -> dict[str, Any]:
    """Settings of a study whose questions get so many samples each."""
    return {"results": "results", "samples": samples, "budgets": [2**i for i in range(8) if 2**i <= samples]}


def save(folder: Path, settings: dict[str, Any]) -> None:
    """Write the configuration of a study into its folder."""
    (folder / "config").mkdir(exist_ok=True)
    for file in ("models", "benchmarks", "policies", "boptr"):
        (folder / "config" / f"{file}.yaml").write_text("{}\n")
    (folder / "config/config.yaml").write_text(yaml.safe_dump(settings))


def build(folder: Path, settings: dict[str, Any], cells: int | None = None, tokens: int = 0) -> Grid:
    """Write a study of ``study`` with all samples of its first cells, none of them graded."""
    save(folder, settings)
    with chdir(folder):
        grid = Grid(check.validate(settings))
        for seed, cell in enumerate(grid.study.cells[:cells]):
            fill(grid, *cell, seed, tokens)
        snapshots.save(grid.config)
    return grid


def fill(grid: Grid, checkpoint: str, benchmark: str, seed: int, tokens: int = 0) -> None:
    """Shards and manifests of a cell, of the study in this folder; with lists of ``tokens`` for each text, if any."""
    rng, golds = np.random.default_rng(seed), [one.gold for one in grid.inputs.questions(benchmark)]
    ability = 0.3 if checkpoint.endswith("rl") else -0.3
    chance = 1 / (1 + np.exp(-rng.normal(ability, 2.0, len(golds))))
    for pool in grid.jobs.pools(checkpoint, benchmark):
        entries = []
        for each in pool.generations:
            size = min(IN_SHARD, each.samples)
            for start in range(0, each.samples, size):
                shards.publish(
                    grid.folder(checkpoint, benchmark, each.id),
                    start,
                    start + size,
                    _samples(golds, chance, range(start, start + size), rng, tokens),
                    generation_id=each.id,
                    policies=each.policies,
                    provenance=shards.Provenance(1.0, "cpu", 1, "made up"),
                )
            policies = {"id": each.id, "policies": list(each.policies)}
            entries.append({**policies, "start": each.start, "samples": each.samples, "spec": each.spec})
        content = {"pool": pool.name, "checkpoint": checkpoint, "benchmark": benchmark, "generations": entries}
        manifest = grid.current_manifest(pool)
        manifest.parent.mkdir(parents=True, exist_ok=True)
        manifest.write_text(json.dumps(content, indent=1))


def _samples(
    golds: Sequence[str], chance: np.ndarray, numbers: range, rng: np.random.Generator, tokens: int
) -> pl.DataFrame:
    """Texts that end in a boxed answer, right by the question's chance."""
    rows = len(golds) * len(numbers)
    off = np.where(rng.random(rows) < np.repeat(chance, len(numbers)), 0, rng.integers(1, WRONG, rows))
    answers = np.repeat(np.array(golds, int), len(numbers)) + off
    sample = np.tile(numbers, len(golds))
    ids = [f"q{i}" for i in range(len(golds)) for _ in numbers]
    texts = [f"first {a}, so \\boxed{{{b}}}" for a, b in zip(rng.integers(0, 10**6, rows), answers, strict=True)]
    own = lists(rng, np.full(rows, tokens)) if tokens else {}
    return frame(rows, question=ids, sample=sample, run=sample, text=texts, n_tokens=np.full(rows, tokens or 40), **own)


def frame(rows: int, **columns: Any) -> pl.DataFrame:
    """Samples that stopped by themselves, with null in every column that is not given."""
    usual = {name: pl.Series([None] * rows, dtype=kind) for name, kind in shards.SAMPLES.items()}
    counts = {"finish": ["stop"] * rows, "generated": columns.get("n_tokens", np.ones(rows)), "requests": np.ones(rows)}
    return pl.DataFrame(usual | counts | columns).cast(dict(shards.SAMPLES))  # type: ignore[arg-type]


def lists(rng: np.random.Generator, lengths: np.ndarray) -> dict[str, pl.Series]:
    """Tokens and their log-probabilities, as incompressible as real ones."""
    ends, count = np.cumsum(lengths)[:-1], int(lengths.sum())
    values = {
        "tokens": np.minimum(rng.zipf(1.3, count), 150_000).astype(np.int32),
        **{name: -rng.gamma(0.3, 1.0, count).astype(np.float32) for name in ("logprobs", "sampling_logprobs")},
    }
    return {name: pl.Series(name, np.split(column, ends)) for name, column in values.items()}


# ---- commands on a study


def score(folder: Path, grid: Grid, checkpoint: str, benchmark: str) -> Spent:
    """What grading a cell takes, no verdict stored."""
    with chdir(folder):
        manifests = [str(path) for path in grid.manifests(checkpoint, benchmark)]
    words = ("score", "--checkpoint", checkpoint, "--benchmark", benchmark, *manifests)
    return command([*OURS, *words, "--output", str(grid.scores(checkpoint, benchmark))], folder)[1]


def landscape(folder: Path, grid: Grid, checkpoint: str, benchmark: str) -> Spent:
    """What the landscape of a graded cell takes."""
    words = ("landscape", "--benchmark", benchmark, "--scores", str(grid.scores(checkpoint, benchmark)))
    return command([*OURS, *words, "--output", str(grid.layout.landscape(checkpoint, benchmark))], folder)[1]


def recovery(folder: Path, grid: Grid, pair: str, benchmark: str) -> Spent:
    """What the comparison of the landscapes of a pair takes."""
    base, rl = (str(grid.layout.landscape(grid.study.pairs[pair][role], benchmark)) for role in ("base", "rl"))
    words = ("recovery", "--benchmark", benchmark, "--base", base, "--rl", rl)
    return command([*OURS, *words, "--output", str(grid.layout.recovery(pair, benchmark))], folder)[1]
