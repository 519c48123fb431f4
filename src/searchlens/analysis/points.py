"""The landscape of one checkpoint on one benchmark, from its graded samples.

``first_k`` and ``unbiased`` estimate every metric of a pool, question by question: from the first n samples, and as
means over all n-subsets. They return one array of shape (rows, budgets) for each metric, rows as in ``SamplePool``.
``operating_points`` reads every metric at every budget, with intervals.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, islice
from types import MappingProxyType
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import polars as pl

from searchlens import catalogue
from searchlens.analysis.pool import Floats, Ints, Rows, SamplePool, first_of_class, read_pools
from searchlens.analysis.uncertainty import Interval, Resamples, wilson, with_width
from searchlens.config.landscape import DEFAULTS, LandscapeOptions
from searchlens.errors import InputError, require_known
from searchlens.store import recorded_counts as metric_schemas
from searchlens.store.columns import ESTIMATORS, POINTS

MOST_SUBSETS = 500
"""Most subsets of runs over which an expectation is taken: a budget with more of them has no expectation."""


@dataclass(frozen=True, kw_only=True)
class Metric:
    """A declared metric: the options of ``catalogue.metric``, and what it decorates."""

    name: str
    """Column and row name."""
    definition: Any
    """Class or function. See ``landscape.metrics``."""
    title: str
    """Name in figures and tables; if there is none, ``name``."""
    per_sample: Literal["sum", "mean"] | None = None
    """The definition gives a number for each sample; the metric is its sum or mean over n samples."""
    of: tuple[str, ...] = ()
    """The definition is a function of the estimates of these metrics, which are not derived themselves. It should be
    linear: it is applied to their expectations, too."""
    affine: bool = False
    """That function is a + b x of one metric, so value and interval are transformed, and nothing is bootstrapped."""
    hits: bool = False
    """A question is solved (1) or not (0): ``hits.parquet`` has the estimates of each question, and counts have Wilson
    intervals."""
    fractional: bool = False
    """With ``hits``: under ``ties: fractional`` a question may be solved in part."""
    compared: bool = False
    """The recovery stage compares Base and RL on it; needs ``hits``."""
    drawn: bool = False
    """Tables and figures show it; needs ``compared`` and an expectation."""
    recorded: bool = False
    """Recorded counts hold it, so changing this changes their format (``recorded_counts.COMPACT``). Without effect on
    the metrics of extensions."""

    def __post_init__(self) -> None:
        if self.per_sample not in (None, "sum", "mean"):
            raise InputError(f"metric {self.name!r}: per_sample={self.per_sample!r}; allowed: sum, mean")
        drawable = self.compared and (bool(self.of) or self.has_expectation)
        needs = {
            "affine": (len(self.of) == 1, "one metric in of"),
            "fractional": (self.hits, "hits"),
            "compared": (self.hits, "hits"),
            "drawn": (drawable, "compared and an expectation"),
        }
        for option, (met, needed) in needs.items():
            if getattr(self, option) and not met:
                raise InputError(f"metric {self.name!r}: {option}={getattr(self, option)} needs {needed}")

    @property
    def power(self) -> int | None:
        """The expectation over n independent samples is n to this power times a constant; None if it is not."""
        return {"sum": 1, "mean": 0, None: None}[self.per_sample]

    @property
    def has_expectation(self) -> bool:
        """Whether a metric that is not derived has an ``unbiased`` estimator."""
        return self.per_sample is not None or hasattr(self.definition, "unbiased")

    def first_k(self, pool: SamplePool, budgets: Ints, options: LandscapeOptions) -> Floats:
        """Estimate from the first n samples, of a metric that is not derived; shape (rows, budgets)."""
        if self.per_sample:
            values = self.definition(pool).cumsum(axis=1)[:, budgets - 1]
            values = values / budgets if self.per_sample == "mean" else values
        else:
            values = getattr(self.definition, "first_k", self.definition)(pool, budgets, options)
        return self._checked(values, pool, budgets)

    def unbiased(self, pool: SamplePool, budgets: Ints, options: LandscapeOptions) -> Floats:
        """Mean over all n-subsets of a pool of independent samples, of a metric that has it; shape (rows, budgets)."""
        if self.power is not None:
            values = self.definition(pool).mean(axis=1)[:, None] * budgets.astype(float) ** self.power
        else:
            values = self.definition.unbiased(pool, budgets, options)
        return self._checked(values, pool, budgets)

    def _checked(self, values: npt.ArrayLike, pool: SamplePool, budgets: Ints) -> Floats:
        array, shape = np.asarray(values, float), (len(pool.correct), len(budgets))
        if array.shape != shape:
            raise InputError(f"metric {self.name!r}: estimates have shape {array.shape}, not (rows, budgets) = {shape}")
        return array


def metrics() -> list[Metric]:
    """Every declared metric, in the order of points: this package's own, then those of extensions.

    An InputError: an option is unknown or needs another one, or a metric is derived from one that is derived or not
    declared.
    """
    known, allowed_options = [], Metric.__dataclass_fields__.keys() - {"name", "definition"}
    for name, declaration in catalogue.loaded("metric").items():
        for option in declaration.options:
            require_known(option, allowed_options, f"metric {name!r}: option")
        options = {"title": name, **declaration.options}
        known.append(Metric(name=name, definition=catalogue.definition(declaration), **options))
    direct = [metric.name for metric in known if not metric.of]
    for metric in known:
        for name in metric.of:
            if name not in direct:
                allowed = ", ".join(direct)
                raise InputError(f"metric {metric.name!r}: of={name!r} is derived or not declared; allowed: {allowed}")
    return known


def first_k(pool: SamplePool, budgets: Sequence[int], options: LandscapeOptions) -> dict[str, Floats]:
    """Estimates of the first n samples of the stream, for all metrics except affine ones.

    An InputError: a metric with ``hits`` is not 0 or 1, or the result of a metric has the wrong shape.
    """
    known = metrics()
    values = _prefix(known, pool, np.asarray(budgets), options)
    for metric in known:
        if metric.hits:
            found = values[metric.name]
            allowed = (found >= 0) & (found <= 1) if metric.fractional else (found == 0) | (found == 1)
            if not (allowed | np.isnan(found)).all():
                raise InputError(f"metric {metric.name!r}: first-k estimates are not 0 or 1", "declare it without hits")
    return values


def unbiased(
    pool: SamplePool, budgets: Sequence[int], options: LandscapeOptions, only: Collection[str] = ()
) -> dict[str, Floats]:
    """Means over all n-subsets of the pool, for all metrics with an expectation except affine ones, or for some.

    The order of the samples does not matter, and ties share their credit.

    Candidates of one search are not independent. For them the mean is over runs: of the first n candidates of one run,
    or of all candidates of several whole runs. It is NaN for a budget beyond one run that is not a multiple of the
    width of a run, and for a budget with more than ``MOST_SUBSETS`` subsets of runs. A last run with fewer candidates
    is left out. ``only``: metrics to compute, none of them derived; empty: all.
    """
    every = metrics()
    direct = {metric.name for metric in every if not metric.of and metric.has_expectation}
    known = [metric for metric in every if (direct.issuperset(metric.of) if metric.of else metric.name in direct)]
    known = [metric for metric in known if not only or metric.name in only]
    if pool.width > 1:
        parts = [_mean_over_runs(known, pool, n, options) for n in budgets]
        return {name: np.concatenate([part[name] for part in parts], axis=1) for name in parts[0]}
    at = np.asarray(budgets)
    return derived(known, {metric.name: metric.unbiased(pool, at, options) for metric in known if not metric.of})


def derived(known: Iterable[Metric], values: Mapping[str, Floats]) -> dict[str, Floats]:
    """``values``, and the derived metrics whose sources are among them, except affine ones."""
    computable = [metric for metric in known if metric.of and not metric.affine and values.keys() >= set(metric.of)]
    return {**values, **{metric.name: metric.definition(*(values[of] for of in metric.of)) for metric in computable}}


def _prefix(known: Sequence[Metric], pool: SamplePool, budgets: Ints, options: LandscapeOptions) -> dict[str, Floats]:
    return derived(known, {metric.name: metric.first_k(pool, budgets, options) for metric in known if not metric.of})


def _mean_over_runs(
    known: Sequence[Metric], pool: SamplePool, budget: int, options: LandscapeOptions
) -> dict[str, Floats]:
    runs_needed = max(1, budget // pool.width)
    subsets = list(islice(combinations(range(pool.samples // pool.width), runs_needed), MOST_SUBSETS + 1))
    defined = (budget <= pool.width or budget % pool.width == 0) and 0 < len(subsets) <= MOST_SUBSETS
    if not defined:
        return {metric.name: np.full((len(pool.correct), 1), np.nan) for metric in known if not metric.affine}
    shared_ties, read = replace(options, ties="fractional"), []
    for runs in subsets:
        columns = (np.asarray(runs)[:, None] * pool.width + np.arange(pool.width)).ravel()
        names = ("correct", "valid", "stopped", "finished", "tokens", "spent", "score")
        parts = {name: getattr(pool, name)[:, columns] for name in names}
        of_runs = replace(pool, first=first_of_class(pool.first[:, columns]), **parts)
        read.append(_prefix(known, of_runs, np.array([budget]), shared_ties))
    return {name: np.mean([part[name] for part in read], axis=0) for name in read[0]}


# ---- operating points

Values = dict[str, dict[str, Floats]]
"""Estimator, then metric: arrays of shape (rows, budgets)."""

_Credit = dict[tuple[Metric, str], Floats]
"""Metric and estimator: an array of shape (policies, questions, budgets)."""


@dataclass(frozen=True)
class Landscape:
    """Operating points of one checkpoint on one benchmark."""

    points: pl.DataFrame
    """``store.columns.POINTS``: one row per policy, budget, metric and estimator."""
    hits: pl.DataFrame
    """``store.recorded_counts.hits``: one row per policy, question and budget."""


def operating_points(
    scores: pl.DataFrame,
    *,
    budgets: Sequence[int],
    options: LandscapeOptions = DEFAULTS,
    seed: int = 0,
    smallest: Mapping[str, int] = MappingProxyType({}),
) -> Landscape:
    """Read every metric at every operating point.

    Policies are in order of appearance, then budgets increase, then metrics are in the order of their declarations
    (``landscape.metrics``, then extensions), ``first_k`` before ``unbiased``. A metric without an expectation has
    ``first_k`` alone. A policy with a smaller pool has no points beyond it (greedy: budget 1 alone). ``smallest`` has
    the fewest samples at which a policy can be read; others from 1. A beam of 16 is not sixteen samples, and its best
    four are not a beam of 4.

    No valid answer among the n: Q is 0. No stopped valid sample: T is 0. B picks the highest mean log-probability among
    all n samples, valid or not; if any score of a policy is unknown, its B is null, since a value from part of the pool
    would not be comparable; so are C, and T under ``shortest``, where any token count is unknown, and ``stopped``,
    ``truncated`` and T where it is not known how any sample ended. Ties in B and T: the earlier sample under
    ``first_k``, shared under ``unbiased``.

    The first-k counts of P, Q, B, T have Wilson intervals (with ``ties="fractional"`` Q is no count: ``hits`` is null
    and the interval a bootstrap). All else has percentile bootstrap intervals over questions with shared draws. The
    expected vote of pools above 512 samples is null.

    An InputError: a pool with missing or repeated samples, an answer class both right and wrong, budgets below 1 or
    beyond every pool, or a metric whose declaration is wrong. Unbiased pass@k: Chen et al. (2021), arXiv:2107.03374,
    section 2.1.
    """
    parts = [read(pool, reached, options, seed) for pool, reached in with_budgets(scores, budgets)]
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


def read(pool: SamplePool, budgets: Sequence[int], options: LandscapeOptions, seed: int) -> Landscape:
    """The landscape of one pool; budgets increasing, none beyond the pool."""
    values = {"first_k": first_k(pool, budgets, options), "unbiased": unbiased(pool, budgets, options)}
    return Landscape(points_frame(pool, budgets, values, options, seed), hits_frame(pool, budgets, values))


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
    """``store.recorded_counts.hits``: a row per policy, question and budget; null where ``values`` lacks a metric."""
    questions = len(pool.questions)
    policy = np.repeat(np.arange(len(pool.policies)), questions * len(budgets))
    unknown = np.full((len(pool.policies) * questions, len(budgets)), np.nan)
    columns = {
        f"{metric.name}{suffix}": values[estimator].get(metric.name, unknown)
        for estimator, suffix in (("first_k", ""), ("unbiased", "_unbiased"))
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


def placed(hits: pl.DataFrame) -> tuple[list[tuple[str, int]], Ints]:
    """Every (policy, budget) of ``hits``, policies in order of the pool, budgets increasing, and that of each row."""
    names = hits["policy"].unique(maintain_order=True).to_list()
    policy = hits["policy"].cast(pl.Enum(names)).to_physical().to_numpy().astype(np.int64)
    budgets, budget = np.unique(hits["budget"].to_numpy(), return_inverse=True)
    codes, point = np.unique(policy * len(budgets) + budget, return_inverse=True)
    return [(names[code // len(budgets)], int(budgets[code % len(budgets)])) for code in codes.tolist()], point


def points_frame(
    pool: Rows,
    budgets: Sequence[int],
    values: Values,
    options: LandscapeOptions,
    seed: int,
    stored: Iterable[pl.DataFrame] = (),
) -> pl.DataFrame:
    """``store.columns.POINTS``: all of ``values``, ``stored`` ones, and the affine metrics of these."""
    known, questions = metrics(), len(pool.questions)
    credit: _Credit = {
        (metric, estimator): values[estimator][metric.name].reshape(len(pool.policies), questions, len(budgets))
        for metric in known
        for estimator in ESTIMATORS
        if metric.name in values[estimator]
    }
    whole = {metric for metric in known if metric.hits and (options.ties == "first" or not metric.fractional)}
    counts = {key: part.sum(axis=1) for key, part in credit.items() if key[0] in whole and key[1] == "first_k"}
    means = {key: part for key, part in credit.items() if key not in counts}
    ends = _bootstrap(means, budgets, options, seed, independent=pool.width == 1)
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
        "estimator": pl.Series([estimator for _, estimator in credit]).gather(np.repeat(np.arange(columns), rows)),
        "questions": questions,
        **{name: pl.Series(np.stack(parts).ravel(), nan_to_null=True) for name, parts in numbers.items()},
    }
    parts = [part.select(POINTS.names()).cast(POINTS) for part in (pl.DataFrame(frame), *stored)]
    points = pl.concat(parts)
    points = pl.concat([points, *(_transformed(points, metric) for metric in known if metric.affine)])
    order = {"policy": pool.policies, "metric": [metric.name for metric in known], "estimator": ESTIMATORS}
    policy, metric, estimator = (pl.col(key).cast(pl.Enum(names)).to_physical() for key, names in order.items())
    return points.sort(policy, "budget", metric, estimator)


def _bootstrap(
    credit: _Credit, budgets: Sequence[int], options: LandscapeOptions, seed: int, *, independent: bool
) -> dict[tuple[Metric, str], Interval]:
    """Intervals of means, all from one matrix product, which is faster than many small ones.

    An interval of solved questions always has a width (``uncertainty.with_width``).

    A metric whose expectation over independent samples is a power of n times a constant is drawn once for all budgets.
    """
    power = {key: key[0].power if independent and key[1] == "unbiased" else None for key in credit}
    drawn = [part[:, :, :1] if power[key] is not None else part for key, part in credit.items()]
    questions = len(drawn[0][0])
    matrix = np.concatenate([part.transpose(1, 0, 2).reshape(questions, -1) for part in drawn], axis=1)
    ends = Resamples.draw(questions, options.draws, seed).interval(matrix, options.confidence)
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
