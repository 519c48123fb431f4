"""Shared fixtures: a small study in a folder of its own, with real files in the shipped layout."""

import json
import logging
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import yaml

import bad_inputs
from run_stages import drawn, publish_shard, score_cell, write_manifest
from searchlens.config import check
from searchlens.plan import Generation, Grid
from searchlens.store import shards

POLICIES = ("temp_0.5", "topp0.9_t0.7", "topp0.95_t1.0")
DEFAULT = "topp0.95_t1.0"

ROOT = Path(__file__).parents[1]
ZOO = ROOT / "resources/zoo"
Raw = dict[str, Any]
Make = Callable[[Raw], Grid]
"""A configuration as it is written, and what makes a grid of it."""
Patch = pytest.MonkeyPatch
Said = pytest.CaptureFixture[str]
Logged = pytest.LogCaptureFixture

LAB = ROOT / "lab"
FIRST = ("test_workflow.py", "test_figures.py", "test_boptr_figures.py", "test_search_power.py", "test_add_a_model.py")
"""Files that take longest: each runs on one core, so what begins late ends late."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the longest files first, in the order within them; tests of the laboratory and in a browser are long."""
    items.sort(key=lambda item: FIRST.index(item.path.name) if item.path.name in FIRST else len(FIRST))
    for item in items:
        if LAB in item.path.parents or item.path.name.startswith("test_explorer_browser"):
            item.add_marker("long")


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip what reads the cohort of the zoo in an unpacked sdist, which has none; in a checkout it must be there."""
    if item.get_closest_marker("cohort") and (ROOT / "PKG-INFO").exists():
        pytest.skip("the sdist has no cohort")


def write_checkpoint(folder: Path, content: str, **settings: int) -> None:
    """Files in the layout of a checkpoint; enough for planning, not for sampling."""
    folder.mkdir(parents=True)
    described = {**bad_inputs.SETTINGS, "about": content, **settings}
    (folder / "config.json").write_text(json.dumps(described))
    words = ["</s>", "<pad>", "?", content, *(f"w{i}" for i in range(4, described["vocab_size"]))]
    (folder / "tokenizer.json").write_text(json.dumps(word_tokenizer(words)))
    ends = {name: [described["vocab_size"], 8] for name in ("model.embed_tokens.weight", "lm_head.weight")}
    weights = bad_inputs.safetensors({**bad_inputs.TENSORS, **ends}, content.encode().ljust(4)[:4])
    (folder / "model.safetensors").write_bytes(weights)


def word_tokenizer(words: Sequence[str], special: int = 2) -> dict[str, Any]:
    """A tokenizer that knows whole words, the first of which are special tokens."""
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    added = [{"id": place, "content": word, **flags, "special": True} for place, word in enumerate(words[:special])]
    vocab = {word: place for place, word in enumerate(words)}
    return {
        "version": "1.0",
        "added_tokens": added,
        "pre_tokenizer": {"type": "Whitespace"},
        "model": {"type": "WordLevel", "vocab": vocab, "unk_token": "?"},
    }


def toy_study(folder: Path) -> dict[str, Any]:
    """A configuration with one pair, one benchmark of six questions, three policies and greedy; writes its files."""
    write_checkpoint(folder / "base", "base")
    write_checkpoint(folder / "rl", "rl")
    rows = [{"id": f"q{i}", "question": f"Compute {i}+{i + 1}.", "gold": str(2 * i + 1)} for i in range(6)]
    (folder / "sums.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return bad_inputs.toy("three", POLICIES)


def micro_study(questions: int = 8, samples: int = 4, **changes: Any) -> dict[str, Any]:
    """A configuration of the micro pair on one benchmark: two policies in a pool, greedy, chunks of 16 samples."""
    math = {"path": str(ZOO / "benchmarks/math.jsonl"), "grader": "math", "max_tokens": 96, "questions": questions}
    return {
        "results": "results",
        "samples": samples,
        "budgets": [1, 2, 4],
        "chunk_samples": 16,
        "study": {"pairs": ["micro-1m"], "benchmarks": ["math"]},
        "checkpoints": {name: {"path": str(ZOO / name)} for name in ("micro-1m-base", "micro-1m-rl")},
        "pairs": {"micro-1m": {"base": "micro-1m-base", "rl": "micro-1m-rl"}},
        "benchmarks": {"math": {**math, "pool": "two"}},
        "policies": {"mine": {"local": {"temperature": 0.6}}, DEFAULT: None, "greedy": None},
        "pools": {"two": ["mine", DEFAULT]},
        "references": ["greedy"],
        "landscape": {"draws": 100},
    } | changes


def write_config(folder: Path, content: dict[str, Any]) -> None:
    """The files of a study's folder ``config``, of which one says everything."""
    (folder / "config").mkdir(parents=True, exist_ok=True)
    for name in ("models", "benchmarks", "policies", "boptr"):
        (folder / f"config/{name}.yaml").write_text("{}\n")
    (folder / "config/config.yaml").write_text(yaml.safe_dump(content, sort_keys=False))


