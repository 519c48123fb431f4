"""What the paper's printed numbers (tests/data/paper) say about the formulas, asked of our own functions.

A printed value stands for everything that rounds to it. Where the paper contradicts itself the test holds the
contradiction fast: docs/reading-the-paper.md reports it.
"""

import itertools
import re
from dataclasses import asdict, astuple, fields
from decimal import ROUND_HALF_UP, Decimal
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from planted_landscapes import budget_path
from searchlens.boptr.evaluate import Constants, Evaluation, Key, Score
from searchlens.boptr.extension import means_within_batches, seed_summary
from searchlens.boptr.fit import ALPHAS, BETAS, boundary_distance
from searchlens.boptr.offsets import RIDGE, loo_score
from searchlens.boptr.rows import ROWS, Curve
from searchlens.boptr.rule import LN2
from searchlens.boptr.transfer import Column, How, Scope, cell_weights, grid, means_frame
from searchlens.config.boptr import DEFAULTS, BoptrOptions
from searchlens.config.landscape import LandscapeOptions
from searchlens.config.recovery import RecoveryOptions

FOLDER = Path(__file__).parents[1] / "data" / "paper"
BUDGETS = (1, 2, 4, 8, 16)
HALF_UNIT = 0.005 + 1e-9
SLIP = 0.01 + 1e-9
"""Means were taken of values of different precision; their last digit may be off by one."""
MODELS = ("7B", "14B", "1.5B", "Math-7B", "0.5B", "Llama", "Mistral")
QUESTIONS = {
    "Math500": 500,
    "AIME": 60,
    "GPQA": 198,
    "IFEval": 541,
    "AMC23": 40,
    "Minerva": 272,
    "OlympiadBench": 675,
    "TinyMMLU": 100,
}
FITTED, HELD_OUT = list(QUESTIONS)[:4], list(QUESTIONS)[4:]


def table(name):
    return pl.read_csv(FOLDER / f"{name}.csv")


PROSE = dict(table("prose").select("fact", "value").iter_rows())
PER_CELL = {(row["model"], row["benchmark"]): row for row in table("per_cell").iter_rows(named=True)}
VERTICAL = {row["row"]: row for row in table("vertical").iter_rows(named=True)}
HORIZONTAL = {(row["row"], row["benchmark"]): row for row in table("horizontal").iter_rows(named=True)}


def on_grid(printed):
    """The value of our alpha grid that prints as this."""
    found = [alpha for alpha in ALPHAS if abs(alpha - printed) <= HALF_UNIT]
    assert len(found) == 1, printed
    return found[0]


ALPHA = {model: on_grid(alpha) for model, alpha in table("alpha_math").select("model", "alpha").iter_rows()}
WITHOUT_MATH = [model for model in MODELS if model != "Math-7B"]


def mu(models=MODELS):
    return float(np.log([ALPHA[model] for model in models]).mean())


def delta(model, models=MODELS):
    return np.log(ALPHA[model]) - mu(models)


def path(alpha, beta=DEFAULTS.beta["math"], space="log2"):
    """The budgets as the rule rounds them; ``linear``: the nearest ones, halves up, which the paper does not print."""
    if space == "linear":
        return tuple(min(BUDGETS, key=lambda n: (abs(n - alpha * b**beta), -n)) for b in BUDGETS)
    return budget_path(alpha, beta, BUDGETS)


def counts(value, benchmark, budgets=5):
    """The error, exactly: the multiple of 100/(questions x budgets) nearest to a printed value."""
    step = 100 / (QUESTIONS[benchmark] * budgets)
    return round(value / step) * step


def is_count(value, questions, budgets=5):
    step = 100 / (questions * budgets)
    return abs(round(value / step) * step - value) <= HALF_UNIT


def test_every_printed_alpha_lies_on_the_grid():
    """Step 2^(1/5), P and Q channel; the grid reaches the printed extremes .44 and 16."""
    printed = set(table("alpha_math")["alpha"]) | set(table("q_channel")["alpha"])
    assert printed == {2.30, 2.64, 3.03, 3.48, 6.96, 0.44, 1.74, 16.0}
    assert len({on_grid(value) for value in printed}) == 8


