"""What is on disk: paths, hashes, shards and their ranges, and atomic writing.

layout.py       the path of everything under the results folder
hashing.py      hashes of values, files and checkpoints
files.py        atomic writing of files; locks
ranges.py       which samples are there, and which are missing
shards.py       the samples themselves: schema, publication, reading with checks, repair
manifests.py    what a sampling job wrote of its pool when it was done
judges.py       which grader judged a cell
readouts.py     compact readouts, which replace samples in later analyses
provenance.py   what made a file: versions, commit, machine, configuration
snapshots.py    the configuration that a run was started with
"""
