"""What a study says, in words: three sentences a cell, as HTML without script for the first page of a report."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from html import escape as escaped
from typing import Any

from searchlens.api import Study
from searchlens.explorer.index import Index


def headline_html(study: Study) -> str:
    """The sentences on every pair on every benchmark, in the order of the study.

    Cells that are not interpretable come first, since they say why the others may be, too.
    """
    titles = {name: spec.title or name for name, spec in study.benchmarks.items()}
    cells = Index(study, frozenset().__contains__, by_ranges=False).cells()
    cells.sort(key=lambda cell: cell["health"]["state"] != "bad")
    return "".join(['<meta charset="utf-8">\n', *_parts(cells, titles)])


def _parts(cells: Sequence[Mapping[str, Any]], titles: Mapping[str, str]) -> Iterator[str]:
    for cell in cells:
        yield f"<p><strong>{escaped(cell['pair'])} on {escaped(titles[cell['benchmark']])}</strong></p>\n"
        yield "<ul>\n" + "".join(f"<li>{escaped(sentence)}</li>\n" for sentence in cell["sentences"]) + "</ul>\n"
