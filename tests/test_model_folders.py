"""Folders of checkpoints that are cut short, damaged or foreign: one message, nobody is asked, nothing is run."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import fuzzing
from searchlens.engines import _llama, vllm
from searchlens.errors import InputError
from searchlens.store.checkpoints import require_whole

LEFT_TO_THE_STUDY = {"no tokenizer", "index names another"}
"""``hashing.weight_files`` refuses them; an engine may do without a tokenizer."""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder in which nothing is wrong. Whoever is asked anything fails, and so does unpickling."""

    def asked(*_: object) -> str:
        raise AssertionError("somebody was asked, or something unpickled")

    for name in ("builtins.input", "torch.load", "pickle.load", "pickle.loads"):
        monkeypatch.setattr(name, asked)
    place = tmp_path / "model"
    place.mkdir()
    for name, content in fuzzing.CHECKPOINT.items():
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
def test_the_embedded_engine_refuses_it(folder: Path, what: str) -> None:
    change(folder, what)
    with pytest.raises(InputError) as refused:
        _llama.load(folder, None, torch.device("cpu"), torch.float32)
    assert in_one_message(folder, refused.value)


@pytest.mark.parametrize("what", sorted(fuzzing.MODELS.keys() - LEFT_TO_THE_STUDY - {"architecture"}))
def test_vllm_refuses_it(folder: Path, what: str) -> None:
    """Before it starts. Architectures are its own affair."""
    change(folder, what)
    with pytest.raises(InputError) as refused:
        vllm._load_config(folder, None)
    assert in_one_message(folder, refused.value)
