"""The landscape of one checkpoint on one benchmark, from its graded samples."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
import polars as pl

from searchlens.analysis.pool import Floats, Rows, SamplePool, read_pools
from searchlens.analysis.readouts import Metric, expected, metrics, prefix
from searchlens.analysis.uncertainty import Interval, Resamples, wilson, with_width
from searchlens.config.landscape import DEFAULTS, LandscapeOptions
from searchlens.errors import InputError
from searchlens.store import readouts as metric_schemas
from searchlens.store.columns import POINTS, READOUTS

Values = dict[str, dict[str, Floats]]
"""Readout, then metric: arrays of shape (rows, budgets)."""

_Credit = dict[tuple[Metric, str], Floats]
"""Metric and readout: an array of shape (policies, questions, budgets)."""


@dataclass(frozen=True)
class Landscape:
    """Operating points of one checkpoint on one benchmark."""

    points: pl.DataFrame
    """``store.columns.POINTS``: one row per policy, budget, metric and readout."""
    hits: pl.DataFrame
    """``store.readouts.hits``: one row per policy, question and budget."""


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
    return Landscape(points_frame(pool, budgets, values, options), hits_frame(pool, budgets, values))


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


def hits_frame(pool: Rows, budgets: Sequence[int], values: Values) -> pl.DataFrame:
    """``store.readouts.hits``: one row per policy, question and budget; null where ``values`` has no such metric."""
    questions = len(pool.questions)
    policy = np.repeat(np.arange(len(pool.policies)), questions * len(budgets))
    unknown = np.full((len(pool.policies) * questions, len(budgets)), np.nan)
    columns = {
        f"{metric.name}{suffix}": values[readout].get(metric.name, unknown)
        for readout, suffix in (("prefix", ""), ("expected", "_expected"))
        for metric in metrics()
        if metric.hits
    }
    frame = {
        "policy": pl.Series(pool.policies).gather(policy),
        "question": np.tile(np.repeat(pool.questions, len(budgets)), len(pool.policies)),
        "budget": np.tile(np.asarray(budgets, np.uint32), len(pool.policies) * questions),
        **{name: pl.Series(credit.ravel(), nan_to_null=True) for name, credit in columns.items()},
    }
    return pl.DataFrame(frame).cast(metric_schemas.hits())


def points_frame(
    pool: Rows, budgets: Sequence[int], values: Values, options: LandscapeOptions, stored: Iterable[pl.DataFrame] = ()
) -> pl.DataFrame:
    """``store.columns.POINTS``: all of ``values``, ``stored`` ones, and the affine metrics of these."""
    known, questions = metrics(), len(pool.questions)
    credit: _Credit = {
        (metric, readout): values[readout][metric.name].reshape(len(pool.policies), questions, len(budgets))
        for metric in known
        for readout in READOUTS
        if metric.name in values[readout]
    }
    whole = {metric for metric in known if metric.hits and (options.ties == "first" or not metric.fractional)}
    counts = {key: part.sum(axis=1) for key, part in credit.items() if key[0] in whole and key[1] == "prefix"}
    means = {key: part for key, part in credit.items() if key not in counts}
    ends = _bootstrap(means, budgets, options, independent=pool.width == 1)
    ends |= {key: wilson(hits, questions, options.confidence) for key, hits in counts.items()}
    values_of = {key: part.mean(axis=1) for key, part in credit.items()}
    numbers = {
        "hits": [counts.get(key, np.full(value.shape, np.nan)) for key, value in values_of.items()],
        "value": list(values_of.values()),
        "lo": [ends[key].lo for key in credit],
        "hi": [ends[key].hi for key in credit],
    }
    rows, columns = len(pool.policies) * len(budgets), len(credit)
    frame = {
        "policy": pl.Series(pool.policies).gather(
            np.tile(np.repeat(np.arange(len(pool.policies)), len(budgets)), columns)
        ),
        "budget": np.tile(budgets, len(pool.policies) * columns),
        "metric": pl.Series([metric.name for metric, _ in credit]).gather(np.repeat(np.arange(columns), rows)),
        "readout": pl.Series([readout for _, readout in credit]).gather(np.repeat(np.arange(columns), rows)),
        "questions": questions,
        **{name: pl.Series(np.stack(parts).ravel(), nan_to_null=True) for name, parts in numbers.items()},
    }
    parts = [part.select(POINTS.names()).cast(POINTS) for part in (pl.DataFrame(frame), *stored)]
    points = pl.concat(parts)
    points = pl.concat([points, *(_transformed(points, metric) for metric in known if metric.affine)])
    order = {"policy": pool.policies, "metric": [metric.name for metric in known], "readout": READOUTS}
    policy, metric, readout = (pl.col(key).cast(pl.Enum(names)).to_physical() for key, names in order.items())
    return points.sort(policy, "budget", metric, readout)


def _bootstrap(
    credit: _Credit, budgets: Sequence[int], options: LandscapeOptions, *, independent: bool
) -> dict[tuple[Metric, str], Interval]:
    """Intervals of means, all from one matrix product, which is faster than many small ones.

    An interval of solved questions always has a width (``uncertainty.with_width``).

    A metric whose expectation over independent samples is a power of n times a constant is drawn once for all budgets.
    """
    power = {key: key[0].power if independent and key[1] == "expected" else None for key in credit}
    drawn = [part[:, :, :1] if power[key] is not None else part for key, part in credit.items()]
    questions = len(drawn[0][0])
    matrix = np.concatenate([part.transpose(1, 0, 2).reshape(questions, -1) for part in drawn], axis=1)
    ends = Resamples.draw(questions, options.draws, options.seed).interval(matrix, options.confidence)
    found, start = {}, 0
    for key, part in zip(credit, drawn, strict=True):
        stop = start + part.shape[0] * part.shape[2]
        scale = (np.asarray(budgets) / budgets[0]) ** (power[key] or 0)
        found[key] = Interval(*(end[start:stop].reshape(len(part), -1) * scale for end in ends))
        if key[0].hits:
            value = credit[key].mean(axis=1)
            found[key] = with_width(value, found[key], questions, options.confidence, limits=(0.0, 1.0))
        start = stop
    return found


def _transformed(points: pl.DataFrame, metric: Metric) -> pl.DataFrame:
    """The points of an affine metric, from those of the metric that it transforms."""
    rows = points.filter(metric=metric.of[0])
    value, *ends = (metric.definition(rows[name].to_numpy()) for name in ("value", "lo", "hi"))
    columns = {"value": value, "lo": np.minimum(*ends), "hi": np.maximum(*ends)}
    found = {name: pl.Series(column, dtype=pl.Float64, nan_to_null=True) for name, column in columns.items()}
    return rows.with_columns(**found, metric=pl.lit(metric.name), hits=pl.lit(None, pl.UInt32))
