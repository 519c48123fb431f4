"""docs/add-a-benchmark.md, followed to the letter in a copy of the sources."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "add-a-benchmark.md").read_text()
BLOCK = re.compile(r"(?:^`(?P<path>[^`\n]+)`:\n\n)?^```(?P<kind>\w+)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
FAMILIES = "src/searchlens/benchmarks/families.py"


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A folder like a fresh checkout, as far as the page needs one."""
    for name in ("src", "config"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    (tmp_path / "resources").symlink_to(ROOT / "resources")
    (tmp_path / "data").mkdir()
    return tmp_path


def follow(block: re.Match[str], folder: Path) -> None:
    """Do what one block says."""
    if block["kind"] in ("json", "yaml"):
        (folder / block["path"]).write_text(block["text"])
    elif block["kind"] == "text":
        source, above = (folder / FAMILIES).read_text(), "        _rltrain("
        assert f"`{FAMILIES}`" in PAGE
        (folder / FAMILIES).write_text(source.replace(above, block["text"] + above, 1))
    else:
        command, expected = block["text"].removeprefix("$ ").split("\n", 1)
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        environment = {**os.environ, "PYTHONPATH": str(folder / "src"), "PATH": path}
        found = subprocess.run(
            command.split(), cwd=folder, env=environment, capture_output=True, text=True, check=False
        )
        assert (found.stdout, found.returncode) == (expected, 0), found.stderr


def test_the_page_works_as_written(checkout: Path) -> None:
    """Files are written, code is inserted, and commands print what the page says they do."""
    blocks = list(BLOCK.finditer(PAGE))
    assert len(blocks) == PAGE.count("```") // 2
    for block in blocks:
        follow(block, checkout)
    assert (checkout / "src/searchlens/benchmarks/golds/capitals.txt").exists()
    assert sum(block["kind"] == "console" for block in blocks) == 4


def test_what_the_page_promises_of_a_wrong_file_holds(checkout: Path) -> None:
    """A known family refuses another number of rows, and a new one a gold that its digests do not know."""
    for block in BLOCK.finditer(PAGE):
        follow(block, checkout)
    amc = checkout / "config/amc.yaml"
    amc.write_text(amc.read_text().replace("check: false", "check: true"))
    capitals = checkout / "data/capitals.jsonl"
    capitals.write_text(capitals.read_text().replace('"answer": 0', '"answer": 1'))
    for name, expected in (("amc", "AMC23 has 40"), ("capitals", "question 2 (capitals-0002): gold 'B'")):
        command = [sys.executable, "-m", "searchlens.cli", "check", "--config", f"config/{name}.yaml"]
        environment = {**os.environ, "PYTHONPATH": str(checkout / "src")}
        found = subprocess.run(command, cwd=checkout, env=environment, capture_output=True, text=True, check=False)
        assert found.returncode == 2
        assert expected in found.stderr
