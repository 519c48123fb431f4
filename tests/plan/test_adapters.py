"""Adapters of a configuration: what is refused when a study is planned, and that ids follow settings and weights."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from conftest import Make, Raw
from searchlens.errors import InputError
from searchlens.store.checkpoints import SETTINGS, WEIGHTS, Adapter

PLAIN = {"peft_type": "LORA", "r": 8, "lora_alpha": 16, "target_modules": ["q_proj"], "bias": "none", "use_dora": False}


def write(folder: Path, settings: object = PLAIN, weights: bytes = b"weights") -> Path:
    """The planner hashes weights and does not open them."""
    folder.mkdir(exist_ok=True)
    (folder / SETTINGS).write_text(json.dumps(settings))
    (folder / WEIGHTS).write_bytes(weights)
    return folder


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"peft_type": "IA3"}, "only 'LORA' is supported"),
        ({"use_dora": True}, "use_dora is more than plain LoRA"),
        ({"bias": "all"}, "bias is more than plain LoRA"),
        ({"rank_pattern": {"q_proj": 4}, "modules_to_save": ["lm_head"]}, "modules_to_save, rank_pattern is more"),
        ({"invented_by_a_later_version": 1}, "invented_by_a_later_version is more"),
        ({"init_lora_weights": "pissa"}, "changes the checkpoint, too"),
        ({"r": 0}, "r is 0, it must be"),
        ({"r": True}, "r is True, it must be"),
    ],
)
def test_only_plain_lora_is_read(change: dict[str, Any], message: str, tmp_path: Path) -> None:
    """Whatever else an adapter holds would silently be left out by one of the engines."""
    with pytest.raises(InputError, match=message):
        Adapter.read(write(tmp_path / "adapter", PLAIN | change))


def test_an_adapter_of_the_lowest_rank_is_read(tmp_path: Path) -> None:
    assert Adapter.read(write(tmp_path / "adapter", PLAIN | {"r": 1})).rank == 1


@pytest.mark.parametrize("start", [True, False, None, "gaussian", "orthogonal", "eva"])
def test_how_an_adapter_was_begun_does_not_matter(start: object, tmp_path: Path) -> None:
    """None of these changes the weights of the checkpoint."""
    assert Adapter.read(write(tmp_path / "adapter", PLAIN | {"init_lora_weights": start})).rank == 8


def test_a_matrix_of_a_weight_that_is_not_there_does_not_fit(tmp_path: Path) -> None:
    """Not even one without columns or rows: vLLM would leave it out."""
    checkpoint, names = tmp_path / "checkpoint", ("A", "B")
    checkpoint.mkdir()
    save_file({"layer.weight": torch.zeros(3, 5)}, checkpoint / "model.safetensors")
    for part, fits, no_weight in zip(names, ((8, 5), (3, 8)), ((8, 0), (0, 8)), strict=True):
        adapter = Adapter.read(write(tmp_path / "adapter"))
        for module, shape, found in (("layer", fits, True), ("layer", fits[::-1], False), ("other", no_weight, False)):
            matrix = {f"base_model.model.{module}.lora_{part}.weight": torch.zeros(*shape)}
            save_file(matrix, tmp_path / "adapter" / WEIGHTS)
            if found:
                adapter.require_fits(checkpoint)
            else:
                with pytest.raises(InputError, match="fits no weight of"):
                    adapter.require_fits(checkpoint)


@pytest.mark.parametrize("settings", [[], "text", {}])
def test_damaged_settings_are_named(settings: object, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=SETTINGS):
        Adapter.read(write(tmp_path / "adapter", settings))


def test_a_missing_file_names_the_key(raw: Raw, make_grid: Make, tmp_path: Path) -> None:
    raw["checkpoints"]["toy-rl"]["adapter"] = str(write(tmp_path / "adapter"))
    (tmp_path / "adapter" / WEIGHTS).unlink()
    with pytest.raises(InputError, match=rf"checkpoints\.toy-rl\.adapter: .* has no {WEIGHTS}"):
        make_grid(raw).inputs.fingerprint("toy-rl")


def test_ids_follow_the_checkpoint_and_the_adapter(raw: Raw, make_grid: Make, tmp_path: Path) -> None:
    """RL as an adapter on Base is another checkpoint than Base, and than any other adapter on it."""
    base, rl = raw["checkpoints"]["toy-base"], raw["checkpoints"]["toy-rl"]

    def ids(**settings: Any) -> tuple[str, str]:
        raw["checkpoints"]["toy-rl"] = rl | settings
        grid = make_grid(raw)
        return grid.inputs.fingerprint("toy-base"), grid.inputs.fingerprint("toy-rl")

    one, other = write(tmp_path / "one"), write(tmp_path / "other", PLAIN | {"lora_alpha": 32})
    third = write(tmp_path / "third", weights=b"others")
    alone = ids()
    found = [ids(path=base["path"], adapter=str(path)) for path in (one, other, third)]
    assert {before for before, _ in found} == {alone[0]}
    assert len({alone[0], alone[1], *(after for _, after in found)}) == 5
    assert ids(path=base["path"], adapter=str(one)) == found[0]


def test_an_adapter_of_another_checkpoint_is_refused_before_anything_runs(
    raw: Raw, make_grid: Make, tmp_path: Path
) -> None:
    """The checkpoint of this study has one vector; no matrix fits it."""
    name = "base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight"
    header = json.dumps({name: {"dtype": "F32", "shape": [8, 2], "data_offsets": [0, 64]}}).encode()
    weights = len(header).to_bytes(8, "little") + header + bytes(64)
    raw["checkpoints"]["toy-rl"]["adapter"] = str(write(tmp_path / "adapter", weights=weights))
    with pytest.raises(InputError, match=r"checkpoints\.toy-rl\.adapter: .*q_proj.* fits no weight"):
        make_grid(raw).inputs.require_whole("toy-rl")
