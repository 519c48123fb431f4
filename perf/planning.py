"""Time and memory to plan a large study: `snakemake -n` of 20 checkpoints x 10 benchmarks x 32 policies.

    python perf/planning.py

Nothing is sampled yet. The baseline in the same run is the layout that most workflows have, one job per policy
(``pool_size: 1``), on the same grid. Goal: at most 8 s on 2 cores.
Memory is that of a study of 6,080 jobs (40 checkpoints, 38 benchmarks); goal: at most 500 MB. The process that then
starts the jobs needs no more: it has made the same plan. CPU seconds are printed beside wall seconds, which depend on
what else runs on the machine; ratio and goal are in CPU seconds, since a dry run uses one core.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from harness import Spent, command, save, study

ROOT = Path(__file__).parents[1]


def _dry_run(folder: Path) -> tuple[Spent, int]:
    """What planning the study of a folder takes, and its number of generation jobs."""
    where = ("--snakefile", str(ROOT / "Snakefile"), "--directory", str(folder))
    text, took = command(["snakemake", "-n", "--quiet", "rules", "--cores", "2", *where], folder)
    jobs = [line.split()[1] for line in text.splitlines() if line.startswith("generate ")]
    return took, int(jobs[0])


def main() -> None:
    """Measure our layout three times, and the baseline, which takes four times as long, once."""
    sizes = {"policies": 32, "questions": 500}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        settings = study(folder, pairs=10, benchmarks=10, **sizes)
        save(folder, settings)
        ours, jobs = sorted(_dry_run(folder) for _ in range(3))[1]
        save(folder, {**settings, "pool_size": 1})
        naive, of_one = _dry_run(folder)
    with tempfile.TemporaryDirectory() as name:
        save(Path(name), study(Path(name), pairs=20, benchmarks=38, **sizes))
        large, of_all = _dry_run(Path(name))
    print(f"pools of 32 policies: {ours} for {jobs} generation jobs")
    print(f"one job per policy (baseline): {naive} for {of_one} generation jobs")
    megabytes = large.peak / 1e3
    verdict = "met" if megabytes <= 500 else "missed"
    print(f"memory at {of_all:,} generation jobs, 6,080 in all: {megabytes:.0f} MB; goal <= 500 MB: {verdict}")
    print(f"ratio: {naive.cpu / ours.cpu:.1f}x; goal <= 8 s: {'met' if ours.cpu <= 8 else 'missed'}")


if __name__ == "__main__":
    main()
