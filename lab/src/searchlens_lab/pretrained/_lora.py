"""LoRA adapters (Hu et al. 2021): low-rank matrices that are trained in place of the weights of a network's layers.

They are parametrisations of torch: the layers see W + scale · B A, and neither training nor sampling knows of it. What
is written is an adapter in PEFT's layout, which both engines read.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from searchlens import seeds
from searchlens.errors import InputError
from searchlens.store.adapters import PEFT, SETTINGS, WEIGHTS

LAYERS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
"""The linear layers of attention and of the feed-forward part."""
ALPHA = 32
"""With the scale alpha / r the best learning rate hardly depends on r (Schulman et al. 2025, LoRA Without Regret)."""


class LowRank(nn.Module):
    """W becomes W + alpha / r · B A.

    ``weight``: W, shape (outputs, inputs). ``a``: where A starts, shape (r, inputs). B starts at 0, so that the network
    starts as it is.
    """

    def __init__(self, weight: Tensor, a: Tensor) -> None:
        super().__init__()
        self.scale = ALPHA / len(a)
        self.a = nn.Parameter(a.to(weight.device))
        self.b = nn.Parameter(torch.zeros(len(weight), len(a), device=weight.device))

    def forward(self, weight: Tensor) -> Tensor:
        """The sum, in the type of W; bfloat16 would lose most of a small product."""
        with torch.autocast(weight.device.type, enabled=False):
            return torch.addmm(weight, self.b, self.a, alpha=self.scale)


def add(model: Any, rank: int, seed: int) -> dict[str, LowRank]:
    """Make an adapter all that can be trained of a network; each layer's name with its matrices.

    ``rank``: at least 1. Raises InputError if the network has no layers of these names.
    """
    model.requires_grad_(False)
    adapter = {}
    for name, layer in model.named_modules():
        if name.rpartition(".")[2] in LAYERS:
            bound = 1 / math.sqrt(layer.in_features)  # as peft starts
            start = seeds.generator("LoRA", seed, name).uniform(-bound, bound, (rank, layer.in_features))
            adapter[name] = LowRank(layer.weight, torch.tensor(start, dtype=torch.float32))
    if not adapter:
        raise InputError(
            f"the network has no layers {', '.join(LAYERS)}",
            "train whole weights, or take a model whose layers have these names",
        )
    for name, matrices in adapter.items():
        parametrize.register_parametrization(model.get_submodule(name), "weight", matrices)
    return adapter


def save(adapter: dict[str, LowRank], folder: Path) -> None:
    """Write an adapter in bfloat16, in PEFT's layout."""
    from safetensors.torch import save as as_bytes  # its `save_file` gives files that others cannot read

    folder.mkdir(parents=True, exist_ok=True)
    tensors = {}
    for name, matrices in adapter.items():
        for part, weight in (("A", matrices.a), ("B", matrices.b)):
            tensors[f"{PEFT}{name}.lora_{part}.weight"] = weight.detach().to(torch.bfloat16).cpu()
    (folder / WEIGHTS).write_bytes(as_bytes(tensors, {"format": "pt"}))
    rank = len(next(iter(adapter.values())).a)
    settings = {"peft_type": "LORA", "task_type": "CAUSAL_LM", "r": rank, "lora_alpha": ALPHA, "lora_dropout": 0.0}
    named = {**settings, "target_modules": list(LAYERS), "bias": "none"}
    (folder / SETTINGS).write_text(json.dumps(named, indent=1) + "\n")
