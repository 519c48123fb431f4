"""`searchlens status`: the progress of a study, while it runs or after it stopped.

Everything is read from files that jobs write atomically: shards with their sidecars, finished chunks, and the records
that jobs update at intervals (``generate._record``). No lock is taken and nothing is written.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from searchlens.commands.plan import PlanLine, StoredShards, plan, read_store, sum_hours
from searchlens.grid import Grid, JobPool
from searchlens.health.judgement import Health
from searchlens.stages.health import cell_health
from searchlens.store import layout
from searchlens.store.ranges import Shard, gpu_seconds

State = Literal["done", "running", "failed", "missing"]

SILENT_SECONDS = 300.0
"""A running job whose record is older counts as killed: ten intervals between its updates."""


@dataclass(frozen=True)
class PoolStatus:
    """State of one generation job.

    Attributes
    ----------
    state : str
        ``missing``: no job samples the pool; none was started, or the last one was stopped on request.
    record : mapping
        The record of its last job; empty if there is none.
    """

    pool: JobPool
    state: State
    record: Mapping[str, Any]

    @property
    def log(self) -> Path:
        """The file to which the workflow writes the output of the job."""
        stem = Path(self.record["manifest"]).stem if self.record else self.pool.name
        return layout.log("generate", self.pool.checkpoint, self.pool.benchmark, stem)


@dataclass(frozen=True)
class CellStatus:
    """Progress of one sampled cell.

    Attributes
    ----------
    pools : tuple of PoolStatus
    drawn, wanted : int
        Samples of all questions; ``drawn`` includes those in finished chunks.
    generated : int
        Tokens drawn for the samples in the store.
    gpu_hours, hours : float
        GPU time and sampling time spent on them.
    remaining_tokens : int
        Tokens still to draw, estimated (``plan``).
    remaining_hours : float or None
        GPU-hours of them; None if they cannot be estimated.
    """

    checkpoint: str
    benchmark: str
    pools: tuple[PoolStatus, ...]
    drawn: int
    wanted: int
    generated: int
    gpu_hours: float
    hours: float
    remaining_tokens: int
    remaining_hours: float | None

    @property
    def state(self) -> State:
        """``running`` if any of its jobs runs; otherwise the worst state of its jobs."""
        states = {pool.state for pool in self.pools}
        order: tuple[State, ...] = ("running", "failed", "missing", "done")
        return next(state for state in order if state in states)


def status(grid: Grid, stored: StoredShards | None = None, now: float | None = None) -> list[CellStatus]:
    """Every sampled cell of a study, in order.

    Parameters
    ----------
    grid : Grid
    stored : StoredShards, optional
        ``plan.read_store(grid)``, if the caller has read it already.
    now : float, optional
        Seconds since 1970; by default the present time.
    """
    stored, now = read_store(grid) if stored is None else stored, time.time() if now is None else now
    lines: dict[tuple[str, str], list[PlanLine]] = {cell: [] for cell in stored}
    for line in plan(grid, stored):
        lines[line.checkpoint, line.benchmark].append(line)
    return [_cell(grid, cell, stored[cell], lines[cell], now) for cell in stored]


def health(grid: Grid) -> dict[tuple[str, str], Health]:
    """The health of every cell that has a landscape, sampled or not."""
    folders = {cell: grid.layout.landscape(*cell) for cell in grid.cells}
    return {
        cell: cell_health(folder, grid.config["default_policy"], grid.config["health"])
        for cell, folder in folders.items()
        if grid.layout.landscape_frame(*cell, "health").exists()
    }


def _cell(
    grid: Grid, cell: tuple[str, str], shards: Mapping[str, Iterable[Shard]], lines: list[PlanLine], now: float
) -> CellStatus:
    sidecars = [shard.sidecar for each in shards.values() for shard in each if shard.present]
    questions = grid.count(cell[1])
    wanted = questions * sum(line.generation.samples for line in lines)
    missing = questions * sum(line.missing for line in lines)
    return CellStatus(
        *cell,
        tuple(_pool(grid, pool, now) for pool in grid.pools(*cell)),
        wanted - missing + _in_chunks(grid, cell, (line for line in lines if line.missing)),
        wanted,
        sum(sidecar["generated"] for sidecar in sidecars),
        sum(gpu_seconds(sidecar) for sidecar in sidecars) / 3600,
        sum(sidecar["wall_seconds"] for sidecar in sidecars) / 3600,
        sum(line.tokens for line in lines),
        sum_hours(lines),
    )


def _in_chunks(grid: Grid, cell: tuple[str, str], lines: Iterable[PlanLine]) -> int:
    """Samples in finished chunks whose shards are not complete yet."""
    return sum(layout.chunk_samples(grid.folder(*cell, line.generation.id)) for line in lines)


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


# ---- for people


def show(grid: Grid) -> None:
    """Print cells, totals, and failed jobs with their logs."""
    cells = status(grid)
    _show_cells(cells)
    states = Counter(cell.state for cell in cells)
    counts = ", ".join(f"{states[state]} {state}" for state in get_args(State))
    stages = [
        f"{sum(path(cell).exists() for cell in cells)} {stage}"
        for stage, path in (
            ("scored", lambda cell: grid.scores(cell.checkpoint, cell.benchmark)),
            ("landscapes", lambda cell: grid.layout.landscape_frame(cell.checkpoint, cell.benchmark, "hits")),
        )
    ]
    print(f"{len(cells)} cells: {counts}; {', '.join(stages)}")
    print(f"spent: {_spent(cells)}")
    print(f"to go: {_to_go(cells)}")
    _show_health(grid)
    pools = [pool for cell in cells for pool in cell.pools]
    for pool in (pool for pool in pools if pool.state == "running"):
        print(f"running: {_where(pool)}: {pool.record['drawn']:,} of {pool.record['total']:,} samples")
    for pool in (pool for pool in pools if pool.state == "failed"):
        print(f"failed: {_where(pool)}\n  {'; '.join(pool.record['message'].splitlines())}")
        exists = (grid.root / pool.log).exists()
        print(f"  log: {pool.log}" if exists else f"  log: none at {pool.log}; look for a log of the scheduler")


def _show_health(grid: Grid) -> None:
    judged = health(grid)
    levels = Counter(cell.level for cell in judged.values())
    if judged:
        print(f"health: {', '.join(f'{count} {level}' for level, count in levels.items())}")
    for (checkpoint, benchmark), cell in judged.items():
        if cell.reason:
            print(f"  {checkpoint}/{benchmark}: {cell}")


def _show_cells(cells: list[CellStatus]) -> None:
    width = max([len("cell"), *(len(f"{cell.checkpoint}/{cell.benchmark}") for cell in cells)])
    print(f"{'cell':{width}}  {'state':7}  {'samples drawn':>23}  {'tokens':>15}  {'GPU-hours':>9}  {'to go':>9}")
    for cell in cells:
        drawn = f"{cell.drawn:,} of {cell.wanted:,}"
        hours = "" if cell.remaining_hours is None else f"{cell.remaining_hours:,.2f}"
        name = f"{cell.checkpoint}/{cell.benchmark}"
        line = (
            f"{name:{width}}  {cell.state:7}  {drawn:>23}  {cell.generated:>15,}  {cell.gpu_hours:>9,.2f}  {hours:>9}"
        )
        print(line.rstrip())


def _spent(cells: list[CellStatus]) -> str:
    tokens, hours = sum(cell.generated for cell in cells), sum(cell.hours for cell in cells)
    return f"{tokens:,} tokens, {sum(cell.gpu_hours for cell in cells):,.2f} GPU-hours, {hours:,.2f} hours of sampling"


def _to_go(cells: list[CellStatus]) -> str:
    hours = [cell.remaining_hours for cell in cells]
    tokens = f"about {sum(cell.remaining_tokens for cell in cells):,} tokens"
    estimates = [estimate for estimate in hours if estimate is not None]
    return f"{tokens} and {sum(estimates):,.1f} GPU-hours" if len(estimates) == len(hours) else tokens


def _where(status: PoolStatus) -> str:
    pool, record = status.pool, status.record
    job = f", Slurm job {record['slurm_job']}" if record["slurm_job"] else ""
    return f"{pool.checkpoint}/{pool.benchmark} {pool.name} on {record['host']}{job}, since {record['started']}"
