"""Tables of the comparison with independent implementations."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Literal

import numpy as np
import polars as pl
from scipy.stats import chisquare

from searchlens.analysis.claims import DASH, Row, interval, number
from searchlens.catalogue import table
from searchlens.reporting.tables import table as fmt

THRESHOLDS_NOTE = "The thresholds were set before the first comparison was run."
BOUNDS = {"at least": "≥", "at most": "≤", "covers": "covers"}


@dataclass(frozen=True)
class Comparisons:
    """What the tables of the comparison are made from."""

    rows: pl.DataFrame
    """One row per statistic, as ``frame`` returns them."""
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


# ---- The result of a comparison: one number, its threshold, and whether it holds


TableName = Literal["local", "tier34", "engines"]
Law = Mapping[tuple[int, ...], float]
"""Text, as token ids, to its probability."""
_EXPECTED = 5.0  # smallest expected count of a cell of a chi-square test
_ROUNDING = 1e-9  # an interval that ends at the threshold may miss it by a rounding error


@dataclass(frozen=True)
class ComparisonRow:
    """One statistic of one comparison."""

    table: TableName
    """Local policies (the paper's tiers 1 and 2), searches (its tiers 3 and 4), or one engine against the other."""
    policy: str
    reference: str
    """``policy``, ``reference``: the policy, and what it is compared with."""
    statistic: str
    n: int
    """Number of units that the statistic is taken over."""
    unit: str
    """What n counts, such as "texts"."""
    value: float
    """The statistic; not a number if there is nothing to compare."""
    bound: Literal["at least", "at most", "covers"]
    """How the value must lie to the threshold; with "covers", its interval must contain the threshold."""
    threshold: float
    ours: float | None = None
    theirs: float | None = None
    """``ours``, ``theirs``: the two accuracies, if their difference is the statistic."""
    lo: float | None = None
    hi: float | None = None
    """``lo``, ``hi``: the interval, if there is one."""

    @property
    def holds(self) -> bool:
        """Whether the value is on the right side of its threshold; never if it is not a number."""
        if self.bound == "covers":
            if self.lo is None or self.hi is None:
                return False
            return self.lo - _ROUNDING <= self.threshold <= self.hi + _ROUNDING
        return self.value >= self.threshold if self.bound == "at least" else self.value <= self.threshold


FRAME = pl.Schema(
    {
        **dict.fromkeys(("table", "policy", "reference", "statistic"), pl.String()),
        "n": pl.UInt32(),
        "unit": pl.String(),
        "value": pl.Float64(),
        "bound": pl.String(),
        **dict.fromkeys(("threshold", "ours", "theirs"), pl.Float64()),
        "holds": pl.Boolean(),
        **dict.fromkeys(("lo", "hi"), pl.Float64()),
    }
)


def frame(rows: Sequence[ComparisonRow]) -> pl.DataFrame:
    """The rows as a frame, with a column ``holds``."""
    return pl.DataFrame([{**asdict(row), "holds": row.holds} for row in rows], FRAME)


def share(equal: Sequence[bool]) -> float:
    """Share of equal items; not a number if there are no items."""
    return float(np.mean(equal)) if len(equal) else float("nan")


def chi_square(counts: Mapping[tuple[int, ...], int], law: Law) -> float:
    """p-value of the draws ``counts`` under ``law``, in [0, 1].

    Texts with fewer than 5 expected draws form one cell; while that cell has fewer than 5 itself, the rarest other text
    joins it. A drawn text that the law excludes gives 0; a law of one cell gives 1.
    """
    if any(law.get(text, 0.0) == 0 for text in counts):
        return 0.0
    n = sum(counts.values())
    cells: list[tuple[float, int]] = []  # expected and observed draws
    rare, rare_draws = 0.0, 0
    for text in sorted(law, key=law.__getitem__):
        if rare < _EXPECTED or n * law[text] < _EXPECTED:
            rare, rare_draws = rare + n * law[text], rare_draws + counts.get(text, 0)
        else:
            cells.append((n * law[text], counts.get(text, 0)))
    cells.append((rare, rare_draws))
    expected, observed = np.array(cells).T
    return float(chisquare(observed, expected * (n / expected.sum())).pvalue) if len(cells) > 1 else 1.0


def total_variation(counts: Mapping[tuple[int, ...], int], law: Law) -> float:
    """Total variation between the relative frequencies of draws and a law, in [0, 1]."""
    n = sum(counts.values())
    return 0.5 * sum(abs(counts.get(text, 0) / n - law.get(text, 0.0)) for text in {*counts, *law})
