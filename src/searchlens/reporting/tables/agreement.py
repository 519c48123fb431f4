"""How often the grader of a study and math-verify by itself judge the same sample differently."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from searchlens.analysis.claims import Row, percent
from searchlens.analysis.uncertainty import wilson
from searchlens.catalogue import table
from searchlens.reporting.tables import format as fmt
from searchlens.reporting.tables.format import Line
from searchlens.reporting.tables.table import Part, Table

if TYPE_CHECKING:
    from searchlens.reporting.tables.study import StudyContext

CLASSES = {
    "both_right": "both right",
    "both_wrong": "both wrong",
    "only_ours": "only ours",
    "only_math_verify": "only math-verify",
}
"""Every sample is in one of these; a sample without an answer, or with an unknown verdict, is not right."""
_COUNTS = {"no_answer_ours": "no answer by ours", "no_answer_math_verify": "no answer by math-verify"}
_SCHEMA = {
    **dict.fromkeys(("checkpoint", "benchmark", "reason"), pl.String()),
    **dict.fromkeys(("samples", *CLASSES, *_COUNTS, "unknown"), pl.Int64()),
    **dict.fromkeys(("disagree", "lo", "hi"), pl.Float64()),
}
_EXAMPLES = 3
"""Disagreements that are printed of each cell."""
_LONGEST = 60
"""Characters of a printed gold or answer."""


@table("grader_agreement", stage="study")
def grader_agreement(context: StudyContext) -> Table:
    """One row per cell: counts of samples by both verdicts, and the share on which they disagree.

    Notes
    -----
    The interval is Wilson's at 95%, for a random sample of the cell's graded samples: it is about these samples, and
    not about other questions.
    """
    rows = []
    examples: list[Line] = []
    for (checkpoint, benchmark), judged in context.agreement.items():
        names: dict[str, object] = {"checkpoint": checkpoint, "benchmark": benchmark}
        if isinstance(judged, str):
            rows.append({**names, "reason": judged})
            continue
        rows.append({**names, **_counts(judged)})
        apart = judged.filter((pl.col("ours") == "right") != (pl.col("math_verify") == "right")).head(_EXAMPLES)
        examples += [
            {"checkpoint": checkpoint, "benchmark": benchmark} | _example(row) for row in apart.rows(named=True)
        ]
    data = pl.DataFrame(rows, _SCHEMA)
    parts = [Part(fmt.text_frame([_line(row) for row in data.rows(named=True)]))]
    if examples:
        parts.append(Part(fmt.text_frame(examples), title="Examples of disagreement"))
    notes = [
        "Graded samples of each cell, chosen at random: our verdict, and that of math-verify alone on the gold answer"
        " and the whole text. No answer: none was found, which is not right; such samples are in the classes, too."
        " Disagree: share of samples that one of both accepts, %, with its Wilson interval at 95% over samples.",
    ]
    return Table(data, parts, notes)


def _counts(judged: pl.DataFrame) -> dict[str, object]:
    ours, theirs = (pl.col(name) == "right" for name in ("ours", "math_verify"))
    counts = judged.select(
        samples=pl.len(),
        both_right=(ours & theirs).sum(),
        both_wrong=(~ours & ~theirs).sum(),
        only_ours=(ours & ~theirs).sum(),
        only_math_verify=(~ours & theirs).sum(),
        no_answer_ours=(pl.col("ours") == "none").sum(),
        no_answer_math_verify=(pl.col("math_verify") == "none").sum(),
        unknown=pl.any_horizontal(pl.col("ours", "math_verify") == "unknown").sum(),
    ).row(0, named=True)
    if not counts["samples"]:
        return {**counts, "disagree": None, "lo": None, "hi": None}
    apart = counts["only_ours"] + counts["only_math_verify"]
    lo, hi = (float(end) for end in wilson(apart, counts["samples"]))
    return {**counts, "disagree": apart / counts["samples"], "lo": lo, "hi": hi}


def _line(row: Row) -> Line:
    names = {"checkpoint": row["checkpoint"], "benchmark": row["benchmark"]}
    if row["reason"]:
        return {**names, "samples": row["reason"]}
    headings = {"samples": "samples", **CLASSES, **_COUNTS, "unknown": "unknown"}
    counts = {heading: str(row[name]) for name, heading in headings.items()}
    return {**names, **counts, "disagree": percent(row["disagree"], row["lo"], row["hi"])}


def _example(row: Row) -> Line:
    return {
        "question": row["question"],
        "policy": row["policy"],
        "sample": str(row["sample"]),
        "gold": _short(row["gold"]),
        "our answer": _short(row["answer"]),
        "ours": row["ours"],
        "math-verify": row["math_verify"],
    }


def _short(text: str | None) -> str:
    """One line of at most ``_LONGEST`` characters."""
    line = " ".join((text or "").split())
    return fmt.word(line if len(line) <= _LONGEST else line[:_LONGEST] + "…")
