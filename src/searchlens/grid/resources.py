"""Resources that a sampling job requests: memory by the size of the weights, time by the planned tokens.

Standard library only, because the planner imports it.
"""

from __future__ import annotations

import math

from searchlens.grid import Grid, JobPool
from searchlens.store.hashing import weight_files

STARTUP_MINUTES = 30
"""Time before the first token: imports, loading, compiling. Too little ends jobs early, too much waits in queues."""

READ_GB_PER_MINUTE = 10.0
"""Speed at which weights are read, once to hash and once to load them, from a busy network file system."""

MARGIN = 2.0
"""Requested over expected wall time: more waits longer in queues, less ends jobs with long samples early."""


def weights_bytes(grid: Grid, checkpoint: str) -> int:
    """Bytes of a checkpoint's files, from its pin or its folder; 0 for one that is not pinned yet.

    Raises
    ------
    InputError
        The folder does not exist or is not complete.
    """
    source = grid.checkpoint_source(checkpoint)
    if source is not None:
        pin = grid.lock.get(source)
        return pin.size if pin else 0
    return sum(path.stat().st_size for path in weight_files(grid.checkpoint_folder(checkpoint)))


def memory_mb(grid: Grid, checkpoint: str) -> int:
    """Main memory of a sampling job.

    Returns
    -------
    int
        Megabytes. Embedded engine: 4 GB and three times the weights, which are read, converted and copied. vLLM: 16 GB
        for each of its workers and one and a half times the weights, all of which each worker reads, to hold its part.
    """
    weights, spec = weights_bytes(grid, checkpoint) / 1e6, grid.config["checkpoints"][checkpoint]
    if spec["engine"] == "vllm":
        return math.ceil(16000 * int(spec["vllm"]["tensor_parallel"]) + 1.5 * weights)
    return math.ceil(4000 + 3 * weights)


def minutes(grid: Grid, pool: JobPool) -> int:
    """Wall time of a sampling job.

    Returns
    -------
    int
        Minutes: ``STARTUP_MINUTES``, two readings of the weights, and ``MARGIN`` times the expected time of sampling by
        ``cost``, or ``target_minutes`` if no speed is known. ``STARTUP_MINUTES`` alone if no samples are missing.
    """
    expected = grid.minutes(pool)
    if expected is None:
        expected = float(grid.config["target_minutes"])
    if not expected:
        return STARTUP_MINUTES
    reading = 2 * weights_bytes(grid, pool.checkpoint) / 1e9 / READ_GB_PER_MINUTE
    return math.ceil(STARTUP_MINUTES + reading + MARGIN * expected)
