"""Stage ``figures``: landscapes and recovery of one pair on one benchmark to figures."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING

from searchlens.catalogue import loaded
from searchlens.cli.stages import costs
from searchlens.cli.stages._labels import curves
from searchlens.reporting.figures import style
from searchlens.reporting.figures.context import PairContext
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
