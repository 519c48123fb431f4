"""Stage ``recoveries``: the recovery analyses of all pairs whose cells are both recorded, in one job."""

from __future__ import annotations

from typing import TYPE_CHECKING

from searchlens.stages._processes import shared
from searchlens.stages.recovery import recovery
from searchlens.store.layout import Layout

if TYPE_CHECKING:
    from searchlens.grid import needs


def recoveries(study: needs.Recoveries, layout: Layout, *, fingerprint: str, threads: int = 1) -> None:
    """Compare the recorded pairs.

    Parameters
    ----------
    layout : Layout
        Results folder with the landscapes.
    fingerprint : str
        Of the configuration, for the provenance.
    threads : int
        Processes that share the work.

    Raises
    ------
    InputError
        A landscape is missing or damaged, or the two sides of a pair were asked different questions.
    """
    jobs = [
        (
            study.recovery[benchmark],
            layout.landscape(base, benchmark),
            layout.landscape(rl, benchmark),
            layout.recovery(pair, benchmark),
            fingerprint,
        )
        for pair, benchmark, base, rl in study.pairs
    ]
    shared(recovery, jobs, threads)
