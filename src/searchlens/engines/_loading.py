"""Loading a checkpoint for the embedded engine: directly if its folder says everything, else by transformers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from searchlens.engines._plain_folder import PlainFolder
from searchlens.engines._weights import Weights
from searchlens.errors import InputError
from searchlens.project import extras
from searchlens.store.adapters import WEIGHTS, Adapter
from searchlens.store.checkpoints import EMBEDDED, require_whole, shapes

_STATIC_ROPE = ("default", "linear", "llama3", "yarn")


def load(folder: Path, dtype: torch.dtype, adapter: Adapter | None = None) -> Weights:
    """Load a model in transformers' layout.

    Parameters
    ----------
    folder : Path
    dtype : torch.dtype
        float32 or bfloat16.
    adapter : Adapter, optional
        Merged into the weights.

    Raises
    ------
    InputError
        If files are missing or unreadable, or the architecture is not supported.
    """
    require_whole(folder, embedded=True)
    if not adapter and (plain := PlainFolder.of(folder)):
        return plain.weights(dtype)
    return _by_transformers(folder, dtype, adapter)


def _by_transformers(folder: Path, dtype: torch.dtype, adapter: Adapter | None) -> Weights:
    """Weights of a model that transformers loads."""
    from transformers import AutoConfig, AutoModelForCausalLM  # 2 s: only where a model is loaded
    from transformers.utils import logging

    logging.disable_progress_bar()
    try:  # neither code of the checkpoint nor pickled weights: without these options transformers would ask, or load
        config = AutoConfig.from_pretrained(folder, trust_remote_code=False)
        _check(config, folder)
        _require_weights(config, folder)
        model, info = AutoModelForCausalLM.from_pretrained(
            folder,
            config=config,
            dtype=dtype,
            output_loading_info=True,
            trust_remote_code=False,
            use_safetensors=True,
        )
    except InputError:
        raise
    except Exception as error:  # safetensors and tokenizers raise errors of their own kinds
        raise InputError(
            f"{folder}: cannot load a model from here ({error})",
            "give a folder with config.json and *.safetensors",
        ) from error
    if info["missing_keys"]:
        raise InputError(f"{folder}: the weight files have no {', '.join(sorted(info['missing_keys']))}")
    if adapter:
        adapter.require_fits(folder)
        model = _merged(model, adapter)
    return Weights.of(model)


def _require_weights(config: Any, folder: Path) -> None:
    """Compare the tensors of the model with the headers of the weight files, before it takes any memory.

    A size that config.json does not give is transformers' default, that of a model of seven billion parameters.
    """
    from transformers import AutoModelForCausalLM

    held = {name: shape for path in sorted(folder.glob("*.safetensors")) for name, shape in shapes(path).items()}
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config)
    wanted = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
    if config.tie_word_embeddings:
        wanted.pop("lm_head.weight", None)
    found = {name: held.get(name, held.get(name.removeprefix("model."))) for name in wanted}
    wrong = [name for name, shape in wanted.items() if found[name] != shape]
    if not wrong:
        return
    name = next((name for name in wrong if found[name]), wrong[0])
    what = f"have {name} of shape {found[name]} instead of" if found[name] else f"have no {name} of shape"
    raise InputError(
        f"{folder}: the weight files {what} {wanted[name]}; so {len(wrong)} of the {len(wanted)} tensors that "
        "config.json describes are missing or of another shape",
        "take config.json and *.safetensors from the same model; for a size that config.json does not give, "
        "transformers takes that of a model of 7B",
    )


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


def _check(config: Any, path: str | Path) -> None:
    """Refuse models that the forward pass would compute wrongly."""
    if config.model_type not in EMBEDDED:
        raise InputError(
            f"{path}: model type {config.model_type!r} is not supported by the embedded engine, only "
            f"{', '.join(EMBEDDED)}",
            "Set engine: vllm for other architectures.",
        )
    if config.hidden_act != "silu":
        raise InputError(f"{path}: activation {config.hidden_act!r} is not supported, only 'silu'")
    rope = config.rope_parameters["rope_type"]
    if rope not in _STATIC_ROPE:
        raise InputError(f"{path}: rope type {rope!r} is not supported, only {', '.join(_STATIC_ROPE)}")
