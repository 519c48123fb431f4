"""Pages of documentation: each can be found from the index, and no link leads nowhere."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
LINK = re.compile(r"\]\((?!\w+:)([^)\s#]*)(?:#([^)\s]*))?\)")
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *(ROOT / folder / "README.md" for folder in ("config", "profiles", "results")),
    *sorted((ROOT / "docs").glob("*.md")),
]


def links(page: Path) -> list[tuple[Path, str]]:
    """Relative links of a page: the file, and the heading in it, which may be empty."""
    found = LINK.findall(page.read_text())
    return [((page.parent / path).resolve() if path else page, heading) for path, heading in found]


def anchors(page: Path) -> set[str]:
    """Headings of a page as its readers link to them: lower case, hyphens for spaces, without punctuation."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_to_files_and_headings(page: Path) -> None:
    missing = [path for path, _ in links(page) if not path.exists()]
    assert not missing
    unknown = [(path.name, heading) for path, heading in links(page) if heading and heading not in anchors(path)]
    assert not unknown


def test_every_page_is_in_the_index() -> None:
    """A page that the index does not list would never be read."""
    index = ROOT / "docs" / "README.md"
    assert {path for path in PAGES if path.parent == index.parent} - {index} <= {path for path, _ in links(index)}
