"""Models that were really pretrained, where a hub cannot be reached: checkpoints from GGUF files (docs/pretrained.md).

_gguf.py       what a GGUF file of Gemma 3 says, checked
_tokenizer.py  its pieces as a SentencePiece model, and as tokenizer.json
_weights.py    its tensors by the names of transformers
convert.py     all of them into a folder in the layout of the hub
"""

from searchlens.pretrained.convert import convert

__all__ = ["convert"]
