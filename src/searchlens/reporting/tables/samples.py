"""Where the samples of a study come from, what they took, how they ended, and whether chains have mixed."""

from __future__ import annotations

import math
from collections.abc import Iterator

import polars as pl

from searchlens.analysis.health import RHAT, RISE, Health, cut_off, known_sum, percent, unmixed
from searchlens.analysis.health import mixing as mixed
from searchlens.catalogue import table
from searchlens.reporting.tables import table as fmt
from searchlens.reporting.tables.study import StudyContext
from searchlens.store.columns import HEALTH
from searchlens.store.provenance import JOINED

_KEYS = ("devices", "engines", "hosts", "versions", "commits", "configs")
_SHORT = 12
"""Printed digits of a commit."""
_SCHEMA = {
    "checkpoint": pl.String(),
    "shards": pl.Int64(),
    "samples": pl.Int64(),
    "generated_M": pl.Float64(),
    **dict.fromkeys(_KEYS, pl.String()),
    "wall_h": pl.Float64(),
    "gpu_h": pl.Float64(),
}


@table("provenance", stage="study")
def provenance(context: StudyContext) -> fmt.Table:
    """One row per checkpoint that was sampled: machines, versions, configurations and time."""
    rows = [
        {
            "checkpoint": checkpoint,
            "shards": spent["shards"],
            "samples": spent["samples"],
            "generated_M": spent["generated"] / 1e6,
            **{key: JOINED.join(spent[key]) for key in _KEYS},
            "wall_h": spent["wall_seconds"] / 3600,
            "gpu_h": spent["gpu_seconds"] / 3600,
        }
        for checkpoint, spent in context.spent.items()
    ]
    data = pl.DataFrame(rows, _SCHEMA)
    text = data.select(
        "checkpoint",
        pl.col("shards", "samples").cast(pl.String),
        _three("generated_M").alias("generated (M)"),
        device="devices",
        engine="engines",
        host="hosts",
        searchlens="versions",
        commit=pl.col("commits").map_elements(_short, pl.String),
        configuration="configs",
        **{"wall h": _three("wall_h"), "GPU h": _three("gpu_h")},
    )
    made = context.made
    versions = ", ".join(f"{name} {number}" for name, number in made["versions"].items())
    commit = f", commit {_short(made['commit'])}" if made["commit"] else ""
    note = f"Tables: {versions}{commit}; configuration {made['config']}; on {made['host']}, {made['finished']}."
    return fmt.Table(data, [fmt.Part(text)], [note])


def _three(column: str) -> pl.Expr:
    """Numbers with three significant digits."""
    return pl.col(column).map_elements("{:.3g}".format, pl.String)


def _short(commits: str) -> str:
    """The commits with their first digits only; what follows a hyphen, such as "dirty", stays."""
    parts = (commit.partition("-") for commit in commits.split(JOINED))
    return JOINED.join(f"{digits[:_SHORT]}{hyphen}{suffix}" for digits, hyphen, suffix in parts)


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
def udf_cost(context: StudyContext) -> fmt.Table:
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
    notes = [COST_NOTE, *_unrecorded(costs, context)]
    return fmt.Table(data, [fmt.part(lines, rule_before=(data.height - 1,))], notes)


def _unrecorded(costs: pl.DataFrame, context: StudyContext) -> Iterator[str]:
    """What is not known of the costs, and what power sampling did not have to draw."""
    unrecorded = costs.select(pl.any_horizontal(pl.col("prefilled", "mean_running").is_null()).sum()).item()
    if unrecorded:
        yield f"{unrecorded} of {costs.height} shards have no record of prefixes or running batches."
    if cells := context.without_costs:
        what = "1 cell was recorded without its" if cells == 1 else f"{cells} cells were recorded without their"
        yield f"{what} costs, which are not in this table."
    proposed, accepted, early = (int(context.chains[name].sum()) for name in ("proposed", "accepted", "rejected_early"))
    if proposed != accepted:
        yield (
            f"Power sampling rejected {proposed - accepted:,} of {proposed:,} proposals, {early:,} of them before their"
            " end; of these, only what was drawn is counted."
        )


def _with_channel(context: StudyContext) -> pl.DataFrame:
    """The costs with the channel of each shard: autoregressive ones first, then in the order of the models."""
    models = context.models
    searched = pl.col("controller") != "autoregressive"
    model = pl.col("checkpoint").replace_strict(models, default=None, return_dtype=pl.String)
    search, autoregressive = pl.format("Search-{} ({})", model, "controller"), pl.format("AR-{}", model)
    costs = context.costs.with_columns(channel=pl.when(searched).then(search).otherwise(autoregressive))
    last = {name: i for i, name in enumerate(models.values())}
    place = model.replace_strict(last, return_dtype=pl.Int64)
    return costs.drop_nulls("channel").sort(searched, place, maintain_order=True)


