"""Judging in worker processes, so that no answer can delay, crash or outgrow the run.

Each pair has three limits. Processor time is measured inside the worker, so that a verdict does not depend on the load
of the machine. A worker that this cannot interrupt (a long call into C) is killed after a wall time. Its memory is
capped. A pair that reaches a limit stays undecided; the other pairs are not affected.

What ends a worker from outside is not the pair's doing: a signal of a scheduler or of the kernel that runs out of
memory, or wall time on a node that is overloaded. Such a pair is judged again, and if that does not help either it is
``INTERRUPTED``, which no table of verdicts keeps.
"""

from __future__ import annotations

import logging
import math
import os
import re
import resource
import signal
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, replace
from itertools import accumulate, chain
from math import comb, lgamma, log10
from multiprocessing.context import ForkServerContext, ForkServerProcess
from types import ModuleType
from typing import Any

from pebble import ProcessExpired, ProcessPool

from searchlens import catalogue
from searchlens.errors import JobError
from searchlens.grading import GradedPair, Verdict

DEEPEST = 25
"""Largest depth of nested brackets."""
LARGEST_EXPONENT = 100_000
LARGEST_FACTORIAL = 10_000
MOST_TERMS = 100_000

_INTEGER = re.compile(r"\d+(?:,\d{3})*")
_POWER = re.compile(r"(\d+)\s*\^\s*\{?\s*(\d+)")
_FACTORIAL = re.compile(r"(\d+)\s*!")
_RAISED = re.compile(r"(?:\^|\*\*)\s*(?:\{|\()?")
_FACTORIAL_OF_GROUP = re.compile(r"[({]([^(){}]*(?:\{[^(){}]*\}[^(){}]*)*)[)}]\s*!")
_POWER_OF_SUM = re.compile(r"\(([^()^]*)\)\s*\^\s*\{?\s*(\d{1,6})")
_FURTHER_TERM = re.compile(r"(?<=[^\s+-])\s*[+-]")
_BINOMIAL = re.compile(r"binom\s*\{([^{}]*(?:\{[^{}]*\}[^{}]*)*)\}\s*\{([^{}]*(?:\{[^{}]*\}[^{}]*)*)\}")


def oversized(answer: str) -> bool:
    """Whether an answer is nested deeper than ``DEEPEST``, holds a power, factorial or binomial coefficient of plain
    numbers beyond the largest ones computed, or a power of a sum that multiplies out to more than ``MOST_TERMS``.

    ``10^{10^{10}}`` and ``(10^9)!`` cannot be written out, and trying costs a second each. An answer that is not
    recognised here reaches a limit of the worker that judges it, so that this list need not be complete.
    """
    return (
        max(accumulate(((c in "{([") - (c in "})]") for c in answer), initial=0)) > DEEPEST
        or any(_exceeds(operand, LARGEST_EXPONENT) for operand in _exponents(answer))
        or any(_exceeds(number, LARGEST_FACTORIAL) for number in _FACTORIAL.findall(answer))
        or any(_exceeds(group, LARGEST_FACTORIAL) for group in _FACTORIAL_OF_GROUP.findall(answer))
        or any(_exceeds(" ".join(pair), LARGEST_EXPONENT) for pair in _BINOMIAL.findall(answer))
        or any(
            comb(int(power) + others, others) > MOST_TERMS
            for inside, power in _POWER_OF_SUM.findall(answer)
            for others in [len(_FURTHER_TERM.findall(inside))]
        )
    )


def _exponents(text: str) -> list[str]:
    """The operand of each ``^``: a bracketed group, or the digits or single character after it."""
    operands = []
    for match in _RAISED.finditer(text):
        start, depth = match.end(), 1
        if match[0][-1] not in "{(":
            digits = _INTEGER.match(text, start)
            operands.append(digits[0] if digits else text[start : start + 1])
            continue
        for end in range(start, len(text)):
            depth += (text[end] in "{(") - (text[end] in "})")
            if depth == 0:
                break
        operands.append(text[start : end if depth == 0 else None])
    return operands


