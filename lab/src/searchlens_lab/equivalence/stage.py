"""Stage ``equivalence``: policies and searches compared with independent references, to tables."""

from __future__ import annotations

import logging

from searchlens.catalogue import loaded
from searchlens.plan import Grid
from searchlens.reporting.tables.table import save
from searchlens.search.policy import Policy
from searchlens.store.layout import Layout
from searchlens_lab.equivalence import comparisons, engines, explicit, plan
from searchlens_lab.equivalence.subject import Subject
from searchlens_lab.equivalence.tables import ComparisonRow, Comparisons, frame

log = logging.getLogger(__name__)


def equivalence(grid: Grid, output: Layout, *, fingerprint: str, threads: int = 1) -> None:
    """Compare every policy of the section ``equivalence`` with its references.

    A comparison that does not hold is marked with a cross in its table and logged as a warning; it is not an error.
    """
    rows, matches = on_embedded(grid, threads), None
    if plan.is_on_vllm(grid):
        matches = engines.compare_strategies(grid, threads)
        rows += engines.compare(grid, threads)
    for match in matches or ():
        if not match.holds:
            name, texts, answers = match.strategy.name, match.output_match, match.em_agree
            log.warning("%s: %.2f same texts, %.2f same answers", name, texts, answers)
    for row in rows:
        if not row.holds:
            log.warning("%s against %s: %s is %.4g", row.policy, row.reference, row.statistic, row.value)
    context = Comparisons(frame(rows), None if matches is None else engines.match_frame(matches))
    tables = loaded("table", stage="equivalence")
    if matches is not None:
        tables |= loaded("table", stage="equivalence_vllm")
    save(tables, context, output, output.failures("equivalence", "tables.json"), fingerprint, None)


def on_embedded(grid: Grid, threads: int) -> list[ComparisonRow]:
    """Rows of all comparisons, policy by policy in the order of the configuration."""
    subject = Subject.of(grid, threads)
    options = subject.options
    policies = {name: policy for name in options.policies if (policy := grid.jobs.policy(name)) is not None}
    kinds: dict[str, dict[str, Policy]] = {"autoregressive": {}, "beam": {}, "search": {}}
    for name, policy in policies.items():
        kinds[policy.controller.name if policy.controller.name in kinds else "search"][name] = policy
    rows: list[ComparisonRow] = []
    for name, policy in kinds["autoregressive"].items():
        rows += [*comparisons.compare_local(subject, name, policy), *explicit.compare(name, policy, options)]
    log.info("%d local policies compared", len(kinds["autoregressive"]))
    for name, policy in kinds["beam"].items():
        rows += comparisons.compare_beam(subject, name, policy)
    rows += comparisons.compare(subject, kinds["search"])
    log.info("%d searches compared", len(kinds["beam"]) + len(kinds["search"]))
    for name, policy in kinds["search"].items():
        if explicit.has_law(policy):
            rows += explicit.compare(name, policy, options)
    subject.close()
    return sorted(rows, key=lambda row: options.policies.index(row.policy))
