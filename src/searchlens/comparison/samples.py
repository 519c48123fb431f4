"""Samples for people to read: of the questions that tell most, with their texts and what was found in them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from searchlens import grading
from searchlens.api import pages
from searchlens.benchmarks import Question
from searchlens.comparison.common import BASE, RL, TITLES, Common, Side
from searchlens.comparison.judging import verdicts_of
from searchlens.errors import counted, one_line
from searchlens.formats.documents import plain
from searchlens.grading.score import RECORDED, is_recorded, scorer_of

QUESTIONS = 20
"""Questions to be read beside those that one side alone solves."""
SAMPLES = 4
"""Of each side and question."""
LONGEST = 20_000
"""Characters of a text that are shown: a quarter from its beginning, the others from its end."""
SIZE = 15_000_000
"""Bytes of a page."""

_SOLVERS = {
    (False, True): "RL alone solves",
    (True, False): "Base alone solves",
    (True, True): "both sides solve",
    (False, False): "neither side solves",
}
_HOW = {
    "boxed": "read from its last box",
    "kept": "read from a box that a later, open box repeats",
    "fallback": "read from its last words, without a box or behind it",
    "number": "its last number, as it has no box",
    "whole": "the whole text is the answer",
    "withdrawn": "taken back by a later, open box",
    "none": "no answer found",
    None: "as the log recorded it",
}
"""``grading.How`` in the words of the explorer."""


@dataclass(frozen=True, kw_only=True)
class ToRead:
    """Questions and samples to be read."""

    questions: pl.DataFrame
    """All common questions, those that tell most first: ``question``, the position, with ``right`` and ``drawn``
    samples of Base, and ``right_rl`` and ``drawn_rl``."""
    chosen: int
    """How many of them, from the first, are to be read."""
    samples: Mapping[str, pl.DataFrame]
    """By role, those of the chosen questions in their order: ``place`` of the question and what ``_verdict`` and
    ``_facts`` need. The last ones may be missing where texts fill more than a page."""

    def left_out(self, shown: int) -> str:
        """Of which questions no texts are on a page with the first so many, and why; empty if all are there."""
        solvers = [_solvers(row) for row in self.questions.iter_rows(named=True)]
        kept = Counter(solvers[:shown])
        parts = [
            f"{total - kept[who]:,} of {counted(total, 'question')} that {who}"
            for who, total in Counter(solvers).items()
            if total > kept[who]
        ]
        bound = f"; {self.chosen - shown:,} of them because the page has at most {SIZE // 10**6} MB"
        return f"Left out: texts of {', of '.join(parts)}{bound if shown < self.chosen else ''}." if parts else ""


def to_read(sides: Sequence[Side], common: Common, scores: Mapping[str, pl.DataFrame], grader: str) -> ToRead:
    """Choose and read them; ``scores``, by role, are of the first pool of each side (``store.columns.GRADED``).

    First come the questions that one side alone solves, then those on which shares of right samples differ most.
    """
    right = [
        scores[role].group_by("question").agg(right=pl.col("correct").sum(), drawn=pl.len()) for role in (BASE, RL)
    ]
    both = right[0].join(right[1], on="question", suffix="_rl")
    alone = (pl.col("right") > 0) != (pl.col("right_rl") > 0)
    distance = (pl.col("right") / pl.col("drawn") - pl.col("right_rl") / pl.col("drawn_rl")).abs()
    ordered = both.sort(alone, distance, "question", descending=[True, True, False])
    chosen = ordered.select(alone.sum()).item() + QUESTIONS
    read = {
        side.role: _of_side(side, common.of(side.role), scores[side.role], ordered["question"].head(chosen), grader)
        for side in sides
    }
    return ToRead(questions=ordered, chosen=min(chosen, ordered.height), samples=read)


def _of_side(
    side: Side, questions: Sequence[Question], scores: pl.DataFrame, chosen: pl.Series, grader: str
) -> pl.DataFrame:
    """The samples of one side, right and wrong ones in turn, of which a page has at most so many characters."""
    places = pl.DataFrame({"question": chosen}).with_row_index("place")
    turn = pl.col("sample").rank("ordinal").over("question", "correct")
    wanted = scores.drop("answer").join(places, on="question").sort(turn, pl.col("correct").not_())
    wanted = wanted.group_by("place").head(SAMPLES).sort("place", pl.col("correct").not_(), "sample").with_row_index()
    ids = pl.Series([question.id for question in questions])
    wanted = wanted.with_columns(question=ids.gather(wanted["question"]))
    extract = grading.grader(RECORDED if is_recorded(grader) else grader).extract
    kept: list[pl.DataFrame] = []
    for part in side.first.frames():
        rows = part.select("question", "sample", "text").join(wanted, on=["question", "sample"])
        texts, ends = rows["text"].to_list(), rows["stopped"].fill_null(True).to_list()
        answers = [extract(text, end).answer for text, end in zip(texts, ends, strict=True)]
        columns = {"answer": answers, "text": map(_cut, texts)}
        rows = rows.with_columns(pl.Series(name, values, pl.String) for name, values in columns.items())
        every = pl.concat([*kept, rows]).sort("index")
        kept = [every.filter(pl.col("text").str.len_chars().cum_sum() <= SIZE)]
    if is_recorded(grader):
        said = verdicts_of(side.first).filter(scorer=scorer_of(grader, [side.first.tally.scorers]))
        recorded = said.unique(["question", "sample"], keep="first").select("question", "sample", "answer")
        return kept[0].drop("answer").join(recorded, on=["question", "sample"], how="left", maintain_order="left")
    return kept[0]


def _cut(text: str) -> str:
    if len(text) <= LONGEST:
        return text
    begin = LONGEST // 4
    left_out = f"\n\n[… {len(text) - LONGEST:,} characters are left out …]\n\n"
    return f"{text[:begin]}{left_out}{text[begin - LONGEST :]}"


# ---- in words


def shown(found: ToRead, common: Common, grader: str) -> Iterator[str]:
    """The part of the page on each question, in their order."""
    sides = {role: rows.partition_by("place", as_dict=True) for role, rows in found.samples.items()}
    for place, row in enumerate(found.questions.head(found.chosen).iter_rows(named=True)):
        base, rl = (common.of(role)[row["question"]] for role in (BASE, RL))
        is_same = plain(base.text) == plain(rl.text) and base.gold == rl.gold
        counts = {BASE: f"{row['right']} of {row['drawn']}", RL: f"{row['right_rl']} of {row['drawn_rl']}"}
        yield pages.rendered(
            "comparison/question.html.j2",
            is_open=not place,
            id=one_line(base.id),
            found=f"{_solvers(row)} it: {counts[BASE]} right under Base, {counts[RL]} under RL",
            asked=(_cut(base.text), one_line(base.gold)),
            differs=() if is_same else (_cut(rl.text), one_line(rl.gold)),
            sides=[
                (
                    role,
                    TITLES[role],
                    counts[role],
                    [
                        (each["sample"], _verdict(each), _facts(each, grader), each["text"])
                        for each in rows[(place,)].iter_rows(named=True)
                    ]
                    if (place,) in rows
                    else [],
                )
                for role, rows in sides.items()
            ],
        )


def _solvers(row: Mapping[str, Any]) -> str:
    return _SOLVERS[row["right"] > 0, row["right_rl"] > 0]


def _verdict(row: Mapping[str, Any]) -> str:
    if row["correct"]:
        return "right"
    if row["unknown"]:
        return "unknown: the grader reached its limit of time, memory or size"
    if row["finish"] == "failed":
        return "not right: its request failed"
    if row["extraction"] is None:
        return "not right: the verdict of the log"
    if row["answer"] is not None:
        return "not right: another answer than the gold"
    return "not right: cut off before an answer" if row["finish"] == "length" else "not right: no answer"


def _facts(row: Mapping[str, Any], grader: str) -> str:
    """The answer and how it was found, tokens, and an end that is no ordinary one."""
    answer = row["answer"] if row["extraction"] != "whole" else None
    how = f"{_HOW[row['extraction']]} ({grader})"
    parts = [how if answer is None else f"answer {one_line(answer)}, {how}"]
    parts += [] if row["tokens"] is None else [counted(row["tokens"], "token")]
    return "; ".join([*parts, *(["cut off at the limit of tokens"] if row["finish"] == "length" else [])])
