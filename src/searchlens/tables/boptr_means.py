"""Tables of errors, cut from the frame of means: rows are tiers, columns are sets of cells.

Rows of the full pool stand in blocks of their own and are never mixed with autoregressive ones. The first blocks hold
the paper's exponents; a later one holds the rows that change with the cohort's own.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import polars as pl

from searchlens.boptr.cohort import CohortPlan
from searchlens.boptr.options import REGIMES, BoptrOptions
from searchlens.tables import _format as f
from searchlens.tables._format import Frames, Line, Row, Study
from searchlens.tables._table import DASH, Part, Table

CORRECTED = ("H3", "H6", "H7", "V1", "V2")
"""Rows that print the bias-corrected value too: chosen on the curve that they are scored on, or copied from one."""
FULL_POOL = "full pool (expanded policies included); not comparable with the rows of the AR pool"
OVERALL = ("macro", "micro", "matched macro", "matched micro")
OVERALL_NOTE = (
    "macro: mean of the models' means; micro: mean over cells; matched: over the cells that every row shares, rivals"
    " and base-only rows left out of that condition, and only these compare rows."
)


def _cell(row: Row) -> str:
    text = f.number(row["error"])
    if text == DASH:
        return text
    if row["tier"] in CORRECTED and row["corrected"] is not None:
        text += f" ({f.number(row['corrected'])})"
    if row["lo"] is None:
        return text
    return f"{text} [{f.number(row['lo'])}, {f.number(row['hi'])}]"


def _lines(
    rows: pl.DataFrame, columns: Mapping[str, str], count: str, labels: Mapping[str, str] | None = None
) -> dict[str, Line]:
    """A line for each tier: ``columns`` by their headings, the number of cells behind ``count``, the RL used."""
    lines = {}
    for (tier,), group in rows.group_by("tier", maintain_order=True):
        cells = {row["column"]: row for row in group.iter_rows(named=True)}
        first = next(iter(cells.values()))
        line = {"row": (labels or {}).get(str(tier), first["label"])}
        line |= {shown: _cell(cells[column]) if column in cells else DASH for column, shown in columns.items()}
        if count in cells:
            line["cells"] = f.of(cells[count]["cells"], cells[count]["of"])
        lines[str(tier)] = line | {"RL used": first["rl"]}
    return lines


def _defined(rows: pl.DataFrame) -> bool:
    return bool(rows["error"].is_not_null().any())


def _known(rows: pl.DataFrame, columns: Mapping[str, str]) -> dict[str, str]:
    """The columns in which any row is defined."""
    known = rows.filter(pl.col("error").is_not_null())["column"].to_list()
    return {column: shown for column, shown in columns.items() if column in known}


def _part(lines: Mapping[str, Line], title: str, breaks: Collection[str] = ()) -> Part:
    keys = list(lines)
    return f.part(list(lines.values()), title, tuple(i for i, key in enumerate(keys) if i and key in breaks))


def _full(
    rows: pl.DataFrame, columns: Mapping[str, str], count: str, labels: Mapping[str, str] | None = None
) -> list[Part]:
    """The block of the full pool, where any cell has one."""
    full = rows.filter(pool="full", exponents="paper")
    if not _defined(full):
        return []
    return [_part(_lines(full, _known(full, columns), count, labels), FULL_POOL)]


def _own(rows: pl.DataFrame, columns: Mapping[str, str], count: str, labels: Mapping[str, str] | None = None) -> Part:
    """The rows of the AR pool that the cohort's own exponents change."""
    keys = ["tier", "column"]
    paper, own = (rows.filter(pool="ar", exponents=which) for which in ("paper", "own"))
    both = own.join(paper.select(*keys, paper="error"), on=keys, how="left")
    changed = both.filter(pl.col("column").is_in(list(columns)), pl.col("error") != pl.col("paper"))
    tiers = changed["tier"].unique().to_list()
    return _part(
        _lines(own.filter(pl.col("tier").is_in(tiers)), columns, count, labels),
        "the cohort's own exponents: rows that differ",
    )


def _own_parts(
    rows: pl.DataFrame, columns: Mapping[str, str], count: str, labels: Mapping[str, str] | None = None
) -> tuple[list[Part], list[str]]:
    found = _own(rows, columns, count, labels)
    if len(found.text.columns) == 1:
        return [], ["With the cohort's own exponents every row is the same."]
    return [found], []


