"""Many jobs that do everything but sample: their samples are there, made by few jobs before the packing changed."""

from __future__ import annotations

import time
from pathlib import Path
from typing import NamedTuple

import yaml

from study import Study, micro_study


def sampled(path: Path, environment: dict[str, str], jobs: int) -> Study:
    """A study of ``jobs`` pools, an even number, none of which lacks a sample."""
    config = micro_study(questions=1, samples=1)
    names = [f"temp_{0.5 + i / 1000:.3f}" for i in range(jobs // 2)]
    config |= {"policies": dict.fromkeys([*names, "greedy"]), "pools": {"two": names}, "references": []}
    config |= {"default_policy": names[0], "budgets": [1]}
    study = Study(path, {**config, "pool_size": jobs}, environment)
    assert study.start("--cores", "1", "samples").wait(600) == 0, study.log()
    (path / "config/config.yaml").write_text(yaml.safe_dump({**config, "pool_size": 1}))
    return study


class Storm(NamedTuple):
    """How a run of many jobs went: Snakemake's exit status, seconds, and most memory that Snakemake held."""

    status: int
    seconds: float
    peak_mb: float


def run_storm(study: Study, *targets: str) -> Storm:
    """Run them through Slurm, as many at a time as it takes."""
    started, peak = time.monotonic(), 0.0
    run = study.slurm(*targets or ["samples"], gpu="gpu=0")
    while run.process.poll() is None:
        peak = max(peak, _peak_mb(run.process.pid))
        time.sleep(1)
    return Storm(run.wait(), time.monotonic() - started, peak)


def _peak_mb(pid: int) -> float:
    """The high-water mark of a process, 0 once it has ended."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0.0
    return sum(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM"))
