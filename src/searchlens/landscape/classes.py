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
    """The answer classes of every question under every policy.

    Parameters
    ----------
    scores : polars.DataFrame
        ``schemas.columns.SCORES``: the graded samples of one checkpoint on one benchmark, rows in any order.

    Returns
    -------
    polars.DataFrame
        ``schemas.columns.CLASSES``, policies in order of appearance, questions increasing.

    Raises
    ------
    InputError
        As for ``operating_points``.
    """
    parts = [
        _frame(pool.policies, pool.questions, pool.samples, pool.width, to_text(pool)) for pool in read_pools(scores)
    ]
    return in_order(parts, scores["policy"].unique(maintain_order=True).to_list())


def recorded_classes(readouts: pl.DataFrame) -> pl.DataFrame:
    """The same from compact readouts (``schemas.metrics.COMPACT``)."""
    rows = readouts.iter_rows(named=True)
    return pl.concat(
        [_frame((row["policy"],), row["question"], row["samples"], row["width"], row["classes"]) for row in rows]
    )


def _frame(policies: tuple[str, ...], questions: Any, samples: int, width: int, texts: Any) -> pl.DataFrame:
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
    }
    return pl.DataFrame(columns).cast(CLASSES)
