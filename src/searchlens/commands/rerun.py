"""`searchlens rerun`: take samples out of the store, so that the next run draws them again."""

from __future__ import annotations

from pathlib import Path

from searchlens.grid import Grid
from searchlens.store.ranges import Shard, shards_of
from searchlens.store.shards import set_aside


def set_cell_aside(grid: Grid, checkpoint: str, benchmark: str, policy: str | None) -> tuple[list[Shard], list[Path]]:
    """Move the shards of a cell, or of a policy of it, out of the store; returns them, and their files' new paths."""
    generations = [g for g in grid.jobs.generations(checkpoint, benchmark) if policy is None or policy in g.policies]
    own = {g.id: grid.folder(checkpoint, benchmark, g.id) for g in generations}
    folders = dict.fromkeys(folder for key, first in own.items() for folder in (first, *grid.folders[key]))
    shards = [shard for folder in folders for shard in shards_of(folder)]
    return shards, set_aside(grid.layout, shards)