@pytest.fixture(autouse=True)
def settings_of_the_process(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A study's extensions, and a command that is told to be quiet, concern their own test alone."""
    monkeypatch.setenv("SEARCHLENS_EXTENSIONS", "")
    yield
    logging.getLogger("searchlens").setLevel(logging.NOTSET)


@pytest.fixture
def raw(tmp_path: Path) -> dict[str, Any]:
    """``toy_study`` in the folder of the test."""
    return toy_study(tmp_path)


@pytest.fixture
def make_grid(tmp_path: Path) -> Callable[[dict[str, Any]], Grid]:
    """From a raw configuration to its grid, relative to the test's folder."""
    return lambda raw: Grid(check.validate(raw), root=tmp_path)


@pytest.fixture
def grid(raw: dict[str, Any], make_grid: Callable[[dict[str, Any]], Grid]) -> Grid:
    return make_grid(raw)


def some_samples(grid: Grid, benchmark: str, start: int, stop: int, tag: str = "") -> pl.DataFrame:
    """Samples [start, stop) of every question, with content that depends on question and sample alone."""
    keys = [(q, s) for q in grid.inputs.questions(benchmark) for s in range(start, stop)]
    texts = [f"\\boxed{{{q.gold if s % 2 else 'x'}}}{tag}" for q, s in keys]
    columns = {"tokens": [[1, 2, s] for _, s in keys], "mean_logprob": -0.2}
    return drawn(keys, texts, **columns, logprobs=[-0.1, -0.2, -0.3], sampling_logprobs=[-0.1, -0.2, -0.3])


@pytest.fixture
def results(raw: Raw, tmp_path: Path) -> Path:
    """The results of the toy study with samples of sides that differ."""
    from small_results import finish  # loads every stage

    return finish(raw, tmp_path)


@pytest.fixture
def publish() -> Callable[..., shards.Shard]:
    """Put a range of samples of one generation into the store."""

    def put(
        grid: Grid, checkpoint: str, benchmark: str, generation: Generation, start: int = 0, stop: int | None = None
    ) -> shards.Shard:
        stop = generation.samples if stop is None else stop
        samples = some_samples(grid, benchmark, start, stop)
        return publish_shard(grid, checkpoint, benchmark, generation, samples, start, stop)

    return put


@pytest.fixture
def sampled(
    raw: dict[str, Any], make_grid: Callable[[dict[str, Any]], Grid], publish: Callable[..., shards.Shard]
) -> Grid:
    """The toy study, every cell sampled and scored."""
    raw["landscape"] = {"draws": 100}
    grid = make_grid(raw)
    for cell in grid.study.cells:
        for generation in grid.jobs.generations(*cell):
            publish(grid, *cell, generation)
        score_cell(grid, *cell, [write_manifest(grid, *cell)], grid.scores(*cell))
    return grid