def test_no_coarser_grid_holds_the_printed_alphas():
    """The step is forced: of 2^(k/m), m = 5 is the smallest that has them all."""
    printed = sorted(set(table("alpha_math")["alpha"]) | set(table("q_channel")["alpha"]))

    def holds(m):
        grid = 2.0 ** (np.arange(-4 * m, 5 * m) / m)
        return all(np.abs(grid - value).min() <= HALF_UNIT for value in printed)

    assert [m for m in range(1, 6) if holds(m)] == [5]


def test_every_printed_beta_lies_on_the_grid():
    """Step .1, from 0 to at least 1; the frozen exponents are those of the per-cell table."""
    printed = [*table("per_cell")["beta"], *table("q_channel")["beta"], 0.5, 0.7, 0.8]
    assert all(np.abs(np.array(BETAS) - beta).min() < 1e-9 for beta in printed)
    assert {row["regime"]: row["beta"] for row in PER_CELL.values()} == asdict(DEFAULTS.beta)


@pytest.mark.parametrize("beta", sorted(astuple(DEFAULTS.beta)))
def test_the_grid_reaches_every_path_within_its_range(beta):
    """exp(mu + delta) lies between grid points; the oracle that searches the grid is a lower bound all the same."""
    reached = {path(alpha, beta) for alpha in ALPHAS}
    assert {path(alpha, beta) for alpha in np.geomspace(ALPHAS[0], ALPHAS[-1], 2801)} == reached


def test_the_printed_r1_exponent_and_the_regime_exponent_give_one_path():
    """R1 prints beta .70 on the anchor, the regime has .60; H5 = H7 there, interval and all, needs equal budgets."""
    assert path(2**1.4, 0.6) == path(2**1.2, 0.7) == path(2**1.0, 0.8) == (2, 4, 8, 8, 16)
    for end in ("value", "lo", "hi"):
        assert HORIZONTAL["H5", "Math500"][end] == HORIZONTAL["H7", "Math500"][end]


def test_printed_offsets_need_the_mean_over_seven_models():
    """delta of the anchor and of DS-Math; leaving Math-7B out of mu contradicts the anchor's."""
    assert delta("7B") == pytest.approx(PROSE["delta_anchor"], abs=5e-5)
    assert delta("7B", WITHOUT_MATH) == pytest.approx(-0.2310, abs=5e-5)
    assert np.log(on_grid(3.03)) - mu() == pytest.approx(PROSE["delta_dsmath"], abs=HALF_UNIT)
    assert max(ALPHA.values()) / min(ALPHA.values()) == pytest.approx(PROSE["alpha_span"], abs=0.05)


def printed_alpha(value):
    """Two decimals of a value that was stored with three."""
    three = Decimal(float(value)).quantize(Decimal("0.001"), ROUND_HALF_UP)
    return float(three.quantize(Decimal("0.01"), ROUND_HALF_UP))


@pytest.mark.parametrize(("models", "agree"), [(WITHOUT_MATH, 23), (MODELS, 6)])
def test_per_cell_alphas_come_from_the_mean_over_six_models(models, agree):
    """exp(mu_g + delta_m), mu_nonmath = 0 and mu_floor = ln 2, prints all 23 alphas; with seven models only math's."""
    centre = {"math": mu(models), "nonmath": 0.0, "floor": LN2}
    right = [
        printed_alpha(np.exp(centre[row["regime"]] + delta(row["model"], models))) == row["alpha"]
        for row in PER_CELL.values()
    ]
    assert sum(right) == agree


def test_floor_scale_of_the_regime_table():
    """2.00 is exp(mu_floor) with ln 2, and the anchor's alpha with 2^(9/7), the mean of the fits of its cells."""
    assert np.exp(LN2) == pytest.approx(PROSE["alpha_floor"])
    assert 2 ** (9 / 7) * np.exp(delta("7B")) == pytest.approx(PROSE["alpha_floor"], abs=HALF_UNIT)


