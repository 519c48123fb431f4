"""Tables of sampling and recovery.

Nothing is estimated here: ``udf_cost`` adds up, and ``recovery_summary`` counts the budgets at which RL is inside.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import polars as pl

from searchlens.analysis.claims import DASH, Row, percent
from searchlens.analysis.frames import by_policy, pick
from searchlens.analysis.health import Health
from searchlens.analysis.mixing import CHAINS
from searchlens.catalogue import table, titles
from searchlens.reporting.tables import format as fmt
from searchlens.reporting.tables.format import Line
from searchlens.reporting.tables.table import Part, Table
from searchlens.store.columns import POINTS
from searchlens.store.judges import Judge

READOUT, EXPECTED = "prefix", "expected"
"""The readout of tables of points and paths, and of the summary."""
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
    """Half-widths of the intervals, one row per group: checkpoint, benchmark, metric, readout, questions, budget,
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
    """``health.mixing.CHAINS``."""
    without_costs: int = 0
    """Number of cells that were recorded without what their samples cost."""
    readings: Mapping[str, pl.DataFrame] = field(default_factory=dict)
    """``catalogue.READING_FRAMES``."""
    health: Mapping[tuple[str, str], Health] = field(default_factory=dict)
    """Checkpoint and benchmark to the health of the cell."""
    notes: Sequence[str] = ()
    """Sentences under every table."""


def _metrics() -> dict[str, str]:
    """The metrics that tables show, with their titles."""
    return titles("metric", drawn=True)


def _readouts_note() -> str:
    metrics = "; ".join(f"{name}: {title}" for name, title in _metrics().items())
    return f"{metrics}. Prefix: the first N samples; expected: mean over every choice of N samples."


def _percent(value: float | None, lo: float | None = None, hi: float | None = None, sign: str = "") -> str:
    """A proportion as a percentage with its interval; nothing if there is none."""
    return "" if value is None else percent(value, lo, hi, sign)


def _part(lines: Sequence[Line], *groups: str) -> Part:
    """Lines as a block; what a line does not have is left empty. A rule stands where one of these headings changes."""
    keys = [tuple(line[group] for group in groups) for line in lines]
    return Part(fmt.text_frame(lines, missing=""), rule_before=fmt.changes(keys))


# ---- landscapes


@table("operating_points", stage="study")
def operating_points(context: StudyContext) -> Table:
    """Pass@k and self-consistency with intervals: a row per policy, a column per budget."""
    columns = ["policy", "budget", "value", "lo", "hi"]
    keys = ["checkpoint", "benchmark", "metric"]
    parts, lacking = [], []
    for (checkpoint, benchmark), frame in context.points.items():
        for metric in _metrics():
            rows = by_policy(pick(frame, metric=metric, readout=READOUT)).select(columns)
            lacking += [f"{metric} of {checkpoint} on {benchmark}"] if rows.is_empty() else []
            constants = zip(keys, (checkpoint, benchmark, metric), strict=True)
            parts.append(rows.select(*(pl.lit(value).alias(key) for key, value in constants), pl.all()))
    data = pl.concat(parts)
    lines = []
    for names, rows in data.group_by(*keys, "policy", maintain_order=True):
        line = dict(zip([*keys, "policy"], map(str, names), strict=True))
        lines.append(line | {str(row["budget"]): _interval(row) for row in rows.iter_rows(named=True)})
    notes = [
        f"Questions solved in %, {READOUT} readout; a column per number of samples N. {_readouts_note()}",
        f"Brackets: interval over questions {LEVEL}, Wilson for counts, else percentile bootstrap.",
        *([f"Not recorded: {', '.join(lacking)}."] if lacking else []),
    ]
    return Table(data, [_part(lines, *keys)], notes)


def _interval(row: Row) -> str:
    return _percent(row["value"], row["lo"], row["hi"])


