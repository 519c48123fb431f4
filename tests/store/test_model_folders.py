"""Folders of checkpoints that are cut short, damaged or foreign: one message, nobody is asked, nothing is run."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

import bad_inputs
import fuzzing
from searchlens.engines.transformers import TransformersEngine
from searchlens.errors import InputError
from searchlens.store.checkpoints import headers, index_names, require_whole, weight_files

LEFT_TO_THE_STUDY = {"no tokenizer"}
"""``store.checkpoints.weight_files`` refuses it; an engine may do without a tokenizer."""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder in which nothing is wrong. Code in it that is run, or unpickled, leaves a file ``owned``."""
    place = tmp_path / "model"
    place.mkdir()
    for name, content in bad_inputs.CHECKPOINT.items():
        (place / name).write_bytes(content)
    (place / "mine.py").write_text("import pathlib\npathlib.Path('owned').touch()\n")
    monkeypatch.chdir(place)
    return place


def change(folder: Path, what: str) -> None:
    name, content = fuzzing.MODELS[what]
    if content is None:
        (folder / name).unlink()
    elif callable(content):
        content(folder / name)
    else:
        (folder / name).write_bytes(content)


def in_one_message(folder: Path, error: InputError) -> bool:
    """Whether a refusal names the folder in few lines, and nothing of the folder was run."""
    lines = [line for line in str(error).splitlines() if not line.startswith("Hint: ")]
    return str(folder) in str(error) and len(lines) <= 3 and not (folder / "owned").exists()


def test_a_whole_folder_is_whole(folder: Path) -> None:
    require_whole(folder, embedded=True)
    require_whole(folder, embedded=False)


@pytest.mark.parametrize("what", sorted(fuzzing.MODELS.keys() - LEFT_TO_THE_STUDY))
def test_both_engines_refuse_it(folder: Path, what: str) -> None:
    """Architectures are vLLM's own affair, and so is the code of a checkpoint, which it is told not to run."""
    change(folder, what)
    with pytest.raises(InputError) as refused:
        TransformersEngine(folder, device="cpu", threads=1)
    assert in_one_message(folder, refused.value)
    if what not in ("architecture", "remote code"):
        with pytest.raises(InputError) as refused:
            require_whole(folder, embedded=False)
        assert in_one_message(folder, refused.value)


def test_every_type_of_number_that_safetensors_writes_is_known(tmp_path: Path) -> None:
    """A type that is missing, or has another size, would refuse a sound checkpoint."""
    kinds = ("bool", "uint", "int", "float", "bfloat", "complex64")
    names = sorted({str(value)[6:] for value in vars(torch).values() if isinstance(value, torch.dtype)})
    written = 0
    for name in (name for name in names if name.startswith(kinds)):
        try:
            save_file({"w": torch.empty(3, 8, dtype=getattr(torch, name))}, tmp_path / name)
        except Exception:  # a type that safetensors does not have
            continue
        written += 1
        (tensor,) = headers(tmp_path / name).values()
        assert tensor.shape[0] == 3, name
    assert written >= 15


@pytest.mark.parametrize(
    "entry",
    [
        {"dtype": "F32", "shape": [4]},
        {"dtype": "F32", "shape": [4], "data_offsets": 16},
        {"shape": [4], "data_offsets": [0, 16]},
        {"dtype": ["F32"], "shape": [4], "data_offsets": [0, 16]},
    ],
)
def test_an_entry_that_is_none_is_refused(entry: object, folder: Path) -> None:
    """Of the header of a file: a key is missing, or has the wrong type or length."""
    content = json.dumps({"w": entry}).encode()
    (folder / "model.safetensors").write_bytes(len(content).to_bytes(8, "little") + content + bytes(16))
    with pytest.raises(InputError, match="tensor 'w' has"):
        headers(folder / "model.safetensors")


def test_an_index_names_files_beside_it(folder: Path) -> None:
    """Several tensors of one file, each file once; what it names must be there."""
    index = folder / "model.safetensors.index.json"
    names = ("lm_head.weight", "model.norm.weight")
    index.write_text(json.dumps({"weight_map": dict.fromkeys(names, "model.safetensors")}))
    require_whole(folder, embedded=True)
    assert index_names(index) == ["model.safetensors"]
    assert {path.name for path in weight_files(folder)} == {"config.json", "model.safetensors", "tokenizer.json"}
    index.write_text(json.dumps({"weight_map": {"w": "model.safetensors", "v": "part-2.safetensors"}}))
    with pytest.raises(
        InputError, match=r"has no part-2\.safetensors, which its model\.safetensors\.index\.json names"
    ):
        weight_files(folder)


def test_a_file_that_decides_what_is_sampled_must_be_there(folder: Path) -> None:
    """A slow tokenizer is to be converted: there is nothing more to download."""
    for name in ("config.json", "model.safetensors"):
        kept = (folder / name).read_bytes()
        (folder / name).unlink()
        with pytest.raises(InputError, match=r"has no config\.json|has no \*\.safetensors"):
            weight_files(folder)
        (folder / name).write_bytes(kept)
    (folder / "tokenizer.json").rename(folder / "tokenizer.model")
    with pytest.raises(InputError, match=r"has no tokenizer\.json") as refused:
        weight_files(folder)
    assert "fast tokenizer" in refused.value.hint
    assert "download" not in refused.value.hint


def test_a_header_as_long_as_safetensors_takes_is_read_and_no_longer_one(tmp_path: Path) -> None:
    """Nothing is read of what a file only pretends to have; the limit is that of safetensors itself."""
    for length, says in ((100_000_000, "its header is not JSON"), (100_000_001, "no whole safetensors file")):
        path = tmp_path / f"{length}.safetensors"
        path.write_bytes(length.to_bytes(8, "little"))
        os.truncate(path, 8 + length)
        with pytest.raises(InputError, match=says):
            headers(path)
