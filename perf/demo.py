"""Where the time of `make demo` goes, stage by stage: processes and CPU seconds.

    python perf/demo.py [--config config/demo.yaml]

It runs the workflow as `make demo` does, in a folder of its own. Each ``searchlens`` of a job is started through a few
lines that write down, at its end, what it took: processor time of the process and of those that it started, and memory.
Snakemake's own time is the rest. Set-up (pip) is not part of it. CPU seconds of all cores together are the figure to
compare; wall seconds depend on what else runs on the machine, and those of jobs that run side by side overlap.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
from pathlib import Path

import harness
import polars as pl

ROOT = Path(__file__).parents[1]

COMMAND = """#!{python}
import json, resource, subprocess, sys, time

begun = time.time()
status = subprocess.run([sys.executable, "-m", "searchlens", *sys.argv[1:]]).returncode
used = resource.getrusage(resource.RUSAGE_CHILDREN)
row = {{
    "stage": next((word for word in sys.argv[1:] if not word.startswith("-")), ""),
    "cpu": used.ru_utime + used.ru_stime,
    "wall": time.time() - begun,
    "megabytes": used.ru_maxrss / 1e3,
}}
with open({times!r}, "a") as file:
    file.write(json.dumps(row) + "\\n")
sys.exit(status)
"""
"""What jobs find as ``searchlens``."""


def run(folder: Path, config: Path) -> None:
    """Run the workflow in a folder; its jobs write into ``times.jsonl``, and so does Snakemake's rest."""
    shutil.copytree(ROOT / "config", folder / "config")
    commands, times = folder / "bin", folder / "times.jsonl"
    commands.mkdir()
    times.touch()
    command = commands / "searchlens"
    command.write_text(COMMAND.format(python=sys.executable, times=str(times)))
    command.chmod(0o755)
    overlay = ["--configfile", str(config), "--cores", "2"]
    workflow = ["-m", "snakemake", "--snakefile", str(ROOT / "Snakefile"), "--directory", str(folder)]
    os.environ["PATH"] = os.pathsep.join([str(commands), os.environ["PATH"]])
    _, took = harness.command([sys.executable, *workflow, *overlay], ROOT)
    jobs = [json.loads(line) for line in times.read_text().splitlines()]
    own = took.cpu - sum(job["cpu"] for job in jobs)
    row = {"stage": "(Snakemake, shells)", "cpu": own, "wall": took.wall, "megabytes": took.peak / 1e3}
    with times.open("a") as file:
        file.write(json.dumps(row) + "\n")


def main() -> None:
    """Run, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--config", type=Path, default=ROOT / "config/demo.yaml", help="file that is merged last")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        run(folder, args.config.absolute())
        found = pl.read_ndjson(folder / "times.jsonl")
    sums = (pl.len().alias("processes"), pl.col("cpu", "wall").sum(), pl.col("megabytes").max())
    print("| stage | processes | CPU s | wall s, added up | MB |")
    print("|---|---|---|---|---|")
    for row in found.group_by("stage").agg(*sums).sort("cpu", descending=True).iter_rows(named=True):
        print("| {stage} | {processes} | {cpu:.1f} | {wall:.0f} | {megabytes:.0f} |".format(**row))
    print(f"together {found['cpu'].sum():.0f} CPU s, half of that on two cores")


if __name__ == "__main__":
    main()
