"""Self-consistency by plain normalised strings, next to that by classes of equivalent answers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl

from searchlens.config.landscape import Ties
from searchlens.landscape._vote import expected_vote, prefix_vote
from searchlens.landscape.pool import Floats, SamplePool, read_pools
from searchlens.schemas.columns import VOTES


def plain_votes(scores: pl.DataFrame, *, budgets: Sequence[int], ties: Ties) -> pl.DataFrame:
    """The vote under both kinds of classes, for comparison: ``schemas.columns.VOTES``.

    The classes of the grader merge spellings of the right answer, but not those of wrong answers; plain strings merge
    neither. The share of questions solved by the vote over ``answer`` is Q, over ``plain`` Q_plain, for each policy,
    budget up to its pool, and readout. Candidates of searches have no ``expected`` rows.
    """
    pools = read_pools(scores), read_pools(scores.with_columns(answer="plain"))
    rows = [
        (policy, budget, readout, *values)
        for by_class, by_string in zip(*pools, strict=True)
        for budget in sorted({n for n in budgets if n <= by_class.samples})
        for readout in ("prefix", "expected")[: 2 if by_class.width == 1 else 1]
        for policy, *values in zip(
            by_class.policies, *(_solved(pool, budget, readout, ties) for pool in (by_class, by_string)), strict=True
        )
    ]
    return pl.DataFrame(rows, schema=VOTES, orient="row")


def _solved(pool: SamplePool, budget: int, readout: str, ties: Ties) -> Floats:
    """Mean over questions for each policy."""
    if readout == "prefix":
        credit = prefix_vote(pool, budget, shared=ties == "fractional")
    else:
        credit = expected_vote(pool, [budget])[:, 0]
    solved: Floats = np.mean(credit.reshape(len(pool.policies), -1), axis=1)
    return solved