def _exceeds(text: str, bound: int) -> bool:
    """Whether a number in ``text``, or a power or factorial of plain numbers, is larger than ``bound``."""
    if any(len(number) > 12 or int(number.replace(",", "")) > bound for number in _INTEGER.findall(text)):
        return True
    powers = any(int(power) * log10(max(int(base), 1)) > log10(bound) for base, power in _POWER.findall(text))
    return powers or any(lgamma(int(number) + 1) > math.log(bound) for number in _FACTORIAL.findall(text))


log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of judging one pair."""

    cpu_seconds: float = 1.0
    """Processor time of parsing and comparing, > 0. The slowest genuine answer that we saw took 0.2 s."""
    wall_seconds: float = 20.0
    """The worker is killed after this time."""
    memory_bytes: int = 4 * 2**30
    """Address space of a worker."""


DEFAULT = Limits()


INTERRUPTED = object()
"""Outcome of a pair whose worker was ended from outside each time."""

_TOGETHER = 10
"""Pairs that are sent to a worker at once; each is judged alone if its worker ends in between."""
_PATIENCE = (1, 1, 1, 2)
"""Attempts, as multiples of the wall time: pairs together, then those left alone; the last one in a single worker."""

_OWN_SIGNALS = [-getattr(signal, f"SIG{name}") for name in ("XCPU", "SEGV", "ABRT", "BUS", "FPE", "ILL")]
"""Exit codes of a worker that its pair has crashed, or that used up its processor time in one call."""

_TERMINATED = (signal.SIGTERM, 255)
"""Positive exit codes of a worker that was asked to end, by pebble's handler, and of one whose server was killed."""


class WorkersError(JobError, BrokenProcessPool):
    """Workers cannot start: a broken installation is an error, not a list of undecided answers."""


class Expired(BaseException):
    """Processor time is used up. Not an ``Exception``, because the libraries catch those."""


def judge(module: str, pairs: Sequence[GradedPair], limits: Limits, workers: int | None) -> list[Any]:
    """Judge pairs by the function ``judge(gold, answer)`` of a module, in order; by default one process per core.

    The module is a dotted name, imported once, in the server process that the workers are forked from; or the path of a
    file outside of the package (its ``__file__``), imported by each worker. A result is None if a limit was reached,
    ``INTERRUPTED`` if the worker was ended from outside at every attempt. Raises WorkersError if workers cannot start.
    """
    outcomes: list[Any] = [INTERRUPTED] * len(pairs)
    count = workers or len(os.sched_getaffinity(0))
    for attempt, patience in enumerate(_PATIENCE):
        left = [place for place, outcome in enumerate(outcomes) if outcome is INTERRUPTED]
        if not left:
            break
        if attempt > 1:
            log.warning("%d answers are judged again: their processes were ended from outside", len(left))
        few = replace(limits, wall_seconds=patience * limits.wall_seconds)
        size = 1 if attempt else _TOGETHER
        batches = [left[start : start + size] for start in range(0, len(left), size)]
        asked = [[pairs[place] for place in batch] for batch in batches]
        again = _judged(module, asked, few, count if attempt + 1 < len(_PATIENCE) else 1)
        for place, outcome in zip(left, chain.from_iterable(again), strict=True):
            outcomes[place] = outcome
    return outcomes


def _judged(module: str, batches: Sequence[Sequence[GradedPair]], limits: Limits, count: int) -> list[list[Any]]:
    """One attempt at each pair. Workers that were all killed while they waited are started again."""
    found: list[list[Any]] = []
    starts_in_vain = 0
    while len(found) < len(batches):
        before = len(found)
        try:
            found += _in_pool(module, batches[before:], limits, count)
        except BrokenProcessPool as error:
            reason = error
        starts_in_vain = 0 if len(found) > before else starts_in_vain + 1
        if starts_in_vain == _STARTS:
            raise WorkersError(f"the processes of the grader cannot start: {reason}", _BROKEN) from None
    return found


