"""How many samples gave each answer, question by question: all that the measures of a pool are made of."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from searchlens.analysis.points import in_order
from searchlens.analysis.pool import Bools, Floats, Ints, SamplePool, missed, read_pools, signatures
from searchlens.store.columns import CLASSES

_TERM = re.compile(r"(\d+)(\+?)(?:x(\d+))?")


def to_text(pool: SamplePool) -> npt.NDArray[np.object_]:
    """How many samples gave each valid answer, largest first: ``+`` marks a right answer, ``x3`` three such classes."""
    distinct, which = signatures(pool)
    return np.array([_text(row) for row in distinct.tolist()], object)[which]


def _text(packed: list[int]) -> str:
    """Class sizes times two, plus one where right, as text.

    >>> _text([19, 8, 2, 2, 2, 0])
    '9+ 4 1x3'
    """
    terms = ((value, len(list(same))) for value, same in groupby(packed) if value)
    return " ".join(f"{value >> 1}{'+' * (value & 1)}{f'x{times}' if times > 1 else ''}" for value, times in terms)


def from_text(texts: Sequence[str]) -> tuple[Ints, Bools]:
    """Class sizes and whether they are right, shape (texts, classes), 0 for padding."""
    rows = [
        [int(size) * 2 + bool(right) for size, right, times in _TERM.findall(text) for _ in range(int(times or 1))]
        for text in texts
    ]
    packed = np.zeros((len(rows), max(1, *map(len, rows))), np.int64)
    for row, values in zip(packed, rows, strict=True):
        row[: len(values)] = values
    return packed >> 1, (packed & 1).astype(bool)


def answer_classes(scores: pl.DataFrame) -> pl.DataFrame:
    """The answer classes of every question under every policy: ``store.columns.CLASSES``.

    Policies are in order of appearance, questions increase. Scores that ``operating_points`` refuses are refused.
    """
    parts = [
        _frame(pool.policies, pool.questions, pool.samples, pool.width, to_text(pool)) for pool in read_pools(scores)
    ]
    classes = in_order(parts, scores["policy"].unique(maintain_order=True).to_list())
    counts = wrong_key_counts(scores)
    found = classes.drop("wrong_key").join(counts, on=["policy", "question"], how="left", maintain_order="left")
    return found.select(CLASSES.names()).cast(CLASSES)


def wrong_key_counts(scores: pl.DataFrame) -> pl.DataFrame:
    """``policy``, ``question`` and ``wrong_key`` of ``store.columns.CLASSES``; null unless all samples are judged."""
    if "wrong_key" not in scores.columns:
        scores = scores.with_columns(wrong_key=pl.lit(None, pl.Boolean))
    known = pl.col("wrong_key").is_not_null().all()
    return scores.group_by("policy", "question").agg(wrong_key=pl.when(known).then(pl.col("wrong_key").sum()))


def recorded_classes(counts: pl.DataFrame) -> pl.DataFrame:
    """The same from recorded counts (``store.recorded_counts.COMPACT``)."""
    rows = counts.iter_rows(named=True)
    keys = ("question", "samples", "width", "classes", "wrong_key")
    return pl.concat([_frame((row["policy"],), *(row[key] for key in keys)) for row in rows])


def _frame(
    policies: tuple[str, ...], questions: Any, samples: int, width: int, texts: Any, wrong_key: list[int] | None = None
) -> pl.DataFrame:
    distinct, which = np.unique(np.asarray(texts, str), return_inverse=True)
    sizes, right = from_text(distinct.tolist())
    correct, answered = (sizes * right).sum(axis=1)[which], sizes.sum(axis=1)[which]
    columns = {
        "policy": np.repeat(policies, len(questions)),
        "question": np.tile(np.asarray(questions, np.uint32), len(policies)),
        "samples": np.full(len(which), samples),
        "width": np.full(len(which), width),
        "correct": correct,
        "answered": answered,
        "classes": distinct[which],
        "wrong_key": pl.Series(wrong_key or [None] * len(which), dtype=pl.UInt32),
    }
    return pl.DataFrame(columns).cast(CLASSES)


@dataclass(frozen=True, eq=False)
class Pool:
    """The samples that one checkpoint drew under one policy on one benchmark."""

    policy: str
    samples: int
    """n of every question, at least 1; the smallest if questions differ (``drawn``)."""
    questions: npt.NDArray[np.uint32]
    """Increasing. Shape (questions,)."""
    correct: Ints
    answered: Ints
    """``correct``, ``answered``: c: samples with a right answer; samples with any answer; 0 <= correct <= answered <=
    n. Shape (questions,)."""
    classes: npt.NDArray[np.str_]
    """Sizes of the answer classes, as ``9+ 4 1x3`` (docs/columns.md). Shape (questions,)."""
    tokens: float = float("nan")
    """Mean generated tokens per sample; NaN if unknown."""
    wrong_key: Ints | None = None
    """Samples that the gold of another question would accept; None if unknown. Shape (questions,)."""
    drawn: Ints | None = None
    """n of each question; None if all have the same. Shape (questions,)."""

    @property
    def n(self) -> Ints | int:
        """Samples of each question, or of all."""
        return self.samples if self.drawn is None else self.drawn

    def rows(self, table: Callable[[int], Floats], counts: Ints) -> Floats:
        """Row ``counts`` of ``table(n)`` for each question, n its own number of samples."""
        if self.drawn is None:
            return table(self.samples)[counts]
        tables = {n: table(n) for n in set(self.drawn.tolist())}
        return np.stack([tables[n][c] for n, c in zip(self.drawn.tolist(), counts.tolist(), strict=True)])

    @cached_property
    def sizes(self) -> tuple[Ints, Bools]:
        """Samples in each answer class, and whether the answer is right; shape (questions, classes), padded with 0."""
        distinct, which = np.unique(self.classes, return_inverse=True)
        sizes, right = from_text(distinct.tolist())
        return sizes[which], right[which]

    def solved(self, budgets: Iterable[float]) -> Floats:
        """Probability that k samples contain a right one: 1 - C(n - c, k) / C(n, k), shape (questions, budgets).

        The mean over all k-subsets of the pool; k between whole numbers as in ``analysis.pool.missed``. A budget
        outside of [1, ``samples``] is a ValueError. Chen et al. (2021), arXiv:2107.03374, section 2.1.
        """
        ks = list(budgets)
        if not all(1 <= k <= self.samples for k in ks):
            raise ValueError(f"budgets {ks} are not all in [1, {self.samples}]")
        return 1 - self.rows(lambda n: missed(n, ks), self.correct)


def knots(largest: int) -> list[float]:
    """Numbers of samples between which curves are interpolated: 2^(j / 4) up to ``largest``, and ``largest`` itself.

    >>> [round(k, 2) for k in knots(3)]
    [1.0, 1.19, 1.41, 1.68, 2.0, 2.38, 2.83, 3]

    Between whole numbers alone, 1 and 2 above all, interpolation in log2 k would put pass@k of hard questions up to 6%
    too high; here the error is below 0.5%.
    """
    quarters = (2 ** (j / 4) for j in range(math.floor(4 * math.log2(largest)) + 1))
    return [*(k for k in quarters if k < largest), largest]


def effective(values: Floats) -> Floats:
    """Number of questions on which the mean of each column rests: (sum g^2)^2 / sum g^4.

    All of them if the values are alike in size; the number that are not 0 if few are; 0 if all are 0.
    """
    squares = values**2
    fourth = (squares**2).sum(axis=0)
    number: Floats = np.divide(squares.sum(axis=0) ** 2, fourth, out=np.zeros_like(fourth), where=fourth > 0)
    return number


def independent_pools(classes: pl.DataFrame, tokens: dict[str, float]) -> dict[str, Pool]:
    """The pools of one landscape whose samples are independent, by policy, in order of appearance.

    ``tokens`` has the mean generated tokens per sample; policies that are missing have NaN. Policies whose samples are
    candidates of searches (width above 1) are left out: k of their samples are no random subset.
    """
    pools = {}
    for (name,), rows in classes.filter(pl.col("width") == 1).group_by("policy", maintain_order=True):
        ordered = rows.sort("question")
        unknown = ordered["wrong_key"].null_count() > 0
        pools[str(name)] = Pool(
            policy=str(name),
            samples=int(ordered["samples"][0]),
            questions=ordered["question"].to_numpy(),
            correct=ordered["correct"].cast(pl.Int64).to_numpy(),
            answered=ordered["answered"].cast(pl.Int64).to_numpy(),
            classes=ordered["classes"].to_numpy().astype(str),
            tokens=tokens.get(str(name), float("nan")),
            wrong_key=None if unknown else ordered["wrong_key"].cast(pl.Int64).to_numpy(),
        )
    return pools