def _total(costs: pl.DataFrame, channel: str) -> pl.DataFrame:
    """One row of the cost table: these shards together."""
    on_gpu = pl.col("device").str.to_lowercase().str.contains_any(list(GPU_DEVICES))
    hours, steps = pl.col("wall_seconds") / 3600, pl.col("generated") / pl.col("mean_running")
    generated, prefixes = known_sum("generated"), known_sum("prefilled") + known_sum("reused")
    return costs.select(
        channel=pl.lit(channel),
        runs=pl.struct("checkpoint", "benchmark", "policy").n_unique(),
        samples=pl.col("rows").sum(),
        returned_M=pl.col("tokens").sum() / 1e6,
        generated_M=generated / 1e6,
        reused=known_sum("reused") / prefixes,
        requests_per_sample=known_sum("requests") / pl.col("rows").sum(),
        mean_running=pl.when(steps.is_null().any()).then(None).otherwise(pl.col("generated").sum() / steps.sum()),
        tokens_per_second=generated / pl.col("wall_seconds").sum(),
        wall_h=hours.sum(),
        gpu_h=pl.when(on_gpu).then(hours * pl.col("device_count")).otherwise(0.0).sum(),
    )


def _amount(value: float | None) -> str:
    """Whole numbers as they are, others with three significant digits; nothing for None."""
    if not value or isinstance(value, int):
        return "" if value is None else f"{value:.0f}"
    return f"{value:.{max(0, 2 - math.floor(math.log10(abs(value))))}f}"


# ---- health

HEALTH_NOTES = (
    "Finished texts: those that are not known to be cut off. Cut off: ended by the token limit. Unknown end: imported"
    " without a finish. Unknown verdicts: share of answers whose comparison reached a limit; they count as wrong."
    " Failed: samples of searches that failed. Kept, withdrawn: texts that end in an open box behind a closed one,"
    " which repeats it or takes it back. Unsolved: questions that no sample of the cell solves. Unknown: not"
    " recorded, as in recorded counts.",
    "Not interpretable: hardly any sample has an answer, or hardly any verdict is known, in the whole cell or under"
    " RL's default policy; a pair, too, of which neither side solves a question. Its numbers stay in the CSV files and"
    " enter means; verdicts on it are not printed. The limits are the section health of the configuration.",
)


@table("health", stage="study")
def health(context: StudyContext) -> fmt.Table:
    """One row per cell, Base and RL apart: shares of its samples, and what is wrong with them."""
    counts = {name: kind for name, kind in HEALTH.items() if name != "policy"}
    schema = {**dict.fromkeys(("checkpoint", "benchmark", "health", "reason"), pl.String()), **counts}
    rows = [
        {"checkpoint": checkpoint, "benchmark": benchmark, "health": cell.level, "reason": cell.reason or None}
        | {name: cell.counts[name] for name in counts}
        for (checkpoint, benchmark), cell in context.health.items()
    ]
    lines = [_ended(*names, cell) for names, cell in context.health.items()]
    notes = [
        f"{'/'.join(names)}: {cell.level}: {cell.reason}." for names, cell in context.health.items() if cell.reason
    ]
    return fmt.Table(pl.DataFrame(rows, schema), [fmt.block(lines, "checkpoint")], [*notes, *HEALTH_NOTES])


def _ended(checkpoint: str, benchmark: str, cell: Health) -> fmt.Line:
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
        "cut off": cut_off(counts),
        "unknown end": percent(counts["unknown_end"], samples),
        "unknown verdicts": percent(counts["unknown"], answered),
        "failed": percent(counts["failed"], samples),
        "kept": percent(counts["kept"], samples),
        "withdrawn": percent(counts["withdrawn"], samples),
        "unsolved": f"{counts['unsolved']} of {counts['questions']}",
    }


# ---- chains

MIXING_NOTE = (
    "R-hat compares log p of texts between the chains of a question with its spread within a chain: 1 if they have"
    f" mixed, not mixed above {RHAT}. Rise: log p after all steps minus after half of them; not mixed above"
    f" {RISE:.0f} standard errors. Both can show that chains have not mixed, never that they have. Changed:"
    " share of steps that changed the text. Recorded samples have no such record."
)


@table("mixing", stage="study")
def mixing(context: StudyContext) -> fmt.Table:
    """One row per cell and policy of power sampling."""
    data = mixed(context.chains)
    lines: list[fmt.Line] = [
        {
            **{name: row[name] for name in ("checkpoint", "benchmark", "policy")},
            "chains": f"{row['chains']:,}",
            "accepted": f"{row['accepted']:.2f}",
            "changed": f"{row['changed']:.3f}",
            "rise (nats)": f"{row['rise']:+.2f}" + (f" ± {row['rise_error']:.2f}" if row["rise_error"] else ""),
            "R-hat": _ratio(row["rhat"]),
            "mixed": row["verdict"],
        }
        for row in data.iter_rows(named=True)
    ]
    if not lines:
        return fmt.Table(data, [], ["No samples of power sampling with a record of their chains."])
    return fmt.Table(data, [fmt.block(lines, "checkpoint", "benchmark")], [*unmixed(data), MIXING_NOTE])


def _ratio(value: float | None) -> str:
    if value is None:
        return ""
    return "no chain moved" if math.isinf(value) else f"{value:.2f}"