@pytest.mark.parametrize(
    ("alpha", "beta", "printed"),
    [
        (ALPHA["7B"], 0.6, (2, 4, 8, 8, 16)),
        (np.exp(mu() + PROSE["delta_anchor_v5b"]), 0.6, (2, 4, 8, 8, 16)),
        (np.exp(LN2 + delta("7B")), 0.0, (2, 2, 2, 2, 2)),
    ],
    ids=["anchor", "anchor V5b", "anchor floor"],
)
def test_log2_rounding_gives_the_printed_budgets(alpha, beta, printed):
    assert path(alpha, beta) == printed


def test_linear_rounding_contradicts_the_anchors_path_identity():
    """V5b's offset "yields the same N sequence": true in log2 only."""
    assert path(np.exp(mu() + PROSE["delta_anchor_v5b"]), space="linear") == (2, 4, 4, 8, 16)
    assert path(ALPHA["7B"], space="linear") == (2, 4, 8, 8, 16)


def test_new_models_follow_from_log2_rounding_and_seven_models():
    """DS-Math: same budgets with and without its offset, hence the same error. OAT: one budget changes, at b = 1."""
    new = {row["row"]: row for row in table("new_models").iter_rows(named=True)}
    zero = path(np.exp(mu()))
    assert path(on_grid(3.03)) == zero
    assert new["V3"]["DS-Math-7B"] == new["delta0"]["DS-Math-7B"]
    assert [a == b for a, b in zip(path(ALPHA["Math-7B"]), zero, strict=True)] == [False, True, True, True, True]
    six = path(np.exp(mu(WITHOUT_MATH)))
    assert sum(a != b for a, b in zip(path(ALPHA["Math-7B"]), six, strict=True)) == 2
    cells = [counts(PROSE[f"dsmath_{benchmark}"], benchmark) for benchmark in FITTED]
    assert np.mean(cells) == pytest.approx(new["V3"]["DS-Math-7B"], abs=HALF_UNIT)


def test_mistrals_mean_needs_log2_rounding():
    """Per-cell rows average to 4.20, row V3 says 5.12: six or seven models in mu lie on two sides of a boundary."""
    six, seven = delta("Mistral", WITHOUT_MATH), delta("Mistral")
    for space, moves in (("log2", True), ("linear", False)):
        for centre, beta in ((0.0, 1.0), (LN2, 0.0)):
            change = path(np.exp(centre + six), beta, space) != path(np.exp(centre + seven), beta, space)
            assert change is moves
    assert path(np.exp(seven), 1.0) == BUDGETS
    assert path(np.exp(LN2 + seven), 0.0) == (2,) * 5
    assert boundary_distance(np.exp(seven), 1.0, 5) == pytest.approx(0.0142, abs=1e-3)
    rows = [PER_CELL["Mistral", benchmark] for benchmark in FITTED]
    assert np.mean([row["mech_anchor"] for row in rows]) == pytest.approx(4.20, abs=HALF_UNIT)
    at_the_other_budgets = [rows[0]["mech_anchor"], 1.00, rows[2]["mech_cell"], rows[3]["mech_cell"]]
    assert np.mean(at_the_other_budgets) == pytest.approx(VERTICAL["V3"]["Mistral"], abs=HALF_UNIT)


def cells_of(row):
    """Defined cells of each model."""
    if row == "V2":
        return {model: 4 if model == "7B" else 2 if model == "Llama" else 3 for model in MODELS}
    return {model: 3 if model == "Llama" else 4 for model in MODELS}


def mean(errors, how: How):
    """As the tables average the errors of cells."""
    return float(cell_weights(list(errors), how) @ np.concatenate(list(errors.values())))


