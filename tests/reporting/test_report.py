"""The report: every figure and table of a study, with the caption that it has, in one page that asks for nothing."""

import html
import re
from contextlib import chdir
from pathlib import Path
from types import SimpleNamespace
from urllib.parse import unquote

import docutils.core
import jinja2
import pytest

import searchlens
from conftest import Make, Raw
from run_stages import landscape_cell, recovery_cell, score_cell
from searchlens import catalogue
from searchlens.cli.main import main
from searchlens.cli.options import cohort_of
from searchlens.cli.stages.boptr import boptr
from searchlens.cli.stages.figures import figures
from searchlens.cli.stages.measures import measures
from searchlens.cli.stages.overview import overview
from searchlens.cli.stages.tables import tables
from searchlens.cli.stages.transfer import transfer
from searchlens.config import addons, check
from searchlens.errors import InputError
from searchlens.plan import Grid, needs
from searchlens.reporting import captions
from searchlens.reporting.explorer_index import Index
from searchlens.reporting.report import report_page
from searchlens.store import provenance, snapshots
from small_results import finish
from test_stage_sources import bring, rows

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


def test_a_reader_first_sees_a_sentence_and_the_main_figures(results: Path) -> None:
    page = report_page(searchlens.open(results))
    first, rest = page[: page.index('<section id="study">')], page[page.index('<section id="study">') :]
    said = words(first[first.index("<main>") :])
    assert "with top-p 0.95, temperature 1 (topp0.95_t1.0). Brackets are 95% intervals over questions." in said
    assert re.search(r"toy on sums: With 1 sample neither leads surely: .*? 6 questions, 4 samples of Base", said)
    assert '<figure id="pass_curves"' in first and "<table>" not in first
    for anchor in ("table-health", "toy-sums-gap_map_P", "boptr-crossing"):
        before = rest[: rest.index(f'id="{anchor}"')]
        assert before.count("<details") == before.count("</details>") + 1 and '<details class="part" open' not in rest
    assert "How much of what RL gains" in page[page.index('<section id="reading">') :]


