"""What the forward pass of a model of the Llama family needs of a checkpoint."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor

from searchlens.store import checkpoints


@dataclass(frozen=True, slots=True)
class Shape:
    """Sizes of a model; ``max_len`` is the longest sequence that it can attend to, in tokens."""

    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    vocab: int
    max_len: int

    @property
    def repeat(self) -> int:
        """Query heads per key-value head."""
        return self.heads // self.kv_heads

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> Shape:
        """The sizes that config.json gives, as ``store.checkpoints.described`` returns it."""
        names = (
            "num_hidden_layers",
            "hidden_size",
            "num_attention_heads",
            "num_key_value_heads",
            "head_dim",
            "vocab_size",
        )
        return cls(*[*(config[name] for name in names), checkpoints.window(config) or 1])


@dataclass(frozen=True, slots=True)
class Weights:
    """What the forward pass needs of a checkpoint."""

    shape: Shape
    eps: float
    """Of the norms."""
    tensors: dict[str, Tensor]
    """By their names in transformers' layout, ``lm_head.weight`` also where it is the embedding. Taken out as they are
    fused, so that a model is in memory once."""
    inverse_frequencies: Tensor
    """Of the rotations. Shape (head_dim / 2,), of float32."""
    attention_scaling: float
    """Of the rotations."""


def read(folder: Path, dtype: torch.dtype) -> dict[str, Tensor]:
    """The tensors of a checkpoint's folder by their names in the model, as numbers of a type."""
    stored = checkpoints.weights(folder)
    tensors: dict[str, Tensor] = {}
    for path in {item.path for item in stored.values()}:
        loaded = load_file(path)
        # Copies, because the tensors of the file change with the file; one of a matrix that has two names.
        copies = {
            item: loaded.pop(item.name).to(dtype, copy=True) for item in set(stored.values()) if item.path == path
        }
        tensors |= {name: copies[item] for name, item in stored.items() if item.path == path}
    return tensors
