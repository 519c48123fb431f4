"""The graded samples of a cell in parts of whole policies, so that memory does not grow with the number of policies."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import polars as pl

from searchlens.config.limits import PART_ROWS

COLUMNS = (
    *("policy", "question", "sample", "run", "correct", "answer", "tokens", "generated", "stopped", "score"),
    *("finished", "unknown", "extraction", "plain", "finish", "lucky"),
)
"""What the landscape, its votes, classes and health read of ``schemas.columns.GRADED``."""


def in_parts(scores: pl.LazyFrame, most: int = PART_ROWS) -> Iterator[pl.DataFrame]:
    """The samples of some policies after those of others, policies in order of appearance.

    Of ``schemas.columns.GRADED``, rows in any order, the ``COLUMNS`` that there are. A policy with more samples than
    ``most`` is a part of its own. Samples of which something is missing are one part, so that a check of the whole says
    what it is.
    """
    names = scores.collect_schema().names()
    needed = scores.select([name for name in COLUMNS if name in names])
    policies = _policies(scores) if {"policy", "question"} <= set(names) else None
    for part in [None] if policies is None else _parts(policies, most):
        yield (needed if part is None else needed.filter(pl.col("policy").is_in(part))).collect()


def _policies(scores: pl.LazyFrame) -> dict[str, int] | None:
    """Samples of each policy; None if policies differ in their questions, or samples have no policy."""
    counted = (
        scores.select("policy", "question")
        .with_row_index()
        .group_by("policy")
        .agg(first=pl.col("index").min(), rows=pl.len(), questions=pl.col("question").unique().sort())
        .collect(engine="streaming")
        .sort("first")
    )
    regular = counted["policy"].null_count() == 0 and counted["questions"].n_unique() == 1
    return dict(counted.select("policy", "rows").iter_rows()) if regular else None


def _parts(policies: dict[str, int], most: int) -> Sequence[list[str]]:
    """Names of the policies of each part."""
    parts: list[list[str]] = []
    room = 0
    for name, rows in policies.items():
        if rows > room:
            parts.append([])
            room = most
        parts[-1].append(name)
        room -= rows
    return parts
