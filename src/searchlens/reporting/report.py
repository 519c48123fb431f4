"""The report as one page that opens without a server and asks for nothing."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from urllib.parse import quote

from searchlens import __version__, catalogue
from searchlens.api import pages
from searchlens.api.study import Study
from searchlens.config import addons
from searchlens.reporting import captions
from searchlens.reporting.explorer_index import headline_html
from searchlens.store import provenance


@dataclass(frozen=True)
class Item:
    """A figure or a table."""

    kind: str
    """``figure`` or ``table``."""
    name: str
    """Of its declaration."""
    title: str
    anchor: str
    """What a link to it names."""
    caption: str
    """HTML."""
    content: str
    """The picture as an address, so that identifiers and styles of figures do not meet; of a table what is in its page:
    its parts, its notes, and its CSV as a link."""
    is_long: bool = False
    """A table with so many rows that it is folded."""


@dataclass(frozen=True)
class Section:
    """A part of the page."""

    title: str
    anchor: str
    link: str = ""
    """Where the explorer shows the same; empty: nowhere."""
    items: Sequence[Item] = ()
    sections: Sequence[Section] = ()
    """Parts of the part."""


def contents(study: Study) -> list[Section]:
    """Every section that has something in it."""
    layout = study.layout
    stages = ["study", "likelihood", *(table for stage in addons.stages().values() for table in stage.tables)]
    first = [*_figures("study", layout.study_figure), *(table for stage in stages for table in _tables(study, stage))]
    boptr = [*_figures("boptr", layout.boptr_figure, "boptr-"), *_tables(study, "boptr")]
    sections = [
        Section("1 Study", "study", "#/", first),
        *(_pair(study, pair) for pair in dict.fromkeys(pair for pair, *_ in study.sides)),
        Section("3 BOPTR", "boptr", "#/boptr", boptr),
    ]
    return [section for section in sections if section.items or section.sections]


def _pair(study: Study, pair: str) -> Section:
    parts = []
    for other, benchmark, *_ in study.sides:
        if other == pair:
            path, named = partial(study.layout.figure, pair, benchmark), {"pair": pair, "benchmark": benchmark}
            items = list(_figures("pair", path, f"{pair}-{benchmark}-", named))
            title = study.benchmarks[benchmark].title or benchmark
            parts.append(Section(f"{pair} on {title}", f"{pair}-{benchmark}", f"#/c/{pair}/{benchmark}", items))
    return Section(f"2 {pair}", f"pair-{pair}", sections=[part for part in parts if part.items])


def _figures(
    stage: str, path: Callable[[str, str], Path], prefix: str = "", named: dict[str, str] | None = None
) -> Iterator[Item]:
    """Figures of a stage that were drawn; an optional one has its files in a folder of its own."""
    known = catalogue.declared("figure", stage=stage)
    for stem, (name, metric) in catalogue.figure_files(known).items():
        place = path(stem, "svg")
        file = place.with_suffix("") / place.name if known[name].options.get("optional") else place
        if file.exists() and file.stat().st_size:
            title = captions.readable(name) + (f": {catalogue.titles('metric')[metric]}" if metric else "")
            caption = captions.html(captions.source("figure", name), named)
            drawn = quote(file.read_text(encoding="utf-8").replace("\n", " "), safe=_PLAIN).replace("&", "&amp;")
            yield Item("figure", name, title, f"{prefix}{stem}", caption, f"data:image/svg+xml,{drawn}")


def _tables(study: Study, stage: str) -> Iterator[Item]:
    for name in catalogue.declared("table", stage=stage):
        file = study.layout.table(name, "html")
        if file.exists() and file.stat().st_size:
            caption = captions.html(captions.source("table", name))
            page = file.read_text(encoding="utf-8")
            body = found[1].replace("<h3>", "<h4>").replace("</h3>", "</h4>") if (found := _BODY.search(page)) else ""
            yield Item("table", name, captions.readable(name), f"table-{name}", caption, body, page.count("<tr") > LONG)


FIRST = ("health", "pass_curves")
"""A table and a figure that the first screen shows, behind the headline."""
LONG = 40
"""Rows of a table above which it is folded."""

_BODY = re.compile(r"<body>\n(.*)</body>", re.DOTALL)
FEW = 4
"""Pairs on benchmarks up to which none is folded."""
_PLAIN = "".join(map(chr, range(0x20, 0x7F))).translate(str.maketrans("", "", '"%#'))
"""Characters that may stand in the address of a picture as they are."""


def report_page(study: Study) -> str:
    """The page of a study: headline, health and pass curves, then every figure and table with its caption."""
    sections = contents(study)
    items = {item.name: item for item in sections[0].items} if sections else {}
    name = ", ".join(dict.fromkeys(pair for pair, *_ in study.sides)) or study.results.name
    words = captions.blocks((captions.folder() / "workflow.rst").read_text(encoding="utf-8"))
    return pages.rendered(
        "reporting/report.html.j2",
        title=f"{name}: report",
        name=name,
        headline=headline_html(study),
        about=words["about"],
        order=words["order"],
        first=[items[name] for name in FIRST if name in items],
        running=study.running,
        failed=study.not_made,
        sections=sections,
        few=sum(len(section.sections) for section in sections) <= FEW,
        made=f"searchlens {__version__}, {provenance.now()}, configuration {study.fingerprint}",
    )