def _pool_note(rows: pl.DataFrame) -> list[str]:
    if _defined(rows.filter(pool="full")):
        return []
    return ["No cell has an expanded pool: every row is of the AR pool."]


# ---- horizontal


def horizontal(study: Study) -> Table:
    """The anchor model on every benchmark; the other models in the CSV."""
    means = study.frames["means"].filter(pl.col("scope").str.starts_with("horizontal/"))
    rows = means.filter(scope=f"horizontal/{study.plan.anchor_model}")
    paper = rows.filter(exponents="paper", pool="ar")
    fitted = {name: study.plan.title(name) for name in study.plan.with_role("fitted")}
    main = fitted | {"mean": "mean", "matched mean": "matched mean"}
    held_out = {name: study.plan.title(name) for name in study.plan.with_role("held_out")}
    lines = _beside_h5(
        _lines(paper, main, "mean"), _replications(study.frames, fitted) | _beyond(study.frames, study.plan, fitted)
    )
    more = []
    if held_out:
        columns = held_out | {"held-out mean": "mean"}
        more.append(_part(_lines(paper, columns, "held-out mean"), "held-out benchmarks, AR pool", f.RIVALS[:1]))
    both = main | ({"held-out mean": "held-out mean"} if held_out else {})
    more += [*_full(rows, both, "mean"), *_null_part(study.frames["nulls"], paper)]
    own, same = _own_parts(rows, both, "mean")
    notes = [
        f"Rows: what predicts the RL curve of {study.plan.anchor_model} on the benchmark. {f.ERROR}",
        f.brackets(study.options),
        f.UPWARD,
        "matched mean: over the benchmarks that every row but V5b and the rivals defines; a mean is over those of its"
        " cells in which the row is defined (column cells).",
        "H6 and H7 read the RL curve that they are scored on: ceilings, not comparators.",
        *_null_note(study.frames["nulls"]),
        *_replication_notes(study.frames),
        "b > max(B): the frozen rule at the larger budgets alone, nothing fitted or selected anew.",
        *f.contrast_notes(study.frames["contrasts"], "anchor", "H5", paper["tier"].unique()),
        *same,
        *_pool_note(rows),
        *f.single_pair(study.plan),
        *f.reasons(rows, study.frames["extension"].filter(model=study.plan.anchor_model), study.frames["seed_summary"]),
    ]
    return Table(
        _horizontal_data(study.frames, study.plan, means),
        f.text_frame(list(lines.values())),
        tuple(i for i, key in enumerate(lines) if key == f.RIVALS[0]),
        "fitted benchmarks, AR pool",
        (*more, *own),
        tuple(notes),
    )


def _beside_h5(lines: dict[str, Line], added: Mapping[str, Line]) -> dict[str, Line]:
    """Lines about H5 go under it and V5b."""
    marked = {**lines, "V5b": {**lines["V5b"], "row": f"→ {lines['V5b']['row']}"}} if "V5b" in lines else lines
    last = "V5b" if "V5b" in lines else "H5"
    out: dict[str, Line] = {}
    for key, line in marked.items():
        out[key] = line
        if key == last:
            out |= {name: {**row, "RL used": lines["H5"]["RL used"]} for name, row in added.items()}
    return out


READINGS = {"fixed_pi": "fixed π̂", "full_rule": "full rule"}


def _replications(frames: Frames, fitted: Mapping[str, str]) -> dict[str, Line]:
    lines = {}
    for (reading,), group in frames["seed_summary"].group_by("reading", maintain_order=True):
        line = {"row": f"→ replication, {READINGS[str(reading)]}"}
        for row in group.iter_rows(named=True):
            line[fitted.get(row["benchmark"], "mean")] = spread(row["mean"], row["sd"])
        lines[f"replication {reading}"] = line
    return lines


def spread(mean: float | None, sd: float | None) -> str:
    """Such as ``1.96 ± 0.84``."""
    return f.number(mean) if mean is None or sd is None else f"{f.number(mean)} ± {f.number(sd)}"


