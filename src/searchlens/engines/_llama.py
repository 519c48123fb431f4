"""Models of the Llama family: weights, and the forward pass over a flat list of tokens.

Llama, Mistral, Qwen2 and Qwen3 are one architecture with switches. Weights come from transformers and are fused here
(query, key and value; gate and up). The tokens may belong to any sequences: the caller passes attention as a function,
so prefill and decode share everything else.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.nn import functional

from searchlens.engines.sampler import padded_vocab
from searchlens.errors import InputError
from searchlens.project import extras
from searchlens.store.adapters import WEIGHTS, Adapter
from searchlens.store.checkpoints import EMBEDDED, require_whole, shapes

SUPPORTED = EMBEDDED
_STATIC_ROPE = ("default", "linear", "llama3", "yarn")
# On a CPU, rows are padded to a multiple of these: oneDNN compiles a kernel, which takes milliseconds, for every number
# of rows. Padding costs computation, so small batches have the finer steps.
_CPU_ROWS = 32
_CPU_MANY_ROWS = 256  # for more than 512 rows
# Rows of a usual matrix product, for which oneDNN chooses the layout of weights. Any number is right.
_PACKED_ROWS = 256


class Attend(Protocol):
    """Attention of one layer.

    Parameters are the number of the layer, queries of shape (rows, heads, head_dim), already scaled, and keys and
    values of shape (rows, 2, kv_heads, head_dim). The result has shape (rows, heads * head_dim). The caller's tokens
    are the first rows, the others are padding.
    """

    def __call__(self, layer: int, queries: Tensor, keys_values: Tensor) -> Tensor: ...


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


class _Linear:
    """``x @ weight.T + bias``, on a CPU by oneDNN if this build of torch has it.

    torch itself sends float32 matrix products to MKL, which uses half of the vector width on CPUs not made by Intel.
    oneDNN keeps weights in the layout that its kernels read. Otherwise it would bring them into it in every call, which
    takes a tenth of the time with few rows; the bits of the result are the same. Weights that are ``shared`` with
    another use stay as they are.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None, *, shared: bool = False) -> None:
        self.weight = weight.contiguous()
        self.bias = bias
        self._onednn: Callable[..., Tensor] | None = None
        if weight.device.type == "cpu" and torch.backends.mkldnn.is_available():
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
    """Weights on a device and the forward pass.

    Parameters
    ----------
    model : transformers.PreTrainedModel
        A causal language model of a supported family. Its layers are fused and released one by one.
    device : torch.device
    """

    def __init__(self, model: Any, device: torch.device) -> None:
        config, body = model.config, model.model
        head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        self.shape = Shape(
            layers=config.num_hidden_layers,
            hidden=config.hidden_size,
            heads=config.num_attention_heads,
            kv_heads=config.num_key_value_heads,
            head_dim=head_dim,
            vocab=config.vocab_size,
            max_len=_max_len(config),
        )
        self.dtype: torch.dtype = model.dtype
        self.device = device
        self._eps = float(config.rms_norm_eps)
        self._scale = 1 / math.sqrt(head_dim)
        self._embedding = body.embed_tokens.weight.detach().to(device)
        self._head = self._load_head(model)
        self._layers = [self._load(layer) for layer in body.layers]
        self._norm = body.norm.weight.detach().to(device)
        self._rotations = _rotations(body.rotary_emb, self.shape.max_len, device)

    def forward(self, tokens: Tensor, positions: Tensor, attend: Attend) -> Tensor:
        """Return the final hidden states, shape (rows, hidden), with as many rows as `tokens`.

        Parameters
        ----------
        tokens, positions : int64 tensors, shape (rows,)
        attend : Attend
            Called once per layer.
        """
        rows = tokens.shape[0]
        padding = self.padding(rows)
        if padding:
            tokens, positions = functional.pad(tokens, (0, padding)), functional.pad(positions, (0, padding))
        x = self._embedding.index_select(0, tokens)
        rotation = self._rotations.index_select(0, positions)[:, None]
        for index, layer in enumerate(self._layers):
            queries, keys_values = self._project(layer, self._rms(x, layer.norm), rotation)
            x = layer.out.add(attend(index, queries, keys_values), x)
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

    def _load(self, layer: Any) -> _Layer:
        """Fuse the weights of one layer on the device, and release the original ones."""
        attention, mlp = layer.self_attn, layer.mlp
        pairs = _pairs(self.shape.head_dim)
        query_norm, key_norm = getattr(attention, "q_norm", None), getattr(attention, "k_norm", None)
        fused = _Layer(
            norm=layer.input_layernorm.weight.detach().to(self.device),
            qkv=self._fuse(
                (attention.q_proj, pairs.repeat(self.shape.heads, 1)),
                (attention.k_proj, pairs.repeat(self.shape.kv_heads, 1)),
                (attention.v_proj, None),
            ),
            query_norm=None if query_norm is None else query_norm.weight.detach()[pairs].to(self.device),
            key_norm=None if key_norm is None else key_norm.weight.detach()[pairs].to(self.device),
            out=self._fuse((attention.o_proj, None)),
            mlp_norm=layer.post_attention_layernorm.weight.detach().to(self.device),
            gate_up=self._fuse((mlp.gate_proj, None), (mlp.up_proj, None)),
            down=self._fuse((mlp.down_proj, None)),
        )
        layer.to("meta")
        return fused

    def _fuse(self, *parts: tuple[Any, Tensor | None]) -> _Linear:
        """Stack linear layers. A layer given with an order gets the rows of each head in that order."""
        weights, biases = [], []
        for linear, order in parts:
            weight = linear.weight.detach()
            bias = linear.bias.detach() if linear.bias is not None else weight.new_zeros(weight.shape[0])
            if order is not None:
                index = (order + torch.arange(order.shape[0])[:, None] * order.shape[1]).flatten()
                weight, bias = weight[index], bias[index]
            weights.append(weight.to(self.device))
            biases.append(bias.to(self.device))
        has_bias = any(linear.bias is not None for linear, _ in parts)
        return _Linear(torch.cat(weights), torch.cat(biases) if has_bias else None)

    def _load_head(self, model: Any) -> _Linear:
        weight, bias = model.lm_head.weight.detach(), model.lm_head.bias
        padding = padded_vocab(self.shape.vocab) - weight.shape[0]
        if not padding and bias is None and weight.data_ptr() == model.model.embed_tokens.weight.data_ptr():
            return _Linear(self._embedding, None, shared=True)
        bias = None if bias is None else functional.pad(bias.detach(), (0, padding)).to(self.device)
        return _Linear(functional.pad(weight, (0, 0, 0, padding)).to(self.device), bias)


