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

from searchlens.engines._weights import Shape, Weights, read
from searchlens.store.checkpoints import described
from searchlens.store.files import read_json

_GIVEN = {"num_key_value_heads", "max_position_embeddings", "rms_norm_eps", "hidden_act", "tie_word_embeddings"}


@dataclass(frozen=True, slots=True)
class PlainFolder:
    """A checkpoint's folder that needs no other library.

    Attributes
    ----------
    folder : Path
    config : mapping
        As ``described``.
    """

    folder: Path
    config: Mapping[str, Any]

    @classmethod
    def of(cls, folder: Path) -> PlainFolder | None:
        """The folder if it is plain, else None. Its files are whole (``store.checkpoints.require_whole``)."""
        config = read_json(folder / "config.json")
        if not _is_plain(config) or [path.name for path in folder.glob("*.safetensors")] != ["model.safetensors"]:
            return None
        return cls(folder, described(folder))

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
