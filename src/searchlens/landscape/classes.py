"""How many samples gave each answer, question by question: all that the order-free readings of a pool are made of."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl

from searchlens.landscape.class_sizes import from_text, to_text
from searchlens.landscape.points import in_order
from searchlens.landscape.pool import read_pools
from searchlens.schemas.columns import CLASSES


def answer_classes(scores: pl.DataFrame) -> pl.DataFrame:
    """The answer classes of every question under every policy: ``schemas.columns.CLASSES``.

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
    """``policy``, ``question`` and ``lucky`` of ``schemas.columns.CLASSES``; null unless all samples are judged."""
    if "lucky" not in scores.columns:
        scores = scores.with_columns(lucky=pl.lit(None, pl.Boolean))
    known = pl.col("lucky").is_not_null().all()
    return scores.group_by("policy", "question").agg(lucky=pl.when(known).then(pl.col("lucky").sum()))


def recorded_classes(readouts: pl.DataFrame) -> pl.DataFrame:
    """The same from compact readouts (``schemas.metrics.COMPACT``)."""
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
