"""Tables of sampling and recovery.

Nothing is estimated here; ``udf_cost`` adds up, and ``recovery_summary`` counts the budgets at which RL is inside.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from searchlens.figures.style import METRIC_NAMES, by_policy, pick
from searchlens.tables._table import Table

GPU_DEVICES = ("cuda", "gpu")
READOUTS = "P: pass@k; Q: self-consistency. Prefix: the first N samples; expected: mean over every choice of N samples."
POOLS = {"ar": "AR", "full": "full"}
LEVEL = "at the configured level (95% unless it says otherwise)"


@dataclass(frozen=True)
class Cell:
    """What a study has found for one pair on one benchmark: names for people, and the recovery stage's frames.

    ``searched`` says that Base's policies are not autoregressive alone.
    """

    pair: str
    benchmark: str
    same_policy: pl.DataFrame
    counts: pl.DataFrame
    support: pl.DataFrame
    path: pl.DataFrame
    searched: bool = False


def _sign(text: str) -> str:
    return text.replace("-", "\N{MINUS SIGN}")


def _percent(value: float | None, low: float | None = None, high: float | None = None, sign: str = "") -> str:
    if value is None:
        return ""
    spec = f"{sign}z.1f"
    interval = "" if low is None or high is None else f" [{100 * low:{spec}}, {100 * high:{spec}}]"
    return _sign(f"{100 * value:{spec}}{interval}")


def _text(rows: Sequence[Mapping[str, str]]) -> pl.DataFrame:
    return pl.DataFrame(list(rows), orient="row", infer_schema_length=None).fill_null("")


def _blocks(frame: pl.DataFrame, *keys: str) -> tuple[int, ...]:
    rows = frame.select(keys).rows()
    return tuple(i for i in range(1, len(rows)) if rows[i] != rows[i - 1])


def operating_points(points: Mapping[tuple[str, str], pl.DataFrame], readout: str = "prefix") -> Table:
    """Pass@k and self-consistency with intervals, a row per policy and a column per budget.

    Parameters
    ----------
    points : mapping
        (checkpoint, benchmark) to the ``points`` of its landscape.
    readout : str
        ``prefix`` or ``expected``.
    """
    parts = []
    for (checkpoint, benchmark), frame in points.items():
        for metric in METRIC_NAMES:
            rows = by_policy(pick(frame, metric=metric, readout=readout)).select(
                "policy", "budget", "value", "lo", "hi"
            )
            names = {"checkpoint": checkpoint, "benchmark": benchmark, "metric": metric}
            parts.append(rows.select(*(pl.lit(text).alias(key) for key, text in names.items()), pl.all()))
    data = pl.concat(parts)
    keys = ["checkpoint", "benchmark", "metric"]
    text = []
    for (*cell, policy), rows in data.group_by(*keys, "policy", maintain_order=True):
        values = {
            str(n): _percent(v, low, high) for n, v, low, high in rows.select("budget", "value", "lo", "hi").iter_rows()
        }
        text.append({**dict(zip(keys, map(str, cell), strict=True)), "policy": str(policy), **values})
    shown = _text(text)
    notes = (
        f"Questions solved in %, {readout} readout; a column per number of samples N. {READOUTS}",
        f"Brackets: interval over questions {LEVEL}, Wilson for counts, else percentile bootstrap.",
    )
    return Table(data, shown, _blocks(shown, *keys), notes=notes)


def same_policy_counts(cells: Sequence[Cell]) -> Table:
    """How many policies have Base at or above RL, over all shared ones and over those without the RL default."""
    data = pl.concat(_named(cell, cell.counts) for cell in cells)
    keys = ["pair", "benchmark", "metric", "readout"]
    text = []
    for key, rows in data.group_by(*keys, maintain_order=True):
        counts = {str(n): f"{a}/{of} ({b}/{rest})" for *_, n, a, of, b, rest in rows.sort("budget").iter_rows()}
        text.append({**dict(zip(keys, map(str, key), strict=True)), **counts})
    shown = _text(text)
    notes = (
        "Policies under which Base solves at least as many questions as RL, of those that both were sampled under; a"
        f" column per number of samples N. In parentheses without RL's default policy. {READOUTS}",
    )
    return Table(data, shown, _blocks(shown, "pair", "benchmark"), notes=notes)


def _named(cell: Cell, frame: pl.DataFrame) -> pl.DataFrame:
    return frame.select(pl.lit(cell.pair).alias("pair"), pl.lit(cell.benchmark).alias("benchmark"), pl.all())


def recovery_summary(cells: Sequence[Cell], default_policy: str, readout: str = "prefix") -> Table:
    """One row per pair, benchmark and metric: how far RL leads, whether Base reaches it, and where.

    Gaps are Base minus RL under the default policy at the smallest and the largest budget; the recovery gap is RL minus
    the upper edge of Base, at the budget where it is largest; paths give the Base budgets, in the order of the RL's.
    """
    rows = [_summary(cell, metric, default_policy, readout) for cell in cells for metric in METRIC_NAMES]
    data = pl.DataFrame(rows, infer_schema_length=None)
    text = [_summary_text(row) for row in data.iter_rows(named=True)]
    return Table(data, _text(text), _blocks(data, "pair", "benchmark"), notes=(*SUMMARY_NOTES, *_pools(cells)))


SUMMARY_NOTES = (
    "Gap at N: Base − RL under RL's default policy, percentage points (pp); ahead: policies under which Base solves at"
    " least as many questions as RL; inside: RL budgets at which RL lies in Base's support region.",
    "Recovery gap: RL − the best of Base under any policy with at most b samples, pp, at the budget b where it is"
    " largest: at or below 0 Base reaches RL at every b. That b was chosen is not allowed for.",
    "Closest, monotone N: samples of Base at the points of either path, one per RL budget.",
    f"Brackets: paired bootstrap over questions {LEVEL}. That of a gap has no width where no question differs; that"
    " of the recovery gap allows for differences that were not seen and, in its upper end, for the best being chosen.",
)


def _pools(cells: Sequence[Cell]) -> tuple[str, ...]:
    if not any(cell.searched for cell in cells):
        return ()
    return (
        "Pool: AR, Base under autoregressive policies alone; full, under searches too. Inside, recovery gap and paths"
        " are over the pool, so rows of different pools are not to be compared.",
    )


def _summary(cell: Cell, metric: str, default_policy: str, readout: str) -> dict[str, object]:
    chosen: dict[str, str | int] = {"metric": metric, "readout": readout}
    support = pick(cell.support, **chosen).sort("gap", descending=True, nulls_last=True, maintain_order=True)
    pool = "full" if cell.searched else "ar"
    row: dict[str, object] = {"pair": cell.pair, "benchmark": cell.benchmark, "pool": pool, "metric": metric}
    budgets = sorted(support["budget"].to_list())
    for which, budget in (("first", budgets[0]), ("last", budgets[-1])):
        at = {**chosen, "budget": budget}
        gap, lo, hi = _row(pick(cell.same_policy, **at, policy=default_policy), "gap", "lo", "hi")
        ahead, policies = _row(pick(cell.counts, **at), "ahead", "policies")
        row |= {f"{which}_budget": budget, f"gap_{which}": gap, f"gap_{which}_lo": lo, f"gap_{which}_hi": hi}
        row |= {f"ahead_{which}": ahead, f"policies_{which}": policies}
    row |= {"inside": support["inside"].cast(pl.UInt32).sum(), "budgets": support.height}
    widest = _row(support, "budget", "gap", "gap_lo", "gap_hi")
    row |= dict(zip(("recovery_budget", "recovery_gap", "recovery_lo", "recovery_hi"), widest, strict=True))
    for kind in ("closest", "monotone"):
        steps = (
            pick(cell.path, metric=metric, kind=kind).sort("target_budget").select("target_budget", "policy", "budget")
        )
        row |= {kind: "; ".join(f"{target}: {policy} at {n}" for target, policy, n in steps.iter_rows())}
    return row


def _row(frame: pl.DataFrame, *columns: str) -> tuple[Any, ...]:
    """The first row, or nothing in every column."""
    return frame.select(columns).row(0) if frame.height else (None,) * len(columns)


def _summary_text(row: Mapping[str, Any]) -> dict[str, str]:
    text = {"pair": row["pair"], "benchmark": row["benchmark"], "pool": POOLS[row["pool"]]}
    text["metric"] = METRIC_NAMES[row["metric"]]
    for which in ("first", "last"):
        interval = (row[f"gap_{which}"], row[f"gap_{which}_lo"], row[f"gap_{which}_hi"])
        ahead, policies = row[f"ahead_{which}"], row[f"policies_{which}"]
        text[f"gap at {row[f'{which}_budget']}"] = _percent(*interval, sign="+")
        text[f"ahead at {row[f'{which}_budget']}"] = "" if policies is None else f"{ahead}/{policies}"
    text["inside"] = f"{row['inside']}/{row['budgets']}"
    gap = _percent(row["recovery_gap"], row["recovery_lo"], row["recovery_hi"], sign="+")
    text["largest recovery gap"] = f"{gap} at {row['recovery_budget']}" if gap else ""
    for kind in ("closest", "monotone"):
        text[f"{kind} N"] = " ".join(step.rsplit(" ", 1)[-1] for step in row[kind].split("; "))
    return text


def recovery_paths(cells: Sequence[Cell]) -> Table:
    """One row per step of each path: the RL budget, the Base operating point chosen for it, and the residual."""
    columns = ["pair", "benchmark", "metric", "kind", "target_budget", "target", "policy", "budget", "value", "error"]
    data = pl.concat(_named(cell, cell.path) for cell in cells).select(columns)
    text = [
        {
            "pair": row["pair"],
            "benchmark": row["benchmark"],
            "metric": METRIC_NAMES[row["metric"]],
            "path": row["kind"],
            "RL budget": str(row["target_budget"]),
            "RL": _percent(row["target"]),
            "policy": row["policy"],
            "N": str(row["budget"]),
            "Base": _percent(row["value"]),
            "residual": _percent(row["error"], sign="+"),
        }
        for row in data.iter_rows(named=True)
    ]
    notes = (
        "Questions solved in %. Closest: at each RL budget the Base point that solves nearest as many; monotone: the"
        " path of least error whose N never falls. Residual: Base − RL, percentage points.",
    )
    return Table(data, _text(text), _blocks(data, "pair", "benchmark", "metric", "kind"), notes=notes)


def udf_cost(cost: pl.DataFrame, models: Mapping[str, str]) -> Table:
    """What sampling cost: a row per channel (autoregressive, or one controller of searches, on one model), and a total.

    Parameters
    ----------
    cost : DataFrame
        One row per shard: checkpoint, benchmark, policy, controller, rows, tokens, generated, requests, prefilled,
        reused, mean_running, wall_seconds, device, device_count (``pipeline.costs``). A shard appears once, under the
        policy that it was sampled for: policies that resolve to the same generation share its shards and cost nothing
        more. A run is one such generation, however many shards it has.
    models : mapping
        Checkpoint to what the table calls it, such as ``Base``; its order is that of the rows.

    Notes
    -----
    Returned tokens are those of the samples, generated ones all that were drawn. A shared sample of a tree is returned
    in full on every path through it and generated once, so a tree may return more than it generates. Of the tokens of
    prompts and prefixes that an engine was asked to go on from, ``reused`` is the share that it did not compute again.
    The mean running batch is over steps, that is generated tokens by steps. A sum or mean over shards of which one does
    not tell is null, and so is every ratio of nothing.
    """
    searched = pl.col("controller") != "autoregressive"
    model = pl.col("checkpoint").replace_strict(models, default=None, return_dtype=pl.String)
    named = cost.with_columns(
        channel=pl.when(searched)
        .then(pl.format("Search-{} ({})", model, "controller"))
        .otherwise(pl.format("AR-{}", model))
    ).drop_nulls("channel")
    order = {name: i for i, name in enumerate(models.values())}
    rank = pl.col("checkpoint").replace_strict({c: order[m] for c, m in models.items()}, return_dtype=pl.Int64)
    named = named.sort(searched, rank, maintain_order=True)
    data = pl.concat(
        [
            *(_spent(part, str(name)) for (name,), part in named.group_by("channel", maintain_order=True)),
            _spent(named, "total"),
        ]
    ).fill_nan(None)
    text = [
        {"channel": row["channel"], **{shown: _amount(row[key]) for key, shown in COST_COLUMNS.items()}}
        for row in data.iter_rows(named=True)
    ]
    silent = named.select(pl.any_horizontal(pl.col("prefilled", "mean_running").is_null()).sum()).item()
    notes = [COST_NOTE]
    if silent:
        notes.append(f"{silent} of {named.height} shards tell nothing of prefixes or running batches.")
    return Table(data, _text(text), (data.height - 1,), notes=tuple(notes))


COST_NOTE = (
    "A run: one policy on one benchmark, counted where it was sampled; pairs that share a checkpoint share its rows."
    " (M): millions of tokens; reused: share of the tokens of prompts and prefixes that was not computed again;"
    " running: mean texts at a time; wall h, GPU h: of sampling alone."
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


def _spent(part: pl.DataFrame, channel: str) -> pl.DataFrame:
    """One row of the cost table."""
    gpu = pl.col("device").str.to_lowercase().str.contains_any(list(GPU_DEVICES))
    hours, steps = pl.col("wall_seconds") / 3600, pl.col("generated") / pl.col("mean_running")
    generated, prefixes = _whole("generated"), _whole("prefilled") + _whole("reused")
    return part.select(
        channel=pl.lit(channel),
        runs=pl.struct("checkpoint", "benchmark", "policy").n_unique(),
        samples=pl.col("rows").sum(),
        returned_M=pl.col("tokens").sum() / 1e6,
        generated_M=generated / 1e6,
        reused=_whole("reused") / prefixes,
        requests_per_sample=_whole("requests") / pl.col("rows").sum(),
        mean_running=pl.when(steps.is_null().any()).then(None).otherwise(pl.col("generated").sum() / steps.sum()),
        tokens_per_second=generated / pl.col("wall_seconds").sum(),
        wall_h=hours.sum(),
        gpu_h=pl.when(gpu).then(hours * pl.col("device_count")).otherwise(0.0).sum(),
    )


def _whole(column: str) -> pl.Expr:
    """The sum; null where a part is unknown."""
    return pl.when(pl.col(column).is_null().any()).then(None).otherwise(pl.col(column).sum())


def _amount(value: float | None) -> str:
    """Whole numbers as they are, others with three significant digits."""
    if value is None:
        return ""
    if isinstance(value, int) or value == 0:
        return f"{value:.0f}"
    return f"{value:.{max(0, 2 - math.floor(math.log10(abs(value))))}f}"


def intervals(widths: pl.DataFrame) -> Table:
    """How wide the 95% intervals are: the median half-width over policies, a column per budget.

    Parameters
    ----------
    widths : DataFrame
        checkpoint, benchmark, metric, readout, budget, questions, half_width (a proportion).
    """
    keys = ["checkpoint", "benchmark", "metric", "readout", "questions"]
    text = []
    for key, rows in widths.group_by(*keys, maintain_order=True):
        values = {str(n): _percent(half) for n, half in rows.sort("budget").select("budget", "half_width").iter_rows()}
        text.append({**dict(zip(keys, map(str, key), strict=True)), **values})
    shown = _text(text)
    notes = (
        f"Half-width of the intervals {LEVEL}, percentage points, median over policies; a column per number of samples"
        f" N. {READOUTS}",
    )
    return Table(widths, shown, _blocks(shown, "checkpoint"), notes=notes)
