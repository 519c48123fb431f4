"""All comparisons of a study on the embedded engine."""

from __future__ import annotations

import logging

from searchlens.plan import Grid
from searchlens.search.policy import Policy
from searchlens_lab.equivalence import laws, local, searches
from searchlens_lab.equivalence.rows import ComparisonRow
from searchlens_lab.equivalence.subject import Subject

log = logging.getLogger(__name__)


def compare(grid: Grid, threads: int) -> list[ComparisonRow]:
    """Rows of all comparisons, policy by policy in the order of the configuration."""
    subject = Subject.of(grid, threads)
    options = subject.options
    policies = {name: policy for name in options.policies if (policy := grid.jobs.policy(name)) is not None}
    kinds: dict[str, dict[str, Policy]] = {"autoregressive": {}, "beam": {}, "search": {}}
    for name, policy in policies.items():
        kinds[policy.controller.name if policy.controller.name in kinds else "search"][name] = policy
    rows: list[ComparisonRow] = []
    for name, policy in kinds["autoregressive"].items():
        rows += [*local.compare(subject, name, policy), *laws.compare(name, policy, options)]
    log.info("%d local policies compared", len(kinds["autoregressive"]))
    for name, policy in kinds["beam"].items():
        rows += searches.compare_beam(subject, name, policy)
    rows += searches.compare(subject, kinds["search"])
    log.info("%d searches compared", len(kinds["beam"]) + len(kinds["search"]))
    for name, policy in kinds["search"].items():
        if laws.has_law(policy):
            rows += laws.compare(name, policy, options)
    subject.close()
    return sorted(rows, key=lambda row: options.policies.index(row.policy))
