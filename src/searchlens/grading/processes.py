"""Judging in worker processes, so that no answer can delay, crash or outgrow the run.

Each pair has three limits. Processor time is measured inside the worker, so that a verdict does not depend on the load
of the machine. A worker that this cannot interrupt (a long call into C) is killed after a wall time. Its memory is
capped. A pair that reaches a limit stays undecided; the other pairs are not affected.
"""

from __future__ import annotations

import os
import resource
import signal
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from multiprocessing import get_context
from typing import Any

from pebble import ProcessExpired, ProcessPool

from searchlens import catalogue
from searchlens.grading.base import GradedPair
from searchlens.grading.size import oversized


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of judging one pair.

    Attributes
    ----------
    cpu_seconds : float
        Processor time of parsing and comparing, > 0. The slowest genuine answer that we saw took 0.2 s.
    wall_seconds : float
        The worker is killed after this time.
    memory_bytes : int
        Address space of a worker.
    """

    cpu_seconds: float = 1.0
    wall_seconds: float = 20.0
    memory_bytes: int = 4 * 2**30


DEFAULT = Limits()


class Expired(BaseException):
    """Processor time is used up. Not an ``Exception``, because the libraries catch those."""


def judge(module: str, pairs: Sequence[GradedPair], limits: Limits, workers: int | None) -> list[Any]:
    """Judge pairs by the function ``judge(gold, answer)`` of a module.

    Parameters
    ----------
    module : str
        Dotted name, or the path of a file outside of the package (its ``__file__``). A module is imported once, in the
        server process that the workers are forked from; a file is imported by each worker.
    pairs : sequence of GradedPair
    limits : Limits
    workers : int or None
        Number of processes, >= 1; None: one per core.

    Returns
    -------
    list
        What the function returned, in order; None if a limit was reached.

    Raises
    ------
    BrokenProcessPool
        Workers cannot start. A broken installation is an error, not a list of undecided answers.
    """
    if not pairs:
        return []
    # The server is a clean process: forking from this one could inherit held locks.
    context = get_context("forkserver")
    context.set_forkserver_preload([module])
    count = min(workers or len(os.sched_getaffinity(0)), len(pairs))
    pool = ProcessPool(count, context=context, initializer=_prepare, initargs=(module, limits))
    try:
        outcomes = pool.map(_judge, pairs, timeout=limits.wall_seconds).result()
        return [_next(outcomes) for _ in pairs]
    finally:
        pool.stop()  # not close: an interrupted run must not wait for the queue
        pool.join()


def judge_open(
    module: str,
    pairs: Sequence[GradedPair],
    decisions: Sequence[bool | None],
    limits: Limits,
    workers: int | None,
) -> list[bool | None]:
    """Complete decisions: pairs without one (None) go to ``judge``, except oversized answers, which stay undecided."""
    undecided = [i for i, decision in enumerate(decisions) if decision is None and not oversized(pairs[i].answer)]
    outcomes = judge(module, [pairs[i] for i in undecided], limits, workers)
    by_position = dict(zip(undecided, outcomes, strict=True))
    return [by_position.get(i, decision) for i, decision in enumerate(decisions)]


def _next(outcomes: Iterator[Any]) -> Any:
    try:
        return next(outcomes)
    except (TimeoutError, ProcessExpired, MemoryError, Expired):
        return None


# ---- in the workers


@dataclass
class _Worker:
    module: Any
    cpu_seconds: float


_worker: _Worker


def _prepare(module: str, limits: Limits) -> None:
    global _worker  # noqa: PLW0603 - an initializer cannot pass anything to the tasks in another way
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    memory = limits.memory_bytes if hard == resource.RLIM_INFINITY else min(limits.memory_bytes, hard)
    resource.setrlimit(resource.RLIMIT_AS, (memory, hard))
    signal.signal(signal.SIGPROF, _expire)
    # Imported here at the latest, so that no pair pays for the import out of its limit.
    _worker = _Worker(catalogue.import_named(module), limits.cpu_seconds)


def _expire(*_: Any) -> None:
    raise Expired


def _judge(pair: GradedPair) -> Any:
    try:
        signal.setitimer(signal.ITIMER_PROF, _worker.cpu_seconds)
        try:
            return _worker.module.judge(pair.gold, pair.answer)
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
    except (Expired, MemoryError, RecursionError):
        return None
