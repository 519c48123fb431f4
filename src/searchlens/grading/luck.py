"""Luck: which samples would be right if their question had the gold of another one.

What an answer earns there, it earns without knowing the question: by being an answer that often is right. Golds of
other questions that equal the own one stay, because a guess meets them as often as any other.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import polars as pl

from searchlens.grading.base import Grader
from searchlens.grading.verdicts import VerdictStore
from searchlens.seeds import resampler


class Lucky(NamedTuple):
    """A column of the samples, and how many distinct pairs were judged for it."""

    column: pl.Series
    """``lucky``, null where nothing was judged."""
    graded: int
    reused: int
    """``graded``, ``reused``: pairs judged now, and pairs read from the table of verdicts."""


def none(samples: int) -> Lucky:
    """Nothing judged."""
    return Lucky(pl.Series("lucky", [None] * samples, pl.Boolean), 0, 0)


def other_golds(references: pl.DataFrame, seed: int) -> pl.DataFrame:
    """The gold of another question, ``other``, for each question: of the one that follows in a random cyclic order.

    References are ``question`` and ``gold``, a row for each of at least two questions. The same questions and seed,
    that of the study, give the same golds, so that all checkpoints are compared with them.
    """
    order = resampler(seed, references.height).permutation(references.height)
    following = np.empty_like(order)
    following[order] = np.roll(order, -1)
    return references.select("question", other=pl.col("gold").gather(following))


def lucky(
    rows: pl.DataFrame,
    references: pl.DataFrame,
    policy: str,
    seed: int,
    grader: Grader,
    store: VerdictStore,
    *,
    workers: int | None = None,
) -> Lucky:
    """Judge the answers of one policy against golds of other questions, as of ``other_golds``.

    Rows have ``policy``, ``question`` and ``answer``, null if there is none. Samples of other policies are not judged,
    since each distinct pair of gold and answer costs a verdict; new ones are added to the store of the benchmark. A
    sample without an answer, or whose verdict is unknown, is not lucky. With a single question all is null.
    """
    judged = pl.col("policy") == policy
    if references.height < 2 or not rows.select(judged.any()).item():
        return none(rows.height)
    paired = rows.select("policy", "question", "answer").join(
        other_golds(references, seed), on="question", how="left", maintain_order="left"
    )
    asked = paired.filter(judged, pl.col("answer").is_not_null()).select("answer", gold="other")
    found = store.judge(grader, asked, workers=workers)
    verdicts = found.verdicts.select("answer", "correct", other="gold")
    accepted = paired.join(verdicts, on=["other", "answer"], how="left", maintain_order="left")
    column = accepted.select(lucky=pl.when(judged).then(pl.col("correct").fill_null(False)))["lucky"]
    return Lucky(column, found.graded, found.reused)
