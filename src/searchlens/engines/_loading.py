"""Loading a checkpoint for the embedded engine, as transformers would read it.

Only for adapters and unusual rotations is transformers asked: its import reads three thousand of its own source files,
seconds of every job on a network file system.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from searchlens.config import extras
from searchlens.engines._weights import Shape, Weights, read
from searchlens.errors import InputError
from searchlens.store.adapters import WEIGHTS, Adapter
from searchlens.store.checkpoints import described, require_whole


def load(folder: Path, dtype: torch.dtype, adapter: Adapter | None = None) -> Weights:
    """The weights of a folder, an adapter merged into them."""
    require_whole(folder, embedded=True)
    network, tensors = described(folder), read(folder, dtype)
    if adapter:
        adapter.require_fits(folder)
        tensors = _merged(folder, tensors, adapter)
    return Weights(Shape.of(network), float(network["rms_norm_eps"]), tensors, *_rotations(folder, network))


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
    from safetensors.torch import load_file

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
