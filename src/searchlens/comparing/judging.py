"""Right and wrong samples of the common questions: by a grader, or as the logs recorded them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import polars as pl

from searchlens import grading
from searchlens.benchmarks import Question
from searchlens.benchmarks.letters import letter_of
from searchlens.comparing.common import Common
from searchlens.comparing.sides import BASE, RL, Side
from searchlens.errors import InputError
from searchlens.grading.luck import other_golds
from searchlens.grading.recorded import RECORDED, answer_classes, is_recorded, judged, scorer_of
from searchlens.grading.score import Rules, found_answers, positions
from searchlens.grading.verdicts import VerdictStore
from searchlens.health.counts import of_graded
from searchlens.importing import Pool
from searchlens.schemas.columns import GRADED

CHOICE, MATH = "choice", "math"

See = Callable[[str, pl.DataFrame], None]
"""Is shown the role of a side and rows with question, sample, text and stopped, as they are read."""

_LONGEST_GOLD = 100
"""Characters from which on a gold may be a solution that ends in the answer."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Judged:
    """The samples of one pool on the common questions.

    Attributes
    ----------
    scores : DataFrame
        ``schemas.columns.GRADED``; ``question`` is the position among the common ones. Of recorded verdicts, columns
        that they do not say are null.
    """

    scores: pl.DataFrame

    @property
    def right(self) -> list[list[bool]]:
        """Whether each sample of each question is right."""
        return self._by_question("correct")

    @property
    def lucky(self) -> list[list[bool]] | None:
        """The same of golds of other questions; None if it was not judged."""
        return None if self.scores["lucky"].null_count() else self._by_question("lucky")

    @property
    def classes(self) -> list[list[int]] | None:
        """Classes of answers; None if the verdicts come without answers."""
        return None if self.scores["answer"].null_count() else self._by_question("answer")

    @property
    def tokens(self) -> float | None:
        """Mean tokens of a sample; None if unknown or 0."""
        return self.scores["tokens"].cast(pl.Float64).mean() or None  # type: ignore[return-value]

    @property
    def health(self) -> pl.DataFrame:
        """``schemas.columns.HEALTH``."""
        return of_graded(self.scores)

    def _by_question(self, column: str) -> list[list[Any]]:
        ordered = self.scores.sort("question", "sample").group_by("question", maintain_order=True)
        return ordered.agg(column)[column].to_list()


# ---- which grader


