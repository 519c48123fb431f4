"""Some texts of a cell that is not interpretable, for people to see what is wrong."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import polars as pl

EXAMPLES = 5
SHOWN = 100
"""Characters of the end of a text that are shown."""
Find = Callable[[pl.DataFrame], pl.DataFrame]
"""Looks samples up: given policy, question (an id) and sample, it returns these columns and the text."""


def examples(graded: pl.DataFrame, find: Find, questions: Sequence[str], *, quotes: bool = True) -> list[str]:
    """Five samples without an answer, one line for each.

    Parameters
    ----------
    graded : DataFrame
        ``schemas.columns.GRADED`` of a cell.
    find : Find
        Looks up samples of the cell.
    questions : sequence of str
        Ids of the questions, in the order of the benchmark.
    quotes : bool
        Whether texts may be shown; the terms of gated benchmarks forbid it.

    Returns
    -------
    list of str
        Question, sample, finish and the end of the text. They are spread over the cell. If every sample has an answer,
        samples with an unknown verdict are shown, if there are any.
    """
    without = graded.filter(pl.col("answer") < 0)
    rows = without if without.height else graded.filter(pl.col("unknown"))
    if rows.is_empty():
        return []
    chosen = rows[sorted({i * (rows.height - 1) // (EXAMPLES - 1) for i in range(EXAMPLES)})]
    chosen = chosen.select("policy", "sample", "finish", question=pl.Series(questions).gather(chosen["question"]))
    shown = chosen.join(find(chosen), on=["policy", "question", "sample"], how="left", maintain_order="left")
    return [
        line(row["question"], row["sample"], row["finish"], row["text"] if quotes else None, row["policy"])
        for row in shown.iter_rows(named=True)
    ]


def line(question: str, sample: int, finish: str | None, text: str | None, policy: str) -> str:
    """One sample as a line of ASCII and what else can be printed, line breaks escaped; ids alone without a text."""
    head = f"  {policy}, question {question}, sample {sample}, finish {finish or 'unknown'}"
    if text is None:
        return f"{head}: not shown, the benchmark is gated"
    end = text[-SHOWN:]
    cut = "…" if len(text) > SHOWN else ""
    return f"{head}: {cut}{end!r}"
