"""What the figures of the BOPTR analysis are made from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import polars as pl
from matplotlib.figure import Figure

from searchlens.boptr.cohort import CohortPlan
from searchlens.boptr.protocol import broken_cells
from searchlens.config.boptr import Readout
from searchlens.figures import style

MOST = 6
"""Cells that a title names."""


@dataclass(frozen=True, kw_only=True)
class FigureContext:
    """The frames of one analysis, and what the figures say about its cohort."""

    frames: Mapping[str, pl.DataFrame]
    """The frames of ``searchlens.boptr.study.study`` by name (``searchlens.catalogue.boptr_frames``)."""
    plan: CohortPlan
    """Says of the cells of a figure where their samples come from, unless they were drawn in this study."""
    confidence: float = 0.95
    """Level of the intervals in the frames, in (0, 1)."""
    readout: Readout = "expected"
    """The option ``boptr.readout`` of the analysis; every figure of its numbers names it."""

    def new_figure(
        self, width: float, height: float, first: str, second: str, models: Sequence[str], benchmarks: Sequence[str]
    ) -> Figure:
        """An empty figure that says what it finds, then what it shows, with the readout; sizes in inches.

        Cells of these models on these benchmarks that are not interpretable are named in further lines, for which the
        figure is higher.
        """
        said = f", {self.plan.said_source(benchmarks)}".rstrip(", ")
        lines = [first, f"{second} ({self.readout} readouts){said}", *self._broken(models, benchmarks)]
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
        return f"{self.confidence:.0%} interval"

    @property
    def bands(self) -> str:
        """What the intervals of single readouts are, for example ``95% Wilson bands``."""
        return f"{self.confidence:.0%} {'Wilson' if self.readout == 'prefix' else 'bootstrap'} bands"
