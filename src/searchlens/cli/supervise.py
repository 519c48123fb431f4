"""Runs Snakemake and prints one line of overall progress in place of its blocks; errors are shown as it writes them.

What is known to be routine is hidden and everything else shown, so that no message is lost that nobody thought of.
Snakemake keeps all of it in a file under ``.snakemake/log``.
"""

from __future__ import annotations

import os
import queue
import re
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import IO, TextIO

from searchlens.cli.follow import Line

Handler = Callable[[int, FrameType | None], None]

_STEPS = re.compile(r"(\d+) of (\d+) steps \(")
_COMPLETE = re.compile(r"Complete log\(s\): (.+)")
_BLOCK = re.compile(r"(local)?(rule|checkpoint) \w+:$|Job stats:$")
"""Heads of blocks whose other lines are indented, or are a table that ends at a blank line."""
_ROUTINE = re.compile(
    r"Finished jobid: |Select jobs to execute|Execute \d+ jobs|Building DAG of jobs"
    r"|Using (workflow specific )?profile|Using shell: |Provided (cores|resources|remote)|Rules claiming more threads"
    r"|Conda environments: ignored|Assuming unrestricted shared|Config file .* is extended by|Elapsed time: "
    r"|Updating checkpoint dependencies|DAG of jobs will be updated|Touching output|Storing output|host: "
    r"|Job \d+ has been submitted|Rerunning|Waiting at most \d+ seconds"
)


_DATE = re.compile(r"\[\w{3} \w{3} +\d+ [\d:]+ \d{4}\]$")
_OF_A_JOB = re.compile(r"\d\d:\d\d:\d\d (?!.*(: attention: |: not interpretable: |some of its texts:$))")
"""What a job logs; its log under ``logs/`` has it, too. The health of a cell is always shown."""


class Filter:
    """Tells routine output of Snakemake from what a user must see, line by line.

    ``steps`` are jobs done, and all; zeros before it is known. ``log`` is the path of Snakemake's own log, once named.
    """

    def __init__(self) -> None:
        self.steps = (0, 0)
        self.log = ""
        self._in_block = self._in_error = False

    def shows(self, line: str) -> bool:
        """Whether a line is no routine."""
        if match := _STEPS.match(line):
            self.steps = int(match[1]), int(match[2])
            return False
        if match := _COMPLETE.match(line):
            self.log = match[1]
            return False
        if _DATE.match(line):  # of the next block
            self._in_block = self._in_error = False
            return False
        self._in_error |= line.startswith("Error in ")
        if self._in_error:
            return True
        if _BLOCK.match(line):
            self._in_block = True
            return False
        if self._in_block and line.strip() and not self._ends_block(line):
            return False
        self._in_block = False
        return bool(line.strip()) and not _ROUTINE.match(line) and not _OF_A_JOB.match(line)

    def _ends_block(self, line: str) -> bool:
        """Of a rule, a line at the margin that is no column of the table of jobs."""
        return not line[0].isspace() and not re.fullmatch(r"[\w-]+ +[\w-]+", line)


def supervise(command: Sequence[str], progress: Callable[[], str], out: TextIO, *, shown: bool = True) -> int:
    """Run Snakemake to its end, with ``progress`` in words; returns its status, or 128 and the number of a signal."""
    started, known, line = time.monotonic(), Filter(), Line(out, shown=shown)
    # A group of its own, so that an interrupt from the terminal comes once, by ``_forwarding``. It stops such a group
    # if that reads from it, which nothing in a run does.
    with subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        process_group=0,
    ) as child:
        assert child.stdout is not None
        with _forwarding(child):
            _watch(child, child.stdout, known, line, progress)
            status = child.wait()
    done, total = known.steps
    if not status and shown and total:
        line.put(f"{done} of {total} steps, done in {(time.monotonic() - started) / 60:.1f} min")
    line.end()
    if status and known.log:
        line.message(f"Snakemake's log: {known.log}")
    return status if status >= 0 else 128 - status


def _watch(
    child: subprocess.Popen[str], output: IO[str], known: Filter, line: Line, progress: Callable[[], str]
) -> None:
    lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
    threading.Thread(target=_read, args=(output, lines), daemon=True).start()
    last = time.monotonic()
    while True:
        try:
            text = lines.get(timeout=1.0)
        except queue.Empty:
            if child.poll() is not None:  # a process that it left behind may hold the pipe open
                return
        else:
            if text is None:
                return
            if known.shows(text):
                line.message(text)
        if time.monotonic() - last >= line.every:
            done, total = known.steps
            parts = [f"{done} of {total} steps" if total else "planning", progress() if total else ""]
            line.put(", ".join(filter(None, parts)))
            last = time.monotonic()


def _read(output: IO[str], lines: queue.SimpleQueue[str | None]) -> None:
    for text in output:
        lines.put(text.rstrip("\n"))
    lines.put(None)


@contextmanager
def _forwarding(child: subprocess.Popen[str]) -> Iterator[None]:
    """Pass on what is meant to end the run: an interrupt to every process, as a terminal does, the others to one."""

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        if child.poll() is None:
            os.killpg(child.pid, signal.SIGINT)

    def terminate(number: int, _frame: FrameType | None) -> None:
        child.send_signal(number)

    handlers: dict[int, Handler] = {signal.SIGINT: interrupt, signal.SIGTERM: terminate, signal.SIGHUP: terminate}
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
