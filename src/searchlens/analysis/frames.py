"""How figures and tables select and order the rows of frames."""

from __future__ import annotations

import polars as pl

from searchlens.search import kinds
from searchlens.search.kinds import NO_POLICIES, PolicyByName


def pick(frame: pl.DataFrame, **equal: str | int) -> pl.DataFrame:
    """The rows in which each named column has the given value."""
    return frame.filter(*(pl.col(column) == value for column, value in equal.items()))


def by_policy(frame: pl.DataFrame, configured: PolicyByName = NO_POLICIES) -> pl.DataFrame:
    """The frame with a column ``family``, sorted by policy in the order of ``kinds.ordered``, then by budget."""
    names = kinds.ordered(frame["policy"], configured)
    families = [kinds.family(name, configured) for name in names]
    rank = pl.col("policy").replace_strict(names, list(range(len(names))), return_dtype=pl.Int64)
    family = pl.col("policy").replace_strict(names, families, return_dtype=pl.String)
    return frame.with_columns(family=family).sort(rank, "budget", maintain_order=True)
