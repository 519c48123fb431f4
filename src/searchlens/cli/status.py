"""`searchlens status`: the progress of a study, while it runs or after it stopped.

Everything is read from files that jobs write atomically: shards with their sidecars, finished chunks, and the records
that jobs update at intervals (``generate._record``). No lock is taken and nothing is written.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from searchlens.analysis.health import Health, cell_health
from searchlens.cli.plan import PlanLine, StoredShards, plan, read_store, sum_hours
from searchlens.plan import Grid, JobPool
from searchlens.store import layout
from searchlens.store.ranges import Shard

State = Literal["done", "running", "failed", "missing"]

SILENT_SECONDS = 300.0
"""A running job whose record is older counts as killed: ten intervals between its updates."""


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
    generated: int
    """Tokens drawn for the samples in the store."""
    gpu_hours: float
    hours: float
    """``gpu_hours``, ``hours``: GPU time and sampling time spent on them."""
    remaining_tokens: int
    """Tokens still to draw, estimated (``plan``)."""
    remaining_hours: float | None
    """GPU-hours of them; None if they cannot be estimated."""

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


def health(grid: Grid) -> dict[tuple[str, str], Health]:
    """The health of every cell that has a landscape, sampled or not."""
    return {
        cell: cell_health(grid.layout.landscape(*cell), grid.study.default_policy, grid.config.health)
        for cell in grid.study.cells
        if grid.layout.landscape_frame(*cell, "health").exists()
    }


def _cell(
    grid: Grid, cell: tuple[str, str], shards: Mapping[str, Iterable[Shard]], lines: list[PlanLine], now: float
) -> CellStatus:
    sidecars = [shard.sidecar for each in shards.values() for shard in each if shard.present]
    questions = grid.inputs.count(cell[1])
    wanted = questions * sum(line.generation.samples for line in lines)
    in_chunks = sum(layout.chunk_samples(grid.folder(*cell, line.generation.id)) for line in lines if line.missing)
    missing = questions * sum(line.missing for line in lines)
    return CellStatus(
        *cell,
        tuple(_pool(grid, pool, now) for pool in grid.jobs.pools(*cell)),
        wanted - missing + in_chunks,
        wanted,
        sum(sidecar["generated"] for sidecar in sidecars),
        sum(sidecar["gpu_seconds"] for sidecar in sidecars) / 3600,
        sum(sidecar["wall_seconds"] for sidecar in sidecars) / 3600,
        sum(line.tokens for line in lines),
        sum_hours(lines),
    )


def _pool(grid: Grid, pool: JobPool, now: float) -> PoolStatus:
    record = _read_job_record(grid.layout.job_record(*pool.key))
    if grid.current_manifest(pool).exists():
        return PoolStatus(pool, "done", record)
    if record.get("state") == "failed":
        return PoolStatus(pool, "failed", record)
    if record.get("state") != "running":
        return PoolStatus(pool, "missing", record)
    if now - record["updated"] < SILENT_SECONDS:
        return PoolStatus(pool, "running", record)
    last_update = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(record["updated"]))
    return PoolStatus(
        pool, "failed", {**record, "message": f"it was killed, or its node died; last update {last_update}"}
    )


def _read_job_record(path: Path) -> dict[str, Any]:
    try:
        return dict(json.loads(path.read_text()))
    except (OSError, ValueError):
        return {}


# ---- the answer


def answer(grid: Grid) -> dict[str, Any]:
    """Progress of the whole study.

    There are ``cells``, their ``states``, what was ``spent`` and what is ``to_go``; ``health`` of cells with a
    landscape; ``running`` and ``failed`` jobs, and what is ``not_made``. ``gpu_hours`` may be None: not estimated.
    """
    cells = status(grid)
    states = Counter(cell.state for cell in cells)
    names = [(cell.checkpoint, cell.benchmark) for cell in cells]
    pools = [pool for cell in cells for pool in cell.pools]
    return {
        "cells": [_line(cell) for cell in cells],
        "states": {state: states[state] for state in get_args(State)},
        "scored": sum(grid.scores(*cell).exists() for cell in names),
        "landscapes": sum(grid.layout.landscape_frame(*cell, "hits").exists() for cell in names),
        "spent": {
            "tokens": sum(cell.generated for cell in cells),
            "gpu_hours": sum(cell.gpu_hours for cell in cells),
            "hours": sum(cell.hours for cell in cells),
        },
        "to_go": {
            "tokens": sum(cell.remaining_tokens for cell in cells),
            "gpu_hours": _sum([cell.remaining_hours for cell in cells]),
        },
        "health": [
            {"checkpoint": checkpoint, "benchmark": benchmark, "level": found.level, "reason": found.reason}
            for (checkpoint, benchmark), found in health(grid).items()
        ],
        **{state: [_job(grid, pool) for pool in pools if pool.state == state] for state in ("running", "failed")},
        "not_made": grid.study.not_made,
    }


def _sum(hours: Sequence[float | None]) -> float | None:
    known = [one for one in hours if one is not None]
    return sum(known) if len(known) == len(hours) else None


def _line(cell: CellStatus) -> dict[str, Any]:
    return {
        "checkpoint": cell.checkpoint,
        "benchmark": cell.benchmark,
        "state": cell.state,
        "drawn": cell.drawn,
        "wanted": cell.wanted,
        "tokens": cell.generated,
        "gpu_hours": cell.gpu_hours,
        "hours": cell.hours,
        "remaining_tokens": cell.remaining_tokens,
        "remaining_gpu_hours": cell.remaining_hours,
    }


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
        f"{len(found['cells'])} cells: {counts}; {found['scored']} scored, {found['landscapes']} landscapes",
        f"spent: {spent['tokens']:,} tokens, {spent['gpu_hours']:,.2f} GPU-hours,"
        f" {spent['hours']:,.2f} hours of sampling",
        f"to go: about {to_go['tokens']:,} tokens{hours}",
        *_health_lines(found["health"]),
    ]
    lines += [f"running: {_where(job)}: {job['drawn']:,} of {job['total']:,} samples" for job in found["running"]]
    for job in found["failed"]:
        none = f"none at {job['log']}; look for a log of the scheduler"
        lines += [f"failed: {_where(job)}", f"  {'; '.join(job['message'].splitlines())}"]
        lines.append(f"  log: {job['log'] if job['has_log'] else none}")
    return "\n".join([*lines, *(f"not made: {one}" for one in found["not_made"])])


def _health_lines(cells: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    levels = Counter(cell["level"] for cell in cells)
    if cells:
        yield f"health: {', '.join(f'{count} {level}' for level, count in levels.items())}"
    for cell in cells:
        if cell["reason"]:
            yield f"  {cell['checkpoint']}/{cell['benchmark']}: {cell['level']}: {cell['reason']}"


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
