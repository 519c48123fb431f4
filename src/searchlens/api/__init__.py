"""The public interface: results of a study as frames, and the readings of answers that one has.

study.py       a results folder: cells, frames, questions
samples.py     texts of a cell with their verdicts
differences.py what changed between two results folders
comparison.py  the readings of right and wrong answers in arrays
statements.py  what these readings can and cannot say, in words
faces.py       how a study and a comparison look in a notebook
"""
