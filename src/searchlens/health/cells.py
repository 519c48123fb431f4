"""The health of cells, from their landscapes, as tables, figures and commands show it."""

from __future__ import annotations

from pathlib import Path

from searchlens.config.health import HealthOptions
from searchlens.health.judgement import Health, judge
from searchlens.store.frames import read_frame


def cell_health(landscape: Path, default_policy: str, limits: HealthOptions) -> Health:
    """The health of one cell, by the section ``health``. Raises InputError if its landscape is missing or damaged."""
    return judge(read_frame(landscape / "health.parquet", "landscape"), default_policy, limits)
