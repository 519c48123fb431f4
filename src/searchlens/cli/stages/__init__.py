"""The stages of a study: one file for each rule of the workflow, from files to files.

A stage reads its inputs, calls the functions of one package, and writes its outputs. It is given what it needs of the
configuration (``plan.needs``) and never sees the configuration itself.

    score.py          samples to verdicts
    landscape.py      verdicts, or compact readouts, to operating points
    recovery.py       two landscapes to gaps, support and paths
    readings.py       answer classes of a study to the readings that use every sample
    boptr.py          landscapes to the frames of BOPTR
    transfer.py       frames of BOPTR to tables and figures
    figures.py        figures of one pair on one benchmark
    overview.py       figures of the whole study
    tables.py         tables of the whole study
    equivalence.py    policies against references

    record.py         scored cells to compact readouts
    importing.py      samples from elsewhere into the store
    costs.py          cost of sampling, from the sidecars of shards
    source.py         the code that a stage depends on
"""
