"""Progress that reads well on a terminal and in a log file: a line every few seconds, with rate and time left."""

from __future__ import annotations

import logging
import time

from tqdm import tqdm

log = logging.getLogger(__name__)

SECONDS = 10.0
"""Between lines."""


class TimeLeft:
    """Seconds left at the mean speed since the first look; they change by at most a factor of two a minute,
    but for the time that passes and what is below a minute.
    """

    def __init__(self, after: float = 0.0) -> None:
        self._after, self._first, self._seen = after, (0.0, 0.0), 0.0
        self.seconds: float | None = None
        """None until something was done, and ``after`` seconds are over."""

    def see(self, now: float, left: float) -> float | None:
        """Note how much work is left, in a unit that takes about the same time everywhere; returns ``seconds``."""
        if not self._first[1]:
            self._first = now, left
        took, done = now - self._first[0], self._first[1] - left
        if done > 0 and took >= self._after:
            seconds = took * left / done
            if self.seconds is not None:
                passed = now - self._seen
                most = 2 ** (passed / 60)
                least = min(self.seconds / most, self.seconds - passed) if left else 0.0
                seconds = min(max(seconds, least), max(self.seconds, 60.0) * most)
            self.seconds, self._seen = seconds, now
        return self.seconds


class Progress:
    """Count finished work, in some unit, and log the progress at intervals; ``work`` weighs the time left, if given."""

    def __init__(self, label: str, total: int, unit: str, work: float | None = None) -> None:
        self.label, self.total, self.unit = label, total, unit
        self.done, self.left = 0, total if work is None else work
        self.started = self._logged = time.monotonic()
        self._time_left = TimeLeft()
        self._time_left.see(self.started, self.left)

    def add(self, count: int, note: str = "", work: float | None = None) -> None:
        """Count ``count`` units as done."""
        self.done += count
        self.left -= count if work is None else work
        now = time.monotonic()
        if now - self._logged >= SECONDS or self.done >= self.total:
            self._logged = now
            seconds = self._time_left.see(now, self.left)
            left = "?" if seconds is None else tqdm.format_interval(seconds)
            took = now - self.started
            counts = f"{self.done:,} of {self.total:,} {self.unit}, {self.done / max(took, 1e-9):,.1f}/s"
            log.info("%s: %s [%s<%s]  %s", self.label, counts, tqdm.format_interval(took), left, note)
