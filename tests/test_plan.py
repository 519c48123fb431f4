"""People book GPUs by the plan: what it counts, what it assumes, and that its formulas agree with what was drawn."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import yaml

from searchlens import policies
from searchlens.commands.plan import assumptions, plan, read_store, show_plan, speed
from searchlens.grid import Grid
from searchlens.landscape.expand import expand
from searchlens.store import layout, readouts

ROOT = Path(__file__).parents[1]
Make = Callable[[dict[str, Any]], Grid]


def policy(**spec: Any) -> policies.Policy:
    return policies.from_spec("it", spec)


def test_what_controllers_draw_by_hand() -> None:
    """T = 120 tokens, limit 160: blocks of 10, thoughts of 20, six levels."""
    thought = {"name": "thought", "max_tokens": 40}
    assert policies.parse("temp_0.7").expected_tokens(120, 160) == 120
    assert policy(controller={"name": "beam", "width": 4}).expected_tokens(120, 160) == 480
    # 12 filled blocks of 10: each of 10 steps redraws 5, 10, ..., 60 tokens, and 60 in the last block.
    power = policy(controller="power", scheduler={"name": "blocks", "blocks": 16, "steps": 10})
    assert power.expected_tokens(120, 160) == 120 + 10 * (sum(5 * k for k in range(1, 13)) + 60)
    # One root and three branches in the middle.
    assert policy(controller={"name": "entropy_tree", "positions": 3}).expected_tokens(120, 160) == 120 + 3 * 60
    # 2, 4, 8 thoughts, then 8 at each of five levels in all; the sixth level is the rest of four paths.
    tree = policy(
        controller={"name": "thought_tree", "width": 4, "children": 2},
        transition=thought,
        scheduler={"name": "breadth_first", "depth": 5},
    )
    assert tree.expected_tokens(120, 160) == (2 + 4 + 8 + 8 + 8) * 20 + 4 * 20
    # 16 iterations of three thoughts and half a text.
    mcts = policy(controller={"name": "mcts", "children": 3}, transition=thought)
    assert mcts.expected_tokens(120, 160) == 16 * (3 * 20 + 60)
    # A text of two thoughts has four nodes to expand, whatever the iterations.
    assert mcts.expected_tokens(40, 160) == 4 * (3 * 20 + 20)


def test_power_sampling_is_the_papers_formula_where_blocks_are_many() -> None:
    """N T^2 / (4 B), for texts that fill their limit."""
    many = policy(controller="power", scheduler={"name": "blocks", "blocks": 1000, "steps": 10})
    assert many.expected_tokens(10_000, 10_000) == pytest.approx(10 * 10_000**2 / (4 * 10), rel=0.01)


@pytest.mark.parametrize(
    "name",
    [
        "entropy_tree_b4",
        "power_t0.25",
        "power_t0.5",
        "power_topp0.9_t0.7",
        "mcts16_t0.7",
        "mcts16_t1.0",
        "thought_tree_b4",
        "thought_tree_b8",
    ],
)
def test_estimates_agree_with_what_searches_drew(name: str) -> None:
    """Recorded searches of the micro zoo: within a factor of 1.6, the formulas knowing nothing but the mean length."""
    kept = readouts.read(layout.readouts(ROOT / "resources/zoo/recorded", "micro-1m-base", "math"))
    runs = dict(kept.select("policy", pl.col("samples") / pl.col("width")).iter_rows())
    points, largest = expand(kept)[0].points, kept["samples"].max()
    drawn = points.filter(metric="C", readout="prefix", budget=largest).select("policy", "value")
    tokens = {policy: value / runs[policy] for policy, value in drawn.iter_rows()}
    spec = yaml.safe_load((ROOT / "config/policies.yaml").read_text())["policies"][name]
    ours = policies.from_spec(name, spec).expected_tokens(tokens["temp_1.0"], 128)
    assert 1 / 1.6 < ours / tokens[name] < 1.6


@pytest.fixture
def priced(raw: dict[str, Any]) -> dict[str, Any]:
    """The small study with a regime, sizes and two measured speeds."""
    raw["benchmarks"]["sums"]["regime"] = "math"
    raw["pairs"]["toy"]["parameters"] = 2e9
    raw["cost"] = {
        "tokens_per_sample": {"math": 5},
        "source": "a guess",
        "throughput": [
            {"parameters": 1e9, "tokens_per_second": 1000, "source": "the small one"},
            {"parameters": 8e9, "tokens_per_second": 100, "source": "the large one"},
        ],
    }
    return raw


def test_tokens_and_hours_of_a_fresh_study(
    priced: dict[str, Any], make_grid: Make, capsys: pytest.CaptureFixture[str]
) -> None:
    """Six questions; three policies with four samples and greedy with one, of five tokens; 500 tokens a second."""
    lines = list(plan(make_grid(priced)))
    assert [line.tokens for line in lines] == 2 * ([6 * 4 * 5] * 3 + [6 * 5])
    assert lines[0].hours == pytest.approx(6 * 4 * 5 / 500 / 3600)
    show_plan(make_grid(priced))
    said = capsys.readouterr().out
    assert "8 generations, 8 to make, about 780 tokens and 0.0 GPU-hours" in said
    assert [line.split()[:4] for line in said.splitlines() if "/sums" in line] == [
        ["toy-base/sums", "4", "4", "390"],
        ["toy-rl/sums", "4", "4", "390"],
    ]
    assert "math benchmarks: 5 tokens a sample" in said
    assert "a guess" in said
    assert "1,000 tokens/s: the small one" in said
    show_plan(make_grid(priced), by_policy=True)
    assert "topp0.95_t1.0" in capsys.readouterr().out


def test_speed_is_that_of_the_nearest_size_in_proportion(priced: dict[str, Any], make_grid: Make) -> None:
    grid = make_grid(priced)
    found = speed(grid, read_store(grid), "toy-base")
    assert found is not None
    assert found.tokens_per_second == 500
    priced["pairs"]["toy"]["parameters"] = 4e9
    grid = make_grid(priced)
    found = speed(grid, read_store(grid), "toy-rl")
    assert found is not None
    assert found.tokens_per_second == 200


def test_without_a_size_there_are_no_hours(priced: dict[str, Any], make_grid: Make) -> None:
    priced["pairs"]["toy"]["parameters"] = None
    assert {line.hours for line in plan(make_grid(priced))} == {None}


def test_samples_that_are_there_replace_the_assumption(
    priced: dict[str, Any], make_grid: Make, publish: Callable[..., Any]
) -> None:
    """Published samples have three tokens each; deeper streams of the same cell are estimated from them."""
    grid = make_grid(priced)
    first, *_ = grid.generations("toy-base", "sums")
    publish(grid, "toy-base", "sums", first)
    priced["samples"] = 8
    base = [line for line in plan(make_grid(priced)) if line.checkpoint == "toy-base"]
    assert [(line.state, line.tokens) for line in base] == [
        ("4 more", 6 * 4 * 3),
        ("missing", 6 * 8 * 3),
        ("missing", 6 * 8 * 3),
        ("missing", 6 * 3),
    ]
    sources = assumptions(make_grid(priced))
    assert sources[:2] == ["samples that are there", "math benchmarks: 5 tokens a sample"]


def test_a_search_costs_what_it_draws_and_not_what_it_returns(
    priced: dict[str, Any], make_grid: Make, publish: Callable[..., Any]
) -> None:
    grid = make_grid(priced)
    first, *_ = grid.generations("toy-base", "sums")
    shard = publish(grid, "toy-base", "sums", first, 0, 2)
    sidecar = shard.path.with_suffix(".json")
    sidecar.write_text(json.dumps({**shard.sidecar, "generated": 100 * shard.sidecar["rows"]}))
    assert next(iter(plan(make_grid(priced)))).tokens == 6 * 2 * 100