@pytest.mark.parametrize(("row", "cells"), [("V1", 27), ("V2", 21), ("V3", 27), ("V5b", 27)])
def test_macro_and_micro_means(row, cells):
    """macro: mean over models; micro: over cells, of which V2 has only the anchor's on AIME."""
    weights = cells_of(row)
    assert sum(weights.values()) == cells
    errors = {(m, str(i)): np.array([VERTICAL[row][m]]) for m in MODELS for i in range(weights[m])}
    assert mean(errors, "macro") == pytest.approx(VERTICAL[row]["macro"], abs=HALF_UNIT)
    assert mean(errors, "micro") == pytest.approx(VERTICAL[row]["micro"], abs=HALF_UNIT)


def anchor_errors(row):
    """Errors of a row of the horizontal table as counts; H3 is averaged over four budgets on AIME and IFEval."""
    four = {("H3", "AIME"), ("H3", "IFEval")}
    return {
        ("7B", d): np.array([counts(HORIZONTAL[row, d]["value"], d, 4 if (row, d) in four else 5)])
        for d in FITTED
        if (row, d) in HORIZONTAL
    }


@pytest.mark.parametrize("row", ["H1", "H2", "H3", "H4", "H7"])
def test_contrasts_are_on_common_benchmarks(row):
    """H5 - H1 is -.04 over three benchmarks; the printed means would give -.29."""
    theirs = anchor_errors(row)
    ours = {cell: error for cell, error in anchor_errors("H5").items() if cell in theirs}
    assert (mean(ours, "micro") - mean(theirs, "micro")) == pytest.approx(PROSE[f"h5_{row.lower()}"], abs=HALF_UNIT)


def printed_errors():
    """(label, value, benchmark, budgets) of every printed error of one benchmark."""
    for (model, benchmark), row in PER_CELL.items():
        yield from ((f"{model} {key}", row[key], benchmark, 5) for key in ("mech_cell", "mech_anchor"))
    for (name, benchmark), row in HORIZONTAL.items():
        if benchmark in QUESTIONS:
            budgets = 5 if name != "b_above_16" else 4 if benchmark == "AIME" else 2
            ends = [(key, row[key]) for key in ("value", "lo", "hi") if row[key] is not None]
            yield from ((f"{name} {key}", value, benchmark, budgets) for key, value in ends)
    for row in table("held_out").filter(pl.col("model") != "mean").iter_rows(named=True):
        yield from ((row["model"], row[benchmark], benchmark, 5) for benchmark in HELD_OUT)
    for row in table("q_channel").iter_rows(named=True):
        yield f"{row['model']} Q", row["mech"], row["benchmark"], 5
    for row in table("seeds").filter(pl.col("seed42").is_not_null()).iter_rows(named=True):
        yield from ((f"{row['variant']} {key}", row[key], row["benchmark"], 5) for key in row if key.startswith("seed"))
    for benchmark in FITTED:
        yield "DS-Math", PROSE[f"dsmath_{benchmark}"], benchmark, 5


def test_every_printed_error_is_a_count_of_questions():
    """First-k estimates of 0 or 1: an error over five budgets is a multiple of 100/(5n), interval ends included.

    The exceptions are all of row H3. Three are counts over the four budgets whose policy the cell has; the fourth was
    rounded twice.
    """
    known = list(printed_errors())
    odd = {
        (label, benchmark): value
        for label, value, benchmark, k in known
        if not is_count(value, QUESTIONS[benchmark], k)
    }
    assert len(known) > 150
    assert set(odd) == {("H3 value", "GPQA"), ("H3 hi", "AIME"), ("H3 value", "IFEval"), ("H3 hi", "IFEval")}
    for (_, benchmark), value in odd.items():
        if benchmark == "GPQA":
            assert value - counts(value, benchmark) == pytest.approx(0.0055, abs=1e-3)
        else:
            assert is_count(value, QUESTIONS[benchmark], 4)


