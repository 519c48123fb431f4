"""The report: every figure and table of a study, with the caption that it has, in one page that asks for nothing."""

import html
import re
from pathlib import Path
from types import SimpleNamespace
from urllib.parse import unquote

import docutils.core
import jinja2
import pytest

import searchlens
from conftest import Raw
from searchlens import catalogue
from searchlens.cli.main import main
from searchlens.config import addons
from searchlens.reporting import captions
from searchlens.reporting.report import report_page
from small_results import finish

FIGURE = """<?xml version="1.0"?>
<svg xmlns="http://www.w3.org/2000/svg" width="40" height="20">
<text fill="#123" y="10">5 % &lt; 6 &amp; 'so'</text></svg>
"""


@pytest.fixture
def results(raw: Raw, tmp_path: Path) -> Path:
    """A study with two figures, one of them optional, and a table."""
    folder = finish(raw, tmp_path)
    for name in ("figures/pass_curves.svg", "figures/toy/sums/gap_map_P.svg", "figures/boptr/crossing/crossing.svg"):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(FIGURE)
    return folder


def words(page: str) -> str:
    return " ".join(html.unescape(re.sub(r"<[^>]+>", "", page)).split())


def test_every_figure_and_table_is_there_once_with_its_caption(results: Path) -> None:
    page = report_page(searchlens.open(results))
    for anchor in ("pass_curves", "toy-sums-gap_map_P", "boptr-crossing"):
        (figure,) = re.findall(rf'<figure id="{anchor}">(.*?)</figure>', page, re.DOTALL)
        (address,) = re.findall(r'src="data:image/svg\+xml,([^"]*)"', figure)
        assert unquote(address.replace("&amp;", "&")) == FIGURE.replace("\n", " ")
    tables = [name for name in catalogue.declared("table") if (results / f"tables/{name}.html").exists()]
    assert len(tables) > 10
    for name in tables:
        (section,) = re.findall(rf'<section id="table-{name}">(.*?)</section>', page, re.DOTALL)
        (paragraph, *_) = captions.plain(captions.source("table", name))
        assert paragraph in words(section)
        assert section.count("<td") == (results / f"tables/{name}.html").read_text().count("<td")
        assert f'download="{name}.csv"' in section
    assert page.count("<table>") > 10
    assert "{{" not in page and "<script" not in page
    assert len(re.findall(r' id="', page)) == len(set(re.findall(r' id="([^"]*)"', page)))


def test_a_reader_first_sees_the_headline_health_and_pass_curves(results: Path) -> None:
    page = report_page(searchlens.open(results))
    places = [page.index(part) for part in ("neither leads surely", "table-health", '<figure id="pass_curves"')]
    assert places == sorted(places) and places[-1] < page.index('<section id="study">')
    assert "How much of what it gains was" in page[page.index('<section id="reading">') :]


def test_captions_name_their_pair_and_benchmark(results: Path) -> None:
    page = report_page(searchlens.open(results))
    (figure,) = re.findall(r'<figure id="toy-sums-gap_map_P">(.*?)</figure>', page, re.DOTALL)
    assert "toy on sums: Base minus RL" in words(figure)
    assert 'href="explorer.html#/c/toy/sums"' in page


def test_the_command_writes_it_beside_the_tables(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(results)]) == 0
    assert (results / "report.html").read_text().startswith("<!doctype html>")
    assert str(results / "report.html") in capsys.readouterr().out


def test_names_and_tables_of_others_are_text(results: Path) -> None:
    """Names come from the configuration, and tables quote texts of models."""
    page = report_page(searchlens.open(results))
    assert "default-src 'none'" in page
    assert "\x1b" not in page and "\u202e" not in page


# ---- Captions: they end up in the report, where a broken one stops it


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
