"""`searchlens run`: Snakemake in the folder of a study, with the workflow of this installation.

One line of overall progress stands in place of its blocks. What is known to be routine is hidden and everything else
shown as it writes it, so that no message is lost that nobody thought of. Snakemake keeps all of it in a file under
``.snakemake/log``.
"""

from __future__ import annotations

import argparse
import os
import queue
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import IO, Any, NoReturn, TextIO

from searchlens.cli.status import Line, answer, line, time_left
from searchlens.config import addons, project
from searchlens.plan import Grid
from searchlens.progress import TimeLeft
from searchlens.store import layout


def command_of(args: argparse.Namespace) -> list[str]:
    """The command line of Snakemake, whose configurations are merged last; without targets it makes everything.

    Without a number of ``cores``, or ``all``, the profile decides. The profile is a folder or its name; if empty, only
    that of the study's folder counts.
    """
    own = Path("Snakefile")
    options = ["--snakefile", str(own if own.exists() else project.root() / "Snakefile")]
    options += ["--configfile", *args.config] if args.config else []
    options += ["--cores", args.cores] if args.cores else []
    options += ["--profile", args.profile] if args.profile else []
    options += ["--dry-run"] if args.dry_run else []
    return [sys.executable, "-m", "snakemake", *options, "--", *args.targets]


def require_installed(grid: Grid, *, here: bool) -> None:
    """Raise InputError, which names the extra, if Snakemake or, for jobs that run here, a library is missing."""
    addons.require("snakemake")
    if here:
        require_engines(grid)


def require_engines(grid: Grid) -> None:
    """Raise InputError, which names the extra, if a library of an engine with something to sample is missing."""
    sampled = [cell for cell in grid.study.cells if any(any(grid.missing(pool)) for pool in grid.jobs.pools(*cell))]
    engines = {grid.study.engine(checkpoint).library for checkpoint, _ in sampled}
    addons.require(*sorted(engines))


class Previews:
    """Report and explorer of what is complete, made again in the background when more benchmarks are.

    ``configs`` are the files that the run was given. Previews take at most a tenth of the time of one core.
    """

    def __init__(self, grid: Grid, configs: Sequence[str]) -> None:
        self._grid = grid
        self._command = [sys.executable, "-m", "searchlens", "preview"]
        self._command += [part for name in configs for part in ("--config", name)]
        self._shown = len(grid.complete_benchmarks) if grid.layout.report.exists() else 0
        self._child: subprocess.Popen[bytes] | None = None
        self._started = self._earliest = 0.0

    def look(self, now: float) -> None:
        """Start a preview at a moment, if there is more to show than in the last one, and that one has ended."""
        if self._child and self._child.poll() is None:
            return
        if self._child:
            self._earliest = self._started + 10 * (now - self._started)
            self._child = None
        complete = len(self._grid.complete_benchmarks)
        if complete > self._shown and now >= self._earliest and not self._grid.is_measured:
            self._shown, self._started = complete, now
            log = layout.log("preview")
            log.parent.mkdir(parents=True, exist_ok=True)
            with log.open("w") as out:
                nice = partial(os.nice, 10)
                self._child = subprocess.Popen(self._command, stdout=out, stderr=out, preexec_fn=nice)  # noqa: PLW1509

    def end(self) -> None:
        """Stop a preview that is being made."""
        if self._child:
            self._child.kill()
            self._child.wait()


def run(
    command: list[str], grid: Grid, configs: Sequence[str] = (), *, plain: bool = False, quiet: bool = False
) -> NoReturn:
    """Run Snakemake and end with its exit status; its jobs find the programs of this installation first.

    Samples are counted, and the first pages made, meanwhile. ``configs`` are the files that it was given. ``plain``:
    become Snakemake, whose output is shown as it is. ``quiet``: no progress.
    """
    os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
    sys.stdout.flush()
    sys.stderr.flush()
    if plain:
        os.execv(command[0], command)
    pace, previews = TimeLeft(after=60), Previews(grid, configs)

    def sampling() -> str:
        """What is drawn, while something is left to draw."""
        previews.look(time.monotonic())
        found = answer(Grid(grid.config, grid.root))
        seconds = time_left(pace, time.monotonic(), found)
        return line(found, seconds) if any(cell["drawn"] < cell["wanted"] for cell in found["cells"]) else ""

    try:
        sys.exit(supervise(command, sampling, sys.stderr, shown=not quiet))
    finally:
        previews.end()


# ---- what Snakemake says

_STEPS = re.compile(r"(\d+) of (\d+) steps \(")
_COMPLETE = re.compile(r"Complete log\(s\): (.+)")
_BLOCK = re.compile(r"(local)?(rule|checkpoint) [\w-]+:$|Job stats:$")
"""Heads of blocks whose other lines are indented, or are a table that ends at a blank line."""
_ROUTINE = re.compile(
    r"Finished jobid: |Select jobs to execute|Execute \d+ jobs|Building DAG of jobs"
    r"|Using (workflow specific )?profile|Using shell: |Provided (cores|resources|remote)|Rules claiming more threads"
    r"|Conda environments: ignored|Assuming unrestricted shared|Config file .* is extended by|Elapsed time: "
    r"|Updating checkpoint dependencies|DAG of jobs will be updated|Touching output|Storing output|host: "
    r"|Job \d+ has been submitted|Loading weights: |Rerunning|Waiting at most \d+ seconds"
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
        # Of a rule, a line at the margin that is no column of the table of jobs ends the block.
        if self._in_block and line.strip() and (line[0].isspace() or re.fullmatch(r"[\w-]+ +[\w-]+", line)):
            return False
        self._in_block = False
        return bool(line.strip()) and not _ROUTINE.match(line) and not _OF_A_JOB.match(line)


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

    def read() -> None:
        for text in output:
            lines.put(text.rstrip("\n"))
        lines.put(None)

    threading.Thread(target=read, daemon=True).start()
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


@contextmanager
def _forwarding(child: subprocess.Popen[str]) -> Iterator[None]:
    """Pass on what is meant to end the run: an interrupt to every process, as a terminal does, the others to one."""

    def forward(number: int, _frame: Any) -> None:
        if number != signal.SIGINT:
            child.send_signal(number)
        elif child.poll() is None:
            os.killpg(child.pid, number)

    before = {number: signal.signal(number, forward) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
