"""Compares the policies of the section ``equivalence`` with independent implementations, and writes the tables."""

from __future__ import annotations

import logging
from pathlib import Path

from searchlens.equivalence import engines, study, tier12
from searchlens.equivalence.rows import frame
from searchlens.grid import Grid
from searchlens.store import provenance
from searchlens.tables.build import build
from searchlens.tables.equivalence import Comparisons
from searchlens.tables.table import write

log = logging.getLogger(__name__)


def write_tables(grid: Grid, output: Path, threads: int) -> None:
    """Compare every policy of the section ``equivalence`` and write ``tables/<name>.{csv,md,tex}``.

    A comparison that does not hold is a cross in its table and a line in the log, not an error.
    """
    rows, matches, stages = study.compare(grid, threads), None, ["equivalence"]
    if study.on_vllm(grid):
        matches = tier12.compare(grid, threads)
        rows += engines.compare(grid, threads)
        stages.append("equivalence_vllm")
    for match in matches or ():
        if not match.holds:
            name, texts, answers = match.strategy.name, match.output_match, match.em_agree
            log.warning("%s: %.2f same texts, %.2f same answers", name, texts, answers)
    for row in rows:
        if not row.holds:
            log.warning("%s against %s: %s is %.4g", row.policy, row.reference, row.statistic, row.value)
    context = Comparisons(frame(rows), None if matches is None else tier12.frame(matches))
    for stage in stages:
        for name, table in build(stage, context).items():
            write(table, output / "tables" / name)
            provenance.sign(output / "tables" / f"{name}.json", grid.config, None)
