"""A store of 10,000 shards and 10 million samples: time and memory of the commands that somebody runs on it.

    python perf/store.py [--policies 100] [--graded 5]
    python perf/store.py --cell 1e6 3e6 [--policies 25] [--samples 40]

Two checkpoints on five benchmarks are ten cells of a million samples each: 100 policies, 50 questions and 200 samples,
20 of them in a shard. Texts are short; there are no tokens and log-probabilities, as after an import, so the store is
small on disk. Measured are whole commands, each in processes of its own, and the index of the explorer. The baseline in
the same run hashes every file of the store and parses every sidecar, the least that whoever wants to know that nothing
is damaged must do. CPU seconds are those of all processes of a command; its memory is that of its largest one.

With ``--cell`` a study has one cell, with as many questions as so many samples need: the memory of grading it and of
its landscape, beside what their jobs ask for. What the texts of a policy take comes on top.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Sequence
from contextlib import chdir
from pathlib import Path

import harness
from harness import OURS, Spent, spent

import searchlens
from searchlens.plan import Grid, cost
from searchlens.reporting.explorer_files import Files
from searchlens.store.files import file_sha256

QUESTIONS = 50
SHARDS = 10
"""Of each policy of each cell."""


def _row(what: str, figures: Sequence[Spent]) -> None:
    """Print the mean seconds, and the largest memory."""
    count = len(figures)
    mean = Spent(sum(each.cpu for each in figures) / count, sum(each.wall for each in figures) / count)
    print(f"{what} (of {count}): {mean}, {max(each.peak for each in figures) / 1e6:.2f} GB", flush=True)


def measure(folder: Path, grid: Grid, graded: int) -> None:
    """What each command takes on the study."""
    with chdir(folder):
        sidecars = list(grid.layout.sidecars())
        size = sum(path.with_suffix(".parquet").stat().st_size for path in sidecars)
        rows = sum(json.loads(path.read_text())["rows"] for path in sidecars)
    print(f"{len(sidecars):,} shards, {rows:,} samples, {size / 1e6:,.0f} MB", flush=True)
    baseline = spent(lambda: _hash(folder, sidecars))[1]
    _row("hashing every file and parsing every sidecar (baseline)", [baseline])
    _row("status, nothing graded", [harness.command([*OURS, "status"], folder)[1]])
    _row("verify", [harness.command([*OURS, "verify", "results"], folder)[1]])
    benchmarks = list(grid.config.benchmarks)[:graded]
    cells = [cell for cell in grid.study.cells if cell[1] in benchmarks]
    _row("score, a cell, no verdict stored", [harness.score(folder, grid, *cell) for cell in cells])
    _row("landscape, a cell", [harness.landscape(folder, grid, *cell) for cell in cells])
    _row("recovery, a pair", [harness.recovery(folder, grid, "p0", benchmark) for benchmark in benchmarks])
    status = harness.command([*OURS, "status"], folder)[1]
    _row(f"status, {len(cells)} of {len(grid.study.cells)} cells graded", [status])
    opened = searchlens.open(folder / "results")
    files = Files(opened)
    index, took = spent(lambda: files.index)
    _row(f"index of the explorer, {len(index) / 1e3:.0f} kB", [took])
    took = spent(lambda: files.made(f"answers/p0-rl/sums0/{opened.default_policy}/7.parquet"))[1]
    _row("answers to one question in it", [took])


def _hash(folder: Path, sidecars: Sequence[Path]) -> None:
    for path in sidecars:
        sidecar = json.loads((folder / path).read_text())
        assert file_sha256(folder / path.with_suffix(".parquet")) == sidecar["sha256"]


def measure_cell(rows: int, policies: int, samples: int) -> None:
    """Print what one cell takes, and what its jobs ask for."""
    questions = max(1, rows // policies // samples)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        settings = harness.study(folder, policies=policies, questions=questions, **harness.drawn(samples))
        grid = harness.build(folder, settings, 1)
        (cell, *_) = grid.study.cells
        with chdir(folder):
            asked = cost.score_mb(grid, *cell), cost.landscape_mb(grid, *cell)
        for what, work, most in zip(("score", "landscape"), (harness.score, harness.landscape), asked, strict=True):
            took = work(folder, grid, *cell)
            print(
                f"{questions * policies * samples:>12,} samples, {what}: {took.peak / 1e6:.2f} GB of"
                f" {most / 1e3:.2f} asked for, {took}",
                flush=True,
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--policies", type=int, help="default: 100; of --cell 25")
    parser.add_argument("--graded", type=int, default=5, help="benchmarks whose cells are graded and read")
    parser.add_argument("--cell", type=float, nargs="+", metavar="SAMPLES", help="single cells of so many samples")
    parser.add_argument("--samples", type=int, default=40, help=f"of --cell, a multiple of {harness.IN_SHARD}")
    args = parser.parse_args()
    for rows in args.cell or ():
        measure_cell(int(rows), args.policies or 25, args.samples)
    if args.cell:
        return
    with tempfile.TemporaryDirectory() as name:
        folder, sizes = Path(name), harness.drawn(SHARDS * harness.IN_SHARD)
        settings = harness.study(folder, benchmarks=5, policies=args.policies or 100, questions=QUESTIONS, **sizes)
        measure(folder, harness.build(folder, settings), args.graded)


if __name__ == "__main__":
    main()
