"""Titles and legends of the figures of a pair on a benchmark."""

from __future__ import annotations

from typing import TYPE_CHECKING

from searchlens.figures.context import Labels
from searchlens.policies import kinds

if TYPE_CHECKING:
    import polars as pl

    from searchlens.grid import needs


def figure_labels(study: needs.Figures | needs.Overview, cell: needs.PairCell, points: pl.DataFrame) -> Labels:
    """Titles and legends of the figures of a pair on a benchmark; ``points`` are those of its Base landscape."""
    return Labels(
        pair=cell.pair,
        benchmark=cell.title,
        questions=int(points["questions"][0]),
        source=cell.source,  # type: ignore[arg-type]
        default_policy=study.default_policy,
        epsilon=study.epsilon,
        quantile=study.support_q,
        confidence=study.confidence,
        policies=kinds.from_specs(cell.policies),
        parameters=cell.parameters,
    )
