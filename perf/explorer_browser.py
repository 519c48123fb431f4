"""The explorer in a browser: time to the first view, from a click to the texts of a question, bytes and memory.

    python perf/explorer.py --keep FOLDER         # a study of a million samples
    python perf/explorer_browser.py FOLDER/results [--clicks 20]

Opened are the page of `searchlens explore` from its file, and that of `searchlens view` by ranges, each in a new
Chromium (playwright; `make test-browser` installs it). Times are wall seconds seen from outside, so they include the
server's work and playwright's; bytes are those of replies, against the two shards that hold the texts (the baseline:
what a page without ranges would load).
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
from playwright.sync_api import Page, Response, sync_playwright

import searchlens
from searchlens.api.study import Study
from searchlens.reporting.explorer_files import telling
from searchlens.reporting.explorer_html import explorer_page
from searchlens.reporting.explorer_server import Server

ALL_QUESTIONS = "All questions"


class Visit:
    """A page with a count of the bytes that it was sent."""

    def __init__(self, page: Page) -> None:
        self.page, self.bytes = page, 0
        page.on("response", self._count)
        self.session = page.context.new_cdp_session(page)
        self.session.send("Performance.enable", {"timeDomain": "threadTicks"})

    def _count(self, reply: Response) -> None:
        if reply.request.method == "GET":  # the reply to HEAD states a length and has no bytes
            self.bytes += int(reply.headers.get("content-length", "0"))

    def drawn(self) -> None:
        """Wait until the view of the address is drawn."""
        self.page.wait_for_function(
            "() => document.documentElement.dataset.drawn === (location.hash || '#/')", timeout=60_000
        )

    def first(self, address: str) -> float:
        """Seconds until the curves of the first box are there."""
        started = time.perf_counter()
        self.page.goto(address)
        self.page.wait_for_selector("article.card .chart svg", timeout=60_000)
        return time.perf_counter() - started

    def cpu(self) -> float:
        """CPU seconds of the page's own thread so far."""
        metrics = self.session.send("Performance.getMetrics")["metrics"]
        return float(next(each["value"] for each in metrics if each["name"] == "TaskDuration"))

    def question(self, cell: str, question: int) -> tuple[float, float, int]:
        """Wall seconds, CPU seconds of the page and bytes from a click in the list to the texts of both models."""
        self.page.evaluate("view => { location.hash = view }", f"{cell}/q?find=q{question}")
        self.drawn()
        link = self.page.locator(f'a[data-row="q{question}"]')
        link.wait_for()
        self.page.wait_for_timeout(300)  # what the list loads beside is not of the click
        before, busy, started = self.bytes, self.cpu(), time.perf_counter()
        link.click()
        for side in ("isbase", "isrl"):
            self.page.wait_for_selector(f'.{side} [aria-label^="Text of sample"]', timeout=60_000)
        wall = time.perf_counter() - started
        return wall, self.cpu() - busy, self.bytes - before

    def heap(self) -> float:
        """Megabytes of JavaScript objects after a collection."""
        self.session.send("HeapProfiler.collectGarbage")
        return float(self.session.send("Runtime.getHeapUsage")["usedSize"]) / 1e6


def visit(name: str, address: str, study: Study, questions: list[int]) -> None:
    """Open a page in a new browser, click, and print what it took."""
    (pair, benchmark, base, rl) = study.sides[0]
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        seen = Visit(browser.new_page())
        first = seen.first(address)
        print(f"{name}: first view {first:.2f} s ({seen.cpu():.2f} CPU s of the page), {seen.bytes / 1e6:.2f} MB")
        found = [seen.question(f"#/c/{pair}/{benchmark}", each) for each in questions]
        times, busy, sizes = (list(column) for column in zip(*found, strict=True))
        print(f"  click to texts: median {statistics.median(times):.2f} s, longest {max(times):.2f} s, of {len(times)}")
        print(f"  CPU seconds of the page for it: median {statistics.median(busy):.2f}, most {max(busy):.2f}")
        print(f"  bytes of a click: first {sizes[0] / 1e3:.0f} kB, median {statistics.median(sizes) / 1e3:.0f} kB")
        whole = sum(study.shards(side, benchmark)[study.default_policy][0].sidecar["bytes"] for side in (base, rl))
        print(f"  the two shards of the default policy whole (baseline): {whole / 1e3:.0f} kB")
        seen.page.evaluate("view => { location.hash = view }", f"#/c/{pair}/{benchmark}/q")
        seen.drawn()
        listed = seen.page.locator('[role="listitem"]').count()
        print(f"  memory {seen.heap():.0f} MB; rows of the list in the page: {listed}")
        browser.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("results", type=Path)
    parser.add_argument("--clicks", type=int, default=20)
    args = parser.parse_args()
    study = searchlens.open(args.results)
    rng = np.random.default_rng(0)
    server = Server(study, 0)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        visit("view", server.url, study, [int(q) for q in rng.choice(500, args.clicks, replace=False)])
    finally:
        server.shutdown()
        server.server_close()
    with tempfile.TemporaryDirectory() as name:
        path = Path(name, "explorer.html")
        made = explorer_page(study)
        path.write_text(made.html, encoding="utf-8")
        _, benchmark, base, rl = study.sides[0]
        inside = telling(study, benchmark, base, rl, min(20, args.clicks))
        print(f"explorer.html: {len(made.html) / 1e6:.1f} MB")
        visit("file", path.as_uri(), study, inside)


if __name__ == "__main__":
    main()
