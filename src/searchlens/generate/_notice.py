"""Signals that ask a job to stop: from Slurm before a time limit or a preemption, or from a person."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

SIGNALS = (signal.SIGTERM, signal.SIGUSR1, signal.SIGHUP)
"""SIGTERM is what Slurm, its preemption and most batch systems send; SIGUSR1 is the usual choice of ``--signal``.
SIGHUP comes when a terminal is closed, unless ``nohup`` has the process ignore it."""


class GraceExpired(BaseException):
    """The grace period has ended. Not an ``Exception``, so that no handler on the way takes it for a failure."""


@dataclass
class Notice:
    """Whether a job was asked to stop."""

    signal: str = ""
    """The name of the first signal; empty until one has come. Later signals change nothing: a scheduler may signal a
    process both by itself and with its group."""

    def end_grace(self) -> None:
        """Stop the timer of the grace period, so that ``GraceExpired`` does not interrupt what is written now."""
        signal.setitimer(signal.ITIMER_REAL, 0)


@contextmanager
def stop_signals(grace: float) -> Iterator[Notice]:
    """Note the first of ``SIGNALS`` in place of ending; ``grace`` seconds later, ``GraceExpired``. Main thread only."""
    notice = Notice()

    def note(number: int, _: Any) -> None:
        if not notice.signal:
            notice.signal = signal.Signals(number).name
            signal.setitimer(signal.ITIMER_REAL, max(grace, 1e-6))  # 0 would disable the timer

    def expire(_: int, __: Any) -> None:
        raise GraceExpired

    ignored = {signal.SIGHUP} if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN else set()
    handlers = {**dict.fromkeys(set(SIGNALS) - ignored, note), signal.SIGALRM: expire}
    previous = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        yield notice
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        for number, handler in previous.items():
            signal.signal(number, handler)
