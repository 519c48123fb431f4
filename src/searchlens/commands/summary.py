"""`searchlens summary`: the main results of the last run, from its tables, in a few lines."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import polars as pl

from searchlens.catalogue import titles
from searchlens.errors import InputError
from searchlens.grid import Grid, needs
from searchlens.health.examples import examples
from searchlens.stages.score import read_samples


def summarise(grid: Grid) -> str:
    """One line per pair and benchmark, the half-widths of the intervals, and the health of every cell.

    A pair that is not interpretable on a benchmark has no numbers here, but some of its texts.

    Raises
    ------
    InputError
        The study has no tables yet.
    """
    path = grid.layout.table("recovery_summary", "csv")
    if not path.exists():
        raise InputError(f"{path} does not exist", "run snakemake first, with the same --configfile")
    rows = pl.read_csv(path).filter(pl.col("metric") == "P")
    widths = pl.read_csv(grid.layout.table("intervals", "csv"))
    widths = widths.filter(pl.col("metric") == "P", pl.col("readout") == "prefix")
    default = grid.config["default_policy"]
    head = f"Base - RL under {default}, {titles('metric')['P']}, in percentage points (95% interval):"
    by_benchmark = widths.group_by("benchmark", maintain_order=True).agg(pl.col("half_width").median())
    halves = ", ".join(f"{name} {100 * width:.1f}" for name, width in by_benchmark.iter_rows())
    lines = [_line(grid, row) for row in rows.iter_rows(named=True)]
    return "\n".join([head, *lines, f"median half-width of the 95% intervals, in points: {halves}", *_health(grid)])


def _health(grid: Grid) -> Iterator[str]:
    """What is wrong with any cell, with some of its texts."""
    cells = pl.read_csv(grid.layout.table("health", "csv"))
    unhealthy = cells.filter(pl.col("health") != "ok")
    for checkpoint, benchmark, level, reason in unhealthy.select(cells.columns[:4]).iter_rows():
        yield f"{checkpoint}/{benchmark}: {level}: {reason}"
        yield from _texts(grid, checkpoint, benchmark)
    ok = f"{cells.height - unhealthy.height} of {cells.height} cells are healthy"
    yield f"{ok}; see docs/troubleshooting.md" if unhealthy.height else ok


def _texts(grid: Grid, checkpoint: str, benchmark: str) -> list[str]:
    if not grid.scores(checkpoint, benchmark).exists():
        return ["  no texts are stored here"]
    texts = read_samples(needs.score(grid, checkpoint, benchmark), grid.layout, grid.manifests(checkpoint, benchmark))
    graded = pl.read_parquet(grid.scores(checkpoint, benchmark))
    return examples(graded, texts, [question.id for question in grid.questions(benchmark)])


def _line(grid: Grid, row: dict[str, Any]) -> str:
    pair, benchmark = row["pair"], row["benchmark"]
    cell = f"{pair}/{benchmark}"
    if row["warning"]:
        return f"  {cell}: not interpretable. {row['warning']}"
    if row["gap_first"] is None:
        return f"  {cell}: {grid.config['default_policy']} was not sampled from both models"
    gaps = "   ".join(
        f"N={row[f'{which}_budget']}: {_points(row[f'gap_{which}']):+6.1f}"
        f" [{_points(row[f'gap_{which}_lo']):+.1f}, {_points(row[f'gap_{which}_hi']):+.1f}]"
        for which in ("first", "last")
    )
    source = grid.least_direct((checkpoint, benchmark) for checkpoint in grid.pairs[pair].values())
    pool = f"{row['base_policies']} policies, {row['questions']} questions, {source}"
    return f"  {cell:20} {gaps}   {_inside(row)} (Base: {pool})"


def _inside(row: dict[str, Any]) -> str:
    """At how many budgets RL is inside, of those at which either model solves any question."""
    decided = row["budgets"] - row["both_zero"]
    if not decided:
        return "neither model solves any question"
    zero = f", nothing solved at {row['both_zero']}" if row["both_zero"] else ""
    return f"RL inside Base's support at {row['inside'] - row['both_zero']}/{decided} budgets{zero}"


def _points(proportion: float) -> float:
    """Percentage points to one decimal, and no negative zero."""
    return round(100 * proportion, 1) + 0.0
