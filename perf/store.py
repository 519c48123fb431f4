"""A store of 10,000 shards and 10 million samples: time and memory of the commands that somebody runs on it.

    python perf/store.py [--policies 100] [--shards 10] [--graded 5] [--keep FOLDER]

Two checkpoints on five benchmarks are ten cells of a million samples each: 100 policies, 50 questions and 200 samples,
20 of them in a shard. Texts are short; there are no tokens and log-probabilities, as after an import, so the store is
small on disk. Measured are whole commands, each in processes of its own, and the index of the explorer. The baseline in
the same run hashes every file of the store and parses every sidecar, the least that whoever wants to know that nothing
is damaged must do. CPU seconds are those of all processes of a command; its memory is that of its largest one.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import chdir
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import yaml

import searchlens
from searchlens.config import check
from searchlens.plan import Generation, Grid
from searchlens.reporting.explorer_files import Files
from searchlens.store import shards, snapshots
from searchlens.store.files import file_sha256

MODELS = ("large-base", "large-rl")
QUESTIONS = 50
IN_SHARD = 20
TOKENS = 40
WRONG = 5
OURS = (sys.executable, "-m", "searchlens")


# ---- a study


def study(policies: int, samples: int) -> dict[str, Any]:
    """A configuration whose policies differ in their temperature."""
    names = [*(f"temp_{0.01 * (i + 10):.2f}".rstrip("0").rstrip(".") for i in range(policies - 1)), "topp0.95_t1.0"]
    benchmarks = [f"sums{i}" for i in range(5)]
    return {
        "results": "results",
        "samples": samples,
        "budgets": [2**i for i in range(8) if 2**i <= samples],
        "study": {"pairs": ["large"], "benchmarks": benchmarks},
        "checkpoints": {name: {"path": name} for name in MODELS},
        "pairs": {"large": {"base": MODELS[0], "rl": MODELS[1]}},
        "benchmarks": {
            name: {"path": f"{name}.jsonl", "grader": "math", "max_tokens": 4096, "pool": "all"} for name in benchmarks
        },
        "policies": dict.fromkeys(names),
        "pools": {"all": names},
        "references": [],
        "equivalence": None,
    }


def build(folder: Path, policies: int, parts: int) -> Grid:
    """Write a study with all of its samples, none of them graded."""
    for name in MODELS:
        (folder / name).mkdir()
        for file in ("config.json", "model.safetensors", "tokenizer.json"):
            (folder / name / file).write_text(json.dumps({"name": name}))
    settings = study(policies, parts * IN_SHARD)
    for seed, name in enumerate(settings["benchmarks"]):
        rows = [{"id": f"q{i}", "question": f"What is {i}+{seed}?", "gold": str(i + seed)} for i in range(QUESTIONS)]
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "config").mkdir()
    for file in ("models", "benchmarks", "policies", "boptr"):
        (folder / "config" / f"{file}.yaml").write_text("{}\n")
    (folder / "config/config.yaml").write_text(yaml.safe_dump(settings))
    with chdir(folder):
        grid = Grid(check.validate(settings))
        for seed, cell in enumerate(grid.study.cells):
            fill(grid, *cell, np.random.default_rng(seed))
        snapshots.save(grid.config)
    return grid


def fill(grid: Grid, checkpoint: str, benchmark: str, rng: np.random.Generator) -> None:
    """Shards and manifests of a cell."""
    ability = 0.3 if checkpoint.endswith("rl") else -0.3
    chance = 1 / (1 + np.exp(-rng.normal(ability, 2.0, len(grid.inputs.questions(benchmark)))))
    for pool in grid.jobs.pools(checkpoint, benchmark):
        entries = [_generation(grid, checkpoint, benchmark, each, chance, rng) for each in pool.generations]
        content = {"pool": pool.name, "checkpoint": checkpoint, "benchmark": benchmark, "generations": entries}
        manifest = grid.current_manifest(pool)
        manifest.parent.mkdir(parents=True, exist_ok=True)
        manifest.write_text(json.dumps(content, indent=1))


def _generation(
    grid: Grid, checkpoint: str, benchmark: str, each: Generation, chance: np.ndarray, rng: np.random.Generator
) -> dict[str, Any]:
    """The shards of one policy, and their entry in the manifest."""
    folder, golds = grid.folder(checkpoint, benchmark, each.id), [one.gold for one in grid.inputs.questions(benchmark)]
    made = [
        shards.publish(
            folder,
            start,
            start + IN_SHARD,
            _samples(golds, chance, start, rng),
            generation_id=each.id,
            policies=each.policies,
            provenance=shards.Provenance(1.0, "cpu", 1, "made up"),
        )
        for start in range(0, each.samples, IN_SHARD)
    ]
    files = [{"file": s.path.name, "rows": s.sidecar["rows"], "sha256": s.sidecar["sha256"]} for s in made]
    return {
        "id": each.id,
        "policies": list(each.policies),
        "start": each.start,
        "samples": each.samples,
        "spec": each.spec,
        "shards": files,
    }


def _samples(golds: Sequence[str], chance: np.ndarray, start: int, rng: np.random.Generator) -> pl.DataFrame:
    """Texts that end in a boxed answer, right by the question's chance."""
    rows = len(golds) * IN_SHARD
    off = np.where(rng.random(rows) < np.repeat(chance, IN_SHARD), 0, rng.integers(1, WRONG, rows))
    answers = np.repeat(np.array(golds, int), IN_SHARD) + off
    numbers = rng.integers(0, 10**6, rows)
    sample = np.tile(np.arange(start, start + IN_SHARD), len(golds))
    columns = {
        **{name: pl.Series([None] * rows, dtype=kind) for name, kind in shards.SAMPLES.items()},
        "question": np.repeat([f"q{i}" for i in range(len(golds))], IN_SHARD),
        "sample": sample,
        "run": sample,
        "text": [f"first {a}, so \\boxed{{{b}}}" for a, b in zip(numbers, answers, strict=True)],
        "n_tokens": np.full(rows, TOKENS),
        "finish": np.full(rows, "stop"),
        "generated": np.full(rows, TOKENS),
        "requests": np.ones(rows),
    }
    return pl.DataFrame(columns).cast(shards.SAMPLES)  # type: ignore[arg-type]


