"""What stages of the analysis take from outside of their own section of the configuration."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class General:
    """The curve that is compared, and how intervals are drawn."""

    default_policy: str = "topp0.95_t1.0"
    """pi_0, whose RL curve is the target."""
    draws: int = 2000
    """Bootstrap draws over questions: ``landscape.draws`` or ``measures.draws``."""
    seed: int = 0
    """The same seed as the landscape's gives the same draws; non-negative."""
    confidence: float = 0.95
    """Nominal coverage of all intervals, in (0, 1): ``landscape.confidence``."""
