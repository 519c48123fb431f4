"""The landscape of one checkpoint on one benchmark, from its graded samples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import polars as pl

from searchlens.analysis._frames import hits_frame, points_frame
from searchlens.analysis.pool import SamplePool, read_pools
from searchlens.analysis.readouts import expected, prefix
from searchlens.analysis.uncertainty import Resamples
from searchlens.config.landscape import DEFAULTS, LandscapeOptions
from searchlens.errors import InputError


@dataclass(frozen=True)
class Landscape:
    """Operating points of one checkpoint on one benchmark."""

    points: pl.DataFrame
    """``store.columns.POINTS``: one row per policy, budget, metric and readout."""
    hits: pl.DataFrame
    """``store.metrics.hits``: one row per policy, question and budget."""


def operating_points(
    scores: pl.DataFrame,
    *,
    budgets: Sequence[int],
    options: LandscapeOptions = DEFAULTS,
    smallest: Mapping[str, int] = MappingProxyType({}),
) -> Landscape:
    """Read every metric at every operating point.

    Policies are in order of appearance, then budgets increase, then metrics are in the order of their declarations
    (``landscape.metrics``, then extensions), ``prefix`` before ``expected``. A metric without an expectation has
    ``prefix`` alone. A policy with a smaller pool has no points beyond it (greedy: budget 1 alone). ``smallest`` has
    the fewest samples at which a policy can be read; others from 1. A beam of 16 is not sixteen samples, and its best
    four are not a beam of 4.

    No valid answer among the n: Q is 0. No stopped valid sample: T is 0. B picks the highest mean log-probability among
    all n samples, valid or not; if any score of a policy is unknown, its B is null, since a value from part of the pool
    would not be comparable; so are C, and T under ``shortest``, where any token count is unknown, and ``stopped``,
    ``truncated`` and T where it is not known how any sample ended. Ties in B and T: the earlier sample under
    ``prefix``, shared under ``expected``.

    The prefix counts of P, Q, B, T have Wilson intervals (with ``ties="fractional"`` Q is no count: ``hits`` is null
    and the interval a bootstrap). All else has percentile bootstrap intervals over questions with shared draws. The
    expected vote of pools above 512 samples is null.

    An InputError: a pool with missing or repeated samples, an answer class both right and wrong, budgets below 1 or
    beyond every pool, or a metric whose declaration is wrong. Unbiased pass@k: Chen et al. (2021), arXiv:2107.03374,
    section 2.1.
    """
    parts = [read(pool, reached, options) for pool, reached in with_budgets(scores, budgets)]
    return join(parts, scores["policy"].unique(maintain_order=True).to_list(), smallest)


def with_budgets(scores: pl.DataFrame, budgets: Sequence[int]) -> list[tuple[SamplePool, list[int]]]:
    """Pools with the budgets that they are large enough for; pools that are too small for all are left out."""
    if not budgets or min(budgets) < 1:
        raise InputError(f"budgets: {list(budgets)} must be one or more integers from 1")
    pools = read_pools(scores)
    require_reached(budgets, max(pool.samples for pool in pools))
    reached = [(pool, sorted({n for n in budgets if n <= pool.samples})) for pool in pools]
    return [(pool, part) for pool, part in reached if part]


def require_reached(budgets: Sequence[int], largest: int) -> None:
    """Refuse budgets of which all exceed the largest pool."""
    if min(budgets) > largest:
        raise InputError(f"budgets: the smallest, {min(budgets)}, exceeds every pool (at most {largest} samples)")


def read(pool: SamplePool, budgets: Sequence[int], options: LandscapeOptions) -> Landscape:
    """The landscape of one pool; budgets increasing, none beyond the pool."""
    values = {"prefix": prefix(pool, budgets, options), "expected": expected(pool, budgets, options)}
    resamples = Resamples.draw(len(pool.questions), options.draws, options.seed)
    return Landscape(
        points=points_frame(pool, budgets, values, resamples, options.confidence, counted=options.ties == "first"),
        hits=hits_frame(pool, budgets, values),
    )


def join(parts: Sequence[Landscape], policies: Sequence[str], smallest: Mapping[str, int]) -> Landscape:
    """One landscape, policies in this order, without the points below ``smallest``."""
    readable = pl.col("budget") >= pl.col("policy").replace_strict(smallest, default=1, return_dtype=pl.UInt32)
    return Landscape(
        points=in_order([part.points for part in parts], policies).filter(readable),
        hits=in_order([part.hits for part in parts], policies).filter(readable),
    )


def in_order(frames: Sequence[pl.DataFrame], policies: Sequence[str]) -> pl.DataFrame:
    """The rows of all frames, policies in this order."""
    if len(frames) == 1:
        return frames[0]
    rank = pl.col("policy").replace_strict({name: i for i, name in enumerate(policies)}, return_dtype=pl.UInt32)
    return pl.concat(frames).sort(rank, maintain_order=True)
