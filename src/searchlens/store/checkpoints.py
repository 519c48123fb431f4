"""Whether the folder of a checkpoint is whole, its fingerprint, and what its config.json means to the embedded engine;
the same of a LoRA adapter.

A download that was cut off, a folder of another tool, or one that was made to do harm is noticed here, before anything
is loaded. JSON files and headers of weights are read, and no file is ever unpickled. Standard library only, because the
planner imports it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from searchlens.errors import InputError
from searchlens.store.files import digest, file_sha256, read_json
from searchlens.store.inputs import require_at_most, require_no_stream

WEIGHT_FILES = ("config.json", "tokenizer.json", "*.safetensors")
"""Files that decide the tokens that a checkpoint generates."""

EMBEDDED = ("llama", "mistral", "qwen2", "qwen3")
"""Model types that the embedded engine computes."""

_ROTATIONS: Mapping[str, tuple[str, ...]] = {
    "default": (),
    "linear": ("factor",),
    "llama3": ("factor", "low_freq_factor", "high_freq_factor"),
    "yarn": ("factor",),
}
"""Types of rotation that the embedded engine computes, with the numbers that each needs."""

_DEFAULTS: Mapping[str, Any] = {
    **dict.fromkeys(("num_key_value_heads", "head_dim", "sliding_window", "partial_rotary_factor")),
    **dict.fromkeys(("tie_word_embeddings", "attention_bias", "mlp_bias", "use_sliding_window"), False),
    "hidden_act": "silu",
    "rms_norm_eps": 1e-6,
    "rope_theta": 1e4,
}
_DEFAULTS_OF: Mapping[str, Mapping[str, Any]] = {
    "llama": {"max_position_embeddings": 2048},
    "mistral": {"num_key_value_heads": 8, "max_position_embeddings": 131072, "sliding_window": 4096},
    "qwen2": {"num_key_value_heads": 32, "max_position_embeddings": 32768, "sliding_window": 4096},
    "qwen3": {"num_key_value_heads": 32, "max_position_embeddings": 32768, "sliding_window": 4096, "head_dim": 128},
}
"""What transformers takes for a key that config.json lacks. Sizes are not here: those of a model of 7B fit no other."""

_FLOATS = ("F64", "F32", "F16", "BF16")
_SAMPLED, _BYTES = 64, 4096  # tensors of a file that are looked at, and bytes of each

_LONGEST_HEADER = 100_000_000
"""Bytes; the limit of safetensors itself."""

_BITS = {
    **dict.fromkeys(("F8_E4M3", "F8_E5M2", "F8_E8M0", "F8_E4M3FNUZ", "F8_E5M2FNUZ", "BOOL", "U8", "I8"), 8),
    **dict.fromkeys(("U16", "I16", "F16", "BF16"), 16),
    **dict.fromkeys(("U32", "I32", "F32"), 32),
    **dict.fromkeys(("U64", "I64", "F64", "C64"), 64),
    **dict.fromkeys(("F6_E2M3", "F6_E3M2"), 6),
    "F4": 4,
}
"""Bits of a number, by the name of its type in safetensors."""

_GROWTH = 256
"""Letters that all replacements of a tokenizer may make of one."""

_INDEX = "model.safetensors.index.json"

_AGAIN = "download it again, or copy the whole folder"
_SAME = "take config.json and *.safetensors from the same model"


def _whole(value: object) -> bool:
    return type(value) is int and value >= 1


def _positive(value: object) -> bool:
    return isinstance(value, int | float) and type(value) is not bool and 0 < value < math.inf


_SIZES = ("hidden_size", "num_hidden_layers", "num_attention_heads", "vocab_size")
_RULES: Mapping[str, tuple[Callable[[Any], bool], str]] = {
    **dict.fromkeys(
        (*_SIZES, "intermediate_size", "num_key_value_heads", "head_dim", "max_position_embeddings"),
        (_whole, "a whole number of at least 1"),
    ),
    "num_hidden_layers": (lambda value: _whole(value) and value <= 10_000, "a whole number from 1 to 10,000"),
    **dict.fromkeys(
        ("tie_word_embeddings", "attention_bias", "mlp_bias", "use_sliding_window"),
        (lambda value: type(value) is bool, "true or false"),
    ),
    "sliding_window": (lambda value: value is None or _whole(value), "null or a whole number of at least 1"),
    "hidden_act": (lambda value: value == "silu", "'silu' for the embedded engine"),
    "rms_norm_eps": (_positive, "a number above 0"),
    "partial_rotary_factor": (lambda value: value in (None, 1), "1 for the embedded engine"),
}
"""What the embedded engine takes."""


@dataclass(frozen=True, slots=True)
class Stored:
    """A tensor in a file of safetensors: its name there, its shape, its type, and the place of its bytes."""

    path: Path
    name: str
    shape: tuple[int, ...]
    dtype: str
    begin: int
    end: int


def require_whole(folder: Path, *, embedded: bool, sampled: bool = True) -> None:
    """Check a checkpoint's folder. Which files a study needs says ``weight_files``.

    The ``embedded`` engine knows the types ``EMBEDDED`` alone. ``sampled``: look at some bytes of the weights, too.
    Raises InputError if a file is damaged, is cut short, is not of transformers' layout, or needs code of its own; or
    if config.json and the weights are of different models.
    """
    network = mapping(folder / "config.json")
    kind = network.get("model_type")
    if not isinstance(kind, str) or not kind:
        raise InputError(f"{folder / 'config.json'}: 'model_type' must be a text, found {kind!r}", _AGAIN)
    if embedded and kind not in EMBEDDED:
        code = "; it brings code of its own (auto_map), which is never run" if network.get("auto_map") else ""
        raise InputError(
            f"{folder}: model type {kind!r} is not supported by the embedded engine, only {', '.join(EMBEDDED)}{code}",
            "set engine: vllm for other architectures",
        )
    tokenizer = folder / "tokenizer.json"
    if tokenizer.exists():
        _require_tokenizer(tokenizer, mapping(tokenizer))
    files = {path.name: headers(path) for path in sorted(folder.glob("*.safetensors"))}
    for index in folder.glob("*.safetensors.index.json"):
        _require_indexed(index, files)
    if not files:
        raise InputError(f"{folder} has no *.safetensors; weights that are pickled are never loaded", _AGAIN)
    if embedded:
        stored = [*weights(folder).values()]
    elif "adapter_model.safetensors" in files and not (folder / _INDEX).exists():
        raise InputError(f"{folder}: vLLM would read adapter_model.safetensors as weights, too", "move it elsewhere")
    else:
        stored = [item for tensors in files.values() for item in tensors.values()]
    for key in _SIZES:
        if isinstance(network.get(key), int | float | str):
            _require(folder / "config.json", key, network[key])
    for path in {item.path for item in stored} if sampled else ():
        _require_numbers(path, [item for item in stored if item.path == path])


def _require_tokenizer(path: Path, content: Mapping[str, Any]) -> None:
    """Refuse what is no tokenizer, and steps that make far more of a text than is there."""
    if not isinstance(content.get("model"), Mapping):
        raise InputError(f"{path} is no tokenizer: it has no 'model'", _AGAIN)
    growth, waiting = 1, [content.get("normalizer"), content.get("decoder")]
    while waiting:
        step = waiting.pop()
        if isinstance(step, Mapping) and step.get("type") == "Replace":
            growth *= max(1, len(str(step.get("content"))))
        waiting += step.values() if isinstance(step, Mapping) else step if isinstance(step, list) else ()
    require_at_most(_GROWTH, growth, "letters for one by its replacements", path)


def described(folder: Path) -> dict[str, Any]:
    """What config.json of one of the types ``EMBEDDED`` says, with transformers' values for what it leaves out.

    ``rope_type`` and ``rope_theta`` are there whatever way the file says them.
    """
    path = folder / "config.json"
    network = _filled(mapping(path))
    if method := network.get("quantization_config"):
        name = method.get("quant_method") if isinstance(method, Mapping) else method
        raise InputError(f"{path}: the embedded engine reads no weights quantised by {name!r}", "set engine: vllm")
    for key in _RULES:
        _require(path, key, network.get(key))
    hidden, heads, size = network["hidden_size"], network["num_attention_heads"], network["head_dim"]
    if heads % network["num_key_value_heads"] or size % 2 or (network["model_type"] == "llama" and hidden % heads):
        shared = f"with {network['num_key_value_heads']} of keys and values, each of {size} numbers"
        raise InputError(f"{path}: {heads} heads {shared}, do not fit a hidden size of {hidden}", _SAME)
    rope = network.get("rope_scaling") or network.get("rope_parameters") or {}
    if not isinstance(rope, Mapping):
        raise InputError(f"{path}: rope_scaling must be a mapping, found {rope!r:.80}", _SAME)
    kind = rope.get("rope_type", rope.get("type", "default"))
    if kind not in tuple(_ROTATIONS):
        raise InputError(f"{path}: rope type {kind!r:.80} is not supported, only {', '.join(_ROTATIONS)}")
    for key in ("rope_theta", *_ROTATIONS[kind]):
        if not _positive(value := rope.get(key, network.get(key))):
            raise InputError(f"{path}: {key} of rope type {kind!r} must be above 0, found {value!r:.80}", _SAME)
    return network | {"rope_type": kind, "rope_theta": rope.get("rope_theta", network["rope_theta"])}


def _require(path: Path, key: str, value: object) -> None:
    is_right, allowed = _RULES[key]
    if not is_right(value):
        raise InputError(f"{path}: {key} must be {allowed}, found {value!r:.80}", _SAME)


def _filled(network: Mapping[str, Any]) -> dict[str, Any]:
    kind = network["model_type"]
    filled = {**_DEFAULTS, **_DEFAULTS_OF[kind], **network}
    hidden, heads = filled.get("hidden_size"), filled.get("num_attention_heads")
    if filled["num_key_value_heads"] is None and kind != "mistral":
        filled["num_key_value_heads"] = heads
    if filled["head_dim"] is None and type(hidden) is type(heads) is int and heads:
        filled["head_dim"] = hidden // heads
    return filled


def window(network: Mapping[str, Any]) -> int | None:
    """Most tokens of a text that the embedded engine computes, by the content of config.json; None if it is not known.

    They are the context, or a sliding window that is smaller: within it, every layer attends to all earlier tokens.
    """
    if network.get("model_type") not in EMBEDDED:
        return None
    network = _filled(network)
    slides = {"llama": False, "mistral": True}.get(network["model_type"], network["use_sliding_window"])
    limits = [network["max_position_embeddings"]]
    limits += [network["sliding_window"]] if slides and network["sliding_window"] is not None else []
    return min(limits) if all(map(_whole, limits)) else None


def weights(folder: Path) -> dict[str, Stored]:
    """The tensors of a checkpoint of the embedded engine, by their names in the model, compared with config.json.

    As transformers reads them: ``model.safetensors``, or else the files of its index; a name may lack its ``model.``.
    """
    network = described(folder)
    held: dict[str, Stored] = {}
    for path in _files(folder):
        for name, tensor in headers(path).items():
            held[name if name.startswith(("model.", "lm_head.")) else f"model.{name}"] = tensor
    ends = ("model.embed_tokens.weight", "lm_head.weight")
    if network["tie_word_embeddings"]:  # one of them may be left out
        held |= {name: held[other] for name, other in (ends, ends[::-1]) if name not in held and other in held}
    found: dict[str, Stored] = {}
    for name, shape in _tensors(network):
        if name not in held:
            raise InputError(f"{folder}: the weight files have no {name}, which config.json describes", _SAME)
        found[name] = tensor = held.pop(name)
        if tensor.shape != shape:
            raise InputError(f"{tensor.path} has {name} of shape {tensor.shape}, config.json says {shape}", _SAME)
        if tensor.dtype not in _FLOATS:
            raise InputError(f"{tensor.path}: {name} has type {tensor.dtype}, allowed: {', '.join(_FLOATS)}", _SAME)
    if more := next((tensor for name, tensor in held.items() if not name.endswith(".inv_freq")), None):
        raise InputError(f"{more.path} has {more.name[:80]!r}, which the model of config.json does not have", _SAME)
    return found


def _tensors(network: Mapping[str, Any]) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Names and shapes of the tensors of a model, one by one: a wrong config.json may describe any number of layers."""
    hidden, between, kind = network["hidden_size"], network["intermediate_size"], network["model_type"]
    queries, keys = (network[f"num_{name}_heads"] * network["head_dim"] for name in ("attention", "key_value"))
    attention = {"q": (queries, hidden), "k": (keys, hidden), "v": (keys, hidden), "o": (hidden, queries)}
    mlp = {"gate": (between, hidden), "up": (between, hidden), "down": (hidden, between)}
    parts = [(f"self_attn.{name}_proj", shape) for name, shape in attention.items()]
    parts += [(f"mlp.{name}_proj", shape) for name, shape in mlp.items()]
    biased = {"qwen2": parts[:3]}.get(kind, parts[:4] if network["attention_bias"] and kind != "mistral" else [])
    biased = biased + (parts[4:] if network["mlp_bias"] and kind == "llama" else [])
    norms = {"input_layernorm": hidden, "post_attention_layernorm": hidden}
    if kind == "qwen3":
        norms |= {f"self_attn.{name}_norm": network["head_dim"] for name in ("q", "k")}
    layer = {f"{name}.weight": shape for name, shape in parts} | {f"{name}.bias": shape[:1] for name, shape in biased}
    layer |= {f"{name}.weight": (size,) for name, size in norms.items()}
    yield from ((name, (network["vocab_size"], hidden)) for name in ("model.embed_tokens.weight", "lm_head.weight"))
    yield "model.norm.weight", (hidden,)
    for number in range(network["num_hidden_layers"]):
        yield from ((f"model.layers.{number}.{name}", shape) for name, shape in layer.items())


