"""Stage ``overview``: all landscapes of a study to the figures that show it as a whole."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl

from searchlens.catalogue import MEASURE_FRAMES, loaded
from searchlens.cli.stages.figures import curves
from searchlens.reporting.figures import style
from searchlens.reporting.figures.context import StudyContext
from searchlens.reporting.tables.table import named
from searchlens.store.frames import read_frame
from searchlens.store.layout import Layout

if TYPE_CHECKING:
    from searchlens.plan import needs


def overview(study: needs.Figures, layout: Layout, output: Path) -> None:
    """Draw every figure of the whole study."""
    drawn = [curves(study, cell, layout) for cell in study.cells]
    titles = {cell.benchmark: cell.title for cell in study.cells}
    measures = {
        name: read_frame(layout.measures_frame(name), "measures").with_columns(pl.col("benchmark").replace(titles))
        for name in MEASURE_FRAMES
    }
    context = StudyContext(drawn, measures)
    style.write(loaded("figure", stage="study"), context, output, layout.failures("overview", "figures.json"))
    if study.handover:
        measures["handover"] = pl.concat(
            named(read_frame(layout.likelihood_frame(*cell, "handover"), "likelihood"), pair=cell[0], benchmark=cell[1])
            for cell in study.handover
        ).with_columns(pl.col("benchmark").replace(titles))
        style.write(
            loaded("figure", stage="likelihood"), context, output, layout.failures("overview", "likelihood.json")
        )
