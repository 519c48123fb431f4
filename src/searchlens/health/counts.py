"""Counts of how the samples of a cell ended and whether they state an answer (``schemas.columns.HEALTH``)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import polars as pl

from searchlens.schemas.columns import HEALTH


class Counts(NamedTuple):
    """Counts of some policies of a cell."""

    rows: pl.DataFrame
    """``schemas.columns.HEALTH``: one row for each policy."""
    solved: pl.DataFrame
    """``question``, once for each policy, and ``correct``: whether any of its samples is right; null if unknown."""


def of_graded(graded: pl.DataFrame) -> pl.DataFrame:
    """Counts of graded samples: first the row of all policies together, then one for each policy.

    Samples have at least ``SCORES`` of ``schemas.columns.GRADED``; ``correct`` may be null: not judged. In
    ``schemas.columns.HEALTH``, what the columns of the samples do not say is null, never 0.
    """
    return together([counted(graded)])


def counted(graded: pl.DataFrame) -> Counts:
    """Counts of the graded samples of some policies, for ``together``."""
    marked = graded.select("policy", "question", "correct", **_marks(graded.columns))
    solved = marked.group_by("policy", "question", maintain_order=True).agg(pl.col("correct").any(ignore_nulls=False))
    names = marked["policy"].unique(maintain_order=True)
    rows = [_row(marked.filter(policy=name), solved.filter(policy=name), name) for name in names]
    return Counts(pl.concat([HEALTH.to_frame(), *rows]), solved.drop("policy"))


def together(parts: Sequence[Counts]) -> pl.DataFrame:
    """The result of ``of_graded`` from the counts of all policies, some of them in each part."""
    rows = pl.concat([part.rows for part in parts])
    questions = _questions(pl.concat([part.solved for part in parts]))
    sums = rows.select(_sum(name) for name in HEALTH.names() if name not in ("policy", *questions))
    total = {"policy": None, **sums.row(0, named=True), **questions}
    return pl.concat([pl.DataFrame([total], HEALTH), rows])


def of_classes(classes: pl.DataFrame, points: pl.DataFrame) -> pl.DataFrame:
    """Counts, as of ``of_graded``, of a cell that is read from compact readouts, as far as these have them.

    Answer classes are ``schemas.columns.CLASSES``; points, for the share of samples that stopped,
    ``schemas.columns.POINTS``. Compact readouts do not say why a sample did not stop, nor which answers were not
    judged: ``truncated`` is all that did not stop, and the columns that they do not have are null.
    """
    shares = points.filter(metric="stopped", readout="expected").group_by("policy").agg(pl.col("value").last())
    counted = classes.group_by("policy", maintain_order=True).agg(
        pl.col("samples").sum(),
        pl.col("answered").sum(),
        questions=pl.col("question").n_unique(),
        unsolved=(pl.col("correct") == 0).sum(),
    )
    rows = counted.join(shares, on="policy", how="left", maintain_order="left").with_columns(
        stopped=(pl.col("value") * pl.col("samples")).round()
    )
    rows = rows.with_columns(truncated=pl.col("samples") - pl.col("stopped"))
    sums = rows.select(_sum(name) for name in ("samples", "answered", "stopped", "truncated"))
    solved = classes.select("policy", "question", correct=pl.col("correct") > 0)
    total = {"policy": None, **sums.row(0, named=True), **_questions(solved)}
    known = [name for name in HEALTH.names() if name in rows.columns]
    return pl.DataFrame([total, *rows.select(known).iter_rows(named=True)], HEALTH, strict=False)


def _marks(columns: list[str]) -> dict[str, pl.Expr]:
    """What is counted, as a Boolean for each sample; null throughout if the samples do not say it."""
    answered, nothing = pl.col("answer") >= 0, pl.lit(None, pl.Boolean)
    unknown_end = pl.col("finish").is_null() if "finish" in columns else nothing
    failed = pl.col("finish") == "failed" if "finish" in columns else pl.col("score") == float("-inf")
    found = pl.col("extraction") if "extraction" in columns else pl.lit(None, pl.String)
    no_end, not_failed = unknown_end.fill_null(False), ~failed.fill_null(False)
    stopped = pl.col("stopped") & ~no_end
    truncated = ~pl.col("stopped").fill_null(True) & not_failed
    return {
        "answered": answered,
        "stopped": stopped,
        "truncated": truncated,
        "unknown_end": unknown_end,
        "whole_answered": (stopped | no_end) & answered,
        "unknown": pl.col("unknown") if "unknown" in columns else nothing,
        "failed": failed.fill_null(False) if "finish" in columns else failed,
        "kept": found.eq("kept"),
        "withdrawn": found.eq("withdrawn"),
        "unboxed": found.is_in(["fallback", "number"]),
    }


def _row(marked: pl.DataFrame, solved: pl.DataFrame, policy: str) -> pl.DataFrame:
    counted = [name for name in HEALTH.names() if name in marked.columns and name != "policy"]
    sums = marked.select(_sum(name) for name in counted).row(0, named=True)
    return pl.DataFrame([{"policy": policy, "samples": marked.height, **sums, **_questions(solved)}], HEALTH)


def _sum(column: str) -> pl.Expr:
    """The sum; null if a value is unknown."""
    return pl.when(~pl.col(column).is_null().any()).then(pl.col(column).sum()).alias(column)


def _questions(solved: pl.DataFrame) -> dict[str, int | None]:
    """Number of questions, and of those that no sample solves."""
    by_question = solved.group_by("question").agg(unsolved=~pl.col("correct").any(ignore_nulls=False))
    return {"questions": by_question.height, **by_question.select(unsolved=_sum("unsolved")).row(0, named=True)}
