"""What the forward pass of a model of the Llama family needs of a checkpoint."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor


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


@dataclass(frozen=True, slots=True)
class Weights:
    """What the forward pass needs of a checkpoint.

    Attributes
    ----------
    shape : Shape
    eps : float
        Of the norms.
    tensors : dict of str to Tensor
        By their names in transformers' layout, ``lm_head.weight`` also where it is the embedding. Taken out as they are
        fused, so that a model is in memory once.
    inverse_frequencies : float32 tensor, shape (head_dim / 2,)
        Of the rotations.
    attention_scaling : float
        Of the rotations.
    """

    shape: Shape
    eps: float
    tensors: dict[str, Tensor]
    inverse_frequencies: Tensor
    attention_scaling: float

    @classmethod
    def of(cls, model: Any) -> Weights:
        """Those of a model of transformers, a causal language model of a supported family."""
        config, rotary = model.config, model.model.rotary_emb
        shape = Shape(
            layers=config.num_hidden_layers,
            hidden=config.hidden_size,
            heads=config.num_attention_heads,
            kv_heads=config.num_key_value_heads,
            head_dim=getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads,
            vocab=config.vocab_size,
            max_len=_max_len(config),
        )
        tensors = {name: tensor.detach() for name, tensor in model.state_dict().items()}
        return cls(shape, float(config.rms_norm_eps), tensors, rotary.inv_freq, float(rotary.attention_scaling))


def _max_len(config: Any) -> int:
    """Return the longest sequence on which every layer attends to all earlier tokens."""
    window = getattr(config, "sliding_window", None)
    return min(config.max_position_embeddings, window) if window else int(config.max_position_embeddings)
