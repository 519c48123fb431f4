"""What distinguishes the variants of the rule, and what each reaches."""

from __future__ import annotations

import polars as pl

from searchlens.catalogue import table
from searchlens.reporting.boptr.context import (
    BY_REGIME,
    CORRECTED,
    ERROR,
    BoptrContext,
    Means,
    block,
    brackets,
    reasons,
    single_pair,
)
from searchlens.reporting.tables import format as fmt
from searchlens.reporting.tables.table import Table


@table("rule_variants", stage="boptr")
def rule_variants(context: BoptrContext) -> Table:
    """What distinguishes the variants, and what each reaches."""
    variants = context.frames["rule_variants"]
    rows = context.frames["means"].filter(scope="variants", exponents="paper")
    descriptions = [
        {"rule": row["rule"], **{name: row[name] for name in ("state", "parameters", "use", "interpretation")}}
        for row in variants.iter_rows(named=True)
    ]
    means = Means(context, rows, BY_REGIME, "all cells")
    line_by_key = means.lines()
    keys = [key for row in variants.iter_rows(named=True) for key in (row["tier"], row["tier_anchor"])]
    measured = {key: line_by_key[key] for key in keys if key in line_by_key}
    notes = [
        f"Lower block: mean over the fitted cells of a regime. {ERROR}",
        brackets(context.options),
        CORRECTED,
        "Each variant is measured at two levels of information: an offset from each model's own pair, or the anchor's"
        " scale alone. Oracles read the curve that they are scored on; v8-H has no formula and is not evaluated.",
        "v6 and v7 have no formula in print: docs/rule-variants.md defines the ones that are measured here. The first"
        " finish (T) that they choose policies by is read from the first n samples.",
        *means.pool_note(),
        *single_pair(context.plan),
        *reasons(rows),
    ]
    parts = [
        fmt.part(descriptions, "variants"),
        block(measured, "measured with the paper's exponents, AR pool"),
        *means.full_pool(),
    ]
    return Table(_variants_data(variants, rows), parts, notes)


def _variants_data(variants: pl.DataFrame, means: pl.DataFrame) -> pl.DataFrame:
    """Every variant with its means, then those that are also measured with the anchor's scale alone, with theirs."""
    anchored = variants.filter(pl.col("tier_anchor").is_not_null()).drop("tier").rename({"tier_anchor": "tier"})
    joined = [frame.join(means, on="tier", how="left", maintain_order="left") for frame in (variants, anchored)]
    return pl.concat(joined, how="diagonal_relaxed").drop("tier_anchor", "scope")
