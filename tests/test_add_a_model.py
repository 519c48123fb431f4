"""docs/add-a-model.md, followed to the letter in a copy of the sources, with the micro pair on a hub of our own."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from local_hub import serve

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs/add-a-model.md").read_text()
BLOCK = re.compile(r"(?:^`(?P<path>[^`\n]+)`:\n\n)?^```(?P<kind>\w+)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.fixture
def environment(tmp_path: Path) -> Iterator[dict[str, str]]:
    """Where the names of the page are on the hub, and its cache is empty."""
    zoo = {"your-org/your-base": "micro-1m-base", "your-org/your-rl": "micro-1m-rl"}
    files = {
        repo: {path.name: path.read_bytes() for path in (ROOT / "resources/zoo" / folder).iterdir()}
        for repo, folder in zoo.items()
    }
    with serve(files, "c" * 40) as address:
        yield {
            **os.environ,
            "PYTHONPATH": str(tmp_path / "src"),
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "HF_ENDPOINT": address,
            "HF_HUB_CACHE": str(tmp_path / "hub"),
            "HF_HUB_OFFLINE": "0",
        }


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A folder like a fresh checkout, as far as the page needs one."""
    for name in ("src", "config"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    for name in ("resources", "workflow", "Snakefile"):
        (tmp_path / name).symlink_to(ROOT / name)
    return tmp_path


def console(text: str) -> Iterator[tuple[str, str]]:
    """Commands of a block, each with what it prints."""
    for part in text.removeprefix("$ ").split("\n$ "):
        command, _, output = part.partition("\n")
        yield command, output.strip("\n")


def follow(block: re.Match[str], folder: Path, environment: dict[str, str]) -> None:
    """Do what one block says; … stands for anything on a line."""
    if block["kind"] == "yaml":
        (folder / block["path"]).write_text(block["text"])
    else:
        for command, output in console(block["text"]):
            done = subprocess.run(
                command.split(), cwd=folder, env=environment, capture_output=True, text=True, check=False
            )
            status = int("not ready to run" in output)
            assert done.returncode == status, done.stdout + done.stderr
            expected = ".*".join(map(re.escape, output.split("…")))
            assert command.startswith("snakemake") or re.fullmatch(expected, done.stdout.strip("\n")), done.stdout


def test_the_page_works_as_written(checkout: Path, environment: dict[str, str]) -> None:
    blocks = list(BLOCK.finditer(PAGE))
    assert len(blocks) == PAGE.count("```") // 2
    for block in blocks:
        follow(block, checkout, environment)
    assert len(list(checkout.glob("results/generations/mine-*/math/*/*.parquet"))) == 6
    command = ["snakemake", "-n", "results/tables/horizontal.csv", "--configfile", "config/mine.yaml"]
    done = subprocess.run(command, cwd=checkout, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, "the pair of the page has tables of BOPTR" + done.stderr


def test_what_the_page_promises_of_corrupted_weights_holds(checkout: Path, environment: dict[str, str]) -> None:
    """A flipped byte is noticed by the job, before anything is sampled."""
    blocks = list(BLOCK.finditer(PAGE))
    for block in blocks[:4]:
        follow(block, checkout, environment)
    (weights,) = (checkout / "hub").glob("models--your-org--your-base/snapshots/*/model.safetensors")
    content = bytearray(weights.read_bytes())
    content[len(content) // 2] ^= 1
    blob = weights.resolve()
    blob.chmod(0o644)
    blob.write_bytes(content)
    command = [
        "searchlens",
        "generate",
        "--config",
        "config/mine.yaml",
        "--checkpoint",
        "mine-base",
        "--benchmark",
        "math",
    ]
    done = subprocess.run(command, cwd=checkout, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "model.safetensors has sha256" in done.stderr
    assert "delete the damaged files, then run `searchlens fetch`" in done.stderr
    assert not list(checkout.glob("results/generations/**/*.parquet"))
    named = re.search(r"\((/[^)]+)\)", done.stderr)
    assert named
    Path(named[1]).unlink()
    fetched = subprocess.run(
        ["searchlens", "fetch", "--config", "config/mine.yaml"], cwd=checkout, env=environment, check=False
    )
    assert fetched.returncode == 0
