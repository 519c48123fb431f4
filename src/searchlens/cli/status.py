"""`searchlens status`: the progress of a study, while it runs or after it stopped.

Everything is read from files that jobs write atomically: shards with their sidecars, finished chunks, and the records
that jobs update at intervals (``generate._record``). No lock is taken and nothing is written.
"""

from __future__ import annotations

import json
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TextIO, get_args

from searchlens.analysis.health import cell_health
from searchlens.cli.plan import PlanLine, StoredShards, plan, read_store, sum_hours
from searchlens.cli.terminal import say
from searchlens.errors import counted
from searchlens.plan import Grid, JobPool
from searchlens.progress import TimeLeft
from searchlens.store import layout
from searchlens.store.leases import SILENT_SECONDS
from searchlens.store.ranges import Shard

State = Literal["done", "running", "failed", "missing"]


@dataclass(frozen=True)
class PoolStatus:
    """State of one generation job."""

    pool: JobPool
    state: State
    """``missing``: no job samples the pool; none was started, or the last one was stopped on request."""
    record: Mapping[str, Any]
    """The record of its last job; empty if there is none."""

    @property
    def log(self) -> Path:
        """The file to which the workflow writes the output of the job."""
        stem = Path(self.record["manifest"]).stem if self.record else self.pool.name
        return layout.log("generate", self.pool.checkpoint, self.pool.benchmark, stem)


@dataclass(frozen=True)
class CellStatus:
    """Progress of one sampled cell."""

    checkpoint: str
    benchmark: str
    pools: tuple[PoolStatus, ...]
    drawn: int
    wanted: int
    """``drawn``, ``wanted``: samples of all questions; ``drawn`` includes those in finished chunks."""
    tokens: int
    """Drawn for the samples in the store."""
    gpu_hours: float
    hours: float
    """``gpu_hours``, ``hours``: GPU time and sampling time spent on them."""
    remaining_tokens: int
    """Tokens still to draw, estimated (``plan``)."""
    remaining_gpu_hours: float | None
    """GPU-hours of them; None if they cannot be estimated."""
    planned_left: float
    """The same as planned before any was drawn (``cost``), without those drawn for unfinished chunks; the time left
    follows them."""

    @property
    def state(self) -> State:
        """``running`` if any of its jobs runs; otherwise the worst state of its jobs."""
        states = {pool.state for pool in self.pools}
        order: tuple[State, ...] = ("running", "failed", "missing", "done")
        return next(state for state in order if state in states)


def status(grid: Grid, stored: StoredShards | None = None, now: float | None = None) -> list[CellStatus]:
    """Every sampled cell, in order, at a second since 1970; ``stored`` is ``plan.read_store(grid)``, if known."""
    stored, now = read_store(grid) if stored is None else stored, time.time() if now is None else now
    lines: dict[tuple[str, str], list[PlanLine]] = {cell: [] for cell in stored}
    for line in plan(grid, stored):
        lines[line.checkpoint, line.benchmark].append(line)
    return [_cell(grid, cell, stored[cell], lines[cell], now) for cell in stored]


def _cell(
    grid: Grid, cell: tuple[str, str], shards: Mapping[str, Iterable[Shard]], lines: list[PlanLine], now: float
) -> CellStatus:
    sidecars = [shard.sidecar for each in shards.values() for shard in each if shard.present]
    pools = tuple(_pool(grid, pool, now) for pool in grid.jobs.pools(*cell))
    unfinished: Counter[str] = Counter()
    for pool in pools:
        unfinished.update(pool.record.get("unfinished", {}) if pool.state == "running" else {})
    rows = [_drawn(grid, line, unfinished[line.generation.id]) for line in lines]
    return CellStatus(
        *cell,
        pools,
        sum(row[0] for row in rows),
        sum(row[1] for row in rows),
        sum(sidecar["generated"] for sidecar in sidecars),
        sum(sidecar["gpu_seconds"] for sidecar in sidecars) / 3600,
        sum(sidecar["wall_seconds"] for sidecar in sidecars) / 3600,
        sum(line.tokens for line in lines),
        sum_hours([line.hours for line in lines]),
        sum(row[2] for row in rows),
    )


def _drawn(grid: Grid, line: PlanLine, unfinished: int) -> tuple[int, int, float]:
    """Samples of a generation that are drawn, and wanted, and the planned tokens of those that are left."""
    cell, generation, questions = (line.checkpoint, line.benchmark), line.generation, grid.inputs.count(line.benchmark)
    in_chunks = layout.chunk_samples(grid.folder(*cell, generation.id)) if line.missing else 0
    drawn, wanted = questions * (generation.samples - line.missing) + in_chunks, questions * generation.samples
    each = grid.jobs.tokens_each(generation.policies[0], line.benchmark)
    return drawn, wanted, each * max(wanted - drawn - unfinished, 0)


