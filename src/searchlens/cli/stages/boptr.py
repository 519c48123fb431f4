"""Stage ``boptr``: the landscapes of a cohort to the frames of BOPTR."""

from __future__ import annotations

import logging
from pathlib import Path

from searchlens.boptr.cohort import CohortPlan, read_cohort
from searchlens.boptr.study import study
from searchlens.catalogue import BOPTR_WORDS
from searchlens.cli.stages._frames import landscape_costs
from searchlens.config.boptr import BoptrOptions
from searchlens.errors import require_known
from searchlens.store import provenance
from searchlens.store.frames import write_frame
from searchlens.store.layout import SIGNATURE, Layout

log = logging.getLogger(__name__)


def boptr(plan: CohortPlan, options: BoptrOptions, landscapes: Path, output: Layout, *, fingerprint: str = "") -> None:
    """Fit the rule on the anchor, transfer it to every other cell, and score it: a Parquet file per frame with numbers.

    ``landscapes`` is a folder that need not belong to a study. Stage ``transfer`` writes the other frames. An
    InputError, before anything is written: the anchor was not sampled, a landscape is damaged, or a model to leave out
    is not in the cohort.
    """
    for name in options.mu_without:
        require_known(name, plan.models, "boptr.mu_without:")
    cohort = read_cohort(landscapes, plan, estimator=options.estimator)
    log.info("%d landscapes, %d models, %d benchmarks", len(cohort.landscapes), len(plan.models), len(plan.benchmarks))
    for name, frame in study(cohort, options).items():
        if name not in BOPTR_WORDS:
            write_frame(frame, output.boptr_frame(name))
    folders = [path.parent for path in sorted(landscapes.glob(f"*/*/{SIGNATURE}"))]
    provenance.sign(output.boptr / SIGNATURE, fingerprint, provenance.together(landscape_costs(folders)))
