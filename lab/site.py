"""Hook of mkdocs (``make docs``): pages and files outside of docs/ join the site, and llms.txt lists its pages.

A page of docs/ keeps its name there, ``repository/`` has everything else that a page links to. Links stay as they are
in the sources, where they also work without a site.
"""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.nav import Navigation
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
OUTSIDE = "repository"
BOOST = {"measures.md": 4, "columns.md": 0.2, "commands.md": 0.5}
"""How much more a search counts what it finds in a page: definitions first, long tables last."""
LINK = re.compile(r"(\]\()(?!\w+:|#)([^)\s#]+)")
CODE = re.compile(r"(^ *```.*?^ *```|``.+?``|`[^`\n]+`)", re.MULTILINE | re.DOTALL)


def anchor(heading: str, separator: str) -> str:
    """A heading as forges link to it: lower case, hyphens for spaces, without punctuation."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", separator)


def on_config(config: MkDocsConfig) -> None:
    """Anchors as on a forge; links to edit a page if it is known where the sources are."""
    config.mdx_configs["toc"]["slugify"] = anchor
    config.edit_uri = "edit/main/docs/" if config.repo_url else None


def in_site(path: Path) -> str:
    """Where a file of the repository is in the site's sources."""
    name = path.relative_to(ROOT).as_posix()
    return name.removeprefix("docs/") if name.startswith("docs/") else f"{OUTSIDE}/{name}"


def source(uri: str) -> Path:
    """The other way."""
    return ROOT / (uri.removeprefix(f"{OUTSIDE}/") if uri.startswith(f"{OUTSIDE}/") else f"docs/{uri}")


def target(page: Path, link: str) -> Path:
    """The file to which a relative link of a page leads."""
    return Path(os.path.normpath(page.parent / link))


def linked(page: Path) -> Iterator[Path]:
    """Files outside of docs/ to which a page links."""
    for _, link in LINK.findall(CODE.sub("", page.read_text("utf-8"))):
        path = target(page, link)
        if path.is_file() and not path.is_relative_to(ROOT / "docs"):
            yield path


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Add what pages link to, and what the pages among these link to."""
    waiting = [source(file.src_uri) for file in files if file.is_documentation_page()]
    waiting += [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md")]
    while waiting:
        page = waiting.pop()
        for path in [page, *linked(page)]:
            if files.get_file_from_path(in_site(path)) is None:
                added = File.generated(config, in_site(path), abs_src_path=str(path))
                added.edit_uri = f"../{path.relative_to(ROOT).as_posix()}"
                files.append(added)
                waiting += [path] if path.suffix == ".md" and path != page else []
    return files


def on_page_markdown(markdown: str, *, page: Page, files: Files, **_: Any) -> str:
    """Lead the links of a page to where the site has their files, and weigh it for the search."""
    here = page.file.src_uri
    if here in BOOST:
        page.meta["search"] = {"boost": BOOST[here]}

    def moved(found: re.Match[str]) -> str:
        path = target(source(here), found[2])
        inside = path.is_relative_to(ROOT) and files.get_file_from_path(in_site(path)) is not None
        return found[1] + (posixpath.relpath(in_site(path), posixpath.dirname(here)) if inside else found[2])

    parts = CODE.split(markdown)
    return "".join(part if i % 2 else LINK.sub(moved, part) for i, part in enumerate(parts))


def on_nav(nav: Navigation, *, config: MkDocsConfig, **_: Any) -> None:
    """Keep the pages of the navigation for llms.txt."""
    config.extra["listed"] = nav.pages


def first_sentences(text: str) -> str:
    """The first paragraph of a page below its title, as one line."""
    found = re.search(r"^(?!#|!\[|```|\||\[)\S.*?(?=\n\n|\Z)", text, re.MULTILINE | re.DOTALL)
    return " ".join(re.sub(r"\]\([^)]*\)|[\[*]", "", found[0]).split()) if found else ""


def on_post_build(*, config: MkDocsConfig) -> None:
    """Write llms.txt: every page with its address and what it is for."""
    listed: list[Any] = config.extra["listed"]
    lines = [f"# {config.site_name}", "", f"> {config.site_description}", ""]
    for page in listed:
        address = posixpath.join(config.site_url or "", page.url)
        lines.append(
            f"- [{page.title}]({address or './'}): {first_sentences(source(page.file.src_uri).read_text('utf-8'))}"
        )
    (Path(config.site_dir) / "llms.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
