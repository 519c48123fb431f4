"""Prompts and scored tokens on the page of the explorer, samples on that of comparisons, and what readers want."""

import base64
import json
import re
from pathlib import Path
from typing import Any

import pytest

from searchlens.comparison import page
from searchlens.reporting.explorer_html import element
from test_compare import BASE, RL, own
from test_compare_page import compared
from test_explorer_browser import (
    AXE,
    CELL,
    EVIL,
    HURT,
    SHOWN,
    WIDTHS,
    Browser,
    Tab,
    address,
    browser,
    needs_browser,
    opened,
    page_file,
    results,
    served,
    tab,
)

__all__ = ["address", "browser", "page_file", "results", "served", "tab"]  # fixtures
pytestmark = needs_browser

PIECES = ("<s>", "two", "\n", " plus\t", "", EVIL, "</s>")
PROMPT = {"pieces": PIECES, "ids": [1, 20, 13, 30, 99, 40, 2], "special": [0, 6]}
OTHER = {**PROMPT, "ids": [1, 20, 13, 31, 99, 40, 2]}
SENT = f"<s>two\n plus\t{SHOWN}</s>"
Prompts = dict[str, dict[str, Any] | None]
SAME = "Base and RL were sent the same 7 tokens."
UNKNOWN = "is not known here: its tokenizer is not on this machine, or is another one now."
SAID = {
    "equal": ({"base": PROMPT, "rl": PROMPT}, [SAME]),
    "differ": ({"base": PROMPT, "rl": OTHER}, ["The prompts differ, first at token 4."]),
    "one": ({"base": PROMPT, "rl": None}, [f"The prompt of RL {UNKNOWN}"]),
    "none": ({"base": None, "rl": None}, [f"The prompt of Base {UNKNOWN}", f"The prompt of RL {UNKNOWN}"]),
}


def with_prompts(index: dict[str, Any], prompts: Prompts, place: str) -> dict[str, Any]:
    """The index with these prompts alone."""
    for cell in index["cells"]:
        for name, prompt in prompts.items():
            cell[name]["files"].pop("prompts", None)
            if prompt:
                cell[name]["files"]["prompts"] = f"prompts/by-hand-{name}{place}.json"
    return index


def page_with(page_file: Path, folder: Path, prompts: Prompts) -> str:
    """Address of a page that holds the prompts of q3."""
    found = re.compile(r'(data-path="index.json">)([^<]*)')
    html = page_file.read_text(encoding="utf-8")
    index = with_prompts(json.loads(base64.b64decode(found.search(html)[2])), prompts, "")
    elements = "".join(
        element(f"prompts/by-hand-{name}.json", json.dumps({"3": prompt}).encode())
        for name, prompt in prompts.items()
        if prompt
    )
    packed = base64.b64encode(json.dumps(index).encode()).decode()
    html = found.sub(lambda match: match[1] + packed, html, count=1)
    path = folder / "prompts.html"
    path.write_text(html.replace("<script type=", elements + "<script type=", 1), encoding="utf-8")
    return path.as_uri()


