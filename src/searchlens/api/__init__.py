"""The public interface to the results of a study, as frames.

study.py       a results folder: cells, frames, questions
samples.py     texts of a cell with their verdicts
differences.py what changed between two results folders
"""
