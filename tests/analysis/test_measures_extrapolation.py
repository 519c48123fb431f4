"""Extrapolated pass@k: right where its model holds, refused where it does not, nothing where nothing can be fitted."""

import numpy as np
import polars as pl
import pytest
from scipy import integrate, stats

from searchlens.analysis.extrapolation import EXTRAPOLATED, MODELS, REACH, extrapolated, fit, judged
from test_measures_equivalents import pool


def test_the_fit_is_that_of_the_beta_binomial() -> None:
    """No other parameters nearby have a larger likelihood by scipy's own distribution."""
    rng = np.random.default_rng(0)
    counts = rng.binomial(16, rng.beta(0.6, 2.0, 300))
    found = fit(counts, 16)
    assert found is not None
    best = stats.betabinom.logpmf(counts, 16, *np.exp(found.theta)).sum()
    for step in (-0.05, 0.05):
        for i in range(2):
            near = found.theta + step * np.eye(2)[i]
            assert stats.betabinom.logpmf(counts, 16, *np.exp(near)).sum() < best


def test_prediction_is_the_integral_over_difficulty() -> None:
    rng = np.random.default_rng(1)
    found = fit(rng.binomial(16, rng.beta(0.6, 2.0, 300)), 16)
    assert found is not None
    a, b = np.exp(found.theta)
    reached = integrate.quad(lambda p: stats.beta.pdf(p, a, b) * (1 - (1 - p) ** 64), 0, 1)[0]
    value, lo, hi = found.solved(64, 0.95)
    assert value == pytest.approx(reached, abs=1e-6)
    assert lo < value < hi


def test_a_share_without_any_chance_is_found() -> None:
    rng = np.random.default_rng(2)
    chance = np.where(rng.random(2000) < 0.3, 0, rng.beta(2.0, 3.0, 2000))
    found = fit(rng.binomial(32, chance), 32, zero_inflated=True)
    assert found is not None
    assert found.solved(10_000, 0.95)[0] == pytest.approx(0.7, abs=0.03)


@pytest.mark.parametrize("counts", [[0, 0, 0], [8, 8, 8], [3, 3, 3], [0, 0, 1]])
def test_counts_that_determine_nothing_have_no_fit(counts: list[int]) -> None:
    assert fit(np.array(counts), 8) is None
    rows = extrapolated("Base", pool(np.array(counts), 8), trials=3, seed=0)
    assert rows["value"].null_count() == len(MODELS)


def test_trials_cover_where_the_model_holds_and_fail_where_it_does_not() -> None:
    """Beta-distributed difficulty is predicted with about the nominal coverage; two groups of questions are not."""
    rng = np.random.default_rng(3)
    good = pool(rng.binomial(64, rng.beta(1.0, 2.0, 400)), 64)
    bad = pool(rng.binomial(64, np.where(rng.random(400) < 0.5, 0.02, 0.6)), 64)
    shares = {
        name: rows["inside"][0] / rows["trials"][0]
        for name, rows in ((n, extrapolated("Base", p, trials=60, seed=1)) for n, p in (("good", good), ("bad", bad)))
    }
    assert shares["good"] >= 0.85
    assert shares["bad"] < 0.5


@pytest.mark.parametrize(("samples", "inside", "trusted"), [(64, 95, True), (64, 80, False), (16, 95, False)])
def test_predictions_are_trusted_where_trials_cover_and_the_pool_is_large_enough(
    samples: int, inside: int, trusted: bool
) -> None:
    """Trials that predict pass@16 from four samples pass for being wide, and say nothing about pass@64 from sixteen."""
    row = {"model": "beta", "samples": samples, "value": 0.5, "trials": 100, "inside": inside}
    rows = pl.DataFrame([row], EXTRAPOLATED).with_columns(benchmark=pl.lit("math"))
    assert judged(rows, 0.95)["trusted"].to_list() == [trusted]


def test_a_pool_that_is_too_small_to_try_it_on_has_no_rows() -> None:
    few = pool(np.array([1, 0, 3]), 2 * REACH - 1)
    assert extrapolated("Base", few, trials=3, seed=0).schema == EXTRAPOLATED
    assert extrapolated("Base", few, trials=3, seed=0).is_empty()