def chosen_grader(wish: str, base: Side, rl: Side) -> str:
    """The grader of the user's choice, or the one that golds and texts allow.

    Parameters
    ----------
    wish : str
        Name of a grader, ``recorded``, ``recorded:SCORER``, or empty.
    base, rl : Side

    Returns
    -------
    str
        ``choice`` if all golds are letters, otherwise ``math``; ``recorded`` if texts or golds are missing.

    Raises
    ------
    InputError
        Unknown grader, one that needs what the logs do not have, or neither golds nor verdicts.
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
        return CHOICE if all(letter_of(gold) and not gold.islower() for gold in known) else MATH
    if any(not pool.tally.scorers for pool in pools):
        missing = "texts" if textless else "golds"
        raise InputError(
            f"the logs have no {missing} to grade with, and no verdicts of their own on both sides",
            "--benchmark NAME takes the golds of a configured benchmark",
        )
    return wish or RECORDED


def plain_golds(questions: Sequence[Question], grader: str) -> tuple[Question, ...]:
    """The questions with short golds: of a solution that ends in the answer, the answer.

    Parameters
    ----------
    questions : sequence of Question
    grader : str
        Only golds of a mathematical one are looked at.
    """
    if grader != MATH:
        return tuple(questions)
    return tuple(replace(question, gold=_answer_of(question.gold)) for question in questions)


def _answer_of(gold: str) -> str:
    if not ("####" in gold or "\\boxed" in gold or "\n" in gold or len(gold) > _LONGEST_GOLD):
        return gold
    return grading.grader(MATH).extract(gold, True).answer or gold


# ---- by a grader


def graded(
    sides: Sequence[Side], common: Common, grader: str, verdicts: Path, *, seed: int, workers: int, see: See
) -> dict[str, dict[str, Judged]]:
    """Judge the samples of both sides.

    Parameters
    ----------
    sides : sequence of Side
    common : Common
    grader : str
    verdicts : Path
        Folder for distinct pairs of gold and answer, which may be new.
    seed : int
        Of the golds of other questions.
    workers : int
        Processes, >= 1.
    see : callable
        Is shown the texts of the first pool of each side.

    Returns
    -------
    dict
        Role to policy to its samples.
    """
    answers = {side.role: _answers(side, common.of(side.role), grader, see) for side in sides}
    _judge_all(answers, common, grader, verdicts, seed=seed, workers=workers)
    found: dict[str, dict[str, Judged]] = {}
    for side in sides:
        luck_policy = next(iter(side.pools))
        rules = Rules(common.of(side.role), grader, verdicts, luck_policy=luck_policy, seed=seed, workers=workers)
        scored = rules.scored(answers[side.role], list(side.pools)).scores
        found[side.role] = {name: Judged(scores=scored.filter(policy=name)) for name in side.pools}
    return found


def _answers(side: Side, questions: Sequence[Question], grader: str, see: See) -> pl.DataFrame:
    """The answers of all pools, found while their texts are read once."""
    parts = []
    for name, pool in side.pools.items():
        for rows in _rows(pool, name, questions):
            if pool is side.first:
                see(side.role, rows)
            parts.append(found_answers(rows, grader))
    return pl.concat(parts)


def _judge_all(
    answers: Mapping[str, pl.DataFrame], common: Common, grader: str, verdicts: Path, *, seed: int, workers: int
) -> None:
    """Judge every pair of both sides at once, also with golds of other questions: processes start only once."""
    judge, pairs = grading.grader(grader), []
    for role, rows in answers.items():
        questions = common.of(role)
        golds = pl.DataFrame(
            {"question": [question.id for question in questions], "gold": [judge.reference(one) for one in questions]}
        )
        distinct = rows.filter(pl.col("answer").is_not_null()).select("question", "answer").unique()
        pairs.append(distinct.join(golds, on="question").select("gold", "answer"))
        if grading.votes(grader) and len(questions) > 1:
            pairs.append(distinct.join(other_golds(golds, seed), on="question").select("answer", gold="other"))
    distinct = pl.concat([part.select("gold", "answer") for part in pairs])
    VerdictStore(verdicts, batch=max(1, distinct.height)).judge(judge, distinct, workers=workers)


def _rows(pool: Pool, name: str, questions: Sequence[Question]) -> Iterator[pl.DataFrame]:
    """The samples of some questions as ``grading.score.SAMPLES``."""
    ids = pl.Series([question.id for question in questions])
    for part in pool.frames():
        yield part.filter(pl.col("question").is_in(ids.implode())).select(
            pl.lit(name).alias("policy"),
            "question",
            "sample",
            "run",
            "text",
            pl.col("n_tokens").alias("tokens"),
            "generated",
            (pl.col("finish").fill_null("stop") == "stop").alias("stopped"),
            "score",
            "finish",
        )


# ---- as recorded


def recorded(sides: Sequence[Side], common: Common, grader: str) -> tuple[dict[str, dict[str, Judged]], list[str]]:
    """The verdicts of the logs, and which scorer gave them.

    Parameters
    ----------
    sides : sequence of Side
    common : Common
    grader : str
        ``recorded``, or ``recorded:SCORER``.

    Raises
    ------
    InputError
        A sample has no verdict that is right or wrong.
    """
    found: dict[str, dict[str, Judged]] = {}
    notes: dict[str, None] = {}
    for side in sides:
        questions = common.of(side.role)
        found[side.role] = {}
        for name, pool in side.pools.items():
            scorer = _scorer(side, pool, grader)
            others = [each for each in pool.tally.scorers if each != scorer]
            instead = f", not of {', '.join(others)}" if others else ""
            notes.setdefault(f"verdicts of {side.title} are those of {scorer}{instead}")
            scores = _as_recorded(pool, name, questions, scorer)
            if missing := scores["correct"].null_count():
                raise InputError(
                    f"{side.title}: {missing:,} of {scores.height:,} samples have"
                    f" no verdict of {scorer} that is right (1) or wrong (0)",
                    "grade the texts instead: --grader math or choice",
                )
            found[side.role][name] = Judged(scores=scores)
    return found, list(notes)


def _scorer(side: Side, pool: Pool, grader: str) -> str:
    try:
        return scorer_of(grader, [pool.tally.scorers])
    except InputError as error:
        raise InputError(f"{side.title}: {error.message}", error.hint) from None


def verdicts_of(pool: Pool, questions: Sequence[Question]) -> pl.DataFrame:
    """Recorded verdicts on some questions: ``question`` (position), ``sample``, ``scorer``, ``value``, ``answer``."""
    places = positions(questions)
    parts = [part.join(places, on="question").drop("question") for part in pool.recorded()]
    schema = {"position": pl.UInt32(), "sample": pl.UInt32(), "scorer": pl.String(), "value": pl.Float64()}
    empty = pl.DataFrame(schema={**schema, "answer": pl.String()})
    return pl.concat([empty, *(part.select(empty.columns) for part in parts)]).rename({"position": "question"})


def _as_recorded(pool: Pool, name: str, questions: Sequence[Question], scorer: str) -> pl.DataFrame:
    said = verdicts_of(pool, questions).filter(scorer=scorer).unique(["question", "sample"], keep="first")
    kept = ("question", "sample", "run", "tokens", "generated", "stopped", "score", "finish")
    ends = pl.concat([rows.select(kept) for rows in _rows(pool, name, questions)])
    rows = ends.join(positions(questions), on="question").drop("question").rename({"position": "question"})
    is_verdict = pl.when(pl.col("value").is_in([0.0, 1.0])).then("value")
    rows = rows.join(said, on=["question", "sample"], how="left").with_columns(value=is_verdict)
    rows = rows.with_columns(correct=judged())
    has_answers = rows["answer"].null_count() < rows.height
    answers = rows.with_columns(answer=answer_classes() if has_answers else pl.lit(None, pl.Int32))
    unknown = {column: pl.lit(None) for column in GRADED.names() if column not in (*rows.columns, "answer", "policy")}
    return answers.with_columns(policy=pl.lit(name), **unknown).select(GRADED.names()).cast(GRADED)
