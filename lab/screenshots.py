"""Screenshots of the pages that a run and ``searchlens compare`` write: ``make screenshots``, after ``make demo``."""

from __future__ import annotations

import io
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from PIL import Image, ImageOps
from playwright.sync_api import sync_playwright

ROOT = Path(__file__).parents[1]
FIGURES = ROOT / "docs/figures"
VIEWS = {
    "report": ("report.html", 760, 820),
    "explorer": ("explorer.html", 900, 760),
    "question": ("explorer.html#/c/micro-1m/aime/q/aime-0005", 900, 760),
    "compare": ("compare.html", 900, 760),
}
"""Name of each screenshot: the page with its view, and width and height in pixels."""
COLOURS = 24


def main(results: Path) -> None:
    """Draw all, from a folder of results."""
    with tempfile.TemporaryDirectory() as place, sync_playwright() as playwright:
        compared = Path(place, "compare.html")
        subprocess.run(["searchlens", "compare", "--demo", "--html", compared], check=True, capture_output=True)
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        for name, (view, width, height) in VIEWS.items():
            file, _, inside = view.partition("#")
            folder = compared.parent if file == compared.name else results
            page = browser.new_page(viewport={"width": width, "height": height})
            page.goto(f"{(folder.resolve() / file).as_uri()}#{inside}")
            page.wait_for_load_state("networkidle")
            if file == "explorer.html":
                page.wait_for_function("document.documentElement.dataset.drawn")
            target = FIGURES / f"screen_{name}.webp"
            drawn = Image.open(io.BytesIO(page.screenshot())).convert("RGB")
            few = drawn.quantize(COLOURS, Image.Quantize.MAXCOVERAGE, kmeans=1).convert("RGB")
            ImageOps.expand(few, border=1, fill="gray").save(target, lossless=True, quality=100, method=6)
            print(f"{target.relative_to(ROOT)}: {target.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main(Path(sys.argv[1] if sys.argv[1:] else ROOT / "results"))
