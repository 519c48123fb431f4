"""Stage ``equivalence``: policies and searches compared with independent references, to tables."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from searchlens.catalogue import loaded
from searchlens.reporting.tables.table import save
from searchlens.store.layout import Layout
from searchlens_lab.equivalence import embedded, engines, plan, tier12
from searchlens_lab.equivalence.rows import frame
from searchlens_lab.equivalence.tables import Comparisons

if TYPE_CHECKING:
    from searchlens.plan import Grid

log = logging.getLogger(__name__)


def equivalence(grid: Grid, output: Layout, *, fingerprint: str, threads: int = 1) -> None:
    """Compare every policy of the section ``equivalence`` with its references.

    A comparison that does not hold is marked with a cross in its table and logged as a warning; it is not an error.

    ``grid``: checkpoints, questions and policies are read as for sampling. ``output``: results folder that gets the
    tables. ``fingerprint``: of the configuration, for the provenance. ``threads``: CPU threads of the engine.
    """
    rows, matches = embedded.compare(grid, threads), None
    if plan.is_on_vllm(grid):
        matches = tier12.compare(grid, threads)
        rows += engines.compare(grid, threads)
    for match in matches or ():
        if not match.holds:
            name, texts, answers = match.strategy.name, match.output_match, match.em_agree
            log.warning("%s: %.2f same texts, %.2f same answers", name, texts, answers)
    for row in rows:
        if not row.holds:
            log.warning("%s against %s: %s is %.4g", row.policy, row.reference, row.statistic, row.value)
    context = Comparisons(frame(rows), None if matches is None else tier12.frame(matches))
    tables = loaded("table", stage="equivalence")
    if matches is not None:
        tables |= loaded("table", stage="equivalence_vllm")
    save(tables, context, output, output.failures("equivalence", "tables.json"), fingerprint, None)
