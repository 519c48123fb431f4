"""A worker samples whatever a study lacks, beside any number of others, until nothing is left.

It goes through the checkpoint that it has loaded before it loads another one, and prefers checkpoints and pools that
no other process samples. If all that is left is sampled by others, it waits: should one of them die, it takes over.
"""

from __future__ import annotations

import logging
import random
import time
from collections import Counter
from operator import itemgetter

from searchlens.errors import InputError, JobError, JobStoppedError
from searchlens.plan import Grid, JobPool
from searchlens.sampling._job import Job
from searchlens.sampling._pool import GraceExpired, Notice, fill
from searchlens.store.leases import Leases

log = logging.getLogger(__name__)

WAIT = 1.0
"""Seconds between two looks at what others sample."""


def work(grid: Grid, notice: Notice, *, threads: int = 1) -> None:
    """Sample what the store does not have of a study, with others, and write the manifests of its pools.

    What fails ends with its pool alone. Raises as ``generate``: the first error, once nothing else is left.
    """
    try:
        _work(grid, notice, threads)
    except GraceExpired:
        raise JobStoppedError(
            f"stopped by {notice.signal}; finished chunks are kept: run the same command to resume"
        ) from None
    finally:
        notice.end_grace()
    log.info("nothing is left to sample")


def _work(grid: Grid, notice: Notice, threads: int) -> None:
    left = [pool for cell in grid.study.cells for pool in grid.jobs.pools(*cell)]
    leases, errors = Leases(), list[InputError | JobError]()
    loaded: Job | None = None
    while left := [pool for pool in left if any(grid.missing(pool)) or not grid.current_manifest(pool).exists()]:
        pool = _next(grid, left, leases, loaded)
        if notice.signal:
            raise GraceExpired
        if pool is None:
            time.sleep(WAIT)
            continue
        job = Job(grid, pool, threads)
        try:
            if loaded:
                job.take_over(loaded)
            loaded = job
            fill(job, grid.current_manifest(pool), notice, leases, shared=True)
        except (InputError, JobError) as error:
            errors.append(error)
            left.remove(pool)
            if left:
                log.error("%s/%s %s: %s", *pool.key, error)
            job.close()
    if loaded:
        loaded.close()
    if errors:
        raise errors[0]


def _next(grid: Grid, left: list[JobPool], leases: Leases, loaded: Job | None) -> JobPool | None:
    """The pool to go on with; None if others sample all that is left."""
    open_pools, others = list[tuple[JobPool, int]](), Counter[str]()
    for pool in left:
        every = [one for each in Job(grid, pool, 1).missing_shards() for one in each.chunks]
        missing = [one for one in every if not one.exists]
        held = sum(not leases.is_free(one.path) for one in missing or every)  # or while its last shard is published
        others[pool.checkpoint] += held
        if held < len(missing) or not held:
            open_pools.append((pool, held))
    here = loaded.pool.checkpoint if loaded else ""
    # Workers that start at the same time see nothing of each other, so chance decides among equals.
    ranked = [((p.checkpoint != here, others[p.checkpoint], held, random.random()), p) for p, held in open_pools]
    return min(ranked, key=itemgetter(0), default=(None, None))[1]
