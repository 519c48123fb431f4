"""Section ``cost``: what a plan assumes about tokens and speed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Literal

from searchlens.config.boptr import Regime
from searchlens.config.limits import Bounds, Quantity, Strict, Tokens

GpuName = Literal["H200", "H100", "A100", "L40S"]


@dataclass(frozen=True, kw_only=True)
class ThroughputSpec(Strict):
    """How fast one model was sampled, on an engine or device whose limit is not known."""

    parameters: Quantity
    """Number of parameters of that model; a larger model is assumed to be slower in proportion."""
    tokens_per_second: Quantity
    """Generated tokens per second of all requests together, with a full batch."""
    source: str
    """Engine, device and conditions of the measurement; printed with every estimate."""


@dataclass(frozen=True, kw_only=True)
class EfficiencySpec(Strict):
    """How near vLLM came to the limit of a GPU, measured."""

    gpu: GpuName
    """The GPU that it was measured on."""
    share: Annotated[float, Bounds(ge=0.001, le=1)]
    """Tokens per second over the limit of that GPU for that model (``searchlens.plan.cost``), where the GPU and not
    its host decided."""
    searches: Annotated[float, Bounds(ge=0.001, le=1)] | None = None
    """The same share for searches. null: that of other samples."""
    host_us: Quantity | None = None
    """Microseconds that the host of one engine needs for a token: none draws faster, however small its model; several
    that share the GPU (``checkpoints.<name>.vllm.processes``) do. null: not measured."""
    searches_host_us: Quantity | None = None
    """The same for searches, whose requests are shorter and cost the host more. null: that of other samples."""
    source: str
    """Version of the engine, model and conditions of the measurement; printed with every estimate."""


@dataclass(frozen=True, kw_only=True)
class CostSpec(Strict):
    """What ``searchlens plan`` and ``target_minutes`` assume before anything has been sampled."""

    tokens_per_sample: Mapping[Regime, Tokens] = field(default_factory=dict)
    """Mean tokens of a sample, by regime; half of ``max_tokens`` for a regime that is not listed."""
    source: str = ""
    """Where ``tokens_per_sample`` comes from; printed with every estimate."""
    tokens_per_thought: Tokens | None = None
    """Mean tokens of a thought, for searches over thoughts; null: half of the limit that a policy sets for one."""
    distinct_thoughts: Annotated[float, Bounds(ge=0, le=1)] = 1.0
    """Probability that a further thought after the same path is a new one: near 1 for paragraphs, 0.3 for the short
    lines of the micro zoo, of which there are few."""
    prompt_tokens: Tokens = 150.0
    """Mean tokens of a prompt, whose keys and values stay in memory."""
    gpu: GpuName | None = None
    """GPU of the jobs whose checkpoint has ``engine: vllm`` and ``device: cuda``: their speed is its limit times
    ``efficiency``. null: ``throughput`` is used for them, too."""
    efficiency: tuple[EfficiencySpec, ...] = ()
    """Measured shares of the limit; the first that was measured on ``gpu`` counts, or else the first."""
    throughput: tuple[ThroughputSpec, ...] = ()
    """Measured speeds of other jobs. A model is estimated from the one nearest in log size; empty: no hours are
    estimated."""