@pytest.mark.parametrize("case", SAID)
def test_the_prompt_as_it_was_sent_is_opened_by_its_key(
    browser: Browser, page_file: Path, tmp_path: Path, case: str
) -> None:
    prompts, sentences = SAID[case]
    tab = opened(browser, page_with(page_file, tmp_path, prompts))
    tab.go(f"{CELL}/q/q3")
    summary = tab.page.locator("summary", has_text="Prompt as sent")
    assert not tab.page.locator("details", has=summary).evaluate("details => details.open")
    summary.focus()
    tab.page.keyboard.press("Enter")
    tab.drawn(f"{CELL}/q/q3?p=1")
    details = tab.page.locator("details", has=summary)
    for sentence in sentences:
        details.get_by_text(sentence).wait_for()
    assert tab.page.evaluate("document.activeElement.tagName") == "SUMMARY"
    boxes = details.locator(".text")
    shown = 1 if case == "equal" else sum(map(bool, prompts.values()))
    assert boxes.evaluate_all("boxes => boxes.map(box => box.textContent)") == [SENT] * shown
    assert details.locator("h3").all_inner_texts() == [
        f"{title}: 7 tokens, 2 of them special (in boxes)"
        for title in (
            ["Base and RL"] if case == "equal" else [{"base": "Base", "rl": "RL"}[n] for n in prompts if prompts[n]]
        )
    ]
    assert details.get_by_text(UNKNOWN).count() == list(prompts.values()).count(None)
    assert details.locator(".differs").all_inner_texts() == [" plus\t"] * (2 if case == "differ" else 0)
    assert not tab.page.evaluate("'hacked' in window")
    tab.page.keyboard.press("Enter")
    tab.drawn(f"{CELL}/q/q3")
    assert tab.faults == []
    tab.page.context.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_special_tokens_of_a_prompt_stand_in_boxes_and_every_token_has_its_id(
    browser: Browser, page_file: Path, tmp_path: Path, scheme: str
) -> None:
    tab = opened(browser, page_with(page_file, tmp_path, SAID["differ"][0]), scheme=scheme)
    tab.go(f"{CELL}/q/q3?p=1")
    box = tab.page.get_by_role("region", name="Prompt of RL")
    assert box.locator(".token").count() == len(PIECES)
    special = box.get_by_role("group", name="special token", exact=True)
    assert special.all_inner_texts() == ["<s>", "</s>"]
    widths = "tokens => tokens.map(token => getComputedStyle(token).borderLeftWidth)"
    assert special.evaluate_all(widths) == ["1px", "1px"]
    assert set(box.locator(".token:not(.special)").evaluate_all(widths)) == {"0px"}
    grounds = box.locator(".token").evaluate_all(
        "tokens => tokens.map(token => getComputedStyle(token).backgroundColor)"
    )
    assert grounds[1] != grounds[2] != grounds[3], "the bounds of tokens are seen"
    titles = box.locator(".token").evaluate_all("tokens => tokens.map(token => token.title)")
    assert titles[:4] == [
        "special token, token 1, id 1", "token 2, id 20", "token 3, id 13", "first difference, token 4, id 31",
    ]  # fmt: skip
    if AXE.exists():
        tab.page.evaluate(AXE.read_text())
        assert tab.page.evaluate(HURT) == []
    tab.page.context.close()


def test_a_prompt_is_asked_for_when_it_is_opened(browser: Browser, served: str) -> None:
    tab = opened(browser, served)
    page, prompts = tab.page, SAID["differ"][0]
    index = json.loads(page.evaluate("fetch('data/index.json').then(reply => reply.text())"))
    changed = with_prompts(index, prompts, "/{question}")
    page.route("**/data/index.json", lambda route: route.fulfill(json=changed))
    page.route(
        "**/prompts/by-hand-*/3.json",
        lambda route: route.fulfill(json={"3": prompts["base" if "-base/" in route.request.url else "rl"]}),
    )
    page.reload()
    tab.go(f"{CELL}/q/q3")
    assert not [url for url in tab.asked if "/prompts/" in url]
    page.keyboard.press("p")
    page.get_by_text("The prompts differ, first at token 4.").wait_for()
    page.keyboard.press("l")
    tab.drawn(f"{CELL}/q/q3?p=1&rs=1")
    page.get_by_text("The prompts differ, first at token 4.").wait_for()
    asked = [url.rpartition("/data/")[2] for url in tab.asked if "/prompts/" in url]
    assert sorted(asked) == ["prompts/by-hand-base/3.json", "prompts/by-hand-rl/3.json"]
    assert tab.faults == []
    page.context.close()


def test_a_long_prompt_is_shown_as_far_as_its_first_difference(
    browser: Browser, page_file: Path, tmp_path: Path
) -> None:
    ids = list(range(4000))
    base = {"pieces": [f"{i}\n" for i in ids], "ids": ids, "special": []}
    tab = opened(
        browser, page_with(page_file, tmp_path, {"base": base, "rl": {**base, "ids": [*ids[:1999], 0, *ids[2000:]]}})
    )
    tab.go(f"{CELL}/q/q3?p=1")
    box = tab.page.get_by_role("region", name="Prompt of Base")
    assert box.locator(".token").count() == 2000
    tab.page.get_by_role("button", name="Show where").click()
    mark, frame = (each.bounding_box() for each in (box.locator(".differs"), box))
    assert frame["y"] <= mark["y"] <= frame["y"] + frame["height"]
    for more in (3500, 4000):
        box.get_by_role("button", name="Show more of 4,000 tokens").click()
        assert box.locator(".token").count() == more
    assert box.get_by_role("button").count() == 0
    tab.page.context.close()


