"""Scoring: from sampled texts to graded samples, by a grader or by the verdicts that came with imported samples.

A benchmark of imported samples may be judged by ``recorded:SCORER``, where SCORER is what its log calls the verdicts:
the only way in for answers that no grader here can judge, and for logs without texts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import NamedTuple

import polars as pl

from searchlens import grading
from searchlens.benchmarks import Question
from searchlens.catalogue import grader
from searchlens.config.limits import QInstructions
from searchlens.errors import InputError
from searchlens.grading import NO_ANSWER, Extraction, GradedPair, Grader, Verdict, verdicts
from searchlens.grading.verdicts import VerdictStore
from searchlens.store.columns import GRADED

SAMPLES = pl.Schema(
    {
        **dict.fromkeys(("policy", "question"), pl.String()),
        **{name: GRADED[name] for name in ("sample", "run")},
        "text": pl.String(),
        **{name: GRADED[name] for name in ("tokens", "generated", "stopped", "score", "finish")},
    }
)
"""Input of ``found_answers``. ``question`` is an id. ``run`` numbers the searches; the candidates of a search are
consecutive. ``score`` is the evaluator's; for most policies it is the mean natural log-probability under the raw model.
``tokens`` counts the tokens of the sample. ``generated`` counts the tokens that its whole run drew; it is given on the
first sample of the run and is 0 on the others. Score, token counts and ``stopped`` are null if unknown; a
text of unknown end is read as a finished one. ``finish`` is passed on: the
recorded end of the text; null, or no such column, if it is unknown."""

_SLICE = 50_000
"""Samples whose texts are Python strings at the same time."""
_KEY = ["policy", "question", "sample"]


@dataclass(frozen=True)
class Summary:
    """Counts of samples and of distinct (gold, answer) pairs."""

    samples: int
    correct: int
    finished: int
    no_answer: int
    """``samples``, ``correct``, ``finished``, ``no_answer``: samples; of these correct, finished with a stated answer,
    and without any answer."""
    extraction: Mapping[str, int]
    """Number of samples by ``grading.Extraction.how``."""
    unknown: int
    """Samples that count as not correct because their grader reached a limit."""
    pairs_graded: int
    pairs_reused: int
    pairs_unknown: int
    """``pairs_graded``, ``pairs_reused``, ``pairs_unknown``: pairs judged now, pairs read from the table of verdicts,
    and pairs of both kinds whose verdict is unknown."""
    others_graded: int = 0
    others_reused: int = 0
    """``others_graded``, ``others_reused``: the first two of the pairs of an answer and the gold of another question
    (``VerdictStore.wrong_key``)."""

    def __str__(self) -> str:
        return (
            f"{self.samples} samples: {self.correct} correct, {self.finished} finished with an answer,"
            f" {self.no_answer} without one, {self.unknown} unknown ({self.pairs_graded} distinct answers graded,"
            f" {self.pairs_reused} known, {self.pairs_unknown} unknown; with golds of other questions"
            f" {self.others_graded} graded, {self.others_reused} known)"
        )


class ScoredSamples(NamedTuple):
    """Graded samples (``store.columns.GRADED``) and their counts."""

    scores: pl.DataFrame
    summary: Summary


def named(samples: pl.DataFrame, policy: str) -> pl.DataFrame:
    """Rows of ``store.shards.SAMPLES`` under the name of a policy, in the columns that grading takes."""
    return samples.select(
        pl.lit(policy).alias("policy"),
        *("question", "sample", "run", "text"),
        pl.col("n_tokens").alias("tokens"),
        "generated",
        (pl.col("finish") == "stop").alias("stopped"),  # null where it is unknown how the text ended
        *("score", "finish"),
    )


def found_answers(samples: pl.DataFrame, kind: str) -> pl.DataFrame:
    """Answers (null for none) and extractions of samples in place of their texts, which take more memory."""
    recorded = samples if "finish" in samples.columns else samples.with_columns(finish=pl.lit(None, pl.String))
    whole, extract = recorded.select(SAMPLES.names()).cast(SAMPLES), grading.grader(kind).extract
    columns = {"answer": [pl.Series([], dtype=pl.String)], "extraction": [pl.Series([], dtype=pl.String)]}
    for part in whole.select("text", pl.col("stopped").fill_null(True)).iter_slices(_SLICE):
        found = map(extract, part["text"].to_list(), part["stopped"].to_list())
        for column, values in zip(columns.values(), zip(*found, strict=True), strict=True):
            column.append(pl.Series(values, dtype=pl.String))
    return whole.drop("text").with_columns(pl.concat(parts).alias(name) for name, parts in columns.items())


@dataclass(frozen=True)
class Rules:
    """How the samples of a cell are graded: all at once, or some policies after others, so that not all are in memory.

    The column ``answer`` numbers the classes of equivalent answers to a question, over all given policies. Class 0 is
    that of right answers, whether or not it occurs; wrong classes follow in the order of their normalised answers. All
    spellings of the right answer are one class, but spellings of a wrong answer with different normal forms are
    several, which favours the right class in a vote. The column ``plain`` numbers classes by normal form alone. (Two
    answers with the same normal form and different verdicts are two classes.) Neither column depends on the order of
    the samples. If answers cannot be equivalent (instructions), both columns hold the number of the sample, so that
    each sample is its own class, or 0 for a pass and 1 for a fail.

    ``finished``: the sample ended by itself and states an answer (``grading.STATED``), which makes it valid for the
    first-finish estimate; null if it is not known how the sample ended. ``unknown``: the grader reached a limit.
    ``checks``: which instructions were followed.
    """

    questions: Sequence[Question]
    """The benchmark, in its order."""
    kind: str
    """Name of a grader."""
    verdicts: Path
    """Folder of the verdicts of this benchmark (``searchlens.grading.verdicts``); new ones are added."""
    q_instructions: QInstructions = "first_sample"
    """Classes of answers that cannot be equivalent."""
    wrong_key_policy: str = ""
    """Policy whose samples are also graded against the golds of other questions, column ``wrong_key``: not if answers
    cannot be equivalent, because then a gold is a list of instructions. Empty: none."""
    seed: int = 0
    """Which other questions."""
    workers: int | None = None
    """Number of worker processes of the grader, >= 1; by default one per core."""

    def scored(self, answers: pl.DataFrame, policies: Sequence[str] | None = None) -> ScoredSamples:
        """Grade samples by the answers that were found in them; parameters and errors are those of ``judged``."""
        rows, summary = self.judged(answers, policies)
        return ScoredSamples(self.graded(rows, answer_classes([rows])), summary)

    def asked(self, answers: pl.DataFrame) -> pl.DataFrame:
        """Every pair of gold and answer whose verdict ``judged`` looks up, some of them several times."""
        references = self._references()
        rows = answers.filter(pl.col("answer").is_not_null()).join(references, on="question")
        own = rows.select("gold", "answer")
        if not grading.votes(self.kind) or len(self.questions) < 2:
            return own
        others = verdicts.other_golds(references, self.seed)
        again = rows.filter(policy=self.wrong_key_policy).drop("gold")
        again = again.join(others, on="question").rename({"other": "gold"})
        return pl.concat([own, again.select("gold", "answer")])

    def _references(self) -> pl.DataFrame:
        """``question``, ``position`` and ``gold`` of the benchmark."""
        golds = [grading.grader(self.kind).reference(question) for question in self.questions]
        return positions(self.questions).with_columns(gold=pl.Series(golds, dtype=pl.String))

    def judged(self, answers: pl.DataFrame, policies: Sequence[str] | None = None) -> tuple[pl.DataFrame, Summary]:
        """The verdicts of whole policies on ``found_answers``, in the order of the policies, and their counts.

        The order is by default that of first rows. The rows are for ``answer_classes`` and ``graded``, without the
        answers themselves, which may be whole texts. Raises InputError if the grader is unknown, a sample is of an
        unknown question or policy, or a sample occurs twice.
        """
        judge = grading.grader(self.kind)
        order = list(policies) if policies is not None else answers["policy"].unique(maintain_order=True).to_list()
        _check(answers, self.questions, order)
        references, store = self._references(), VerdictStore(self.verdicts)
        rows = answers.join(references, on="question")
        judgements = store.judge(
            judge, rows.filter(pl.col("answer").is_not_null()).select("gold", "answer"), workers=self.workers
        )
        policy = self.wrong_key_policy if grading.votes(self.kind) else ""
        wrong_key, graded, reused = store.wrong_key(judge, rows, references, policy, self.seed, self.workers)
        rows = rows.with_columns(wrong_key)
        rows = rows.join(judgements.verdicts, on=["gold", "answer"], how="left").with_columns(
            valid=pl.col("answer").is_not_null(),
            finished=pl.col("stopped") & pl.col("extraction").is_in(grading.STATED),
            unknown=pl.col("answer").is_not_null() & pl.col("correct").is_null(),
            correct=pl.col("correct").fill_null(False),
        )
        summary = Summary(
            samples=rows.height,
            correct=int(rows["correct"].sum()),
            finished=int(rows["finished"].sum()),
            no_answer=int(rows["valid"].not_().sum()),
            extraction=dict(rows.group_by("extraction").len().sort("extraction").iter_rows()),
            unknown=int(rows["unknown"].sum()),
            pairs_graded=judgements.graded,
            pairs_reused=judgements.reused,
            pairs_unknown=judgements.verdicts["correct"].null_count(),
            others_graded=graded,
            others_reused=reused,
        )
        names = pl.Series(order, dtype=pl.String())
        place = pl.col("policy").replace_strict(names, pl.int_range(len(names), eager=True), return_dtype=pl.UInt32)
        return rows.drop("question", "gold", "answer").sort(place, "position", "sample"), summary

    def graded(self, rows: pl.DataFrame, classes: pl.DataFrame) -> pl.DataFrame:
        """Graded samples (``GRADED``) of ``judged`` rows, in order, by the classes of all policies of the cell."""
        if grading.votes(self.kind):
            checks = pl.lit(None, dtype=pl.String)
            rows = rows.join(classes, on=["position", "form", "correct"], how="left", maintain_order="left")
        else:
            checks = pl.col("form")
            number = pl.col("sample") if self.q_instructions == "first_sample" else (~pl.col("correct")).cast(pl.UInt32)
            separate = pl.when("valid").then(number)
            rows = rows.with_columns(separate.alias("class"), separate.alias("plain"))
        return (
            rows.with_columns(
                question=pl.col("position"),
                answer=pl.col("class").cast(pl.Int32).fill_null(-1),
                plain=pl.col("plain").cast(pl.Int32).fill_null(-1),
                checks=checks,
            )
            .select(GRADED.names())
            .cast(GRADED)  # type: ignore[arg-type]
        )


def answer_classes(parts: Sequence[pl.DataFrame]) -> pl.DataFrame:
    """The classes of equivalent answers to each question, over all policies of a cell.

    From ``Rules.judged``, or ``distinct_forms`` of these, to ``position``, ``form`` and ``correct``, once each, with
    ``class``, by rank of form with 0 for right answers, and ``plain``, by form alone.
    """
    wrong = pl.when(~pl.col("correct")).then(pl.col("form"))
    return distinct_forms(pl.concat([distinct_forms(part) for part in parts])).with_columns(
        wrong.rank("dense").over("position").fill_null(0).alias("class"),
        pl.struct("form", "correct").rank("dense").over("position").alias("plain"),
    )


def distinct_forms(rows: pl.DataFrame) -> pl.DataFrame:
    """What ``answer_classes`` needs of the rows of ``Rules.judged``; of its own result, the same."""
    valid = rows.filter("valid") if "valid" in rows.columns else rows
    return valid.select("position", "form", "correct").unique()


def together(summaries: Sequence[Summary]) -> Summary:
    """The counts of all parts of a cell. A pair that occurs in several parts counts in each of them."""
    names = [item.name for item in fields(Summary) if item.name != "extraction"]
    ways = sorted({how for each in summaries for how in each.extraction})
    return Summary(
        extraction={how: sum(each.extraction.get(how, 0) for each in summaries) for how in ways},
        **{name: sum(getattr(each, name) for each in summaries) for name in names},
    )


def _check(samples: pl.DataFrame, questions: Sequence[Question], policies: Sequence[str]) -> None:
    for column, allowed in (("question", [question.id for question in questions]), ("policy", list(policies))):
        names = pl.Series(allowed, dtype=pl.String())
        if unknown := sorted(samples.filter(~pl.col(column).is_in(names.implode()))[column].unique())[:3]:
            raise InputError(f"samples of unknown {column}: {', '.join(unknown)}", "score samples of this benchmark")
    repeated = samples.filter(samples.select(_KEY).is_duplicated())
    if not repeated.is_empty():
        policy, question, sample = repeated.sort(_KEY).row(0)[:3]
        raise InputError(f"sample {sample} of question {question}, policy {policy}, occurs more than once")


def positions(questions: Sequence[Question]) -> pl.DataFrame:
    """``question``, the id of each question, and ``position``, its place among them."""
    return pl.DataFrame(
        {"question": [question.id for question in questions], "position": range(len(questions))},
        schema={"question": pl.String(), "position": pl.UInt32()},
    )


# ---- verdicts of a log

RECORDED = "recorded"
"""The kind of grader; a scorer of the log may follow behind a colon."""


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
    sample without a verdict is not correct, and ``unknown``. What a log does not say (``extraction``, ``wrong_key``) is
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
            **{name: pl.lit(None, GRADED[name]) for name in ("extraction", "checks", "wrong_key")},
            question=pl.col("position"),
            answer=pl.col("class"),
            finished=pl.col("stopped") & (pl.col("class") >= 0),
        )
        .sort(pl.col("policy").replace_strict(order, return_dtype=pl.UInt32), "question", "sample")
        .select(GRADED.names())
        .cast(GRADED)  # type: ignore[arg-type]
    )
