"""Checkpoints whose folder says everything that the embedded engine needs, in the words of transformers' version 5.

They are read without transformers, which reads three thousand of its own source files when it is imported: seconds of
every job on a network file system. A folder that leaves anything to a default, or has anything else, is not plain, and
transformers loads it. The micro zoo's folders are plain.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

from searchlens.engines._weights import Shape, Weights
from searchlens.store.checkpoints import EMBEDDED, shapes
from searchlens.store.files import read_json

_NUMBERS = (
    *("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads"),
    *("vocab_size", "max_position_embeddings"),
)


@dataclass(frozen=True, slots=True)
class PlainFolder:
    """A checkpoint's folder that needs no other library.

    Attributes
    ----------
    folder : Path
    config : mapping
        Of config.json.
    head_dim : int
    """

    folder: Path
    config: Mapping[str, Any]
    head_dim: int

    @classmethod
    def of(cls, folder: Path) -> PlainFolder | None:
        """The folder if it is plain, else None. Its files are whole (``store.checkpoints.require_whole``)."""
        config = read_json(folder / "config.json")
        if not _is_plain(config) or [path.name for path in folder.glob("*.safetensors")] != ["model.safetensors"]:
            return None
        head_dim = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
        if shapes(folder / "model.safetensors") != _tensors(config, head_dim):
            return None
        return cls(folder, config, head_dim)

    def weights(self, dtype: torch.dtype) -> Weights:
        """Read the weights, as numbers of a type."""
        config, loaded = self.config, load_file(self.folder / "model.safetensors")
        # Copies, because the tensors of the file change with the file.
        tensors = {name: loaded.pop(name).to(dtype, copy=True) for name in list(loaded)}
        if config["tie_word_embeddings"]:
            tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"]
        steps = torch.arange(0, self.head_dim, 2, dtype=torch.int64).float() / self.head_dim
        shape = Shape(
            layers=config["num_hidden_layers"],
            hidden=config["hidden_size"],
            heads=config["num_attention_heads"],
            kv_heads=config["num_key_value_heads"],
            head_dim=self.head_dim,
            vocab=config["vocab_size"],
            max_len=config["max_position_embeddings"],
        )
        theta = config["rope_parameters"]["rope_theta"]
        return Weights(shape, float(config["rms_norm_eps"]), tensors, 1.0 / theta**steps, 1.0)


def _is_plain(config: Mapping[str, Any]) -> bool:
    """Whether config.json gives every size, and asks for nothing but the usual forward pass."""
    rope = config.get("rope_parameters")
    return (
        config.get("model_type") in EMBEDDED
        and config.get("hidden_act") == "silu"
        and all(type(config.get(key)) is int and config[key] > 0 for key in _NUMBERS)
        and type(config.get("rms_norm_eps")) is float
        and type(config.get("tie_word_embeddings")) is bool
        and isinstance(rope, Mapping)
        and rope.keys() == {"rope_theta", "rope_type"}
        and rope["rope_type"] == "default"
        and type(rope["rope_theta"]) in (int, float)
        and (config["model_type"] == "llama" or config.get("sliding_window", 0) is None)
        and set(config.get("layer_types") or ()) <= {"full_attention"}
        and ("head_dim" in config or config["model_type"] != "qwen3")
        and not any(config.get(key) for key in ("quantization_config", "auto_map", "rope_scaling"))
        and not config.keys() & {"rope_theta", "partial_rotary_factor"}
    )


def _tensors(config: Mapping[str, Any], head_dim: int) -> dict[str, tuple[int, ...]]:
    """Names and shapes of the tensors of a model with this configuration."""
    hidden, between, vocab = config["hidden_size"], config["intermediate_size"], config["vocab_size"]
    queries, keys = config["num_attention_heads"] * head_dim, config["num_key_value_heads"] * head_dim
    layer: dict[str, tuple[int, ...]] = {
        "input_layernorm.weight": (hidden,),
        "post_attention_layernorm.weight": (hidden,),
        "self_attn.q_proj.weight": (queries, hidden),
        "self_attn.k_proj.weight": (keys, hidden),
        "self_attn.v_proj.weight": (keys, hidden),
        "self_attn.o_proj.weight": (hidden, queries),
        "mlp.gate_proj.weight": (between, hidden),
        "mlp.up_proj.weight": (between, hidden),
        "mlp.down_proj.weight": (hidden, between),
    }
    if config["model_type"] == "qwen2":
        layer |= {f"self_attn.{name}_proj.bias": (size,) for name, size in (("q", queries), ("k", keys), ("v", keys))}
    if config["model_type"] == "qwen3":
        layer |= {f"self_attn.{name}_norm.weight": (head_dim,) for name in ("q", "k")}
    tensors = {"model.embed_tokens.weight": (vocab, hidden), "model.norm.weight": (hidden,)}
    if not config["tie_word_embeddings"]:
        tensors["lm_head.weight"] = (vocab, hidden)
    for number in range(config["num_hidden_layers"]):
        tensors |= {f"model.layers.{number}.{name}": shape for name, shape in layer.items()}
    return tensors
