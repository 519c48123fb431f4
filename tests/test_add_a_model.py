"""docs/add-a-model.md, followed to the letter in a copy of the sources, with the micro pair on a hub of our own."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import pages
from local_hub import serve

ROOT = Path(__file__).parents[1]
PAGE = "docs/add-a-model.md"
Hub = dict[str, str]


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[Hub]:
    """Variables by which the names of the page are on the hub, and its cache is empty."""
    zoo = {"your-org/your-base": "micro-1m-base", "your-org/your-rl": "micro-1m-rl"}
    files = {
        repo: {path.name: path.read_bytes() for path in (ROOT / "resources/zoo" / folder).iterdir()}
        for repo, folder in zoo.items()
    }
    with serve(files, "c" * 40) as address:
        yield {"HF_ENDPOINT": address, "HF_HUB_CACHE": str(tmp_path / "hub"), "HF_HUB_OFFLINE": "0"}


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    return pages.checkout(tmp_path, "workflow", "Snakefile")


def console(text: str) -> Iterator[tuple[str, str]]:
    """Commands of a block, each with what it prints."""
    for part in text.removeprefix("$ ").split("\n$ "):
        command, _, output = part.partition("\n")
        yield command, output.strip("\n")


def follow(block: re.Match[str], folder: Path, hub: Hub) -> None:
    """Do what one block says; … stands for anything on a line."""
    if block["kind"] == "yaml":
        (folder / block["path"]).write_text(block["text"])
        return
    for command, output in console(block["text"]):
        done = pages.run(folder, *command.split(), **hub)
        assert done.returncode == int("not ready to run" in output), done.stdout + done.stderr
        expected = ".*".join(map(re.escape, output.split("…")))
        assert command.startswith("snakemake") or re.fullmatch(expected, done.stdout.strip("\n")), done.stdout


@pytest.mark.long
def test_the_page_works_as_written(checkout: Path, hub: Hub) -> None:
    for block in pages.blocks(PAGE):
        follow(block, checkout, hub)
    assert len(list(checkout.glob("results/generations/mine-*/math/*/*.parquet"))) == 6
    command = ["snakemake", "-n", "results/tables/horizontal.csv", "--configfile", "config/mine.yaml"]
    done = pages.run(checkout, *command, **hub)
    assert done.returncode == 0, "the pair of the page has tables of BOPTR" + done.stderr


@pytest.mark.long
def test_what_the_page_promises_of_corrupted_weights_holds(checkout: Path, hub: Hub) -> None:
    """A flipped byte is noticed by the job, before anything is sampled."""
    for block in pages.blocks(PAGE)[:4]:
        follow(block, checkout, hub)
    (weights,) = (checkout / "hub").glob("models--your-org--your-base/snapshots/*/model.safetensors")
    content = bytearray(weights.read_bytes())
    content[len(content) // 2] ^= 1
    blob = weights.resolve()
    blob.chmod(0o644)
    blob.write_bytes(content)
    command = ["searchlens", "generate", "--checkpoint", "mine-base", "--benchmark", "math"]
    done = pages.run(checkout, *command, "--config", "config/mine.yaml", **hub)
    assert done.returncode == 2
    assert "model.safetensors has sha256" in done.stderr
    assert "delete the damaged files, then run `searchlens fetch`" in done.stderr
    assert not list(checkout.glob("results/generations/**/*.parquet"))
    named = re.search(r"\((/[^)]+)\)", done.stderr)
    assert named
    Path(named[1]).unlink()
    assert pages.run(checkout, "searchlens", "fetch", "--config", "config/mine.yaml", **hub).returncode == 0