def _pool(grid: Grid, pool: JobPool, now: float) -> PoolStatus:
    record: dict[str, Any] = {}
    with suppress(OSError, ValueError):
        record = dict(json.loads(grid.layout.job_record(*pool.key).read_text()))
    if grid.current_manifest(pool).exists():
        return PoolStatus(pool, "done", record)
    state = record.get("state")
    if state == "running" and now - record["updated"] >= SILENT_SECONDS:
        last_update = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(record["updated"]))
        record["message"] = f"it was killed, or its node died; last update {last_update}"
        state = "failed"
    return PoolStatus(pool, state if state in ("failed", "running") else "missing", record)


# ---- the answer


def answer(grid: Grid) -> dict[str, Any]:
    """Progress of the whole study.

    There are ``cells``, their ``states``, what was ``spent`` and what is ``to_go``; ``health`` of cells with a
    landscape; ``running`` and ``failed`` jobs, how many are ``waiting``, and what is ``not_made``. ``gpu_hours``, and
    ``seconds`` of sampling ``to_go``, may be None: not estimated.
    """
    cells = status(grid)
    states = Counter(cell.state for cell in cells)
    names = [(cell.checkpoint, cell.benchmark) for cell in cells]
    pools = [pool for cell in cells for pool in cell.pools]
    return {
        "cells": [
            {key: part for key, part in vars(cell).items() if key != "pools"} | {"state": cell.state} for cell in cells
        ],
        "states": {state: states[state] for state in get_args(State)},
        "scored": sum(grid.scores(*cell).exists() for cell in names),
        "landscapes": sum(grid.layout.landscape_frame(*cell, "hits").exists() for cell in names),
        "spent": {name: sum(getattr(cell, name) for cell in cells) for name in ("tokens", "gpu_hours", "hours")},
        "to_go": {
            "tokens": sum(cell.remaining_tokens for cell in cells),
            "gpu_hours": sum_hours([cell.remaining_gpu_hours for cell in cells]),
            "seconds": _seconds(cells, pools),
        },
        "health": [
            {"checkpoint": cell[0], "benchmark": cell[1], "level": found.level, "reason": found.reason}
            for cell in grid.study.cells
            if grid.layout.landscape_frame(*cell, "health").exists()
            for found in [cell_health(grid.layout.landscape(*cell), grid.study.default_policy, grid.config.health)]
        ],
        **{state: [_job(grid, pool) for pool in pools if pool.state == state] for state in ("running", "failed")},
        "waiting": sum(pool.state == "missing" for pool in pools),
        "not_made": grid.study.not_made,
    }


def _seconds(cells: Sequence[CellStatus], pools: Sequence[PoolStatus]) -> float | None:
    """Seconds that sampling still takes if as many jobs go on running, at the mean speed of all jobs so far."""
    tokens, seconds = (sum(pool.record.get(key, 0.0) for pool in pools) for key in ("tokens", "seconds"))
    running = sum(pool.state == "running" for pool in pools)
    left = sum(cell.planned_left for cell in cells)
    return left * seconds / tokens / running if tokens and running else None


def _job(grid: Grid, job: PoolStatus) -> dict[str, Any]:
    return {
        "checkpoint": job.pool.checkpoint,
        "benchmark": job.pool.benchmark,
        "pool": job.pool.name,
        **{key: job.record[key] for key in ("host", "slurm_job", "started", "drawn", "total")},
        "message": job.record.get("message", ""),
        "log": str(job.log),
        "has_log": (grid.root / job.log).exists(),
    }


def rendered(found: Mapping[str, Any]) -> str:
    """Cells, totals, health, and failed jobs with their logs, as text."""
    spent, to_go = found["spent"], found["to_go"]
    counts = ", ".join(f"{count} {state}" for state, count in found["states"].items())
    hours = "" if to_go["gpu_hours"] is None else f" and {to_go['gpu_hours']:,.1f} GPU-hours"
    lines = [
        *_cell_lines(found["cells"]),
        f"{counted(len(found['cells']), 'cell')}: {counts}; {found['scored']} scored, {found['landscapes']} landscapes",
        f"spent: {spent['tokens']:,} tokens, {spent['gpu_hours']:,.2f} GPU-hours,"
        f" {spent['hours']:,.2f} hours of sampling",
        f"to go: about {to_go['tokens']:,} tokens{hours}",
        *filter(None, [sampled_now(found), _left(to_go["seconds"]) if found["running"] else ""]),
    ]
    if found["health"]:
        levels = Counter(cell["level"] for cell in found["health"])
        lines.append(f"health: {', '.join(f'{count} {level}' for level, count in levels.items())}")
    lines += [
        f"  {cell['checkpoint']}/{cell['benchmark']}: {cell['level']}: {cell['reason']}"
        for cell in found["health"]
        if cell["reason"]
    ]
    lines += [f"running: {_where(job)}: {job['drawn']:,} of {job['total']:,} samples" for job in found["running"]]
    for job in found["failed"]:
        none = f"none at {job['log']}; look for a log of the scheduler"
        lines += [f"failed: {_where(job)}", f"  {'; '.join(job['message'].splitlines())}"]
        lines.append(f"  log: {job['log'] if job['has_log'] else none}")
    return "\n".join([*lines, *(f"not made: {one}" for one in found["not_made"])])


