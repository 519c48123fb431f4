"""The report as one page that opens without a server and asks for nothing."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from urllib.parse import quote

from searchlens import __version__, catalogue
from searchlens.api import pages
from searchlens.api.study import Study
from searchlens.config import addons
from searchlens.reporting import captions
from searchlens.reporting.explorer_index import Index, described
from searchlens.search import kinds
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
    files: Mapping[str, str]
    """Path in the results folder to its address from the page: of the CSV, and of a figure for print."""
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


@dataclass(frozen=True)
class Report:
    """What the page of a study is made from."""

    study: Study
    folder: Path
    """Where the page will be, from which its links begin."""

    def links(self, *paths: Path) -> dict[str, str]:
        """Those files that are there: the path in the results folder to the address."""
        return {
            path.relative_to(self.study.results).as_posix(): quote(Path(os.path.relpath(path, self.folder)).as_posix())
            for path in paths
            if path.exists()
        }

    def contents(self) -> list[Section]:
        """Every section that has something in it."""
        study, layout = self.study, self.study.layout
        stages = ["study", "likelihood", *(table for stage in addons.stages().values() for table in stage.tables)]
        tables = (table for stage in stages for table in self._tables(stage))
        figures = (figure for stage in ("study", "likelihood") for figure in self._figures(stage, layout.study_figure))
        boptr = [*self._figures("boptr", layout.boptr_figure, "boptr-"), *self._tables("boptr")]
        sections = [
            Section("1 Study", "study", "#/", [*figures, *tables]),
            *(self._pair(pair) for pair in dict.fromkeys(pair for pair, *_ in study.sides)),
            Section("3 BOPTR", "boptr", "#/boptr", boptr),
        ]
        return [section for section in sections if section.items or section.sections]

    def _pair(self, pair: str) -> Section:
        parts = []
        for other, benchmark, *_ in self.study.sides:
            if other == pair:
                path, named = partial(self.study.layout.figure, pair, benchmark), {"pair": pair, "benchmark": benchmark}
                items = list(self._figures("pair", path, f"{pair}-{benchmark}-", named))
                title = self.study.benchmarks[benchmark].title or benchmark
                parts.append(Section(f"{pair} on {title}", f"{pair}-{benchmark}", f"#/c/{pair}/{benchmark}", items))
        return Section(f"2 {pair}", f"pair-{pair}", sections=[part for part in parts if part.items])

    def _figures(
        self, stage: str, path: Callable[[str, str], Path], prefix: str = "", named: dict[str, str] | None = None
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
                files = self.links(file.with_suffix(".csv"), file.with_suffix(".pdf"))
                yield Item("figure", name, title, f"{prefix}{stem}", caption, f"data:image/svg+xml,{drawn}", files)

    def _tables(self, stage: str) -> Iterator[Item]:
        for name in catalogue.declared("table", stage=stage):
            file = self.study.layout.table(name, "html")
            if file.exists() and file.stat().st_size:
                caption = captions.html(captions.source("table", name))
                page = file.read_text(encoding="utf-8")
                found = _BODY.search(page)
                body = found[1].replace("<h3>", "<h4>").replace("</h3>", "</h4>") if found else ""
                files, is_long = self.links(file.with_suffix(".csv")), page.count("<tr") > LONG
                yield Item("table", name, captions.readable(name), f"table-{name}", caption, body, files, is_long)


FIRST = ("pass_curves", "support_change", "cover", "budget_equivalents")
"""The figures that nobody has to unfold, behind the headline."""
NUMBERS = ("recovery_summary", "budget_equivalents", "health")
"""The tables that have the numbers of the headline."""
LONG = 40
"""Rows of a table above which it is folded."""

_BODY = re.compile(r"<body>\n(.*)</body>", re.DOTALL)
_PLAIN = "".join(map(chr, range(0x20, 0x7F))).translate(str.maketrans("", "", '"%#'))
"""Characters that may stand in the address of a picture as they are."""


def report_page(study: Study, folder: Path | None = None) -> str:
    """The page of a study: a sentence a cell and four figures; folded, every other figure and table with its caption.

    ``folder`` is where the page will be; None: the results folder.
    """
    report = Report(study, folder or study.results)
    sections = report.contents()
    figures = {item.name: item for section in sections[:1] for item in section.items if item.kind == "figure"}
    name = ", ".join(dict.fromkeys(pair for pair, *_ in study.sides)) or study.results.name
    words = captions.blocks((captions.folder() / "workflow.rst").read_text(encoding="utf-8"))
    policy = described([study.default_policy], kinds.from_specs(study.config.policies))[0]["title"]
    explorer = os.path.relpath(study.layout.explorer, report.folder)
    return pages.rendered(
        "reporting/report.html.j2",
        title=f"{name}: report",
        name=name,
        cells=Index(study, frozenset().__contains__, by_ranges=False).cells(),
        titles={name: spec.title or name for name, spec in study.benchmarks.items()},
        policy=study.default_policy,
        policy_words=policy,
        confidence=study.config.landscape.confidence,
        numbers=report.links(*(study.layout.table(name, "csv") for name in NUMBERS)),
        explorer=quote(Path(explorer).as_posix()),
        about=words["about"],
        order=words["order"],
        first=[figures[name] for name in FIRST if name in figures],
        running=study.running,
        failed=study.not_made,
        sections=sections,
        made=f"searchlens {__version__}, {provenance.now()}, configuration {study.fingerprint}",
    )
