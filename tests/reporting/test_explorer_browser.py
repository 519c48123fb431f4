"""The page of the explorer in a real browser: `make test-browser` installs playwright, and uses the machine's Chromium.

The study is small and its samples are written by hand (small_results.py); some of its texts try to be markup.
"""

import json
import os
import re
import shutil
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import searchlens
import small_results
from conftest import toy_study, write_checkpoint
from searchlens.reporting import explorer_files, explorer_html
from searchlens.reporting.explorer_html import explorer_page
from searchlens.reporting.explorer_server import Server
from searchlens.reporting.report import report_page
from searchlens.store.columns import TRACES
from small_results import DEFAULT, finish

try:
    from playwright.sync_api import Browser, Page, sync_playwright
except ImportError:
    Browser = Page = sync_playwright = None

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
IS_ABSENT = (sync_playwright is None or CHROMIUM is None) and not os.environ.get("SEARCHLENS_BROWSER")
pytestmark = needs_browser = pytest.mark.skipif(IS_ABSENT, reason="needs playwright and Chromium: make test-browser")

EVIL = '<script>window.hacked = 1</script></script><img src=x onerror="window.hacked = 1">\u202e\u200b<!--'
SHOWN = '<script>window.hacked = 1</script></script><img src=x onerror="window.hacked = 1">\\u202e\\u200b<!--'
LONG = 1_000_000
CELL = "#/c/toy/sums"
TITLE = "top-p 0.95, temperature 1"
WEB = Path(__file__).parents[2] / "web/src"
TOKENIZER = Path(__file__).parents[2] / "resources/zoo/micro-1m-base/tokenizer.json"
PAGES = (
    "#/", CELL, f"{CELL}/recovery", f"{CELL}/equivalents", f"{CELL}/q", f"{CELL}/q/q3", f"{CELL}/q/q0?t=1",
    f"{CELL}/q/q3?p=1", f"{CELL}/q/q1?t=2", "#/boptr", "#/tables", "#/t/intervals", "#/o",
    f"#/s/toy-base/sums/{DEFAULT}/q0/0",
)  # fmt: skip
WIDTHS = (375, 768, 1280, 1920)


@dataclass
class Tab:
    """A page of the browser, and what went wrong in it."""

    page: Page
    address: str
    faults: list[str] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)

    def go(self, view: str) -> None:
        """Open a view and wait until it is drawn."""
        self.page.evaluate("view => { location.hash = view }", view)
        self.drawn(view)

    def drawn(self, view: str = "") -> None:
        """Wait until the view of the address is drawn."""
        wanted = view or self.page.evaluate("location.hash")
        self.page.wait_for_function(
            "view => document.documentElement.dataset.drawn === view", arg=wanted, timeout=10_000
        )

    def click(self, name: str | re.Pattern[str]) -> None:
        """Follow the first link of that name."""
        before = self.page.evaluate("location.hash")
        self.page.get_by_role("link", name=name).first.click()
        self.page.wait_for_function("before => location.hash !== before", arg=before)
        self.drawn()

    def text(self, selector: str = "main") -> str:
        """Text as it is shown."""
        return self.page.locator(selector).first.inner_text()

    def rows(self, label: str) -> list[list[str]]:
        """Cells of a table."""
        return self.page.locator(f'[aria-label="{label}"] tbody tr').evaluate_all(
            "rows => rows.map(row => [...row.cells].map(cell => cell.textContent))"
        )


def evil_texts(*args: Any) -> pl.DataFrame:
    """The samples of small_results, the first one a megabyte, the others with markup."""
    plain = ORDINARY(*args)
    first = (pl.col("question") == "q0") & (pl.col("sample") == 0)
    long = pl.lit("x" * LONG) + pl.col("text")
    return plain.with_columns(text=pl.when(first).then(long).otherwise(pl.lit(EVIL) + pl.col("text")))


ORDINARY = small_results.texts
SEARCH = (
    {"kind": "node", "step": 0, "node": 0, "start": 0, "text": "so ", "tokens": [1], "requests": 1, "generated": 1},
    {"kind": "node", "step": 1, "node": 1, "parent": 0, "start": 1, "text": EVIL, "tokens": [2, 3], "chosen": True},
    {"kind": "node", "step": 1, "node": 2, "parent": 0, "start": 1, "text": "b", "tokens": [2], "chosen": False},
    {"kind": "scored", "step": 1, "nodes": [1, 2], "scores": [-0.5, -1.5], "requests": 2, "generated": 3},
    {"kind": "chosen", "step": 1, "nodes": [1]},
    {"kind": "sample", "step": 2, "node": 1, "sample": 0, "score": -0.5, "requests": 0, "generated": 0},
)
TREE = f"#/s/toy-base/sums/{DEFAULT}/q0/0"


