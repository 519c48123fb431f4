"""Which figures and tables a study has, in the order in which the report shows them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from searchlens import catalogue
from searchlens.api import Study
from searchlens.project import addons, captions


@dataclass(frozen=True)
class Item:
    """A figure or a table."""

    kind: str
    """``figure`` or ``table``."""
    name: str
    """Of its declaration."""
    title: str
    path: Path
    """Its SVG, or its HTML."""
    anchor: str
    """What a link to it names."""
    caption: str
    """HTML."""


@dataclass(frozen=True)
class Section:
    """A part of the page."""

    title: str
    anchor: str
    link: str = ""
    """Where the explorer shows the same; empty: nowhere."""
    items: Sequence[Item] = ()
    sections: Sequence[Section] = field(default_factory=list)
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
            path = _placed(study, pair, benchmark)
            named = {"pair": pair, "benchmark": benchmark}
            items = list(_figures("pair", path, f"{pair}-{benchmark}-", named))
            title = study.benchmarks[benchmark].title or benchmark
            parts.append(Section(f"{pair} on {title}", f"{pair}-{benchmark}", f"#/c/{pair}/{benchmark}", items))
    return Section(f"2 {pair}", f"pair-{pair}", sections=[part for part in parts if part.items])


def _placed(study: Study, pair: str, benchmark: str) -> Callable[[str, str], Path]:
    return lambda stem, suffix: study.layout.figure(pair, benchmark, stem, suffix)


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
            yield Item("figure", name, title, file, f"{prefix}{stem}", caption)


def _tables(study: Study, stage: str) -> Iterator[Item]:
    for name in catalogue.declared("table", stage=stage):
        file = study.layout.table(name, "html")
        if file.exists() and file.stat().st_size:
            caption = captions.html(captions.source("table", name))
            yield Item("table", name, captions.readable(name), file, f"table-{name}", caption)