def _replication_notes(frames: Frames) -> list[str]:
    batches = frames["seed_summary"]["batches"].drop_nulls().to_list()
    if not any(batches):
        return ["Replication: nothing was sampled a second time."]
    return [
        f"Replication: mean ± sd (ddof 1) over {max(batches)} batches of Base samples against the same RL curve; the"
        " mean column averages the benchmarks within each batch first. Fixed π̂ keeps the policy of the main batch,"
        " the full rule selects anew. Table seed_replication has every batch."
    ]


def _beyond(frames: Frames, plan: CohortPlan, fitted: Mapping[str, str]) -> dict[str, Line]:
    line = {"row": f"→ frozen rule at b > {max(plan.budgets)}"}
    for row in frames["extension"].filter(model=plan.anchor_model).iter_rows(named=True):
        shown = "mean" if row["benchmark"] is None else fitted.get(row["benchmark"])
        if shown:
            line[shown] = f.interval(row["error"], row["lo"], row["hi"])
    return {"beyond": line}


def _null_part(nulls: pl.DataFrame, rows: pl.DataFrame) -> list[Part]:
    """The mismatched null of a table's rows, a column for each."""
    shown = nulls.filter(pl.col("tier").is_in(rows["tier"].unique().to_list()), pl.col("p").is_not_null())
    found = list(shown.iter_rows(named=True))
    digits = {"error": ("true pairing", 2), "null_mean": ("mismatched, mean", 2), "p": ("p", 3)}
    lines = [
        {"pairing": says} | {row["tier"]: f.number(row[name], places) for row in found}
        for name, (says, places) in digits.items()
    ]
    return [f.part(lines, "mismatched null: every Base against another model's RL")] if found else []


def _null_note(nulls: pl.DataFrame) -> list[str]:
    known = nulls.filter(pl.col("p").is_not_null())
    if known.is_empty():
        return ["Mismatched null (every Base scored against another model's RL): needs a second pair."]
    first = known.row(0, named=True)
    return [
        f"Mismatched null: {first['pairings']} pairings of {first['models']} models, mean over their fitted cells, so"
        " that the true pairing need not equal the means above. p: share of pairings with an error at most the true"
        " one's."
    ]


def _horizontal_data(frames: Frames, plan: CohortPlan, means: pl.DataFrame) -> pl.DataFrame:
    model = pl.col("scope").str.strip_prefix("horizontal/").alias("model")
    nulls = frames["nulls"].select(
        "tier", exponents=pl.lit("paper"), pool=pl.lit("ar"), null_mean="null_mean", null_p="p"
    )
    h5 = {"exponents": "paper", "mu": "cohort", "tier": "H5", "kind": "rule", "pool": "ar"}
    h5["rl"] = next(iter(means.filter(tier="H5")["rl"]), "")
    fixed = [pl.lit(value).alias(name) for name, value in h5.items()]
    seeds = frames["seed_summary"].select(
        *fixed,
        pl.lit(plan.anchor_model).alias("model"),
        pl.format("replication, {}", "reading").alias("label"),
        pl.col("benchmark").alias("column"),
        pl.col("mean").alias("error"),
        "sd",
        "batches",
        "reason",
    )
    beyond = frames["extension"].select(
        *fixed,
        pl.lit("frozen rule beyond B").alias("label"),
        "model",
        pl.col("benchmark").fill_null("mean").alias("column"),
        "error",
        "lo",
        "hi",
        "budgets",
        "path",
        "reason",
    )
    main = means.select(model, pl.exclude("scope")).join(
        nulls, on=["tier", "exponents", "pool"], how="left", maintain_order="left"
    )
    return pl.concat([main, seeds, beyond], how="diagonal_relaxed")


# ---- vertical


