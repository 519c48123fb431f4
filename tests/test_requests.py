"""What sampling jobs ask a scheduler for follows from weights and plan: computed here by hand."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from searchlens import requests
from searchlens.grid import Grid

Make = Callable[[dict[str, Any]], Grid]


@pytest.fixture
def weighed(raw: dict[str, Any], tmp_path: Path) -> dict[str, Any]:
    """Base with 2 GB of weights (a sparse file), declared so that nobody hashes them, and a measured speed."""
    with (tmp_path / "base/model.safetensors").open("r+b") as stream:
        stream.truncate(2_000_000_000)
    raw["checkpoints"]["toy-base"]["sha256"] = "0" * 64
    raw["pairs"]["toy"]["parameters"] = 1e9
    raw["cost"] = {"throughput": [{"parameters": 1e9, "tokens_per_second": 0.1, "source": "a test"}]}
    return raw


def test_memory_grows_with_the_weights(weighed: dict[str, Any], make_grid: Make) -> None:
    """4 GB and three times 2 GB (and the few bytes of the other files) embedded; 16 GB a worker and 3 GB in vLLM."""
    assert requests.memory_mb(make_grid(weighed), "toy-base") == 10_001
    assert requests.memory_mb(make_grid(weighed), "toy-rl") == 4_001
    weighed["checkpoints"]["toy-base"] |= {"engine": "vllm", "device": "cuda", "vllm": {"tensor_parallel": 4}}
    assert requests.memory_mb(make_grid(weighed), "toy-base") == 67_001


def test_time_is_twice_the_planned_tokens_and_a_start(weighed: dict[str, Any], make_grid: Make) -> None:
    """Three policies of 4 samples and greedy of 1, 6 questions, 4 tokens (half of 8) at 0.1 a second: 52 minutes."""
    grid = make_grid(weighed)
    (pool,) = grid.pools("toy-base", "sums")
    expected = (3 * 4 + 1) * 6 * 4 / 0.1 / 60
    assert requests.minutes(grid, pool) == -int(-(30 + 0.4 + 2 * expected) // 1)


def test_a_full_store_asks_for_the_start_alone(weighed: dict[str, Any], make_grid: Make, publish: Any) -> None:
    grid = make_grid(weighed)
    (pool,) = grid.pools("toy-base", "sums")
    for generation in pool.generations:
        publish(grid, "toy-base", "sums", generation)
    assert requests.minutes(make_grid(weighed), pool) == 30


def test_without_a_speed_a_job_asks_for_the_longest(weighed: dict[str, Any], make_grid: Make) -> None:
    """Twice 120 minutes, 30 of start and 0.4 of reading."""
    del weighed["cost"]
    grid = make_grid(weighed)
    assert requests.minutes(grid, grid.pools("toy-base", "sums")[0]) == 271


def test_a_checkpoint_that_is_not_pinned_has_no_known_size(raw: dict[str, Any], make_grid: Make) -> None:
    """So that a study can be planned before it is pinned."""
    raw["checkpoints"]["toy-base"] = {"hub": "maker/model"}
    assert requests.weights_bytes(make_grid(raw), "toy-base") == 0