def _in_pool(module: str, batches: Sequence[Sequence[GradedPair]], limits: Limits, count: int) -> Iterator[list[Any]]:
    """Outcomes in order, until all workers have gone. What ended the worker of several pairs is no pair's outcome."""
    # The server is a clean process: forking from this one could inherit held locks.
    context = _Context()
    context.set_forkserver_preload([__name__, module])
    worthwhile = min(count, math.ceil(sum(map(len, batches)) / _FEWEST))
    pool = ProcessPool(worthwhile, context=context, initializer=_prepare, initargs=(module, limits))
    try:
        try:
            futures = [pool.schedule(_judge_all, args=[batch], timeout=limits.wall_seconds) for batch in batches]
        except RuntimeError as error:  # its workers ended before this
            raise BrokenProcessPool(str(error)) from error
        for batch, future in zip(batches, futures, strict=True):
            while not wait([future], timeout=1.0).done:
                if not pool.active:  # pebble forgets what was scheduled while its workers ended
                    raise BrokenProcessPool("all workers ended")
            try:
                yield future.result()
                continue
            except (MemoryError, Expired):
                outcome = None
            except TimeoutError:
                outcome = INTERRUPTED
            except ProcessExpired as error:
                code = error.exitcode
                is_outside = code in _TERMINATED or (code < 0 and code not in _OWN_SIGNALS)
                outcome = INTERRUPTED if is_outside else None
            yield [outcome] if len(batch) == 1 else [INTERRUPTED] * len(batch)
    finally:
        pool.stop()  # not close: an interrupted run must not wait for the queue
        pool.join()


class _Process(ForkServerProcess):
    """A worker that does not import the program that starts it: a script without a guard would run again in each."""

    @staticmethod
    def _Popen(process_obj: Any) -> Any:  # noqa: N802 - as multiprocessing names it
        program, sys.modules["__main__"] = sys.modules["__main__"], ModuleType("__main__")
        try:
            return ForkServerProcess._Popen(process_obj)
        finally:
            sys.modules["__main__"] = program


class _Context(ForkServerContext):
    Process = _Process


_FEWEST = 50
"""Pairs for which a further process is worth its start."""
_STARTS = 5
_BROKEN = "is everything installed that the grader needs, and is there memory and space in /tmp left?"


def verdicts(
    module: str,
    pairs: Sequence[GradedPair],
    decided: Sequence[tuple[bool | None, str]],
    limits: Limits,
    workers: int | None,
) -> list[Verdict]:
    """Verdicts on pairs, each with its decision and its form; pairs without a decision (None) go to ``judge``.

    Oversized answers without one stay undecided.
    """
    undecided = [i for i, (decision, _) in enumerate(decided) if decision is None and not oversized(pairs[i].answer)]
    outcomes = dict(zip(undecided, judge(module, [pairs[i] for i in undecided], limits, workers), strict=True))
    return [
        Verdict(None, form, is_lasting=False)
        if outcomes.get(i) is INTERRUPTED
        else Verdict(outcomes.get(i, decision), form)
        for i, (decision, form) in enumerate(decided)
    ]


# ---- in the workers

_IN_ONE_CALL = 5
"""Multiple of the processor time after which the kernel ends a worker that handles no signal."""
_worker: tuple[Any, float]
"""The module, and the processor time of a pair in seconds."""


def _prepare(module: str, limits: Limits) -> None:
    global _worker  # noqa: PLW0603 - an initializer cannot pass anything to the tasks in another way
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    memory = limits.memory_bytes if hard == resource.RLIM_INFINITY else min(limits.memory_bytes, hard)
    resource.setrlimit(resource.RLIMIT_AS, (memory, hard))
    signal.signal(signal.SIGPROF, _expire)
    # Imported here at the latest, so that no pair pays for the import out of its limit.
    _worker = catalogue.import_named(module), limits.cpu_seconds


def _expire(*_: Any) -> None:
    raise Expired


def _judge_all(batch: Sequence[GradedPair]) -> list[Any]:
    return [_judge(pair) for pair in batch]


def _judge(pair: GradedPair) -> Any:
    module, seconds = _worker
    try:
        # The kernel ends this process in a call that takes long by its own clock, and not by that on the wall.
        usage = resource.getrusage(resource.RUSAGE_SELF)
        _, hard = resource.getrlimit(resource.RLIMIT_CPU)
        soft = math.ceil(usage.ru_utime + usage.ru_stime + _IN_ONE_CALL * seconds) + 1
        resource.setrlimit(resource.RLIMIT_CPU, (soft if hard == resource.RLIM_INFINITY else min(soft, hard), hard))
        signal.setitimer(signal.ITIMER_PROF, seconds)
        try:
            return module.judge(pair.gold, pair.answer)
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
    except (Expired, MemoryError, RecursionError):
        return None
