"""What is on disk: paths, hashes, shards and their ranges, and files that appear whole.

layout.py       the path of everything under the results folder
hashing.py      hashes of values, files and checkpoints
files.py        writing files so that they appear whole; locks
ranges.py       which samples are there, and which are missing
shards.py       the samples themselves: schema, publication, reading with checks
readouts.py     compact readouts, which stand for samples that are not kept
provenance.py   what made a file: versions, commit, machine, configuration
snapshots.py    the configuration that a run was started with
"""
