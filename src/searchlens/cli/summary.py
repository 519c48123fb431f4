"""`searchlens summary`: the main results of the last run, from its tables, in a few lines."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import polars as pl

from searchlens.analysis.claims import GREEDILY, INSIDE, SUMMED, percent, say, solved
from searchlens.analysis.health import examples
from searchlens.catalogue import titles
from searchlens.cli.stages.score import read_some
from searchlens.errors import InputError, counted
from searchlens.plan import Grid, needs
from searchlens.reporting.tables.recovery import GREEDY
from searchlens.store.files import read_bytes
from searchlens.store.frames import readable

_LIKELIHOOD = ("bounds", "handover")
"""Tables that are printed as they are, if texts are scored under both sides."""


def answer(grid: Grid, run: str = "searchlens run") -> dict[str, Any]:
    """The pairs, the half-widths of the intervals, and the health of every cell, in proportions, as in the tables.

    ``run`` is the command that makes the tables of this study. A pair that is not interpretable on a benchmark has a
    ``warning`` and no numbers, and its cells have some of their texts. Raises InputError, which names that command, if
    a table of the study is missing.
    """
    rows = _table(grid, "recovery_summary", run).filter(pl.col("metric") == "P")
    widths = _table(grid, "intervals", run).filter(pl.col("metric") == "P", pl.col("estimator") == "unbiased")
    by_benchmark = widths.group_by("benchmark", maintain_order=True).agg(pl.col("half_width").median())
    cells = _table(grid, "health", run)
    unhealthy = cells.filter(pl.col("health") != "ok").select(cells.columns[:4]).rename({"health": "level"})
    return {
        "policy": grid.study.default_policy,
        "pairs": [_pair(grid, row) for row in rows.iter_rows(named=True)],
        "half_widths": dict(by_benchmark.iter_rows()),
        "cells": cells.height,
        "healthy": cells.height - unhealthy.height,
        "health": [
            row | {"texts": _texts(grid, row["checkpoint"], row["benchmark"])}
            for row in unhealthy.iter_rows(named=True)
        ],
        "tables": [grid.layout.table(name, "md").read_text() for name in _LIKELIHOOD if grid.jobs.likelihood_cells],
    }


def _table(grid: Grid, name: str, run: str) -> pl.DataFrame:
    path = grid.layout.table(name, "csv")
    if path not in grid.layout.tables():
        raise InputError(f"{path} was not made", f"`{run}` makes it; `searchlens status` names what failed")
    return pl.read_csv(read_bytes(path))


def _pair(grid: Grid, row: Mapping[str, Any]) -> dict[str, Any]:
    """One pair on one benchmark, with RL − Base at the smallest and the largest budget, if it has any."""
    sides = ((checkpoint, row["benchmark"]) for checkpoint in grid.study.pairs[row["pair"]].values())
    is_read = not row["warning"] and row["rl_minus_base_first"] is not None
    gaps = [
        {
            "budget": row[f"{which}_budget"],
            "value": row[f"rl_minus_base_{which}"],
            "interval": [row[f"rl_minus_base_{which}_{end}"] for end in ("lo", "hi")],
        }
        for which in ("first", "last")
    ]
    keys = ("inside", "budgets", "both_zero", "base_policies", "questions", *GREEDY)
    return {
        "pair": row["pair"],
        "benchmark": row["benchmark"],
        "warning": row["warning"] or "",
        "rl_minus_base": gaps if is_read else [],
        **{key: row[key] if is_read else None for key in keys},
        "source": grid.study.least_direct(sides),
    }


def _texts(grid: Grid, checkpoint: str, benchmark: str) -> list[str]:
    if not grid.scores(checkpoint, benchmark).exists():
        return ["  no texts are stored here"]
    cell, manifests = needs.score(grid, checkpoint, benchmark), grid.manifests(checkpoint, benchmark)
    questions = grid.inputs.questions(benchmark)
    find, quotes = partial(read_some, cell, grid.layout, manifests), not grid.study.terms(benchmark)
    with readable(grid.scores(checkpoint, benchmark), "score") as content:
        return examples(pl.scan_parquet(content), find, questions, quotes=quotes)


def rendered(found: Mapping[str, Any]) -> str:
    """One line per pair and benchmark, the half-widths of the intervals, and what is wrong with any cell."""
    read = f"{titles('metric')['P']}, mean over every choice of N samples"
    head = f"RL − Base under {found['policy']}, {read}, in percentage points (95% interval):"
    halves = ", ".join(f"{name} {100 * width:.1f}" for name, width in found["half_widths"].items())
    lines = [head, *(_pair_line(pair, found["policy"]) for pair in found["pairs"])]
    lines.append(f"median half-width of the 95% intervals, in points: {halves}")
    for cell in found["health"]:
        lines += [f"{cell['checkpoint']}/{cell['benchmark']}: {cell['level']}: {cell['reason']}", *cell["texts"]]
    ok = f"{found['healthy']} of {found['cells']} cells are healthy"
    lines.append(f"{ok}; see docs/troubleshooting.md" if found["health"] else ok)
    return "\n\n".join(["\n".join(lines), *found["tables"]])


def _pair_line(pair: Mapping[str, Any], policy: str) -> str:
    gaps = [
        f"N={one['budget']}: {percent(one['value'], low, high, '+')}"
        for one in pair["rl_minus_base"]
        for low, high in [one["interval"]]
    ]
    inside = greedy = ""
    if gaps:  # RL is inside at so many budgets, of those at which either model solves any question
        counts = {"inside": pair["inside"] - pair["both_zero"], "decided": pair["budgets"] - pair["both_zero"]}
        inside = say(INSIDE, {**counts, "policies": counted(pair["base_policies"], "policy")})
        sides = {"Base": GREEDY[:3], "RL": GREEDY[3:]}
        greedy = say(GREEDILY, {side: solved(*(pair[name] for name in names)) for side, names in sides.items()})
    row = {**pair, "policy": policy, "gaps": "   ".join(gaps), "inside": inside, "greedy": greedy}
    return f"  {pair['pair']}/{pair['benchmark']}: {say(SUMMED, row)}"
