"""Two graders on the same samples: what is drawn, what both say, and which cells have none."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import polars as pl

from searchlens.cli.stages.agreement import agreement
from searchlens.cli.stages.record import record
from searchlens.grading import GradedPair, processes
from searchlens.plan import Grid, needs
from searchlens.store.columns import AGREEMENT

CELL = ("toy-base", "sums")
Make = Callable[[Mapping[str, Any]], Grid]


def drawn(grid: Grid, output: Path) -> pl.DataFrame:
    agreement(needs.agreement(grid, *CELL), grid.inputs.questions("sums"), grid.layout, grid.manifests(*CELL), output)
    return pl.read_parquet(output)


def of_size(raw: dict[str, Any], make_grid: Make, size: int, **changes: Any) -> Grid:
    return make_grid({**raw, **changes, "study": {**raw["study"], "agreement": size}})


def test_a_sample_is_judged_by_both_and_drawn_by_the_seed(
    raw: dict[str, Any], make_grid: Make, sampled: Grid, tmp_path: Path
) -> None:
    """Odd samples are right, all others hold another answer."""
    grid = of_size(raw, make_grid, 6)
    found = drawn(grid, tmp_path / "a.parquet")
    assert (found.schema, found.height) == (AGREEMENT, 6)
    for grader in ("ours", "math_verify"):
        assert found[grader].to_list() == ["right" if sample % 2 else "wrong" for sample in found["sample"]]
    answers = [gold if sample % 2 else "x" for gold, sample in found.select("gold", "sample").iter_rows()]
    assert found["answer"].to_list() == answers
    assert drawn(grid, tmp_path / "b.parquet").equals(found)
    everything = drawn(of_size(raw, make_grid, 10_000), tmp_path / "c.parquet")
    assert everything.select("policy", "question", "sample").is_unique().all()
    assert everything.height == pl.read_parquet(sampled.scores(*CELL)).height > 6
    other = needs.agreement(grid, *CELL)
    assert needs.hash_of(other) != needs.hash_of(needs.agreement(of_size(raw, make_grid, 7), *CELL))


def test_math_verify_alone_finds_answers_by_its_own_rules() -> None:
    texts = {r"so \boxed{\frac{1}{2}}": "right", "so $x = 0.5$": "right", "answer is 3": "wrong", "no idea": "none"}
    pairs = [GradedPair(r"\frac{1}{2}", text) for text in texts]
    found = processes.judge("searchlens.grading.math_verify_alone", pairs, processes.DEFAULT, 1)
    assert found == list(texts.values())


def test_cells_that_math_verify_cannot_judge_say_why(
    raw: dict[str, Any], make_grid: Make, sampled: Grid, tmp_path: Path
) -> None:
    assert sampled.study.agreement_cells == sampled.study.cells
    assert of_size(raw, make_grid, 0).study.without_agreement(*CELL) == "study.agreement is 0"
    raw["benchmarks"]["sums"]["grader"] = "choice"
    assert make_grid(raw).study.without_agreement(*CELL) == "math-verify does not apply to the grader choice"
    raw["benchmarks"]["sums"]["grader"] = "math"
    record(sampled, tmp_path / "kept")
    kept = make_grid({**raw, "study": {**raw["study"], "recorded_counts": "kept", "sample": []}})
    assert kept.study.without_agreement(*CELL) == "no texts: read from recorded counts"
    assert kept.study.agreement_cells == ()