def vertical(study: Study) -> Table:
    """Every model's mean over the fitted benchmarks, upper and lower cohort, and over all."""
    rows = study.frames["means"].filter(scope="vertical")
    paper, shown = rows.filter(exponents="paper", pool="ar"), f.heading(study.plan)
    blocks = []
    for group, says in (("upper", "upper cohort: same RL-training split"), ("lower", "lower cohort: stress")):
        members = study.plan.in_group(group)  # type: ignore[arg-type]
        if members:
            columns = {name: shown(name) for name in (*members, f"{group} mean")}
            lines = _lines(paper, columns, "")
            blocks.append(_part(lines, f"{says}, AR pool", f.RIVALS[:1]))
    overall = {name: name for name in OVERALL}
    blocks.append(_part(_lines(paper, overall, "micro"), "all models, AR pool", f.RIVALS[:1]))
    own, same = _own_parts(rows, overall, "micro")
    blocks += [*_full(rows, overall, "micro"), *_null_part(study.frames["nulls"], paper), *own]
    notes = [
        f"Rows: what predicts the RL curves of a model; columns: mean over its fitted benchmarks. {f.ERROR}",
        f.brackets(study.options),
        f.UPWARD,
        OVERALL_NOTE,
        "V1 reads the RL curve that it is scored on. V2 carries the anchor's own path of the same benchmark and is no"
        " δ = 0; V2 δ=0 is.",
        *_missing_cells(paper, "micro"),
        *_null_note(study.frames["nulls"]),
        *f.contrast_notes(study.frames["contrasts"], "cohort", "V3", paper["tier"].unique()),
        *same,
        *_pool_note(rows),
        *f.single_pair(study.plan),
        *f.reasons(rows),
    ]
    first, *more = blocks
    data = rows.drop("scope")
    return Table(data, first.text, first.rule_before, first.title, tuple(more), tuple(notes))


def _missing_cells(rows: pl.DataFrame, column: str) -> list[str]:
    known = rows.filter(pl.col("column") == column, pl.col("cells") > 0)
    found = known.filter(pl.col("cells") < pl.col("cells").max())
    told = [f"{row['label']} {row['cells']} of {row['of']}" for row in found.iter_rows(named=True)]
    return [f"Rows with fewer cells: {'; '.join(told)}. They compare with others in the matched columns only."] * bool(
        told
    )


ASSUMPTIONS = {
    "V1": "none (fit α, β, π per cell)",
    "V2": "path of the anchor, same benchmark",
    "V2-δ0": "formula shared, no offset",
    "V3": "formula + 1-D offset",
    "V5b": "formula + predicted 1-D offset",
    "Z1-N*": "α from the anchor and the saturation knee",
    "Z0-u": "α from the base@rltrain fingerprint",
}


def decomposition(study: Study) -> Table:
    """What each structural assumption costs, in macro and micro means."""
    rows = study.frames["means"].filter(scope="decomposition")
    columns = {name: name for name in OVERALL}

    def with_assumption(lines: Mapping[str, Line]) -> dict[str, Line]:
        return {
            key: {"row": line["row"], "structural assumption": ASSUMPTIONS[key], **line} for key, line in lines.items()
        }

    lines = with_assumption(_lines(rows.filter(exponents="paper", pool="ar"), columns, "micro"))
    own, same = _own_parts(rows, columns, "micro")
    notes = [
        f"Rows: tiers over the fitted cells. {f.ERROR}",
        f.brackets(study.options),
        f.UPWARD,
        OVERALL_NOTE,
        *_missing_cells(rows.filter(exponents="paper", pool="ar"), "micro"),
        "From V2 δ=0 to V3: the value of the offset. From V3 to V1: what the formula costs; V1 is fitted to the curve"
        " that it is scored on.",
        "Lower block: how the offset degrades as less RL is read. Without RL (Z0-u) is true of α alone: β and the"
        " selector's prototype come from the anchor's RL.",
        *f.contrast_notes(study.frames["contrasts"], "cohort", "V3", ASSUMPTIONS),
        *same,
        *_pool_note(rows),
        *f.single_pair(study.plan),
        *f.reasons(rows),
    ]
    main = _part(lines, "AR pool", ("Z1-N*",))
    more = (*_full(rows, columns, "micro"), *own)
    return Table(rows.drop("scope"), main.text, main.rule_before, main.title, more, tuple(notes))


ABLATION_LABELS = {"V3": "MAIN (BOPTR-P1)", "H6": "ORACLE-2D per-b (π, N)"}


