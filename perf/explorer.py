"""The explorer on a study of 1,000,000 samples, and what one question of a shard costs by ranges.

    python perf/explorer.py [--clicks 20]

The study has two checkpoints, 63 policies, 500 questions and 16 samples each, with short texts, verdicts, landscapes
and a recovery analysis. Measured: the index that `searchlens view` makes, against a reading of all texts (the baseline:
what a page without an index would need). CPU seconds are those of this process.

One question of a shard of 500 questions, 16 samples, 2.4 kB a text and 300 to 1,000 tokens each is read by the page's
own reader, with node, if `make web` was run: bytes that it fetches, against the whole shard (the baseline).

With ``--clicks`` the page of `view` is opened in a new Chromium (playwright; `make test-browser` installs it): time to
the first view, from a click to the texts of a question, and bytes. Times are wall seconds seen from outside, so they
include the server's work and playwright's; bytes are those of replies, against the two shards that hold the texts (the
baseline: what a page without ranges would load).
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import subprocess
import tempfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import harness
import numpy as np
import polars as pl
from harness import spent

import searchlens
from searchlens.reporting.explorer_files import Files
from searchlens.reporting.explorer_server import Server
from searchlens.store import shards

if TYPE_CHECKING:
    from playwright.sync_api import Page, Response

ROOT = Path(__file__).parents[1]
QUESTIONS, SAMPLES = 500, 16

READER = """
import { closeSync, openSync, readSync, statSync } from "node:fs";
import { parquetMetadataAsync, parquetReadObjects } from "hyparquet";
import { decompress } from "fzstd";
const [, path, first, last, ...columns] = process.argv;
const size = statSync(path).size, descriptor = openSync(path);
let bytes = 0;
const slice = async (start, end = size) => {
  bytes += end - start;
  const buffer = Buffer.alloc(end - start);
  readSync(descriptor, buffer, 0, end - start, start);
  return buffer.buffer.slice(buffer.byteOffset, buffer.byteOffset + buffer.length);
};
const file = { byteLength: size, slice }, rowStart = Number(first), rowEnd = Number(last);
const compressors = { ZSTD: (data, length) => decompress(data, new Uint8Array(length)) };
const started = performance.now();
const metadata = await parquetMetadataAsync(file, { initialFetchSize: 65536 });
const rows = await parquetReadObjects({ file, metadata, compressors, rowStart, rowEnd, columns, useOffsetIndex: true });
console.log(JSON.stringify({ bytes, size, rows: rows.length, ms: performance.now() - started }));
closeSync(descriptor);
"""
TEXTS = ("question", "sample", "text", "finish")
LISTS = ("tokens", "logprobs", "sampling_logprobs")


def build(folder: Path) -> Path:
    """Write a study, grade and analyse it; returns its results."""
    sizes = {"policies": 63, "questions": QUESTIONS, "vocabulary": 150_001}
    settings = harness.study(folder, **sizes, **harness.drawn(SAMPLES), landscape={"draws": 200})
    grid = harness.build(folder, settings, tokens=40)
    for cell in grid.study.cells:
        harness.score(folder, grid, *cell)
        harness.landscape(folder, grid, *cell)
    harness.recovery(folder, grid, *grid.study.pair_cells[0])
    return folder / "results"


def measure(results: Path) -> None:
    """The index of a study, and what a page without one would read."""
    opened = searchlens.open(results)
    cells = [(side, benchmark) for _, benchmark, *both in opened.sides for side in both]
    parts = [shard for cell in cells for shards_ in opened.shards(*cell).values() for shard in shards_]
    samples = sum(shard.sidecar["rows"] for shard in parts)
    size = sum(path.stat().st_size for path in results.rglob("*.parquet"))
    print(f"{samples:,} samples, {size / 1e6:,.0f} MB of Parquet")
    files = Files(opened)
    index, took = spent(lambda: files.index)
    print(f"index of {len(index) / 1e3:.0f} kB: {took}")
    _, took = spent(lambda: [pl.read_parquet(shard.path, columns=["question", "text"]) for shard in parts])
    print(f"reading all texts instead (baseline): {took}")


def ranges(folder: Path) -> None:
    """What one question costs in a shard with long texts."""
    if shutil.which("node") is None or not (ROOT / "web/node_modules/hyparquet").exists():
        print("one question by ranges: not measured; `make web` installs the page's reader")
        return
    rng, rows = np.random.default_rng(0), QUESTIONS * SAMPLES
    lengths = rng.integers(300, 1001, rows)
    words = np.array([f"word{i}" for i in range(5_000)])
    drawn = harness.frame(
        rows,
        question=[f"q{i // SAMPLES}" for i in range(rows)],
        sample=[i % SAMPLES for i in range(rows)],
        text=[" ".join(words[rng.integers(0, 5_000, 270)]) for _ in range(rows)],
        **harness.lists(rng, lengths),
    )
    with shards._writer(folder / "shard.parquet", {}) as writer:
        writer.write_table(drawn.to_arrow().cast(writer.schema))
    rows_asked = [str(250 * SAMPLES), str(251 * SAMPLES)]
    command = ["node", "--input-type=module", "--eval", READER, "--", str(folder / "shard.parquet"), *rows_asked]
    for name, columns in (("texts", TEXTS), ("texts, tokens and log-probabilities", (*TEXTS, *LISTS))):
        done = subprocess.run([*command, *columns], cwd=ROOT / "web", capture_output=True, text=True, check=True)
        found = json.loads(done.stdout)
        assert found["rows"] == SAMPLES
        print(
            f"16 samples of one question, {name}: {found['bytes'] / 1e3:.0f} kB with the footer, {found['ms']:.0f} ms"
        )
        more = found["size"] / found["bytes"]
        print(f"  whole shard (baseline): {found['size'] / 1e6:.1f} MB, {more:.0f} times as much")


# ---- in a browser


class Visit:
    """A page with a count of the bytes that it was sent."""

    def __init__(self, page: Page) -> None:
        self.page, self.bytes = page, 0
        page.on("response", self._count)

    def _count(self, reply: Response) -> None:
        if reply.request.method == "GET":  # the reply to HEAD states a length and has no bytes
            self.bytes += int(reply.headers.get("content-length", "0"))

    def first(self, address: str) -> float:
        """Seconds until the curves of the first box are there."""
        started = time.perf_counter()
        self.page.goto(address)
        self.page.wait_for_selector("article.card .chart svg", timeout=60_000)
        return time.perf_counter() - started

    def question(self, cell: str, question: int) -> tuple[float, int]:
        """Wall seconds and bytes from a click in the list to the texts of both models."""
        self.page.evaluate("view => { location.hash = view }", f"{cell}/q?find=q{question}")
        self.page.wait_for_function(
            "() => document.documentElement.dataset.drawn === (location.hash || '#/')", timeout=60_000
        )
        link = self.page.locator(f'a[data-row="q{question}"]')
        link.wait_for()
        self.page.wait_for_timeout(300)  # what the list loads beside is not of the click
        before, started = self.bytes, time.perf_counter()
        link.click()
        for side in ("isbase", "isrl"):
            self.page.wait_for_selector(f'.{side} [aria-label^="Text of sample"]', timeout=60_000)
        return time.perf_counter() - started, self.bytes - before


def browse(results: Path, clicks: int) -> None:
    """Open the page of `view` in a new browser, click, and print what it took."""
    from playwright.sync_api import sync_playwright  # noqa: PLC0415 - `make test-browser` installs it

    study = searchlens.open(results)
    pair, benchmark, *sides = study.sides[0]
    whole = sum(study.shards(side, benchmark)[study.default_policy][0].sidecar["bytes"] for side in sides)
    questions = np.random.default_rng(0).choice(QUESTIONS, clicks, replace=False).tolist()
    server = Server(study, 0)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
            seen = Visit(browser.new_page())
            first = seen.first(server.url)
            print(f"first view {first:.2f} s, {seen.bytes / 1e6:.2f} MB")
            found = [seen.question(f"#/c/{pair}/{benchmark}", question) for question in questions]
            browser.close()
    finally:
        server.shutdown()
        server.server_close()
    times, sizes = (list(column) for column in zip(*found, strict=True))
    print(f"click to texts: median {statistics.median(times):.2f} s, longest {max(times):.2f} s, of {len(times)}")
    print(f"bytes of a click: first {sizes[0] / 1e3:.0f} kB, median {statistics.median(sizes) / 1e3:.0f} kB")
    print(f"the two shards of the default policy whole (baseline): {whole / 1e3:.0f} kB")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--clicks", type=int, default=0, help="questions to open in Chromium")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        results, took = spent(lambda: build(Path(name)))
        print(f"a study: {took} to write")
        measure(results)
        ranges(Path(name))
        if args.clicks:
            browse(results, args.clicks)


if __name__ == "__main__":
    main()
