"""The expected cost of sampling before anything was sampled: tokens by policy, speed by size of the model.

It depends on the configuration alone, so that every job of a run cuts cells into the same pools.
Standard library only, because the planner imports it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Length:
    """Mean length T of the samples of a cell.

    Attributes
    ----------
    tokens : float
    source : str
        Where the number comes from, for people.
    """

    tokens: float
    source: str


def assumed_length(config: Mapping[str, Any], benchmark: str) -> Length:
    """The length that section ``cost`` has for the regime of a benchmark, or else half of ``max_tokens``."""
    spec, assumed = config["benchmarks"][benchmark], config["cost"]["tokens_per_sample"]
    if spec["regime"] in assumed:
        tokens = min(float(assumed[spec["regime"]]), spec["max_tokens"])
        return Length(tokens, f"{spec['regime']} benchmarks: {tokens:g} tokens a sample")
    return Length(spec["max_tokens"] / 2, "half of max_tokens a sample")


@dataclass(frozen=True)
class Speed:
    """Throughput of a checkpoint.

    Attributes
    ----------
    tokens_per_second : float
        On one GPU.
    source : str
        The measurement it is scaled from.
    """

    tokens_per_second: float
    source: str


def assumed_speed(config: Mapping[str, Any], checkpoint: str) -> Speed | None:
    """Estimated from the measured model that is nearest in size; None if the size or measurements are missing."""
    measured, size = config["cost"]["throughput"], _parameters(config, checkpoint)
    if not measured or size is None:
        return None
    nearest = min(measured, key=lambda model: abs(math.log(model["parameters"] / size)))
    scaled = nearest["tokens_per_second"] * nearest["parameters"] / size
    return Speed(scaled, f"{nearest['tokens_per_second']:,.0f} tokens/s: {nearest['source']}")


def _parameters(config: Mapping[str, Any], checkpoint: str) -> float | None:
    for name in config["study"]["pairs"]:
        pair = config["pairs"][name]
        batches = [side for batch in pair["batches"].values() for side in batch.values()]
        if checkpoint in (pair["base"], pair["rl"], *batches):
            return float(pair["parameters"]) if pair["parameters"] else None
    return None