def test_remarks_on_samples_are_not_folded(results: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cells = Index(searchlens.open(results), frozenset().__contains__, by_ranges=False).cells()
    for state, seen in (("ok", False), ("warn", True), ("bad", True)):
        told = [{**cell, "health": {"state": state}, "sentences": ["Mind this.", "Led.", "Reached."]} for cell in cells]
        monkeypatch.setattr(Index, "cells", lambda _, told=told: told)
        page = report_page(searchlens.open(results))
        unfolded = re.sub(r"<details.*?</details>", "", page[: page.index('<section id="study">')], flags=re.DOTALL)
        assert "Led." in unfolded and ("Mind this." in unfolded) is seen and "Reached." in page


def test_every_figure_and_table_links_to_its_numbers(results: Path, tmp_path: Path) -> None:
    """By an address that resolves from where the page is, also if that is another folder."""
    for name in ("figures/pass_curves", "figures/toy/sums/gap_map_P"):
        (results / f"{name}.csv").write_text("a\n")
    for folder in (results, tmp_path / "pages"):
        page = report_page(searchlens.open(results), folder)
        links = [unquote(html.unescape(link)) for link in re.findall(r'href="([^"#:]+?)(?:#[^"]*)?"', page)]
        files = [link for link in links if not link.endswith("explorer.html")]
        assert len(files) > 12
        assert [link for link in files if not (folder / link).resolve().is_file()] == []
        items = r'<section id="table-\w+">.*?</section>|<figure id="toy-sums-gap_map_P">.*?</figure>'
        for item in re.findall(items, page, re.DOTALL):
            assert len(re.findall(r'<p class="files">.*?\.csv', item, re.DOTALL)) == 1


def test_captions_name_their_pair_and_benchmark(results: Path) -> None:
    page = report_page(searchlens.open(results))
    (figure,) = re.findall(r'<figure id="toy-sums-gap_map_P">(.*?)</figure>', page, re.DOTALL)
    assert "toy on sums: RL minus Base" in words(figure)
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


# ---- Samples below the largest budget, and tables and figures that fail: neither costs the report or the explorer


DEFAULT = "topp0.95_t1.0"


def few(raw: Raw, samples: int, deeper: dict[str, int]) -> Raw:
    """The toy study, with other numbers of samples than its budgets 1, 2, 4 need."""
    spec = {**raw["benchmarks"]["sums"], "samples": samples, "deeper": deeper, "regime": "math"}
    quick = {"landscape": {"draws": 100}, "measures": {"draws": 100}, "equivalence": None}
    return {**raw, **quick, "benchmarks": {"sums": spec}}


def drawn(grid: Grid) -> None:
    """The stages behind tables and measures, in the folder of the study."""
    layout = grid.layout
    for cell in grid.study.pair_cells:
        figures(needs.figures(grid, *cell), layout, layout.figure(*cell, "any", "svg").parent)
    overview(needs.overview(grid), layout, layout.study_figure("any", "svg").parent)


@pytest.mark.parametrize(
    ("samples", "deeper", "without", "short"),
    [
        (2, {}, "sums has 2 samples, the largest budget is 4", "at most 2 samples per question are not read at 4"),
        (1, {}, "sums has 1 sample, the largest budget is 4", "at most 1 samples per question are not read at 2, 4"),
        (2, {"temp_0.5": 4}, f"sums has 2 samples under {DEFAULT}, the largest budget is 4", "not read at 4"),
        (2, {DEFAULT: 4}, "", "not read at 4"),
        (4, {}, "", ""),
    ],
)
def test_check_says_what_too_few_samples_leave_out(
    raw: Raw, make_grid: Make, samples: int, deeper: dict[str, int], without: str, short: str
) -> None:
    grid = make_grid(few(raw, samples, deeper))
    assert grid.study.without_boptr == without
    assert len(grid.study.without_budgets) == bool(short)
    assert short in "".join(grid.study.without_budgets)


@pytest.mark.parametrize("samples", [1, 2])
@pytest.mark.long
def test_fewer_samples_than_the_largest_budget_reach_report_and_explorer(
    raw: Raw, tmp_path: Path, samples: int, capsys: pytest.CaptureFixture[str]
) -> None:
    raw = few(raw, samples, {})
    results = finish(raw, tmp_path)
    with chdir(tmp_path):
        grid = Grid(check.validate(raw))
        drawn(grid)
        need = needs.boptr(grid)  # by hand, as `searchlens boptr` does it in a folder of landscapes
        plan = cohort_of(need)
        boptr(plan, need["options"].on(plan.benchmarks), grid.layout.landscapes, grid.layout)
        transfer(plan, need["options"].on(plan.benchmarks), grid.layout.landscapes, grid.layout)
        assert not [path for path in grid.layout.failures().rglob("*") if path.is_file()]
    assert main(["report", str(results)]) == 0
    assert main(["explore", str(results)]) == 0
    assert "Not made" not in (results / "report.html").read_text()
    capsys.readouterr()
    with chdir(tmp_path):
        assert main(["check", "--snapshot", str(snapshots.path_of(grid.config))]) == 0
    said = capsys.readouterr().out
    assert f"BOPTR is left out: sums has {samples} sample" in said
    assert f"sums: policies with at most {samples} samples per question are not read at" in said


@pytest.mark.long
def test_sides_without_a_common_policy_have_every_figure(raw: Raw, make_grid: Make, tmp_path: Path) -> None:
    raw = few(raw, 4, {}) | {"study": {"pairs": [], "benchmarks": [], "imports": "all", "agreement": 0}}
    raw["default_policy"] = None
    for role, policy in (("base", "temp_0.5"), ("rl", DEFAULT)):
        bring(make_grid(raw), tmp_path, role, rows(right=2, tokens=5, finish="stop"), policy=policy)
    grid = make_grid(raw)
    layout, sides = grid.layout, [grid.layout.landscape(f"theirs-{role}", "own") for role in ("base", "rl")]
    for cell in grid.study.cells:
        score_cell(grid, *cell, [], grid.scores(*cell))
        landscape_cell(grid, "own", grid.scores(*cell), layout.landscape(*cell))
    recovery_cell(grid, *sides, layout.recovery("theirs", "own"))
    measures(needs.measures(grid), layout, fingerprint="0" * 12)
    tables(needs.tables(grid), layout, layout, fingerprint="0" * 12)
    drawn(grid)
    assert grid.study.not_made == []
    assert layout.study_figure("cover", "svg").stat().st_size


EXTENSION = """
from pathlib import Path

from searchlens.catalogue import figure, table


def fail(_context):
    if Path("broken").exists():
        raise ZeroDivisionError("it divides\\nby <zero>")


@table("fragile", stage="study")
def fragile(context):
    from searchlens.reporting.tables.samples import health

    fail(context)
    return health(context)


@figure("fragile_figure", stage="study")
def numbers(context):
    fail(context)
    return context.cells[0].base


def draw(numbers, context):
    from searchlens.reporting.figures import style

    return style.in_words(context.labels, "drawn")
"""
WHY = "ZeroDivisionError: it divides by <zero>"


@pytest.mark.long
def test_what_fails_is_named_and_costs_nothing_else(
    raw: Raw, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """And is named no more as soon as it is made."""
    (tmp_path / "own.py").write_text(EXTENSION)
    raw = few(raw, 4, {}) | {"extensions": ["own.py"]}
    results = finish(raw, tmp_path)
    monkeypatch.chdir(tmp_path)
    grid = Grid(check.validate(raw))
    drawn(grid)
    snapshot = str(snapshots.save(grid.config))
    assert not grid.layout.failures().exists()
    tried = []
    for there in (True, True, False):
        Path("broken").touch() if there else Path("broken").unlink()
        drawn(grid)
        tables(needs.tables(grid), grid.layout, grid.layout, fingerprint="0" * 12)
        assert main(["report", str(results)]) == main(["explore", str(results)]) == 0
        capsys.readouterr()
        assert main(["status", "--snapshot", snapshot]) == 0
        status, page = capsys.readouterr().out, (results / "report.html").read_text()
        assert (f"not made: table fragile: {WHY}; log: logs/tables.log" in status) is there
        assert (f"not made: figure fragile_figure: {WHY}; log: logs/overview.log" in status) is there
        assert (
            "<strong>Not made:</strong> table fragile: ZeroDivisionError: it divides by &lt;zero&gt;" in page
        ) is there
        assert ('id="table-fragile"' in page, 'id="fragile_figure"' in page) == (not there, not there)
        assert 'id="table-health"' in page
        study = searchlens.open(results)
        if there:
            with pytest.raises(InputError, match="was not made"):
                study.table("fragile")
        else:
            assert study.table("fragile").height == len(grid.study.cells)
        tried.append(provenance.tried(grid.layout.failures("tables")))
    assert tried == [1, 2, 2], "a failure runs the stage again, a success does not"


@pytest.mark.parametrize("error", [MemoryError, KeyboardInterrupt])
def test_what_must_end_a_stage_ends_it(error: type[BaseException], tmp_path: Path) -> None:
    found = provenance.Failures()
    with pytest.raises(error), found.caught("table any", [tmp_path / "any.csv"]):
        raise error
    assert not found and not list(tmp_path.iterdir())


def test_an_unreadable_landscape_ends_the_stage(raw: Raw, tmp_path: Path) -> None:
    finish(raw, tmp_path)
    with chdir(tmp_path):
        grid = Grid(check.validate(raw))
        grid.layout.landscape_frame("toy-rl", "sums", "points").write_text("no Parquet")
        with pytest.raises(InputError, match="points"):
            tables(needs.tables(grid), grid.layout, grid.layout, fingerprint="0" * 12)
        assert not grid.study.not_made
