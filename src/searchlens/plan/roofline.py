"""The most tokens that a GPU can draw per second from a model: the roofline of one decoding step.

A step draws one token for each of R rows. It reads the weights once, and the keys and values of every row's context; it
multiplies, and it passes over the logits. Each part takes at least its bytes over the bandwidth and its operations over
the arithmetic of the GPU, and the parts follow one another. No engine reaches this limit; ``cost.efficiency`` keeps the
share that one was measured to reach.

Standard library only, because the planner imports it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from types import MappingProxyType
from typing import Any

from searchlens.config.model import GpuName
from searchlens.config.sampled import ShapeSpec

RESERVED = 4e9
"""Bytes of a GPU that are neither weights nor keys and values: activations and graphs; an assumption."""

LOGIT_PASSES = 6
"""Readings and writings of the logits in float32 by softmax, filters and draw; an assumption."""

DENSE = ("LlamaForCausalLM", "MistralForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM")
"""Architectures whose work is that of ``Shape``: attention with shared keys and values, and a gated product."""


@dataclass(frozen=True, slots=True)
class Gpu:
    """What a GPU can do at most, or several that share a model."""

    memory: float
    """Bytes."""
    bandwidth: float
    """Bytes per second."""
    flops: Mapping[str, float]
    """Dense operations per second by type of number."""

    def times(self, count: int) -> Gpu:
        """``count`` of them, whose communication takes no time."""
        flops = {name: count * value for name, value in self.flops.items()}
        return Gpu(count * self.memory, count * self.bandwidth, flops)


def _gpu(gigabytes: float, terabytes_per_second: float, bfloat16: float, float32: float, fp8: float) -> Gpu:
    """A GPU by its data sheet; operations in 10^12 per second, float32 as TF32, fp8 as bfloat16 where it has none."""
    flops = {"bfloat16": bfloat16, "float16": bfloat16, "float32": float32, "fp8": fp8}
    return Gpu(gigabytes * 1e9, terabytes_per_second * 1e12, {name: value * 1e12 for name, value in flops.items()})


GPUS: Mapping[GpuName, Gpu] = MappingProxyType(
    {
        "H200": _gpu(141, 4.8, 989, 494, 1979),
        "H100": _gpu(80, 3.35, 989, 494, 1979),
        "A100": _gpu(80, 2.039, 312, 156, 312),
        "L40S": _gpu(48, 0.864, 362, 183, 733),
    }
)
"""NVIDIA's data sheets, without sparsity: H200 SXM, H100 SXM, A100 SXM with 80 GB, L40S."""


@dataclass(frozen=True, slots=True)
class Shape(ShapeSpec):
    """The shape of a dense transformer, by the names of its ``config.json``."""

    @property
    def multiplied(self) -> int:
        """Parameters that each token is multiplied with: all but the embedding of the input."""
        heads = 2 * (self.num_attention_heads + self.num_key_value_heads) * self.head_dim
        layer = self.hidden_size * (heads + 3 * self.intermediate_size)
        return self.num_hidden_layers * layer + self.vocab_size * self.hidden_size

    @property
    def stored(self) -> int:
        """Parameters in memory."""
        return self.multiplied + (0 if self.tie_word_embeddings else self.vocab_size * self.hidden_size)

    @property
    def kept(self) -> int:
        """Numbers that a token leaves for later ones: its keys and values."""
        return 2 * self.num_hidden_layers * self.num_key_value_heads * self.head_dim

    @classmethod
    def read(cls, config: Mapping[str, Any]) -> Shape | None:
        """The shape that the content of a ``config.json`` describes; None for an unknown architecture."""
        if not set(config.get("architectures") or ()) & set(DENSE):
            return None
        heads = config.get("num_attention_heads")
        filled: dict[str, Any] = {"num_key_value_heads": heads, "tie_word_embeddings": False} | dict(config)
        try:
            if not filled.get("head_dim"):
                filled["head_dim"] = filled["hidden_size"] // filled["num_attention_heads"]
            values: dict[str, Any] = {item.name: int(filled[item.name]) for item in fields(cls)}
            return cls(**(values | {"tie_word_embeddings": bool(values["tie_word_embeddings"])}))
        except (KeyError, TypeError, ValueError, ZeroDivisionError):
            return None

    @classmethod
    def guess(cls, parameters: float) -> Shape:
        """A shape with about as many parameters, for a model of which no more is known.

        Heads of 128 as many as layers, ``12 L h^2`` parameters, each head with keys and values of its own, which most
        models share to be faster; logits are left out.
        """
        layers = max(1, round((parameters / 12 / 128**2) ** (1 / 3)))
        hidden = 128 * layers
        return cls(layers, hidden, 8 * hidden // 3, layers, layers, 128, 0, True)


@dataclass(frozen=True, slots=True)
class Limit:
    """The most that a GPU can draw."""

    tokens_per_second: float
    """Of all rows together."""
    rows: int
    """R, rows that are drawn together."""
    rows_bound_by: str
    """``max_rows`` or ``memory``."""
    context: float
    """Mean tokens of prompt and text of a row."""


def limit(
    shape: Shape,
    gpu: Gpu,
    max_rows: int,
    context: float,
    *,
    dtype: str = "bfloat16",
    quantization: str | None = None,
    kv_cache_dtype: str = "auto",
    utilization: float = 0.9,
    processes: int = 1,
) -> Limit:
    """The roofline of decoding.

    ``max_rows``: rows that are drawn together, of all processes; fewer if their keys and values do not fit into the
    memory. ``context``: mean tokens of prompt and text of a row. ``quantization``: with ``fp8`` weights take a byte
    each; what other methods save is not counted. ``kv_cache_dtype``: with ``fp8`` and its kinds keys and values take a
    byte each; ``auto``: as ``dtype``. ``utilization``: share of the memory that is used. ``processes``: engines that
    share the GPU, each with its weights and a part of the rows.
    """
    width = 4 if dtype == "float32" else 2
    weight, flops = (1, gpu.flops["fp8"]) if quantization == "fp8" else (width, gpu.flops[dtype])
    row = context * shape.kept * (width if kv_cache_dtype == "auto" else 1 if kv_cache_dtype.startswith("fp8") else 2)
    room = int((utilization * gpu.memory - processes * (shape.stored * weight + RESERVED)) / row)
    rows = max(1, min(max_rows, room))
    products = max(processes * shape.multiplied * weight / gpu.bandwidth, 2 * shape.multiplied * rows / flops)
    attended = 4 * shape.num_attention_heads * shape.head_dim * shape.num_hidden_layers * rows * context
    attention = max(rows * row / gpu.bandwidth, attended / gpu.flops[dtype])
    logits = LOGIT_PASSES * rows * shape.vocab_size * 4 / gpu.bandwidth
    seconds = products + attention + logits
    return Limit(rows / seconds, rows, "max_rows" if rows == max_rows else "memory", context)
