"""Landscapes and recovery of every cell that is read from compact readouts, in one job.

Each takes a moment: as jobs of their own they would take longer to start than to run.
"""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import Future, ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

from searchlens.grid import ROLES, Grid
from searchlens.pipeline import landscape_cell, recovery_cell


def analyse(grid: Grid, threads: int = 1) -> None:
    """Write the landscapes of ``grid.readouts``, and the recovery analyses of their pairs.

    Parameters
    ----------
    grid : Grid
    threads : int
        Processes that share the work.

    Raises
    ------
    InputError
        Readouts are damaged, or the two sides of a pair were asked different questions.
    """
    with ProcessPoolExecutor(threads, get_context("spawn")) as pool:  # a fork would copy locks of the libraries
        _done(
            pool.submit(
                landscape_cell, grid, benchmark, path, grid.layout.results / "landscape" / checkpoint / benchmark
            )
            for (checkpoint, benchmark), path in grid.readouts.items()
        )
        _done(pool.submit(recovery_cell, grid, *_folders(grid, *cell)) for cell in grid.readout_pairs)


def _folders(grid: Grid, pair: str, benchmark: str) -> tuple[Path, Path, Path]:
    """Both landscapes of a pair, and where their comparison lies."""
    base, rl = (grid.layout.results / "landscape" / grid.pairs[pair][role] / benchmark for role in ROLES)
    return base, rl, grid.layout.results / "recovery" / pair / benchmark


def _done(jobs: Iterable[Future[None]]) -> None:
    """Wait for all; the first that failed ends the wait."""
    for job in list(jobs):
        job.result()
