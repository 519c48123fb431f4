"""Stage ``measures``: the answer classes of a study to the measures that use every sample."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from searchlens.analysis.classes import Pool, independent_pools
from searchlens.analysis.pair_measures import PairPools, read_study
from searchlens.cli.stages._frames import landscape_costs
from searchlens.errors import counted
from searchlens.store import provenance
from searchlens.store.frames import read_frame, write_frame
from searchlens.store.layout import SIGNATURE, Layout

if TYPE_CHECKING:
    from searchlens.plan import needs

log = logging.getLogger(__name__)


def measures(study: needs.Measures, layout: Layout, *, fingerprint: str) -> None:
    """Write every frame of measures."""
    sides = dict.fromkeys(
        (side, benchmark) for _, benchmark, roles in study.cells for named in roles.values() for side in named
    )
    pools = {side: _read(layout, *side, study.references) for side in sides}
    cells = []
    for pair, benchmark, roles in study.cells:
        (base, *base_batches), (rl, *rl_batches) = (
            [pools[side, benchmark] for side in roles[role]] for role in ("base", "rl")
        )
        choices = study.choices.get(benchmark)
        options = None if choices is None else np.array(choices)[rl[study.general.default_policy].questions]
        cells.append(PairPools(pair, benchmark, base, rl, options, base_batches, rl_batches))
    for name, frame in read_study(cells, study.options, study.general).items():
        write_frame(frame, layout.measures_frame(name))
    spent = landscape_costs([layout.landscape(*side) for side in sides])
    provenance.sign(layout.measures / SIGNATURE, fingerprint, provenance.together(spent))
    log.info("measures of %s of Base and RL", counted(len(study.cells), "comparison"))


def _read(layout: Layout, checkpoint: str, benchmark: str, references: tuple[str, ...]) -> dict[str, Pool]:
    """Pools of a cell without reference policies."""
    classes = read_frame(layout.landscape_frame(checkpoint, benchmark, "classes"), "landscape")
    points = read_frame(layout.landscape_frame(checkpoint, benchmark, "points"), "landscape")
    costs = points.filter(metric="C", estimator="unbiased").sort("budget").unique("policy", keep="first")
    tokens = dict(costs.select("policy", (pl.col("value") / pl.col("budget")).fill_null(float("nan"))).iter_rows())
    return independent_pools(classes.filter(~pl.col("policy").is_in(list(references))), tokens)
