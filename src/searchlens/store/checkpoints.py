"""Whether the folder of a checkpoint is whole: its JSON files, and the headers of its weights against their sizes.

A download that was cut off, a folder of another tool, or one that was made to do harm is noticed here, before anything
is loaded. No weights are read, and no file is ever unpickled. Standard library only, because the planner imports it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from searchlens.errors import InputError
from searchlens.store.files import read_json
from searchlens.store.inputs import require_no_stream

EMBEDDED = ("llama", "mistral", "qwen2", "qwen3")
"""Model types that the embedded engine computes."""

_LONGEST_HEADER = 100_000_000
"""Bytes; the limit of safetensors itself."""

_BITS = {
    "BOOL": 8,
    "U8": 8,
    "I8": 8,
    "U16": 16,
    "I16": 16,
    "U32": 32,
    "I32": 32,
    "U64": 64,
    "I64": 64,
    "F16": 16,
    "BF16": 16,
    "F32": 32,
    "F64": 64,
    "C64": 64,
    "F8_E4M3": 8,
    "F8_E5M2": 8,
    "F8_E8M0": 8,
    "F4": 4,
    "F8_E4M3FNUZ": 8,
    "F8_E5M2FNUZ": 8,
    "F6_E2M3": 6,
    "F6_E3M2": 6,
}
"""Bits of a number, by the name of its type in safetensors."""

_AGAIN = "download it again, or copy the whole folder"


def require_whole(folder: Path, *, embedded: bool) -> None:
    """Check a checkpoint's folder. Which files a study needs says ``hashing.weight_files``.

    Parameters
    ----------
    folder : Path
    embedded : bool
        The embedded engine runs it, which knows the types ``EMBEDDED`` alone.

    Raises
    ------
    InputError
        A file is damaged, is cut short, is not of transformers' layout, or needs code of its own.
    """
    config = mapping(folder / "config.json")
    kind = config.get("model_type")
    if not isinstance(kind, str) or not kind:
        raise InputError(f"{folder / 'config.json'}: 'model_type' must be a text, found {kind!r}", _AGAIN)
    if embedded and kind not in EMBEDDED:
        code = "; it brings code of its own (auto_map), which is never run" if config.get("auto_map") else ""
        raise InputError(
            f"{folder}: model type {kind!r} is not supported by the embedded engine, only {', '.join(EMBEDDED)}{code}",
            "set engine: vllm for other architectures",
        )
    tokenizer = folder / "tokenizer.json"
    if tokenizer.exists() and not isinstance(mapping(tokenizer).get("model"), Mapping):
        raise InputError(f"{tokenizer} is no tokenizer: it has no 'model'", _AGAIN)
    for index in folder.glob("*.safetensors.index.json"):
        index_names(index)
    if not (weights := sorted(folder.glob("*.safetensors"))):
        raise InputError(f"{folder} has no *.safetensors; weights that are pickled are never loaded", _AGAIN)
    for path in weights:
        shapes(path)


def context(folder: Path) -> int | None:
    """Most tokens of prompt and answer that a model was made for, by its config.json; None if it does not say."""
    config = mapping(folder / "config.json")
    limit = (config.get("text_config") or config).get("max_position_embeddings")
    return limit if type(limit) is int else None


def index_names(index: Path) -> list[str]:
    """Names of the files that an index of weights names, each once.

    Raises
    ------
    InputError
        It is no index, or names a file that does not lie beside it.
    """
    names = mapping(index).get("weight_map")
    if not isinstance(names, Mapping) or not all(isinstance(name, str) for name in names.values()):
        raise InputError(f"{index}: 'weight_map' must be a mapping of tensors to files", _AGAIN)
    if outside := sorted({name for name in names.values() if Path(name).name != name}):
        raise InputError(f"{index}: {outside[0]!r} does not lie in the same folder", _AGAIN)
    return sorted(set(names.values()))


def mapping(path: Path) -> Mapping[str, Any]:
    """A file that is one JSON object; anything else is an InputError."""
    content = read_json(path)
    if not isinstance(content, Mapping):
        raise InputError(f"{path} must be a JSON object, found {type(content).__name__}", _AGAIN)
    return content


def shapes(path: Path) -> dict[str, tuple[int, ...]]:
    """The shape of every tensor of a safetensors file, from its header, which is compared with the file's size.

    Raises
    ------
    InputError
        The file is missing, damaged or cut short.
    """
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
    if not isinstance(header, Mapping):
        raise InputError(f"{path} is no safetensors file: its header is no JSON object", _AGAIN)
    end = 0
    for name, tensor in header.items():
        if name != "__metadata__":
            end = max(end, _end(path, name, tensor))
    if end != size - 8 - length:
        held = size - 8 - length
        raise InputError(f"{path} is cut short or damaged: its tensors need {end} bytes, it has {held}", _AGAIN)
    return {name: tuple(tensor["shape"]) for name, tensor in header.items() if name != "__metadata__"}


def _end(path: Path, name: str, tensor: object) -> int:
    """Where the bytes of a tensor end, after their number was compared with its shape."""
    try:
        assert isinstance(tensor, Mapping)
        begin, end = tensor["data_offsets"]
        numbers = math.prod(tensor["shape"])
        whole = all(type(value) is int and value >= 0 for value in (begin, end, *tensor["shape"]))
        right = whole and 8 * (end - begin) == numbers * _BITS[tensor["dtype"]]
    except (AssertionError, KeyError, TypeError, ValueError):
        right, end = False, 0
    if not right:
        raise InputError(f"{path}: tensor {name[:80]!r} has a shape, type and place that do not fit each other", _AGAIN)
    return int(end)