@table("intervals", stage="study")
def intervals(context: StudyContext) -> Table:
    """How wide the intervals are: the median half-width over policies, a column per budget."""
    keys = ["checkpoint", "benchmark", "metric", "readout", "questions"]
    lines = []
    for names, rows in context.widths.group_by(*keys, maintain_order=True):
        line = dict(zip(keys, map(str, names), strict=True))
        widths = rows.sort("budget").select("budget", "half_width").iter_rows()
        lines.append(line | {str(budget): _percent(width) for budget, width in widths})
    notes = [
        f"Half-width of the intervals {LEVEL}, percentage points, median over policies; a column per number of samples"
        f" N. {_readouts_note()}",
    ]
    return Table(context.widths, [_part(lines, "checkpoint")], notes)


# ---- recovery


@table("same_policy_counts", stage="study")
def same_policy_counts(context: StudyContext) -> Table:
    """How many policies have Base at or above RL, over all shared ones and over those without the RL default."""
    data = pl.concat(_named(cell, cell.counts) for cell in context.cells)
    keys = ["pair", "benchmark", "metric", "readout"]
    broken = broken_cells(context)
    lines = []
    for names, rows in data.group_by(*keys, maintain_order=True):
        line = dict(zip(keys, map(str, names), strict=True))
        cells = {str(row["budget"]): _count(row) for row in rows.sort("budget").iter_rows(named=True)}
        lines.append(line | (dict.fromkeys(cells, DASH) if names[:2] in broken else cells))
    notes = [
        "Policies under which Base solves at least as many questions as RL, of those that both were sampled under and"
        " under which either solves any; a column per number of samples N. In parentheses without RL's default policy."
        f" {_readouts_note()}",
    ]
    return Table(data, [_part(lines, "pair", "benchmark")], notes)


def broken_cells(context: StudyContext) -> set[tuple[str, str]]:
    """Pair and benchmark of the cells on which there is no verdict."""
    return {(cell.pair, cell.benchmark) for cell in context.cells if cell.warning}


def _count(row: Row) -> str:
    """Policies with Base ahead or level, of those under which either model solves any question."""
    ends = [
        (row[f"ahead_or_level{end}"], row[f"policies{end}"], row[f"both_zero{end}"]) for end in ("", "_without_default")
    ]
    (every, without_default) = (f"{ahead - nothing}/{policies - nothing}" for ahead, policies, nothing in ends)
    return f"{every} ({without_default})"


def _named(cell: Cell, frame: pl.DataFrame) -> pl.DataFrame:
    """Rows of the metrics that are shown, with the names of their cell."""
    shown = frame.filter(pl.col("metric").is_in(list(_metrics())))
    return shown.select(pl.lit(cell.pair).alias("pair"), pl.lit(cell.benchmark).alias("benchmark"), pl.all())


POOLS = {"ar": "AR", "full": "full"}
GREEDY = tuple(f"greedy_{side}{end}" for side in ("base", "rl") for end in ("", "_lo", "_hi"))
"""Columns of the summary: what one greedy answer of either side solves."""
SUMMARY_NOTES = (
    f"All numbers: mean over every choice of N samples ({EXPECTED} readout), but for paths, which read the first N, and"
    " for metrics of the first N, which have no such mean in these pools.",
    "RL − Base at N: under RL's default policy, percentage points (pp); ahead: policies under which Base solves more"
    " questions than RL, of those under which either solves any; inside: RL budgets at which RL lies in Base's support"
    " region, of those at which either solves any.",
    "RL − best: of Base under any policy with at most b samples, pp, at the budget b where it is largest: at"
    " or below 0 Base reaches RL at every b. The interval does not allow for the choice of b. One greedy answer is none"
    " of these policies and stands beside them.",
    "Closest, monotone N: samples of Base at the points of either path, one per RL budget.",
    f"Brackets: paired bootstrap over questions {LEVEL}; where no question differs, what 0 differences in so many"
    " questions leave open. That of RL − best is never narrower, and its upper end allows for the best being"
    " chosen.",
)
POOL_NOTE = (
    "Pool: number of Base's policies; AR, autoregressive ones alone; full, searches too. Inside, RL − best and paths"
    " are over the pool, and a larger pool reaches more, so rows of different pools are not to be compared."
)


