"""The tutorials (docs/start-*.md), run from their first to their last command; what they show is what is printed."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import pages
from conftest import ZOO
from local_hub import serve
from test_requests import own_profile

ROOT = Path(__file__).parents[1]
HUB = {"my-lab/base": "micro-1m-base", "my-lab/rl": "micro-1m-rl"}
ON_A_CPU = """sed -i '/engine: vllm/d; /dtype: bfloat16/d; /device: cuda/d; s/qwen-boxed/zoo/' config/own.yaml
sed -i 's/questions: 50/questions: 6/; s/max_tokens: 3072/max_tokens: 96/' config/own.yaml
"""
"""In place of a GPU: the micro pair on the embedded engine, with its template, on six short questions."""


def follow(page: str, folder: Path, script: str = "", **variables: str) -> str:
    """Run all commands of a page in one shell; everything that they print."""
    script = script or commands(page)
    variables |= {"COLUMNS": "80", "PYTHONPATH": str(ROOT / "src")}
    done = pages.run(folder, "bash", "-euo", "pipefail", "-c", script, **variables)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def commands(page: str) -> str:
    return "".join(block["text"] for block in pages.blocks(page) if block["kind"] == "bash")


def shown(page: str) -> list[str]:
    """Lines of output that a page quotes; … stands for what it leaves out."""
    texts = [block["text"] for block in pages.blocks(page) if block["kind"] == "text"]
    return [line for text in texts for line in text.splitlines() if line != "…"]


def test_two_logs_in_five_minutes(tmp_path: Path) -> None:
    """The reader's own logs are the sample logs, copied."""
    page = "docs/start-logs.md"
    copied = 'mkdir logs; cp -r "$logs"/* logs\nsearchlens compare logs/base'
    script = commands(page).replace("searchlens compare logs/base", copied)
    printed = follow(page, tmp_path, script)
    assert printed.count(shown(page)[0]) == 3, "both ways, and the reader's own"
    assert [line for line in shown(page) if line not in printed] == []
    assert (tmp_path / "page.html").exists()


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[dict[str, str]]:
    """Variables by which the names of the page are on the hub, with questions of our own in MATH-500's form."""
    rows = [json.loads(line) for line in (ZOO / "benchmarks/math.jsonl").read_text().splitlines()[:500]]
    lines = [{"problem": row["question"], "answer": row["gold"], "unique_id": row["id"]} for row in rows]
    files = {name: {path.name: path.read_bytes() for path in (ZOO / folder).iterdir()} for name, folder in HUB.items()}
    files["datasets/HuggingFaceH4/MATH-500"] = {"test.jsonl": "\n".join(map(json.dumps, lines)).encode()}
    with serve(files, "c" * 40) as address:
        yield {"HF_ENDPOINT": address, "HF_HUB_CACHE": str(tmp_path / "hub"), "HF_HUB_OFFLINE": "0"}


@pytest.mark.long
def test_your_own_pair_on_one_gpu(tmp_path: Path, hub: dict[str, str]) -> None:
    page = "docs/start-pair.md"
    before, pin, after = commands(page).partition("searchlens pin ")
    printed = follow(page, tmp_path, before + ON_A_CPU + pin + after, **hub)
    assert "mine/math500: N=1:" in printed and "2 of 2 cells are healthy" in printed
    assert (tmp_path / "mine/results/report.html").exists()


def test_on_slurm(tmp_path: Path) -> None:
    """Planned alone, with the shipped profile; tests/slurm runs it."""
    script = commands("docs/start-slurm.md")
    trial, *rest = script.partition("snakemake ")
    planned = "".join(rest).replace("--profile slurm", "--profile slurm -n").replace("searchlens summary", "")
    follow("", tmp_path, trial)
    own_profile(tmp_path / "trial/profiles", "slurm")
    printed = follow("", tmp_path / "trial", planned)
    assert [line for line in shown("docs/start-slurm.md") if line not in printed.splitlines()] == []


@pytest.mark.long
def test_read_the_report(tmp_path: Path) -> None:
    """Its sentences are in the first pages already, and the run keeps them."""
    page = "docs/start-report.md"
    first, run, _ = commands(page).partition("searchlens -C demo run\n")
    for script in (first, run):
        follow(page, tmp_path, script)
        report = re.sub(r"<[^>]*>", "", (tmp_path / "demo/results/report.html").read_text())
        said = " ".join(html.unescape(report).split())
        assert [line for line in shown(page) if line not in said] == []
