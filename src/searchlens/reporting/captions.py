"""Captions of figures and tables, which the report and the explorer share: reStructuredText under workflow/report/.

They are templates of Jinja, because Snakemake's own report fills in the pair and the benchmark of a figure.

Standard library only, but where a caption becomes HTML.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

from searchlens.config import addons, project

if TYPE_CHECKING:
    from jinja2 import Template

_MARKS = re.compile(r"\*\*(.+?)\*\*|\*(.+?)\*|``(.+?)``", re.DOTALL)


def folder() -> Path:
    """Where the captions are."""
    return project.root() / "workflow" / "report"


def path(name: str) -> Path | None:
    """The file of a caption such as ``tables/groups``; None of what an extension declares, which has none."""
    places = (folder(), *(addon.captions for addon in addons.addons()))
    return next((file for place in places if (file := place / f"{name}.rst").exists()), None)


def source(kind: str, name: str) -> str:
    """The caption of a ``figure`` or ``table`` as it is written; empty for an extension, which has none."""
    file = path(f"{kind}s/{name}")
    return "" if file is None else file.read_text(encoding="utf-8")


def plain(text: str) -> list[str]:
    r"""The paragraphs of a caption without marks.

    >>> plain("How *samples* ended,\nby **cell**. See ``x``.\n\nMore.\n")
    ['How samples ended, by cell. See x.', 'More.']
    """
    unmarked = _MARKS.sub(lambda match: next(filter(None, match.groups())), text)
    return [" ".join(paragraph.split()) for paragraph in unmarked.split("\n\n") if paragraph.strip()]


def readable(name: str) -> str:
    """A name as a title.

    >>> readable("pass_curves")
    'Pass curves'
    """
    words = name.replace("_", " ")
    return words[:1].upper() + words[1:]


def html(text: str, wildcards: Mapping[str, str] | None = None) -> str:
    """A caption as HTML, for one pair on one benchmark if it names them."""
    names = SimpleNamespace(wildcards=SimpleNamespace(**(wildcards or {})))
    return rendered(_template(text).render(snakemake=names))


def blocks(text: str) -> dict[str, str]:
    """Each block of the first page as HTML, by its name."""
    template = _template(text)
    context = template.new_context({"files": []})
    return {name: rendered("".join(block(context))) for name, block in template.blocks.items()}


def _template(text: str) -> Template:
    import jinja2

    return jinja2.Environment(undefined=jinja2.StrictUndefined, autoescape=False).from_string(text)


def rendered(text: str) -> str:
    """ReStructuredText as HTML; it includes no file and no raw HTML."""
    from docutils.core import publish_parts

    settings = {"report_level": 2, "halt_level": 2, "file_insertion_enabled": False, "raw_enabled": False}
    return str(publish_parts(text, writer="html5", settings_overrides=settings)["body"])