@table("recovery_summary", stage="study")
def recovery_summary(context: StudyContext) -> Table:
    """One row per pair, benchmark and metric: how far RL leads, whether Base reaches it, and where.

    RL minus Base is under the default policy at the smallest and the largest budget; RL minus best of Base is at the
    budget where it is largest; paths give the Base budgets, in the order of the RL's.
    """
    rows = [
        _summary(cell, metric, context.default_policy)
        for cell in context.cells
        for metric in _metrics()
        if metric in cell.support["metric"]
    ]
    known = {"base_policies": pl.UInt32(), "questions": pl.UInt32(), "warning": pl.String()}
    known |= dict.fromkeys(GREEDY, pl.Float64())
    data = pl.DataFrame(rows, schema_overrides=known, infer_schema_length=None)
    notes = [*SUMMARY_NOTES, POOL_NOTE]
    return Table(data, [_part([_summary_line(row) for row in data.rows(named=True)], "pair", "benchmark")], notes)


def _summary(cell: Cell, metric: str, default_policy: str) -> dict[str, object]:
    has_means = pick(cell.support, metric=metric, readout=EXPECTED).height > 0  # votes of large pools have none
    chosen: dict[str, str | int] = {"metric": metric, "readout": EXPECTED if has_means else "prefix"}
    support = pick(cell.support, **chosen).sort("rl_minus_best", descending=True, nulls_last=True, maintain_order=True)
    pool = "full" if cell.searched else "ar"
    row: dict[str, object] = {"pair": cell.pair, "benchmark": cell.benchmark, "pool": pool, **chosen}
    row |= {"base_policies": cell.policies, "questions": cell.questions}
    budgets = sorted(support["budget"].to_list())
    for which, budget in (("first", budgets[0]), ("last", budgets[-1])):
        at = {**chosen, "budget": budget}
        gap, lo, hi = _first(pick(cell.same_policy, **at, policy=default_policy), "rl_minus_base", "lo", "hi")
        ahead, policies, nothing = _first(pick(cell.counts, **at), "ahead", "policies", "both_zero")
        row |= {f"{which}_budget": budget, f"rl_minus_base_{which}": gap}
        row |= {f"rl_minus_base_{which}_lo": lo, f"rl_minus_base_{which}_hi": hi}
        row |= {f"ahead_{which}": ahead, f"policies_{which}": policies, f"both_zero_{which}": nothing}
    row |= {"inside": support["inside"].cast(pl.UInt32).sum(), "budgets": support.height}
    row |= {
        "both_zero": support.filter("inside", pl.max_horizontal("rl", "envelope") == 0).height,
        "warning": cell.warning or None,
    }
    greedy = [pick(cell.greedy.get(side, POINTS.to_frame()), **chosen) for side in ("Base", "RL")]
    row |= dict(zip(GREEDY, (end for points in greedy for end in _first(points, "value", "lo", "hi")), strict=True))
    columns = ("budget", "rl_minus_best", "rl_minus_best_lo", "rl_minus_best_hi")
    row |= dict(zip(("best_budget", *columns[1:]), _first(support, *columns), strict=True))
    for kind in ("closest", "monotone"):
        steps = pick(cell.path, metric=metric, kind=kind).sort("target_budget")
        steps = steps.select("target_budget", "policy", "budget")
        row |= {kind: "; ".join(f"{target}: {policy} at {n}" for target, policy, n in steps.iter_rows())}
    return row


def _first(frame: pl.DataFrame, *columns: str) -> tuple[Any, ...]:
    """The first row; None in every column if there is none."""
    return frame.select(columns).row(0) if frame.height else (None,) * len(columns)


