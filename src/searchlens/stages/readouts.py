"""Stage ``readouts``: landscapes of all recorded cells, from their compact readouts, in one job.

Each takes a moment: as jobs of their own they would take longer to start than to run. A landscape that was made from
the same readouts, by the same code and options, is left as it is.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING

from searchlens.catalogue import LANDSCAPE_FRAMES
from searchlens.stages._processes import shared
from searchlens.stages.landscape import landscape
from searchlens.stages.source import stage_source
from searchlens.store.files import read_json
from searchlens.store.hashing import digest, file_sha256
from searchlens.store.layout import CONTENT, GRADER, SIGNATURE, Layout, readouts_sidecar

if TYPE_CHECKING:
    from searchlens.grid import needs

log = logging.getLogger(__name__)


def readouts(study: needs.Readouts, layout: Layout, *, fingerprint: str, threads: int = 1) -> None:
    """Write the landscapes of the recorded cells that are missing, or were made from something else.

    Parameters
    ----------
    fingerprint : str
        Of the configuration, for the provenance.
    threads : int
        Processes that share the work.

    Raises
    ------
    InputError
        Readouts are damaged.
    """
    source, jobs = stage_source("landscape"), []
    for checkpoint, benchmark, path in study.cells:
        cell, folder = study.landscape[benchmark], layout.landscape(checkpoint, benchmark)
        made_from = digest([source, vars(cell), *map(file_sha256, (Path(path), readouts_sidecar(Path(path))))], 16)
        if not _is_made_from(folder, made_from):
            (folder / SIGNATURE).unlink(missing_ok=True)  # a killed job leaves no signature of a mixture
            jobs.append((cell, Path(path), folder, fingerprint, made_from))
    shared(landscape, jobs, threads)
    log.info("%d of %d landscapes made, the others are current", len(jobs), len(study.cells))


def _is_made_from(folder: Path, made_from: str) -> bool:
    """Whether a landscape is complete and says that it was made from this."""
    names = [SIGNATURE, CONTENT, GRADER, *(f"{frame}.parquet" for frame in LANDSCAPE_FRAMES)]
    return (
        all((folder / name).exists() for name in names) and read_json(folder / SIGNATURE).get("made_from") == made_from
    )
