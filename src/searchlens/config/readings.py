"""Cross checks of section ``readings``, which is ``readings.options.ReadingsSection``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from searchlens.config.base import unknown

if TYPE_CHECKING:
    from searchlens.config.model import Config


def errors(config: Config) -> Iterator[str]:
    """Names in this section that are not in the configuration."""
    for name in config.readings.joint_pairs:
        if name not in config.pairs:
            yield unknown("readings.joint_pairs", name, config.pairs)
