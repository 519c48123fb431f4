"""Memory and time of grading single cells, and of their landscapes, beside what their jobs ask for.

    python perf/store.py --cell 1e6 3e6 [--policies 25] [--samples 40]

A study has one cell, with as many questions as so many samples need. Texts are short; there are no tokens and
log-probabilities, as after an import. What the texts of a policy take comes on top. Commands run in processes of their
own: CPU seconds are those of all of them, memory that of the largest.
"""

from __future__ import annotations

import argparse
import tempfile
from contextlib import chdir
from pathlib import Path

import harness

from searchlens.plan import cost


def measure(rows: int, policies: int, samples: int) -> None:
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
    parser.add_argument("--cell", type=float, nargs="+", metavar="SAMPLES", required=True, help="samples of each cell")
    parser.add_argument("--policies", type=int, default=25)
    parser.add_argument("--samples", type=int, default=40, help=f"of a question, a multiple of {harness.IN_SHARD}")
    args = parser.parse_args()
    for rows in args.cell:
        measure(int(rows), args.policies, args.samples)


if __name__ == "__main__":
    main()
