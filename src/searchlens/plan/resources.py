"""Resources that jobs request: sampling by the weights and the planned tokens, stages of a cell by its planned samples.

Standard library only, because the planner imports it.
"""

from __future__ import annotations

import math

from searchlens.config.limits import PART_ROWS
from searchlens.plan import Grid, JobPool, cost
from searchlens.store.checkpoints import weight_files

STARTUP_MINUTES = 30
"""Time before the first token: imports, loading, compiling. Too little ends jobs early, too much waits in queues."""

READ_GB_PER_MINUTE = 10.0
"""Speed at which weights are read, once to hash and once to load them, from a busy network file system."""

MARGIN = 2.0
"""Requested over expected wall time: more waits longer in queues, less ends jobs with long samples early."""


def weights_bytes(grid: Grid, checkpoint: str) -> int:
    """Bytes of a checkpoint's files, from its pin or its folder; 0 for one that is not pinned yet.

    An InputError: the folder does not exist or is not complete.
    """
    source = grid.inputs.checkpoint_source(checkpoint)
    if source is not None:
        pin = grid.inputs.lock.get(source)
        return pin.size if pin else 0
    return sum(path.stat().st_size for path in weight_files(grid.inputs.checkpoint_folder(checkpoint)))


def memory_mb(grid: Grid, checkpoint: str) -> int:
    """Main memory of a sampling job in megabytes, by what its engine declares."""
    engine, weights = grid.study.engine(checkpoint), weights_bytes(grid, checkpoint) / 1e6
    return math.ceil(engine.worker_mb * engine.processes * engine.gpus + engine.weights * weights)


def minutes(grid: Grid, pool: JobPool) -> int:
    """Wall time of a sampling job, in minutes: ``STARTUP_MINUTES`` alone if no samples are missing.

    Otherwise also two readings of the weights, and ``MARGIN`` times the expected time of sampling by ``cost``, or
    ``target_minutes`` if no speed is known.
    """
    expected = grid.minutes(pool)
    if expected is None:
        expected = float(grid.config.target_minutes)
    if not expected:
        return STARTUP_MINUTES
    reading = 2 * weights_bytes(grid, pool.checkpoint) / 1e9 / READ_GB_PER_MINUTE
    return math.ceil(STARTUP_MINUTES + reading + MARGIN * expected)


def priority(grid: Grid, pool: JobPool) -> float:
    """Rank of a sampling job among those that could start, in [10, 11): higher the more tokens it is expected to draw.

    The longest job of a study may take most of its time, so it must not begin last.
    """
    tokens = sum(grid.jobs.tokens(pool.benchmark, generation) for generation in pool.generations)
    return round(10 + tokens / (tokens + 1e9), 6)  # of a length that logs can show


# ---- stages that read a cell

BASE_MB = 400
"""Memory of a process that has imported what a stage needs, with a margin."""

TEXT_BYTES_PER_TOKEN = 4.5
"""Of a sample's text; English and formulas have three to four."""


def samples(grid: Grid, checkpoint: str, benchmark: str) -> list[int]:
    """Planned samples of each policy of a cell, all questions together; imported ones under their own entry."""
    counts = [item.samples for item in grid.jobs.generations(checkpoint, benchmark) for _ in item.policies]
    return [
        n * grid.inputs.count(benchmark)
        for n in (*counts, *(item.samples for item in grid.study.imported(checkpoint, benchmark)))
    ]


def readouts(grid: Grid, checkpoint: str, benchmark: str) -> int:
    """Rows of the planned ``hits.parquet`` of a cell: each question under each policy at each budget."""
    questions, budgets = grid.inputs.count(benchmark), grid.study.read_budgets(benchmark)
    reached = [sum(budget * questions <= n for budget in budgets) for n in samples(grid, checkpoint, benchmark)]
    return questions * sum(reached)


def landscape_mb(grid: Grid, checkpoint: str, benchmark: str) -> int:
    """Main memory of the landscape of a cell: .6 kB for each sample of a part, .45 kB for each readout of a question.

    In megabytes. ``perf/store.py --cell`` measures it.
    """
    rows = samples(grid, checkpoint, benchmark)
    part = max(max(rows, default=0), min(sum(rows), PART_ROWS))
    return math.ceil(BASE_MB + 0.6e-3 * part + 0.45e-3 * readouts(grid, checkpoint, benchmark))


def recovery_mb(grid: Grid, pair: str, benchmark: str) -> int:
    """Main memory of comparing a pair: .7 kB for each readout of a question of the larger landscape."""
    largest = max(readouts(grid, checkpoint, benchmark) for checkpoint in grid.study.pairs[pair].values())
    return math.ceil(BASE_MB + 0.7e-3 * largest)


def score_mb(grid: Grid, checkpoint: str, benchmark: str) -> int:
    """Main memory of grading a cell, in megabytes.

    .8 kB for each sample of a part, and the texts of one policy by their expected length. Verdicts of a log that count
    in place of a grader's are read at once: .8 kB for each sample.
    """
    length = cost.assumed_length(grid.config, benchmark).tokens if benchmark in grid.config.benchmarks else 1000.0
    rows, text = samples(grid, checkpoint, benchmark), 1.3 * TEXT_BYTES_PER_TOKEN * length
    largest = max(rows, default=0)
    is_graded = str(grid.study.benchmark(benchmark).grader).partition(":")[0] != "recorded"
    held = max(largest, min(sum(rows), PART_ROWS)) if is_graded else sum(rows)
    return math.ceil(BASE_MB + 1e-6 * (800 * held + text * largest))
