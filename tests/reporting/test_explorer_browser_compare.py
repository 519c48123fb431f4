"""Samples on the page of `searchlens compare`, in a real browser."""

from pathlib import Path

import pytest

from searchlens.comparison import page
from test_compare import BASE, RL, own
from test_compare_page import compared
from test_explorer_browser import WIDTHS, Browser, browser, needs_browser

__all__ = ["browser"]  # a fixture
pytestmark = needs_browser


@pytest.mark.parametrize("scripts", [True, False])
def test_samples_are_searched_and_read_at_every_width(browser: Browser, tmp_path: Path, scripts: bool) -> None:
    path = tmp_path / "page.html"
    path.write_text(page(compared(own(tmp_path / "base", BASE), own(tmp_path / "rl", RL))), encoding="utf-8")
    context = browser.new_context(java_script_enabled=scripts)
    shown, faults, asked = context.new_page(), [], []
    shown.on("console", lambda said: faults.append(said.text))
    shown.on("request", lambda request: asked.append(request.url))
    shown.goto(path.as_uri())
    for width in WIDTHS:
        shown.set_viewport_size({"width": width, "height": 900})
        assert shown.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")
    shown.locator("summary", has_text="q2").click()
    assert shown.locator("details[open]").inner_text().count("Sample ") == 8
    search = shown.get_by_label("Search questions and samples")
    assert search.is_visible() == scripts
    if scripts:
        search.fill("COMPUTE 2 + 5")
        assert shown.locator("summary:visible").all_inner_texts()[0].startswith("q2 RL alone solves it")
        assert shown.get_by_role("status").inner_text() == "1 of 5 questions"
    assert faults == [] and [url for url in asked if not url.startswith("data:")] == [path.as_uri()]
    context.close()
