"""``searchlens record``: scored cells to recorded counts, from which they can be analysed without their samples.

Not a rule of the workflow, so it is given the grid.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import polars as pl

from searchlens.analysis.compact import compact
from searchlens.analysis.points import require_reached
from searchlens.analysis.pool import in_parts
from searchlens.cli.stages import costs
from searchlens.cli.stages.landscape import votes_of
from searchlens.plan import Grid, needs
from searchlens.store import layout, recorded_counts
from searchlens.store.files import read_json
from searchlens.store.frames import readable
from searchlens.store.provenance import Judge


def record(grid: Grid, output: Path) -> tuple[list[Path], list[str]]:
    """Write the recorded counts of every sampled cell whose scores are there and current, and return the files.

    ``output`` is ``study.recorded_counts`` of the studies that read them. Cells that have to be sampled or scored first
    are returned, too.
    """
    written, unfinished = [], []
    for cell in grid.study.cells:
        if grid.study.source(*cell) != "sampled":
            continue
        if not grid.is_scored(*cell):
            unfinished.append("/".join(cell))
            continue
        need, scores = needs.landscape(grid, cell[1]), grid.scores(*cell)
        sidecars: dict[str, list[Mapping[str, Any]]] = {}
        for stream, sidecar in costs.sidecars(needs.cell_samples(grid, *cell), grid.layout):
            sidecars.setdefault(stream.policies[0], []).append(sidecar)
        judge = Judge.of(read_json(scores.with_suffix(".json")), need.grader)
        written.append(layout.recorded_counts(output, *cell))
        recorded_counts.write(_compact(need, scores), sidecars, written[-1], grid.counts_from(*cell), judge)
    return written, unfinished


def _compact(cell: needs.Landscape, scores: Path) -> pl.DataFrame:
    """Recorded counts of graded samples, policy after policy, as many together as fit into a part."""
    budgets, frames, largest = list(cell.budgets), [], 0
    with readable(scores, "score") as content:
        for part in in_parts(pl.scan_parquet(content)):
            samples = int(part.group_by("policy", "question").len()["len"].max() or 0)  # type: ignore[arg-type]
            largest = max(largest, samples)
            if samples >= min(budgets):
                votes = votes_of(cell, part)
                frames.append(compact(part, votes, budgets=budgets, options=cell.options, seed=cell.seed))
    require_reached(budgets, largest)
    return pl.concat(frames)
