"""A GGUF file of Gemma 3: its facts, its vocabulary and its tensors, with one clear error for every other file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from searchlens.errors import InputError
from searchlens.store.inputs import require_no_stream

ARCHITECTURE = "gemma3"
_MAGIC = b"GGUF"
_SENTENCEPIECE = "llama"
"""What GGUF calls a vocabulary of SentencePiece."""


@dataclass(frozen=True)
class GgufFile:
    """The content of a file that can be converted."""

    path: Path
    facts: Mapping[str, Any]
    """Every key of the file but the vocabulary, without the prefix ``gemma3.``."""
    pieces: list[str]
    """The vocabulary, as SentencePiece spells it."""
    scores: list[float]
    types: list[int]
    """By ``sentencepiece``: 1 normal, 2 unknown, 3 control, 4 user-defined, 5 unused, 6 byte."""
    tensors: Mapping[str, Any]
    """Name to a tensor of ``gguf.GGUFReader``."""

    def fact(self, key: str) -> Any:
        """One fact. Raises InputError if the file does not have it."""
        if key not in self.facts:
            raise InputError(f"{self.path} does not say {key!r}", "is it a whole model? Files of adapters are not")
        return self.facts[key]


def read(path: Path) -> GgufFile:
    """Read a file without its tensors' content; InputError if it is cut off, or of other architecture or tokenizer."""
    reader = _reader(path)
    content = {name: field.contents() for name, field in reader.fields.items() if name != "GGUF.version"}
    architecture = content.get("general.architecture")
    if architecture != ARCHITECTURE:
        raise InputError(
            f"{path} holds a model of architecture {architecture!r}; {ARCHITECTURE!r} can be converted",
            "take the checkpoint in the layout of transformers instead",
        )
    if (kind := content.get("tokenizer.ggml.model")) != _SENTENCEPIECE:
        raise InputError(
            f"{path}: its tokenizer is {kind!r}, not one of SentencePiece ({_SENTENCEPIECE!r} in GGUF)",
            "every published Gemma 3 has one of SentencePiece; take another file",
        )
    lists = [content.pop(f"tokenizer.ggml.{name}", None) for name in ("tokens", "scores", "token_type")]
    if any(each is None for each in lists) or len({len(each) for each in lists}) != 1:
        raise InputError(f"{path}: its vocabulary lacks texts, scores or types of some pieces", "take another file")
    pieces, scores, types = lists
    facts = {name.removeprefix(f"{ARCHITECTURE}."): value for name, value in content.items()}
    tensors = {tensor.name: tensor for tensor in reader.tensors}
    # As SentencePiece spells them: converters to GGUF write the spaces of user-defined pieces plainly.
    spelled = [piece.replace(" ", "▁") if kind == 4 else piece for piece, kind in zip(pieces, types, strict=True)]
    return GgufFile(path, facts, spelled, scores, types, tensors)


def _reader(path: Path) -> Any:
    import gguf

    try:
        with require_no_stream(path).open("rb") as stream:
            begin = stream.read(len(_MAGIC))
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from None
    if begin != _MAGIC:
        raise InputError(f"{path} is no GGUF file: it begins with {begin!r}, not {_MAGIC!r}")
    try:
        reader = gguf.GGUFReader(path)
        for tensor in reader.tensors:
            tensor.data.shape  # noqa: B018  # the last one ends the file
    except (ValueError, IndexError, KeyError, OverflowError, UnicodeDecodeError, MemoryError) as error:
        raise InputError(
            f"{path} is cut off or damaged ({type(error).__name__}: {error})",
            "compare its size and sha256 with those of its source",
        ) from None
    return reader
