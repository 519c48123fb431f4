"""What passes between stages: the columns of their frames, and the types of their options.

columns.py    frames with fixed columns
metrics.py    frames with columns for each declared metric
options.py    types of option fields
"""
