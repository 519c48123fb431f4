"""What the figures of a pair on a benchmark show, and their titles and legends."""

from __future__ import annotations

from typing import TYPE_CHECKING

from searchlens.analysis.health import cell_health, of_pair
from searchlens.cli.stages._frames import read_points
from searchlens.reporting.figures.context import Curves, Labels
from searchlens.search import kinds

if TYPE_CHECKING:
    from searchlens.plan import needs
    from searchlens.store.layout import Layout


def curves(study: needs.Figures, cell: needs.PairCell, layout: Layout) -> Curves:
    """The points of both landscapes of a pair on a benchmark, with titles and legends of their figures."""
    sides = {"Base": layout.landscape(cell.base, cell.benchmark), "RL": layout.landscape(cell.rl, cell.benchmark)}
    base, rl = (read_points(folder, study.budgets) for folder in sides.values())
    health = {name: cell_health(folder, study.general.default_policy, study.health) for name, folder in sides.items()}
    labels = Labels(
        pair=cell.pair,
        benchmark=cell.title,
        questions=int(base["questions"][0]),
        source=cell.source,  # type: ignore[arg-type]
        options=study.options,
        general=study.general,
        policies=kinds.from_specs(cell.policies),
        parameters=cell.parameters,
        warning=of_pair(health, is_floor=cell.is_floor),
    )
    return Curves(labels, base, rl)
