"""Titles and legends of the figures of a pair on a benchmark."""

from __future__ import annotations

from typing import TYPE_CHECKING

from searchlens.figures.context import Labels
from searchlens.health.cells import pair_warning
from searchlens.policies import kinds

if TYPE_CHECKING:
    import polars as pl

    from searchlens.grid import needs
    from searchlens.store.layout import Layout


def figure_labels(
    study: needs.Figures | needs.Overview, cell: needs.PairCell, points: pl.DataFrame, layout: Layout
) -> Labels:
    """Titles and legends of the figures of a pair on a benchmark; ``points`` are those of its Base landscape."""
    base, rl = (layout.landscape(checkpoint, cell.benchmark) for checkpoint in (cell.base, cell.rl))
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
        warning=pair_warning(base, rl, study.default_policy, study.health),
    )
