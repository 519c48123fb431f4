"""Time and memory to plan a large study: `snakemake -n` of 20 checkpoints x 10 benchmarks x 32 policies.

    python perf/planning.py [--checkpoints 20] [--benchmarks 10] [--policies 32]

Nothing is sampled yet, and then all of it: a shard for each of 6,400 generations. The baseline in the same run is the
layout that most workflows have, one job per policy (``pool_size: 1``), on the same grid. Goal: at most 8 s on 2 cores.
Memory is that of a study of 6,080 jobs (40 checkpoints, 38 benchmarks); goal: at most 500 MB. The process that then
starts the jobs needs no more: it has made the same plan. CPU seconds are printed beside wall seconds, which depend on
what else runs on the machine; ratio and goal are in CPU seconds, since a dry run uses one core.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from searchlens.config import check
from searchlens.plan import Grid

ROOT = Path(__file__).parents[1]


def _study(folder: Path, checkpoints: int, benchmarks: int, policies: int) -> dict[str, Any]:
    """Files and configuration of a study of that size; weights are small stand-ins, planning reads only their hash."""
    names = [f"temp_{0.05 * (i + 1):.2f}" for i in range(policies - 1)]
    models = [f"m{i:02d}" for i in range(checkpoints)]
    for model in models:
        (folder / model).mkdir()
        (folder / model / "config.json").write_text(json.dumps({"model_type": "llama", "name": model}))
        (folder / model / "tokenizer.json").write_text(json.dumps({"model": {}}))
        (folder / model / "model.safetensors").write_bytes((2).to_bytes(8, "little") + b"{}")
    for i in range(benchmarks):
        rows = [{"id": f"q{q}", "question": f"Benchmark {i}: what is {q}+{q}?", "gold": str(2 * q)} for q in range(500)]
        (folder / f"b{i}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return {
        "study": {
            "pairs": [f"p{i}" for i in range(checkpoints // 2)],
            "benchmarks": [f"b{i}" for i in range(benchmarks)],
        },
        "checkpoints": {model: {"path": model} for model in models},
        "pairs": {f"p{i}": {"base": models[2 * i], "rl": models[2 * i + 1]} for i in range(checkpoints // 2)},
        "benchmarks": {
            f"b{i}": {"path": f"b{i}.jsonl", "grader": "math", "max_tokens": 64, "pool": "all"}
            for i in range(benchmarks)
        },
        "policies": dict.fromkeys([*names, "topp0.95_t1.0"]),
        "pools": {"all": [*names, "topp0.95_t1.0"]},
    }


def _save(folder: Path, study: dict[str, Any]) -> None:
    """Write the configuration of a study into its folder."""
    (folder / "config").mkdir(exist_ok=True)
    for file in ("models", "benchmarks", "policies", "boptr"):
        (folder / "config" / f"{file}.yaml").write_text("{}\n")
    (folder / "config/config.yaml").write_text(yaml.safe_dump(study))


def _fill(folder: Path, study: dict[str, Any]) -> None:
    """Put a shard of every generation into the store; planning looks at sidecars, sizes and times only."""
    grid = Grid(check.validate(study), folder)
    for cell in grid.study.cells:
        for generation in grid.jobs.generations(*cell):
            path = grid.folder(*cell, generation.id) / f"s00000-{generation.samples:05d}.parquet"
            path.parent.mkdir(parents=True)
            path.touch()
            sidecar = {"bytes": 0, "mtime_ns": path.stat().st_mtime_ns, "sha256": "", "rows": 1}
            path.with_suffix(".json").write_text(json.dumps(sidecar))


@dataclass(frozen=True, order=True)
class DryRun:
    """CPU and wall seconds and peak memory (MB) of a dry run, and its number of generation jobs."""

    cpu: float
    wall: float
    peak: float
    jobs: int

    def __str__(self) -> str:
        return f"{self.wall:.1f} s, {self.cpu:.1f} CPU s"


def _dry_run(folder: Path) -> DryRun:
    """Plan the study of a folder."""
    command = [
        "snakemake",
        "-n",
        "--quiet",
        "rules",
        "--cores",
        "2",
        "--snakefile",
        str(ROOT / "Snakefile"),
        "--directory",
        str(folder),
    ]
    started = time.perf_counter()
    with tempfile.TemporaryFile("w+") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output)
        _, status, used = os.wait4(process.pid, 0)  # of this process and its own children alone
        wall = time.perf_counter() - started
        process.returncode = os.waitstatus_to_exitcode(status)
        output.seek(0)
        text = output.read()
    if process.returncode:
        raise SystemExit(text)
    jobs = [line.split()[1] for line in text.splitlines() if line.startswith("generate ")]
    return DryRun(used.ru_utime + used.ru_stime, wall, used.ru_maxrss / 1e3, int(jobs[0]))


def _median(folder: Path) -> DryRun:
    return sorted(_dry_run(folder) for _ in range(3))[1]


def main() -> None:
    """Measure our layout three times, empty and filled, and the baseline, which takes four times as long, once."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--checkpoints", type=int, default=20)
    parser.add_argument("--benchmarks", type=int, default=10)
    parser.add_argument("--policies", type=int, default=32)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        study = _study(folder, args.checkpoints, args.benchmarks, args.policies)
        _save(folder, study)
        ours = _median(folder)
        _save(folder, {**study, "pool_size": 1})
        naive = _dry_run(folder)
        _save(folder, study)
        _fill(folder, study)
        full = _median(folder)
    with tempfile.TemporaryDirectory() as name:
        _save(Path(name), _study(Path(name), 40, 38, args.policies))
        large = _dry_run(Path(name))
    print(f"pools of 32 policies: {ours} for {ours.jobs} generation jobs")
    print(f"one job per policy (baseline): {naive} for {naive.jobs} generation jobs")
    print(f"pools, everything sampled: {full}")
    verdict = "met" if large.peak <= 500 else "missed"
    print(f"memory at {large.jobs:,} generation jobs, 6,080 in all: {large.peak:.0f} MB; goal <= 500 MB: {verdict}")
    print(f"ratio: {naive.cpu / ours.cpu:.1f}x; goal <= 8 s: {'met' if ours.cpu <= 8 else 'missed'}")


if __name__ == "__main__":
    main()
