"""Stage ``figures``: landscapes and recovery of one pair on one benchmark to figures."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING

from searchlens.analysis.health import cell_health, of_pair
from searchlens.catalogue import loaded
from searchlens.cli.stages import costs
from searchlens.cli.stages._frames import read_points
from searchlens.reporting.figures import style
from searchlens.reporting.figures.context import Curves, Labels, PairContext
from searchlens.search import kinds
from searchlens.store.layout import Layout

if TYPE_CHECKING:
    from searchlens.plan import needs

log = logging.getLogger(__name__)


def figures(study: needs.Figures, layout: Layout, output: Path) -> None:
    """Draw every figure of one pair on one benchmark."""
    (cell,) = study.cells
    drawn = curves(study, cell, layout)
    tokens = costs.prefill(study.samples, layout)
    context = PairContext.read(drawn, tokens, layout.recovery(cell.pair, cell.benchmark))
    record = layout.failures("figures", cell.pair, cell.benchmark, "figures.json")
    paths = style.write(loaded("figure", stage="pair"), context, output, record)
    log.info("%s/%s: %d files of figures in %s", cell.pair, cell.benchmark, len(paths), output)


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
