"""Stage ``recovery``: the landscapes of a pair on one benchmark to gaps, support, near matches and paths."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl

from searchlens.analysis.points import Landscape
from searchlens.analysis.recovery import recover
from searchlens.cli.stages._frames import landscape_costs, read_points, write_content
from searchlens.errors import InputError
from searchlens.search import kinds
from searchlens.store import provenance
from searchlens.store.frames import read_frame, write_frame
from searchlens.store.layout import SIGNATURE
from searchlens.store.provenance import Judge

if TYPE_CHECKING:
    from searchlens.plan import needs

log = logging.getLogger(__name__)


def recovery(pair: needs.Recovery, base: Path, rl: Path, output: Path, fingerprint: str) -> None:
    """Compare the landscapes of a pair; references such as greedy are not among the policies compared.

    The folder gets one Parquet file per frame, and ``content.json``, their hashes. An InputError: a landscape is
    missing or damaged, both were asked different questions, or they were judged by different graders or versions.
    """
    ours, theirs = Judge.read(base), Judge.read(rl)
    if ours.differs(theirs):  # a gap between two graders is no gap between two models
        raise InputError(
            f"Base ({base}) was judged by {ours}, RL ({rl}) by {theirs}",
            "judge the samples of both by one version, and record them again if they are recorded (searchlens record)",
        )
    base_landscape, rl_landscape = (_read_landscape(side, pair) for side in (base, rl))
    names = base_landscape.points["policy"].unique(maintain_order=True).to_list()
    configured = kinds.from_specs(pair.policies)
    # Of an imported policy whose components are unknown, its name stands in place of each of the five.
    known = {name: kinds.policy_of(name, configured) for name in names}
    components = {name: policy.components if policy else (name,) * 5 for name, policy in known.items()}
    tables = recover(base_landscape, rl_landscape, components, pair.options, pair.general)
    for name, frame in tables.items():
        write_frame(frame, output / f"{name}.parquet")
    write_content(output, [f"{name}.parquet" for name in tables])
    provenance.sign(output / SIGNATURE, fingerprint, provenance.together(landscape_costs([base, rl])))
    log.info("%s against %s: %d policies", base, rl, len(names))


def _read_landscape(folder: Path, pair: needs.Recovery) -> Landscape:
    """A landscape at the budgets of B, without reference policies."""
    hits = read_frame(folder / "hits.parquet", "landscape").filter(pl.col("budget").is_in(list(pair.budgets)))
    frames = (read_points(folder, pair.budgets), hits)
    return Landscape(*(frame.filter(~pl.col("policy").is_in(list(pair.references))) for frame in frames))
