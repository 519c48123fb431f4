"""A landscape in little: what it is read from where samples are not kept.

One row is one policy. What a landscape says of single questions is kept question by question, as far as anything is
read from it: the prefix readouts as bits, and the sizes of the answer classes, which decide the expectations of P, Q
and ``distinct``. All else is kept as it was computed, means over questions with their intervals, in single precision,
which tells the whole number that a mean of counts is made of. Not kept are the expectations of B and T of single
questions.

================================  =================================================================================
policy, samples, width            a policy, its samples per question, and those of one run (docs/data.md)
budgets                           at which it was read
question                          positions in the benchmark; the lists below run over them
P, Q, B, T                        prefix readouts: bit i is that at the i-th budget; null: unknown
classes                           how many samples gave each valid answer, most first, ``+``: a right one: ``9+ 4 1x3``
P_expected, Q_expected            by question and budget, of policies whose samples are candidates of searches
points                            rows of ``schemas.POINTS`` that do not follow from these, and the vote by plain string
================================  =================================================================================
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np
import numpy.typing as npt
import polars as pl

from searchlens.errors import InputError
from searchlens.landscape._frames import ALL_METRICS, READOUTS, Values, hits_frame, points_frame
from searchlens.landscape._pool import Floats, Ints, Pool
from searchlens.landscape._readouts import missed
from searchlens.landscape._vote import VOTE_POOL_LIMIT, class_sizes, unique_rows, vote_of_signatures
from searchlens.schemas import METRICS, POINTS, VOTES
from searchlens.uncertainty import Resamples

PLAIN = "Q_plain"
"""The vote over plain strings, among the points."""

_POINT = pl.Struct(
    {
        "metric": pl.Enum([*ALL_METRICS, PLAIN]),
        "readout": pl.Enum(READOUTS),
        "budget": pl.UInt32(),
        "value": pl.Float32(),
        "lo": pl.Float32(),
        "hi": pl.Float32(),
    }
)

COMPACT = pl.Schema(
    {
        "policy": pl.String(),
        "samples": pl.UInt32(),
        "width": pl.UInt32(),
        "budgets": pl.List(pl.UInt32()),
        "question": pl.List(pl.UInt32()),
        **{metric: pl.List(pl.UInt16()) for metric in METRICS},
        "classes": pl.List(pl.Categorical()),
        **{f"{metric}_expected": pl.List(pl.Float32()) for metric in ("P", "Q")},
        "points": pl.List(_POINT),
    }
)

_MOST_BUDGETS = 16
_TERM = re.compile(r"(\d+)(\+?)(?:x(\d+))?")


# ---- samples in, little out


def compact_pool(pool: Pool, budgets: Sequence[int], points: pl.DataFrame, hits: pl.DataFrame) -> pl.DataFrame:
    """The policies of one pool.

    Parameters
    ----------
    pool : Pool
    budgets : sequence of int
        Increasing, at most 16.
    points, hits : DataFrame
        The pool's landscape at these budgets; the prefix vote is 0 or 1 for each question.

    Returns
    -------
    DataFrame
        ``COMPACT``.

    Raises
    ------
    InputError
        More than 16 budgets.
    """
    if len(budgets) > _MOST_BUDGETS:
        raise InputError(f"budgets: {len(budgets)} of them; compact readouts hold at most {_MOST_BUDGETS}")
    shape = (len(pool.policies), len(pool.questions), len(budgets))
    credit = {name: hits[name].cast(pl.Float32).to_numpy().reshape(shape) for name in hits.columns[3:]}
    classes = _class_texts(pool).reshape(shape[:2])
    kept = _in_themselves(points, pool.width).partition_by("policy", include_key=False, as_dict=True)
    rows = [
        {
            "policy": name,
            "samples": pool.samples,
            "width": pool.width,
            "budgets": list(budgets),
            "question": pool.questions.tolist(),
            **{metric: _bits(credit[metric][i]) for metric in METRICS},
            "classes": classes[i].tolist(),
            **{key: credit[key][i].ravel().tolist() if pool.width > 1 else None for key in _EXPECTED},
            "points": kept[(name,)].to_dicts(),
        }
        for i, name in enumerate(pool.policies)
    ]
    return pl.DataFrame(rows, COMPACT)


_EXPECTED = ("P_expected", "Q_expected")


def _bits(credit: npt.NDArray[np.float32]) -> list[int] | None:
    """One number for each question; None where the readout is unknown."""
    if np.isnan(credit).any():
        return None
    found: list[int] = (credit.astype(int) @ (1 << np.arange(credit.shape[1]))).tolist()
    return found


def _follows(width: int) -> list[str]:
    """Metrics and readouts that questions decide."""
    both = [f"{metric} {readout}" for metric in ("P", "Q", "D", "truncated") for readout in READOUTS]
    return [*both, "B prefix", "T prefix", *(["distinct expected"] if width == 1 else [])]


def _in_themselves(points: pl.DataFrame, width: int) -> pl.DataFrame:
    named = pl.concat_str("metric", "readout", separator=" ")
    kept = points.filter(~named.is_in(_follows(width))).select("policy", *_POINT.to_schema())
    return kept.sort("metric", "readout", "budget", maintain_order=True)  # like beside like packs better


def _class_texts(pool: Pool) -> npt.NDArray[np.object_]:
    votes = class_sizes(pool, pool.samples)
    packed = np.sort((votes * 2 + (pool.correct & (votes > 0))).astype(np.uint16), axis=1)[:, ::-1]
    distinct, which = unique_rows(packed)
    return np.array([_text(row) for row in distinct.tolist()], object)[which]


def _text(packed: list[int]) -> str:
    """Class sizes times two, plus one where right, as text.

    >>> _text([19, 8, 2, 2, 2, 0])
    '9+ 4 1x3'
    """
    terms = ((value, len(list(same))) for value, same in groupby(packed) if value)
    return " ".join(f"{value >> 1}{'+' * (value & 1)}{f'x{times}' if times > 1 else ''}" for value, times in terms)


# ---- little in, landscape out


@dataclass(frozen=True, eq=False)
class _Policies:
    """Policies with equally many samples in equal runs, read at the same budgets."""

    policies: tuple[str, ...]
    questions: npt.NDArray[np.uint32]
    samples: int
    width: int
    budgets: list[int]
    rows: pl.DataFrame

    def values(self) -> Values:
        """What questions decide, as of ``_readouts``; shape (rows, budgets)."""
        prefix = {metric: self._from_bits(metric) for metric in METRICS}
        expected = self._from_classes() if self.width == 1 else self._as_kept()
        for found in (prefix, expected):
            found["D"] = found["P"] - found["Q"]
        return {"prefix": prefix, "expected": expected}

    def _from_bits(self, metric: str) -> Floats:
        known = self.rows[metric]
        unknown = pl.lit([0] * len(self.questions), known.dtype)
        bits = self.rows.select(pl.col(metric).fill_null(unknown).explode())[metric].to_numpy().astype(np.int64)
        credit = ((bits[:, None] >> np.arange(len(self.budgets))) & 1).astype(float)
        credit[np.repeat(known.is_null().to_numpy(), len(self.questions))] = np.nan
        return credit

    def _from_classes(self) -> dict[str, Floats]:
        texts = self.rows["classes"].explode().cast(pl.String)
        distinct = texts.unique().sort()
        which = texts.cast(pl.Enum(distinct)).to_physical().to_numpy()
        sizes, right = _parsed(distinct.to_list())
        miss = missed(self.samples, self.budgets)
        found = {
            "P": 1 - miss[(sizes * right).sum(axis=1)],
            "Q": np.full((len(sizes), len(self.budgets)), np.nan),
            "distinct": np.stack([(1 - column)[sizes].sum(axis=1) for column in miss.T], axis=1),
        }
        if self.samples <= VOTE_POOL_LIMIT:
            found["Q"] = vote_of_signatures(sizes, right, self.samples, self.budgets)
        return {name: values[which] for name, values in found.items()}

    def _as_kept(self) -> dict[str, Floats]:
        each = {name: self.rows[f"{name}_expected"].explode().cast(pl.Float64).to_numpy() for name in ("P", "Q")}
        return {name: values.reshape(-1, len(self.budgets)) for name, values in each.items()}


def _parsed(texts: list[str]) -> tuple[Ints, npt.NDArray[np.bool_]]:
    """Class sizes and whether they are right, shape (texts, classes), 0 for padding."""
    rows = [
        [int(size) * 2 + bool(right) for size, right, times in _TERM.findall(text) for _ in range(int(times or 1))]
        for text in texts
    ]
    packed = np.zeros((len(rows), max(1, *map(len, rows))), np.int64)
    for row, values in zip(packed, rows, strict=True):
        row[: len(values)] = values
    return packed >> 1, (packed & 1).astype(bool)


def _alike(kept: pl.DataFrame) -> Iterator[_Policies]:
    keys = ("samples", "width", "budgets", "question")
    for group in kept.with_row_index().group_by(*keys, maintain_order=True).agg("index").iter_rows(named=True):
        rows = kept[group["index"]]
        questions = np.array(group["question"], np.uint32)
        names = tuple(rows["policy"])
        yield _Policies(names, questions, group["samples"], group["width"], group["budgets"], rows)


@dataclass(frozen=True)
class Expanded:
    """What was read from policies that are alike: ``schemas.POINTS``, ``schemas.HITS``, and ``schemas.VOTES``.

    ``votes`` has no rows where no plain strings were known.
    """

    points: pl.DataFrame
    hits: pl.DataFrame
    votes: pl.DataFrame


def expand_pools(kept: pl.DataFrame, draws: int, seed: int, confidence: float) -> Iterator[Expanded]:
    """Points and hits of policies that are alike, in order of their first.

    Parameters
    ----------
    kept : DataFrame
        ``COMPACT``.
    draws, seed, confidence
        Of the intervals, as they were when the others were computed.

    Yields
    ------
    Expanded
        As from the samples, but for B_expected and T_expected of questions, which are null.
    """
    for pool in _alike(kept):
        values = pool.values()
        resamples = Resamples.draw(len(pool.questions), draws, seed)
        derived = points_frame(pool, pool.budgets, values, resamples, confidence, counted=True)
        unknown = np.full_like(values["prefix"]["P"], np.nan)
        values["expected"] |= {"B": unknown, "T": unknown}
        others = _whole(_points(pool.rows), pool)
        yield Expanded(
            _in_order(pool, [derived, *_completed(others, len(pool.questions))]),
            hits_frame(pool, pool.budgets, values),
            _votes(pool, others, derived),
        )


def _whole(others: pl.DataFrame, pool: _Policies) -> pl.DataFrame:
    """Means of counts as they were before they were kept in single precision: whole numbers by known ones.

    A prefix mean is a count by the questions. The mean over subsets of c out of R runs (without searches: samples) is
    c / R of what all of them add up to. Rates of samples are by the budget, too.
    """
    rate, runs = pl.col("metric").is_in(["valid", "stopped"]), pool.samples // pool.width
    subsets = runs / pl.max_horizontal(1, pl.col("budget") // pool.width)
    among = (
        len(pool.questions)
        * pl.when(rate).then("budget").otherwise(1)
        * pl.when(readout="prefix").then(1.0).when(rate | (pl.col("metric") == "C")).then(subsets)
    )
    return others.with_columns(value=pl.coalesce((pl.col("value") * among).round() / among, "value"))


def _completed(others: pl.DataFrame, questions: int) -> list[pl.DataFrame]:
    """Kept points, and the rates of truncation that follow from them."""
    others = others.filter(pl.col("metric") != PLAIN).with_columns(
        hits=pl.lit(None, pl.UInt32), questions=pl.lit(questions, pl.UInt32)
    )
    cut = others.filter(metric="stopped").with_columns(
        metric=pl.lit("truncated"), value=1 - pl.col("value"), lo=1 - pl.col("hi"), hi=1 - pl.col("lo")
    )
    return [others, cut]


def _in_order(pool: _Policies, frames: list[pl.DataFrame]) -> pl.DataFrame:
    together = pl.concat([frame.select(POINTS.names()).cast(POINTS) for frame in frames])
    policy, metric, readout = _ranks(policy=pool.policies, metric=ALL_METRICS, readout=READOUTS)
    return together.sort(policy, "budget", metric, readout)


def _votes(pool: _Policies, others: pl.DataFrame, derived: pl.DataFrame) -> pl.DataFrame:
    by_class = derived.filter(metric="Q").select("policy", "budget", "readout", Q="value")
    plain = others.filter(metric=PLAIN).rename({"value": PLAIN})
    found = plain.join(by_class, on=["policy", "budget", "readout"], how="left").select(VOTES.names()).cast(VOTES)
    readout, policy = _ranks(readout=READOUTS, policy=pool.policies)
    return found.sort("budget", readout, policy)


def _ranks(**columns: Sequence[str]) -> list[pl.Expr]:
    """To sort by, in the order of the names of each column."""
    return [pl.col(column).cast(pl.Enum(names)).to_physical() for column, names in columns.items()]


def _points(kept: pl.DataFrame) -> pl.DataFrame:
    rows = kept.select("policy", "points").explode("points", empty_as_null=False).unnest("points")
    return rows.with_columns(pl.col("metric", "readout").cast(pl.String), pl.col("value", "lo", "hi").cast(pl.Float64))
