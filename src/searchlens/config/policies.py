"""Sections ``policies``, ``pools`` and ``references``: decoding and search policies, and which are sampled."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from searchlens.config.limits import Limit, Natural, Strict


@dataclass(frozen=True, slots=True)
class Sampling(Strict):
    """Every sampling parameter of a local policy. Defaults of engines and checkpoints are never used."""

    temperature: Annotated[float, Limit(ge=0, le=100)] = 1.0
    """0 is greedy. Otherwise at least 0.01, because vLLM raises a lower one to that."""
    top_p: Annotated[float, Limit(gt=0, le=1)] = 1.0
    """1 keeps everything."""
    top_k: Natural = 0
    """0 keeps everything."""
    min_p: Annotated[float, Limit(ge=0, lt=1)] = 0.0
    """0 keeps everything."""
    typical_p: Annotated[float, Limit(gt=0, le=1)] = 1.0
    """1 keeps everything."""
    repetition_penalty: Annotated[float, Limit(ge=0.01, le=100)] = 1.0
    """1 is none. Positive logits of seen tokens are divided by it, negative ones multiplied."""
    frequency_penalty: Annotated[float, Limit(ge=-2, le=2)] = 0.0
    """0 is none. Subtracted for each occurrence of a generated token."""
    presence_penalty: Annotated[float, Limit(ge=-2, le=2)] = 0.0
    """0 is none. Subtracted once for a generated token."""

    @property
    def has_penalties(self) -> bool:
        """Whether a distribution depends on which tokens came before."""
        return (self.repetition_penalty, self.frequency_penalty, self.presence_penalty) != (1, 0, 0)


@dataclass(frozen=True, kw_only=True)
class PolicySpec(Strict):
    """A policy by its five components. A component is the name of its kind, or a mapping with ``name`` and parameters;
    docs/search.md describes them.
    """

    local: Sampling = Sampling()
    """Local policy: how one token is drawn."""
    controller: str | Mapping[str, Any] = "autoregressive"
    """How a search spends its requests."""
    evaluator: str | Mapping[str, Any] | None = None
    """How candidates are scored; null: the controller's default."""
    transition: str | Mapping[str, Any] | None = None
    """What one step of a search is; null: the controller's default."""
    scheduler: str | Mapping[str, Any] | None = None
    """How many steps, levels or iterations a search makes; null: the controller's default."""
