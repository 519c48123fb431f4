"""What the tables of a study are made from, and the tables of its landscapes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import polars as pl

from searchlens.analysis.claims import DASH, Row, percent
from searchlens.analysis.frames import by_policy, pick
from searchlens.analysis.health import CHAINS, Health
from searchlens.catalogue import table, titles
from searchlens.reporting.tables import table as fmt
from searchlens.store.provenance import Judge

ESTIMATOR = "first_k"
"""The estimator of tables of points and paths."""
LEVEL = "at the configured level (95% unless it says otherwise)"


@dataclass(frozen=True)
class Cell:
    """One pair on one benchmark: its names for people, and frames of the recovery stage."""

    pair: str
    benchmark: str
    same_policy: pl.DataFrame
    counts: pl.DataFrame
    support: pl.DataFrame
    path: pl.DataFrame
    near_match: pl.DataFrame
    searched: bool = False
    """Whether Base was also sampled under searches."""
    greedy: Mapping[str, pl.DataFrame] = field(default_factory=dict)
    """Of ``Base`` and ``RL``, the points of one greedy answer, where it was drawn."""
    policies: int | None = None
    questions: int | None = None
    """``policies``, ``questions``: number of Base's policies, which are the pool of the support region, and of
    questions."""
    warning: str = ""
    """Why the cell is not interpretable; empty if it is."""


@dataclass(frozen=True, kw_only=True)
class StudyContext:
    """What the tables of a study are made from."""

    default_policy: str
    """Policy of the RL target curve."""
    cells: Sequence[Cell]
    """In the order of the tables."""
    points: Mapping[tuple[str, str], pl.DataFrame]
    """Checkpoint and benchmark to the ``points`` of their landscape."""
    widths: pl.DataFrame
    """Half-widths of the intervals, one row per group: checkpoint, benchmark, metric, estimator, questions, budget,
    half_width (a proportion)."""
    costs: pl.DataFrame
    """One row per shard: checkpoint, benchmark, policy, controller, rows, tokens, generated, requests, prefilled,
    reused, mean_running, wall_seconds, device, device_count. A shard appears once, under the policy that it was sampled
    for: policies that resolve to the same generation share its shards and cost nothing more."""
    models: Mapping[str, str]
    """Checkpoint to its name in the cost table, such as ``Base``; its order is that of the rows."""
    spent: Mapping[str, Mapping[str, Any]]
    """Checkpoint to ``store.provenance.spent`` of its shards."""
    made: Mapping[str, Any]
    """``store.provenance.made``: what made the tables themselves."""
    sources: Mapping[tuple[str, str], str]
    """Checkpoint and benchmark to ``sampled``, ``imported`` or ``recorded``."""
    judges: Mapping[tuple[str, str], Judge]
    """Checkpoint and benchmark to the grader of the cell."""
    agreement: Mapping[tuple[str, str], pl.DataFrame | str]
    """Checkpoint and benchmark to the samples that were judged by two graders (``store.columns.AGREEMENT``), or why
    there are none."""
    recorded: Mapping[tuple[str, str], pl.DataFrame] = field(default_factory=dict)
    """Checkpoint and benchmark to the verdicts that came with imported samples, beside ours
    (``store.columns.COMPARED``)."""
    chains: pl.DataFrame = field(default_factory=CHAINS.to_frame)
    """``analysis.health.CHAINS``."""
    without_costs: int = 0
    """Number of cells that were recorded without what their samples cost."""
    measures: Mapping[str, pl.DataFrame] = field(default_factory=dict)
    """``catalogue.MEASURE_FRAMES``."""
    health: Mapping[tuple[str, str], Health] = field(default_factory=dict)
    """Checkpoint and benchmark to the health of the cell."""
    notes: Sequence[str] = ()
    """Sentences under every table."""

    @property
    def broken(self) -> set[tuple[str, str]]:
        """Pair and benchmark of the cells on which there is no verdict."""
        return {(cell.pair, cell.benchmark) for cell in self.cells if cell.warning}


def metrics() -> dict[str, str]:
    """The metrics that tables show, with their titles."""
    return titles("metric", drawn=True)


def estimators_note() -> str:
    """What the metrics and the estimates are."""
    said = "; ".join(f"{name}: {title}" for name, title in metrics().items())
    return f"{said}. Prefix: the first N samples; expected: mean over every choice of N samples."


def shown(value: float | None, lo: float | None = None, hi: float | None = None, sign: str = "") -> str:
    """A proportion as a percentage with its interval; nothing if there is none."""
    return "" if value is None else percent(value, lo, hi, sign)


def by_budget(
    frame: pl.DataFrame, keys: Sequence[str], said: Callable[[Row], str], broken: Collection[tuple[str, str]] = ()
) -> list[fmt.Line]:
    """A line for each group of rows, with a column per budget; dashes in cells (the first two keys) without verdict."""
    lines = []
    for names, rows in frame.group_by(*keys, maintain_order=True):
        line = dict(zip(keys, map(str, names), strict=True))
        cells = {str(row["budget"]): said(row) for row in rows.sort("budget").iter_rows(named=True)}
        lines.append(line | (dict.fromkeys(cells, DASH) if names[:2] in broken else cells))
    return lines


@table("operating_points", stage="study")
def operating_points(context: StudyContext) -> fmt.Table:
    """Pass@k and self-consistency with intervals: a row per policy, a column per budget."""
    columns = ["policy", "budget", "value", "lo", "hi"]
    keys = ["checkpoint", "benchmark", "metric"]
    parts, lacking = [], []
    for (checkpoint, benchmark), frame in context.points.items():
        for metric in metrics():
            rows = by_policy(pick(frame, metric=metric, estimator=ESTIMATOR)).select(columns)
            lacking += [f"{metric} of {checkpoint} on {benchmark}"] if rows.is_empty() else []
            parts.append(fmt.named(rows, checkpoint=checkpoint, benchmark=benchmark, metric=metric))
    data = pl.concat(parts)
    lines = by_budget(data, [*keys, "policy"], lambda row: shown(row["value"], row["lo"], row["hi"]))
    notes = [
        f"Questions solved in %, {ESTIMATOR} estimator; a column per number of samples N. {estimators_note()}",
        f"Brackets: interval over questions {LEVEL}, Wilson for counts, else percentile bootstrap.",
        *([f"Not recorded: {', '.join(lacking)}."] if lacking else []),
    ]
    return fmt.Table(data, [fmt.block(lines, *keys)], notes)


@table("intervals", stage="study")
def intervals(context: StudyContext) -> fmt.Table:
    """How wide the intervals are: the median half-width over policies, a column per budget."""
    keys = ["checkpoint", "benchmark", "metric", "estimator", "questions"]
    lines = by_budget(context.widths, keys, lambda row: shown(row["half_width"]))
    notes = [
        f"Half-width of the intervals {LEVEL}, percentage points, median over policies; a column per number of samples"
        f" N. {estimators_note()}",
    ]
    return fmt.Table(context.widths, [fmt.block(lines, "checkpoint")], notes)
