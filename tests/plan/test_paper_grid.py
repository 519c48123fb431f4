"""The paper's grid is what the paper says: pairs, cohorts, benchmarks, pools, budgets, seeds; and it can be planned."""

import os
import re
import subprocess
import sys
import tomllib
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from conftest import Raw
from searchlens.benchmarks import known_benchmark
from searchlens.cli.plan import plan
from searchlens.config import check
from searchlens.config.model import from_plain, plain
from searchlens.plan import Grid
from searchlens.search.policy import from_spec

ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent
OVERLAY = ROOT / "config/paper.yaml"

UPPER = ("qwen2.5-7b", "qwen2.5-14b", "qwen2.5-1.5b", "qwen2.5-math-7b")
LOWER = ("qwen2.5-0.5b", "llama3.1-8b", "mistral-7b-v0.1")
NEW = ("orz-7b", "oat-7b", "ds-math-7b")

HUB = {
    "qwen2.5-7b": ("Qwen/Qwen2.5-7B", "hkust-nlp/Qwen-2.5-7B-SimpleRL-Zoo"),
    "qwen2.5-14b": ("Qwen/Qwen2.5-14B", "hkust-nlp/Qwen-2.5-14B-SimpleRL-Zoo"),
    "qwen2.5-1.5b": ("Qwen/Qwen2.5-1.5B", "hkust-nlp/Qwen-2.5-1.5B-SimpleRL-Zoo"),
    "qwen2.5-math-7b": ("Qwen/Qwen2.5-Math-7B", "hkust-nlp/Qwen-2.5-Math-7B-SimpleRL-Zoo"),
    "qwen2.5-0.5b": ("Qwen/Qwen2.5-0.5B", "hkust-nlp/Qwen-2.5-0.5B-SimpleRL-Zoo"),
    "llama3.1-8b": ("meta-llama/Llama-3.1-8B", "hkust-nlp/Llama-3.1-8B-SimpleRL-Zoo"),
    "mistral-7b-v0.1": ("mistralai/Mistral-7B-v0.1", "hkust-nlp/Mistral-7B-v0.1-SimpleRL-Zoo"),
    "orz-7b": ("Qwen/Qwen2.5-7B", "Open-Reasoner-Zero/Open-Reasoner-Zero-7B"),
    "oat-7b": ("Qwen/Qwen2.5-Math-7B", "sail/Qwen2.5-Math-7B-Oat-Zero"),
    "ds-math-7b": ("deepseek-ai/deepseek-math-7b-base", "deepseek-ai/deepseek-math-7b-rl"),
}


def load() -> dict[str, Any]:
    return plain(check.load([*(ROOT / path for path in check.DEFAULT_FILES), OVERLAY]))


@pytest.fixture(scope="module")
def paper() -> dict[str, Any]:
    return load()


@pytest.fixture
def grid(paper: Raw, tmp_path: Path) -> Grid:
    """Planned where nothing of it is there."""
    return Grid(from_plain(paper), root=tmp_path)


def test_ten_pairs_in_their_cohorts(paper: Raw) -> None:
    pairs = {name: paper["pairs"][name] for name in paper["study"]["pairs"]}
    assert {name: pair["group"] for name, pair in pairs.items()} == (
        dict.fromkeys(UPPER, "upper") | dict.fromkeys(LOWER, "lower") | dict.fromkeys(NEW, "new")
    )
    ids = {
        name: (paper["checkpoints"][pair["base"]]["hub"], paper["checkpoints"][pair["rl"]]["hub"])
        for name, pair in pairs.items()
    }
    assert ids == HUB
    splits = {name: pair["rltrain"].removeprefix("rltrain_") for name, pair in pairs.items()}
    assert {name: splits[name] for name in (*UPPER, *LOWER)} == (
        dict.fromkeys(UPPER, "hard") | {"qwen2.5-0.5b": "medium", "llama3.1-8b": "easy", "mistral-7b-v0.1": "easy"}
    )


def test_base_and_rl_are_asked_alike(paper: Raw) -> None:
    for name in paper["study"]["pairs"]:
        pair = paper["pairs"][name]
        assert pair["templates"] == "shared"
        assert len({paper["checkpoints"][pair[role]]["template"] for role in ("base", "rl")}) == 1


