"""Stage ``agreement``: a random sample of the graded samples of one cell, judged by math-verify alone, too."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl

from searchlens import grading, seeds
from searchlens.benchmarks import Question
from searchlens.cli.stages.score import read_some
from searchlens.grading import GradedPair, processes
from searchlens.store.columns import AGREEMENT
from searchlens.store.frames import read_frame, write_frame
from searchlens.store.layout import Layout

if TYPE_CHECKING:
    from searchlens.plan import needs

log = logging.getLogger(__name__)

_KEY = ["policy", "question", "sample"]
_TAIL = 300
"""Characters of the end of a text that are kept, where an answer usually stands."""


def agreement(
    cell: needs.Agreement,
    questions: Sequence[Question],
    layout: Layout,
    manifests: Iterable[Path],
    output: Path,
    *,
    threads: int = 1,
) -> None:
    """Judge some samples of a scored cell a second time, and write ``store.columns.AGREEMENT``.

    ``manifests`` are those of the cell's pools; ``threads`` are worker processes.
    """
    where = (cell.score.samples.checkpoint, cell.score.samples.benchmark)
    graded = _drawn(read_frame(layout.scores(*where), "score"), cell, questions)
    texts = read_some(cell.score, layout, manifests, graded).select(*_KEY, "text", "stopped")
    rows = graded.join(texts, on=_KEY, how="left", maintain_order="left")
    golds = {question.id: question.gold for question in questions}
    pairs = [GradedPair(golds[question], text) for question, text in rows.select("question", "text").iter_rows()]
    theirs = processes.judge("searchlens.grading.math_verify_alone", pairs, processes.DEFAULT, threads)
    extract = grading.grader(cell.score.grader).extract
    answers = [extract(*one).answer for one in rows.select("text", pl.col("stopped").fill_null(True)).iter_rows()]
    found = rows.with_columns(
        gold=pl.Series([pair.gold for pair in pairs], dtype=pl.String),
        answer=pl.Series(answers, dtype=pl.String),
        math_verify=pl.Series([one if isinstance(one, str) else "unknown" for one in theirs], dtype=pl.String),
        text=pl.col("text").str.tail(_TAIL),
    )
    write_frame(found.select(AGREEMENT.names()).cast(AGREEMENT), output)
    log.info("%s: %d samples judged again", "/".join(where), found.height)


def _drawn(scores: pl.DataFrame, cell: needs.Agreement, questions: Sequence[Question]) -> pl.DataFrame:
    """Some rows of the scores, each as likely as any other, with question ids and our verdicts."""
    of = cell.score.samples
    generator = seeds.generator("agreement", cell.score.seed, of.checkpoint, of.benchmark)
    chosen = generator.choice(scores.height, min(cell.size, scores.height), replace=False)
    ids = pl.Series([question.id for question in questions], dtype=pl.String)
    verdict = pl.when("correct").then(pl.lit("right")).when("unknown").then(pl.lit("unknown"))
    return scores[sorted(chosen.tolist())].select(
        "policy",
        pl.col("question").map_elements(ids.__getitem__, pl.String),
        "sample",
        ours=verdict.when(pl.col("answer") < 0).then(pl.lit("none")).otherwise(pl.lit("wrong")),
    )
