"""What is published beside an estimate is its own interval: it contains the estimate, and it has a width.

Asked of every table and figure of simulated studies, by the names of columns, so that a new table is asked, too.
"""

import re
from collections.abc import Callable
from dataclasses import replace

import polars as pl
import pytest

import figure_data
import planted_landscapes
from drawn import prefill_of
from run_stages import built
from searchlens import catalogue
from searchlens.analysis.extrapolation import EXTRAPOLATED, judged
from searchlens.boptr.cohort import Benchmark, Cohort
from searchlens.boptr.study import study
from searchlens.config.boptr import DEFAULTS
from searchlens.reporting.boptr.context import BoptrContext
from searchlens.reporting.figures.context import Curves, Labels, PairContext
from searchlens.reporting.figures.context import StudyContext as FigureStudyContext
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
from searchlens_lab.simulate import simulate
from test_boptr_tables import BENCHMARKS, MODELS, OPTIONS, boptr_tables, design
from test_tables import study_context

ESTIMATES = {
    "lo": (
        "crossing",
        "mech_anchor",
        "mech_q",
        "mean_signed",
        "difference",
        "rl_minus_best",
        "value",
        "error",
        "gap",
        "rl_minus_base",
        "beta",
        "rl",
    ),
    "lo_corrected": ("corrected",),
    "lo_models": ("corrected",),
    "lo_both": ("corrected",),
    "crossing_lo": ("crossing",),
    "alpha_lo": ("alpha", "alpha_q"),
}
"""Lower end to its estimate, the first of these columns that the row has; of any other ``x_lo`` it is ``x``."""
OWN = {
    "regime_betas": {"lo": ("beta",)},
    "beta_robustness": {"lo": ("beta",)},
    "recovery": {"lo": ("target",)},
    "recovery_summary": {f"rl_minus_base_{which}_lo": (f"rl_minus_base_{which}",) for which in ("first", "last")},
    "budget_equivalents": {"lo": ("n", "crossing"), "band_lo": ("n",)},
    "grader_agreement": {"lo": ("disagree",)},
}
"""The same for single tables and figures."""
SETS = {("joint_exponents", "beta_lo"), ("debate", "beta_lo")}
"""Sets of exponents that were not rejected, without an estimate."""
EXACT = {"x_lo"}
"""Numbers of samples and tokens in these studies, which are known."""
NUMBER = r"[+\u2212]?(?:\d+(?:\.\d+)?|∞)"
PRINTED = re.compile(rf"({NUMBER})\u2020? \[({NUMBER})(?: or less)?, ({NUMBER})(?: or more)?\]")
SLACK = 1e-6
"""Columns of single precision."""


def wrong(name: str, frame: pl.DataFrame) -> list[str]:
    """Lower ends whose estimate lies outside, and intervals without a width; budgets are whole numbers and may agree.

    ``lo`` to ``hi`` beside a corrected value is the paper's percentile interval of the raw one. It is not printed.
    """
    found = []
    numeric = [column for column, kind in frame.schema.items() if kind.is_numeric()]
    lows = [column for column in numeric if re.fullmatch(r"lo|lo_.*|.*_lo", column)]
    for lo in lows:
        hi = "hi" + lo[2:] if lo.startswith("lo") else lo[:-2] + "hi"
        if lo in EXACT or (name, lo) in SETS or lo == "lo_reselected" or (lo == "lo" and "lo_corrected" in lows):
            continue
        names = OWN.get(name, {}).get(lo) or ESTIMATES.get(lo) or (lo[:-3],)
        present = [column for column in names if column in frame.columns]
        assert present, f"{name}: add the estimate of {lo} to OWN"
        rows = frame.select(estimate=pl.coalesce(present), lo=lo, hi=hi).drop_nulls()
        outside = (pl.col("estimate") < pl.col("lo") - SLACK) | (pl.col("estimate") > pl.col("hi") + SLACK)
        empty = pl.lit(value=False) if rows.schema["lo"].is_integer() else pl.col("lo") >= pl.col("hi")
        found += [f"{name}: {row}" for row in rows.filter(outside | empty).rows()]
    return found


def value(text: str) -> float:
    return float(text.replace("\N{MINUS SIGN}", "-").replace("∞", "inf"))


def wrong_in_print(tables: dict[str, Table]) -> list[str]:
    """Printed estimates outside of the brackets that follow them."""
    found = []
    for name, table in tables.items():
        cells = [cell for part in table.parts for row in part.text.rows() for cell in row]
        for text in (*cells, *table.notes):
            for estimate, lo, hi in PRINTED.findall(text):
                if not value(lo) <= value(estimate) <= value(hi):
                    found.append(f"{name}: {text}")
    return found


