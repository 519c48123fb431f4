"""Samples for people to read: of the questions that tell most, with their texts and what was found in them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
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
_ENDS = {"length": "cut off at the limit of tokens", "failed": "its request failed"}


def to_read(sides: Sequence[Side], common: Common, scores: Mapping[str, pl.DataFrame], grader: str) -> pl.DataFrame:
    """All questions, those that tell most first: ``question``, the position, ``solvers``, ``right`` and ``drawn``
    samples of Base, ``right_rl`` and ``drawn_rl``; in ``base`` and ``rl``, of the chosen ones, some samples.

    Questions that one side alone solves are chosen, then those on which shares of right samples differ most. Samples
    (``store.columns.GRADED``) are of the first pool of each side. The last ones are missing if texts fill a page.
    """
    right = pl.col("correct").sum()
    ours, theirs = (scores[role].group_by("question").agg(right=right, drawn=pl.len()) for role in (BASE, RL))
    both = ours.join(theirs, on="question", suffix="_rl")
    alone = (pl.col("right") > 0) != (pl.col("right_rl") > 0)
    distance = (pl.col("right") / pl.col("drawn") - pl.col("right_rl") / pl.col("drawn_rl")).abs()
    found = both.sort(alone, distance, "question", descending=[True, True, False])
    solvers = [_SOLVERS[base > 0, rl > 0] for base, rl in found.select("right", "right_rl").iter_rows()]
    chosen = found["question"].head(QUESTIONS + found.select(alone.sum()).item())
    found = found.with_columns(solvers=pl.Series(solvers))
    for side in sides:
        samples = _of_side(side, common.of(side.role), scores[side.role], chosen, grader)
        each = samples.group_by("place", maintain_order=True).agg(pl.struct(pl.exclude("place")).alias(side.role))
        places = each.with_columns(question=chosen.gather(each["place"])).drop("place")
        found = found.join(places, on="question", how="left", maintain_order="left")
    return found


def _of_side(
    side: Side, questions: Sequence[Question], scores: pl.DataFrame, chosen: pl.Series, grader: str
) -> pl.DataFrame:
    """Right and wrong samples in turn of the chosen questions, at most about as many characters as a page has bytes."""
    places = pl.DataFrame({"question": chosen}).with_row_index("place")
    turn, wrong = pl.col("sample").rank("ordinal").over("question", "correct"), pl.col("correct").not_()
    wanted = scores.drop("answer").join(places, on="question").sort(turn, wrong).group_by("place").head(SAMPLES)
    ids = pl.Series([question.id for question in questions]).gather(wanted["question"])
    wanted = wanted.with_columns(question=ids).sort("place", "correct", "sample", descending=[False, True, False])
    extract = grading.grader(RECORDED if is_recorded(grader) else grader).extract
    length = pl.col("text").str.len_chars()
    kept: list[pl.DataFrame] = []
    for part in side.first.frames():
        rows = part.select("question", "sample", "text").join(wanted.with_row_index(), on=["question", "sample"])
        ends = zip(rows["text"].to_list(), rows["stopped"].fill_null(True).to_list(), strict=True)
        rows = rows.with_columns(
            answer=pl.Series([extract(*end).answer for end in ends], dtype=pl.String),
            text=pl.Series(map(_cut, rows["text"]), dtype=pl.String),
        )
        kept = [pl.concat([*kept, rows]).sort("index").filter(length.cum_sum() - length <= SIZE)]
    if is_recorded(grader):
        said = verdicts_of(side.first).filter(scorer=scorer_of(grader, [side.first.tally.scorers]))
        recorded = said.unique(["question", "sample"], keep="first").select("question", "sample", "answer")
        return kept[0].drop("answer").join(recorded, on=["question", "sample"], how="left", maintain_order="left")
    return kept[0]


def _cut(text: str) -> str:
    if len(text) <= LONGEST:
        return text
    left_out = f"\n\n[… {len(text) - LONGEST:,} characters are left out …]\n\n"
    return f"{text[: LONGEST // 4]}{left_out}{text[LONGEST // 4 - LONGEST :]}"


# ---- in words


def shown(found: pl.DataFrame, common: Common, grader: str) -> Iterator[str]:
    """The part of the page on each chosen question of ``to_read``."""
    for row in found.filter(pl.col(BASE).is_not_null() & pl.col(RL).is_not_null()).iter_rows(named=True):
        base, rl = (common.of(role)[row["question"]] for role in (BASE, RL))
        is_same = plain(base.text) == plain(rl.text) and base.gold == rl.gold
        counts = {BASE: f"{row['right']} of {row['drawn']}", RL: f"{row['right_rl']} of {row['drawn_rl']}"}
        samples = {role: [(each, _verdict(each), _facts(each, grader)) for each in row[role]] for role in counts}
        yield pages.rendered(
            "comparison/question.html.j2",
            id=one_line(base.id),
            found=f"{row['solvers']} it: {counts[BASE]} right under Base, {counts[RL]} under RL",
            asked=(_cut(base.text), one_line(base.gold)),
            differs=() if is_same else (_cut(rl.text), one_line(rl.gold)),
            sides=[(role, TITLES[role], counts[role], samples[role]) for role in counts],
        )


def left_out(found: pl.DataFrame, shown: int) -> str:
    """Of how many questions of ``to_read`` no texts are on a page that shows the first so many, and why."""
    groups = found.with_row_index().group_by("solvers", maintain_order=True)
    counts = groups.agg(pl.len(), left=(pl.col("index") >= shown).sum()).filter(pl.col("left") > 0).iter_rows()
    said = ", of ".join(f"{left:,} of {counted(total, 'question')} that {who}" for who, total, left in counts)
    chosen = min(found.height, QUESTIONS + found["solvers"].str.contains("alone").sum())
    bound = f"; {chosen - shown:,} of them because the page has at most {SIZE // 10**6} MB" if shown < chosen else ""
    return f"Left out: texts of {said}{bound}." if said else ""


def _verdict(row: Mapping[str, Any]) -> str:
    return "right" if row["correct"] else "unknown: the grader reached a limit" if row["unknown"] else "not right"


def _facts(row: Mapping[str, Any], grader: str) -> str:
    """The answer and how it was found, tokens, and an end that is no ordinary one."""
    is_short = row["answer"] is not None and row["extraction"] != "whole"
    how = f"{_HOW[row['extraction']]} ({grader})"
    tokens = "" if row["tokens"] is None else counted(row["tokens"], "token")
    parts = (f"answer {one_line(row['answer'])}, {how}" if is_short else how, tokens, _ENDS.get(row["finish"], ""))
    return "; ".join(filter(None, parts))
