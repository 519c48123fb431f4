"""The first pages of a run: report and explorer of what is complete, while the rest is sampled."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from searchlens.api.study import Study
from searchlens.cli.stages.explorer import explorer
from searchlens.cli.stages.landscape import landscape
from searchlens.cli.stages.measures import measures
from searchlens.cli.stages.recovery import recovery
from searchlens.cli.stages.report import report
from searchlens.cli.stages.tables import tables
from searchlens.plan import Grid, needs
from searchlens.store import files
from searchlens.store.provenance import config_fingerprint

SAMPLED = ("generations", "manifests", "scores", "traces")
"""Folders of the results in which the explorer finds samples."""


def preview(grid: Grid) -> Sequence[str]:
    """Write both pages with the benchmarks that are complete, and return their names.

    Nothing is written if there are none. Neither is it if the measures of the whole study are there, because its pages
    are then made or about to be. All other files are temporary: the run computes them as if there had been no preview.
    """
    names = grid.complete_benchmarks
    if not names or grid.is_measured:
        return []
    with files.temporary_folder(grid.layout.results / "preview") as folder:
        for name in SAMPLED:
            folder.joinpath(name).symlink_to((grid.layout.results / name).absolute())
        shown = replace(grid.config.study, benchmarks=tuple(names), figures=(), agreement=0, likelihood=None)
        study = _computed(Grid(replace(grid.config, results=str(folder.absolute()), study=shown), grid.root), grid)
        pages = (grid.layout.report, grid.layout.explorer)
        report(study, folder / pages[0].name)
        explorer(study, folder / pages[1].name)
        if not grid.is_measured:
            for page in pages:
                files.replace_text(page, (folder / page.name).read_text("utf-8"))
    return names


def _computed(part: Grid, whole: Grid) -> Study:
    """Everything that the pages show of the complete benchmarks, in the folder of the part."""
    fingerprint = config_fingerprint(whole.config)
    for checkpoint, benchmark in part.study.cells:
        own = part.layout.landscape(checkpoint, benchmark)
        if counts := part.study.recorded_counts.get((checkpoint, benchmark)):
            landscape(needs.landscape(part, benchmark), counts, own, fingerprint)
        else:
            files.make_folder(own.parent)
            own.symlink_to(whole.layout.landscape(checkpoint, benchmark).absolute())
    for pair, benchmark in part.study.pair_cells:
        base, rl = (part.layout.landscape(part.study.pairs[pair][role], benchmark) for role in ("base", "rl"))
        recovery(needs.recovery(part, benchmark), base, rl, part.layout.recovery(pair, benchmark), fingerprint)
    measures(needs.measures(part), part.layout, fingerprint=fingerprint)
    tables(needs.tables(part), part.layout, part.layout, fingerprint=fingerprint)
    return Study(Path(part.layout.results), part.root, part.config, fingerprint, running=still_running(part, whole))


def still_running(part: Grid, whole: Grid) -> str:
    """What the pages do not show yet, as a sentence."""
    titles = [
        whole.study.benchmark(name).title or name
        for name in whole.config.study.benchmarks
        if name not in part.config.study.benchmarks
    ]
    rest = "" if whole.study.without_boptr else ", and BOPTR,"
    return (
        f"Still running: {', '.join(titles)}. These{rest} and the figures are not in this page yet."
        " The run replaces it at its end."
    )
