"""The search landscape: what each policy reaches with each budget (paper, section "Search landscape").

One pool of samples per policy gives every smaller budget and every metric. Two readouts of it stand side by side:

``prefix``
    The first n samples of the stream, as the paper reads them: one 0/1 per question, Wilson intervals over questions.
``expected``
    The exact mean over all n-subsets of the pool, which does not depend on the order of the samples: the unbiased
    pass@k, and the same for vote, best-of-N and first finish. Bootstrap intervals over questions. Candidates of one
    search (a tree, a beam) are no independent draws: for these it is the mean over runs of the first n candidates, or
    over subsets of whole runs.

Both describe the sampled pool. At n = pool size there is one subset, and the readouts differ in ties alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import polars as pl

from searchlens.errors import InputError
from searchlens.landscape._frames import ALL_METRICS, READOUTS, hits_frame, points_frame
from searchlens.landscape._plain import plain_votes
from searchlens.landscape._pool import Pool, read_pools
from searchlens.landscape._readouts import FirstFinish, Ties, expected, prefix
from searchlens.uncertainty import Resamples

__all__ = ["ALL_METRICS", "READOUTS", "Landscape", "LandscapeOptions", "operating_points", "plain_votes"]


@dataclass(frozen=True)
class LandscapeOptions:
    """Readings that the paper leaves open.

    Attributes
    ----------
    ties : {"first", "fractional"}
        Prefix vote on a tie: the answer seen earliest wins, or every tied answer gets an equal share. Expectations
        always share.
    first_finish : {"shortest", "first_index"}
        First to finish: the stopped, valid sample with the fewest tokens, or the first one in the stream.
    draws : int
        Bootstrap draws.
    seed : int
        Of the bootstrap draws; non-negative.
    confidence : float
        Nominal coverage of all intervals, in (0, 1).
    """

    ties: Ties = "first"
    first_finish: FirstFinish = "shortest"
    draws: int = 2000
    seed: int = 0
    confidence: float = 0.95


DEFAULTS = LandscapeOptions()


@dataclass(frozen=True)
class Landscape:
    """Operating points of one checkpoint on one benchmark.

    Attributes
    ----------
    points : polars.DataFrame
        ``schemas.POINTS``: one row per policy, budget, metric and readout.
    hits : polars.DataFrame
        ``schemas.HITS``: one row per policy, question and budget.
    """

    points: pl.DataFrame
    hits: pl.DataFrame


def operating_points(
    scores: pl.DataFrame,
    *,
    budgets: Sequence[int],
    options: LandscapeOptions = DEFAULTS,
    smallest: Mapping[str, int] = MappingProxyType({}),
) -> Landscape:
    """Read every metric at every operating point.

    Parameters
    ----------
    scores : polars.DataFrame
        ``schemas.SCORES``: the graded samples of one checkpoint on one benchmark, rows in any order.
    budgets : sequence of int
        Numbers of samples n >= 1. A policy with a smaller pool has no points beyond it (greedy: budget 1 alone).
    options : LandscapeOptions
        Ties, first finish, intervals.
    smallest : mapping of str to int
        Policy to the fewest samples at which it can be read; others from 1. A beam of 16 is not sixteen samples, and
        its best four are not a beam of 4.

    Returns
    -------
    Landscape
        Policies in order of appearance, then budgets increasing, then metrics in the order of ``ALL_METRICS``,
        ``prefix`` before ``expected``.

    Raises
    ------
    InputError
        A pool with holes or duplicates, an answer class both right and wrong, budgets below 1 or beyond every pool.

    Notes
    -----
    No valid answer among the n: Q is 0. No stopped valid sample: T is 0. B picks the highest mean log-probability among
    all n samples, valid or not; if any score of a policy is unknown, its B is null, since a value from part of the pool
    would not be comparable; so are C, and T under ``shortest``, where any token count is unknown. Ties in B and T: the
    earlier sample under ``prefix``, shared under ``expected``.

    The prefix counts of P, Q, B, T have Wilson intervals (with ``ties="fractional"`` Q is none: ``hits`` is null and
    the interval a bootstrap). All else has percentile bootstrap intervals over questions with shared draws. The
    expected vote of pools above 512 samples is left null.

    References
    ----------
    Chen et al. (2021), arXiv:2107.03374, section 2.1 (unbiased pass@k).
    """
    if not budgets or min(budgets) < 1:
        raise InputError(f"budgets: {list(budgets)} must be one or more integers from 1")
    pools = read_pools(scores)
    largest = max(pool.samples for pool in pools)
    if min(budgets) > largest:
        raise InputError(f"budgets: the smallest, {min(budgets)}, exceeds every pool (at most {largest} samples)")
    parts = []
    for pool in pools:
        reached = sorted({n for n in budgets if n <= pool.samples})
        if reached:
            parts.append(_read(pool, reached, options))
    order = {name: i for i, name in enumerate(scores["policy"].unique(maintain_order=True))}
    readable = pl.col("budget") >= pl.col("policy").replace_strict(smallest, default=1, return_dtype=pl.UInt32)
    return Landscape(
        points=_in_order([part.points for part in parts], order).filter(readable),
        hits=_in_order([part.hits for part in parts], order).filter(readable),
    )


def _in_order(frames: list[pl.DataFrame], order: dict[str, int]) -> pl.DataFrame:
    if len(frames) == 1:
        return frames[0]
    rank = pl.col("policy").replace_strict(order, return_dtype=pl.UInt32)
    return pl.concat(frames).sort(rank, maintain_order=True)


def _read(pool: Pool, budgets: Sequence[int], options: LandscapeOptions) -> Landscape:
    values = {
        "prefix": prefix(pool, budgets, ties=options.ties, first_finish=options.first_finish),
        "expected": expected(pool, budgets, first_finish=options.first_finish),
    }
    resamples = Resamples.draw(len(pool.questions), options.draws, options.seed)
    return Landscape(
        points=points_frame(pool, budgets, values, resamples, options.confidence, counted=options.ties == "first"),
        hits=hits_frame(pool, budgets, values),
    )
