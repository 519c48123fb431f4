"""The zoo's own forward pass of Qwen2, Llama and Mistral, for training and for :mod:`searchlens_lab.zoo.sample`.

A layer comes in two halves, so that training and the sampler can each put their own attention between them. Parameter
names are those of transformers, so weights pass between the two without renaming; ``lab/tests/test_zoo_model.py``
and ``lab/tests/test_zoo_cohort.py`` check that both compute the same function. docs/zoo.md says why
this is not the embedded engine.
"""

from __future__ import annotations

import json
from pathlib import Path

import torch
import transformers
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.nn import functional
from transformers import PreTrainedTokenizerFast

from searchlens_lab.zoo.corpus import END, PAD
from searchlens_lab.zoo.recipe import ModelShape

_CLASSES = {"qwen2": "Qwen2", "llama": "Llama", "mistral": "Mistral"}
"""Architectures, and how their classes in transformers begin."""
_NAMES = {
    "vocabulary": "vocab_size",
    "hidden": "hidden_size",
    "layers": "num_hidden_layers",
    "heads": "num_attention_heads",
    "kv_heads": "num_key_value_heads",
    "ffn": "intermediate_size",
    "context": "max_position_embeddings",
    "norm_eps": "rms_norm_eps",
}
"""Sizes of a shape, and their names in transformers."""


