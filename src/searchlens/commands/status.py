"""`searchlens status`: how far a study is, while it runs or after it stopped.

Everything is read from files that jobs write whole: shards with their sidecars, finished chunks, and the records in
which jobs say now and then how they are (``generate._record``). No lock is taken and nothing is written.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from searchlens.commands.plan import Found, PlanLine, plan, stored, sum_hours
from searchlens.grid import Grid, JobPool
from searchlens.store import layout
from searchlens.store.ranges import Shard, gpu_seconds

State = Literal["done", "running", "failed", "missing"]

SILENT_SECONDS = 300.0
"""A running job that has said nothing for so long was killed: ten of its beats."""


@dataclass(frozen=True)
class PoolStatus:
    """How one generation job stands.

    Attributes
    ----------
    state : str
        ``missing``: no job is known to be at it; it was not begun, or was told to end.
    said : mapping
        The record of its last job; empty where there was none.
    """

    pool: JobPool
    state: State
    said: Mapping[str, Any]

    @property
    def log(self) -> Path:
        """Where the workflow keeps what the job printed."""
        stem = Path(self.said["manifest"]).stem if self.said else self.pool.name
        return layout.log("generate", self.pool.checkpoint, self.pool.benchmark, stem)


@dataclass(frozen=True)
class CellStatus:
    """How one sampled cell stands.

    Attributes
    ----------
    pools : tuple of PoolStatus
    drawn, wanted : int
        Samples of all questions; those in finished chunks are drawn.
    generated : int
        Tokens spent, of the samples in the store.
    gpu_hours, hours : float
        GPU time and sampling time spent on them.
    to_go : int
        Tokens still to draw, estimated (``plan``).
    to_go_hours : float or None
        GPU-hours of them.
    """

    checkpoint: str
    benchmark: str
    pools: tuple[PoolStatus, ...]
    drawn: int
    wanted: int
    generated: int
    gpu_hours: float
    hours: float
    to_go: int
    to_go_hours: float | None

    @property
    def state(self) -> State:
        """``running`` while any of its jobs runs; else the worst of them."""
        found = {one.state for one in self.pools}
        order: tuple[State, ...] = ("running", "failed", "missing", "done")
        return next(state for state in order if state in found)


def status(grid: Grid, found: Found | None = None, now: float | None = None) -> list[CellStatus]:
    """Every sampled cell of a study, in order.

    Parameters
    ----------
    grid : Grid
    found : Found, optional
        ``plan.stored(grid)``, where it is at hand.
    now : float, optional
        Seconds since 1970; by default the time.
    """
    found, now = stored(grid) if found is None else found, time.time() if now is None else now
    lines: dict[tuple[str, str], list[PlanLine]] = {cell: [] for cell in found}
    for line in plan(grid, found):
        lines[line.checkpoint, line.benchmark].append(line)
    return [_cell(grid, cell, found[cell], lines[cell], now) for cell in found]


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
        sum(one["generated"] for one in sidecars),
        sum(gpu_seconds(one) for one in sidecars) / 3600,
        sum(one["wall_seconds"] for one in sidecars) / 3600,
        sum(line.tokens for line in lines),
        sum_hours(lines),
    )


def _in_chunks(grid: Grid, cell: tuple[str, str], lines: Iterable[PlanLine]) -> int:
    """Samples that wait in finished chunks for their shard."""
    return sum(layout.chunk_samples(grid.folder(*cell, line.generation.id)) for line in lines)


def _pool(grid: Grid, pool: JobPool, now: float) -> PoolStatus:
    said = _said(grid.layout.job_record(*pool.key))
    if grid.current_manifest(pool).exists():
        return PoolStatus(pool, "done", said)
    if said.get("state") == "failed":
        return PoolStatus(pool, "failed", said)
    if said.get("state") != "running":
        return PoolStatus(pool, "missing", said)
    if now - said["updated"] < SILENT_SECONDS:
        return PoolStatus(pool, "running", said)
    silent = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(said["updated"]))
    return PoolStatus(pool, "failed", {**said, "message": f"it was killed, or its node died; last sign {silent}"})


def _said(record: Path) -> dict[str, Any]:
    try:
        return dict(json.loads(record.read_text()))
    except (OSError, ValueError):
        return {}


# ---- for people


def show(grid: Grid) -> None:
    """Print cells, totals, and what failed with its log."""
    found = stored(grid)
    cells = status(grid, found)
    _show_cells(cells)
    states = Counter(cell.state for cell in cells)
    told: tuple[State, ...] = ("done", "running", "failed", "missing")
    behind = [
        f"{sum(path(cell).exists() for cell in cells)} {stage}"
        for stage, path in (
            ("scored", lambda cell: grid.scores(cell.checkpoint, cell.benchmark)),
            ("landscapes", lambda cell: grid.layout.landscape_frame(cell.checkpoint, cell.benchmark, "hits")),
        )
    ]
    print(f"{len(cells)} cells: {', '.join(f'{states[state]} {state}' for state in told)}; {', '.join(behind)}")
    print(f"spent: {_spent(cells)}")
    print(f"to go: {_to_go(cells)}")
    for one in (one for cell in cells for one in cell.pools if one.state == "running"):
        print(f"running: {_where(one)}: {one.said['drawn']:,} of {one.said['total']:,} samples")
    for one in (one for cell in cells for one in cell.pools if one.state == "failed"):
        print(f"failed: {_where(one)}\n  {'; '.join(one.said['message'].splitlines())}")
        print(
            f"  log: {one.log}" if (grid.root / one.log).exists() else f"  log: none at {one.log}; the scheduler's own?"
        )


def _show_cells(cells: list[CellStatus]) -> None:
    width = max([len("cell"), *(len(f"{cell.checkpoint}/{cell.benchmark}") for cell in cells)])
    print(f"{'cell':{width}}  {'state':7}  {'samples drawn':>23}  {'tokens':>15}  {'GPU-hours':>9}  {'to go':>9}")
    for cell in cells:
        drawn = f"{cell.drawn:,} of {cell.wanted:,}"
        hours = "" if cell.to_go_hours is None else f"{cell.to_go_hours:,.2f}"
        name = f"{cell.checkpoint}/{cell.benchmark}"
        line = (
            f"{name:{width}}  {cell.state:7}  {drawn:>23}  {cell.generated:>15,}  {cell.gpu_hours:>9,.2f}  {hours:>9}"
        )
        print(line.rstrip())


def _spent(cells: list[CellStatus]) -> str:
    tokens, hours = sum(cell.generated for cell in cells), sum(cell.hours for cell in cells)
    return f"{tokens:,} tokens, {sum(cell.gpu_hours for cell in cells):,.2f} GPU-hours, {hours:,.2f} hours of sampling"


def _to_go(cells: list[CellStatus]) -> str:
    hours = [cell.to_go_hours for cell in cells]
    known = [one for one in hours if one is not None]
    told = f"about {sum(cell.to_go for cell in cells):,} tokens"
    return f"{told} and {sum(known):,.1f} GPU-hours" if len(known) == len(hours) else told


def _where(one: PoolStatus) -> str:
    said = one.said
    job = f", Slurm job {said['slurm_job']}" if said["slurm_job"] else ""
    return f"{one.pool.checkpoint}/{one.pool.benchmark} {one.pool.name} on {said['host']}{job}, since {said['started']}"
