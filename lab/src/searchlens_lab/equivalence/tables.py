"""Tables of the comparison with independent implementations."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl

from searchlens.analysis.claims import DASH, Row, interval, number
from searchlens.catalogue import table
from searchlens.reporting.tables import table as fmt

THRESHOLDS_NOTE = "The thresholds were set before the first comparison was run."
BOUNDS = {"at least": "≥", "at most": "≤", "covers": "covers"}


@dataclass(frozen=True)
class Comparisons:
    """What the tables of the comparison are made from."""

    rows: pl.DataFrame
    """One row per statistic, as ``searchlens_lab.equivalence.rows.frame`` returns them."""
    matches: pl.DataFrame | None = None
    """One row per strategy, as ``searchlens_lab.equivalence.engines.match_frame`` returns them; None if nothing runs on
    vLLM."""
    notes: Sequence[str] = ()
    """Sentences under every table."""


# ---- statistics


@table("udf_local", stage="equivalence")
def udf_local(context: Comparisons) -> fmt.Table:
    """Local policies against references, the paper's tiers 1 and 2."""
    return _statistics(context.rows.filter(table="local"))


@table("udf_tier34", stage="equivalence")
def udf_tier34(context: Comparisons) -> fmt.Table:
    """Searches against references, the paper's tiers 3 and 4."""
    return _statistics(context.rows.filter(table="tier34"))


@table("udf_engines", stage="equivalence_vllm")
def udf_engines(context: Comparisons) -> fmt.Table:
    """The embedded engine against vLLM."""
    return _statistics(context.rows.filter(table="engines"))


def _statistics(rows: pl.DataFrame) -> fmt.Table:
    """A line for each statistic, and a note that lists those that do not hold."""
    without_ends = [] if rows["lo"].is_not_null().any() else ["lo", "hi"]
    data = rows.with_columns(pl.col("value", "lo", "hi").fill_nan(None)).drop("table", *without_ends)
    failing = [f"{row['policy']} against {row['reference']}: {row['statistic']}" for row in _failing(rows)]
    verdict = f"Does not hold: {'; '.join(failing)}." if failing else "Every comparison holds."
    lines = [_line(row) for row in rows.iter_rows(named=True)]
    return fmt.Table(
        data, [fmt.part(lines, rule_before=fmt.changes(rows["policy"].to_list()))], [verdict, THRESHOLDS_NOTE]
    )


def _failing(rows: pl.DataFrame) -> list[Row]:
    return list(rows.filter(~pl.col("holds")).iter_rows(named=True))


def _line(row: Row) -> fmt.Line:
    sides = "" if row["ours"] is None else f" ({row['ours']:.2f} against {row['theirs']:.2f})"
    covers = row["bound"] == "covers"
    value = interval(row["value"], row["lo"], row["hi"], 3, "+") if covers else _number(row["value"])
    return {
        "policy": row["policy"],
        "reference": row["reference"],
        "statistic": row["statistic"],
        "value": value + sides,
        "threshold": f"{BOUNDS[row['bound']]} {row['threshold']:g}",
        "n": f"{row['n']} {row['unit']}",
        "holds": fmt.tick(row["holds"]),
    }


def _number(value: float) -> str:
    if math.isnan(value):
        return DASH
    return f"{value:.1e}" if 0 < value < 0.001 else f"{value:.3f}"


# ---- the paper's seven strategies


@table("udf_tier12", stage="equivalence_vllm")
def udf_tier12(context: Comparisons) -> fmt.Table:
    """The paper's table of local strategies, with the thresholds."""
    matches = context.matches
    assert matches is not None, "a study that does not run on vLLM builds no table of this stage"
    lines = [
        {
            "strategy": row["strategy"],
            "policy": row["policy"],
            "n": str(row["n"]),
            "output match": f"{number(row['output_match'])} (≥ {row['output_threshold']:g})",
            "EM agree": f"{number(row['em_agree'])} (≥ {row['em_threshold']:g})",
            "equiv.": fmt.tick(row["holds"]),
        }
        for row in matches.iter_rows(named=True)
    ]
    failing = [row["strategy"] for row in _failing(matches)]
    verdict = f"Does not hold: {', '.join(failing)}." if failing else "Every strategy is equivalent."
    return fmt.Table(matches, [fmt.part(lines)], [verdict, THRESHOLDS_NOTE])
