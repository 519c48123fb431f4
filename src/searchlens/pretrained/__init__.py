"""Models that were really pretrained: checkpoints from GGUF files where a hub cannot be reached, and a pair from one.

_gguf.py       what a GGUF file of Gemma 3 says, checked
_tokenizer.py  its pieces as a SentencePiece model, and as tokenizer.json
_weights.py    its tensors by the names of transformers
convert.py     all of them into a folder in the layout of the hub
train.py       a Base/RL pair from such a folder (docs/pretrained.md)
equations.py   whether what a text calculates is true
_lora.py       the adapters that it may train in place of whole weights
"""

from searchlens.pretrained.convert import convert

__all__ = ["convert"]
