"""How the samples of each cell ended, and whether its numbers can be interpreted."""

from __future__ import annotations

import polars as pl

from searchlens.analysis.health import Health, percent
from searchlens.catalogue import table
from searchlens.reporting.tables.format import Line, changes, text_frame
from searchlens.reporting.tables.study import StudyContext
from searchlens.reporting.tables.table import Part, Table
from searchlens.store.columns import HEALTH

NOTES = (
    "Finished texts: those that are not known to be cut off. Cut off: ended by the token limit. Unknown end: imported"
    " without a finish. Unknown verdicts: share of answers whose comparison reached a limit; they count as wrong."
    " Failed: samples of searches that failed. Kept, withdrawn: texts that end in an open box behind a closed one,"
    " which repeats it or takes it back. Unsolved: questions that no sample of the cell solves. Unknown: not"
    " recorded, as in compact readouts.",
    "Not interpretable: hardly any sample has an answer, or hardly any verdict is known, in the whole cell or under"
    " RL's default policy; a pair, too, of which neither side solves a question. Its numbers stay in the CSV files and"
    " enter means; verdicts on it are not printed. The limits are the section health of the configuration.",
)


@table("health", stage="study")
def health(context: StudyContext) -> Table:
    """One row per cell, Base and RL apart: shares of its samples, and what is wrong with them."""
    counts = [name for name in HEALTH.names() if name != "policy"]
    schema = {
        **dict.fromkeys(("checkpoint", "benchmark", "health", "reason"), pl.String()),
        **{n: HEALTH[n] for n in counts},
    }
    rows = [
        {"checkpoint": checkpoint, "benchmark": benchmark, "health": cell.level, "reason": cell.reason or None}
        | {name: cell.counts[name] for name in counts}
        for (checkpoint, benchmark), cell in context.health.items()
    ]
    lines = [_line(*names, cell) for names, cell in context.health.items()]
    rules = changes([checkpoint for checkpoint, _ in context.health])
    notes = [
        f"{'/'.join(names)}: {cell.level}: {cell.reason}." for names, cell in context.health.items() if cell.reason
    ]
    return Table(pl.DataFrame(rows, schema), [Part(text_frame(lines, missing=""), rule_before=rules)], [*notes, *NOTES])


def _line(checkpoint: str, benchmark: str, cell: Health) -> Line:
    counts = cell.counts
    samples, answered = counts["samples"], counts["answered"]
    return {
        "checkpoint": checkpoint,
        "benchmark": benchmark,
        "health": cell.level,
        "samples": f"{samples:,}",
        "with an answer": percent(answered, samples),
        "of finished texts": percent(counts["whole_answered"], cell.whole),
        "stopped": percent(counts["stopped"], samples),
        "cut off": percent(counts["truncated"], samples),
        "unknown end": percent(counts["unknown_end"], samples),
        "unknown verdicts": percent(counts["unknown"], answered),
        "failed": percent(counts["failed"], samples),
        "kept": percent(counts["kept"], samples),
        "withdrawn": percent(counts["withdrawn"], samples),
        "unsolved": f"{counts['unsolved']} of {counts['questions']}",
    }
