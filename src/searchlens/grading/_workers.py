"""Judging in worker processes, so that no answer can hold up, crash or outgrow the run.

A pair has three limits. Processor time is measured inside the worker, so that a verdict does not depend on what else
the machine is doing; where that cannot interrupt (a long call into C), the worker is killed after so much wall time;
and its memory is capped. Reaching any of them leaves this one pair undecided.
"""

from __future__ import annotations

import os
import resource
import signal
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from multiprocessing import get_context
from typing import Any

from searchlens.grading import Pair


@dataclass(frozen=True, slots=True)
class Limits:
    """What judging one pair may take.

    Attributes
    ----------
    cpu_seconds : float
        Processor time of parsing and comparing, > 0. The slowest honest pair that we met took 0.2 s.
    wall_seconds : float
        Then the worker is killed.
    memory_bytes : int
        Address space of a worker.
    """

    cpu_seconds: float = 1.0
    wall_seconds: float = 20.0
    memory_bytes: int = 4 * 2**30


DEFAULT = Limits()


class Expired(BaseException):
    """Processor time is used up; no ``Exception``, because the libraries catch those."""


def judge(module: str, pairs: Sequence[Pair], limits: Limits, workers: int | None) -> list[Any]:
    """Judge pairs by a module's ``judge(gold, answer)``.

    Parameters
    ----------
    module : str
        Imported in the server that the workers fork from, where it gets everything ready.
    pairs : sequence of Pair
    limits : Limits
    workers : int or None
        Processes, >= 1; None: one per available core.

    Returns
    -------
    list
        What the module returned, in order; None where a limit was reached.

    Raises
    ------
    BrokenProcessPool
        Workers cannot start, so that a broken installation never passes for hard answers.
    """
    from pebble import ProcessPool

    # The server is a clean process: forking from here could inherit held locks.
    context = get_context("forkserver")
    context.set_forkserver_preload([module])
    count = min(workers or len(os.sched_getaffinity(0)), len(pairs))
    pool = ProcessPool(count, context=context, initializer=_prepare, initargs=(module, limits))
    try:
        results = pool.map(_judge, pairs, timeout=limits.wall_seconds).result()
        return [_next(results) for _ in pairs]
    finally:
        pool.stop()  # not close: an interrupted run must not wait for what is queued
        pool.join()


def _next(results: Iterator[Any]) -> Any:
    from pebble import ProcessExpired

    try:
        return next(results)
    except (TimeoutError, ProcessExpired, MemoryError, Expired):
        return None


# ---- in the workers


@dataclass
class _Worker:
    module: Any
    cpu_seconds: float


_worker: _Worker


def _prepare(module: str, limits: Limits) -> None:
    global _worker  # noqa: PLW0603 - an initializer has no other way to hand something to the tasks
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    wanted = limits.memory_bytes if hard == resource.RLIM_INFINITY else min(limits.memory_bytes, hard)
    resource.setrlimit(resource.RLIMIT_AS, (wanted, hard))
    signal.signal(signal.SIGPROF, _expire)
    # Imported already, unless something else had started the server; then no pair pays for it out of its limit.
    _worker = _Worker(import_module(module), limits.cpu_seconds)


def _expire(*_: Any) -> None:
    raise Expired


def _judge(pair: Pair) -> Any:
    try:
        signal.setitimer(signal.ITIMER_PROF, _worker.cpu_seconds)
        try:
            return _worker.module.judge(pair.gold, pair.answer)
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
    except (Expired, MemoryError, RecursionError):
        return None