def record_a_search(study: searchlens.Study) -> None:
    """A record as docs/columns.md describes it, of two thoughts of which one is kept."""
    (shard,) = study.shards("toy-base", "sums")[DEFAULT]
    rows = [{"question": 0, "id": "q0", "run": 0, "row": i, **row} for i, row in enumerate(SEARCH)]
    path = study.layout.trace_of(shard.path)
    path.parent.mkdir(parents=True)
    pl.DataFrame(rows, TRACES).write_parquet(path)


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    root = tmp_path_factory.mktemp("study")
    raw = toy_study(root)
    for side in ("base", "rl"):
        shutil.rmtree(root / side)
        write_checkpoint(root / side, side, vocab_size=640)
        shutil.copy(TOKENIZER, root / side)
    lines = [json.loads(line) for line in (root / "sums.jsonl").read_text().splitlines()]
    lines[1]["question"] += f" {EVIL} and $x^2$"
    (root / "sums.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(small_results, "texts", evil_texts)
        folder = finish(raw, root)
    record_a_search(searchlens.open(folder))
    small_results.score_tokens(folder)
    yield folder


@pytest.fixture(scope="module")
def page_file(results: Path) -> Path:
    path = results / "explorer.html"
    path.write_text(explorer_page(searchlens.open(results)).html, encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def served(results: Path) -> Iterator[str]:
    server = Server(searchlens.open(results), 0)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server.url
    server.shutdown()
    server.server_close()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield chromium
        chromium.close()


@pytest.fixture(params=["file", "server"])
def address(request: pytest.FixtureRequest) -> str:
    """Both ways of opening the page."""
    if request.param == "file":
        return str(request.getfixturevalue("page_file").as_uri())
    return str(request.getfixturevalue("served"))


def home(address: str) -> str:
    """What the addresses of all files begin with: the token is in that of the page alone."""
    return address.partition("?token=")[0].partition("#")[0]


def opened(browser: Browser, address: str, width: int = 1280, scheme: str = "light") -> Tab:
    context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
    context.set_default_timeout(10_000)
    tab = Tab(context.new_page(), address)
    tab.page.on("console", lambda said: tab.faults.append(said.text) if said.type in ("error", "warning") else None)
    tab.page.on("pageerror", lambda error: tab.faults.append(str(error)))
    tab.page.on("request", lambda request: tab.asked.append(request.url))
    tab.page.goto(address)
    tab.drawn("#/")
    return tab


@pytest.fixture
def tab(browser: Browser, address: str) -> Iterator[Tab]:
    found = opened(browser, address)
    yield found
    foreign = [url for url in found.asked if not url.startswith((home(found.address), "data:"))]
    found.page.context.close()
    assert found.faults == []
    assert foreign == []


@pytest.fixture
def inlined(browser: Browser, page_file: Path) -> Iterator[Tab]:
    found = opened(browser, page_file.as_uri())
    yield found
    found.page.context.close()
    assert found.faults == []


def percent(value: float) -> str:
    return f"{100 * value:.1f}%"


# ---- every page


@pytest.mark.parametrize("width", WIDTHS)
def test_every_page_is_drawn_without_errors_foreign_requests_or_sideways_scroll(
    browser: Browser, address: str, width: int
) -> None:
    tab = opened(browser, address, width, "dark" if width == 768 else "light")
    for view in PAGES:
        tab.go(view)
        assert "could not be" not in tab.text()
        assert tab.page.locator("h1").count() == 1
        wide = tab.page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        assert wide <= 0, f"{view} is {wide} pixels wider than {width}"
    assert tab.faults == []
    assert not [url for url in tab.asked if not url.startswith((home(address), "data:"))]
    tab.page.context.close()


AXE = WEB.parent / "node_modules/axe-core/axe.min.js"
HURT = """async () => {
  const { violations } = await axe.run(document, { resultTypes: ["violations"] });
  return violations.filter((each) => ["serious", "critical"].includes(each.impact))
    .map((each) => `${each.id}: ${each.nodes.slice(0, 3).map((node) => node.html.slice(0, 200)).join(" | ")}`);
}"""


@pytest.mark.skipif(not AXE.exists(), reason="needs axe-core: make web")
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_nothing_keeps_people_out(browser: Browser, page_file: Path, report_file: Path, scheme: str) -> None:
    """Rules of axe-core on roles, names, contrast and keys: none is broken seriously."""
    tab = opened(browser, page_file.as_uri(), scheme=scheme)
    tab.page.evaluate(AXE.read_text())
    found = {}
    for view in PAGES:
        tab.go(view)
        found[view] = tab.page.evaluate(HURT)
    tab.page.goto(report_file.as_uri())
    tab.page.evaluate(AXE.read_text())
    found["report"] = tab.page.evaluate(HURT)
    tab.page.context.close()
    assert {view: broken for view, broken in found.items() if broken} == {}


# ---- the report

FIGURE = '<svg xmlns="http://www.w3.org/2000/svg" width="700" height="300"><text y="20">solved (%)</text></svg>'


@pytest.fixture(scope="module")
def report_file(results: Path) -> Path:
    (results / "figures").mkdir(exist_ok=True)
    (results / "figures/pass_curves.svg").write_text(FIGURE)
    path = results / "report.html"
    path.write_text(report_page(searchlens.open(results)), encoding="utf-8")
    return path


@pytest.mark.parametrize("width", WIDTHS)
def test_the_report_shows_captions_figures_and_tables(browser: Browser, report_file: Path, width: int) -> None:
    context = browser.new_context(viewport={"width": width, "height": 900})
    page, said, asked = context.new_page(), [], []
    page.on("console", lambda message: said.append(message.text))
    page.on("request", lambda request: asked.append(request.url))
    page.goto(report_file.as_uri())
    assert page.locator("#pass_curves figcaption", has_text="at least one of k samples solves").is_visible()
    picture = page.locator("#pass_curves img")
    picture.scroll_into_view_if_needed()
    page.wait_for_function("document.querySelector('#pass_curves img').naturalWidth === 700")
    cell = page.locator("#table-health td", has_text="toy-base").first
    assert not cell.is_visible()
    page.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true })")
    assert cell.is_visible() and cell.evaluate("(one) => getComputedStyle(one).position") == "sticky"
    wide = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
    assert wide <= 0
    assert said == [] and [url for url in asked if not url.startswith("data:")] == [report_file.as_uri()]
    context.close()