def ablation(study: Study) -> Table:
    """The rule without each of its parts, by regime."""
    rows = study.frames["means"].filter(scope="ablation")
    columns = {name: name for name in (*REGIMES, "all cells")}
    cohort, without = rows.filter(mu="cohort"), rows.filter(mu="without", pool="ar")
    main = _part(
        _lines(cohort.filter(exponents="paper", pool="ar"), columns, "all cells", ABLATION_LABELS), "AR pool", ("H6",)
    )
    more = []
    if not without.is_empty():
        left_out = ", ".join(study.options.mu_without)
        more.append(
            _part(_lines(without, columns, "all cells", ABLATION_LABELS), f"μ without {left_out}, AR pool", ("H6",))
        )
    own, same = _own_parts(cohort, columns, "all cells", ABLATION_LABELS)
    notes = [
        f"Rows: variants of the rule, mean over the fitted cells of a regime. {f.ERROR}",
        f.brackets(study.options),
        f.UPWARD,
        "A1: RL default policy in place of π̂. A2: δ = 0 (as V2-δ0). A3: N = b. The selector is run anew in A2 and A3."
        " Oracles read the curve that they are scored on.",
        *_missing_cells(cohort.filter(exponents="paper", pool="ar"), "all cells"),
        *f.contrast_notes(study.frames["contrasts"], "cohort", "V3", ("A1", "V2-δ0", "A3")),
        *same,
        *_pool_note(cohort),
        *f.single_pair(study.plan),
        *f.reasons(rows),
    ]
    parts = (*more, *_full(cohort, columns, "all cells", ABLATION_LABELS), *own)
    return Table(rows.drop("scope"), main.text, main.rule_before, main.title, parts, tuple(notes))


# ---- frontier

RUNGS = {
    "Z0-u": ("0", f.YES),
    "Z0-N*": ("0", f.YES),
    "B0": ("1", f.NO),
    "V2": ("1", f.NO),
    "Z1-u": ("1", f.YES),
    "Z1-N*": ("1", f.YES),
    "V3": ("each model", f.NO),
    "V1": ("oracle", f.NO),
}
"""RL models that the row reads, and whether it reads base@rltrain."""


def frontier(study: Study) -> Table:
    """How much RL a scale needs."""
    rows = study.frames["means"].filter(scope="frontier")
    columns = {"micro": "micro", "macro": "macro", "matched micro": "matched micro"}
    rungs = rows.filter(pl.col("tier").is_in(list(RUNGS)))

    def with_rl(lines: Mapping[str, Line]) -> dict[str, Line]:
        return {
            key: {"row": line["row"], "#RL": RUNGS[key][0], "base@rltrain": RUNGS[key][1], **line}
            for key, line in lines.items()
        }

    main = _part(with_rl(_lines(rungs.filter(exponents="paper", pool="ar"), columns, "micro")), "AR pool", ("B0", "V3"))
    own, same = _own_parts(rungs, columns, "micro")
    sweeps = [
        part
        for symbol, says in (("λ", "sweep of λ (micro; λ = 0 is B0 where the prior is known)"), ("τ", "sweep of τ"))
        for part in _sweep(rows.filter(exponents="paper", pool="ar", column="micro"), symbol, says)
    ]
    notes = [
        f"Rows: how α is known, from no RL (Z0) over one anchor (B0, V2, Z1) to each model's own (V3, V1). {f.ERROR}",
        "#RL: models whose RL is read. V2 reads the anchor's RL on every benchmark, B0 and Z1 on one. No RL is true of"
        " α alone: β and the selector's prototype come from the anchor's RL in every row.",
        f"N*: the smallest budget at which Base on base@rltrain is within τ = {study.options.tau:g} of its last"
        " readout.",
        f.brackets(study.options),
        f.UPWARD,
        OVERALL_NOTE,
        *_missing_cells(rungs.filter(exponents="paper", pool="ar"), "micro"),
        _probe_note(study.frames["probe"].row(0, named=True), study.options),
        *f.contrast_notes(study.frames["contrasts"], "cohort", "V3", RUNGS),
        *same,
        *_pool_note(rungs),
        *f.single_pair(study.plan),
        *f.reasons(rows, study.frames["probe"]),
    ]
    more = (*sweeps, *_full(rungs, columns, "micro"), *own)
    return Table(rows.drop("scope"), main.text, main.rule_before, main.title, more, tuple(notes))


def _sweep(rows: pl.DataFrame, symbol: str, title: str) -> list[Part]:
    """Tiers named ``Z1-u λ=0.25`` as a row for the prior and a column for the setting."""
    lines: dict[str, Line] = {}
    for row in rows.filter(pl.col("tier").str.contains(f" {symbol}=")).iter_rows(named=True):
        prior, setting = row["tier"].rsplit(" ", 1)
        line = lines.setdefault(prior, {"row": prior})
        line[setting.replace("=", " = ")] = _cell(row)
        line["cells"] = f.of(row["cells"], row["of"])
    ordered = {
        prior: {**{k: v for k, v in line.items() if k != "cells"}, "cells": line["cells"]}
        for prior, line in lines.items()
    }
    return [_part(ordered, title)] if ordered else []


