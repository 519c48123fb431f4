"""The embedded engine for toys on a GPU: rows stay on the device, and the host looks at them every few steps.

engine.py        the engine, and when rows can stay
_resident.py     requests in such rows
_device_rows.py  the state of a row on the device, and the step as a graph
_kept_texts.py   finished texts whose rows can be continued
_attention.py    attention as one kernel
"""
