"""A simulated study as a folder of landscapes, like that of a real study."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import polars as pl

from searchlens.analysis.points import operating_points
from searchlens.boptr.cohort import PLAN_FILE, write_plan
from searchlens.store import files
from searchlens.store.columns import SCORES
from searchlens_lab.simulate._design import Cell, Design, SimBenchmark, budgets_of
from searchlens_lab.simulate._draw import OPTIONS, Drawn, classes, draw
from searchlens_lab.simulate._truth import Truth

TRUTH_FILE = "truth.json"


def write(design: Design, seed: int, output: Path) -> None:
    """Write a simulated study: ``cohort.yaml``, one landscape per checkpoint and benchmark, ``truth.json``.

    ``output``: folder; made if it does not exist. Files of other designs in it stay: ``cohort.yaml`` names those of
    this one. Raises InputError if the folder cannot be written to.
    """
    files.require_writable(output)
    for cell in design.cells():
        _write_cell(design, seed, cell, output / cell.checkpoint / cell.benchmark)
    files.replace_text(output / TRUTH_FILE, json.dumps(Truth(design, seed).record(), indent=1) + "\n")
    write_plan(design.plan(), output / PLAN_FILE)


def _write_cell(design: Design, seed: int, cell: Cell, folder: Path) -> None:
    budgets = budgets_of(design, max(design.pools(cell).values()))
    landscape = operating_points(scores(design, seed, cell), budgets=budgets, options=OPTIONS)
    for name in ("points", "hits"):
        files.replace(folder / f"{name}.parquet", getattr(landscape, name).write_parquet)


def scores(design: Design, seed: int, cell: Cell) -> pl.DataFrame:
    """The graded samples of a cell: ``store.columns.SCORES``, with null scores."""
    item = design.benchmarks[cell.benchmark]
    return pl.concat([_frame(drawn, item) for drawn in draw(design, seed, cell)])


def _frame(drawn: Drawn, item: SimBenchmark) -> pl.DataFrame:
    samples, policies, questions = drawn.outcomes.shape
    sample, policy, question = (index.ravel() for index in np.indices((samples, policies, questions), np.uint32))
    columns = {
        "policy": pl.Series(drawn.policies).gather(policy),
        "question": question,
        "sample": sample,
        "run": sample,
        "correct": drawn.outcomes.ravel() == 0,
        "answer": classes(drawn, item).ravel(),
        "tokens": drawn.tokens.ravel(),
        "generated": drawn.tokens.ravel(),
        "stopped": drawn.outcomes.ravel() <= item.wrong + 1,
        "score": pl.repeat(None, drawn.outcomes.size, dtype=pl.Float32, eager=True),
    }
    return pl.DataFrame(columns).cast(SCORES)