def test_benchmarks_have_the_papers_sizes_regimes_and_parts(paper: Raw, grid: Grid) -> None:
    asked = {name: paper["benchmarks"][name] for name in paper["study"]["benchmarks"]}
    sizes = {
        "math500": 500,
        "aime": 60,
        "gpqa": 198,
        "ifeval": 541,
        "amc23": 40,
        "minerva": 272,
        "olympiadbench": 675,
        "tinymmlu": 100,
        "mmlu_stem": 3153,
    }
    assert {name: grid.inputs.count(name) for name in sizes} == sizes
    regimes = {name: spec["regime"] for name, spec in asked.items() if not name.startswith("rltrain")}
    assert Counter(regimes.values()) == {"math": 4, "nonmath": 4, "floor": 1}
    assert regimes["aime"] == "floor"
    assert {name for name in regimes if regimes[name] == "nonmath"} == {"gpqa", "ifeval", "tinymmlu", "mmlu_stem"}
    assert {name: spec["role"] for name, spec in asked.items()} == (
        dict.fromkeys(("math500", "aime", "gpqa", "ifeval"), "fitted")
        | dict.fromkeys(("amc23", "minerva", "olympiadbench", "tinymmlu"), "held_out")
        | {"mmlu_stem": "descriptive"}
        | dict.fromkeys(("rltrain_easy", "rltrain_medium", "rltrain_hard"), "rltrain")
    )
    for name, spec in asked.items():
        assert spec["family"] == name
        assert spec["grader"].removesuffix("-narrow") == known_benchmark(name).grader
        assert spec["grader"].endswith("-narrow") or name == "ifeval"


def test_nothing_of_the_micro_zoo_is_left_in_it(paper: Raw) -> None:
    """Overlays are merged key by key, and three benchmarks of the zoo have the same names."""
    for name in paper["study"]["benchmarks"]:
        spec = paper["benchmarks"][name]
        assert spec["sha256"] is None
        assert "zoo" not in str(spec["path"])
        assert "Micro" not in spec["title"]
    for name in paper["study"]["pairs"]:
        assert paper["checkpoints"][paper["pairs"][name]["base"]]["template"] != "zoo"


def test_pools_are_those_of_the_paper(grid: Grid) -> None:
    """24 autoregressive policies, six on AIME; 8, 10, 10 and no expanded ones, on the anchor's Base alone."""
    ar = {name: len(grid.study.pool_policies(name)) for name in ("math500", "gpqa", "ifeval", "aime", "amc23")}
    assert ar == {"math500": 24, "gpqa": 24, "ifeval": 24, "aime": 6, "amc23": 24}
    expanded = {name: len(grid.jobs.search_policies(name)) for name in ("math500", "gpqa", "aime", "ifeval", "amc23")}
    assert expanded == {"math500": 8, "gpqa": 10, "aime": 10, "ifeval": 0, "amc23": 0}
    searched = {
        checkpoint
        for checkpoint, benchmark in grid.study.cells
        for generation in grid.jobs.generations(checkpoint, benchmark)
        if from_spec("it", generation.spec["policy"]).family == "search"
    }
    assert searched == {"qwen2.5-7b-base"}
    families = Counter(grid.jobs.policy(name).family for name in grid.study.pool_policies("math500"))
    assert families == {"temperature": 5, "top-p": 7, "top-k": 6, "min-p": 6}
    assert set(grid.study.pool_policies("aime")) >= {
        "minp0.1_t0.9",
        "topp0.9_t0.7",
        "topp0.9_t0.9",
        "topk20_t0.7",
        "topp0.95_t1.0",
    }


def test_budgets_seeds_and_extensions(paper: Raw, grid: Grid) -> None:
    assert paper["budgets"] == (1, 2, 4, 8, 16)
    assert paper["seed"] == 42
    assert grid.study.read_budgets("math500")[-1] == 64
    assert grid.study.read_budgets("aime")[-1] == 256
    deepest = {
        benchmark: max(g.samples for g in grid.jobs.generations("qwen2.5-7b-rl", benchmark))
        for benchmark in ("math500", "gpqa", "ifeval", "aime", "amc23")
    }
    assert deepest == {"math500": 64, "gpqa": 64, "ifeval": 64, "aime": 256, "amc23": 16}
    again = {
        paper["checkpoints"][side]["seed"]: name
        for name in paper["study"]["pairs"]
        for batch in paper["pairs"][name]["batches"].values()
        for side in batch.values()
        if side
    }
    assert again == {123: "qwen2.5-7b", 20240: "qwen2.5-7b"}


