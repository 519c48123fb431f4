"""``searchlens record``: scored cells to compact readouts, from which they can be analysed without their samples.

Not a rule of the workflow, so it is given the grid.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from searchlens.grid import Grid, needs
from searchlens.landscape.compact import compact
from searchlens.stages import costs
from searchlens.stages._frames import read_frame
from searchlens.stages.landscape import options_of, votes_of
from searchlens.store import judges, layout, readouts
from searchlens.store.files import read_json


def record(grid: Grid, output: Path) -> tuple[list[Path], list[str]]:
    """Write the compact readouts of every sampled cell whose scores are there and current.

    Parameters
    ----------
    grid : Grid
    output : Path
        Folder: ``study.readouts`` of the studies that read them.

    Returns
    -------
    written : list of Path
    unfinished : list of str
        Cells that have to be sampled or scored first.
    """
    written, unfinished = [], []
    for cell in grid.cells:
        if grid.source(*cell) != "sampled":
            continue
        if not grid.is_scored(*cell):
            unfinished.append("/".join(cell))
            continue
        written.append(layout.readouts(output, *cell))
        _record_cell(grid, *cell, written[-1])
    return written, unfinished


def _record_cell(grid: Grid, checkpoint: str, benchmark: str, target: Path) -> None:
    samples, cell = needs.cell_samples(grid, checkpoint, benchmark), needs.landscape(grid, benchmark)
    graded = read_frame(grid.scores(checkpoint, benchmark), "score")
    sidecars: dict[str, list[Mapping[str, Any]]] = {}
    for stream, sidecar in costs.sidecars(samples, grid.layout):
        sidecars.setdefault(stream.policies[0], []).append(sidecar)
    frame = compact(graded, votes_of(cell, graded), budgets=list(cell.budgets), options=options_of(cell))
    judge = judges.of(read_json(grid.scores(checkpoint, benchmark).with_suffix(".json")), cell.grader)
    readouts.write(frame, sidecars, target, grid.readouts_from(checkpoint, benchmark), judge)
