"""What a job costs beyond its model's own work, through a real Slurm on this machine.

    python perf/slurm.py      as root, with Slurm and snakemake-executor-plugin-slurm (`make test-slurm`)

The jobs find their samples made, so that everything in them is overhead. Baselines in the same run: `searchlens
generate` of one such pool without Snakemake and Slurm, and an empty job of Slurm's own.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests/slurm"))  # the Slurm that the tests start


from cluster import Cluster, why_not
from study import Study, run_storm, sampled

JOBS = 20
"""At once; an even number."""


COMMAND = ("searchlens", "generate", "--checkpoint", "micro-1m-base", "--benchmark", "math", "--manifest")
"""What such a job runs, before the name of its pool."""


def main() -> None:
    """Measure one at a time, then many at once."""
    if reason := why_not():
        raise SystemExit(reason)
    cluster = Cluster()
    try:
        cluster.start()
        with tempfile.TemporaryDirectory() as name:
            study = sampled(Path(name) / "study", cluster.environment, JOBS)
            pools = study.manifests("micro-1m-base")[:3]
            seconds = []
            for pool in pools:
                started = time.monotonic()
                study.call(*COMMAND, pool)
                seconds.append(time.monotonic() - started)
            alone, started = statistics.median(seconds), time.monotonic()
            for _ in range(10):
                cluster.command("sbatch", "--wait", "--output=/dev/null", "--wrap=true")
            empty = (time.monotonic() - started) / 10
            for pool in pools:
                (study.path / pool).unlink()
            single = [_elapsed(cluster, study, pool) for pool in pools]
            storm = run_storm(study)
            if storm.status:
                raise SystemExit(study.log())
    finally:
        cluster.stop()
    inside = statistics.median(single)
    print(f"searchlens generate alone, nothing to sample: {alone:.1f} s")
    print(f"an empty job of Slurm, submission to end: {empty:.1f} s")
    print(f"the same pool as a job, start to end: {inside:.1f} s; {inside - alone:.1f} s of it Snakemake")
    print(f"{JOBS} jobs at once: {storm.seconds:.0f} s, {storm.seconds / JOBS:.1f} s a job")
    print(f"controller at {JOBS} jobs: {storm.peak_mb:.0f} MB")


def _elapsed(cluster: Cluster, study: Study, pool: str) -> float:
    """Seconds from the start to the end of one job, as Slurm saw it, to the second."""
    before = set(cluster.jobs())
    storm = run_storm(study, pool)
    if storm.status:
        raise SystemExit(study.log())
    (job,) = set(cluster.jobs()) - before
    hours, minutes, seconds = map(int, cluster.show(job)["RunTime"].split(":"))
    return 3600 * hours + 60 * minutes + seconds


if __name__ == "__main__":
    main()
