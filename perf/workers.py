"""How much faster several workers sample a study than one, on one thread each.

    python perf/workers.py [4 ...] [--samples 512]     # six minutes; needs so many cores, with nothing else on them

The baseline is one worker in the same run. The study is the micro pair on the embedded engine, under two policies and
greedy; each number gets a new folder, and the time is from the first start to the last end. It is given with the start,
and without: less what as many workers take for a sample of each question.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import tempfile
import time
from pathlib import Path

import harness
import polars as pl

ZOO = harness.MICRO.parent
ONE = {
    **dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "POLARS_MAX_THREADS"), "1"),
    "HF_HUB_OFFLINE": "1",
    "CUDA_VISIBLE_DEVICES": "",  # all would share a GPU
}


def settings(samples: int) -> dict[str, object]:
    """A study of the micro pair."""
    path = str(ZOO / "benchmarks/math.jsonl")
    math = {"path": path, "grader": "math", "max_tokens": 96, "questions": 64, "pool": "all"}
    policies = ["temp_0.6", harness.DEFAULT]
    return {
        **harness.drawn(samples),
        "chunk_samples": 128,
        "study": {"pairs": ["micro"], "benchmarks": ["math"]},
        "checkpoints": {f"micro-1m-{side}": {"path": str(ZOO / f"micro-1m-{side}")} for side in ("base", "rl")},
        "pairs": {"micro": {"base": "micro-1m-base", "rl": "micro-1m-rl"}},
        "benchmarks": {"math": math},
        "policies": dict.fromkeys([*policies, "greedy"]),
        "pools": {"all": policies},
        "references": ["greedy"],
    }


def timed(workers: int, samples: int) -> tuple[int, float]:
    """How many samples so many workers draw, and in how many seconds."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        harness.save(folder, settings(samples))
        begun = time.perf_counter()
        command = [*harness.OURS, "--quiet", "work", name]
        running = [subprocess.Popen(command, env={**os.environ, **ONE}) for _ in range(workers)]
        if any(list(map(subprocess.Popen.wait, running))):  # of all, also after one that failed
            raise SystemExit("a worker failed")
        seconds = time.perf_counter() - begun
        drawn = sum(pl.scan_parquet(path).select(pl.len()).collect().item() for path in folder.rglob("s*.parquet"))
    return drawn, seconds


def rates(workers: int, samples: int) -> tuple[float, float]:
    """Samples a second of so many workers, with their start and without."""
    few, start = timed(workers, 1)
    drawn, seconds = timed(workers, samples)
    whole, steady = drawn / seconds, (drawn - few) / (seconds - start)
    print(f"{workers:>3} workers: {drawn:,} samples in {seconds:.0f} s, {whole:,.0f} a second, ", end="")
    print(f"{steady:,.0f} without the {start:.1f} s of the start", flush=True)
    return whole, steady


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("workers", type=int, nargs="*", default=[4])
    parser.add_argument("--samples", type=int, default=512, help="of a question under each policy")
    args = parser.parse_args()
    one = rates(1, args.samples)
    for workers in args.workers:
        whole, steady = (some / single for some, single in zip(rates(workers, args.samples), one, strict=True))
        print(f"{workers:>3} workers: {whole:.2f} times the rate of one, {steady:.2f} without starts")


if __name__ == "__main__":
    main()
