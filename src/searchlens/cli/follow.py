"""`searchlens status --follow`: one line of overall progress, again and again, until everything is sampled and read.

On a terminal the line is written over; in a log file there is a line now and then. Nothing is written to the study.
"""

from __future__ import annotations

import shutil
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, TextIO

from searchlens.cli.terminal import say

Answer = Mapping[str, Any]
"""Of ``commands.status.answer``."""

TERMINAL_SECONDS, LOG_SECONDS = 5.0, 60.0
"""Between two lines."""

WINDOW = 600.0
"""Seconds over which the rate of sampling is measured: jobs of different policies alternate."""


class Rate:
    """Samples drawn a second, over the last ``WINDOW`` seconds in which this looked."""

    def __init__(self) -> None:
        self._seen: deque[tuple[float, int]] = deque()

    def see(self, now: float, drawn: int) -> None:
        """Note how many samples there are at a moment."""
        self._seen.append((now, drawn))
        while now - self._seen[0][0] > WINDOW:
            self._seen.popleft()

    @property
    def per_second(self) -> float | None:
        """None if nothing was drawn between the first and the last look."""
        (first, before), (last, after) = self._seen[0], self._seen[-1]
        return (after - before) / (last - first) if after > before and last > first else None


def is_finished(found: Answer) -> bool:
    """Whether every sampled cell is drawn, graded and read."""
    return bool(found["states"]["done"] == found["scored"] == found["landscapes"] == len(found["cells"]))


def line(found: Answer, per_second: float | None) -> str:
    """Progress of the whole study on one line; of samples drawn a second, if that is known."""
    drawn, wanted = (sum(cell[key] for cell in found["cells"]) for key in ("drawn", "wanted"))
    cells = len(found["cells"])
    parts = []
    if wanted:
        parts.append(f"{100 * drawn // wanted}% sampled: {drawn:,} of {wanted:,}")
    jobs = [f"{len(found[state])} job{'s' * (len(found[state]) != 1)} {state}" for state in ("running", "failed")]
    parts += [text for text in jobs if not text.startswith("0")]
    parts += [f"{found[key]} of {cells} {name}" for key, name in (("scored", "graded"), ("landscapes", "read"))]
    if drawn < wanted and found["running"]:
        parts.append(f"{_span((wanted - drawn) / per_second)} of sampling left" if per_second else "time left unknown")
    return ", ".join(parts)


def _span(seconds: float) -> str:
    """A time in the unit that fits.

    >>> _span(40), _span(400), _span(40_000)
    ('under 1 min', 'about 7 min', 'about 11.1 h')
    """
    if seconds < 60:
        return "under 1 min"
    return f"about {seconds / 60:.0f} min" if seconds < 3600 else f"about {seconds / 3600:.1f} h"


class Line:
    """Progress on one line, over the line before on a terminal, otherwise at intervals; or messages alone."""

    def __init__(self, out: TextIO, *, shown: bool = True) -> None:
        self._out, self._shown, self._over = out, shown, out.isatty()
        self._width = 0
        self.every = TERMINAL_SECONDS if self._over else LOG_SECONDS
        """Seconds between two lines."""

    def put(self, text: str) -> None:
        """Show how far the run is."""
        if self._shown and self._over:
            text = text[: shutil.get_terminal_size().columns - 1]
            self._out.write(f"\r{text:{self._width}}")
            self._width = len(text)
        elif self._shown:
            self._out.write(f"{time.strftime('%H:%M:%S')} {text}\n")
        self._out.flush()

    def message(self, text: str) -> None:
        """Show a line that stays."""
        self.end()
        say(text, self._out)

    def end(self) -> None:
        """Go on below what is written over."""
        if self._width:
            self._out.write("\n")
            self._width = 0


def follow(
    look: Callable[[], Answer],
    out: TextIO,
    *,
    sleep: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> Answer:
    """Print progress until everything is done, over the line before on a terminal; returns the last answer."""
    shown, rate = Line(out), Rate()
    try:
        while True:
            found = look()
            rate.see(clock(), sum(cell["drawn"] for cell in found["cells"]))
            shown.put(line(found, rate.per_second))
            if is_finished(found):
                return found
            sleep(shown.every)
    finally:
        shown.end()
