"""`searchlens summary`: the main results of the last run, from its tables, in a few lines."""

from __future__ import annotations

from typing import Any

import polars as pl

from searchlens.catalogue import titles
from searchlens.errors import InputError
from searchlens.grid import Grid


def summarise(grid: Grid) -> str:
    """One line per pair and benchmark, and the half-widths of the intervals.

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
    return "\n".join([head, *lines, f"median half-width of the 95% intervals, in points: {halves}"])


def _line(grid: Grid, row: dict[str, Any]) -> str:
    pair, benchmark = row["pair"], row["benchmark"]
    cell = f"{pair}/{benchmark}"
    if row["gap_first"] is None:
        return f"  {cell}: {grid.config['default_policy']} was not sampled from both models"
    gaps = "   ".join(
        f"N={row[f'{which}_budget']}: {_points(row[f'gap_{which}']):+6.1f}"
        f" [{_points(row[f'gap_{which}_lo']):+.1f}, {_points(row[f'gap_{which}_hi']):+.1f}]"
        for which in ("first", "last")
    )
    source = grid.least_direct((checkpoint, benchmark) for checkpoint in grid.pairs[pair].values())
    return f"  {cell:20} {gaps}   RL inside Base's support at {row['inside']}/{row['budgets']} budgets ({source})"


def _points(proportion: float) -> float:
    """Percentage points to one decimal, and no negative zero."""
    return round(100 * proportion, 1) + 0.0
