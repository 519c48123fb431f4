"""All comparisons of a study, and their tables."""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import polars as pl

from searchlens.equivalence import engines, laws, local, searches, tier12
from searchlens.equivalence.rows import Row
from searchlens.equivalence.subject import Subject
from searchlens.grid import Grid
from searchlens.policies import Policy
from searchlens.store import provenance
from searchlens.tables import DASH, Table, write
from searchlens.tables._format import interval, text_frame, tick

log = logging.getLogger(__name__)

TABLES = {"local": "udf_local", "tier34": "udf_tier34"}
"""Part of the comparison to the name of its table."""
VLLM_TABLES = ("udf_tier12", "udf_engines")
"""Where the compared checkpoint runs on vLLM, these too."""


def write_tables(grid: Grid, output: Path, threads: int) -> None:
    """Compare every policy of the section ``equivalence`` and write ``tables/<name>.{csv,md,tex}``.

    A comparison that does not hold is a cross in its table and a line in the log, not an error.
    """
    rows = compare(grid, threads)
    made = {name: table([row for row in rows if row.table == part]) for part, name in TABLES.items()}
    if on_vllm(grid):
        matches, between = tier12.compare(grid, threads), engines.compare(grid, threads)
        for match in matches:
            if not match.holds:
                log.warning(
                    "%s: %.2f same texts, %.2f same answers", match.strategy.name, match.output_match, match.em_agree
                )
        rows += between
        made |= dict(zip(VLLM_TABLES, (tier12.table(matches), table(between)), strict=True))
    for row in rows:
        if not row.holds:
            log.warning("%s against %s: %s is %.4g", row.policy, row.reference, row.statistic, row.value)
    for name, one in made.items():
        write(one, output / "tables" / name)
        provenance.sign(output / "tables" / f"{name}.json", grid.config, None)


def on_vllm(grid: Grid) -> bool:
    """Whether the compared checkpoint runs on vLLM."""
    return grid.compared is not None and grid.config["checkpoints"][grid.compared[0]]["engine"] == "vllm"


def compare(grid: Grid, threads: int) -> list[Row]:
    """Rows of all comparisons of the embedded engine, policy by policy in configuration order."""
    subject, section = Subject.of(grid, threads), grid.config["equivalence"]
    policies = {name: policy for name in section["policies"] if (policy := grid.policy(name)) is not None}
    kinds: dict[str, dict[str, Policy]] = {"autoregressive": {}, "beam": {}, "search": {}}
    for name, policy in policies.items():
        kinds[policy.controller.name if policy.controller.name in kinds else "search"][name] = policy
    rows: list[Row] = []
    for name, policy in kinds["autoregressive"].items():
        rows += [*local.compare(subject, name, policy), *laws.compare(name, policy, section)]
    log.info("%d local policies compared", len(kinds["autoregressive"]))
    for name, policy in kinds["beam"].items():
        rows += searches.compare_beam(subject, name, policy)
    rows += searches.compare(subject, kinds["search"])
    log.info("%d searches compared", len(kinds["beam"]) + len(kinds["search"]))
    for name, policy in kinds["search"].items():
        if policy.controller.name == "power" and policy.parameters["mode"] == "exact":
            rows += laws.compare(name, policy, section)
    subject.close()
    return sorted(rows, key=lambda row: section["policies"].index(row.policy))


def table(rows: Sequence[Row]) -> Table:
    """A table with a line for each row, and what does not hold under it."""
    data = pl.DataFrame(
        [{**asdict(row), "holds": row.holds} for row in rows],  # the schema leaves out which table it is
        {
            **dict.fromkeys(("policy", "reference", "statistic"), pl.String()),
            "n": pl.UInt32(),
            "unit": pl.String(),
            "value": pl.Float64(),
            "bound": pl.String(),
            "threshold": pl.Float64(),
            "ours": pl.Float64(),
            "theirs": pl.Float64(),
            "holds": pl.Boolean(),
        },
    ).with_columns(pl.col("value").fill_nan(None))
    if any(row.lo is not None for row in rows):
        ends = {
            end: pl.Series([getattr(row, end) for row in rows], dtype=pl.Float64).fill_nan(None) for end in ("lo", "hi")
        }
        data = data.with_columns(**ends)
    text = text_frame([_line(row) for row in rows])
    rules = tuple(i for i in range(1, len(rows)) if rows[i].policy != rows[i - 1].policy)
    failing = [f"{row.policy} against {row.reference}: {row.statistic}" for row in rows if not row.holds]
    verdict = f"Does not hold: {'; '.join(failing)}." if failing else "Every comparison holds."
    return Table(data, text, rules, notes=(verdict, "The thresholds were set before the first comparison was run."))


_BOUNDS = {"at least": "≥", "at most": "≤", "covers": "covers"}


def _line(row: Row) -> dict[str, str]:
    sides = "" if row.ours is None else f" ({row.ours:.2f} against {row.theirs:.2f})"
    value = _number(row.value) if row.bound != "covers" else interval(row.value, row.lo, row.hi, 3, "+")
    return {
        "policy": row.policy,
        "reference": row.reference,
        "statistic": row.statistic,
        "value": value + sides,
        "threshold": f"{_BOUNDS[row.bound]} {row.threshold:g}",
        "n": f"{row.n} {row.unit}",
        "holds": tick(row.holds),
    }


def _number(value: float) -> str:
    if math.isnan(value):
        return DASH
    return f"{value:.1e}" if 0 < value < 0.001 else f"{value:.3f}"
