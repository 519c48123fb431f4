"""Models of the Llama family: the weights of a checkpoint, and the forward pass over a flat list of tokens.

Weights are read as transformers would read them. Only for adapters and unusual rotations is transformers asked: its
import reads three thousand of its own source files, seconds of every job on a network file system.

Llama, Mistral, Qwen2 and Qwen3 are one architecture with switches. Weights are fused here (query, key and value; gate
and up). The tokens may belong to any sequences: the caller passes attention as a function, so prefill and decode share
everything else.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any, Protocol

import torch
from safetensors.torch import load_file
from torch import Tensor
from torch.nn import functional

from searchlens.config import addons
from searchlens.engines.sampler import padded_vocab
from searchlens.errors import InputError
from searchlens.store import checkpoints
from searchlens.store.checkpoints import WEIGHTS, Adapter

# On a CPU, rows are padded to a multiple of these: oneDNN compiles a kernel, which takes milliseconds, for every number
# of rows. Padding costs computation, so small batches have the finer steps.
_CPU_ROWS = 32
_CPU_MANY_ROWS = 256  # for more than 512 rows
# MKL has its kernels ready, but with fewer rows than these it takes others, which add up in another order.
_MKL_ROWS = 16
# Rows of a usual matrix product, for which oneDNN chooses the layout of weights. Any number is right.
_PACKED_ROWS = 256
# Most terms of a sum that MKL adds up in the order of oneDNN: with more it adds them in blocks, in another order.
_MKL_TERMS = 384
# Numbers of rows for which the two are compared: some of decode steps, and of prefills.
_COMPARED_ROWS = (*range(_MKL_ROWS, 64), *range(64, 512, 19), 512, 777, 2048)


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
    addons.require("peft")
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


class Attend(Protocol):
    """Attention of one layer.

    Parameters are the number of the layer, queries of shape (rows, heads, head_dim), already scaled, and keys and
    values of shape (rows, 2, kv_heads, head_dim). The result has shape (rows, heads * head_dim). The caller's tokens
    are the first rows, the others are padding.
    """

    def __call__(self, layer: int, queries: Tensor, keys_values: Tensor) -> Tensor: ...


class _Linear:
    """``x @ weight.T + bias``, on a CPU by oneDNN if this build of torch has it.

    torch itself sends float32 matrix products to MKL, which uses half of the vector width on CPUs not made by Intel.
    On those of Intel it is the faster one, mostly with few rows, and multiplies where its bits are those of oneDNN.
    oneDNN keeps weights in the layout that its kernels read. Otherwise it would bring them into it in every call, which
    takes a tenth of the time with few rows; the bits of the result are the same. Weights that are ``shared`` with
    another use stay as they are.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None, *, shared: bool = False) -> None:
        self.weight = weight.contiguous()
        self.bias = bias
        self._onednn: Callable[..., Tensor] | None = None
        on_cpu = weight.device.type == "cpu" and torch.backends.mkldnn.is_available()
        self.takes_mkl = on_cpu and _takes_mkl(weight, bias)
        if on_cpu and not self.takes_mkl:
            self._onednn = getattr(torch.ops.mkldnn, "_linear_pointwise", None)
            pack = getattr(torch.ops.mkldnn, "_reorder_linear_weight", None)
            if self._onednn and pack and weight.dtype == torch.float32 and not shared:
                self.weight = pack(self.weight, _PACKED_ROWS)

    def __call__(self, x: Tensor) -> Tensor:
        """Return a new tensor, shape (rows, out)."""
        if self._onednn is not None:
            return self._onednn(x, self.weight, self.bias, "none", [], "")
        return functional.linear(x, self.weight, self.bias)

    def add(self, x: Tensor, residual: Tensor) -> Tensor:
        """Return ``residual + self(x)``; may overwrite `residual`."""
        if self.bias is None and x.device.type == "cuda":
            return torch.addmm(residual, x, self.weight.t())
        return residual.add_(self(x))


def _takes_mkl(weight: Tensor, bias: Tensor | None) -> bool:
    """Whether MKL multiplies with a weight at the full speed of the CPU, and gives the bits of oneDNN."""
    outputs, terms = weight.shape
    is_small = weight.dtype == torch.float32 and terms <= _MKL_TERMS
    return is_small and _is_intel() and _same_bits(outputs, terms, bias is not None, torch.get_num_threads())


