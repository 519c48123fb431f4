"""The report as one page that opens without a server and asks for nothing."""

from __future__ import annotations

import re
from urllib.parse import quote

from searchlens import __version__
from searchlens.api import Study
from searchlens.explorer.headline import headline_html
from searchlens.project import captions, extras, pages
from searchlens.report.contents import Item, contents
from searchlens.store import provenance

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
    """The page of a study: headline, health and pass curves, then every figure and table with its caption. It needs the
    extra ``plot``.
    """
    extras.require("docutils")
    sections = contents(study)
    items = {item.name: item for item in sections[0].items} if sections else {}
    name = ", ".join(dict.fromkeys(pair for pair, *_ in study.sides)) or study.results.name
    words = captions.blocks((captions.folder() / "workflow.rst").read_text(encoding="utf-8"))
    return pages.rendered(
        "report/page.html.j2",
        title=f"{name}: report",
        name=name,
        headline=headline_html(study),
        about=words["about"],
        order=words["order"],
        first=[items[name] for name in FIRST if name in items],
        failed=study.not_made,
        sections=sections,
        few=sum(len(section.sections) for section in sections) <= FEW,
        picture=picture,
        table=table,
        is_long=is_long,
        made=f"searchlens {__version__}, {provenance.now()}, configuration {study.fingerprint}",
    )


def picture(item: Item) -> str:
    """A figure as the address of a picture, so that identifiers and styles of figures do not meet."""
    content = item.path.read_text(encoding="utf-8").replace("\n", " ")
    return f"data:image/svg+xml,{quote(content, safe=_PLAIN)}".replace("&", "&amp;")


def table(item: Item) -> str:
    """What is in the page of a table: its parts, its notes, and its CSV as a link."""
    found = _BODY.search(item.path.read_text(encoding="utf-8"))
    return found[1].replace("<h3>", "<h4>").replace("</h3>", "</h4>") if found else ""


def is_long(item: Item) -> bool:
    """Whether a table has so many rows that it is folded."""
    return item.path.read_text(encoding="utf-8").count("<tr") > LONG
