"""The page itself, and where its data go."""

from __future__ import annotations

import base64
import gzip
from collections.abc import Iterable
from html import escape
from pathlib import Path

from searchlens.errors import InputError

PAGE = Path(__file__).parent / "explorer.html.gz"
"""Made of ``web/`` by `make web`, and kept in the repository, so that nobody needs node to use it."""
PLACE = "<!-- searchlens:data -->"
"""The line of the page in whose place its data stand."""
BY_RANGES = '<meta name="searchlens-source" content="range">'


def read_page(path: Path = PAGE) -> str:
    """The page without data; an ``InputError`` if it is not there, or has no place for data."""
    if not path.exists():
        raise InputError(f"{path} does not exist", "`make web` makes it, in a checkout with node")
    content = path.read_bytes()
    page = (gzip.decompress(content) if path.suffix == ".gz" else content).decode()
    if page.count(PLACE) != 1:
        raise InputError(f"{path} has {page.count(PLACE)} lines {PLACE}; it must have one", "run `make web` again")
    return page


def element(name: str, content: bytes) -> str:
    """A file as an element of the page; in base64 nothing can close it."""
    data = base64.b64encode(content).decode("ascii")
    return f'<script type="application/octet-stream" data-path="{escape(name)}">{data}</script>'


def element_size(name: str, size: int) -> int:
    """Bytes of the element, and the end of its line, of a file of so many bytes."""
    return len(element(name, b"").encode()) + 4 * ((size + 2) // 3) + 1


def with_data(page: str, elements: Iterable[str]) -> str:
    """The page with its data inside. The policy of the page needs no server then."""
    return page.replace("; connect-src 'self'", "").replace(PLACE, "\n".join(elements))


def for_server(page: str) -> str:
    """The page that asks its server for data."""
    return page.replace(PLACE, BY_RANGES)
