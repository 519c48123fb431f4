"""Recorded counts of a landscape (``store.recorded_counts.COMPACT``), from which it is rebuilt without the samples.

Whatever is read question by question is stored question by question: first-k estimates as bits, and the sizes of the
answer classes, which determine the expectations of P, Q and ``distinct``. All else is stored as means over questions
with their intervals, in single precision: enough to recover the whole number that a mean of counts comes from. The
expectations of B and T of single questions are not stored. docs/columns.md describes the columns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

import numpy as np
import numpy.typing as npt
import polars as pl

from searchlens.analysis.classes import from_text, to_text, wrong_key_counts
from searchlens.analysis.points import (
    Landscape,
    Values,
    derived,
    hits_frame,
    in_order,
    join,
    metrics,
    points_frame,
    read,
    with_budgets,
)
from searchlens.analysis.pool import Floats, Rows, SamplePool, missed, vote_of_signatures
from searchlens.config.landscape import DEFAULTS, LandscapeOptions
from searchlens.errors import InputError
from searchlens.store.columns import ESTIMATORS, PLAIN, VOTES
from searchlens.store.recorded_counts import COMPACT, COMPACT_POINT, recorded

OF_CLASSES = ("P", "Q", "distinct")
"""Metrics whose expectations over independent samples follow from the sizes of the answer classes."""

_MOST_BUDGETS = 16  # bits of the first-k estimates


def compact(
    scores: pl.DataFrame,
    votes: pl.DataFrame | None,
    *,
    budgets: Sequence[int],
    options: LandscapeOptions = DEFAULTS,
    seed: int = 0,
) -> pl.DataFrame:
    """What ``expand`` needs to rebuild the landscape without the samples: ``store.recorded_counts.COMPACT``.

    ``votes`` is what ``plain_votes`` returns; None if the scores have no plain strings. Metrics that are not declared
    as ``recorded`` are left out. An InputError, beside those of ``operating_points``: more than 16 budgets; or ties are
    shared, so that a vote is more than one bit.
    """
    if options.ties != "first":
        raise InputError(
            f"landscape.ties: {options.ties}; recorded counts store a vote as one bit and need ties: first"
        )
    accepted = wrong_key_counts(scores).drop_nulls().sort("question").group_by("policy").agg("wrong_key")
    parts, wrong_key = [], dict(accepted.iter_rows())
    for pool, reached in with_budgets(scores, budgets):
        if len(reached) > _MOST_BUDGETS:
            raise InputError(f"budgets: there are {len(reached)}; recorded counts hold at most {_MOST_BUDGETS}")
        parts.append(_compact_pool(pool, reached, read(pool, reached, options, seed), votes, wrong_key))
    return in_order(parts, scores["policy"].unique(maintain_order=True).to_list())


def _compact_pool(
    pool: SamplePool,
    budgets: Sequence[int],
    landscape: Landscape,
    votes: pl.DataFrame | None,
    wrong_key: Mapping[str, list[int]],
) -> pl.DataFrame:
    shape = (len(pool.policies), len(pool.questions), len(budgets))
    by_question = landscape.hits.drop("policy", "question", "budget")
    credit = {column.name: column.cast(pl.Float32).to_numpy().reshape(shape) for column in by_question}
    classes, implied = to_text(pool).reshape(shape[:2]), OF_CLASSES if pool.width == 1 else ()
    points = _stored_points(pool, landscape.points, votes).partition_by("policy", include_key=False, as_dict=True)
    rows = [
        {
            "policy": name,
            "samples": pool.samples,
            "width": pool.width,
            "budgets": list(budgets),
            "question": pool.questions.tolist(),
            **{metric: _bits(credit[metric][i]) for metric in recorded(hits=True)},
            "classes": classes[i].tolist(),
            "wrong_key": wrong_key.get(name),
            **{
                f"{metric}_unbiased": None if metric in implied else credit[f"{metric}_unbiased"][i].ravel().tolist()
                for metric in recorded(compared=True)
            },
            "points": points[(name,)].to_dicts(),
        }
        for i, name in enumerate(pool.policies)
    ]
    return pl.DataFrame(rows, COMPACT)


def _bits(credit: npt.NDArray[np.float32]) -> list[int] | None:
    """One number for each question; None if the estimator is unknown."""
    if np.isnan(credit).any():
        return None
    bits: list[int] = (credit.astype(int) @ (1 << np.arange(credit.shape[1]))).tolist()
    return bits


def _stored_points(pool: SamplePool, points: pl.DataFrame, votes: pl.DataFrame | None) -> pl.DataFrame:
    """Points that ``expand`` cannot compute from the other columns, and the vote by plain string."""
    of_classes = OF_CLASSES if pool.width == 1 else ()
    by_question = {"first_k": {*recorded(hits=True)}, "unbiased": {*recorded(compared=True), *of_classes}}
    computed = [
        f"{metric.name} {estimator}"
        for estimator, names in by_question.items()
        for metric in metrics()
        if metric.name in names or metric.affine or (metric.of and names.issuperset(metric.of))
    ]
    key = pl.concat_str("metric", "estimator", separator=" ")
    stored = points.filter(pl.col("metric").is_in(recorded()), ~key.is_in(computed))
    if votes is not None:
        plain = votes.select("policy", "budget", "estimator", metric=pl.lit(PLAIN), value=PLAIN)
        stored = pl.concat([stored, plain.filter(pl.col("policy").is_in(pool.policies))], how="diagonal")
    columns = stored.select("policy", *COMPACT_POINT)
    return columns.sort("metric", "estimator", "budget", maintain_order=True)  # equal neighbours compress better


def expand(
    counts: pl.DataFrame,
    *,
    options: LandscapeOptions = DEFAULTS,
    seed: int = 0,
    smallest: Mapping[str, int] = MappingProxyType({}),
) -> tuple[Landscape, pl.DataFrame]:
    """The landscape that ``operating_points`` reads from the samples, and the votes of ``plain_votes``.

    ``options`` and ``seed`` are those with which ``compact`` was called. First-k estimates and counts are the same, all
    other values equal to single precision; without plain strings there are no votes. B_unbiased and T_unbiased of
    ``hits`` are null.
    Metrics that were neither recorded nor derive from recorded ones are left out of ``points``, and null in ``hits``.
    """
    options = replace(options, ties="first")  # a vote that was recorded is one bit
    parts, votes = [], []
    keys = ("samples", "width", "budgets", "question")
    for same in counts.with_row_index().group_by(*keys, maintain_order=True).agg("index").iter_rows(named=True):
        rows, questions = counts[same["index"]], np.array(same["question"], np.uint32)
        group = _Group(tuple(rows["policy"]), questions, same["width"], same["samples"], same["budgets"], rows)
        values, stored = group.values(), group.points()
        whole = stored.filter(pl.col("metric") != PLAIN).with_columns(
            hits=pl.lit(None, pl.UInt32), questions=pl.lit(len(group.questions))
        )
        points = points_frame(group, group.budgets, values, options, seed, [whole])
        parts.append(Landscape(points, hits_frame(group, group.budgets, values)))
        by_class = points.filter(metric="Q").select("policy", "budget", "estimator", Q="value")
        by_string = stored.filter(metric=PLAIN).rename({"value": PLAIN})
        joined = by_string.join(by_class, on=["policy", "budget", "estimator"], how="left").select(VOTES.names())
        estimator, policy = (
            pl.col("estimator").cast(pl.Enum(ESTIMATORS)),
            pl.col("policy").cast(pl.Enum(group.policies)),
        )
        votes.append(joined.cast(VOTES).sort("budget", estimator.to_physical(), policy.to_physical()))
    return join(parts, counts["policy"].to_list(), smallest), pl.concat(votes)


@dataclass(frozen=True, eq=False)
class _Group(Rows):
    """Policies with the same number of samples, width of runs and budgets."""

    samples: int
    budgets: list[int]
    counts: pl.DataFrame

    def values(self) -> Values:
        """Estimates that are stored question by question, and those that follow from them; shape (rows, budgets)."""
        prefix = {name: self._from_bits(name) for name in recorded(hits=True) if name in self.counts.columns}
        names = {f"{metric.name}_unbiased": metric.name for metric in metrics() if metric.has_expectation}
        columns = [column for column in self.counts if column.name in names and not column.has_nulls()]
        stored = {names[column.name]: column.explode().cast(pl.Float64).to_numpy() for column in columns}
        expected = {name: column.reshape(-1, len(self.budgets)) for name, column in stored.items()}
        expected |= self._from_classes() if self.width == 1 else {}
        return {"first_k": derived(metrics(), prefix), "unbiased": derived(metrics(), expected)}

    def _from_bits(self, metric: str) -> Floats:
        column = self.counts[metric]
        no_bits = pl.lit([0] * len(self.questions), column.dtype)
        bits = self.counts.select(pl.col(metric).fill_null(no_bits).explode())[metric].to_numpy().astype(np.int64)
        credit = ((bits[:, None] >> np.arange(len(self.budgets))) & 1).astype(float)
        credit[np.repeat(column.is_null().to_numpy(), len(self.questions))] = np.nan
        return credit

    def _from_classes(self) -> dict[str, Floats]:
        texts = self.counts["classes"].explode().cast(pl.String)
        distinct = texts.unique().sort()
        which = texts.cast(pl.Enum(distinct)).to_physical().to_numpy()
        sizes, right = from_text(distinct.to_list())
        miss = missed(self.samples, self.budgets)
        by_text = {
            "P": 1 - miss[(sizes * right).sum(axis=1)],
            "Q": vote_of_signatures(sizes, right, self.samples, self.budgets),
            "distinct": np.stack([(1 - column)[sizes].sum(axis=1) for column in miss.T], axis=1),
        }
        return {name: values[which] for name, values in by_text.items()}

    def points(self) -> pl.DataFrame:
        """The stored points, means of counts as precise as they were: such a mean is a whole number over a known one.

        A prefix mean is a count over the questions. The mean over subsets of c out of R runs (without searches:
        samples) is c / R of the sum over all of them. Shares of samples are over the budget, too. A value that is no
        such mean, because its metric counts nothing, is not the single that the nearest whole number gives.
        """
        rows = self.counts.select("policy", "points").explode("points", empty_as_null=False).unnest("points")
        names, values = pl.col("metric", "estimator").cast(pl.String), pl.col("value", "lo", "hi").cast(pl.Float64)
        share, runs = pl.col("metric").is_in(recorded(per_sample="mean")), self.samples // self.width
        total = pl.col("metric").is_in(recorded(per_sample="sum"))
        subsets = runs / pl.max_horizontal(1, pl.col("budget") // self.width)
        denominator = (
            len(self.questions)
            * pl.when(share).then("budget").otherwise(1)
            * pl.when(estimator="first_k").then(1.0).when(share | total).then(subsets)
        )
        count = (pl.col("value") * denominator).round() / denominator
        is_count = count.cast(pl.Float32) == pl.col("value").cast(pl.Float32)
        return rows.with_columns(names, values).with_columns(value=pl.when(is_count).then(count).otherwise("value"))
