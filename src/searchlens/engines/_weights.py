"""The weights of a checkpoint for the embedded engine, as transformers would read them.

Only for adapters and unusual rotations is transformers asked: its import reads three thousand of its own source files,
seconds of every job on a network file system.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor

from searchlens.config import extras
from searchlens.errors import InputError
from searchlens.store import checkpoints
from searchlens.store.adapters import WEIGHTS, Adapter


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
        heads = config["num_attention_heads"], config["num_key_value_heads"], config["head_dim"]
        sizes = config["num_hidden_layers"], config["hidden_size"], *heads, config["vocab_size"]
        return cls(*sizes, checkpoints.window(config) or 1)


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


def load(folder: Path, dtype: torch.dtype, adapter: Adapter | None = None) -> Weights:
    """The weights of a folder, an adapter merged into them."""
    checkpoints.require_whole(folder, embedded=True)
    network, tensors = checkpoints.described(folder), read(folder, dtype)
    if adapter:
        adapter.require_fits(folder)
        tensors = _merged(folder, tensors, adapter)
    return Weights(Shape.of(network), float(network["rms_norm_eps"]), tensors, *_rotations(folder, network))


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


def _rotations(folder: Path, network: Mapping[str, Any]) -> tuple[Tensor, float]:
    """Inverse frequencies of the rotations, and the scaling of attention."""
    if network["rope_type"] != "default":
        model = _without_weights(folder)
        rotary = type(model.model.rotary_emb)(model.config)
        return rotary.inv_freq, float(rotary.attention_scaling)
    steps = torch.arange(0, network["head_dim"], 2, dtype=torch.int64).float() / network["head_dim"]
    return 1.0 / network["rope_theta"] ** steps, 1.0


def _without_weights(folder: Path) -> Any:
    """The model of a folder in transformers. Its own reading would add an adapter that lies beside merged weights."""
    from transformers import AutoConfig, AutoModelForCausalLM

    try:  # without this option transformers would ask whether to run code of the checkpoint
        network = AutoConfig.from_pretrained(folder, trust_remote_code=False)
        with torch.device("meta"):
            return AutoModelForCausalLM.from_config(network)
    except Exception as error:  # of its own kinds
        raise InputError(f"{folder}: transformers cannot read config.json ({error})") from error


def _merged(folder: Path, tensors: dict[str, Tensor], adapter: Adapter) -> dict[str, Tensor]:
    """Tensors with an adapter added: the product is computed in float32."""
    extras.require("peft")
    from peft import LoraConfig, get_peft_model, set_peft_model_state_dict

    model = _without_weights(folder)
    model.load_state_dict(tensors, assign=True)
    try:
        with_adapter = get_peft_model(model, LoraConfig.from_pretrained(str(adapter.folder)))
        loaded = set_peft_model_state_dict(with_adapter, load_file(adapter.folder / WEIGHTS))
        if loaded.unexpected_keys:
            raise ValueError(f"its settings do not name {loaded.unexpected_keys[0]}")
        merged = with_adapter.merge_and_unload(safe_merge=True).state_dict()
        return {name: tensor.detach() for name, tensor in merged.items()}
    except (OSError, ValueError, KeyError, TypeError, RuntimeError) as error:
        raise InputError(f"{adapter.folder}: the adapter cannot be merged ({error})") from error
