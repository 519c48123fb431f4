"""The verdicts that came with imported samples, beside ours."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl

from searchlens import grading
from searchlens.analysis.health import Find
from searchlens.benchmarks import Question
from searchlens.errors import InputError
from searchlens.grading.score import is_recorded
from searchlens.store.columns import COMPARED
from searchlens.store.frames import IMPORT_AGAIN, read_frame, readable, write_frame
from searchlens.store.layout import Layout

if TYPE_CHECKING:
    from searchlens.plan import needs

_END = 300
"""Characters of the end of a text that are kept of a disagreement."""
_KEY = ["policy", "question", "sample"]


def recorded_verdicts(cell: needs.Score, layout: Layout) -> pl.DataFrame:
    """The verdicts that count in place of a grader's: ``policy``, ``question``, ``sample``, ``value``, ``answer``."""
    scorer = cell.grader.partition(":")[2]
    parts = []
    for key, policy, _ in cell.imports:
        path = layout.recorded(cell.samples.checkpoint, cell.samples.benchmark, key)
        if not path.exists():
            raise InputError(f"{path} does not exist; it has the verdicts of {policy}", IMPORT_AGAIN)
        said = read_frame(path, "import", IMPORT_AGAIN)
        found = said.filter(scorer=scorer).unique(["question", "sample"], keep="first")
        parts.append(found.select(pl.lit(policy).alias("policy"), "question", "sample", "value", "answer"))
    return pl.concat(parts)


def write_compared(
    cell: needs.Score, questions: Sequence[Question], layout: Layout, find: Find, scores: pl.LazyFrame
) -> None:
    """Write how our verdicts compare with the recorded ones of a cell; an older file is removed if there are none.

    ``find`` is ``cli.stages.score.read_some`` of the cell.
    """
    where = (cell.samples.checkpoint, cell.samples.benchmark)
    output = layout.compared(*where)
    paths = [(layout.recorded(*where, key), policy) for key, policy, _ in cell.imports]
    parts = [_compared(path, policy, cell.grader, questions, find, scores) for path, policy in paths if path.exists()]
    if any(part.height for part in parts):
        write_frame(pl.concat(parts), output)
    else:
        output.unlink(missing_ok=True)


def _compared(
    path: Path, policy: str, grader: str, questions: Sequence[Question], find: Find, scores: pl.LazyFrame
) -> pl.DataFrame:
    ids = pl.Series([question.id for question in questions])
    graded = scores.filter(policy=policy).select("sample", "correct", "question").collect()
    ours = graded.with_columns(question=ids.gather(graded["question"]))
    with readable(path, "import", IMPORT_AGAIN) as content:
        theirs, is_quoted = pl.read_parquet(content), pl.read_parquet_metadata(content).get("searchlens.quotes") != "no"
    if is_recorded(grader):  # of which one scorer is ours
        theirs = theirs.filter(pl.col("scorer") != grader.partition(":")[2])
    both = theirs.join(ours, on=["question", "sample"], how="left", maintain_order="left")
    is_right, is_ours = pl.col("value") == 1, pl.col("correct")
    unscored = pl.when(pl.col("value").is_null()).then(pl.lit("unscored"))
    agreed = unscored.when(is_right & is_ours).then(pl.lit("both_right"))
    agreed = agreed.when(~is_right & ~is_ours).then(pl.lit("both_wrong"))
    outcome = agreed.when(is_right).then(pl.lit("theirs_alone")).otherwise(pl.lit("ours_alone"))
    named = both.with_columns(policy=pl.lit(policy), outcome=outcome).rename({"answer": "theirs"})
    lines: list[tuple[object, ...]] = []
    if is_quoted:
        judge, golds = grading.grader(grader), {question.id: question.gold for question in questions}
        apart = named.filter(pl.col("outcome").is_in(["ours_alone", "theirs_alone"])).select(_KEY).unique()
        for row in apart.join(find(apart), on=_KEY, how="left").iter_rows(named=True):
            answer = judge.extract(row["text"], row["stopped"] is not False).answer
            lines.append((*(row[key] for key in _KEY), golds[row["question"]], answer, row["text"][-_END:]))
    else:
        named = named.with_columns(theirs=pl.lit(None, pl.String))
    schema = {name: COMPARED[name] for name in (*_KEY, "gold", "ours", "end")}
    texts = pl.DataFrame(lines, schema, orient="row").cast({"sample": pl.UInt32()})
    joined = named.join(texts, on=_KEY, how="left", maintain_order="left")
    return joined.select(COMPARED.names()).cast(COMPARED)  # type: ignore[arg-type]
