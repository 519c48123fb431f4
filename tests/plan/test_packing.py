"""Jobs are packed by their wall time, and what was sampled stays whatever the packing."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from run_stages import score_cell
from searchlens import sampling as stage
from searchlens.plan import Grid
from searchlens.store.ranges import shards_of, uncovered

CELL = ("toy-base", "sums")
Make = Callable[[dict[str, Any]], Grid]


@pytest.fixture
def timed(raw: dict[str, Any]) -> dict[str, Any]:
    """Six questions, three policies of four samples of 100 tokens each at 40 tokens a second: one minute a policy."""
    raw["benchmarks"]["sums"] |= {"max_tokens": 200}
    raw["pairs"]["toy"]["parameters"] = 1e9
    raw["cost"] = {"throughput": [{"parameters": 1e9, "tokens_per_second": 40, "source": "by hand"}]}
    return raw


def packed(grid: Grid) -> list[list[tuple[str, int, int]]]:
    return [[(g.policies[0], g.start, g.samples) for g in pool.generations] for pool in grid.jobs.pools(*CELL)]


def test_policies_are_packed_up_to_the_target_in_their_order(timed: dict[str, Any], make_grid: Make) -> None:
    """Greedy, one sample, takes a quarter of a minute."""
    first, second, third = [("temp_0.5", 0, 4)], [("topp0.9_t0.7", 0, 4)], [("topp0.95_t1.0", 0, 4)]
    greedy = [("greedy", 0, 1)]
    assert packed(make_grid(timed)) == [first + second + third + greedy]
    assert packed(make_grid(timed | {"target_minutes": 2})) == [first + second, third + greedy]
    assert packed(make_grid(timed | {"target_minutes": 1})) == [first, second, third, greedy]
    assert packed(make_grid(timed | {"pool_size": 3})) == [first + second + third, greedy]


def test_a_policy_that_takes_longer_is_cut_into_ranges_of_its_stream(timed: dict[str, Any], make_grid: Make) -> None:
    half = packed(make_grid(timed | {"target_minutes": 0.5}))
    assert half[:2] == [[("temp_0.5", 0, 2)], [("temp_0.5", 2, 4)]]
    assert len({pool.name for pool in make_grid(timed | {"target_minutes": 0.5}).jobs.pools(*CELL)}) == len(half) == 7
    assert packed(make_grid(timed | {"target_minutes": 0.001}))[0] == [("temp_0.5", 0, 1)], "a sample is not cut"


def test_candidates_of_one_run_stay_in_one_job(timed: dict[str, Any], make_grid: Make) -> None:
    timed["policies"]["wide"] = {"controller": {"name": "entropy_tree", "positions": 1}}
    timed["pools"]["three"] = ["topp0.95_t1.0", "wide"]
    edges = [(a, b) for pool in packed(make_grid(timed | {"target_minutes": 0.001})) for n, a, b in pool if n == "wide"]
    assert edges == [(0, 2), (2, 4)]


def test_gpus_that_share_the_weights_share_the_time(timed: dict[str, Any], make_grid: Make) -> None:
    timed["checkpoints"]["toy-base"] |= {"engine": "vllm", "device": "cuda"}
    (pool,) = make_grid(timed).jobs.pools(*CELL)
    assert make_grid(timed).minutes(pool) == pytest.approx(3.25)
    timed["checkpoints"]["toy-base"]["vllm"] = {"tensor_parallel": 2}
    assert make_grid(timed).minutes(pool) == pytest.approx(3.25 / 2)


def test_without_a_speed_a_cell_is_one_job(raw: dict[str, Any], make_grid: Make) -> None:
    grid = make_grid(raw | {"target_minutes": 0.001})
    (pool,) = grid.jobs.pools(*CELL)
    assert grid.minutes(pool) is None


def test_minutes_are_those_of_missing_samples(
    timed: dict[str, Any], make_grid: Make, publish: Callable[..., Any]
) -> None:
    grid = make_grid(timed)
    (pool,) = grid.jobs.pools(*CELL)
    publish(grid, *CELL, pool.generations[0], 0, 2)
    assert grid.minutes(pool) == pytest.approx(2.75)
    for generation in pool.generations:
        publish(grid, *CELL, generation)
    assert grid.minutes(pool) == 0


@pytest.fixture
def no_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("nothing is missing, so no engine may start")

    monkeypatch.setattr(stage._job, "start_engine", refuse)


@pytest.mark.usefixtures("no_engine")
@pytest.mark.parametrize(("before", "after"), [(120, 0.5), (0.5, 120), (2, 1), (0.5, 0.25)])
def test_packing_again_samples_nothing(
    timed: dict[str, Any], make_grid: Make, publish: Callable[..., Any], before: float, after: float
) -> None:
    """The jobs of the new packing find their samples in the shards of the old one, and only write manifests."""
    old, new = make_grid(timed | {"target_minutes": before}), make_grid(timed | {"target_minutes": after})
    for pool in old.jobs.pools(*CELL):
        for part in pool.generations:
            publish(old, *CELL, part, part.start, part.samples)
    made = {path: path.stat().st_mtime_ns for path in (old.layout.results / "generations").rglob("*.parquet")}
    assert {pool.name for pool in new.jobs.pools(*CELL)} != {pool.name for pool in old.jobs.pools(*CELL)}
    for pool in new.jobs.pools(*CELL):
        stage.generate(new, *CELL, new.current_manifest(pool))
    assert {path: path.stat().st_mtime_ns for path in (old.layout.results / "generations").rglob("*.parquet")} == made
    assert all(path.exists() for path in new.manifests(*CELL)), "the next run has nothing to do"


def test_a_part_that_is_made_later_leaves_the_others_current(
    timed: dict[str, Any], make_grid: Make, publish: Callable[..., Any]
) -> None:
    """Jobs of one stream end one after the other: the second must not call the first's manifest out of date."""
    grid = make_grid(timed | {"target_minutes": 0.5})
    first, second, *_ = grid.jobs.pools(*CELL)
    publish(grid, *CELL, first.generations[0], 0, 2)
    stage.generate(grid, *CELL, manifest := grid.current_manifest(first))
    publish(grid, *CELL, second.generations[0], 2, 4)
    assert grid.current_manifest(first) == manifest
    assert grid.current_manifest(second).name == f"{second.name}.json" and not grid.current_manifest(second).exists()