def _summary_line(row: Row) -> Line:
    pool = POOLS[row["pool"]]
    line = {"pair": row["pair"], "benchmark": row["benchmark"]}
    line["pool"] = pool if row["base_policies"] is None else f"{pool}, {row['base_policies']}"
    line["metric"] = _metrics()[row["metric"]] + " of the first N" * (row["readout"] == READOUT)
    for which in ("first", "last"):
        gap, lo, hi = (row[f"rl_minus_base_{which}{end}"] for end in ("", "_lo", "_hi"))
        ahead, policies, nothing = (row[f"{key}_{which}"] for key in ("ahead", "policies", "both_zero"))
        line[f"RL − Base at {row[f'{which}_budget']}"] = _percent(gap, lo, hi, sign="+")
        line[f"ahead at {row[f'{which}_budget']}"] = "" if policies is None else f"{ahead}/{policies - nothing}"
    line["inside"] = f"{row['inside'] - row['both_zero']}/{row['budgets'] - row['both_zero']}"
    best, lo, hi = (row[f"rl_minus_best{end}"] for end in ("", "_lo", "_hi"))
    widest = _percent(best, lo, hi, sign="+")
    line["largest RL − best"] = f"{widest} at {row['best_budget']}" if widest else ""
    for heading, ends in (("greedy: Base", GREEDY[:3]), ("greedy: RL", GREEDY[3:])):
        line[heading] = _percent(*(row[end] for end in ends))
    for kind in ("closest", "monotone"):
        line[f"{kind} N"] = " ".join(step.rsplit(" ", 1)[-1] for step in row[kind].split("; "))
    if row["warning"]:
        names = {key: line[key] for key in ("pair", "benchmark", "pool", "metric")}
        return dict.fromkeys(line, DASH) | names | {"inside": "not interpretable"}
    return line


@table("recovery_paths", stage="study")
def recovery_paths(context: StudyContext) -> Table:
    """One row per step of each path: the RL budget, the Base operating point chosen for it, and RL - Base there."""
    step = ("target_budget", "target", "policy", "budget", "value", "rl_minus_base")
    columns = ["pair", "benchmark", "metric", "kind", *step]
    data, metrics = pl.concat(_named(cell, cell.path) for cell in context.cells).select(columns), _metrics()
    broken = broken_cells(context)
    lines = [
        {
            "pair": row["pair"],
            "benchmark": row["benchmark"],
            "metric": metrics[row["metric"]],
            "path": row["kind"],
            "RL budget": str(row["target_budget"]),
            "RL": _percent(row["target"]),
            "policy": row["policy"],
            "N": str(row["budget"]),
            "Base": _percent(row["value"]),
            "RL − Base": _percent(row["rl_minus_base"], sign="+"),
        }
        for row in data.iter_rows(named=True)
        if (row["pair"], row["benchmark"]) not in broken
    ]
    notes = [
        f"Questions solved in %, {READOUT} readout. Closest: the Base point that solves nearest as many; monotone: the"
        " path of least error whose N never falls. RL − Base: percentage points.",
    ]
    return Table(data, [_part(lines, "pair", "benchmark", "metric", "path")], notes)


# ---- costs

GPU_DEVICES = ("cuda", "gpu")
COST_NOTE = (
    "A run: one policy on one benchmark, counted where it was sampled; pairs that share a checkpoint share its rows."
    " (M): millions of tokens; reused: share of the tokens of prompts and prefixes that was not computed again;"
    " running: mean number of texts that are sampled at the same time; wall h, GPU h: of sampling alone."
)
COST_COLUMNS = {
    "runs": "runs",
    "samples": "samples",
    "returned_M": "returned (M)",
    "generated_M": "generated (M)",
    "reused": "reused",
    "requests_per_sample": "requests per sample",
    "mean_running": "running",
    "tokens_per_second": "tokens/s",
    "wall_h": "wall h",
    "gpu_h": "GPU h",
}


