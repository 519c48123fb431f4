"""Progress that reads well on a terminal and in a log file: a line every few seconds, with rate and time left."""

from __future__ import annotations

import logging
import time

from tqdm import tqdm

log = logging.getLogger(__name__)

SECONDS = 10.0
"""Between lines."""


class Progress:
    """Count finished work, in some unit, and log the progress at intervals."""

    def __init__(self, label: str, total: int, unit: str) -> None:
        self.label, self.total, self.unit = label, total, unit
        self.done = 0
        self.started = self._logged = time.monotonic()

    def add(self, count: int, note: str = "") -> None:
        """Count ``count`` units as done."""
        self.done += count
        now = time.monotonic()
        if now - self._logged >= SECONDS or self.done >= self.total:
            self._logged = now
            bar = tqdm.format_meter(
                self.done,
                self.total,
                now - self.started,
                ncols=100,
                unit=f" {self.unit}",
                unit_scale=True,
                prefix=self.label,
                ascii=" =",
            )
            log.info("%s%s", bar, f"  {note}" if note else "")
