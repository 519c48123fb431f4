"""Captions: they end up in the report, where a broken one stops it."""

from pathlib import Path
from types import SimpleNamespace

import docutils.core
import jinja2
import pytest

from searchlens import catalogue
from searchlens.config import addons

REPORT = Path(__file__).parents[2] / "workflow" / "report"
CAPTIONS = sorted(REPORT.rglob("*.rst"))


@pytest.mark.parametrize("path", CAPTIONS, ids=lambda path: path.stem)
def test_caption_renders(path: Path, tmp_path: Path) -> None:
    """A caption that names an unknown wildcard or is malformed fails here, not at the end of a study."""
    (tmp_path / "headline.html").write_text("<p>On sums, RL leads by 3 points.</p>\n")
    files = [SimpleNamespace(path=tmp_path / name) for name in ("tables/health.html", "headline.html")]
    wildcards = SimpleNamespace(pair="micro", benchmark="math")
    template = jinja2.Environment(undefined=jinja2.StrictUndefined).from_string(path.read_text())
    text = template.render(snakemake=SimpleNamespace(wildcards=wildcards), files=files)
    strict = {"halt_level": 2, "report_level": 2}
    page = docutils.core.publish_string(text, writer="html5", settings_overrides=strict)
    headline = "<p>On sums, RL leads by 3 points.</p>" in page.decode()
    assert headline == (path.stem == "workflow"), "the first page, and no caption, has the headline"


@pytest.mark.parametrize("kind", ["table", "figure"])
def test_every_table_and_figure_has_a_caption(kind: str) -> None:
    """One without a caption would appear in the report unexplained; a caption of nothing would never be read."""
    folders = [REPORT / f"{kind}s", *(addon.captions / f"{kind}s" for addon in addons.addons())]
    captions = {path.stem for folder in folders if folder.exists() for path in folder.iterdir()}
    assert captions == set(catalogue.declared(kind))
