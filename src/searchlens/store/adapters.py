"""LoRA adapters in PEFT's layout: low-rank matrices that are added to the weights of a checkpoint.

Standard library only, because the planner reads them.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from searchlens.errors import InputError
from searchlens.store.checkpoints import headers
from searchlens.store.files import digest, file_sha256, read_json

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
