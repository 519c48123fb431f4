"""Counts of how the samples of a cell ended and whether they state an answer (``columns.HEALTH``), and some texts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import polars as pl

from searchlens.benchmarks import Question
from searchlens.store.columns import HEALTH


class Counts(NamedTuple):
    """Counts of some policies of a cell."""

    rows: pl.DataFrame
    """``store.columns.HEALTH``: one row for each policy."""
    solved: pl.DataFrame
    """``question``, once for each policy, and ``correct``: whether any of its samples is right; null if unknown."""


def of_graded(graded: pl.DataFrame) -> pl.DataFrame:
    """Counts of graded samples: first the row of all policies together, then one for each policy.

    Samples have at least ``SCORES`` of ``store.columns.GRADED``; ``correct`` may be null: not judged. In
    ``store.columns.HEALTH``, what the columns of the samples do not say is null, never 0.
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

    Answer classes are ``store.columns.CLASSES``; points, for the share of samples that stopped,
    ``store.columns.POINTS``. Compact readouts do not say why a sample did not stop, nor which answers were not
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
    return {
        "answered": answered,
        "stopped": stopped,
        "truncated": ~pl.col("stopped").fill_null(True) & not_failed,
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


EXAMPLES = 5
SHOWN = 100
"""Characters of the end of a text that are shown."""
Find = Callable[[pl.DataFrame], pl.DataFrame]
"""Looks samples up: given policy, question (an id) and sample, it returns these columns and the text."""


def examples(graded: pl.LazyFrame, find: Find, questions: Sequence[Question], *, quotes: bool = True) -> list[str]:
    """Five samples without an answer, one line for each: question, sample, finish and the end of the text.

    Samples are ``store.columns.GRADED`` of a cell, spread over it; questions are in the order of the benchmark. If
    every sample has an answer, samples with an unknown verdict are shown, if there are any. If no sample is right, two
    with an answer follow, with their golds. ``quotes``: whether texts may be shown; the terms of gated benchmarks
    forbid it.
    """
    chosen = _spread(graded.filter(pl.col("answer") < 0))
    if chosen.is_empty():
        chosen = _spread(graded.filter(pl.col("unknown")))
    chosen = chosen.with_columns(gold=pl.lit(None, pl.String))
    if not graded.select(pl.col("correct").any()).collect().item():
        wrong = _spread(graded.filter(pl.col("answer") >= 0), 2)
        golds = pl.Series([question.gold for question in questions], dtype=pl.String)
        chosen = pl.concat([chosen, wrong.with_columns(gold=golds.gather(wrong["question"]))])
    if chosen.is_empty():
        return []
    chosen = chosen.with_columns(question=pl.Series([one.id for one in questions]).gather(chosen["question"]))
    shown = chosen.join(find(chosen), on=["policy", "question", "sample"], how="left", maintain_order="left")
    return [
        line(row["question"], row["sample"], row["finish"], row["text"] if quotes else None, row["policy"], row["gold"])
        for row in shown.iter_rows(named=True)
    ]


def _spread(rows: pl.LazyFrame, most: int = EXAMPLES) -> pl.DataFrame:
    """Some of the rows, from the first to the last; no more than these are in memory."""
    numbered = rows.select("policy", "sample", "finish", "question").with_row_index()
    count = int(numbered.select(pl.len()).collect().item())
    places = sorted({i * max(count - 1, 0) // (most - 1) for i in range(most)})
    return numbered.filter(pl.col("index").is_in(places)).drop("index").collect(engine="streaming")


def line(question: str, sample: int, finish: str | None, text: str | None, policy: str, gold: str | None = None) -> str:
    """One sample as a line of ASCII and what else can be printed, line breaks escaped; ids alone without a text."""
    head = f"  {policy}, question {question}, sample {sample}, finish {finish or 'unknown'}"
    if text is None:
        return f"{head}: not shown, the benchmark is gated"
    end = text[-SHOWN:]
    cut = "…" if len(text) > SHOWN else ""
    return f"{head}: {cut}{end!r}" + (f", gold {gold!r}" if gold is not None else "")