def test_scoring_puts_the_parts_of_a_stream_together(
    timed: dict[str, Any], make_grid: Make, publish: Callable[..., Any], tmp_path: Path
) -> None:
    """Each sample once, also where an older packing left a shard that overlaps them."""
    grid = make_grid(timed | {"target_minutes": 0.5})
    generation = grid.jobs.generations(*CELL)[0]
    publish(grid, *CELL, generation, 0, 3)
    for pool in grid.jobs.pools(*CELL):
        for part in pool.generations:
            publish(grid, *CELL, part, part.start, part.samples)
        stage.generate(grid, *CELL, grid.current_manifest(pool))
    score_cell(grid, *CELL, grid.manifests(*CELL), tmp_path / "scores.parquet")
    scores = pl.read_parquet(tmp_path / "scores.parquet")
    assert scores.group_by("policy").len().sort("policy")["len"].to_list() == [6, 24, 24, 24]
    assert scores.n_unique(["policy", "question", "sample"]) == scores.height
    kept = [json.loads(path.read_text())["generations"][0] for path in grid.manifests(*CELL)]
    assert [(one["start"], one["samples"]) for one in kept[:2]] == [(0, 2), (2, 4)]


def test_a_gap_begins_where_the_part_begins(grid: Grid, publish: Callable[..., Any]) -> None:
    generation = grid.jobs.generations(*CELL)[0]
    folder = grid.folder(*CELL, generation.id)
    publish(grid, *CELL, generation, 0, 3)
    assert uncovered(shards_of(folder), 4, 2) == [(3, 4)]
    assert uncovered(shards_of(folder), 3, 1) == []
    assert uncovered(shards_of(folder), 8, 5) == [(5, 8)]
