"""Which grader, in which version, judged every cell, and where versions are mixed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import polars as pl

from searchlens.catalogue import table
from searchlens.grading.recorded import is_recorded
from searchlens.reporting.tables import format as fmt
from searchlens.reporting.tables.table import Part, Table
from searchlens.store.judges import Judge

if TYPE_CHECKING:
    from searchlens.reporting.tables.study import StudyContext

Cell = tuple[str, str]
"""Checkpoint and benchmark."""

NOT_STATED = "not stated"
_NAMED = 3
"""Cells that a note names of each version."""


@table("graders", stage="study")
def graders(context: StudyContext) -> Table:
    """One row per cell: where its samples come from, and who judged them."""
    lines = [
        {
            "checkpoint": checkpoint,
            "benchmark": benchmark,
            "samples": context.sources[checkpoint, benchmark],
            "grader": judge.name,
            "version": judge.version or NOT_STATED,
        }
        for (checkpoint, benchmark), judge in context.judges.items()
    ]
    data = pl.DataFrame(lines, dict.fromkeys(("checkpoint", "benchmark", "samples", "grader", "version"), pl.String))
    unstated = sum(not judge.version for judge in context.judges.values())
    notes = [f"{unstated} of {len(lines)} cells do not state the version of their grader."] if unstated else []
    return Table(data, [Part(fmt.text_frame(lines))], notes)


def of_judges(judges: Mapping[Cell, Judge]) -> list[str]:
    """What stands under every table: where versions are mixed, and which cells the imported logs judged."""
    logs: dict[str, list[str]] = {}
    for cell, judge in judges.items():
        if is_recorded(judge.name):
            logs.setdefault(judge.name.partition(":")[2], []).append("/".join(cell))
    by_logs = [f"Judged by the imported log, as its {name}, not here: {_some(cells)}." for name, cells in logs.items()]
    return [*mixed_versions(judges), *by_logs]


def mixed_versions(judges: Mapping[Cell, Judge]) -> list[str]:
    """A sentence for each grader of which the cells have several versions.

    Cells that state nothing count if others of the same grader state their version.
    """
    by_name: dict[str, dict[str, list[str]]] = {}
    for cell, judge in judges.items():
        by_name.setdefault(judge.name, {}).setdefault(judge.version, []).append("/".join(cell))
    return [
        f"Not to be compared: cells were judged by different versions of the grader {name}: {_listed(versions)}."
        for name, versions in by_name.items()
        if len(versions) > 1
    ]


def _listed(versions: Mapping[str, list[str]]) -> str:
    return "; ".join(f"{version or NOT_STATED} in {_some(cells)}" for version, cells in versions.items())


def _some(cells: list[str]) -> str:
    more = len(cells) - _NAMED
    return ", ".join(cells[:_NAMED]) + (f" and {more} more" if more > 0 else "")
