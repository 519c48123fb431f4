"""What the tables and figures of BOPTR are made from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import polars as pl
from matplotlib.figure import Figure

from searchlens.boptr.cohort import CohortPlan
from searchlens.boptr.protocol import broken_cells
from searchlens.config.boptr import BoptrOptions, Readout
from searchlens.figures import style

READOUTS: dict[Readout, str] = {
    "expected": "Readout expected: pass@n (P) and self-consistency (Q) are exact means over all subsets of n of a"
    " question's samples, whatever their order. A search without such a mean at some budget is left out.",
    "prefix": "Readout prefix: pass@n (P) and self-consistency (Q) are those of the first n samples, as in the paper.",
}
MOST = 6
"""Cells that a title names."""


@dataclass(frozen=True)
class BoptrContext:
    """The frames of one analysis, with its plan and options.

    A number that is not defined is a dash in print and null in the CSV, whose column ``reason`` has a code for it; the
    notes explain every code that occurs.
    """

    frames: Mapping[str, pl.DataFrame]
    """The frames of ``searchlens.boptr.study.study`` by name (``searchlens.catalogue.boptr_frames``)."""
    plan: CohortPlan
    """Gives names, titles and their order, and says where samples come from."""
    options: BoptrOptions
    """Tables and figures name the readout and the confidence level, notes the tolerances, too."""
    warnings: Sequence[str] = ()
    """What readers of every table must know, such as versions of a grader that are mixed."""

    @property
    def notes(self) -> Sequence[str]:
        """The readout, the warnings, cells that are not interpretable, and where samples come from that were not drawn
        by this study.
        """
        rows = broken_cells(self.frames["protocol_flags"]).iter_rows()
        cells = [f"{model}/{benchmark} ({detail})" for model, benchmark, detail in rows]
        broken = (f"Not interpretable, but part of every mean here: {', '.join(cells)}.",) if cells else ()
        said = self.plan.said_source(self.plan.benchmarks)
        source = (f"{said[0].upper()}{said[1:]}.",) if said else ()
        return (READOUTS[self.options.readout], *self.warnings, *broken, *source)

    def new_figure(
        self, width: float, height: float, first: str, second: str, models: Sequence[str], benchmarks: Sequence[str]
    ) -> Figure:
        """An empty figure that says what it finds, then what it shows, with the readout; sizes in inches.

        Cells of these models on these benchmarks that are not interpretable are named in further lines, for which the
        figure is higher. It also says where their samples come from, unless they were drawn in this study.
        """
        said = f", {self.plan.said_source(benchmarks)}".rstrip(", ")
        lines = [first, f"{second} ({self.options.readout} readouts){said}", *self._broken(models, benchmarks)]
        return style.new_figure(width, height, "\n".join(lines), "sampled")

    def _broken(self, models: Sequence[str], benchmarks: Sequence[str]) -> list[str]:
        rows = broken_cells(self.frames["protocol_flags"]).filter(
            pl.col("model").is_in(models), pl.col("benchmark").is_in(benchmarks)
        )
        if rows.is_empty():
            return []
        named = [f"{model}/{self.plan.title(benchmark)}" for model, benchmark, _ in rows.head(MOST).iter_rows()]
        more = [f"{rows.height - MOST} more"] if rows.height > MOST else []
        return [f"Not interpretable, but in these numbers: {', '.join([*named, *more])} (table health)"]

    @property
    def cohort(self) -> str:
        """Number of the models that fit and the anchor's name, or the name of the only one."""
        models = self.plan.fitted_models
        return f"{len(models)} models, anchor: {self.plan.anchor_model}" if len(models) > 1 else f"{models[0]} alone"

    @property
    def interval(self) -> str:
        """For example ``95% interval``."""
        return f"{self.options.confidence:.0%} interval"