@table("udf_cost", stage="study")
def udf_cost(context: StudyContext) -> Table:
    """What sampling cost: a row per channel (autoregressive, or one controller of searches, on one model), and a total.

    Notes
    -----
    A run is one generation, however many shards it has. Returned tokens are those of the samples, generated ones all
    that were drawn. A sample of a tree is returned in full on every path through it and generated once, so a tree may
    return more than it generates. ``reused`` is a share of the tokens of prompts and prefixes that requests began with:
    those that the engine did not compute again. The mean running batch is over steps: generated tokens by steps. A sum
    or mean is null if one of its shards has no record of the quantity, and so is every ratio of nothing. The total is
    null if no cell has a record of its costs.
    """
    costs = _with_channel(context)
    groups = costs.group_by("channel", maintain_order=True)
    totals = [*(_total(group, str(channel)) for (channel,), group in groups), _total(costs, "total")]
    data = pl.concat(totals).fill_nan(None)
    if context.without_costs and costs.is_empty():
        data = data.select("channel", pl.exclude("channel").replace(0, None))  # the sum of nothing known
    lines = [
        {"channel": row["channel"], **{heading: _amount(row[name]) for name, heading in COST_COLUMNS.items()}}
        for row in data.iter_rows(named=True)
    ]
    unrecorded = costs.select(pl.any_horizontal(pl.col("prefilled", "mean_running").is_null()).sum()).item()
    notes = [COST_NOTE]
    if unrecorded:
        notes.append(f"{unrecorded} of {costs.height} shards have no record of prefixes or running batches.")
    if context.without_costs:
        one = context.without_costs == 1
        cells = (
            "1 cell was recorded without its" if one else f"{context.without_costs} cells were recorded without their"
        )
        notes.append(f"{cells} costs, which are not in this table.")
    notes.extend(_rejections(context.chains))
    return Table(data, [Part(fmt.text_frame(lines), rule_before=(data.height - 1,))], notes)


def _rejections(chains: pl.DataFrame) -> list[str]:
    """What power sampling did not have to draw: one sentence if it rejected anything, else none."""
    proposed, accepted, early = (int(chains[name].sum()) for name in ("proposed", "accepted", "rejected_early"))
    if proposed == accepted:
        return []
    return [
        f"Power sampling rejected {proposed - accepted:,} of {proposed:,} proposals, {early:,} of them before their"
        " end; of these, only what was drawn is counted."
    ]


def _with_channel(context: StudyContext) -> pl.DataFrame:
    """The costs with the channel of each shard: autoregressive ones first, then in the order of the models."""
    models = context.models
    searched = pl.col("controller") != "autoregressive"
    model = pl.col("checkpoint").replace_strict(models, default=None, return_dtype=pl.String)
    search, autoregressive = pl.format("Search-{} ({})", model, "controller"), pl.format("AR-{}", model)
    costs = context.costs.with_columns(channel=pl.when(searched).then(search).otherwise(autoregressive))
    order = {name: i for i, name in enumerate(models.values())}
    places = {checkpoint: order[name] for checkpoint, name in models.items()}
    place = pl.col("checkpoint").replace_strict(places, return_dtype=pl.Int64)
    return costs.drop_nulls("channel").sort(searched, place, maintain_order=True)


def _total(costs: pl.DataFrame, channel: str) -> pl.DataFrame:
    """One row of the cost table: these shards together."""
    on_gpu = pl.col("device").str.to_lowercase().str.contains_any(list(GPU_DEVICES))
    hours, steps = pl.col("wall_seconds") / 3600, pl.col("generated") / pl.col("mean_running")
    generated, prefixes = _sum("generated"), _sum("prefilled") + _sum("reused")
    return costs.select(
        channel=pl.lit(channel),
        runs=pl.struct("checkpoint", "benchmark", "policy").n_unique(),
        samples=pl.col("rows").sum(),
        returned_M=pl.col("tokens").sum() / 1e6,
        generated_M=generated / 1e6,
        reused=_sum("reused") / prefixes,
        requests_per_sample=_sum("requests") / pl.col("rows").sum(),
        mean_running=pl.when(steps.is_null().any()).then(None).otherwise(pl.col("generated").sum() / steps.sum()),
        tokens_per_second=generated / pl.col("wall_seconds").sum(),
        wall_h=hours.sum(),
        gpu_h=pl.when(on_gpu).then(hours * pl.col("device_count")).otherwise(0.0).sum(),
    )


def _sum(column: str) -> pl.Expr:
    """The sum; null if a shard has no record."""
    return pl.when(pl.col(column).is_null().any()).then(None).otherwise(pl.col(column).sum())


def _amount(value: float | None) -> str:
    """Whole numbers as they are, others with three significant digits; nothing for None."""
    if value is None:
        return ""
    if isinstance(value, int) or value == 0:
        return f"{value:.0f}"
    return f"{value:.{max(0, 2 - math.floor(math.log10(abs(value))))}f}"