def _probe_note(row: Row, options: BoptrOptions) -> str:
    what = f"Probe (OLS of ln α_math on P_max of base@rltrain, {row['n']} models)"
    if row["slope"] is None:
        return f"{what}: not defined ({row['reason']})."
    slope = f.interval(row["slope"], row["slope_lo"], row["slope_hi"])
    r = f.interval(row["r"], row["r_lo"], row["r_hi"])
    return (
        f"{what}: ln α_math = {f.number(row['intercept'])} + P_max × {slope}; r = {r};"
        f" {options.confidence:.0%} intervals of t and of Fisher's z."
    )


# ---- beyond the fitted cohort


def coverage_models(study: Study) -> Table:
    """New models, everything frozen."""
    rows = study.frames["means"].filter(scope="new models")
    columns = {name: name for name in study.plan.in_group("new")}
    if not columns:
        return Table(rows.drop("scope"), f.text_frame([]), notes=("The cohort has no new model.",))
    labels = {"V2-δ0": "V3 pipeline, δ := 0"}
    lines = _lines(rows.filter(exponents="paper", pool="ar"), columns, "", labels)
    own, same = _own_parts(rows, columns, "", labels)
    notes = [
        f"Columns: new models, mean over their fitted benchmarks; they fit nothing but their own δ (V3). {f.ERROR}",
        f.brackets(study.options),
        "V5b is defined where the model's Base belongs to a fitted one; δ := 0 needs no calibration.",
        *same,
        *f.reasons(rows),
    ]
    return Table(rows.drop("scope"), f.text_frame(list(lines.values())), more=tuple(own), notes=tuple(notes))


def coverage_heldout(study: Study) -> Table:
    """The frozen rule (V3) on every held-out benchmark, model by model."""
    cells = study.frames["errors"].filter(tier="V3", role="held_out", pool="ar", mu="cohort")
    means = study.frames["means"].filter(scope="held out", pool="ar")
    criteria = study.frames["held_out_criterion"]
    data = _heldout_data(cells, means, criteria)
    if not study.plan.with_role("held_out"):
        return Table(data, f.text_frame([]), notes=("The cohort has no held-out benchmark.",))
    first, *more = [
        _heldout_part(cells, means, criteria, study.plan, which, study.options)
        for which in ("paper", "own")
        if which == "paper" or _differ(cells)
    ]
    notes = [
        f"Cells: V3, regimes assigned beforehand, nothing fitted on these benchmarks. {f.ERROR}",
        f.brackets(study.options),
        f"†: above {study.options.criterion:g} pp, the limit set beforehand for the mean of a benchmark."
        " Means, oracle and limit are of the fitted models. The oracle (R1 fit of the same cells) reads the curve that"
        " it is scored on.",
        *_beyond_note(criteria, study.plan),
        *f.single_pair(study.plan),
        *f.reasons(cells),
    ]
    return Table(data, first.text, first.rule_before, first.title, tuple(more), tuple(notes))


def _heldout_data(cells: pl.DataFrame, means: pl.DataFrame, criteria: pl.DataFrame) -> pl.DataFrame:
    values = ["error", "lo", "hi", "corrected", "reason"]
    return f.stacked(
        cells=cells.select("exponents", "model", "group", "benchmark", "regime", "rl", "path", "policy", *values),
        means=means.select("exponents", "tier", "rl", "column", pl.col("cells").alias("defined"), "of", *values),
        criterion=criteria.rename({"cells": "defined"}),
    )


def _differ(cells: pl.DataFrame) -> bool:
    keys = ["model", "benchmark"]
    paper, own = (cells.filter(exponents=which).select(*keys, "error") for which in ("paper", "own"))
    both = paper.join(own, on=keys)
    return bool(both["error"].ne_missing(both["error_right"]).any())


