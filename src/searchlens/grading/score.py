"""Scoring: from sampled texts to graded samples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

import polars as pl

from searchlens import grading, schemas
from searchlens.benchmarks import Question
from searchlens.errors import InputError
from searchlens.grading import Grader
from searchlens.grading.verdicts import VerdictStore

SAMPLES = pl.Schema(
    {
        "policy": pl.String(),
        "question": pl.String(),
        "sample": pl.UInt32(),
        "run": pl.UInt32(),
        "text": pl.String(),
        "tokens": pl.UInt32(),
        "generated": pl.UInt32(),
        "stopped": pl.Boolean(),
        "score": pl.Float32(),
    }
)
"""What ``score_samples`` takes: question is an id; run numbers the searches, whose candidates follow one another; score
is the evaluator's, for most policies the mean natural log-probability under the raw model. Score and token
counts are null when unknown. Tokens are the sample's own; generated is what its whole run drew, on the first sample of
the run, and 0 on the others."""

_SLICE = 50_000
_KEY = ["policy", "question", "sample"]

QInstructions = Literal["first_sample", "verdict_majority"]


@dataclass(frozen=True)
class Summary:
    """What scoring found, in samples unless said otherwise.

    Attributes
    ----------
    samples, correct, finished, no_answer : int
        All; accepted; finished with a stated answer; without any answer.
    extraction : mapping of str to int
        Samples by how their answer was found (``grading.Extraction``).
    unknown : int
        Counted as not correct because their grader reached a limit.
    pairs_graded, pairs_reused, pairs_unknown : int
        Distinct (gold, answer) pairs: judged now, found in the store, and among both those with an unknown verdict.
    """

    samples: int
    correct: int
    finished: int
    no_answer: int
    extraction: Mapping[str, int]
    unknown: int
    pairs_graded: int
    pairs_reused: int
    pairs_unknown: int

    def __str__(self) -> str:
        return (
            f"{self.samples} samples: {self.correct} correct, {self.finished} finished with an answer,"
            f" {self.no_answer} without one, {self.unknown} unknown ({self.pairs_graded} distinct answers graded,"
            f" {self.pairs_reused} known, {self.pairs_unknown} unknown)"
        )


class Scored(NamedTuple):
    """Graded samples (``schemas.GRADED``) and what was found on the way."""

    scores: pl.DataFrame
    summary: Summary


def score_samples(
    samples: pl.DataFrame,
    questions: Sequence[Question],
    kind: str,
    verdicts: Path,
    *,
    policies: Sequence[str] | None = None,
    q_instructions: QInstructions = "first_sample",
    workers: int | None = None,
) -> Scored:
    """Grade samples.

    The column ``answer`` numbers the classes of equivalent answers to a question over all policies given: 0 is the
    class of right answers, whether or not it occurs; wrong classes follow in the order of their normalised answers.
    This merges spellings of the right answer, but not of wrong ones, in favour of the right class; ``plain`` numbers
    classes by normalised answer alone. (Two spellings with one normal form but different verdicts, should they occur,
    are two classes.) Neither depends on the order of the samples. Where answers cannot be equivalent (instructions)
    both are the sample's number, so that each is a class of its own, or 0 for pass and 1 for fail.

    ``finished`` says that a sample ended by itself and states an answer, whatever else its grader takes as one: the
    definition of validity for the first-finish readout. ``unknown``: the grader reached a limit. ``checks``: which
    instructions were followed.

    Parameters
    ----------
    samples : DataFrame
        Columns of ``SAMPLES``, in any order, further ones ignored.
    questions : sequence of Question
        The benchmark, in its order.
    kind : str
        Key of ``grading.KINDS``.
    verdicts : Path
        Folder of this benchmark's verdicts (``searchlens.grading.verdicts``); new ones are added to it.
    policies : sequence of str, optional
        Order of the policies in the result; by default that of their first rows.
    q_instructions : {"first_sample", "verdict_majority"}
        Classes where answers cannot be equivalent.
    workers : int, optional
        Processes of the grader, >= 1; by default one per available core.

    Raises
    ------
    InputError
        A sample of an unknown question or policy, or a sample that occurs twice.
    """
    grader = grading.grader(kind)
    order = list(policies) if policies is not None else samples["policy"].unique(maintain_order=True).to_list()
    samples = samples.select(SAMPLES.names()).cast(SAMPLES)
    _check(samples, questions, order)
    rows = samples.drop("text").with_columns(_extracted(samples, grader)).join(_table(questions, grader), on="question")
    judged = VerdictStore(verdicts).judge(
        grader, rows.filter(pl.col("answer").is_not_null()).select("gold", "answer"), workers=workers
    )
    rows = rows.join(judged.verdicts, on=["gold", "answer"], how="left").with_columns(
        valid=pl.col("answer").is_not_null(),
        finished=pl.col("stopped") & pl.col("extraction").is_in(grading.STATED),
        unknown=pl.col("answer").is_not_null() & pl.col("correct").is_null(),
        correct=pl.col("correct").fill_null(False),
    )
    classes = _voting(rows) if grader.VOTES else _own_classes(rows, q_instructions)
    summary = _summary(rows, judged.graded, judged.reused, judged.verdicts["correct"].null_count())
    return Scored(_ordered(classes, order), summary)


def _check(samples: pl.DataFrame, questions: Sequence[Question], policies: Sequence[str]) -> None:
    for column, allowed in (("question", [question.id for question in questions]), ("policy", list(policies))):
        known = pl.Series(allowed, dtype=pl.String())
        if foreign := sorted(samples.filter(~pl.col(column).is_in(known.implode()))[column].unique())[:3]:
            raise InputError(
                f"samples of unknown {column}: {', '.join(foreign)}", "were they drawn from another benchmark?"
            )
    repeated = samples.filter(samples.select(_KEY).is_duplicated())
    if not repeated.is_empty():
        policy, question, sample = repeated.sort(_KEY).row(0)[:3]
        raise InputError(f"sample {sample} of question {question}, policy {policy}, occurs more than once")


def _extracted(samples: pl.DataFrame, grader: Grader) -> list[pl.Series]:
    """Answer of each sample, and how it was found; in slices, so that texts are never all Python strings at once."""
    answers, hows = [], []
    for part in samples.select("text", "stopped").iter_slices(_SLICE):
        found = list(map(grader.extract, part["text"].to_list(), part["stopped"].to_list()))
        answers.append(pl.Series([extraction.answer for extraction in found], dtype=pl.String))
        hows.append(pl.Series([extraction.how for extraction in found], dtype=pl.String))
    empty = pl.Series([], dtype=pl.String)
    return [pl.concat([empty, *answers]).alias("answer"), pl.concat([empty, *hows]).alias("extraction")]


def _table(questions: Sequence[Question], grader: Grader) -> pl.DataFrame:
    return pl.DataFrame(
        {
            "question": [question.id for question in questions],
            "position": range(len(questions)),
            "gold": [grader.reference(question) for question in questions],
        },
        schema={"question": pl.String(), "position": pl.UInt32(), "gold": pl.String()},
    )


def _voting(rows: pl.DataFrame) -> pl.DataFrame:
    """Number the classes within each question: by rank of form, 0 kept for right ones; and by rank of form alone."""
    forms = rows.filter("valid").select("position", "form", "correct").unique()
    wrong = pl.when(~pl.col("correct")).then(pl.col("form"))
    numbered = forms.with_columns(
        wrong.rank("dense").over("position").fill_null(0).alias("class"),
        pl.struct("form", "correct").rank("dense").over("position").alias("plain"),
    )
    return rows.join(numbered, on=["position", "form", "correct"], how="left").with_columns(
        checks=pl.lit(None, dtype=pl.String)
    )


def _own_classes(rows: pl.DataFrame, q_instructions: QInstructions) -> pl.DataFrame:
    own = pl.col("sample") if q_instructions == "first_sample" else (~pl.col("correct")).cast(pl.UInt32)
    classes = pl.when("valid").then(own)
    return rows.with_columns(classes.alias("class"), classes.alias("plain"), pl.col("form").alias("checks"))


def _ordered(rows: pl.DataFrame, policies: Sequence[str]) -> pl.DataFrame:
    names = pl.Series(policies, dtype=pl.String())
    return (
        rows.with_columns(
            pl.col("class").cast(pl.Int32).fill_null(-1).alias("answer"),
            pl.col("plain").cast(pl.Int32).fill_null(-1),
            pl.col("position").alias("question"),
        )
        .sort(
            pl.col("policy").replace_strict(names, pl.int_range(len(names), eager=True), return_dtype=pl.UInt32),
            "question",
            "sample",
        )
        .select(schemas.GRADED.names())
        .cast(schemas.GRADED)
    )


def _summary(rows: pl.DataFrame, graded: int, reused: int, unknown: int) -> Summary:
    found = dict(rows.group_by("extraction").len().sort("extraction").iter_rows())
    return Summary(
        samples=rows.height,
        correct=int(rows["correct"].sum()),
        finished=int(rows["finished"].sum()),
        no_answer=found.get("none", 0),
        extraction=found,
        unknown=int(rows["unknown"].sum()),
        pairs_graded=graded,
        pairs_reused=reused,
        pairs_unknown=unknown,
    )
