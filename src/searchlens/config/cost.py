"""Section ``cost``: what a plan assumes about tokens and speed."""

from __future__ import annotations

from searchlens.boptr.options import Regime
from searchlens.config.base import Section
from searchlens.schemas.options import Quantity


class ThroughputSpec(Section):
    """How fast one model was sampled on one GPU."""

    parameters: Quantity
    """Number of parameters of that model; a larger model is assumed to be slower in proportion."""
    tokens_per_second: Quantity
    """Generated tokens per second of all requests together, with a full batch."""
    source: str
    """Engine, device and conditions of the measurement; printed with every estimate."""


class CostSpec(Section):
    """What ``searchlens plan`` and ``target_minutes`` assume before anything has been sampled."""

    tokens_per_sample: dict[Regime, Quantity] = {}
    """Mean tokens of a sample, by regime; half of ``max_tokens`` for a regime that is not listed."""
    source: str = ""
    """Where ``tokens_per_sample`` comes from; printed with every estimate."""
    throughput: list[ThroughputSpec] = []
    """Measured speeds. A model is estimated from the one nearest in log size; empty: no GPU-hours are estimated."""
