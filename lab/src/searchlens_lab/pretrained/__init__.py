"""A Base/RL pair trained from a pretrained checkpoint (docs/pretrained.md).

train.py       the command: ``python -m searchlens_lab.pretrained.train``; whole weights, or LoRA adapters
equations.py   whether what a text calculates is true
convert.py     the command ``searchlens convert``: a checkpoint folder from a GGUF file of Gemma 3
"""
