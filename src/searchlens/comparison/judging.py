"""Right and wrong samples of the common questions: by a grader, or as the logs recorded them; and what others say.

Both are ``store.columns.GRADED`` of all policies of a side; ``question`` is the position among the common questions.
Others are math-verify alone, and the verdicts that the logs recorded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from searchlens import catalogue, grading, seeds
from searchlens.analysis.uncertainty import Resamples, with_width
from searchlens.benchmarks import Question
from searchlens.benchmarks.choices import letter_of
from searchlens.comparison.common import BASE, RL, Common, Side
from searchlens.errors import InputError, within
from searchlens.formats.pools import RECORDED, Pool
from searchlens.grading import GradedPair, processes
from searchlens.grading.score import RECORDED as RECORDED_BY
from searchlens.grading.score import Rules, found_answers, is_recorded, named, positions, score_recorded, scorer_of
from searchlens.grading.verdicts import VerdictStore

MATH = "math"

See = Callable[[str, pl.DataFrame], None]
"""Is shown the role of a side and rows with question, sample and text, as they are read."""

_LONGEST_GOLD = 100
"""Characters from which on a gold may be a solution that ends in the answer."""


def by_question(scores: pl.DataFrame, column: str) -> list[list[Any]] | None:
    """What each sample of each question has, of one policy; None if that is not known of all."""
    if scores[column].null_count():
        return None
    return scores.sort("question", "sample").group_by("question", maintain_order=True).agg(column)[column].to_list()


def mean_tokens(scores: pl.DataFrame) -> float | None:
    """Mean tokens of a sample; None if unknown or 0."""
    return scores["tokens"].cast(pl.Float64).mean() or None  # type: ignore[return-value]


# ---- which grader


def chosen_grader(wish: str, base: Side, rl: Side) -> str:
    """The grader of the user's choice, or ``choice`` if all golds are letters, ``recorded`` if texts or golds are
    missing, otherwise ``math``. An ``InputError`` if the logs do not have what it needs.
    """
    pools = [*base.pools.values(), *rl.pools.values()]
    golds = {role: [q.gold for q in side.reading.questions if q.gold] for role, side in ((BASE, base), (RL, rl))}
    textless = [pool.stream.model or "the samples" for pool in pools if not pool.has_texts]
    if wish and not is_recorded(wish):
        grading.grader(wish)
        if textless:
            raise InputError(f"{textless[0]}: the log has no texts to grade", "--grader recorded takes its verdicts")
        return wish
    known = max(golds.values(), key=len)
    if not wish and known and not textless:
        return "choice" if all(letter_of(gold) and not gold.islower() for gold in known) else MATH
    if any(not pool.tally.scorers for pool in pools):
        missing = "texts" if textless else "golds"
        raise InputError(
            f"the logs have no {missing} to grade with, and no verdicts of their own on both sides",
            "--benchmark NAME takes the golds of a configured benchmark",
        )
    return wish or RECORDED_BY


def plain_golds(questions: Sequence[Question], grader: str) -> tuple[Question, ...]:
    """The questions with short golds for a mathematical grader: of a solution that ends in the answer, the answer."""
    if grader != MATH:
        return tuple(questions)
    extract = grading.grader(MATH).extract
    marked = ("####", "\\boxed", "\n")
    return tuple(
        replace(question, gold=extract(gold, True).answer or gold)
        if len(gold := question.gold) > _LONGEST_GOLD or any(mark in gold for mark in marked)
        else question
        for question in questions
    )


# ---- by a grader


def graded(
    sides: Sequence[Side], common: Common, grader: str, verdicts: Path, *, seed: int, workers: int, see: See
) -> dict[str, pl.DataFrame]:
    """The verdicts on both sides, by role. The folder ``verdicts`` may be new; ``seed`` draws golds of other questions;
    ``see`` is shown the texts of the first pool of each side. An ``InputError`` if a question has no gold.
    """
    if missing := [question.id for question in common.base if not question.gold and not question.checks]:
        raise InputError(
            f"{len(missing):,} questions have no gold on either side, such as {missing[0]!r}",
            "--benchmark NAME takes the golds of a configured benchmark; --grader recorded the logs' verdicts",
        )
    answers = {side.role: _answers(side, common.of(side.role), grader, see) for side in sides}
    rules = {}
    for side in sides:
        first, questions = next(iter(side.pools)), common.of(side.role)
        rules[side.role] = Rules(questions, grader, verdicts, wrong_key_policy=first, seed=seed, workers=workers)
    # All pairs of both sides at once, since each batch starts processes.
    asked = pl.concat([rules[role].asked(rows) for role, rows in answers.items()])
    VerdictStore(verdicts, batch=max(1, asked.height)).judge(grading.grader(grader), asked, workers=workers)
    return {side.role: rules[side.role].scored(answers[side.role], list(side.pools)).scores for side in sides}


def _answers(side: Side, questions: Sequence[Question], grader: str, see: See) -> pl.DataFrame:
    """The answers of all pools, found while their texts are read once."""
    parts = []
    for name, pool in side.pools.items():
        for rows in _rows(pool, name, questions):
            if pool is side.first:
                see(side.role, rows)
            parts.append(found_answers(rows, grader))
    return pl.concat(parts)


def _rows(pool: Pool, name: str, questions: Sequence[Question]) -> Iterator[pl.DataFrame]:
    """The samples of some questions as ``grading.score.SAMPLES``."""
    ids = pl.Series([question.id for question in questions])
    for part in pool.frames():
        yield named(part.filter(pl.col("question").is_in(ids.implode())), name)


# ---- as recorded


def recorded(sides: Sequence[Side], common: Common, grader: str) -> tuple[dict[str, pl.DataFrame], list[str]]:
    """The verdicts of the logs by role, and which scorer gave them; columns that they do not say are null. An
    ``InputError`` if a sample has no verdict that is right or wrong.
    """
    found, notes = {}, dict[str, None]()
    for side in sides:
        parts = []
        for name, pool in side.pools.items():
            with within(side.title):
                scorer = scorer_of(grader, [pool.tally.scorers])
            others = [each for each in pool.tally.scorers if each != scorer]
            instead = f", not of {', '.join(others)}" if others else ""
            notes.setdefault(f"verdicts of {side.title} are those of {scorer}{instead}")
            questions = common.of(side.role)
            samples = pl.concat([rows.drop("text") for rows in _rows(pool, name, questions)])
            said = verdicts_of(pool).filter(scorer=scorer).unique(["question", "sample"], keep="first")
            scores = score_recorded(samples, said.with_columns(policy=pl.lit(name)), questions)
            if missing := int(scores["unknown"].sum()):
                raise InputError(
                    f"{side.title}: {missing:,} of {scores.height:,} samples have"
                    f" no verdict of {scorer} that is right (1) or wrong (0)",
                    "grade the texts instead: --grader math or choice",
                )
            has_answers = said.join(samples, on=["question", "sample"], how="semi")["answer"].count()
            without = {} if has_answers else {"answer": pl.lit(None, pl.Int32)}
            parts.append(scores.with_columns(unknown=pl.lit(None, pl.Boolean), **without))
        found[side.role] = pl.concat(parts)
    return found, list(notes)


def verdicts_of(pool: Pool) -> pl.DataFrame:
    """What the log says of each sample: ``importing.RECORDED`` with null for a value that is neither 0 nor 1."""
    said = pl.concat([pl.DataFrame(schema=RECORDED), *pool.recorded()])
    return said.with_columns(value=pl.when(pl.col("value").is_in([0.0, 1.0])).then("value"))


# ---- other graders


TEXTS = 2000
"""Texts of both sides together that math-verify alone judges, too, unless all are asked for."""
MATH_VERIFY = "math-verify alone"
EXAMPLES = 5
"""Samples of each side and grader that are kept to be shown, of those that are judged differently."""
_HELD = 4000
"""Texts that are held until they are judged."""
_TAIL = 300
"""Characters of the end of a text that are kept, where an answer usually stands."""

AGREEING = pl.Schema(
    {
        "side": pl.String(),
        "grader": pl.String(),
        **dict.fromkeys(("compared", "agree", "ours_alone", "theirs_alone"), pl.UInt32()),
        **dict.fromkeys(("share", "lo", "hi"), pl.Float64()),
    }
)
"""``compared`` samples, on how many both graders ``agree`` that they are right or not, and how many only ours or only
the other one takes for right. ``share`` agrees, with an interval over questions."""
EXAMPLE = pl.Schema(
    {
        **dict.fromkeys(("side", "grader", "question"), pl.String()),
        "sample": pl.UInt32(),
        **dict.fromkeys(("ours", "theirs"), pl.Boolean()),
        **dict.fromkeys(("gold", "end"), pl.String()),
    }
)
"""A sample that is judged differently; ``end``, of the text, is null of recorded verdicts."""


class SecondJudge:
    """Judges texts by math-verify alone while they are read: those of both sides that a seed draws, or everything.

    Nothing is judged beside a grader that is no mathematical one.
    """

    def __init__(
        self, sides: Sequence[Side], common: Common, grader: str, *, seed: int, everything: bool, workers: int
    ) -> None:
        self._wanted = bool(catalogue.declaration("grader", grader.partition(":")[0]).options.get("mathematical"))
        self._golds = {side.role: {q.id: q.gold for q in common.of(side.role)} for side in sides}
        self._drawn = {
            side.role: None if everything else _drawn(side, list(self._golds[side.role]), seed, TEXTS // len(sides))
            for side in sides
        }
        self._workers = workers
        self._held: list[tuple[str, str, int, str]] = []
        self._judged: list[tuple[str, str, int, bool | None, str]] = []

    def see(self, role: str, rows: pl.DataFrame) -> None:
        """Take the drawn ones of some samples."""
        if not self._wanted:
            return
        drawn = self._drawn[role]
        kept = rows if drawn is None else rows.join(drawn, on=["question", "sample"], how="semi", maintain_order="left")
        for start in range(0, kept.height, _HELD):
            self._held += kept.slice(start, _HELD).select(pl.lit(role), "question", "sample", "text").rows()
            if len(self._held) >= _HELD:
                self._judge()

    def verdicts(self) -> pl.DataFrame:
        """Of all texts that were taken: ``side``, ``question``, ``sample``, ``end``; ``theirs``, null if undecided."""
        self._judge()
        schema = {name: EXAMPLE[name] for name in ("side", "question", "sample", "theirs", "end")}
        return pl.DataFrame(self._judged, schema, orient="row")

    def _judge(self) -> None:
        order = sorted(self._held, key=lambda one: (self._golds[one[0]][one[1]], one[:3]))
        pairs = [GradedPair(self._golds[role][question], text) for role, question, _, text in order]
        theirs = processes.judge("searchlens.grading.math_verify_alone", pairs, processes.DEFAULT, self._workers)
        self._judged += [
            (role, question, sample, verdict == "right" if isinstance(verdict, str) else None, text[-_TAIL:])
            for (role, question, sample, text), verdict in zip(order, theirs, strict=True)
        ]
        self._held = []


def _drawn(side: Side, ids: Sequence[str], seed: int, count: int) -> pl.DataFrame:
    """Some samples of the first pool, each as likely as any other."""
    samples = side.first.samples
    total = len(ids) * samples
    chosen = np.sort(seeds.generator("agreement", seed, side.role).choice(total, min(count, total), replace=False))
    rows = {"question": [ids[i // samples] for i in chosen], "sample": chosen % samples}
    return pl.DataFrame(rows, {"question": pl.String(), "sample": pl.UInt32()})


def opinions(
    sides: Sequence[Side],
    common: Common,
    scores: Mapping[str, pl.DataFrame],
    theirs: pl.DataFrame,
    grader: str,
    *,
    seed: int,
    confidence: float,
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """How others agree with ``scores``, our verdicts on the first pool of each role, as ``AGREEING`` and some of
    ``EXAMPLE``. ``theirs`` is of ``SecondJudge.verdicts``; if ours are the recorded ones, these are no other opinion.
    ``seed`` draws questions.
    """
    counts, examples = [pl.DataFrame(schema=AGREEING)], [pl.DataFrame(schema=EXAMPLE)]
    for side in sides:
        questions, pool = common.of(side.role), side.first
        ours = scores[side.role].select("sample", position="question", ours="correct")
        others = {MATH_VERIFY: theirs.filter(side=side.role)}
        if not is_recorded(grader):  # scorers of the log say nothing of a text's end
            said = verdicts_of(pool).with_columns(theirs=pl.col("value") == 1, end=pl.lit(None, pl.String))
            others |= {f"{name} (recorded)": said.filter(scorer=name) for name in pool.tally.scorers}
        for name, rows in others.items():
            known = rows.drop_nulls("theirs").join(positions(questions), on="question")
            both = ours.join(known, on=["position", "sample"], maintain_order="left")
            if both.height:
                counts.append(_counted(side.title, name, both, seed, confidence))
                examples.append(_examples(side.title, name, both, questions))
    return pl.concat(counts), pl.concat(examples)


def _counted(title: str, grader: str, both: pl.DataFrame, seed: int, confidence: float) -> pl.DataFrame:
    ours, theirs = pl.col("ours"), pl.col("theirs")
    counted = {"agree": ours == theirs, "ours_alone": ours & ~theirs, "theirs_alone": ~ours & theirs}
    total = both.select(**{name: which.sum() for name, which in counted.items()}).row(0, named=True)
    by_question = (
        both.group_by("position").agg(counted["agree"].sum().alias("same"), pl.len().alias("all")).sort("position")
    )
    shares = (by_question["same"] / by_question["all"]).to_numpy()
    weights = by_question["all"].to_numpy() / by_question["all"].mean()
    share = np.array([total["agree"] / both.height])
    resamples = Resamples.draw(len(shares), 1000, seed)
    interval = resamples.interval((shares * weights)[:, None], confidence)
    lo, hi = with_width(share, interval, len(shares), confidence, (0.0, 1.0))
    row = {"side": title, "grader": grader, "compared": both.height, **total}
    return pl.DataFrame([{**row, "share": share[0], "lo": float(lo[0]), "hi": float(hi[0])}], AGREEING)


def _examples(title: str, grader: str, both: pl.DataFrame, questions: Sequence[Question]) -> pl.DataFrame:
    differing = both.filter(pl.col("ours") != pl.col("theirs")).sort("position", "sample")
    some = differing.unique("position", keep="first", maintain_order=True).head(EXAMPLES)
    golds = pl.Series([questions[i].gold for i in some["position"]], dtype=pl.String)
    named = some.with_columns(side=pl.lit(title), grader=pl.lit(grader), gold=golds)
    return named.select(EXAMPLE.names()).cast(EXAMPLE)
