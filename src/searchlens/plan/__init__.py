"""The plan of a study: cells, generation ids and file names, from the configuration.

    _study.py     StudyCells  pairs and cells; whether a cell is sampled, imported or recorded
    _inputs.py    Inputs      questions and weights, their hashes; pinned, fetched, absent
    _jobs.py      Jobs        policies to generation ids; generations cut into pools, one job each
    _grid.py      Grid        file names; samples that the store has and misses; why a run cannot start

Each is given those above it: a ``Grid`` has ``study``, ``inputs`` and ``jobs``.

Standard library only (and modules that import nothing else), because the Snakefile imports this several times per job.
"""

from searchlens.plan._grid import TO_GET_READY, Grid
from searchlens.plan._inputs import FINGERPRINT_LIMIT, Inputs
from searchlens.plan._jobs import GENERATION_VERSION, Generation, JobPool, Traced
from searchlens.plan._study import SOURCES, Import, StudyCells

__all__ = [
    "FINGERPRINT_LIMIT",
    "GENERATION_VERSION",
    "SOURCES",
    "TO_GET_READY",
    "Generation",
    "Grid",
    "Import",
    "Inputs",
    "JobPool",
    "StudyCells",
    "Traced",
]
