"""The health of cells, from their landscapes, as tables, figures and commands show it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from searchlens.health.judgement import Health, judge, of_pair
from searchlens.health.options import HealthOptions
from searchlens.store.frames import read_frame


def cell_health(landscape: Path, default_policy: str, limits: Mapping[str, Any]) -> Health:
    """The health of one cell.

    Parameters
    ----------
    landscape : Path
        Folder of its landscape.
    default_policy : str
    limits : mapping
        Section ``health``.

    Raises
    ------
    InputError
        The landscape is missing or damaged.
    """
    return judge(read_frame(landscape / "health.parquet", "landscape"), default_policy, HealthOptions(**limits))


def pair_warning(
    base: Path, rl: Path, default_policy: str, limits: Mapping[str, Any], *, is_floor: bool = False
) -> str:
    """Why the comparison of two landscapes is not interpretable; empty if it is (``judgement.of_pair``)."""
    sides = {"Base": base, "RL": rl}
    return of_pair(
        {name: cell_health(folder, default_policy, limits) for name, folder in sides.items()}, is_floor=is_floor
    )
