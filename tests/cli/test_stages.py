"""Stage after stage on files, without Snakemake: samples of a benchmark of one's own reach tables and figures."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from run_stages import figures_cell, landscape_cell, recovery_cell, score_cell
from searchlens.cli.stages.importing import Request, import_samples
from searchlens.errors import InputError
from searchlens.formats.reading import Choices
from searchlens.plan import Grid

DEFAULT = "topp0.95_t1.0"
Make = Callable[[dict[str, Any]], Grid]


def rows(right: int, samples: int = 4, **extra: Any) -> list[dict[str, Any]]:
    """Three questions of one's own; the first ``right`` samples of each are right."""
    golds = {"one": "1", "half": "\\frac{1}{2}", "pair": "(1,2)"}
    return [
        {"question": q, "sample": s, "text": f"\\boxed{{{gold if s < right else 7}}}", "gold": gold, **extra}
        for q, gold in golds.items()
        for s in range(samples)
    ]


def bring(
    grid: Grid, tmp_path: Path, role: str, lines: list[dict[str, Any]], policy: str = DEFAULT, grader: str = "math"
) -> None:
    path = tmp_path / f"{role}.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in lines))
    import_samples(
        grid, [path], Request(pair="theirs", benchmark="own", grader=grader, choices=Choices(role=role, policy=policy))
    )


@pytest.mark.long
def test_a_benchmark_of_ones_own_without_tokens_is_compared_like_ours(
    raw: dict[str, Any], make_grid: Make, tmp_path: Path
) -> None:
    bring(make_grid(raw), tmp_path, "base", rows(right=1))
    bring(make_grid(raw), tmp_path, "rl", rows(right=3))
    assert ("theirs", "own") not in make_grid(raw).study.pair_cells, "a study has only the imports that it names"
    raw["study"]["imports"] = "all"
    grid = make_grid(raw)
    assert ("theirs", "own") in grid.study.pair_cells
    for role in ("base", "rl"):
        checkpoint = f"theirs-{role}"
        score_cell(grid, checkpoint, "own", [], grid.scores(checkpoint, "own"))
        landscape_cell(
            grid, "own", grid.scores(checkpoint, "own"), grid.layout.results / "landscape" / checkpoint / "own"
        )
    folders = [grid.layout.results / "landscape" / f"theirs-{role}" / "own" for role in ("base", "rl")]
    recovery_cell(grid, *folders, grid.layout.results / "recovery/theirs/own")
    same = pl.read_parquet(grid.layout.results / "recovery/theirs/own/same_policy.parquet")
    gap = same.filter(pl.col("metric") == "P", pl.col("estimator") == "unbiased", pl.col("budget") == 1)
    assert gap["rl_minus_base"].to_list() == pytest.approx([0.75 - 0.25])
    points = pl.read_parquet(folders[0] / "points.parquet")
    assert points.filter(pl.col("metric") == "C")["value"].null_count() == 6
    figures_cell(grid, "theirs", "own", grid.layout.results / "figures")
    assert (grid.layout.results / "figures/same_policy_lines_P.svg").exists()


def test_without_the_ends_of_texts_no_readout_says_how_they_ended(
    raw: dict[str, Any], make_grid: Make, tmp_path: Path
) -> None:
    raw["study"]["imports"] = "all"
    lines = [{**row, "tokens": 5} for row in rows(right=1)]
    bring(make_grid(raw), tmp_path, "base", lines)
    bring(make_grid(raw), tmp_path, "rl", [{**row, "finish": "stop"} for row in lines])
    grid = make_grid(raw)
    for role in ("base", "rl"):
        cell = (f"theirs-{role}", "own")
        score_cell(grid, *cell, [], grid.scores(*cell))
        landscape_cell(grid, "own", grid.scores(*cell), grid.layout.landscape(*cell))
        points = pl.read_parquet(grid.layout.landscape_frame(*cell, "points"))
        known = set(points.filter(pl.col("value").is_not_null())["metric"])
        assert {"P", "Q", "C", "valid"} <= known
        ends = {"T", "stopped", "truncated"}
        assert ends & known == (set() if role == "base" else ends)


def test_importing_again_replaces_the_pool(raw: dict[str, Any], make_grid: Make, tmp_path: Path) -> None:
    bring(make_grid(raw), tmp_path, "base", rows(right=1))
    bring(make_grid(raw), tmp_path, "base", rows(right=2, samples=8))
    (item,) = make_grid(raw).study.every_import
    assert item.samples == 8


@pytest.mark.parametrize(
    ("pair", "policy", "says"),
    [
        ("toy", "temp_0.5", "this configuration samples .* under 'temp_0.5'"),
        ("a/b", DEFAULT, "pair 'a/b' cannot be a name"),
        ("theirs", "../up", "policy '../up' cannot be a name"),
    ],
)
def test_a_name_that_would_mislead_is_refused(grid: Grid, tmp_path: Path, pair: str, policy: str, says: str) -> None:
    path = tmp_path / "samples.jsonl"
    path.write_text(json.dumps({"question": "q0", "sample": 0, "text": "1"}) + "\n")
    with pytest.raises(InputError, match=says):
        import_samples(grid, [path], Request(pair=pair, benchmark="sums", choices=Choices(role="base", policy=policy)))
    assert not (grid.layout.results / "imports").exists()


@pytest.mark.parametrize(
    ("grader", "says"), [("essay", "grader 'essay' is unknown"), ("instructions", "question 'half' has no checks")]
)
def test_a_grader_that_cannot_grade_the_questions_imports_nothing(
    grid: Grid, tmp_path: Path, grader: str, says: str
) -> None:
    with pytest.raises(InputError, match=says):
        bring(grid, tmp_path, "base", rows(right=1), grader=grader)
    assert not grid.layout.results.exists()
