"""What the tables of the BOPTR analysis are made from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import polars as pl

from searchlens.boptr.cohort import CohortPlan
from searchlens.boptr.protocol import broken_cells
from searchlens.config.boptr import BoptrOptions, Readout

READOUTS: dict[Readout, str] = {
    "expected": "Readout expected: pass@n (P) and self-consistency (Q) are exact means over all subsets of n of a"
    " question's samples, whatever their order. A search without such a mean at some budget is left out.",
    "prefix": "Readout prefix: pass@n (P) and self-consistency (Q) are those of the first n samples, as in the paper.",
}


@dataclass(frozen=True)
class TableContext:
    """The frames of one analysis, with its plan and options.

    A number that is not defined is a dash in print and null in the CSV, whose column ``reason`` has a code for it; the
    notes explain every code that occurs.
    """

    frames: Mapping[str, pl.DataFrame]
    """The frames of ``searchlens.boptr.study.study`` by name (``searchlens.catalogue.boptr_frames``)."""
    plan: CohortPlan
    """Gives names, titles and their order."""
    options: BoptrOptions
    """The notes state its tolerances and its confidence level."""
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
