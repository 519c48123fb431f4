"""Tables of the measures: what a cell that is not interpretable, or an extrapolation that fails, does not show."""

from collections.abc import Callable
from dataclasses import replace

import polars as pl
import pytest

import figure_data
from searchlens.analysis.extrapolation import EXTRAPOLATED, judged
from searchlens.reporting.tables.debate import debate
from searchlens.reporting.tables.measures import (
    coverage,
    exponents,
    extrapolation,
    guessing,
    joint_exponents,
    support,
    variance,
)
from searchlens.reporting.tables.study import Cell, StudyContext
from searchlens.reporting.tables.table import DASH, Table
from test_tables import study_context

WARNING = "RL: 0% of 8 samples have an answer"


@pytest.fixture(scope="module")
def context() -> StudyContext:
    frames = figure_data.cell()
    names = ("Micro math", "Micro_AIME & more")
    recovery = (frames.same_policy, frames.counts, frames.support, frames.path, frames.near_match)
    cells = [Cell("micro-1m", name, *recovery) for name in names]
    return study_context(frames, cells)


@pytest.fixture(scope="module")
def broken(context: StudyContext) -> StudyContext:
    return replace(context, cells=[replace(context.cells[0], warning=WARNING), context.cells[1]])


@pytest.mark.parametrize("make", [debate, support, coverage, variance, exponents, joint_exponents])
def test_a_cell_that_is_not_interpretable_has_no_numbers(
    make: Callable[[StudyContext], Table], context: StudyContext, broken: StudyContext
) -> None:
    """Its rows have a dash or the words, whatever was computed; the rows of other cells stay."""
    fine, marked = make(context), make(broken)
    for part, before in zip(marked.parts, fine.parts, strict=True):
        here = pl.col("benchmark") == "Micro math"
        keys = [
            name
            for name in ("pair", "benchmark", "policy", "pairs", "left out", "side", "samples", "measure", "k", "τ")
            if name in part.text.columns
        ]
        shown = {text for row in part.text.filter(here).drop(keys).rows() for text in row}
        assert shown <= {DASH, "", "not interpretable"}
        assert part.text.filter(~here).equals(before.text.filter(~here))
    assert any("health check" in note for note in marked.notes)


def test_the_table_of_exponents_says_up_to_which_n_and_whether_hardly_any_law_fits(context: StudyContext) -> None:
    """Beside the set and, in the table of the debate, among what cannot be said."""
    frame = context.measures["exponents"].with_columns(
        hardly=True, empty=False, testable=True, beta_lo=0.5, beta_hi=0.6, pool_min=16, pool_max=pl.Series([16, 64] * 2)
    )
    changed = replace(context, measures={**context.measures, "exponents": frame})
    text = exponents(changed).parts[0].text
    assert set(text["set of β"]) == {"0.50 to 0.60, hardly"}
    assert set(text["N up to"]) == {"16", "16–64"}
    assert all("β: hardly any law fits" in said for said in debate(changed).parts[0].text["cannot say"])


def test_guessing_has_the_null_of_options_and_the_wrong_key_that_was_measured(context: StudyContext) -> None:
    """The wrong-key rate of a quarter of the questions is 0 to 3 of 16 samples each; a cell without it says so."""
    shown, unknown = (part.text for part in guessing(context).parts)
    assert shown.filter(measure="guess null", k="1")["Base"][0].startswith("25.0")
    assert set(shown.filter(measure="guess null")["benchmark"]) == {"Micro_AIME & more"}
    wrong_key = shown.filter(measure="wrong_key", k="1").row(0, named=True)
    assert wrong_key["benchmark"] == "Micro math" and wrong_key["Base"].startswith("9.4 [")
    assert shown.filter(measure="pass@k", benchmark="Micro math")["k"].to_list() == ["1", "4", "16"]
    known = shown.filter(measure="wrong_key-corrected pass@k", benchmark="Micro math")
    assert known["k"].to_list() == ["1", "4", "16"] and known["RL − Base"][0][0] in "+−"
    assert any("Assumed: knowing and wrong keys are independent" in note for note in guessing(context).notes)
    assert unknown.rows() == [("micro-1m", "Micro_AIME & more", "not recorded")]


def test_debate_has_a_row_per_pair_and_benchmark(context: StudyContext) -> None:
    """Its numbers are those of the single tables."""
    table = debate(context)
    assert table.data.select("pair", "benchmark").is_unique().all() and table.data.height == 2
    row = table.data.row(0, named=True)
    whole = context.measures["support"].row(0, named=True)
    assert (row["kept"], row["shrunk"], row["expanded"]) == (whole["kept"], whole["shrunk"], whole["expanded"])
    at = context.measures["equivalents"].row(
        by_predicate=(pl.col("benchmark") == "Micro math")
        & (pl.col("policy") == context.default_policy)
        & (pl.col("budget") == 1),
        named=True,
    )
    assert (row["n1"], row["n1_lo"]) == (at["n"], at["lo"])


def extrapolated(inside: int, value: float | None = 0.9) -> pl.DataFrame:
    row = {"side": "Base", "model": "beta", "samples": 64, "k": 256, "value": value, "lo": 0.8, "hi": 0.95}
    row |= {"trial_samples": 16, "trials": 100, "inside": inside, "trial_error": -0.1}
    keys = (pl.lit("micro-1m").alias("pair"), pl.lit("Micro math").alias("benchmark"))
    return pl.DataFrame([row], EXTRAPOLATED).select(*keys, pl.all())


def printed(context: StudyContext, *rows: pl.DataFrame) -> tuple[list[str], int]:
    frames = {**context.measures, "extrapolated": judged(pl.concat(rows), 0.95)}
    measured, shown = extrapolation(replace(context, measures=frames)).parts
    return measured.text.to_series(-1).to_list(), shown.text.filter(pl.nth(0) == "micro-1m").height


def test_an_extrapolation_is_printed_only_with_the_coverage_it_claims(context: StudyContext) -> None:
    assert printed(context, extrapolated(95)) == (["printed"], 1)
    assert printed(context, extrapolated(97)) == (["printed"], 1)
    assert printed(context, extrapolated(61)) == (["not printed: measured coverage 0.61"], 0)
    assert printed(context, extrapolated(100)) == (["not printed: measured coverage 1.00"], 0)
    assert printed(context, extrapolated(90), extrapolated(100)) == (["printed"], 2), (
        "trials of a benchmark count together"
    )


def test_a_pool_without_a_fit_is_no_trial(context: StudyContext) -> None:
    """Nothing was predicted, so nothing can be trusted or refused."""
    rows = judged(pl.concat([extrapolated(95), extrapolated(0, value=None)]), 0.95)
    assert rows["coverage"].to_list() == [0.95, 0.95]
    assert judged(extrapolated(0, value=None), 0.95).select("coverage", "trusted").row(0) == (None, False)
