"""Options of the readings."""

from __future__ import annotations

from dataclasses import dataclass

from searchlens.schemas.options import STRICT, Draws


@dataclass(frozen=True, kw_only=True)
class ReadingsSection:
    """Choices about the readings of all samples."""

    __pydantic_config__ = STRICT

    draws: Draws = 2000
    """Bootstrap draws over questions."""
    exponent_draws: Draws = 200
    """Draws of the least-error fit of alpha and beta, each of which searches all policies again."""


@dataclass(frozen=True, kw_only=True)
class ReadingsOptions(ReadingsSection):
    """Section ``readings``, and what the stage takes from the rest of the configuration."""

    default_policy: str = "topp0.95_t1.0"
    """pi_0, whose RL curve is the target."""
    seed: int = 0
    """The same seed as the landscape's gives the same draws."""
    confidence: float = 0.95
    """Nominal coverage of all intervals, in (0, 1)."""


DEFAULTS = ReadingsOptions()
