"""One call of a stage for each of many cells, shared among processes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any


def shared(stage: Callable[..., None], calls: Iterable[tuple[Any, ...]], processes: int) -> None:
    """Call ``stage`` with each of these arguments; the first call that fails ends the wait with its error.

    One process is this one.
    """
    if processes == 1:
        for arguments in calls:
            stage(*arguments)
        return
    with ProcessPoolExecutor(processes, get_context("spawn")) as pool:  # a fork would copy locks of the libraries
        for job in [pool.submit(stage, *arguments) for arguments in calls]:
            job.result()
