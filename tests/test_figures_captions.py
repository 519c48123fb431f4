"""Captions: they end up in the report, where a broken one stops it."""

from pathlib import Path
from types import SimpleNamespace

import docutils.core
import jinja2
import pytest

from searchlens import catalogue

REPORT = Path(__file__).parents[1] / "workflow" / "report"
CAPTIONS = sorted(REPORT.rglob("*.rst"))


@pytest.mark.parametrize("path", CAPTIONS, ids=lambda path: path.stem)
def test_caption_renders(path: Path, tmp_path: Path) -> None:
    """A caption that names an unknown wildcard or is malformed fails here, not at the end of a study."""
    (tmp_path / "tables").mkdir()
    (tmp_path / "tables/health.md").write_text("| checkpoint | health |\n|---|---|\n| toy-base | 0% — of all |\n")
    (tmp_path / "tables/recovery_summary.md").write_text("| pair | gap at 1 |\n|---|---|\n| toy | −28.0 |\n")
    names = ("health", "recovery_summary", "intervals")
    files = [SimpleNamespace(path=tmp_path / f"tables/{name}.html") for name in names]
    wildcards = SimpleNamespace(pair="micro", benchmark="math")
    template = jinja2.Environment(undefined=jinja2.StrictUndefined).from_string(path.read_text())
    text = template.render(snakemake=SimpleNamespace(wildcards=wildcards), files=files)
    strict = {"halt_level": 2, "report_level": 2}
    page = docutils.core.publish_string(text, writer="html5", settings_overrides=strict)
    for line in ("| toy-base | 0% — of all |", "| toy | −28.0 |"):
        assert (line in page.decode()) == (path.stem == "workflow"), "the first page has the health and the headline"


@pytest.mark.parametrize("kind", ["table", "figure"])
def test_every_table_and_figure_has_a_caption(kind: str) -> None:
    """One without a caption would appear in the report unexplained; a caption of nothing would never be read."""
    captions = {path.stem for path in (REPORT / f"{kind}s").iterdir()}
    assert captions == set(catalogue.declared(kind))
