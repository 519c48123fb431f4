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
from searchlens.landscape._compact import COMPACT, PLAIN, compact_pool, expand_pools
from searchlens.landscape._frames import ALL_METRICS, READOUTS, hits_frame, points_frame
from searchlens.landscape._plain import plain_votes
from searchlens.landscape._pool import Pool, read_pools
from searchlens.landscape._readouts import FirstFinish, Ties, expected, missed, prefix
from searchlens.uncertainty import Resamples

__all__ = [
    "ALL_METRICS",
    "COMPACT",
    "READOUTS",
    "Landscape",
    "LandscapeOptions",
    "compact",
    "expand",
    "missed",
    "operating_points",
    "plain_votes",
]


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
    parts = [_read(pool, reached, options) for pool, reached in _reached(scores, budgets)]
    return _together(parts, scores["policy"].unique(maintain_order=True).to_list(), smallest)


def compact(
    scores: pl.DataFrame, votes: pl.DataFrame | None, *, budgets: Sequence[int], options: LandscapeOptions = DEFAULTS
) -> pl.DataFrame:
    """What ``operating_points`` can be told from without the samples.

    Parameters
    ----------
    scores, budgets, options
        As of ``operating_points``.
    votes : polars.DataFrame or None
        What ``plain_votes`` returned; None where the scores have no plain strings.

    Returns
    -------
    polars.DataFrame
        ``COMPACT``, policies in order of appearance.

    Raises
    ------
    InputError
        As ``operating_points``; or ties are shared, so that the vote of a question is more than one bit.
    """
    if options.ties != "first":
        raise InputError(f"landscape.ties: {options.ties}; compact readouts hold one bit for a vote: ties: first")
    plain = (
        votes.select("policy", "budget", "readout", metric=pl.lit(PLAIN), value="Q_plain")
        if votes is not None
        else None
    )
    parts = []
    for pool, reached in _reached(scores, budgets):
        found = _read(pool, reached, options)
        points = (
            found.points
            if plain is None
            else pl.concat([found.points, plain.filter(pl.col("policy").is_in(pool.policies))], how="diagonal")
        )
        parts.append(compact_pool(pool, reached, points, found.hits))
    return _in_order(parts, scores["policy"].unique(maintain_order=True).to_list())


def expand(
    kept: pl.DataFrame, *, options: LandscapeOptions = DEFAULTS, smallest: Mapping[str, int] = MappingProxyType({})
) -> tuple[Landscape, pl.DataFrame]:
    """The landscape that ``operating_points`` reads from the samples behind compact readouts.

    Parameters
    ----------
    kept : polars.DataFrame
        What ``compact`` returned.
    options : LandscapeOptions
        Those with which it was called.
    smallest : mapping
        As of ``operating_points``.

    Returns
    -------
    landscape : Landscape
        Prefix readouts and counts are the same, all other values to single precision. B_expected and T_expected of
        ``hits`` are null.
    votes : polars.DataFrame
        What ``plain_votes`` returned, in single precision; without rows where no plain strings were known.
    """
    parts = list(expand_pools(kept, options.draws, options.seed, options.confidence))
    landscape = _together([Landscape(part.points, part.hits) for part in parts], kept["policy"].to_list(), smallest)
    return landscape, pl.concat([part.votes for part in parts])


def _reached(scores: pl.DataFrame, budgets: Sequence[int]) -> list[tuple[Pool, list[int]]]:
    """Pools with the budgets that they are long enough for."""
    if not budgets or min(budgets) < 1:
        raise InputError(f"budgets: {list(budgets)} must be one or more integers from 1")
    pools = read_pools(scores)
    largest = max(pool.samples for pool in pools)
    if min(budgets) > largest:
        raise InputError(f"budgets: the smallest, {min(budgets)}, exceeds every pool (at most {largest} samples)")
    found = [(pool, sorted({n for n in budgets if n <= pool.samples})) for pool in pools]
    return [(pool, reached) for pool, reached in found if reached]


def _together(parts: Sequence[Landscape], names: Sequence[str], smallest: Mapping[str, int]) -> Landscape:
    readable = pl.col("budget") >= pl.col("policy").replace_strict(smallest, default=1, return_dtype=pl.UInt32)
    return Landscape(
        points=_in_order([part.points for part in parts], names).filter(readable),
        hits=_in_order([part.hits for part in parts], names).filter(readable),
    )


def _in_order(frames: Sequence[pl.DataFrame], names: Sequence[str]) -> pl.DataFrame:
    if len(frames) == 1:
        return frames[0]
    rank = pl.col("policy").replace_strict({name: i for i, name in enumerate(names)}, return_dtype=pl.UInt32)
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
