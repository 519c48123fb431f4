"""Memory and time of grading one cell: `searchlens score` on made-up samples, in a process of its own.

    python perf/score.py [--rows 1e6 3e6] [--policies 25] [--samples 40]

The cell has as many questions as the rows need. Texts are those of ``perf/store.py``, a few characters long: what a
policy's texts take comes on top. No verdict is stored before. CPU seconds are those of the whole command, starts and
imports included; wall seconds depend on what else runs on the machine.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from contextlib import chdir
from pathlib import Path

import numpy as np
import polars as pl
import yaml

import store
from searchlens.config import check
from searchlens.plan import Grid, cost
from searchlens.store import snapshots

CELL = ("large-base", "sums0")


def build(folder: Path, questions: int, policies: int, samples: int) -> Grid:
    """A study with the samples of one cell."""
    for name in store.MODELS:
        (folder / name).mkdir()
        for file in ("config.json", "model.safetensors", "tokenizer.json"):
            (folder / name / file).write_text(json.dumps({"name": name}))
    settings = store.study(policies, samples)
    settings["study"]["benchmarks"] = [CELL[1]]
    settings["benchmarks"] = {CELL[1]: settings["benchmarks"][CELL[1]]}
    rows = [{"id": f"q{i}", "question": f"What is {i}+0?", "gold": str(i)} for i in range(questions)]
    (folder / f"{CELL[1]}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "config").mkdir()
    for file in ("models", "benchmarks", "policies", "boptr"):
        (folder / "config" / f"{file}.yaml").write_text("{}\n")
    (folder / "config/config.yaml").write_text(yaml.safe_dump(settings))
    rng = np.random.default_rng(0)
    with chdir(folder):
        grid = Grid(check.validate(settings))
        store.fill(grid, *CELL, rng)
        snapshots.save(grid.config)
    return grid


def measure(rows: int, policies: int, samples: int) -> None:
    """Print what grading one cell takes, and what its job asks for."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        grid = build(folder, max(1, rows // policies // samples), policies, samples)
        with chdir(folder):
            manifests = [str(path) for path in grid.manifests(*CELL)]
            output, asked = str(grid.scores(*CELL)), cost.score_mb(grid, *CELL)
        where = ("--checkpoint", CELL[0], "--benchmark", CELL[1])
        wall, cpu, peak = store.command(folder, "score", *where, "--output", output, *manifests)
        graded = pl.scan_parquet(folder / output).select(pl.len()).collect().item()
    print(
        f"{graded:>12,} samples: {peak:.2f} GB of {asked / 1e3:.2f} asked for, {cpu:.1f} CPU s, {wall:.1f} s",
        flush=True,
    )


def main() -> None:
    """Measure cells of growing size."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=float, nargs="+", default=[1e6, 3e6], help="samples of the cell")
    parser.add_argument("--policies", type=int, default=25)
    parser.add_argument(
        "--samples", type=int, default=40, help=f"of a question and policy, a multiple of {store.IN_SHARD}"
    )
    arguments = parser.parse_args()
    for rows in arguments.rows:
        measure(int(rows), arguments.policies, arguments.samples)


if __name__ == "__main__":
    main()