def nothing_differs() -> Cohort:
    """Base and RL solve the same questions, none on the floor: every draw repeats the sample."""
    curve, none = (20, 30, 40, 45, 50), (0, 0, 0, 0, 0)
    roles = {"math": Benchmark(regime="math"), "aime": Benchmark(regime="floor"), "gpqa": Benchmark(regime="nonmath")}
    default, other = planted_landscapes.DEFAULT, "temp_0.3"
    cells = {
        ("m", "math"): ({default: curve, other: curve}, curve),
        ("m", "aime"): ({default: none, other: none}, none),
        ("m", "gpqa"): ({default: (60,) * 5, other: (60,) * 5}, (60,) * 5),
    }
    return planted_landscapes.cohort(cells, roles)


@pytest.fixture(scope="module", params=["seed 1", "seed 2", "nothing differs"])
def cohort(request: pytest.FixtureRequest) -> tuple[dict[str, pl.DataFrame], Cohort]:
    sampled = request.param != "nothing differs"
    found = simulate(design(MODELS, BENCHMARKS), int(request.param[-1])) if sampled else nothing_differs()
    return study(found, replace(OPTIONS, draws=40, reselect=40, estimator=found.estimator)), found


@pytest.fixture(scope="module", params=[(60, 0.2), (30, -12.0)], ids=["usual", "nothing solved"])
def cell(request: pytest.FixtureRequest) -> figure_data.Cell:
    questions, ability = request.param
    return figure_data.cell(questions, names=(*figure_data.PAPER24[::4], figure_data.DEFAULT), ability=ability)


@pytest.mark.long
def test_tables_of_boptr(cohort: tuple[dict[str, pl.DataFrame], Cohort]) -> None:
    """Corrected errors, differences, rates and exponents, where questions differ and where none does."""
    frames, found = cohort
    tables = boptr_tables(frames, found.plan, replace(OPTIONS, estimator=found.estimator))
    assert [text for name, table in tables.items() for text in wrong(name, table.data)] == []
    assert wrong_in_print(tables) == []


@pytest.mark.long
def test_figures_of_boptr(cohort: tuple[dict[str, pl.DataFrame], Cohort]) -> None:
    """The CSV beside each figure."""
    frames, found = cohort
    context = BoptrContext(frames, found.plan, DEFAULTS)
    numbers = {name: figure_data.numbers(name, context) for name in catalogue.declared("figure", stage="boptr")}
    assert [text for name, frame in numbers.items() for text in wrong(name, frame)] == []


@pytest.mark.long
def test_tables_of_a_study(cell: figure_data.Cell) -> None:
    """Estimates, gaps and recovery gaps, those of questions that nobody solves included."""
    recovery = (cell.same_policy, cell.counts, cell.support, cell.path, cell.near_match)
    context = study_context(cell, [Cell("pair", "math", *recovery)])
    tables = built(catalogue.declared("table", stage="study"), context)
    assert [text for name, table in tables.items() for text in wrong(name, table.data)] == []
    assert wrong_in_print(tables) == []


@pytest.mark.parametrize("estimator", ["first_k", "unbiased"])
@pytest.mark.long
def test_figures_of_a_pair_and_of_a_study(cell: figure_data.Cell, estimator: str) -> None:
    """Under both estimators, since that of all samples has intervals from draws."""
    labels = Labels(pair="pair", benchmark="math", questions=60, estimator=estimator)
    of_pair = PairContext(labels=labels, prefill=prefill_of(cell), **vars(cell))
    of_study = FigureStudyContext([Curves(labels, cell.base, cell.rl)], figure_data.measures())
    for stage, context in (("pair", of_pair), ("study", of_study)):
        for name in catalogue.declared("figure", stage=stage):
            assert wrong(name, figure_data.numbers(name, context)) == []


def test_the_question_is_answered() -> None:
    """An estimate outside, and an interval without a width, are found; so is one in print."""
    frame = pl.DataFrame({"value": [0.5, 0.0, 0.5], "lo": [0.6, 0.0, 0.4], "hi": [0.7, 0.0, 0.6]})
    assert len(wrong("a table", frame)) == 2
    part = Table(frame, [], ["m: 1.00 [1.10, 1.20]", "m: \u22121.00 [\u22122.00, 1.20]"])
    assert wrong_in_print({"a table": part}) == ["a table: m: 1.00 [1.10, 1.20]"]


# ---- what tables of the measures do not show of a cell or an extrapolation that fails


WARNING = "RL: 0% of 8 samples have an answer"


@pytest.fixture(scope="module")
def context() -> StudyContext:
    frames = figure_data.cell()
    names = ("Micro math", "Micro_AIME & more")
    recovery = (frames.same_policy, frames.counts, frames.support, frames.path, frames.near_match)
    return study_context(frames, [Cell("micro-1m", name, *recovery) for name in names])


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