def load(
    path: str | Path, revision: str | None, device: torch.device, dtype: torch.dtype, adapter: Adapter | None = None
) -> tuple[Llama, Any]:
    """Load a model in transformers' layout.

    Parameters
    ----------
    path : str or Path
        A folder, or a hub id.
    revision : str or None
        Of a hub id.
    device : torch.device
    dtype : torch.dtype
        float32 or bfloat16.
    adapter : Adapter, optional
        Merged into the weights.

    Returns
    -------
    tuple of (Llama, transformers.PreTrainedConfig)

    Raises
    ------
    InputError
        If files are missing or unreadable, or the architecture is not supported.
    """
    from transformers import AutoConfig, AutoModelForCausalLM  # 2 s: only where a model is loaded
    from transformers.utils import logging

    logging.disable_progress_bar()
    if Path(path).is_dir():
        require_whole(Path(path), embedded=True)
    try:  # neither code of the checkpoint nor pickled weights: without these options transformers would ask, or load
        config = AutoConfig.from_pretrained(path, revision=revision, trust_remote_code=False)
        _check(config, path)
        if Path(path).is_dir():
            _require_weights(config, Path(path))
        model, info = AutoModelForCausalLM.from_pretrained(
            path,
            revision=revision,
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
            f"{path}: cannot load a model from here ({error})",
            "Give a folder with config.json and *.safetensors, or a hub id whose files are in the local cache.",
        ) from error
    if info["missing_keys"]:
        raise InputError(f"{path}: the weight files have no {', '.join(sorted(info['missing_keys']))}")
    if adapter:
        adapter.require_fits(Path(path))
        model = _merged(model, adapter)
    return Llama(model, device), config


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
    if config.model_type not in SUPPORTED:
        raise InputError(
            f"{path}: model type {config.model_type!r} is not supported by the embedded engine, only "
            f"{', '.join(SUPPORTED)}",
            "Set engine: vllm for other architectures.",
        )
    if config.hidden_act != "silu":
        raise InputError(f"{path}: activation {config.hidden_act!r} is not supported, only 'silu'")
    rope = config.rope_parameters["rope_type"]
    if rope not in _STATIC_ROPE:
        raise InputError(f"{path}: rope type {rope!r} is not supported, only {', '.join(_STATIC_ROPE)}")


def _max_len(config: Any) -> int:
    """Return the longest sequence on which every layer attends to all earlier tokens."""
    window = getattr(config, "sliding_window", None)
    return min(config.max_position_embeddings, window) if window else int(config.max_position_embeddings)


def _pairs(head_dim: int) -> Tensor:
    """Return the order that puts the two coordinates of each rotation next to each other, as in a complex number.

    transformers rotates coordinate i with i + head_dim / 2. Queries and keys get the same order, so their products stay
    the same.
    """
    return torch.arange(head_dim).view(2, -1).t().flatten()


def _rotations(rotary: Any, length: int, device: torch.device) -> Tensor:
    """Return the rotation of each position as complex numbers, shape (length, head_dim / 2)."""
    angles = torch.arange(length, dtype=torch.float32)[:, None] * rotary.inv_freq.float().cpu()
    return torch.polar(torch.full_like(angles, float(rotary.attention_scaling)), angles).to(device)