def _heldout_part(
    cells: pl.DataFrame,
    means: pl.DataFrame,
    criteria: pl.DataFrame,
    plan: CohortPlan,
    which: str,
    options: BoptrOptions,
) -> Part:
    benchmarks = plan.with_role("held_out")
    titles = {name: plan.title(name) for name in benchmarks} | {"all cells": "mean"}

    def shown(row: Row) -> str:
        mark = "†" if row["error"] is not None and row["error"] > options.criterion else ""
        return f.interval(row["error"], row["lo"], row["hi"]).replace(" ", f"{mark} ", 1)

    of_rule = {row["column"]: row for row in means.filter(tier="V3", exponents=which).iter_rows(named=True)}
    of_oracle = {row["column"]: row for row in means.filter(tier="V1", exponents=which).iter_rows(named=True)}
    lines = []
    for model in plan.models:
        found = cells.filter(exponents=which, model=model).iter_rows(named=True)
        new = " (new)" if plan.models[model].group == "new" else ""
        line = {"model": f.model_name(plan, model) + new} | {titles[row["benchmark"]]: shown(row) for row in found}
        line["mean"] = shown(of_rule[model]) if model in of_rule else DASH
        lines.append(line)
    counts = of_rule.get("all cells")
    told = {row["benchmark"] or "all cells": row for row in criteria.filter(exponents=which).iter_rows(named=True)}
    summary = [
        {"model": "benchmark mean"} | {t: shown(of_rule[c]) for c, t in titles.items()},
        {"model": "per-cell oracle"} | {t: shown(of_oracle[c]) for c, t in titles.items()},
        {"model": "gap"} | {t: f.number(told[c]["gap"]) for c, t in titles.items() if c in told},
        {"model": f"within {options.criterion:g} pp"}
        | {titles[c]: "met" if told[c]["meets"] else "not met" for c in benchmarks if c in told},
    ]
    title = "the paper's exponents" if which == "paper" else "the cohort's own exponents"
    defined = f", cells: {f.of(counts['cells'], counts['of'])}" if counts else ""
    return f.part([*lines, *summary], title + defined, (len(plan.fitted_models), len(lines)))


def _beyond_note(criteria: pl.DataFrame, plan: CohortPlan) -> list[str]:
    rows = criteria.filter(pl.col("exponents") == "paper", pl.col("benchmark").is_not_null(), pl.col("beyond") != "")
    told = [f"{plan.title(row['benchmark'])}: {row['beyond']}" for row in rows.iter_rows(named=True)]
    if told:
        return [f"Cells beyond the limit: {'; '.join(told)}."]
    return ["No cell is beyond the limit."] if criteria.height else []


# ---- rule variants


def rule_variants(study: Study) -> Table:
    """What distinguishes the variants, and what each reaches."""
    kinds = study.frames["rule_variants"]
    rows = study.frames["means"].filter(scope="variants", exponents="paper")
    columns = {name: name for name in (*REGIMES, "all cells")}
    words = [
        {"rule": row["rule"], **{name: row[name] for name in ("state", "parameters", "use", "interpretation")}}
        for row in kinds.iter_rows(named=True)
    ]
    order = [
        tier for row in kinds.iter_rows(named=True) for tier in (row["tier"], row["tier_anchor"]) if tier is not None
    ]

    found = _lines(rows.filter(pool="ar"), columns, "all cells")
    measured = {tier: found[tier] for tier in order if tier in found}
    notes = [
        f"Lower block: mean over the fitted cells of a regime. {f.ERROR}",
        f.brackets(study.options),
        "Each variant is measured at two levels of information: an offset from each model's own pair, or the anchor's"
        " scale alone. Oracles read the curve that they are scored on; v8-H has no formula and is not evaluated.",
        "v6 and v7 have no formula in print: docs/rule-variants.md defines the ones that are measured here.",
        *_pool_note(rows),
        *f.single_pair(study.plan),
        *f.reasons(rows),
    ]
    more = [_part(measured, "measured with the paper's exponents, AR pool"), *_full(rows, columns, "all cells")]
    data = kinds.join(rows, on="tier", how="left", maintain_order="left")
    anchored = kinds.filter(pl.col("tier_anchor").is_not_null()).drop("tier").rename({"tier_anchor": "tier"})
    data = pl.concat(
        [data, anchored.join(rows, on="tier", how="left", maintain_order="left")], how="diagonal_relaxed"
    ).drop("tier_anchor", "scope")
    return Table(data, f.text_frame(words), title="variants", more=tuple(more), notes=tuple(notes))
