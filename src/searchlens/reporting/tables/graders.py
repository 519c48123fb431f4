"""Which grader judged every cell, and how often another one judges a sample differently."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import polars as pl

from searchlens.analysis.claims import Row, percent
from searchlens.analysis.uncertainty import wilson
from searchlens.catalogue import table
from searchlens.grading.score import is_recorded
from searchlens.reporting.tables import table as fmt
from searchlens.store.columns import COMPARED
from searchlens.store.provenance import Judge

if TYPE_CHECKING:
    from searchlens.reporting.tables.study import StudyContext

NOT_STATED = "not stated"
_NAMED = 3
"""Cells that a note names of each version."""


@table("graders", stage="study")
def graders(context: StudyContext) -> fmt.Table:
    """One row per cell: where its samples come from, and who judged them."""
    lines = [
        {
            "checkpoint": checkpoint,
            "benchmark": benchmark,
            "samples": context.sources[checkpoint, benchmark],
            "grader": judge.name,
            "version": judge.version or NOT_STATED,
        }
        for (checkpoint, benchmark), judge in context.judges.items()
    ]
    data = pl.DataFrame(lines, dict.fromkeys(("checkpoint", "benchmark", "samples", "grader", "version"), pl.String))
    unstated = sum(not judge.version for judge in context.judges.values())
    notes = [f"{unstated} of {len(lines)} cells do not state the version of their grader."] if unstated else []
    return fmt.Table(data, [fmt.part(lines)], notes)


def of_judges(judges: Mapping[tuple[str, str], Judge]) -> list[str]:
    """What stands under every table: where versions are mixed, and which cells the imported logs judged.

    Cells that do not state their version count as one more if others of the same grader state theirs.
    """
    logs: dict[str, list[str]] = {}
    versions: dict[str, dict[str, list[str]]] = {}
    for cell, judge in judges.items():
        versions.setdefault(judge.name, {}).setdefault(judge.version or NOT_STATED, []).append("/".join(cell))
        if is_recorded(judge.name):
            logs.setdefault(judge.name.partition(":")[2], []).append("/".join(cell))
    mixed = [
        f"Not to be compared: cells were judged by different versions of the grader {name}:"
        f" {'; '.join(f'{version} in {_some(cells)}' for version, cells in found.items())}."
        for name, found in versions.items()
        if len(found) > 1
    ]
    by_logs = [f"Judged by the imported log, as its {name}, not here: {_some(cells)}." for name, cells in logs.items()]
    return [*mixed, *by_logs]


def _some(cells: list[str]) -> str:
    more = len(cells) - _NAMED
    return ", ".join(cells[:_NAMED]) + (f" and {more} more" if more > 0 else "")


# ---- two verdicts on a sample

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
def grader_agreement(context: StudyContext) -> fmt.Table:
    """One row per cell: counts of samples by both verdicts, and the share on which they disagree.

    Notes
    -----
    The interval is Wilson's at 95%, for a random sample of the cell's graded samples: it is about these samples, and
    not about other questions.
    """
    rows: list[Row] = []
    examples: list[fmt.Line] = []
    for (checkpoint, benchmark), judged in context.agreement.items():
        names = {"checkpoint": checkpoint, "benchmark": benchmark}
        if isinstance(judged, str):
            rows.append({**names, "reason": judged})
            continue
        rows.append({**names, **_counts(judged)})
        apart = judged.filter((pl.col("ours") == "right") != (pl.col("math_verify") == "right")).head(_EXAMPLES)
        examples += [{**names, **_example(row)} for row in apart.rows(named=True)]
    data = pl.DataFrame(rows, _SCHEMA)
    parts = [fmt.part([_agreed(row) for row in data.rows(named=True)])]
    if examples:
        parts.append(fmt.part(examples, "Examples of disagreement"))
    notes = [
        "Graded samples of each cell, chosen at random: our verdict, and that of math-verify alone on the gold answer"
        " and the whole text. No answer: none was found, which is not right; such samples are in the classes, too."
        " Disagree: share of samples that one of both accepts, %, with its Wilson interval at 95% over samples.",
    ]
    return fmt.Table(data, parts, notes)


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
        return counts
    apart = counts["only_ours"] + counts["only_math_verify"]
    lo, hi = (float(end) for end in wilson(apart, counts["samples"]))
    return {**counts, "disagree": apart / counts["samples"], "lo": lo, "hi": hi}


def _agreed(row: Row) -> fmt.Line:
    names = {"checkpoint": row["checkpoint"], "benchmark": row["benchmark"]}
    if row["reason"]:
        return {**names, "samples": row["reason"]}
    headings = {"samples": "samples", **CLASSES, **_COUNTS, "unknown": "unknown"}
    counts = {heading: str(row[name]) for name, heading in headings.items()}
    return {**names, **counts, "disagree": percent(row["disagree"], row["lo"], row["hi"])}


def _example(row: Row) -> fmt.Line:
    line = {"question": row["question"], "policy": row["policy"], "sample": str(row["sample"])}
    for heading, column in (("gold", "gold"), ("our answer", "answer")):
        text = " ".join((row[column] or "").split())
        line[heading] = fmt.word(text if len(text) <= _LONGEST else text[:_LONGEST] + "…")
    return {**line, "ours": row["ours"], "math-verify": row["math_verify"]}


# ---- verdicts of imported logs

OUTCOMES = {
    "both_right": "both right",
    "ours_alone": "right by ours alone",
    "theirs_alone": "right by theirs alone",
    "both_wrong": "both wrong",
    "unscored": "unscored by theirs",
}
"""Every recorded verdict is in one of these."""

_NAMES = ("checkpoint", "benchmark", "policy", "scorer")
_PRINTED = 5
_NONE: list[fmt.Line] = [{"recorded verdicts": "none"}]


@table("recorded_agreement", stage="study")
def recorded_agreement(context: StudyContext) -> fmt.Table:
    """One row per cell, policy and scorer: samples by our verdict and the recorded one."""
    counts = (
        _compared(context)
        .group_by(_NAMES, maintain_order=True)
        .agg(pl.len().alias("samples"), *((pl.col("outcome") == name).sum().alias(name) for name in OUTCOMES))
    )
    data = counts.cast(dict.fromkeys(("samples", *OUTCOMES), pl.Int64()))  # type: ignore[arg-type]
    lines = [{OUTCOMES.get(key, key): str(value) for key, value in row.items()} for row in data.rows(named=True)]
    notes = ["Verdicts that came with imported samples, and ours. A recorded value below 1 is not right."]
    if not lines:
        notes = ["No imported samples of this study came with verdicts."]
    return fmt.Table(data, [fmt.part(lines or _NONE)], notes)


@table("recorded_disagreements", stage="study")
def recorded_disagreements(context: StudyContext) -> fmt.Table:
    """One row per sample and scorer on which the verdicts differ; all are in the CSV, the first ones are printed."""
    apart = _compared(context).filter(pl.col("outcome").is_in(["ours_alone", "theirs_alone"]))
    shown = [
        {key: str(value if value is not None else "")[:_LONGEST] for key, value in row.items() if key != "end"}
        for row in apart.head(_PRINTED).rows(named=True)
    ]
    notes = [
        f"{apart.height} verdicts differ; the CSV has all of them, with the gold, both answers and the end of the text."
        " Of benchmarks whose terms forbid to show their rows it has ids alone."
    ]
    return fmt.Table(apart, [fmt.part(shown or _NONE)], notes)


def _compared(context: StudyContext) -> pl.DataFrame:
    empty = pl.DataFrame(schema={"checkpoint": pl.String(), "benchmark": pl.String(), **COMPARED})
    cells = context.recorded.items()
    return pl.concat(
        [empty, *(fmt.named(rows, checkpoint=checkpoint, benchmark=name) for (checkpoint, name), rows in cells)]
    )