@pytest.mark.parametrize("benchmark", FITTED)
def test_numbers_of_questions_are_forced(benchmark):
    """Of all sizes up to 600 that are no multiple of it, none fits all values; IFEval has 541 questions, not 500."""
    values = {
        v for label, v, name, k in printed_errors() if name == benchmark and k == 5 and not label.startswith("H3")
    }
    fitting = [n for n in range(30, 601) if all(is_count(value, n) for value in values)]
    assert fitting[0] == QUESTIONS[benchmark]
    assert all(n % QUESTIONS[benchmark] == 0 for n in fitting)


def test_v4_scores_are_those_of_the_training_mean():
    """A feature that says nothing scores 1 - (6/5)^2 = -.44 whatever y is; the printed scores lie around it."""
    y = np.log([ALPHA[model] for model in WITHOUT_MATH])
    mute = loo_score(np.ones((1, len(y))), y[:, None], RIDGE)[0]
    assert mute == pytest.approx(1 - (6 / 5) ** 2)
    assert table("v4")["loo_r2"].to_numpy() == pytest.approx(mute, abs=0.07)


# ---- the same numbers, through the functions that make our tables


@pytest.mark.parametrize("variant", ["fixed_pi", "full_rule"])
def test_seed_summary_gives_the_printed_means_and_deviations(variant):
    rows = table("seeds").filter(variant=variant)
    cells = rows.filter(pl.col("seed42").is_not_null())
    errors = cells.unpivot(["seed42", "seed123", "seed20240"], index="benchmark", variable_name="batch")
    frame = errors.select(pl.lit(variant).alias("variant"), "benchmark", "batch", error="value", corrected="value")
    whole = means_within_batches(frame).filter(variant=variant)
    summary = seed_summary(pl.concat([frame, whole], how="diagonal_relaxed"))
    found = {row["benchmark"]: row for row in summary.rows(named=True)}
    for printed in rows.rows(named=True):
        ours = found["mean" if printed["benchmark"] == "mean_of_4" else printed["benchmark"]]
        assert ours["batches"] == 3
        assert ours["mean"] == pytest.approx(printed["mean"], abs=HALF_UNIT)
        assert ours["sd"] == pytest.approx(printed["sd"], abs=SLIP)


def test_means_frame_gives_the_printed_held_out_means():
    printed = {row["model"]: row for row in table("held_out").rows(named=True)}
    scores = {
        Key(Constants(), "V3", "ar", model, benchmark): exact_score(printed[model][benchmark])
        for model, benchmark in itertools.product(MODELS, HELD_OUT)
    }
    columns = [
        *(Column(benchmark, grid(MODELS, [benchmark])) for benchmark in HELD_OUT),
        *(Column(model, grid([model], HELD_OUT)) for model in MODELS),
        Column("all cells", grid(MODELS, HELD_OUT)),
    ]
    scope = Scope("held out", tuple(row for row in ROWS if row.key == "V3"), tuple(columns))
    frame = means_frame(Evaluation(scores, {}, {}), [scope], [Constants()], 0.95).filter(pool="ar")
    found = dict(frame.select("column", "error").iter_rows())
    wanted = {benchmark: printed["mean"][benchmark] for benchmark in HELD_OUT} | {"all cells": printed["mean"]["mean"]}
    wanted |= {model: printed[model]["mean"] for model in MODELS}
    assert found == pytest.approx(wanted, abs=HALF_UNIT)


def exact_score(error):
    """An error without uncertainty, as a score."""
    draws = np.full(4, error, np.float32)
    curve = Curve(np.zeros((5, 1), np.float32))
    return Score(plain=draws, corrected=draws, questions=60, prediction=curve, error=error, reselected=None)


# ---- contradictions that docs/reading-the-paper.md reports


@pytest.mark.parametrize("section", [LandscapeOptions, RecoveryOptions, BoptrOptions])
def test_every_option_is_explained(section):
    """A choice without its reason is arbitrary: docs/reading-the-paper.md names all of them."""
    page = (Path(__file__).parents[2] / "docs" / "reading-the-paper.md").read_text()
    words = set(re.findall(r"`(?:\w+\.)?(\w+)[`:]", page))
    assert {field.name for field in fields(section)} - words == set()