# ---- a reader's way


def test_which_question_only_rl_solves_and_how_is_read_in_two_clicks(tab: Tab) -> None:
    tab.click(re.compile("^1 question that RL solves and no sample of Base does"))
    tab.click("q3")
    assert "under any of Base's 3 policies or greedy, of RL's 3 policies or greedy" in tab.text()
    assert re.search(r"RL solves, none of Base's \d+ samples does: right are 0 of", tab.text())
    for side in ("Base", "RL"):
        column = tab.page.get_by_role("region", name=f"{side}'s samples")
        assert "so it is \\boxed{" in column.inner_text()
    assert "Gold answer: 7" in tab.text()
    assert "2 of 4 samples right" in tab.text(".isrl") and "0 of 4 samples right" in tab.text(".isbase")


def test_a_question_with_texts_stands_first_and_each_row_says_the_difference(
    browser: Browser, results: Path, tmp_path: Path
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(explorer_html, "TELLING", 2)
        patch.setattr(explorer_html, "EXCERPTS", [[explorer_files.Extent(2, 1)]])
        made = explorer_page(searchlens.open(results))
    (tmp_path / "few.html").write_text(made.html, encoding="utf-8")
    tab = opened(browser, (tmp_path / "few.html").as_uri())
    for sort, order in (("rl-only", "q3 q1 q2 q0 q5 q4"), ("difference", "q3 q4 q1 q2 q0 q5")):
        tab.go(f"{CELL}/q?sort={sort}")
        rows = tab.page.get_by_role("listitem").filter(has=tab.page.locator("[data-row]")).all_inner_texts()
        assert [row.split()[0] for row in rows] == order.split()
        assert ["counts only" in row for row in rows] == [question not in "q3 q4" for question in order.split()]
    tab.go(f"{CELL}/q?sort=position&p={DEFAULT}")
    assert f"under {TITLE} alone" in tab.text()
    (row,) = [text for text in tab.page.get_by_role("listitem").all_inner_texts() if text.startswith("q2")]
    assert "Base 1/4, RL 3/4 right: +50.0 pp" in row
    tab.go(f"{CELL}/q/q2?under={DEFAULT}")
    answers = tab.page.locator(".isrl .answers li").all_inner_texts()
    assert [re.sub(r"\s+", " ", line) for line in answers] == [
        "✓ (answer not kept) 3 samples",
        "✗ (answer not kept) 1 sample",
    ], "a question without texts has its counts"
    tab.page.context.close()


def test_words_are_found_in_samples_and_lead_there(tab: Tab) -> None:
    tab.go(f"{CELL}/q")
    tab.page.get_by_label("Search in questions, answers and samples").fill("boxed{99")
    tab.page.get_by_text(re.compile("^5 questions of 6")).wait_for()
    assert tab.page.get_by_role("link", name="found in a sample of RL").count() == 4
    tab.click("found in a sample of Base")
    assert "so it is \\boxed{99}" in tab.text('.isbase [aria-label^="Text of sample"]')


def test_a_run_is_followed_and_its_cells_appear(browser: Browser, results: Path, tmp_path: Path) -> None:
    said: dict[str, Any] = {"words": "50% sampled: 12 of 24", "share": 0.5}
    table = shutil.copytree(results, tmp_path / "results") / "recovery/toy/sums/same_policy.parquet"
    table.rename(tmp_path / "kept.parquet")
    with Server(searchlens.open(tmp_path / "results"), 0, progress=lambda: said) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        tab = opened(browser, server.url)
        tab.page.get_by_text("50% sampled: 12 of 24").wait_for()
        assert tab.page.locator("progress").get_attribute("value") == "0.5"
        assert tab.page.locator("article svg").count() == 0
        (tmp_path / "kept.parquet").rename(table)
        tab.page.locator("article svg").first.wait_for()
        said.clear()
        tab.page.locator("progress").wait_for(state="detached")
        tab.page.context.close()
        server.shutdown()
    assert tab.faults == []


def test_samples_say_why_they_count_or_not(tab: Tab) -> None:
    tab.go(f"{CELL}/q/q3?rs=1&bs=3")
    for side, answer in ((".isrl", "7"), (".isbase", "99")):  # a server extracts them when they are asked for
        tab.page.locator(f"{side} dd b", has_text=answer).wait_for()
    right, cut = tab.text(".isrl"), tab.text(".isbase")
    assert re.search(r"Verdict\s+right\b", right) and re.search(r"Answer\s+7\b", right)
    assert re.search(r"Verdict\s+not right: another answer than the gold", cut)
    assert "cut off at the token limit" in cut and re.search(r"Answer\s+99\b", cut)
    answers = tab.page.locator(".isrl .answers li").all_inner_texts()
    assert sorted(re.sub(r"\s+", " ", line) for line in answers) == ["✓ 7 2 samples", "✗ 99 2 samples"]


def test_a_link_says_everything_and_survives_a_reload_and_the_way_back(tab: Tab) -> None:
    views = {
        f"{CELL}?m=Q&r=prefix&lines=rl": ("Metric", "self-consistency"),
        f"{CELL}/recovery?b=2&e=12.5": ("Tolerance", "12.5"),
        f"{CELL}/q?sort=base-only&find=4%2B5": ("status", "1 question of 6"),
        f"{CELL}/q/q1?rl=greedy&bs=2": ("Sample 2", "q1"),
        "#/t/intervals?sort=-1": ("Save as CSV", "▼"),
    }
    seen = {}
    for view in views:
        tab.go(view)
        tab.page.reload()
        tab.drawn()
        assert tab.page.evaluate("location.hash") == view
        seen[view] = tab.text()
    tab.go(f"{CELL}/q?sort=base-only&find=4%2B5")
    assert views[f"{CELL}/q?sort=base-only&find=4%2B5"][1] in tab.text()
    tab.page.go_back()
    tab.drawn("#/t/intervals?sort=-1")
    assert tab.text() == seen["#/t/intervals?sort=-1"]
    assert tab.page.locator("select").count() == 0


# ---- numbers


def test_the_mark_under_the_keys_and_the_pointer_reads_as_its_point(tab: Tab, results: Path) -> None:
    points = pl.read_parquet(results / "landscape/toy-base/sums/points.parquet")
    tab.go(f"{CELL}?side=base&p={DEFAULT}&n=2")
    (row,) = points.filter(policy=DEFAULT, budget=2, metric="P", estimator="unbiased").to_dicts()
    shown = f"pass@k {percent(row['value'])} [{100 * row['lo']:.1f}, {100 * row['hi']:.1f}]"
    assert shown in tab.text(".readout")
    tab.page.locator(".chart[tabindex]").focus()
    tab.page.keyboard.press("ArrowRight")
    (row,) = points.filter(policy=DEFAULT, budget=4, metric="P", estimator="unbiased").to_dicts()
    assert f"pass@k {percent(row['value'])} [" in tab.text(".readout") and "4 samples" in tab.text(".readout")
    assert tab.page.evaluate("location.hash").endswith("n=4")


def test_tables_of_a_cell_are_those_of_recovery(inlined: Tab, results: Path) -> None:
    inlined.go(CELL)
    inlined.page.locator("summary", has_text="in numbers").click()
    support = pl.read_parquet(results / "recovery/toy/sums/support.parquet").filter(metric="P", estimator="unbiased")
    rows = inlined.rows("RL against the region of Base")
    for shown, row in zip(rows, support.sort("budget").to_dicts(), strict=True):
        assert shown[0] == str(row["budget"])
        assert shown[1].startswith(f"{percent(row['rl'])} [{100 * row['rl_lo']:.1f}, ")
        assert shown[2] == percent(row["envelope"])
        assert shown[6] == ("yes" if row["inside"] else "no")
    same = pl.read_parquet(results / "recovery/toy/sums/same_policy.parquet").filter(metric="P", estimator="unbiased")
    gaps = inlined.rows("Differences of Base and RL by policy and samples")
    expected = [
        [
            f"{100 * row['rl_minus_base']:+.1f}".replace("-", "\u2212")
            .replace("+0.0", "0.0")
            .replace("\u22120.0", "0.0")
            for row in part
        ]
        for part in (part.sort("budget").to_dicts() for part in same.partition_by("policy", maintain_order=True))
    ]
    assert [row[1:] for row in gaps] == expected


def test_a_saved_table_is_the_file(tab: Tab, results: Path) -> None:
    tab.go("#/t/intervals")
    with tab.page.expect_download() as download:
        tab.page.get_by_role("button", name="Save as CSV").click()
    assert Path(download.value.path()).read_bytes() == (results / "tables/intervals.csv").read_bytes()


# ---- hostile and withheld texts


def test_markup_in_texts_is_text(tab: Tab) -> None:
    tab.go(f"{CELL}/q/q1?f=1")
    for _ in range(2):
        assert SHOWN in tab.text('[aria-label="Text of the question"]')
        assert SHOWN in tab.text('.isrl [aria-label^="Text of sample"]')
        assert "\\x1b[31mred" in tab.text('.isrl [aria-label^="Text of sample"]')
        assert not tab.page.evaluate("'hacked' in window")
        assert tab.page.locator("main img, main script").count() == 0
        tab.go(f"{CELL}/q/q1")
    tab.go(f"{CELL}/q/q1?f=1")
    assert tab.page.locator('[aria-label="Text of the question"] math').count() == 1


def test_a_text_of_a_megabyte_is_shown_by_its_beginning_and_whole_if_asked(tab: Tab) -> None:
    tab.go(f"{CELL}/q/q0?rs=0&col=rl")
    box = tab.page.locator('.isrl [aria-label="Text of sample 0"]')
    assert box.inner_text().startswith("xxxx") and len(box.inner_text()) < 30_000
    box.get_by_role("button", name=re.compile("Show all 1,000,")).click()
    assert len(box.evaluate("box => box.textContent")) > LONG


# ---- searches


def test_a_recorded_search_is_walked_step_by_step(tab: Tab) -> None:
    tab.go(f"{CELL}/q/q0")
    tab.click("See the search that drew these")
    assert tab.page.evaluate("location.hash") == TREE
    assert "returned 1 sample and took 3 requests and 4 tokens" in tab.text()
    tab.page.keyboard.press("h")
    assert "Step 2 of 3: 3 requests, 4 tokens drawn so far" in tab.text()
    assert "Scored: #1 \u22120.500, #2 \u22121.500." in tab.text() and "Kept: #1." in tab.text()
    tab.page.locator(".tree").focus()
    for key in ("ArrowRight", "ArrowRight", "ArrowDown", "ArrowUp"):
        tab.page.keyboard.press(key)
    assert "Text #1" in tab.text() and SHOWN in tab.text('[aria-label="Text 1"]')
    assert not tab.page.evaluate("'hacked' in window")
    assert tab.page.evaluate("location.hash") == f"{TREE}?step=1&node=1"
    tab.page.reload()
    tab.drawn()
    assert "Text #1" in tab.text() and "Step 2 of 3" in tab.text()


# ---- long lists

WIDGETS = """
import { h } from "./dom.js";
import { windowed } from "./widgets.js";
const row = (i) => h("b", null, `row ${i}`);
document.body.append(windowed({ label: "Numbers", length: 1_000_000, height: 58, row }));
"""


def test_a_list_of_a_million_rows_is_walked_row_by_row_and_to_its_end(browser: Browser) -> None:
    context = browser.new_context(viewport={"width": 800, "height": 900})
    page = context.new_page()
    host = "http://page.test"
    page.route(f"{host}/*.js", lambda route: route.fulfill(path=WEB / route.request.url.rpartition("/")[2]))
    page.route(f"{host}/", lambda route: route.fulfill(content_type="text/html", body="<!doctype html><body>"))
    page.goto(f"{host}/")
    page.add_style_tag(path=WEB / "style.css")
    page.add_script_tag(content=WIDGETS, type="module")
    box = page.get_by_role("list", name="Numbers")

    def in_sight() -> list[int]:
        top = box.bounding_box()["y"]
        tops = box.get_by_role("listitem").evaluate_all(
            "rows => rows.map(row => [row.getBoundingClientRect().y, Number(row.textContent.slice(4))])"
        )
        assert len(tops) <= 40
        return [number for y, number in tops if 0 <= y - top + 1 < 12 * 58]

    assert in_sight() == list(range(12))
    box.hover()
    page.mouse.wheel(0, 5 * 58)
    page.wait_for_timeout(500)  # it is rolled smoothly, and the bar follows
    assert in_sight()[0] == 5, "a step of the wheel goes as far as in a short list"
    for place, rows in (("scrollHeight", range(999_988, 1_000_000)), ("scrollHeight / 2", None), ("0", range(12))):
        box.evaluate(f"box => {{ box.scrollTop = box.{place} }}" if place != "0" else "box => { box.scrollTop = 0 }")
        page.wait_for_timeout(300)
        assert (in_sight() == list(rows)) if rows else (abs(in_sight()[0] - 500_000) < 100)
    context.close()


# ---- keys


def test_the_keys_walk_pages_questions_and_samples(tab: Tab) -> None:
    press = tab.page.keyboard.press
    press("?")
    assert tab.page.locator("dialog[open]").is_visible()
    press("Escape")
    tab.go(f"{CELL}/q/q3")
    press("j")
    tab.drawn(f"{CELL}/q/q1")
    press("k")
    tab.drawn(f"{CELL}/q/q3")
    press("b")
    tab.drawn(f"{CELL}/q/q3?col=base")
    press("l")
    tab.drawn(f"{CELL}/q/q3?col=base&bs=1")
    press("Escape")
    tab.drawn(f"{CELL}/q")
    press("/")
    assert tab.page.evaluate("document.activeElement.type") == "search"
    press("Escape")
    press("3")
    tab.drawn("#/tables")
    press("Escape")
    tab.drawn("#/")


def test_the_matrix_is_walked_and_opened_by_keys(inlined: Tab) -> None:
    inlined.go(f"{CELL}/q")
    canvas = inlined.page.locator("canvas")
    canvas.focus()
    inlined.page.keyboard.press("ArrowDown")
    inlined.page.keyboard.press("ArrowRight")
    assert "question q1" in inlined.text("canvas >> xpath=../../p[contains(@class, 'readout')]")
    inlined.page.keyboard.press("Enter")
    inlined.page.wait_for_function("location.hash.includes('/q/q1')")


def test_the_focus_is_seen_and_the_first_stop_leads_to_the_content(inlined: Tab) -> None:
    inlined.page.keyboard.press("Tab")
    focused = "getComputedStyle(document.activeElement).outlineStyle + document.activeElement.textContent"
    assert inlined.page.evaluate(focused) == "solidTo the content"
    inlined.page.keyboard.press("Enter")
    assert inlined.page.evaluate("document.activeElement.id") == "main"


def test_tokens_are_read_out_one_by_one(tab: Tab) -> None:
    tab.go(f"{CELL}/q/q1?t=1")
    tab.page.locator(".isrl [role=application]").focus()
    tab.page.keyboard.press("ArrowRight")
    assert "Token 1 of 4" in tab.text(".isrl") and "77.88%" in tab.text(".isrl")
