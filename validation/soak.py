"""A long run: sampling, grading, landscapes and recovery in a loop; whether memory grows or anything is left behind.

    python validation/soak.py [--minutes 60] [--output FILE]

Each round samples both sides of the micro pair with the embedded engine, grades them, and makes their landscapes and
the recovery, all commands in this one process; every tenth round gives the same commands to processes of
their own, as a job runner does. After a round its files must have the bytes of the first round, no temporary file or
lock may be left outside of the results, and resident memory, threads, open files and child processes are written down.
Then the results are removed. A line per round goes to ``--output`` at once; at the end the growth per round is printed,
of all rounds after the first tenth and of the second half: least squares with its standard error.
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import chdir, redirect_stdout
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

from searchlens.cli.main import main as searchlens_main
from searchlens.config import check
from searchlens.config.model import from_plain, plain
from searchlens.plan import Grid

ZOO = Path(__file__).parents[1] / "resources/zoo"
CELLS = (("micro-1m-base", "math"), ("micro-1m-rl", "math"))
WATCHED = ("resident_kb", "threads", "open_files", "children", "scratch_files")
COLUMNS = ("round", "by", "seconds", "cpu_seconds", *WATCHED, "largest_job_kb", "load")


def configuration() -> dict[str, Any]:
    """Three policies, five questions."""
    return {
        "results": "results",
        "samples": 4,
        "budgets": [1, 2, 4],
        "chunk_samples": 16,
        "landscape": {"draws": 100},
        "study": {"pairs": ["micro-1m"], "benchmarks": ["math"], "likelihood": None},
        "checkpoints": {name: {"path": str(ZOO / name)} for name, _ in CELLS},
        "pairs": {"micro-1m": {"base": CELLS[0][0], "rl": CELLS[1][0]}},
        "benchmarks": {
            "math": {
                "path": str(ZOO / "benchmarks/math.jsonl"),
                "grader": "math",
                "max_tokens": 48,
                "questions": 5,
                "pool": "two",
            }
        },
        "policies": {"mine": {"local": {"temperature": 0.6}}, "topp0.95_t1.0": None, "greedy": None},
        "pools": {"two": ["mine", "topp0.95_t1.0"]},
        "references": ["greedy"],
    }


def commands(grid: Grid) -> Iterator[list[str]]:
    """Those of one round; each is built when those before it have run."""
    landscapes = []
    for checkpoint, benchmark in CELLS:
        cell = ["--checkpoint", checkpoint, "--benchmark", benchmark]
        scores = str(grid.scores(checkpoint, benchmark))
        yield ["generate", *cell]
        yield ["score", *cell, "--output", scores, *map(str, grid.manifests(checkpoint, benchmark))]
        landscapes.append(str(grid.layout.landscape(checkpoint, benchmark)))
        yield ["landscape", "--benchmark", benchmark, "--scores", scores, "--output", landscapes[-1]]
    where = str(grid.layout.recovery("micro-1m", "math"))
    yield ["recovery", "--benchmark", "math", "--base", landscapes[0], "--rl", landscapes[1], "--output", where]


def in_this_process(grid: Grid) -> int:
    """A round without any process of its own but the graders'; 0, since no job was a process."""
    with Path(os.devnull).open("w") as nowhere, redirect_stdout(nowhere):
        for command in commands(grid):
            assert searchlens_main([command[0], "--snapshot", "study.json", *command[1:]]) == 0, command
    return 0


JOB = """
import sys
from pathlib import Path
from searchlens.cli.main import main as searchlens_main
status = main()
Path("job.txt").write_text(Path("/proc/self/status").read_text())
sys.exit(status)
"""
"""`searchlens`, which says at its end what it took: what `wait` tells of memory counts the process that started it."""


def by_jobs(grid: Grid) -> int:
    """A round of processes; the largest resident memory of one, in kB."""
    largest = 0
    for command in commands(grid):
        with Path("job.log").open("w") as log:
            words = [sys.executable, "-c", JOB, command[0], "--snapshot", "study.json", *command[1:]]
            done = subprocess.run(words, stdout=log, stderr=log, check=False)
        assert done.returncode == 0, Path("job.log").read_text()
        largest = max(largest, status_of(Path("job.txt"))["VmHWM"])
    return largest


def content(results: Path) -> str:
    """One digest of every Parquet file of the results, by name."""
    found = hashlib.sha256()
    for path in sorted(results.rglob("*.parquet")):
        found.update(f"{path.relative_to(results)} {hashlib.sha256(path.read_bytes()).hexdigest()}\n".encode())
    return found.hexdigest()


