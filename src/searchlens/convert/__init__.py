"""Checkpoint folders from GGUF files of Gemma 3, where a hub cannot be reached (docs/pretrained.md).

_gguf.py       what a GGUF file says, checked
_tokenizer.py  its pieces as a SentencePiece model, and as tokenizer.json
_weights.py    its tensors by the names of transformers
_folder.py     all of them into a folder in the layout of the hub
"""

from searchlens.convert._folder import convert

__all__ = ["convert"]
