"""A long run: sampling, grading, landscapes and recovery in a loop; whether memory grows or anything is left behind.

    python validation/soak.py [--minutes 60] [--output FILE]

Each round samples both sides of the micro pair with the embedded engine, grades them, and makes their landscapes and
the recovery, all commands in this one process. After a round its files must have the bytes of the first round, no
temporary file or lock may be left outside of the results, and resident memory, threads, open files and child processes
are written down. Then the results are removed. A line per round goes to ``--output`` at once; at the end the growth per
round is printed, of all rounds after the first tenth and of the second half: least squares with its standard error.
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import json
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import chdir, redirect_stdout
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from scipy import stats

from searchlens.cli.main import main as searchlens_main
from searchlens.config import check
from searchlens.config.model import from_plain, plain
from searchlens.plan import Grid

ZOO = Path(__file__).parents[1] / "resources/zoo"
CELLS = (("micro-1m-base", "math"), ("micro-1m-rl", "math"))
WATCHED = ("resident_kb", "threads", "open_files", "children", "scratch_files")
COLUMNS = ("round", "seconds", *WATCHED)


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


def content(results: Path) -> str:
    """One digest of every Parquet file of the results, by name."""
    found = hashlib.sha256()
    for path in sorted(results.rglob("*.parquet")):
        found.update(f"{path.relative_to(results)} {hashlib.sha256(path.read_bytes()).hexdigest()}\n".encode())
    return found.hexdigest()


def watched(scratch: Path) -> dict[str, int]:
    """What must stay as it is, of this process."""
    process = psutil.Process()
    return {
        "resident_kb": process.memory_info().rss // 1024,
        "threads": process.num_threads(),
        "open_files": process.num_fds(),
        "children": len(process.children()),
        "scratch_files": sum(1 for path in scratch.rglob("*") if path.is_file()),
    }


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
            started = time.monotonic()
            with Path(os.devnull).open("w") as nowhere, redirect_stdout(nowhere):
                for command in commands(grid):
                    assert searchlens_main([command[0], "--snapshot", "study.json", *command[1:]]) == 0, command
            found, left = content(study / "results"), leftovers(study)
            first = first or found
            assert found == first, f"round {len(lines)} has other bytes than the first"
            assert not left, f"round {len(lines)} left {left}"
            shutil.rmtree(study / "results")
            seconds = round(time.monotonic() - started, 2)
            lines.append({"round": len(lines), "seconds": seconds, **watched(scratch)})
            writer.writerow(lines[-1])
            stream.flush()
    return lines


def leftovers(study: Path) -> list[str]:
    """Files that a finished round has no use for."""
    names = (path.relative_to(study) for path in study.rglob("*") if path.is_file())
    return [str(path) for path in names if path.suffix in (".tmp", ".chunk") or "aside" in path.parts]


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--output", type=Path, default=Path("soak.csv"))
    asked = parser.parse_args()
    output = asked.output.absolute()
    with tempfile.TemporaryDirectory(prefix="soak-") as folder:
        lines = play(Path(folder), asked.minutes, output)
    print(f"{len(lines)} rounds")
    for name in WATCHED:
        values = np.array([line[name] for line in lines], float)
        rounds, warm, half = np.arange(len(lines)), len(lines) // 10, len(lines) // 2
        print(
            f"{name}: first {values[0]:.0f}, after a tenth {values[warm]:.0f}, last {values[-1]:.0f};"
            f" per round {growth(rounds[warm:], values[warm:])}, second half {growth(rounds[half:], values[half:])}"
        )


if __name__ == "__main__":
    main()
