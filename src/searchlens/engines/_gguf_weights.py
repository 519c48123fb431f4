"""The tensors of a GGUF file by the names of transformers' Gemma 3, and the configuration of the network."""

from __future__ import annotations

import math
import re
from typing import Any

from searchlens.engines._gguf import GgufFile
from searchlens.engines._gguf_tokenizer import special
from searchlens.errors import InputError

_LAYER = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "post_attention_norm": "post_attention_layernorm",
    "ffn_norm": "pre_feedforward_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
    "post_ffw_norm": "post_feedforward_layernorm",
}
_WHOLE = {"token_embd": "embed_tokens", "output_norm": "norm"}
_EVERY = 6
"""Every sixth layer attends to all tokens; the others to a window."""
_LOCAL_THETA = 10_000.0
_LAYERS_27B = 62
"""The one size whose queries are scaled by the width of a layer and not by that of a head."""


def name_of(tensor: str) -> str | None:
    """The name of a tensor in transformers; None for one that Gemma 3 does not have."""
    if (whole := re.fullmatch(r"(\w+)\.weight", tensor)) and whole[1] in _WHOLE:
        return f"model.{_WHOLE[whole[1]]}.weight"
    if (layer := re.fullmatch(r"blk\.(\d+)\.(\w+)\.weight", tensor)) and layer[2] in _LAYER:
        return f"model.layers.{layer[1]}.{_LAYER[layer[2]]}.weight"
    return None


def weights(file: GgufFile, dtype: Any) -> dict[str, Any]:
    """All tensors, dequantised, in a type of torch; InputError if one is missing, unknown or of an unreadable type."""
    import gguf
    import torch

    layers = int(file.fact("block_count"))
    wanted = {f"{name}.weight" for name in _WHOLE} | {
        f"blk.{i}.{name}.weight" for i in range(layers) for name in _LAYER
    }
    for what, names in (("lacks", wanted - file.tensors.keys()), ("also has", file.tensors.keys() - wanted)):
        if names:
            shown = ", ".join(sorted(names)[:3]) + (" …" if len(names) > 3 else "")
            raise InputError(
                f"{file.path} {what} tensors: {shown} ({len(names)})",
                "is it a text model of Gemma 3, whole and unchanged?",
            )
    converted = {}
    for name, tensor in file.tensors.items():
        try:
            array = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
        except NotImplementedError:
            raise InputError(
                f"{file.path}: tensor {name} has type {tensor.tensor_type.name}, which the library gguf cannot read",
                "take a file of another quantisation, such as Q8_0 or Q4_K_M",
            ) from None
        # GGUF stores what norms multiply by, transformers what they multiply by less one.
        array = array - 1 if name.endswith("_norm.weight") else array
        converted[str(name_of(name))] = torch.tensor(array).to(dtype)
    return converted


def network(file: GgufFile, dtype: str) -> dict[str, Any]:
    """``config.json`` of the model."""
    layers, heads, width = (int(file.fact(key)) for key in ("block_count", "attention.head_count", "embedding_length"))
    head = int(file.fact("attention.key_length"))
    full: dict[str, Any] = {"rope_type": "default", "rope_theta": float(file.facts.get("rope.freq_base", 1e6))}
    if factor := file.facts.get("rope.scaling.factor"):
        full |= {"rope_type": "linear", "factor": float(factor)}
    kinds = ["full_attention" if (i + 1) % _EVERY == 0 else "sliding_attention" for i in range(layers)]
    return {
        "architectures": ["Gemma3ForCausalLM"],
        "model_type": "gemma3_text",
        "dtype": dtype,
        "vocab_size": len(file.pieces),
        "hidden_size": width,
        "intermediate_size": int(file.fact("feed_forward_length")),
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": int(file.fact("attention.head_count_kv")),
        "head_dim": head,
        "hidden_activation": "gelu_pytorch_tanh",
        "max_position_embeddings": int(file.fact("context_length")),
        "rms_norm_eps": _decimal(float(file.fact("attention.layer_norm_rms_epsilon"))),
        "query_pre_attn_scalar": width // heads if layers == _LAYERS_27B else head,
        "sliding_window": int(file.fact("attention.sliding_window")),
        "layer_types": kinds,
        "rope_parameters": {
            "sliding_attention": {"rope_type": "default", "rope_theta": _LOCAL_THETA},
            "full_attention": full,
        },
        "attention_bias": False,
        "attention_dropout": 0.0,
        "attn_logit_softcapping": None,
        "final_logit_softcapping": None,
        "tie_word_embeddings": True,
        "use_cache": True,
        **token_ids(file),
    }


def token_ids(file: GgufFile) -> dict[str, Any]:
    """Ids of the tokens that begin, end and fill up texts; a model that was taught turns ends them as well."""
    ends = [special(file, "eos_token_id")]
    if (turn := file.facts.get("tokenizer.ggml.eot_token_id")) is not None:
        ends = list(dict.fromkeys([*ends, int(turn)]))
    return {
        "bos_token_id": special(file, "bos_token_id"),
        "eos_token_id": ends[0] if len(ends) == 1 else ends,
        "pad_token_id": special(file, "padding_token_id"),
    }


def _decimal(number: float) -> float:
    """A decimal number that the file holds in single precision, such as 9.99999997e-07, as it was meant."""
    short = float(f"{number:.6g}")
    return short if math.isclose(short, number, rel_tol=1e-6) else number
