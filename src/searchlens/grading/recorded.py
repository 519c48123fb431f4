"""Verdicts that came with imported samples, in place of our own: nothing is graded.

A benchmark of imported samples may be judged by ``recorded:SCORER``, where SCORER is what its log calls the verdicts:
the only way in for answers that no grader here can judge, and for logs without texts.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import polars as pl

from searchlens.benchmarks import Question
from searchlens.catalogue import grader
from searchlens.config.limits import QInstructions
from searchlens.errors import InputError
from searchlens.grading import NO_ANSWER, Extraction, GradedPair, Grader, Verdict
from searchlens.grading.score import positions
from searchlens.store.columns import GRADED

RECORDED = "recorded"
"""The kind of grader; a scorer of the log may follow behind a colon."""

_KEY = ["policy", "question", "sample"]


@grader("recorded", recorded=True)
class Recorded(Grader):
    """Finds and judges nothing: verdicts are read from what was imported (``score_recorded``)."""

    version = "recorded/1"

    def extract(self, text: str, stopped: bool) -> Extraction:  # noqa: ARG002
        """No answer: that of the log stands beside its verdict."""
        return NO_ANSWER

    def grade(self, pairs: Sequence[GradedPair], *, workers: int | None = None) -> list[Verdict]:  # noqa: ARG002
        """Nothing can be judged: raises InputError unless there are no pairs."""
        if pairs:
            raise InputError("recorded: the verdicts are those of a log, and no other answer can be judged by them")
        return []


def is_recorded(kind: str) -> bool:
    """Whether the verdicts are those of a log.

    >>> is_recorded("recorded:exact_match"), is_recorded("math")
    (True, False)
    """
    return kind.partition(":")[0] == RECORDED


def scorer_of(kind: str, found: Sequence[Iterable[str]]) -> str:
    """The scorer whose verdicts count: the named one (``recorded:SCORER``), or the first that all logs have.

    ``found`` are the scorers of each pool of samples, in the order of its log. Raises InputError if a pool has no
    verdicts, or not those of the scorer.
    """
    each = [list(dict.fromkeys(scorers)) for scorers in found]
    if any(not scorers for scorers in each):
        raise InputError(
            "the log has no verdicts of its own on single samples", "grade the texts: --grader math or choice"
        )
    wanted = kind.partition(":")[2]
    shared = [name for name in (each[0] if each else ()) if all(name in scorers for scorers in each)]
    if wanted in shared or (shared and not wanted):
        return wanted or shared[0]
    known = ", ".join(dict.fromkeys(name for scorers in each for name in scorers))
    if wanted:
        raise InputError(f"not all samples have verdicts of {wanted!r}; the scorers of the log: {known}")
    raise InputError(f"the samples have no scorer in common; found: {known}", "import them one by one")


def score_recorded(
    samples: pl.DataFrame,
    said: pl.DataFrame,
    questions: Sequence[Question],
    *,
    q_instructions: QInstructions = "first_sample",
) -> pl.DataFrame:
    """Samples with the verdicts of their log: ``store.columns.GRADED``, policies in the order of their first rows.

    Samples have the columns of ``grading.score.SAMPLES``, with or without ``text``; ``question`` is an id. ``said`` has
    ``policy``, ``question``, ``sample``, ``value`` in [0, 1] or null, and ``answer`` or null, of one scorer;
    ``q_instructions`` gives the classes where it has no answers.

    Where no verdict of a policy has an answer, answers cannot be told apart, and each sample is a class of its own. A
    sample without a verdict is not correct, and ``unknown``. What a log does not say (``extraction``, ``lucky``) is
    null.
    """
    order = {name: i for i, name in enumerate(samples["policy"].unique(maintain_order=True))}
    rows = (
        samples.drop("text", strict=False)
        .join(said.select(*_KEY, "value", "answer"), on=_KEY, how="left")
        .join(positions(questions), on="question")
        .with_columns(  # a failed request is not right
            pl.when(pl.col("finish").eq_missing(pl.lit("failed"))).then(0.0).otherwise("value").alias("value")
        )
        .with_columns(unknown=pl.col("value").is_null(), correct=(pl.col("value") >= 1).fill_null(value=False))
        .with_columns(has_answers=pl.col("answer").is_not_null().any().over("policy"))
    )
    one_each = pl.col("sample") if q_instructions == "first_sample" else (~pl.col("correct")).cast(pl.UInt32)
    is_whole = pl.col("finish").ne_missing(pl.lit("failed"))
    # Right answers are class 0, the wrong ones of a question are numbered by their texts, -1 has no text.
    wrong = pl.when(~pl.col("correct")).then(pl.col("answer")).rank("dense").over("question").cast(pl.Int32)
    numbered = pl.when("correct").then(0).otherwise(wrong).fill_null(-1)
    by_answer = pl.when(numbered >= 0).then(pl.struct("answer", "correct").rank("dense").over("question"))
    classes = rows.with_columns(
        pl.when("has_answers").then(numbered).when(is_whole).then(one_each).fill_null(-1).alias("class"),
        pl.when("has_answers").then(by_answer).when(is_whole).then(one_each).fill_null(-1).alias("plain"),
    )
    return (
        classes.with_columns(
            **{name: pl.lit(None, GRADED[name]) for name in ("extraction", "checks", "lucky")},
            question=pl.col("position"),
            answer=pl.col("class"),
            finished=pl.col("stopped") & (pl.col("class") >= 0),
        )
        .sort(pl.col("policy").replace_strict(order, return_dtype=pl.UInt32), "question", "sample")
        .select(GRADED.names())
        .cast(GRADED)  # type: ignore[arg-type]
    )
