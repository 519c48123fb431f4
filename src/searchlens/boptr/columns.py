"""Types of the columns of BOPTR's frames: a column has the same type in every frame, but for exceptions named there."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import polars as pl
from polars.datatypes import DataTypeClass

from searchlens.boptr.rule import Reason

Columns = Mapping[str, Any]
Found = Columns | Iterable[Columns] | Reason
"""What is known of a cell: one record, several, or why there is none."""

_NAMES: dict[DataTypeClass | pl.DataType, str] = {
    pl.String: """
        model benchmark group role regime pool policy path reason budgets scope batch metric detail
        exponents mu tier label kind column first second verdict verdict_models constraint without map item claim check
        status flag severity signature decision reading branch feature scale selection head readout
    """,
    pl.Float64: """
        error lo hi lo_reselected hi_reselected corrected lo_corrected hi_corrected lo_models hi_models
        alpha alpha_lo alpha_hi boundary beta assigned own se delta delta_lo delta_hi
        alpha_min alpha_max beta_min beta_max
        difference p p_holm lo_both hi_both spread p_both p_both_holm null_mean null_lowest mean sd
        base rl rl_minus_base rl_minus_best value
        beta_q alpha_q mech_q gap gap_lo gap_hi envelope envelope_lo envelope_hi rl_lo rl_hi
        crossing_share share never tie_share
        mean_abs mean_signed chance largest p_max headroom knee p0 u log2_n_star delta_hat ridge tail largest_z
        intercept slope slope_lo slope_hi r r_lo r_hi
        pearson_r loo_pseudo_r2 loo_pseudo_r2_raw score score_raw q05 q50 q95
    """,
    pl.UInt32: "b questions models cells of differing crossing tie median triples paths policies pairings",
    pl.Int64: "n points budget batches shuffle k",
    pl.Boolean: "a_priori decides diagnostic meets_criterion overlap recoverable",
    pl.List(pl.Float64): "exact tied",
}
TYPES = {name: dtype for dtype, names in _NAMES.items() for name in names.split()}


def schema(names: str, **exceptions: DataTypeClass) -> pl.Schema:
    """The schema of a frame: its columns, separated by spaces; ``exceptions`` have another type than in ``TYPES``."""
    return pl.Schema({name: exceptions.get(name) or TYPES[name] for name in names.split()})


def records(columns: pl.Schema, cells: Iterable[tuple[Columns, Found]]) -> pl.DataFrame:
    """A frame of cells and what is known of each; a cell of which nothing is known has one record with the reason."""
    rows: list[Columns] = []
    for cell, found in cells:
        known = {"reason": found.code} if isinstance(found, Reason) else found
        rows += [{**cell, **each} for each in ([known] if isinstance(known, Mapping) else known)]
    return pl.DataFrame(rows, columns)


def by_cell(columns: pl.Schema, cells: Iterable[tuple[str, str]], find: Callable[[str, str], Found]) -> pl.DataFrame:
    """``records`` of what is found in each (model, benchmark)."""
    return records(columns, (({"model": model, "benchmark": name}, find(model, name)) for model, name in cells))
