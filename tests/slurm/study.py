"""A small study of the micro pair in a folder of its own, runs of it, and what must hold of its samples."""

import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from glob import glob
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl
import yaml

sys.path.insert(0, str(Path(__file__).parents[1]))

from conftest import micro_study, write_config
from searchlens.config import check
from searchlens.plan import Grid

__all__ = ["micro_study"]

ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent

LOG = "run.log"

QUICK = ["--slurm-init-seconds-before-status-checks", "2", "--seconds-between-status-checks", "2"]
"""Ask Slurm for jobs every few seconds; a cluster's controller would not thank for it."""


@dataclass
class Study:
    """A working directory that looks like the project's own to ``snakemake --profile slurm``."""

    path: Path
    config: dict[str, Any]
    environment: dict[str, str] = field(default_factory=lambda: dict(os.environ))

    def __post_init__(self) -> None:
        self.environment = {**self.environment, "PATH": f"{BIN}:{self.environment['PATH']}"}
        write_config(self.path, self.config)
        for name in ("Snakefile", "workflow", "profiles", "slurm"):
            (self.path / name).symlink_to(ROOT / name)

    def start(self, *arguments: str) -> "Run":
        """``snakemake`` in the background."""
        return Run(self, ["snakemake", *arguments])

    def slurm(self, *targets: str, gpu: str = "gpu=1", **resources: str) -> "Run":
        """``snakemake --profile slurm`` in the background; sampling asks for a GPU, which on this CPU it would not.

        With a ``--config``, which must not make it forget what the profile has of this kind.
        """
        asked = [f"generate:{gpu}", *(f"generate:{name}={value}" for name, value in resources.items())]
        return self.start(
            "--profile", "slurm", *QUICK, "--config", "max_minutes=600", "--set-resources", *asked, "--", *targets
        )

    def call(self, *command: str) -> str:
        """Output of a command that must succeed."""
        done = subprocess.run(
            command, cwd=self.path, env=self.environment, capture_output=True, text=True, check=False, timeout=300
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    # ---- what there is

    def log(self) -> str:
        """What its runs said, and the logs of their jobs."""
        found = [self.path / LOG, *self.path.glob("logs/**/*.log")]
        return "\n".join(f"---- {path}\n{path.read_text()}" for path in found)

    def manifests(self, checkpoint: str) -> list[str]:
        """The targets that sample a checkpoint, one for each job."""
        text = (self.path / "config/config.yaml").read_text()
        grid = Grid(check.validate(yaml.safe_load(text)), self.path)
        return [str(path.relative_to(self.path)) for path in grid.manifests(checkpoint, "math")]

    def manifest(self, checkpoint: str) -> str:
        """The target of a checkpoint that takes one job."""
        (path,) = self.manifests(checkpoint)
        return path

    def shards(self) -> dict[str, pl.DataFrame]:
        """Samples of every shard by its place in the store; one that is not whole raises."""
        store = self.path / "results/generations"
        return {str(path.relative_to(store)): pl.read_parquet(path) for path in sorted(store.rglob("*.parquet"))}

    def kept(self) -> int:
        """Samples in shards and in finished chunks: those that a job which starts now need not draw."""
        while True:
            whole, waiting = self.shards(), 0
            pattern = "results/generations/*/*/*/chunks/*.chunk"
            for path in map(Path, glob(pattern, root_dir=self.path)):  # noqa: PTH207  # `Path.glob` raises
                start, stop, first, last = map(int, re.findall(r"\d+", path.name)[:4])
                shard = path.parents[1].relative_to("results/generations") / f"{path.name.split('.')[0]}.parquet"
                if str(shard) not in whole:  # otherwise its chunks are just being removed
                    waiting += (stop - start) * (last - first)
            if self.shards().keys() == whole.keys():  # none was published while chunks were counted
                return waiting + sum(frame.height for frame in whole.values())

    def drawn(self) -> list[int]:
        """Samples that each checkpoint's last job had to draw."""
        logs = [path.read_text() for path in self.path.glob("logs/generate/*/*/*.log")]
        return [int(number) for log in logs for number in re.findall(r"(\d+) samples to draw", log)]


class Run:
    """One run of Snakemake."""

    def __init__(self, study: Study, command: list[str]) -> None:
        with (study.path / LOG).open("a") as log:
            self.process = subprocess.Popen(
                command, cwd=study.path, env=study.environment, stdout=log, stderr=log, start_new_session=True
            )

    def wait(self, seconds: float = 300) -> int:
        """Exit status."""
        return self.process.wait(seconds)

    def kill(self) -> None:
        """SIGKILL: no job is told."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


# ---- Many jobs that do everything but sample: their samples are there, made by few jobs before the packing changed


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
