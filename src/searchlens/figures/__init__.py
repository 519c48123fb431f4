"""Figures: numbers in, files out. Each is drawn from one table of numbers, which is written beside it as CSV.

Every module has ``numbers(<frames>, labels)``, which only selects and arranges rows, and ``draw(numbers, labels)``. No
number is estimated here; rows are counted where a figure says how many it shows, and envelopes run straight between
points that were read.

====================  ==============================================================================
same_policy_lines     Base minus RL at the same policy, by budget, one line per policy
gap_map               the same as a map, with the policies in families
support_region        where the RL curve lies in what search over Base reaches
recovery              (A) Base operating points that match RL, (B) the paths chosen among them
matching_set          every Base operating point, those matching RL at each budget highlighted
compute_frontier      accuracy against samples, generated tokens and FLOPs, searches among them
pass_curves           Base and RL under the RL default policy, one panel per benchmark
====================  ==============================================================================

``searchlens.figures.boptr`` holds the figures of the transfer analysis.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from searchlens.figures import (
    compute_frontier,
    gap_map,
    matching_set,
    pass_curves,
    recovery,
    same_policy_lines,
    style,
    support_region,
)
from searchlens.figures.boptr import BOPTR_NAMES, write_boptr
from searchlens.figures.style import Labels

__all__ = [
    "BOPTR_NAMES",
    "MODULES",
    "NAMES",
    "Inputs",
    "Labels",
    "numbers",
    "write",
    "write_boptr",
    "write_pass_curves",
]

MODULES = {
    "same_policy_lines": same_policy_lines,
    "gap_map": gap_map,
    "support_region": support_region,
    "recovery": recovery,
    "matching_set": matching_set,
    "compute_frontier": compute_frontier,
}
NAMES = tuple(MODULES)


@dataclass(frozen=True)
class Inputs:
    """The frames that the figures of one pair on one benchmark are drawn from (``docs/data.md``).

    Attributes
    ----------
    base, rl : DataFrame
        ``points`` of the two checkpoints' landscapes.
    prefill : DataFrame
        Tokens that were computed but not generated: see ``compute_frontier.numbers``.
    same_policy, counts, support, near_match, path : DataFrame
        The recovery stage's files of these names.
    """

    base: pl.DataFrame
    rl: pl.DataFrame
    prefill: pl.DataFrame
    same_policy: pl.DataFrame
    counts: pl.DataFrame
    support: pl.DataFrame
    near_match: pl.DataFrame
    path: pl.DataFrame

    @classmethod
    def read(cls, base: pl.DataFrame, rl: pl.DataFrame, prefill: pl.DataFrame, recovery: Path) -> Inputs:
        """With the frames of a recovery folder."""
        names = ("same_policy", "counts", "support", "near_match", "path")
        frames = {name: pl.read_parquet(recovery / f"{name}.parquet") for name in names}
        return cls(base, rl, prefill, **frames)


def numbers(name: str, inputs: Inputs, labels: Labels) -> pl.DataFrame:
    """What the figure ``name`` (one of ``NAMES``) shows, as one table."""
    match name:
        case "same_policy_lines":
            return same_policy_lines.numbers(inputs.same_policy, inputs.counts, labels)
        case "gap_map":
            return gap_map.numbers(inputs.same_policy, inputs.counts, labels)
        case "support_region":
            return support_region.numbers(inputs.support, inputs.base, labels)
        case "recovery":
            return recovery.numbers(inputs.near_match, inputs.path, inputs.support, inputs.base, labels)
        case "matching_set":
            return matching_set.numbers(inputs.near_match, inputs.support, inputs.base, labels)
        case "compute_frontier":
            return compute_frontier.numbers(inputs.base, inputs.rl, inputs.prefill, labels)
    raise ValueError(f"no figure {name!r}; there are {', '.join(NAMES)}")


def write(name: str, inputs: Inputs, labels: Labels, stem: Path) -> list[Path]:
    """Draw the figure ``name`` and write ``stem.{svg,pdf,png,csv}``; returns the files."""
    table = numbers(name, inputs, labels)
    return style.save(MODULES[name].draw(table, labels), stem, table)


def write_pass_curves(cells: Sequence[tuple[Labels, pl.DataFrame, pl.DataFrame]], stem: Path) -> list[Path]:
    """Draw ``pass_curves`` for cells given as (labels, Base points, RL points); returns the files."""
    table = pass_curves.numbers(cells)
    return style.save(pass_curves.draw(table, cells[0][0]), stem, table)