def watched(scratch: Path) -> dict[str, int]:
    """What must stay as it is, of this process."""
    status = status_of(Path("/proc/self/status"))
    children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    return {
        "resident_kb": status["VmRSS"],
        "threads": status["Threads"],
        "open_files": len(list(Path("/proc/self/fd").iterdir())),
        "children": len(children),
        "scratch_files": sum(1 for path in scratch.rglob("*") if path.is_file()),
    }


def status_of(path: Path) -> dict[str, int]:
    """What the system says of a process: memory in kB, and the number of threads."""
    lines = (line.split() for line in path.read_text().splitlines())
    return {words[0].rstrip(":"): int(words[1]) for words in lines if words[0] in ("VmRSS:", "VmHWM:", "Threads:")}


def growth(rounds: np.ndarray, values: np.ndarray) -> str:
    """Slope per round with its standard error, of least squares."""
    if len(rounds) < 3 or np.ptp(values) == 0:
        return "0, constant" if len(rounds) else "no rounds"
    line = stats.linregress(rounds, values)
    return f"{line.slope:+.3g} ± {line.stderr:.2g}"


def play(folder: Path, minutes: float, output: Path) -> list[dict[str, Any]]:
    """Rounds until the time is over; a round that leaves something, or other bytes, is an AssertionError."""
    scratch, study = folder / "tmp", folder / "study"
    scratch.mkdir()
    study.mkdir()
    tempfile.tempdir = os.environ["TMPDIR"] = str(scratch)
    (study / "study.json").write_text(json.dumps(plain(check.validate(configuration()))))
    lines, first, end = list[dict[str, Any]](), "", time.monotonic() + 60 * minutes
    with output.open("w") as stream, chdir(study):
        writer = csv.DictWriter(stream, COLUMNS, lineterminator="\n")
        writer.writeheader()
        grid = Grid(from_plain(json.loads(Path("study.json").read_text())), study)
        while time.monotonic() < end:
            started, spent, alone = time.monotonic(), processor_time(), len(lines) % 10 == 9
            largest = by_jobs(grid) if alone else in_this_process(grid)
            found, left = content(study / "results"), leftovers(study)
            first = first or found
            assert found == first, f"round {len(lines)} has other bytes than the first"
            assert not left, f"round {len(lines)} left {left}"
            shutil.rmtree(study / "results")
            lines.append(
                {
                    "round": len(lines),
                    "by": "jobs" if alone else "one process",
                    "seconds": round(time.monotonic() - started, 2),
                    "cpu_seconds": round(processor_time() - spent, 2),
                    **watched(scratch),
                    "largest_job_kb": largest,
                    "load": round(os.getloadavg()[0], 1),
                }
            )
            writer.writerow(lines[-1])
            stream.flush()
    return lines


def leftovers(study: Path) -> list[str]:
    """Files that a finished round has no use for."""
    names = (path.relative_to(study) for path in study.rglob("*") if path.is_file())
    return [str(path) for path in names if path.suffix in (".tmp", ".chunk") or "aside" in path.parts]


def processor_time() -> float:
    """Seconds, of this process and of those that have ended."""
    used = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(one.ru_utime + one.ru_stime for one in used)


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--output", type=Path, default=Path("soak.csv"))
    asked = parser.parse_args()
    started, spent, output = time.monotonic(), processor_time(), asked.output.absolute()
    with tempfile.TemporaryDirectory(prefix="soak-") as folder:
        lines = play(Path(folder), asked.minutes, output)
    wall, cpu = time.monotonic() - started, processor_time() - spent
    load = np.mean([line["load"] for line in lines])
    jobs = [line["largest_job_kb"] for line in lines if line["by"] == "jobs"]
    print(f"{len(lines)} rounds ({len(jobs)} by jobs), {wall / 60:.0f} min, {cpu:.0f} s of processor time")
    print(f"load of the machine {load:.1f}")
    for name in WATCHED:
        values = np.array([line[name] for line in lines], float)
        rounds, warm, half = np.arange(len(lines)), len(lines) // 10, len(lines) // 2
        print(
            f"{name}: first {values[0]:.0f}, after a tenth {values[warm]:.0f}, last {values[-1]:.0f};"
            f" per round {growth(rounds[warm:], values[warm:])}, second half {growth(rounds[half:], values[half:])}"
        )
    if jobs:
        slope = growth(np.arange(len(jobs)), np.array(jobs))
        print(f"largest_job_kb: {min(jobs)} to {max(jobs)}, per round by jobs {slope}")


if __name__ == "__main__":
    main()
