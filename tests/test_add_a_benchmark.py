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
    if block["path"]:
        (folder / block["path"]).write_text(block["text"])
    elif block["kind"] == "console":
        command, expected = block["text"].removeprefix("$ ").split("\n", 1)
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        environment = {**os.environ, "PYTHONPATH": str(folder / "src"), "PATH": path}
        process = subprocess.run(
            command.split(), cwd=folder, env=environment, capture_output=True, text=True, check=False
        )
        assert (process.stdout, process.returncode) == (expected, 0), process.stderr


def test_the_page_works_as_written(checkout: Path) -> None:
    """Files are written, and commands print what the page shows."""
    blocks = list(BLOCK.finditer(PAGE))
    assert len(blocks) == PAGE.count("```") // 2
    for block in blocks:
        follow(block, checkout)
    assert len((checkout / "golds/capitals.txt").read_text().splitlines()) == 2
    assert sum(block["kind"] == "console" for block in blocks) == 5


def test_what_the_page_promises_of_a_wrong_file_holds(checkout: Path) -> None:
    """A known family refuses another number of rows, and a new one a gold that its digests do not know."""
    for block in BLOCK.finditer(PAGE):
        follow(block, checkout)
    amc = checkout / "config/amc.yaml"
    amc.write_text(amc.read_text().replace("check: false", "check: true"))
    capitals = checkout / "data/capitals.jsonl"
    capitals.write_text(capitals.read_text().replace('"answer": 0', '"answer": 1'))
    for name, expected in (("amc", "AMC23 has 40"), ("capitals", "question 2 (capitals-0002): gold 'B'")):
        command = [sys.executable, "-m", "searchlens", "check", "--config", f"config/{name}.yaml"]
        environment = {**os.environ, "PYTHONPATH": str(checkout / "src")}
        process = subprocess.run(command, cwd=checkout, env=environment, capture_output=True, text=True, check=False)
        assert process.returncode == 2
        assert expected in process.stderr


def test_a_family_with_fields_of_its_own_and_one_moved_into_the_package(checkout: Path) -> None:
    """The page's function that converts row by row, and its last paragraph."""
    for block in BLOCK.finditer(PAGE):
        if block["path"]:
            follow(block, checkout)
    converted = next(block["text"] for block in BLOCK.finditer(PAGE) if block["kind"] == "text")
    declared = (checkout / "capitals.py").read_text()
    families = checkout / "src/searchlens/benchmarks/families.py"
    families.write_text(
        f"{families.read_text()}\n\nfrom searchlens.benchmarks.questions import Question\n\n"
        + declared.replace("def capitals(file):\n    return choices.read(file)\n", converted)
    )
    rows = ('{"country": "France", "capital": "A"}\n', '{"country": "Italy", "capital": "B"}\n')
    (checkout / "data/capitals.jsonl").write_text("".join(rows))
    code = (
        "from pathlib import Path\nfrom searchlens import benchmarks\n"
        "print([q.gold for q in benchmarks.load(Path('data/capitals.jsonl'), family='capitals')])"
    )
    environment = {**os.environ, "PYTHONPATH": str(checkout / "src")}
    output = subprocess.run(
        [sys.executable, "-c", code], cwd=checkout, env=environment, capture_output=True, text=True, check=True
    ).stdout
    assert output == "['A', 'B']\n"