def _cell_lines(cells: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    names = [f"{cell['checkpoint']}/{cell['benchmark']}" for cell in cells]
    width = max([len("cell"), *map(len, names)])
    yield f"{'cell':{width}}  {'state':7}  {'samples drawn':>23}  {'tokens':>15}  {'GPU-hours':>9}  {'to go':>9}"
    for name, cell in zip(names, cells, strict=True):
        drawn = f"{cell['drawn']:,} of {cell['wanted']:,}"
        hours = "" if cell["remaining_gpu_hours"] is None else f"{cell['remaining_gpu_hours']:,.2f}"
        spent = f"{cell['tokens']:>15,}  {cell['gpu_hours']:>9,.2f}"
        yield f"{name:{width}}  {cell['state']:7}  {drawn:>23}  {spent}  {hours:>9}".rstrip()


def _where(job: Mapping[str, Any]) -> str:
    slurm = f", Slurm job {job['slurm_job']}" if job["slurm_job"] else ""
    return f"{job['checkpoint']}/{job['benchmark']} {job['pool']} on {job['host']}{slurm}, since {job['started']}"


# ---- one line of overall progress, again and again, until everything is sampled and read

TERMINAL_SECONDS, LOG_SECONDS = 5.0, 60.0
"""Between two lines."""


def time_left(pace: TimeLeft, now: float, found: Mapping[str, Any]) -> float | None:
    """Seconds of sampling left after an answer at a moment, by planned tokens; None if they are not known."""
    return pace.see(now, sum(cell["planned_left"] for cell in found["cells"])) if found["running"] else None


def is_finished(found: Mapping[str, Any]) -> bool:
    """Whether every sampled cell is drawn, graded and read."""
    return bool(found["states"]["done"] == found["scored"] == found["landscapes"] == len(found["cells"]))


def line(found: Mapping[str, Any], seconds: float | None) -> str:
    """Progress of the whole study on one line, with the seconds of sampling left; on a second one, what is sampled."""
    drawn, wanted = (sum(cell[key] for cell in found["cells"]) for key in ("drawn", "wanted"))
    cells = len(found["cells"])
    parts = []
    if wanted:
        parts.append(f"{100 * drawn // wanted}% sampled: {drawn:,} of {wanted:,}")
    if drawn < wanted and found["running"]:
        parts.append(_left(seconds))
    jobs = [f"{counted(len(found[state]), 'job')} {state}" for state in ("running", "failed")]
    parts += [text for text in jobs if not text.startswith("0")]
    parts += [f"{found[key]} of {cells} {name}" for key, name in (("scored", "graded"), ("landscapes", "read"))]
    return "\n".join(filter(None, [", ".join(parts), sampled_now(found)]))


def _left(seconds: float | None) -> str:
    return "time left unknown" if seconds is None else f"sampling: {_span(seconds)} left, then tables and figures"


def sampled_now(found: Mapping[str, Any]) -> str:
    """The cells that are sampled, six by name, and how many jobs wait, in one line; empty if nothing is sampled."""
    cells = list(dict.fromkeys(f"{job['checkpoint']}/{job['benchmark']}" for job in found["running"]))
    more = [f"{len(cells) - 6} more"] if len(cells) > 6 else []
    waiting = f"; {counted(found['waiting'], 'job')} waiting" if found["waiting"] else ""
    return f"now sampling {', '.join(cells[:6] + more)}{waiting}" if cells else ""


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
        self._width, self._below = 0, ""
        self.every = TERMINAL_SECONDS if self._over else LOG_SECONDS
        """Seconds between two lines."""

    def put(self, text: str) -> None:
        """Show how far the run is; what its second line says stands, and is shown when it changes."""
        text, _, below = text.partition("\n")
        if self._shown and below not in ("", self._below):
            self.message(below)
        self._below = below
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
    look: Callable[[], Mapping[str, Any]],
    out: TextIO,
    *,
    sleep: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> Mapping[str, Any]:
    """Print progress until everything is done, over the line before on a terminal; returns the last answer."""
    shown, pace = Line(out), TimeLeft(after=60)
    try:
        while True:
            found = look()
            shown.put(line(found, time_left(pace, clock(), found)))
            if is_finished(found):
                return found
            sleep(shown.every)
    finally:
        shown.end()