# ---- samples on the page of searchlens compare


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


# ---- what readers want of the pages of a study, and with how many clicks they have it


TASKS = {
    "who leads with one sample and with most": ([], r"With 1 sample neither leads surely: RL − Base is \+20\.8 \["),
    "one greedy answer of each": ([], r"One greedy answer of Base solves 66\.7% .* of RL 66\.7%"),
    "whether the samples are sound": ([], r"The samples are sound: 100% of Base's and 100% of RL's state an answer"),
    "what one sample of RL is worth": ([], r"One sample of RL is worth 2\.6 \[1\.0 or less, 4\.0 or more\] of Base"),
    "which policies of Base reach RL": (["sums"], r"top-p 0\.9, temperature 0\.7"),
    "which exponents of a law are allowed": (["sums", "Budgets"], r"not rejected at 95% are exponents β from 0\.00 to"),
    "which questions Base alone solves": (["1 question that Base solves", "q4"], r"RL solves nothing|none of RL's"),
    "how many samples of a question are right": (["sums", "Questions", "q1"], r"2 of 4 samples right"),
    "where the samples were drawn": (["Origins"], r"cpu"),
    "a table with its numbers": (["Tables", "Support"], r"[Ee]xpanded"),
}


@pytest.mark.parametrize("task", TASKS)
def test_readers_have_it_in_three_clicks(tab: Tab, task: str) -> None:
    clicks, wanted = TASKS[task]
    assert len(clicks) <= 3
    for name in clicks:
        tab.click(re.compile(f"^{re.escape(name)}"))
    assert re.search(wanted, tab.text(), re.DOTALL)


def test_tokens_are_coloured_by_how_the_sides_differ(tab: Tab) -> None:
    """Of samples that were scored; the colours and the words are those of the pair's log p."""
    tab.go(f"{CELL}/q/q1")
    tab.page.get_by_role("button", name="Colour tokens by how the other side differs").click()
    tab.drawn(f"{CELL}/q/q1?t=2")
    grounds = tab.page.locator(".isrl [data-p]").evaluate_all("spans => spans.map(span => span.style.background)")
    shares = re.findall(r"var\(--(rl|base)\) (\d+)%", " ".join(grounds))
    assert shares == [("base", "21"), ("base", "0"), ("rl", "21"), ("rl", "41")]
    tab.page.locator(".isrl [role=application]").focus()
    for _ in range(3):
        tab.page.keyboard.press("ArrowRight")
    assert (
        "probability 1.83% under Base, 8.21% under RL: log p of RL − log p of Base is +1.500; rank 13 under Base."
    ) in tab.text(".isrl .readout")
    tab.page.locator(".isbase [data-p]").first.click()
    assert "is −1.500; rank 21 under RL." in tab.text(".isbase .readout").replace("\u2212", "−")
    tab.go(f"{CELL}/q/q1?t=2&rs=3")
    assert "The tokens of this sample were not scored under both sides." in tab.text(".isrl")
    assert tab.page.locator(".isrl [data-p]").count() == 0
    tab.page.keyboard.press("d")
    tab.drawn(f"{CELL}/q/q1?rs=3")
    tab.go(f"{CELL}/q/q1?rs=3&bs=3")
    assert tab.page.locator('[data-key="tokens"]').count() == 1
    assert tab.page.locator('[data-key="differences"]').count() == 0, "neither of these samples was scored"


def test_a_question_that_rl_alone_solves_has_the_bounds_of_bases_chance(tab: Tab) -> None:
    words = "Base's chance: at least 0.0023, at most 0.6"
    tab.go(f"{CELL}/q?sort=rl-only")
    rows = tab.page.get_by_role("listitem").all_inner_texts()
    assert [row.split()[0] for row in rows if words in row] == ["q3"]
    tab.click("q3")
    assert words in tab.text() and "What Base's chance is" in tab.text()
    tab.go(f"{CELL}/q/q4")
    assert "Base's chance" not in tab.text()
