"""How many samples gave each answer, question by question: all that the order-free readings of a pool are made of."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import groupby
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from searchlens.analysis._vote import class_sizes, unique_rows
from searchlens.analysis.points import in_order
from searchlens.analysis.pool import Bools, Ints, SamplePool, read_pools
from searchlens.store.columns import CLASSES

_TERM = re.compile(r"(\d+)(\+?)(?:x(\d+))?")


def to_text(pool: SamplePool) -> npt.NDArray[np.object_]:
    """How many samples gave each valid answer, largest first: ``+`` marks a right answer, ``x3`` three such classes."""
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
    counts = lucky_counts(scores)
    found = classes.drop("lucky").join(counts, on=["policy", "question"], how="left", maintain_order="left")
    return found.select(CLASSES.names()).cast(CLASSES)


def lucky_counts(scores: pl.DataFrame) -> pl.DataFrame:
    """``policy``, ``question`` and ``lucky`` of ``store.columns.CLASSES``; null unless all samples are judged."""
    if "lucky" not in scores.columns:
        scores = scores.with_columns(lucky=pl.lit(None, pl.Boolean))
    known = pl.col("lucky").is_not_null().all()
    return scores.group_by("policy", "question").agg(lucky=pl.when(known).then(pl.col("lucky").sum()))


def recorded_classes(readouts: pl.DataFrame) -> pl.DataFrame:
    """The same from compact readouts (``store.metrics.COMPACT``)."""
    rows = readouts.iter_rows(named=True)
    keys = ("question", "samples", "width", "classes", "lucky")
    return pl.concat([_frame((row["policy"],), *(row[key] for key in keys)) for row in rows])


def _frame(
    policies: tuple[str, ...], questions: Any, samples: int, width: int, texts: Any, lucky: list[int] | None = None
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
        "lucky": pl.Series(lucky or [None] * len(which), dtype=pl.UInt32),
    }
    return pl.DataFrame(columns).cast(CLASSES)
