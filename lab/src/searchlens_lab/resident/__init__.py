"""The embedded engine for toys on a GPU: rows stay on the device, and the host looks at them every few steps.

engine.py        the engine, and when rows can stay
_resident.py     requests in such rows, and finished texts that can be continued
_device_rows.py  the state of a row on the device, and the step as a graph
_attention.py    attention as one kernel
"""
