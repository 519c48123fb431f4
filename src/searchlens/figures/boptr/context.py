"""What the figures of the BOPTR analysis are made from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import polars as pl
from matplotlib.figure import Figure

from searchlens.boptr.cohort import CohortPlan
from searchlens.figures import style


@dataclass(frozen=True, kw_only=True)
class FigureContext:
    """The frames of one analysis, and what the figures say about its cohort.

    Attributes
    ----------
    frames : mapping of str to DataFrame
        The frames of ``searchlens.boptr.study.study`` by name (``searchlens.catalogue.BOPTR_FRAMES``).
    plan : CohortPlan
        Its ``source`` is said in the figure unless the samples were drawn in this study.
    confidence : float
        Level of the intervals in the frames, in (0, 1).
    """

    frames: Mapping[str, pl.DataFrame]
    plan: CohortPlan
    confidence: float = 0.95

    def new_figure(self, width: float, height: float, first: str, second: str) -> Figure:
        """An empty figure with a title of two lines; sizes in inches."""
        return style.new_figure(width, height, f"{first}\n{second}", self.plan.source)

    @property
    def cohort(self) -> str:
        """Number of the models that fit and the anchor's name, or the name of the only one."""
        models = self.plan.fitted_models
        return f"{len(models)} models, anchor: {self.plan.anchor_model}" if len(models) > 1 else f"{models[0]} alone"

    @property
    def interval(self) -> str:
        """For example ``95% interval``."""
        return f"{self.confidence:.0%} interval"
