"""Verdicts that came with imported samples, beside ours."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from searchlens.catalogue import table
from searchlens.reporting.tables import format as fmt
from searchlens.reporting.tables.table import Part, Table
from searchlens.store.columns import COMPARED

if TYPE_CHECKING:
    from searchlens.reporting.tables.study import StudyContext

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
_LONGEST = 60
_NONE: list[fmt.Line] = [{"recorded verdicts": "none"}]


@table("recorded_agreement", stage="study")
def recorded_agreement(context: StudyContext) -> Table:
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
    return Table(data, [Part(fmt.text_frame(lines or _NONE))], notes)


@table("recorded_disagreements", stage="study")
def recorded_disagreements(context: StudyContext) -> Table:
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
    return Table(apart, [Part(fmt.text_frame(shown or _NONE))], notes)


def _compared(context: StudyContext) -> pl.DataFrame:
    parts = [
        frame.select(pl.lit(checkpoint).alias("checkpoint"), pl.lit(benchmark).alias("benchmark"), pl.all())
        for (checkpoint, benchmark), frame in context.recorded.items()
    ]
    return pl.concat([pl.DataFrame(schema={"checkpoint": pl.String(), "benchmark": pl.String(), **COMPARED}), *parts])
