"""What a comparison says: one number, its threshold, and whether it holds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Literal

import numpy as np
import polars as pl
from scipy.stats import chisquare

Table = Literal["local", "tier34", "engines"]
Law = Mapping[tuple[int, ...], float]
"""Texts, as token ids, to their probabilities."""
_EXPECTED = 5.0  # fewest expected draws of a cell of a chi-square test
_ROUNDED = 1e-9  # an interval that ends at the threshold ends a rounding error beside it


@dataclass(frozen=True)
class Row:
    """One statistic of one comparison.

    Attributes
    ----------
    table : {"local", "tier34", "engines"}
        Local policies, the paper's tiers 1 and 2, searches, its tiers 3 and 4, or one engine against the other.
    policy, reference : str
        What is compared with what.
    statistic : str
    n : int
        What it is taken over.
    unit : str
        What n counts.
    value : float
    bound : {"at least", "at most", "covers"}
        What the value, or for "covers" its interval, must do with the threshold.
    threshold : float
    ours, theirs : float or None
        The two accuracies, where their difference is the statistic.
    lo, hi : float or None
        The interval.
    """

    table: Table
    policy: str
    reference: str
    statistic: str
    n: int
    unit: str
    value: float
    bound: Literal["at least", "at most", "covers"]
    threshold: float
    ours: float | None = None
    theirs: float | None = None
    lo: float | None = None
    hi: float | None = None

    @property
    def holds(self) -> bool:
        """Whether the value is on the right side of its threshold; a value that is no number is not."""
        if self.bound == "covers":
            if self.lo is None or self.hi is None:
                return False
            return self.lo - _ROUNDED <= self.threshold <= self.hi + _ROUNDED
        return self.value >= self.threshold if self.bound == "at least" else self.value <= self.threshold


FRAME = pl.Schema(
    {
        **dict.fromkeys(("table", "policy", "reference", "statistic"), pl.String()),
        "n": pl.UInt32(),
        "unit": pl.String(),
        "value": pl.Float64(),
        "bound": pl.String(),
        "threshold": pl.Float64(),
        "ours": pl.Float64(),
        "theirs": pl.Float64(),
        "holds": pl.Boolean(),
        "lo": pl.Float64(),
        "hi": pl.Float64(),
    }
)


def frame(rows: Sequence[Row]) -> pl.DataFrame:
    """The rows as a frame; its column ``holds`` says whether each comparison holds."""
    return pl.DataFrame([{**asdict(row), "holds": row.holds} for row in rows], FRAME)


def share(equal: Sequence[bool]) -> float:
    """Share of what is equal; not a number where there is nothing to compare."""
    return float(np.mean(equal)) if len(equal) else float("nan")


def chi_square(counts: Mapping[tuple[int, ...], int], law: Law) -> float:
    """P value of the draws ``counts`` under ``law``.

    Texts of which fewer than 5 draws are expected are one cell, joined by the rarest other one while it is short of 5
    itself. A text that cannot be drawn gives 0; a law of one cell gives 1.
    """
    if any(law.get(text, 0.0) == 0 for text in counts):
        return 0.0
    n = sum(counts.values())
    cells: list[tuple[float, int]] = []  # expected, seen
    rare, seen = 0.0, 0
    for text in sorted(law, key=law.__getitem__):
        if rare < _EXPECTED or n * law[text] < _EXPECTED:
            rare, seen = rare + n * law[text], seen + counts.get(text, 0)
        else:
            cells.append((n * law[text], counts.get(text, 0)))
    cells.append((rare, seen))
    expected, observed = np.array(cells).T
    return float(chisquare(observed, expected * (n / expected.sum())).pvalue) if len(cells) > 1 else 1.0


def total_variation(counts: Mapping[tuple[int, ...], int], law: Law) -> float:
    """Total variation between the frequencies of draws and a law, in [0, 1]."""
    n = sum(counts.values())
    return 0.5 * sum(abs(counts.get(text, 0) / n - law.get(text, 0.0)) for text in {*counts, *law})
