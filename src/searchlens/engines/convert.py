"""Checkpoint folders from GGUF files of Gemma 3, where a hub cannot be reached (docs/pretrained.md).

A folder appears whole, after its tokenizer was compared with the file's own one, or not at all.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from pathlib import Path
from typing import Any

from searchlens.config import extras
from searchlens.engines import _gguf, _gguf_tokenizer, _gguf_weights
from searchlens.errors import InputError
from searchlens.store import files

__all__ = ["convert"]


CHECKED = 2_000
"""Texts on which ``tokenizer.json`` is compared with the file's own tokenizer before anything is written."""


def convert(source: Path, folder: Path, dtype: str = "bfloat16") -> str:
    """Write a checkpoint folder, new or empty, from a GGUF file of Gemma 3; returns one line about the model.

    Quantised weights are written in ``dtype``: what quantisation lost stays lost. Raises InputError if the file is not
    one of Gemma 3, is cut off, or has a tokenizer that is not one of SentencePiece; a library is missing; the folder
    has files; or ``tokenizer.json`` would cut a text otherwise than the file's own tokenizer.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InputError(f"{folder} is there already", "name a folder that is not, or an empty one")
    extras.require("gguf", "sentencepiece", "google.protobuf", "tokenizers", "safetensors", "torch")
    file = _gguf.read(source)
    reference, tokenizer = _gguf_tokenizer.sentencepiece(file), _gguf_tokenizer.fast(file)
    if found := _gguf_tokenizer.difference(reference, tokenizer, _gguf_tokenizer.texts(file, CHECKED)):
        raise InputError(f"{source}: its vocabulary cannot be written as tokenizer.json: {found}")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}-") as unfinished:
        written = Path(unfinished) / "model"
        written.mkdir()
        parameters = _write(file, tokenizer, written, dtype)
        if folder.exists():
            folder.rmdir()
        shutil.move(written, folder)
    name = file.facts.get("general.name", source.stem)
    return f"{folder}: {name}, {parameters / 1e6:,.0f} M parameters in {dtype}, {len(file.pieces):,} pieces"


def _write(file: _gguf.GgufFile, tokenizer: Any, folder: Path, dtype: str) -> int:
    """Write all files of the folder; the number of parameters."""
    import torch
    from safetensors.torch import save_file

    weights = _gguf_weights.weights(file, getattr(torch, dtype))
    files.replace(folder / "model.safetensors", lambda path: save_file(weights, path, metadata={"format": "pt"}))
    tokenizer.save(str(folder / "tokenizer.json"))
    ids = _gguf_weights.token_ids(file)
    names = {"bos_token": "bos_token_id", "eos_token": "eos_token_id", "pad_token": "padding_token_id"}
    names |= {"unk_token": "unknown_token_id"}
    spelled = {name: file.pieces[_gguf_tokenizer.special(file, key)] for name, key in names.items()}
    described = {"tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": False, **spelled}
    parts = {"config": _gguf_weights.network(file, dtype), "generation_config": ids, "tokenizer_config": described}
    for name, content in parts.items():
        (folder / f"{name}.json").write_text(json.dumps(content, indent=2) + "\n")
    return sum(weight.numel() for weight in weights.values())
