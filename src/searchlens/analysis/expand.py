"""The landscape from its compact readouts (``store.metrics.COMPACT``)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
import numpy.typing as npt
import polars as pl

from searchlens.analysis._frames import Values, hits_frame, points_frame
from searchlens.analysis._vote import VOTE_POOL_LIMIT, expected_vote, prefix_vote, vote_of_signatures
from searchlens.analysis.classes import from_text
from searchlens.analysis.points import Landscape, join
from searchlens.analysis.pool import Floats, SamplePool, missed, read_pools
from searchlens.analysis.readouts import Metric, derived, metrics
from searchlens.analysis.uncertainty import Resamples
from searchlens.config.landscape import DEFAULTS, LandscapeOptions, Ties
from searchlens.store.columns import PLAIN, POINTS, READOUTS, VOTES
from searchlens.store.metrics import recorded


def expand(
    readouts: pl.DataFrame,
    *,
    options: LandscapeOptions = DEFAULTS,
    smallest: Mapping[str, int] = MappingProxyType({}),
) -> tuple[Landscape, pl.DataFrame]:
    """The landscape that ``operating_points`` reads from the samples, and the votes of ``plain_votes``.

    ``options`` are those with which ``compact`` was called. Prefix readouts and counts are the same, all other values
    equal to single precision; without plain strings there are no votes. B_expected and T_expected of ``hits`` are null.
    Metrics that were neither recorded nor derive from recorded ones are left out of ``points``, and null in ``hits``.
    """
    parts = [_expand_group(group, options) for group in _groups(readouts)]
    landscape = join([landscape for landscape, _ in parts], readouts["policy"].to_list(), smallest)
    return landscape, pl.concat([votes for _, votes in parts])


@dataclass(frozen=True, eq=False)
class _Group:
    """Policies with the same number of samples, width of runs and budgets; rows as in ``SamplePool``."""

    policies: tuple[str, ...]
    questions: npt.NDArray[np.uint32]
    samples: int
    width: int
    budgets: list[int]
    readouts: pl.DataFrame

    def values(self) -> Values:
        """Readouts that are stored question by question, and those that follow from them; shape (rows, budgets)."""
        prefix = {name: self._from_bits(name) for name in recorded(hits=True) if name in self.readouts.columns}
        expected = self._as_stored() | (self._from_classes() if self.width == 1 else {})
        return {"prefix": derived(metrics(), prefix), "expected": derived(metrics(), expected)}

    def _from_bits(self, metric: str) -> Floats:
        column = self.readouts[metric]
        no_bits = pl.lit([0] * len(self.questions), column.dtype)
        bits = self.readouts.select(pl.col(metric).fill_null(no_bits).explode())[metric].to_numpy().astype(np.int64)
        credit = ((bits[:, None] >> np.arange(len(self.budgets))) & 1).astype(float)
        credit[np.repeat(column.is_null().to_numpy(), len(self.questions))] = np.nan
        return credit

    def _from_classes(self) -> dict[str, Floats]:
        texts = self.readouts["classes"].explode().cast(pl.String)
        distinct = texts.unique().sort()
        which = texts.cast(pl.Enum(distinct)).to_physical().to_numpy()
        sizes, right = from_text(distinct.to_list())
        miss = missed(self.samples, self.budgets)
        by_text = {
            "P": 1 - miss[(sizes * right).sum(axis=1)],
            "Q": np.full((len(sizes), len(self.budgets)), np.nan),
            "distinct": np.stack([(1 - column)[sizes].sum(axis=1) for column in miss.T], axis=1),
        }
        if self.samples <= VOTE_POOL_LIMIT:
            by_text["Q"] = vote_of_signatures(sizes, right, self.samples, self.budgets)
        return {name: values[which] for name, values in by_text.items()}

    def _as_stored(self) -> dict[str, Floats]:
        names = {f"{metric.name}_expected": metric.name for metric in metrics() if metric.has_expectation}
        columns = [column for column in self.readouts if column.name in names and not column.has_nulls()]
        values = {names[column.name]: column.explode().cast(pl.Float64).to_numpy() for column in columns}
        return {name: column.reshape(-1, len(self.budgets)) for name, column in values.items()}

    def points(self) -> pl.DataFrame:
        """The stored points, means of counts as precise as they were."""
        rows = self.readouts.select("policy", "points").explode("points", empty_as_null=False).unnest("points")
        names, values = pl.col("metric", "readout").cast(pl.String), pl.col("value", "lo", "hi").cast(pl.Float64)
        return self._without_rounding(rows.with_columns(names, values))

    def _without_rounding(self, points: pl.DataFrame) -> pl.DataFrame:
        """Undo the rounding to single precision of means of counts: such a mean is a whole number over a known one.

        A prefix mean is a count over the questions. The mean over subsets of c out of R runs (without searches:
        samples) is c / R of the sum over all of them. Shares of samples are over the budget, too. A value that is no
        such mean, because its metric counts nothing, is not the single that the nearest whole number gives.
        """
        share, runs = pl.col("metric").is_in(recorded(per_sample="mean")), self.samples // self.width
        total = pl.col("metric").is_in(recorded(per_sample="sum"))
        subsets = runs / pl.max_horizontal(1, pl.col("budget") // self.width)
        denominator = (
            len(self.questions)
            * pl.when(share).then("budget").otherwise(1)
            * pl.when(readout="prefix").then(1.0).when(share | total).then(subsets)
        )
        count = (pl.col("value") * denominator).round() / denominator
        is_count = count.cast(pl.Float32) == pl.col("value").cast(pl.Float32)
        return points.with_columns(value=pl.when(is_count).then(count).otherwise("value"))


def _groups(readouts: pl.DataFrame) -> Iterator[_Group]:
    """In order of their first policies."""
    keys = ("samples", "width", "budgets", "question")
    for group in readouts.with_row_index().group_by(*keys, maintain_order=True).agg("index").iter_rows(named=True):
        rows = readouts[group["index"]]
        questions = np.array(group["question"], np.uint32)
        yield _Group(tuple(rows["policy"]), questions, group["samples"], group["width"], group["budgets"], rows)


def _expand_group(group: _Group, options: LandscapeOptions) -> tuple[Landscape, pl.DataFrame]:
    """Landscape and votes."""
    values, stored = group.values(), group.points()
    resamples = Resamples.draw(len(group.questions), options.draws, options.seed)
    computed = points_frame(group, group.budgets, values, resamples, options.confidence, counted=True)
    points = _sorted(group, [computed, *_completed(stored, len(group.questions))])
    return Landscape(points, hits_frame(group, group.budgets, values)), _votes(group, stored, computed)


def _completed(stored: pl.DataFrame, questions: int) -> list[pl.DataFrame]:
    """Stored points, and the affine metrics that follow from them."""
    points = stored.filter(pl.col("metric") != PLAIN).with_columns(
        hits=pl.lit(None, pl.UInt32), questions=pl.lit(questions, pl.UInt32)
    )
    return [points, *(_transformed(points, metric) for metric in metrics() if metric.affine)]


def _transformed(points: pl.DataFrame, metric: Metric) -> pl.DataFrame:
    value, *ends = (metric.definition(pl.col(column)) for column in ("value", "lo", "hi"))
    return points.filter(metric=metric.of[0]).with_columns(
        metric=pl.lit(metric.name), value=value, lo=pl.min_horizontal(ends), hi=pl.max_horizontal(ends)
    )


def _sorted(group: _Group, frames: list[pl.DataFrame]) -> pl.DataFrame:
    points = pl.concat([frame.select(POINTS.names()).cast(POINTS) for frame in frames])
    names = [metric.name for metric in metrics()]
    policy, metric, readout = _ranks(policy=group.policies, metric=names, readout=READOUTS)
    return points.sort(policy, "budget", metric, readout)


def _votes(group: _Group, stored: pl.DataFrame, computed: pl.DataFrame) -> pl.DataFrame:
    by_class = computed.filter(metric="Q").select("policy", "budget", "readout", Q="value")
    by_string = stored.filter(metric=PLAIN).rename({"value": PLAIN})
    votes = by_string.join(by_class, on=["policy", "budget", "readout"], how="left").select(VOTES.names()).cast(VOTES)
    readout, policy = _ranks(readout=READOUTS, policy=group.policies)
    return votes.sort("budget", readout, policy)


def _ranks(**columns: Sequence[str]) -> list[pl.Expr]:
    """To sort by, in the order of the names of each column."""
    return [pl.col(column).cast(pl.Enum(names)).to_physical() for column, names in columns.items()]


def plain_votes(scores: pl.DataFrame, *, budgets: Sequence[int], ties: Ties) -> pl.DataFrame:
    """The vote under both kinds of classes, for comparison: ``store.columns.VOTES``.

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