def _files(folder: Path) -> list[Path]:
    """The files of weights that transformers reads, whatever else lies beside them, such as copies or an adapter."""
    single, index = folder / "model.safetensors", folder / _INDEX
    if single.exists():
        return [single]
    if not index.exists():
        raise InputError(f"{folder} has neither {single.name} nor {index.name}", _AGAIN)
    return [folder / name for name in index_names(index)]


def _require_indexed(index: Path, files: Mapping[str, Mapping[str, Stored]]) -> None:
    """Check that each tensor of an index is in the file that it names."""
    index_names(index)
    for name, file in mapping(index)["weight_map"].items():
        if name not in files.get(file, ()) and not name.endswith(".inv_freq"):
            lacks = f"does not have {name[:80]!r}" if file in files else "the folder does not have"
            raise InputError(f"{index} names {file}, which {lacks}", _AGAIN)


def _require_numbers(path: Path, stored: Sequence[Stored]) -> None:
    """Refuse a file with a matrix that is zero where some of its bytes are read. Vectors, such as biases, may be."""
    matrices = [item for item in stored if item.dtype in _FLOATS and sum(n > 1 for n in item.shape) > 1]
    empty, read = [], matrices[:: math.ceil(len(matrices) / _SAMPLED) or 1]
    with path.open("rb", buffering=0) as stream:
        for item in read:  # in its middle: the first rows of an embedding may be zero
            stream.seek(max(item.begin, (item.begin + item.end - _BYTES) // 2))
            if not stream.read(min(_BYTES, item.end - item.begin)).strip(b"\0"):
                empty.append(item.name)
    if empty:
        raise InputError(
            f"{path}: {len(empty)} of {len(read)} tensors hold zeros only where sampled, such as {empty[0]}",
            "save the checkpoint again after its weights were gathered, or download it again",
        )


def context(folder: Path, *, embedded: bool) -> int | None:
    """Most tokens of prompt and answer that an engine computes, by config.json; None if it does not say."""
    network = mapping(folder / "config.json")
    if embedded:
        return window(network)
    inner = network.get("text_config")
    limit = (inner if isinstance(inner, Mapping) else network).get("max_position_embeddings")
    return limit if type(limit) is int else None


def index_names(index: Path) -> list[str]:
    """Names of the files of an index, each once; InputError if it names one that does not lie beside it."""
    names = mapping(index).get("weight_map")
    if not isinstance(names, Mapping) or not all(isinstance(name, str) for name in names.values()):
        raise InputError(f"{index}: 'weight_map' must be a mapping of tensors to files", _AGAIN)
    if outside := sorted({name for name in names.values() if Path(name).name != name}):
        raise InputError(f"{index}: {outside[0]!r} does not lie in the same folder", _AGAIN)
    return sorted(set(names.values()))


def mapping(path: Path) -> Mapping[str, Any]:
    """A file that is one JSON object; anything else is an InputError."""
    try:
        content = read_json(path)
    except InputError as error:
        raise InputError(error.message, _AGAIN) from None
    if not isinstance(content, Mapping):
        raise InputError(f"{path} must be a JSON object, found {type(content).__name__}", _AGAIN)
    return content


def headers(path: Path) -> dict[str, Stored]:
    """Every tensor of a safetensors file, from its header; InputError if that does not fit the file's size."""
    try:
        size = require_no_stream(path).stat().st_size
        with path.open("rb") as stream:
            length = int.from_bytes(stream.read(8), "little")
            if length > min(size - 8, _LONGEST_HEADER):
                raise InputError(f"{path} is no whole safetensors file: it has {size} bytes", _AGAIN)
            header = json.loads(stream.read(length))
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from None
    except (ValueError, RecursionError):
        raise InputError(f"{path} is no safetensors file: its header is not JSON", _AGAIN) from None
    if not isinstance(header, dict):
        raise InputError(f"{path} is no safetensors file: its header is no JSON object", _AGAIN)
    about = header.pop("__metadata__", {})
    if not isinstance(about, Mapping) or not all(isinstance(value, str) for value in about.values()):
        raise InputError(f"{path} is no safetensors file: its __metadata__ must hold texts alone", _AGAIN)
    tensors = {name: _stored(path, 8 + length, name, tensor) for name, tensor in header.items()}
    end = 8 + length
    for tensor in sorted(tensors.values(), key=lambda item: (item.begin, item.end)):
        if tensor.begin != end:
            how = "overlaps" if tensor.begin < end else "leaves a gap to"
            raise InputError(f"{path} is damaged: tensor {tensor.name[:80]!r} {how} the one before it", _AGAIN)
        end = tensor.end
    if end != size:
        needed, held = end - 8 - length, size - 8 - length
        raise InputError(f"{path} is cut short or damaged: its tensors need {needed} bytes, it has {held}", _AGAIN)
    return tensors


def _stored(path: Path, start: int, name: str, tensor: Any) -> Stored:
    """An entry of a header, after the number of its bytes was compared with its shape."""
    try:
        (begin, end), shape, dtype = tensor["data_offsets"], tuple(tensor["shape"]), tensor["dtype"]
        whole = all(type(value) is int and value >= 0 for value in (begin, end, *shape))
        right = whole and 8 * (end - begin) == math.prod(shape) * _BITS[dtype]
    except (KeyError, TypeError, ValueError):
        right = False
    if not right:
        raise InputError(f"{path}: tensor {name[:80]!r} has a shape, type and place that do not fit each other", _AGAIN)
    return Stored(path, name, shape, dtype, start + begin, start + end)


# ---- fingerprints


def weight_files(folder: Path) -> list[Path]:
    """The files of a checkpoint that decide what it generates; InputError names one that is missing."""
    if not folder.is_dir():
        raise InputError(f"checkpoint folder {folder} does not exist", "correct the path, or put the folder there")
    paths: list[Path] = []
    for pattern in WEIGHT_FILES:
        matches = sorted(folder.glob(pattern))
        if not matches:
            hint = "download it again, in transformers layout with safetensors; for a gated one, accept its terms first"
            if pattern == "tokenizer.json" and (folder / "tokenizer.model").exists():
                hint = "convert it to a fast tokenizer: load it with transformers, and save it"
            raise InputError(f"checkpoint {folder} has no {pattern}", hint)
        if odd := next((path for path in matches if not path.is_file()), None):
            raise InputError(f"checkpoint {folder}: {odd.name} is no file", "download it again")
        paths += matches
    for index in folder.glob("*.safetensors.index.json"):
        if missing := sorted(set(index_names(index)) - {path.name for path in paths}):
            raise InputError(
                f"checkpoint {folder} has no {', '.join(missing)}, which its {index.name} names", "download it again"
            )
    return paths


def fingerprint(folder: Path, hash_of: Callable[[Path], str] = file_sha256) -> str:
    """sha256 over the hashes of a checkpoint's weight, configuration and tokenizer files."""
    return digest({path.name: hash_of(path) for path in weight_files(folder)}, 64)


# ---- LoRA adapters in PEFT's layout: low-rank matrices that are added to the weights of a checkpoint


SETTINGS, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
PEFT = "base_model.model."
"""What stands before the name of every module in files of peft."""
_HARMLESS = (
    *("peft_type", "peft_version", "task_type", "base_model_name_or_path", "revision", "inference_mode"),
    *("r", "lora_alpha", "lora_dropout", "use_rslora", "init_lora_weights", "auto_mapping"),
    *("target_modules", "exclude_modules", "layers_to_transform", "layers_pattern"),
    *("megatron_core", "qalora_group_size"),  # used only with settings that are refused
)
"""Settings of plain LoRA. Any other must be empty: it would make another sum than the engines compute."""
_STARTS = (True, False, None, "gaussian", "orthogonal", "eva")
"""Values of ``init_lora_weights`` that leave the checkpoint's own weights as they are."""
_ENDS = ("embed_tokens", "lm_head")
_HINT = "merge it into the checkpoint (`merge_and_unload` and `save_pretrained` of peft) and name that folder by `path`"


@dataclass(frozen=True, slots=True)
class Adapter:
    """A plain LoRA adapter: W becomes W + scale · B A, where scale is alpha / r, or alpha / √r under rsLoRA."""

    folder: Path
    rank: int
    """r, the number of rows of A; at least 1."""

    @classmethod
    def read(cls, folder: Path) -> Adapter:
        """An adapter's folder; its weights are not read. InputError if it is damaged, or not plain LoRA."""
        for name in (SETTINGS, WEIGHTS):
            if not (folder / name).is_file():
                raise InputError(
                    f"adapter {folder} has no {name}",
                    "give a folder that peft's `save_pretrained` wrote, with safetensors",
                )
        settings = read_json(folder / SETTINGS)
        if not isinstance(settings, dict):
            raise InputError(f"{folder / SETTINGS} is not a JSON object", "save the adapter again with peft")
        where, rank = folder / SETTINGS, settings.get("r")
        if settings.get("peft_type") != "LORA":
            raise InputError(f"{where}: peft_type is {settings.get('peft_type')!r}, only 'LORA' is supported", _HINT)
        if type(rank) is not int or rank < 1:
            raise InputError(f"{where}: r is {rank!r}, it must be a whole number of at least 1")
        if (starts := settings.get("init_lora_weights")) not in _STARTS:
            raise InputError(f"{where}: init_lora_weights {starts!r} changes the checkpoint, too", _HINT)
        used = sorted(key for key, value in settings.items() if key not in _HARMLESS and value and value != "none")
        if used:
            raise InputError(f"{where}: {', '.join(used)} is more than plain LoRA, which alone is supported", _HINT)
        return cls(folder, rank)

    def fingerprint(self) -> str:
        """sha256 over the hashes of the adapter's settings and weights."""
        return digest({name: file_sha256(self.folder / name) for name in (SETTINGS, WEIGHTS)}, 64)

    def require_fits(self, checkpoint: Path) -> None:
        """Check matrices against a checkpoint's weights, by headers; InputError for one that fits no weight."""
        files = checkpoint.glob("*.safetensors")
        weights = {name: tensor.shape for file in files for name, tensor in headers(file).items()}
        for name, shape in ((name, tensor.shape) for name, tensor in headers(self.folder / WEIGHTS).items()):
            module, _, part = name.removeprefix(PEFT).partition(".lora_")
            rows, columns = weights.get(f"{module}.weight", (None, None))
            if shape == {"A.weight": (self.rank, columns), "B.weight": (rows, self.rank)}.get(part):
                continue
            if module.partition(".base_layer")[0].endswith(_ENDS) and (rows is None or part.startswith("embedding")):
                raise InputError(f"{self.folder}: {name} is LoRA on the embedding or the head, or a copy of it", _HINT)
            raise InputError(
                f"{self.folder}: {name} of shape {shape} fits no weight of {checkpoint} at rank {self.rank}",
                "name the checkpoint that the adapter was trained on, or merge the two yourself",
            )

    def on(self, checkpoint: str) -> str:
        """The fingerprint of a checkpoint, given by its own fingerprint, with this adapter."""
        return digest({"checkpoint": checkpoint, "adapter": self.fingerprint()}, 64)
