"""Stage ``readouts``: landscapes and recovery of all recorded cells, from their compact readouts, in one job.

Each takes a moment: as jobs of their own they would take longer to start than to run.
"""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import Future, ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING

from searchlens.stages.landscape import landscape
from searchlens.stages.recovery import recovery
from searchlens.store.layout import Layout

if TYPE_CHECKING:
    from searchlens.grid import needs


def readouts(study: needs.Readouts, layout: Layout, *, fingerprint: str, threads: int = 1) -> None:
    """Write the landscapes of the recorded cells, and the recovery analyses of their pairs.

    Parameters
    ----------
    study : needs.Readouts
    layout : Layout
    fingerprint : str
        Of the configuration, for the provenance.
    threads : int
        Processes that share the work.

    Raises
    ------
    InputError
        Readouts are damaged, or the two sides of a pair were asked different questions.
    """
    with ProcessPoolExecutor(threads, get_context("spawn")) as pool:  # a fork would copy locks of the libraries
        _wait(
            pool.submit(
                landscape,
                study.landscape[benchmark],
                Path(path),
                layout.landscape(checkpoint, benchmark),
                fingerprint=fingerprint,
            )
            for checkpoint, benchmark, path in study.cells
        )
        _wait(
            pool.submit(
                recovery,
                study.recovery[benchmark],
                layout.landscape(base, benchmark),
                layout.landscape(rl, benchmark),
                layout.recovery(pair, benchmark),
                fingerprint=fingerprint,
            )
            for pair, benchmark, base, rl in study.pairs
        )


def _wait(jobs: Iterable[Future[None]]) -> None:
    """Wait for all jobs; the first that failed ends the wait."""
    for job in list(jobs):
        job.result()
