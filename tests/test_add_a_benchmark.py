"""docs/add-a-benchmark.md, followed to the letter in a copy of the sources."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

import pages

BLOCKS = pages.blocks("docs/add-a-benchmark.md")


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    (tmp_path / "data").mkdir()
    return pages.checkout(tmp_path)


def follow(block: re.Match[str], folder: Path) -> None:
    """Do what one block says."""
    if block["path"]:
        (folder / block["path"]).write_text(block["text"])
    elif block["kind"] == "console":
        command, expected = block["text"].removeprefix("$ ").split("\n", 1)
        done = pages.run(folder, *command.split())
        assert (done.stdout, done.returncode) == (expected, 0), done.stderr


@pytest.mark.long
def test_the_page_works_as_written(checkout: Path) -> None:
    """Files are written, and commands print what the page shows."""
    for block in BLOCKS:
        follow(block, checkout)
    assert len((checkout / "golds/capitals.txt").read_text().splitlines()) == 2
    assert sum(block["kind"] == "console" for block in BLOCKS) == 5


@pytest.mark.long
def test_what_the_page_promises_of_a_wrong_file_holds(checkout: Path) -> None:
    """A known family refuses another number of rows, and a new one a gold that its digests do not know."""
    for block in BLOCKS:
        follow(block, checkout)
    amc = checkout / "config/amc.yaml"
    amc.write_text(amc.read_text().replace("check: false", "check: true"))
    capitals = checkout / "data/capitals.jsonl"
    capitals.write_text(capitals.read_text().replace('"answer": 0', '"answer": 1'))
    for name, expected in (("amc", "AMC23 has 40"), ("capitals", "question 2 (capitals-0002): gold 'B'")):
        done = pages.run(checkout, "searchlens", "check", "--config", f"config/{name}.yaml")
        assert done.returncode == 2
        assert expected in done.stderr


def test_a_family_with_fields_of_its_own_and_one_moved_into_the_package(checkout: Path) -> None:
    """The page's function that converts row by row, and its last paragraph."""
    for block in BLOCKS:
        if block["path"]:
            follow(block, checkout)
    converted = next(block["text"] for block in BLOCKS if block["kind"] == "text")
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
    assert pages.run(checkout, sys.executable, "-c", code).stdout == "['A', 'B']\n"
