"""Right and wrong samples of the common questions: by a grader, or as the logs recorded them.

Both are ``store.columns.GRADED`` of all policies of a side; ``question`` is the position among the common questions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl

from searchlens import grading
from searchlens.benchmarks import Question
from searchlens.benchmarks.choices import letter_of
from searchlens.compare.common import BASE, RL, Common, Side
from searchlens.errors import InputError
from searchlens.formats.pools import RECORDED, Pool
from searchlens.grading.recorded import RECORDED as RECORDED_BY
from searchlens.grading.recorded import is_recorded, score_recorded, scorer_of
from searchlens.grading.score import Rules, found_answers, named
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
    return tuple(replace(question, gold=_answer_of(question.gold)) for question in questions)


def _answer_of(gold: str) -> str:
    if not ("####" in gold or "\\boxed" in gold or "\n" in gold or len(gold) > _LONGEST_GOLD):
        return gold
    return grading.grader(MATH).extract(gold, True).answer or gold


# ---- by a grader


def graded(
    sides: Sequence[Side], common: Common, grader: str, verdicts: Path, *, seed: int, workers: int, see: See
) -> dict[str, pl.DataFrame]:
    """The verdicts on both sides, by role. The folder ``verdicts`` may be new; ``seed`` draws golds of other questions;
    ``see`` is shown the texts of the first pool of each side.
    """
    answers = {side.role: _answers(side, common.of(side.role), grader, see) for side in sides}
    rules = {
        side.role: Rules(
            common.of(side.role), grader, verdicts, luck_policy=next(iter(side.pools)), seed=seed, workers=workers
        )
        for side in sides
    }
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
            scorer = _scorer(side, pool, grader)
            others = [each for each in pool.tally.scorers if each != scorer]
            instead = f", not of {', '.join(others)}" if others else ""
            notes.setdefault(f"verdicts of {side.title} are those of {scorer}{instead}")
            scores = _as_recorded(pool, name, common.of(side.role), scorer)
            if missing := int(scores["unknown"].sum()):
                raise InputError(
                    f"{side.title}: {missing:,} of {scores.height:,} samples have"
                    f" no verdict of {scorer} that is right (1) or wrong (0)",
                    "grade the texts instead: --grader math or choice",
                )
            parts.append(scores.with_columns(unknown=pl.lit(None, pl.Boolean)))
        found[side.role] = pl.concat(parts)
    return found, list(notes)


def _scorer(side: Side, pool: Pool, grader: str) -> str:
    try:
        return scorer_of(grader, [pool.tally.scorers])
    except InputError as error:
        raise InputError(f"{side.title}: {error.message}", error.hint) from None


def verdicts_of(pool: Pool) -> pl.DataFrame:
    """What the log says of each sample: ``importing.RECORDED`` with null for a value that is neither 0 nor 1."""
    said = pl.concat([pl.DataFrame(schema=RECORDED), *pool.recorded()])
    return said.with_columns(value=pl.when(pl.col("value").is_in([0.0, 1.0])).then("value"))


def _as_recorded(pool: Pool, name: str, questions: Sequence[Question], scorer: str) -> pl.DataFrame:
    samples = pl.concat([rows.drop("text") for rows in _rows(pool, name, questions)])
    said = verdicts_of(pool).filter(scorer=scorer).unique(["question", "sample"], keep="first")
    scores = score_recorded(samples, said.with_columns(policy=pl.lit(name)), questions)
    has_answers = said.join(samples, on=["question", "sample"], how="semi")["answer"].count()
    return scores if has_answers else scores.with_columns(answer=pl.lit(None, pl.Int32))
