"""A job that is told to end: by Slurm before a time limit or a preemption, or by whoever stops it."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

SIGNALS = (signal.SIGTERM, signal.SIGUSR1)
"""SIGTERM is what Slurm, its preemption and most batch systems send; SIGUSR1 is the usual choice of ``--signal``."""


class Overdue(BaseException):
    """The grace is over. Not an ``Exception``, so that nothing on the way takes it for a failure of its own."""


@dataclass
class Notice:
    """Whether a job was told to end.

    Attributes
    ----------
    signal : str
        The name of the first signal; empty until one has come. Later ones change nothing: a scheduler may signal a
        process both by itself and with its group.
    """

    signal: str = ""

    def over(self) -> None:
        """Nothing is under way any more: no ``Overdue`` may break off what is written now."""
        signal.setitimer(signal.ITIMER_REAL, 0)


@contextmanager
def told_to_end(grace: float) -> Iterator[Notice]:
    """Take note of the signals, in the main thread, instead of dying of them.

    Parameters
    ----------
    grace : float
        Seconds after the first signal until ``Overdue`` is raised from wherever the program is.

    Yields
    ------
    Notice
    """
    notice = Notice()

    def told(number: int, _: Any) -> None:
        if not notice.signal:
            notice.signal = signal.Signals(number).name
            signal.setitimer(signal.ITIMER_REAL, max(grace, 1e-6))  # 0 would switch it off

    def overdue(_: int, __: Any) -> None:
        raise Overdue

    handlers = {**dict.fromkeys(SIGNALS, told), signal.SIGALRM: overdue}
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        yield notice
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        for number, handler in before.items():
            signal.signal(number, handler)
