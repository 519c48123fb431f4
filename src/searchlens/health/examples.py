"""Some texts of a cell that is not interpretable, for people to see what is wrong."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import polars as pl

from searchlens.benchmarks import Question

EXAMPLES = 5
SHOWN = 100
"""Characters of the end of a text that are shown."""
Find = Callable[[pl.DataFrame], pl.DataFrame]
"""Looks samples up: given policy, question (an id) and sample, it returns these columns and the text."""


def examples(graded: pl.LazyFrame, find: Find, questions: Sequence[Question], *, quotes: bool = True) -> list[str]:
    """Five samples without an answer, one line for each: question, sample, finish and the end of the text.

    Samples are ``schemas.columns.GRADED`` of a cell, spread over it; questions are in the order of the benchmark. If
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