class _Attention(nn.Module):
    def __init__(self, shape: ModelShape) -> None:
        super().__init__()
        self.head_dim = shape.hidden // shape.heads
        bias = shape.architecture == "qwen2"
        self.q_proj = nn.Linear(shape.hidden, shape.hidden, bias)
        self.k_proj = nn.Linear(shape.hidden, shape.kv_heads * self.head_dim, bias)
        self.v_proj = nn.Linear(shape.hidden, shape.kv_heads * self.head_dim, bias)
        self.o_proj = nn.Linear(shape.hidden, shape.hidden, bias=False)

    def heads(self, x: Tensor, angles: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys (both rotated) and values, each (batch, heads, length, head_dim)."""
        q, k, v = (
            linear(x).unflatten(-1, (-1, self.head_dim)).transpose(1, 2)
            for linear in (self.q_proj, self.k_proj, self.v_proj)
        )
        return rotate(q, angles), rotate(k, angles), v


class _Mlp(nn.Module):
    def __init__(self, shape: ModelShape) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(shape.hidden, shape.ffn, bias=False)
        self.up_proj = nn.Linear(shape.hidden, shape.ffn, bias=False)
        self.down_proj = nn.Linear(shape.ffn, shape.hidden, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.down_proj(functional.silu(self.gate_proj(x)) * self.up_proj(x))
        return out


class Layer(nn.Module):
    """One decoder layer: what comes before attention, and what comes after it."""

    def __init__(self, shape: ModelShape) -> None:
        super().__init__()
        self.self_attn = _Attention(shape)
        self.mlp = _Mlp(shape)
        self.input_layernorm = nn.RMSNorm(shape.hidden, shape.norm_eps)
        self.post_attention_layernorm = nn.RMSNorm(shape.hidden, shape.norm_eps)

    def before(self, x: Tensor, angles: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values of the residual stream ``x``, shape (batch, length, hidden)."""
        return self.self_attn.heads(self.input_layernorm(x), angles)

    def after(self, x: Tensor, attended: Tensor) -> Tensor:
        """The residual stream after attention (batch, heads, length, head_dim) and MLP."""
        x = x + self.self_attn.o_proj(attended.transpose(1, 2).flatten(2))
        out: Tensor = x + self.mlp(self.post_attention_layernorm(x))
        return out


class _Body(nn.Module):
    def __init__(self, shape: ModelShape) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(shape.vocabulary, shape.hidden)
        self.layers = nn.ModuleList(Layer(shape) for _ in range(shape.layers))
        self.norm = nn.RMSNorm(shape.hidden, shape.norm_eps)


def rotate(x: Tensor, angles: tuple[Tensor, Tensor]) -> Tensor:
    """Rotary position embedding of the last axis, half against half."""
    first, second = x.chunk(2, -1)
    return x * angles[0] + torch.cat((-second, first), -1) * angles[1]


class Decoder(nn.Module):
    """A decoder with tied embeddings and random initial weights."""

    def __init__(self, shape: ModelShape, seed: int = 0) -> None:
        super().__init__()
        self.shape = shape
        self.model = _Body(shape)
        generator = torch.Generator().manual_seed(seed)
        for name, parameter in self.named_parameters():
            if parameter.dim() == 2:
                residual = "o_proj" in name or "down_proj" in name
                nn.init.normal_(parameter, 0, 0.008 if residual else 0.02, generator)
            elif "bias" in name:
                nn.init.zeros_(parameter)

    @property
    def layers(self) -> list[Layer]:
        """The decoder layers, first to last."""
        return [layer for layer in self.model.layers if isinstance(layer, Layer)]

    def embed(self, ids: Tensor) -> Tensor:
        """The residual stream before the first layer."""
        out: Tensor = self.model.embed_tokens(ids)
        return out

    def angles(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Cosines and sines for ``positions`` (batch, length), broadcastable over heads."""
        dim = self.shape.hidden // self.shape.heads
        steps = torch.arange(0, dim, 2, device=positions.device).float() / dim
        turns = positions[:, None, :, None].float() * self.shape.rope_theta**-steps
        both = torch.cat((turns, turns), -1)
        dtype = self.model.norm.weight.dtype
        return both.cos().to(dtype), both.sin().to(dtype)

    def unembed(self, x: Tensor) -> Tensor:
        """Logits of the residual stream after the last layer."""
        return functional.linear(self.model.norm(x), self.model.embed_tokens.weight)

    def forward(self, ids: Tensor) -> Tensor:
        """Logits (batch, length, vocabulary) of right-padded ``ids`` (batch, length), causal."""
        angles = self.angles(torch.arange(ids.shape[1], device=ids.device)[None])
        x = self.embed(ids)
        for layer in self.layers:
            q, k, v = layer.before(x, angles)
            x = layer.after(x, functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True))
        return self.unembed(x)


def forward_in(model: Decoder, ids: Tensor, dtype: torch.dtype) -> Tensor:
    """Logits computed in ``dtype``, differentiable in the model's own parameters."""
    cast = {name: parameter.to(dtype) for name, parameter in model.named_parameters()}
    out: Tensor = torch.func.functional_call(model, cast, (ids,))
    return out


def token_log_probs(logits: Tensor, ids: Tensor) -> Tensor:
    """Log-probability of each next token: ``logits`` at t, ``ids`` at t + 1; shape (batch, length - 1)."""
    losses = functional.cross_entropy(logits[:, :-1].float().flatten(0, 1), ids[:, 1:].flatten(), reduction="none")
    return -losses.view(len(ids), -1)


def compute_dtype(device: str) -> torch.dtype:
    """bf16 on a GPU, float32 elsewhere."""
    return torch.bfloat16 if device.startswith("cuda") else torch.float32


def save(model: Decoder, tokenizer: PreTrainedTokenizerFast, folder: Path) -> None:
    """Write the model in the transformers format: bf16 safetensors, configuration, tokenizer."""
    shape = model.shape
    name = _CLASSES[shape.architecture]
    config = getattr(transformers, f"{name}Config")(
        **{theirs: getattr(shape, ours) for ours, theirs in _NAMES.items()},
        rope_parameters={"rope_type": "default", "rope_theta": shape.rope_theta},
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=END,
        pad_token_id=PAD,
        **({"sliding_window": None} if shape.architecture == "mistral" else {}),
    )
    exported = getattr(transformers, f"{name}ForCausalLM")(config)
    weights = {name: tensor.detach().cpu() for name, tensor in model.state_dict().items()}
    exported.load_state_dict(weights | {"lm_head.weight": weights["model.embed_tokens.weight"]})
    exported.to(torch.bfloat16).save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def load(folder: Path, device: str = "cpu") -> Decoder:
    """Read a model that :func:`save` wrote, as float32 parameters."""
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    shape = ModelShape(
        **{ours: config[theirs] for ours, theirs in _NAMES.items()},
        rope_theta=config["rope_parameters"]["rope_theta"],
        architecture=config["model_type"],
    )
    model = Decoder(shape)
    weights = load_file(folder / "model.safetensors")
    weights.pop("lm_head.weight", None)
    model.load_state_dict({name: tensor.float() for name, tensor in weights.items()})
    return model.to(device)
