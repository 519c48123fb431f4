"""Loading a checkpoint for the embedded engine: directly if its folder says everything, else by transformers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from searchlens.engines._plain_folder import PlainFolder
from searchlens.engines._weights import Shape, Weights, read
from searchlens.errors import InputError
from searchlens.project import extras
from searchlens.store.adapters import WEIGHTS, Adapter
from searchlens.store.checkpoints import described, require_whole


def load(folder: Path, dtype: torch.dtype, adapter: Adapter | None = None) -> Weights:
    """The weights of a folder, an adapter merged into them."""
    require_whole(folder, embedded=True)
    if not adapter and (plain := PlainFolder.of(folder)):
        return plain.weights(dtype)
    return _by_transformers(folder, dtype, adapter)


def _by_transformers(folder: Path, dtype: torch.dtype, adapter: Adapter | None) -> Weights:
    """Weights of a folder that is not plain.

    transformers says how positions are rotated. Its own reading would add an adapter that lies beside merged weights.
    """
    from transformers import AutoConfig, AutoModelForCausalLM  # 2 s: only where a model is loaded

    try:  # without this option transformers would ask whether to run code of the checkpoint
        config = AutoConfig.from_pretrained(folder, trust_remote_code=False)
        with torch.device("meta"):
            model = AutoModelForCausalLM.from_config(config)
        rotary = type(model.model.rotary_emb)(config)
    except Exception as error:  # of its own kinds
        raise InputError(f"{folder}: transformers cannot read config.json ({error})") from error
    tensors = read(folder, dtype)
    if adapter:
        adapter.require_fits(folder)
        model.load_state_dict(tensors, assign=True)
        tensors = {name: tensor.detach() for name, tensor in _merged(model, adapter).state_dict().items()}
    shape, scaling = Shape.of(described(folder)), float(rotary.attention_scaling)
    return Weights(shape, float(config.rms_norm_eps), tensors, rotary.inv_freq, scaling)


def _merged(model: Any, adapter: Adapter) -> Any:
    """Return the model with an adapter added to its weights: the product is computed in float32."""
    extras.require("peft")
    from peft import LoraConfig, get_peft_model, set_peft_model_state_dict
    from safetensors.torch import load_file

    try:
        with_adapter = get_peft_model(model, LoraConfig.from_pretrained(str(adapter.folder)))
        loaded = set_peft_model_state_dict(with_adapter, load_file(adapter.folder / WEIGHTS))
        if loaded.unexpected_keys:
            raise ValueError(f"its settings do not name {loaded.unexpected_keys[0]}")
        return with_adapter.merge_and_unload(safe_merge=True)
    except (OSError, ValueError, KeyError, TypeError, RuntimeError) as error:
        raise InputError(f"{adapter.folder}: the adapter cannot be merged ({error})") from error
