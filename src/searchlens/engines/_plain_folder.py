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
from tokenizers import Tokenizer

from searchlens.engines._weights import Shape, Weights, read
from searchlens.store.checkpoints import described
from searchlens.store.files import read_json

_TOKENIZERS = (
    "TokenizersBackend",
    "PreTrainedTokenizerFast",
)  # classes of transformers without defaults for these:
_SPECIALS = ("bos_token", "eos_token", "pad_token")
_GIVEN = {"num_key_value_heads", "max_position_embeddings", "rms_norm_eps", "hidden_act", "tie_word_embeddings"}
_ELSEWHERE = ("special_tokens_map.json", "added_tokens.json")  # more of a tokenizer than this reads


@dataclass(frozen=True, slots=True)
class PlainFolder:
    """A checkpoint's folder that needs no other library.

    Attributes
    ----------
    folder : Path
    config : mapping
        As ``described``.
    bos_id, pad_id : int or None
        As ``_checks.special_ids`` returns them.
    """

    folder: Path
    config: Mapping[str, Any]
    bos_id: int | None
    pad_id: int | None

    @classmethod
    def of(cls, folder: Path) -> PlainFolder | None:
        """The folder if it is plain, else None. Its files are whole (``store.checkpoints.require_whole``)."""
        config = read_json(folder / "config.json")
        if not _is_plain(config) or [path.name for path in folder.glob("*.safetensors")] != ["model.safetensors"]:
            return None
        specials = _special_ids(folder, config)
        return specials and cls(folder, described(folder), *specials)

    def weights(self, dtype: torch.dtype) -> Weights:
        """Read the weights, as numbers of a type."""
        shape = Shape.of(self.config)
        steps = torch.arange(0, shape.head_dim, 2, dtype=torch.int64).float() / shape.head_dim
        frequencies = 1.0 / self.config["rope_parameters"]["rope_theta"] ** steps
        return Weights(shape, float(self.config["rms_norm_eps"]), read(self.folder, dtype), frequencies, 1.0)


def _is_plain(config: Mapping[str, Any]) -> bool:
    """Whether config.json, which is right, leaves nothing out, and asks for nothing but the usual rotations."""
    rope = config.get("rope_parameters")
    return (
        config.keys() >= _GIVEN
        and isinstance(rope, Mapping)
        and rope.keys() == {"rope_theta", "rope_type"}
        and rope["rope_type"] == "default"
        and (config["model_type"] == "llama" or config.get("sliding_window", 0) is None)
        and set(config.get("layer_types") or ()) <= {"full_attention"}
        and ("head_dim" in config or config["model_type"] != "qwen3")
        and not any(config.get(key) for key in ("auto_map", "rope_scaling"))
        and not config.keys() & {"rope_theta", "partial_rotary_factor"}
    )


def _special_ids(folder: Path, config: Mapping[str, Any]) -> tuple[int | None, int | None] | None:
    """Ids of BOS and pad; None if the tokenizer's files leave them, or EOS, to transformers."""
    paths = [folder / name for name in ("tokenizer.json", "tokenizer_config.json")]
    if not all(path.exists() for path in paths) or any((folder / name).exists() for name in _ELSEWHERE):
        return None
    settings = read_json(paths[1])
    is_said = settings.get("tokenizer_class") in _TOKENIZERS or set(_SPECIALS) <= settings.keys()
    if not is_said or "added_tokens_decoder" in settings:
        return None
    names = [settings.get(name) for name in _SPECIALS]
    if not all(name is None or isinstance(name, str) for name in names):
        return None
    tokenizer = Tokenizer.from_file(str(paths[0]))
    ids = [None if name is None else tokenizer.token_to_id(name) for name in names]
    if any(name is not None and token is None for name, token in zip(names, ids, strict=True)):
        return None
    bos, eos, pad = ids
    generation = folder / "generation_config.json"
    ends: set[int | None] = {eos}
    for source in (config, read_json(generation) if generation.exists() else {}):
        end = source.get("eos_token_id")
        ends.update(end if isinstance(end, list) else [end])
    pad = config.get("pad_token_id") if pad is None else pad
    return bos, None if pad in ends else pad