# ---- measuring


def command(folder: Path, *arguments: str) -> tuple[float, float, float]:
    """Wall seconds, CPU seconds and peak memory (GB) of a command."""
    started = time.perf_counter()
    with tempfile.TemporaryFile("w+") as output:
        process = subprocess.Popen([*OURS, *arguments], cwd=folder, stdout=output, stderr=output)
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            output.seek(0)
            raise SystemExit(f"{' '.join(arguments)}:\n{output.read()}")
    return time.perf_counter() - started, used.ru_utime + used.ru_stime, used.ru_maxrss / 1e6


def _row(what: str, figures: Sequence[tuple[float, float, float]]) -> None:
    """Print the mean seconds, and the largest memory."""
    wall, cpu, peak = zip(*figures, strict=True)
    seconds = f"{sum(wall) / len(wall):.1f} s, {sum(cpu) / len(cpu):.1f} CPU s"
    print(f"{what} (of {len(wall)}): {seconds}, {max(peak):.2f} GB", flush=True)


def measure(folder: Path, grid: Grid, graded: int) -> None:
    """What each command takes on the study."""
    with chdir(folder):
        sidecars = list(grid.layout.sidecars())
        size = sum(path.with_suffix(".parquet").stat().st_size for path in sidecars)
        rows = sum(json.loads(path.read_text())["rows"] for path in sidecars)
    print(f"{len(sidecars):,} shards, {rows:,} samples, {size / 1e6:,.0f} MB", flush=True)
    _row("hashing every file and parsing every sidecar (baseline)", [_hashed(folder, sidecars)])
    _row("status, nothing graded", [command(folder, "status")])
    _row("verify", [command(folder, "verify", "results")])
    score, landscapes, recoveries = [], [], []
    for benchmark in list(grid.config.benchmarks)[:graded]:
        output = {model: str(grid.layout.landscape(model, benchmark)) for model in MODELS}
        for model in MODELS:
            with chdir(folder):
                manifests = [str(path) for path in grid.manifests(model, benchmark)]
            scores, where = str(grid.scores(model, benchmark)), ("--checkpoint", model, "--benchmark", benchmark)
            score.append(command(folder, "score", *where, "--output", scores, *manifests))
            where = ("--benchmark", benchmark, "--scores", scores)
            landscapes.append(command(folder, "landscape", *where, "--output", output[model]))
        sides = ("--base", output[MODELS[0]], "--rl", output[MODELS[1]])
        recovery = str(grid.layout.recovery("large", benchmark))
        recoveries.append(command(folder, "recovery", "--benchmark", benchmark, *sides, "--output", recovery))
    _row("score, a cell, no verdict stored", score)
    _row("landscape, a cell", landscapes)
    _row("recovery, a pair", recoveries)
    _row(f"status, {2 * graded} of {len(grid.study.cells)} cells graded", [command(folder, "status")])
    _index(folder / "results")


def _hashed(folder: Path, sidecars: Sequence[Path]) -> tuple[float, float, float]:
    wall, cpu = time.perf_counter(), time.process_time()
    for path in sidecars:
        sidecar = json.loads((folder / path).read_text())
        assert file_sha256(folder / path.with_suffix(".parquet")) == sidecar["sha256"]
    return _since(wall, cpu)


def _since(wall: float, cpu: float) -> tuple[float, float, float]:
    """Seconds since then, and the peak memory, of this process."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    return time.perf_counter() - wall, time.process_time() - cpu, peak


def _index(results: Path) -> None:
    """The explorer's index, and the answers to one question, in this process."""
    begun = time.perf_counter(), time.process_time()
    opened = searchlens.open(results)
    files = Files(opened)
    size = len(files.index)
    _row(f"index of the explorer, {size / 1e3:.0f} kB", [_since(*begun)])
    begun = time.perf_counter(), time.process_time()
    files.made(f"answers/{MODELS[1]}/sums0/{opened.default_policy}/7.parquet")
    _row("answers to one question in it", [_since(*begun)])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--policies", type=int, default=100)
    parser.add_argument("--shards", type=int, default=10, help="of each policy of each cell")
    parser.add_argument("--graded", type=int, default=5, help="benchmarks whose cells are graded and read")
    parser.add_argument("--keep", type=Path, help="a folder that gets the study, and keeps it; if it has one, that one")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = (args.keep or Path(name)).resolve()
        folder.mkdir(parents=True, exist_ok=True)
        if (folder / "config/config.yaml").exists():
            with chdir(folder):
                grid = Grid(check.load(check.files()))
        else:
            grid = build(folder, args.policies, args.shards)
        measure(folder, grid, args.graded)


if __name__ == "__main__":
    main()