@cache
def _is_intel() -> bool:
    file = Path("/proc/cpuinfo")
    return file.exists() and "GenuineIntel" in file.read_text()


@cache
def _same_bits(outputs: int, terms: int, biased: bool, threads: int) -> bool:
    """Whether MKL, with any number of rows, and oneDNN add up terms in the same order, by trial on random numbers."""
    del threads  # but MKL may share out a product among them
    by_onednn = getattr(torch.ops.mkldnn, "_linear_pointwise", None)
    if by_onednn is None or not torch.backends.mkl.is_available():
        return False
    generator = torch.Generator().manual_seed(0)
    x, weight = (torch.randn(rows, terms, generator=generator) for rows in (_COMPARED_ROWS[-1], outputs))
    bias = weight[:, 0].contiguous() if biased else None
    product = by_onednn(x, weight, bias, "none", [], "")
    return all(torch.equal(functional.linear(x[:rows], weight, bias), product[:rows]) for rows in _COMPARED_ROWS)


@dataclass(frozen=True, slots=True)
class _Layer:
    norm: Tensor
    qkv: _Linear
    query_norm: Tensor | None
    key_norm: Tensor | None
    out: _Linear
    mlp_norm: Tensor
    gate_up: _Linear
    down: _Linear


class Llama:
    """Weights on a device and the forward pass; the tensors of the given weights are taken."""

    def __init__(self, weights: Weights, device: torch.device) -> None:
        self.shape, self._tensors = weights.shape, weights.tensors
        embedding = self._tensors.pop("model.embed_tokens.weight")
        self.dtype: torch.dtype = embedding.dtype
        self.device = device
        self._eps = weights.eps
        self._scale = 1 / math.sqrt(self.shape.head_dim)
        self._embedding = embedding.to(device)
        head, bias = self._tensors.pop("lm_head.weight"), self._tensors.pop("lm_head.bias", None)
        padding = padded_vocab(self.shape.vocab) - head.shape[0]
        if not padding and bias is None and head.data_ptr() == embedding.data_ptr():
            self._head = _Linear(self._embedding, None, shared=True)
        else:
            bias = None if bias is None else functional.pad(bias, (0, padding)).to(device)
            self._head = _Linear(functional.pad(head, (0, 0, 0, padding)).to(device), bias)
        self._layers = [self._load(f"model.layers.{layer}") for layer in range(self.shape.layers)]
        products = [(layer.qkv, layer.out, layer.gate_up, layer.down) for layer in self._layers]
        self._takes_mkl = all(product.takes_mkl for product in chain((self._head,), *products))
        self._norm = self._take("model.norm")
        positions = torch.arange(self.shape.max_len, dtype=torch.float32)
        angles = positions[:, None] * weights.inverse_frequencies.float().cpu()
        # Of each position, as complex numbers, shape (longest text, head_dim / 2).
        self._rotations = torch.polar(torch.full_like(angles, weights.attention_scaling), angles).to(device)

    def forward(self, tokens: Tensor, positions: Tensor, attend: Attend) -> Tensor:
        """Return the final hidden states, shape (rows, hidden), of int64 tokens and positions, shape (rows,)."""
        rows = tokens.shape[0]
        padding = self.padding(rows)
        if padding:
            tokens, positions = functional.pad(tokens, (0, padding)), functional.pad(positions, (0, padding))
        x = self._embedding.index_select(0, tokens)
        rotation = self._rotations.index_select(0, positions)[:, None]
        for index, layer in enumerate(self._layers):
            x = layer.out.add(attend(index, *self._project(layer, self._rms(x, layer.norm), rotation)), x)
            gate, up = layer.gate_up(self._rms(x, layer.mlp_norm)).chunk(2, -1)
            x = layer.down.add(functional.silu(gate, inplace=True).mul_(up), x)
        return self._rms(x[:rows], self._norm)

    def logits(self, hidden: Tensor) -> Tensor:
        """Return float32 logits, shape (rows, padded vocabulary); padding columns are zero."""
        rows = hidden.shape[0]
        padding = self.padding(rows)
        return self._head(functional.pad(hidden, (0, 0, 0, padding)) if padding else hidden)[:rows].float()

    def padding(self, rows: int) -> int:
        """Return how many rows of padding the matrix products need."""
        if self.device.type != "cpu":
            return 0
        if self._takes_mkl:
            return max(0, _MKL_ROWS - rows)
        return -rows % (_CPU_ROWS if rows <= 2 * _CPU_MANY_ROWS else _CPU_MANY_ROWS)

    def _project(self, layer: _Layer, x: Tensor, rotation: Tensor) -> tuple[Tensor, Tensor]:
        """Return queries, rotated and scaled, and keys and values, the keys rotated."""
        shape, rows = self.shape, x.shape[0]
        heads = layer.qkv(x).view(rows, shape.heads + 2 * shape.kv_heads, shape.head_dim)
        rotary = heads[:, : shape.heads + shape.kv_heads]
        if layer.query_norm is not None and layer.key_norm is not None:
            rotary[:, : shape.heads] = self._rms(rotary[:, : shape.heads], layer.query_norm)
            rotary[:, shape.heads :] = self._rms(rotary[:, shape.heads :], layer.key_norm)
        if self.dtype == torch.float32:
            torch.view_as_complex(rotary.unflatten(-1, (-1, 2))).mul_(rotation)
        else:
            pairs = torch.view_as_complex(rotary.float().unflatten(-1, (-1, 2)))
            rotary.copy_(torch.view_as_real(pairs * rotation).flatten(-2))
        queries = heads[:, : shape.heads] * self._scale
        return queries, heads[:, shape.heads :].unflatten(1, (2, shape.kv_heads))

    def _rms(self, x: Tensor, weight: Tensor) -> Tensor:
        return functional.rms_norm(x, (x.shape[-1],), weight, self._eps)

    def _take(self, name: str) -> Tensor:
        return self._tensors.pop(f"{name}.weight").to(self.device)

    def _load(self, layer: str) -> _Layer:
        """Fuse the weights of one layer on the device, and release the original ones."""
        attention, mlp = f"{layer}.self_attn", f"{layer}.mlp"
        # transformers rotates coordinate i with i + head_dim / 2; here both are neighbours, as in a complex number.
        # Queries and keys get the same order, so their products stay the same.
        pairs = torch.arange(self.shape.head_dim).view(2, -1).t().flatten()
        norms = [self._tensors.pop(f"{attention}.{name}.weight", None) for name in ("q_norm", "k_norm")]
        query_norm, key_norm = (None if norm is None else norm[pairs].to(self.device) for norm in norms)
        return _Layer(
            norm=self._take(f"{layer}.input_layernorm"),
            qkv=self._fuse(
                (f"{attention}.q_proj", pairs.repeat(self.shape.heads, 1)),
                (f"{attention}.k_proj", pairs.repeat(self.shape.kv_heads, 1)),
                (f"{attention}.v_proj", None),
            ),
            query_norm=query_norm,
            key_norm=key_norm,
            out=self._fuse((f"{attention}.o_proj", None)),
            mlp_norm=self._take(f"{layer}.post_attention_layernorm"),
            gate_up=self._fuse((f"{mlp}.gate_proj", None), (f"{mlp}.up_proj", None)),
            down=self._fuse((f"{mlp}.down_proj", None)),
        )

    def _fuse(self, *parts: tuple[str, Tensor | None]) -> _Linear:
        """Stack linear layers. A layer given with an order gets the rows of each head in that order."""
        weights, biases = [], []
        has_bias = any(f"{name}.bias" in self._tensors for name, _ in parts)
        for name, order in parts:
            weight = self._tensors.pop(f"{name}.weight")
            bias = self._tensors.pop(f"{name}.bias", None)
            if bias is None:
                bias = weight.new_zeros(weight.shape[0])
            if order is not None:
                index = (order + torch.arange(order.shape[0])[:, None] * order.shape[1]).flatten()
                weight, bias = weight[index], bias[index]
            weights.append(weight.to(self.device))
            biases.append(bias.to(self.device))
        return _Linear(torch.cat(weights), torch.cat(biases) if has_bias else None)
