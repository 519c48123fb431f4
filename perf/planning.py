"""Time to plan a large study: `snakemake -n` of 20 checkpoints x 10 benchmarks x 32 policies, nothing sampled yet.

    python perf/planning.py [--checkpoints 20] [--benchmarks 10] [--policies 32]

The baseline in the same run is the layout that most workflows have, one job per policy (``pool_size: 1``), on the same
grid. Goal: at most 8 s on 2 cores.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[1]


def _study(folder: Path, checkpoints: int, benchmarks: int, policies: int) -> dict[str, Any]:
    """Files and configuration of a study of that size; weights are small stand-ins, planning reads only their hash."""
    names = [f"temp_{0.05 * (i + 1):.2f}" for i in range(policies - 1)]
    models = [f"m{i:02d}" for i in range(checkpoints)]
    for model in models:
        (folder / model).mkdir()
        for file in ("config.json", "tokenizer.json", "model.safetensors"):
            (folder / model / file).write_text(model)
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


def _dry_run(folder: Path) -> tuple[float, int]:
    """Seconds and number of generation jobs of one dry run."""
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
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stdout + done.stderr)
    seconds = time.perf_counter() - started
    jobs = [line.split()[1] for line in (done.stdout + done.stderr).splitlines() if line.startswith("generate ")]
    return seconds, int(jobs[0])


def main() -> None:
    """Measure both layouts, three times each, interleaved."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--checkpoints", type=int, default=20)
    parser.add_argument("--benchmarks", type=int, default=10)
    parser.add_argument("--policies", type=int, default=32)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        study = _study(folder, args.checkpoints, args.benchmarks, args.policies)
        (folder / "config").mkdir()
        for file in ("models", "benchmarks", "policies", "boptr"):
            (folder / "config" / f"{file}.yaml").write_text("{}\n")
        times: dict[int, list[float]] = {32: [], 1: []}
        jobs = {}
        for _ in range(3):
            for pool_size, measured in times.items():
                (folder / "config/config.yaml").write_text(yaml.safe_dump({**study, "pool_size": pool_size}))
                seconds, jobs[pool_size] = _dry_run(folder)
                measured.append(seconds)
    ours, naive = sorted(times[32])[1], sorted(times[1])[1]
    print(f"pools of 32 policies: {ours:.1f} s for {jobs[32]} generation jobs")
    print(f"one job per policy (baseline): {naive:.1f} s for {jobs[1]} generation jobs")
    print(f"ratio: {naive / ours:.1f}x; goal <= 8 s: {'met' if ours <= 8 else 'missed'}")


if __name__ == "__main__":
    main()
