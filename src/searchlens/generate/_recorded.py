"""What recorders took down, as rows of a file."""

from __future__ import annotations

import json
from typing import Any

import polars as pl

from searchlens.schemas.columns import TRACES
from searchlens.search.driver import Failure, Outcome
from searchlens.search.recorder import Recorder


def trace_rows(recorder: Recorder, outcome: Outcome, run: tuple[int, str, int], width: int) -> pl.DataFrame:
    """Rows of ``TRACES`` of a run of ``width`` candidates that has ended.

    The run is given by the question's position and id, and its own number.
    """
    try:
        if isinstance(outcome, Failure):
            recorder.finish([], outcome.reason, outcome.usage)
        else:
            recorder.finish(outcome.candidates, usage=outcome.usage)
        return _frame(recorder.rows, run, width)
    except Exception as error:  # whatever a controller of one's own may have noted: its samples are not lost by it
        mistake = json.dumps({"notes": len(recorder.rows), "mistake": f"{type(error).__name__}: {error}"})
    row: dict[str, Any] = {"step": 0, "kind": "cut", "detail": mistake}
    costs = {"requests": outcome.usage.requests, "generated": outcome.usage.generated}
    return _frame([{**row, **costs}], run, width)


def _frame(rows: list[dict[str, Any]], run: tuple[int, str, int], width: int) -> pl.DataFrame:
    question, name, number = run
    of_run = {"question": question, "id": name, "run": number}
    numbered = [{**of_run, "row": i, **row} for i, row in enumerate(rows)]
    for row in numbered:
        if "sample" in row:
            row["sample"] += number * width
    return pl.DataFrame(numbered, schema=TRACES)
