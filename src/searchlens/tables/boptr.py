"""Tables of the BOPTR analysis (paper, tables of sections "SearchPath" and its appendices, and beyond them).

Numbers are only selected, pivoted and printed here; ``searchlens.boptr.study`` has computed them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import polars as pl

from searchlens.boptr.cohort import CohortPlan
from searchlens.boptr.options import DEFAULTS, BoptrOptions
from searchlens.tables import boptr_cells as cells
from searchlens.tables import boptr_means as means
from searchlens.tables._format import Study
from searchlens.tables._table import Table

BUILDERS = {
    "blocks": cells.blocks,
    "regime_betas": cells.regime_betas,
    "horizontal": means.horizontal,
    "vertical": means.vertical,
    "decomposition": means.decomposition,
    "percell": cells.percell,
    "ablation": means.ablation,
    "qchannel": cells.qchannel,
    "frontier": means.frontier,
    "coverage_models": means.coverage_models,
    "coverage_heldout": means.coverage_heldout,
    "descriptive": cells.descriptive,
    "beta_sensitivity": cells.beta_sensitivity,
    "aime_large_budget": cells.aime_large_budget,
    "seed_replication": cells.seed_replication,
    "formula_same": cells.formula_same,
    "v4": cells.v4,
    "rule_variants": means.rule_variants,
    "signatures": cells.signatures,
    "readout_consistency": cells.readout_consistency,
    "contrasts": cells.contrasts,
    "nulls": cells.nulls,
    "identification": cells.identification,
    "protocol_flags": cells.protocol_flags,
    "checklist": cells.checklist,
    "offsets": cells.offsets,
}
"""Table by the name of its files."""


def boptr_tables(
    frames: Mapping[str, pl.DataFrame], plan: CohortPlan, options: BoptrOptions = DEFAULTS
) -> dict[str, Table]:
    """Every table of a study.

    Parameters
    ----------
    frames : mapping of str to polars.DataFrame
        As ``searchlens.boptr.study.study`` makes them.
    plan : CohortPlan
        Of the same study: names, titles and order.
    options : BoptrOptions
        Of the same study: the notes state its tolerances and level of confidence.

    Returns
    -------
    dict of str to Table
        By the name of its files, in the order of ``BUILDERS``. A number that is not defined is a dash in print and has
        its code in the CSV (``reason``); the sentences of the codes that occur are in the notes.
    """
    study = Study(frames, plan, options)
    tables = {name: build(study) for name, build in BUILDERS.items()}
    if plan.source == "sampled":
        return tables
    note = f"From {plan.source} samples."
    return {name: replace(table, notes=(*table.notes, note)) for name, table in tables.items()}
