"""A Base/RL pair trained from a pretrained checkpoint (docs/pretrained.md).

train.py       the command: ``python -m searchlens_lab.pretrained.train``
equations.py   whether what a text calculates is true
_lora.py       the adapters that it may train in place of whole weights
"""