def test_cells(grid: Grid) -> None:
    """RL is not asked what is descriptive or of a training split, and seeds repeat the fitted benchmarks alone."""
    cells = Counter(checkpoint for checkpoint, _ in grid.study.cells)
    bases = {grid.study.pairs[name]["base"] for name in grid.study.pairs}
    assert {cells[grid.study.pairs[name]["rl"]] for name in grid.study.pairs} == {8}
    assert len(bases) == 8
    assert {cells[base] for base in bases} == {10}
    assert cells["qwen2.5-7b-base-123"] == cells["qwen2.5-7b-base-20240"] == 4
    assert ("qwen2.5-0.5b-base", "rltrain_medium") in grid.study.cells
    assert ("qwen2.5-0.5b-base", "rltrain_hard") not in grid.study.cells


def test_every_prompt_leaves_room_in_the_smallest_context(paper: Raw) -> None:
    smallest = min(spec["context"] for spec in paper["checkpoints"].values() if spec["context"])
    longest = max(paper["benchmarks"][name]["max_tokens"] for name in paper["study"]["benchmarks"])
    assert smallest - longest >= 1024


def test_autoregressive_sampling_of_the_anchor_costs_what_the_paper_says(paper: Raw, tmp_path: Path) -> None:
    """123.8 million tokens for 24 policies, 500 questions and 16 samples (Table udf-cost)."""
    raw = load()
    raw["benchmarks"]["math500"] |= {"deeper": {}, "searches": None}
    raw["references"] = []
    grid = Grid(check.validate(raw), root=tmp_path)
    drawn = sum(
        line.tokens for line in plan(grid) if (line.checkpoint, line.benchmark) == ("qwen2.5-7b-base", "math500")
    )
    assert drawn == pytest.approx(123.8e6, rel=0.001)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A working directory with the configuration and nothing else."""
    made = tmp_path_factory.mktemp("paper")
    (made / "config").symlink_to(ROOT / "config")
    return made


def run(folder: Path, *command: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PATH": f"{BIN}:{os.environ['PATH']}"}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def snakemake(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    fixed = ("--snakefile", str(ROOT / "Snakefile"), "--cores", "1", "--configfile", "config/paper.yaml")
    return run(folder, "snakemake", *fixed, *arguments)


def test_snakemake_plans_it_without_weights_questions_or_network(folder: Path) -> None:
    done = snakemake(folder, "-n", "--quiet", "rules")
    said = done.stdout + done.stderr
    assert done.returncode == 0, said
    jobs = dict(line.split() for line in said.splitlines() if line.startswith(("generate ", "boptr ")))
    assert jobs == {"generate": "263", "boptr": "1"}


@pytest.mark.long
def test_a_run_of_it_is_refused_before_anything_starts(folder: Path) -> None:
    done = snakemake(folder, "--quiet", "rules")
    said = done.stdout + done.stderr
    assert done.returncode != 0
    assert "not pinned: dataset HuggingFaceH4/MATH-500@main" in said
    assert "run `searchlens pin`, then `searchlens fetch`, where the hub can be reached" in said
    assert not (folder / "results").exists()


def test_every_checkpoint_and_package_is_described(paper: Raw) -> None:
    described = (ROOT / "docs/artifacts.md").read_text()
    for name in paper["study"]["pairs"]:
        pair = paper["pairs"][name]
        (row,) = (line for line in described.splitlines() if line.startswith(f"| `{name}`"))
        assert all(f" {paper['checkpoints'][pair[role]]['hub']} |" in row for role in ("base", "rl"))
        assert f"`{paper['checkpoints'][pair['base']]['template']}`" in row
        assert f"({pair['parameters'] / 1e9:.3g}B)" in row
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    needed = [*project["dependencies"], *(n for extra in project["optional-dependencies"].values() for n in extra)]
    for requirement in needed:
        package = re.split(r"[<>=!\[; ]", requirement)[0]
        assert re.search(rf"(?<![\w-]){package}(?![\w-])", (ROOT / "docs/packages.csv").read_text()), package
