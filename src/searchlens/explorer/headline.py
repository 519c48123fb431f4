"""What a study says, in words: three sentences a cell, as HTML without script for the first page of a report."""

from __future__ import annotations

from searchlens.api import Study
from searchlens.explorer.index import Index
from searchlens.project import pages


def headline_html(study: Study) -> str:
    """The sentences on every pair on every benchmark, in the order of the study.

    Cells that are not interpretable come first, since they say why the others may be, too.
    """
    titles = {name: spec.title or name for name, spec in study.benchmarks.items()}
    cells = Index(study, frozenset().__contains__, by_ranges=False).cells()
    cells.sort(key=lambda cell: cell["health"]["state"] != "bad")
    return pages.rendered("explorer/headline.html.j2", cells=cells, titles=titles)
