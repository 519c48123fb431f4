"""Means over cells, intervals of absolute errors, tests over models: against known truth and other programs."""

import numpy as np
import pytest
from scipy import stats

from searchlens.analysis.uncertainty import holm
from searchlens.boptr.inference import (
    ErrorDraws,
    corrected,
    differing,
    folded,
    freedom,
    interval,
    iterated,
    model_bootstrap,
    over_both,
    paired,
    permutation_p,
    refitted,
    sign_flip_test,
)


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def replicates(truth: np.ndarray, error: np.ndarray, count: int = 300, draws: int = 400) -> np.ndarray:
    """Bootstrap draws of cells (replicates, cells, budgets, 1 + draws): normal noise, correlated .7 between budgets."""
    cells, budgets = truth.shape
    lag = np.abs(np.arange(budgets)[:, None] - np.arange(budgets))
    half = np.linalg.cholesky(0.7**lag)
    noise = np.einsum("bc,rmcd->rmbd", half, rng(1).standard_normal((count, cells, budgets, 1 + draws)))
    noise *= error[:, :, None]
    seen = truth + noise[..., 0]
    return np.concatenate([seen[..., None], seen[..., None] + noise[..., 1:]], axis=-1)


ERROR = np.array([[1.7], [5.0], [3.4], [2.0]]) * np.ones(5)
MIXED = np.array([[0.0], [6.0], [-3.0], [2.0]]) + np.array([-2.0, -1, 0, 1, 2])


@pytest.mark.parametrize(
    ("truth", "error", "least"),
    [
        (MIXED, ERROR, 0.92),
        (np.full((4, 5), 3.0), ERROR, 0.92),
        (np.tile(MIXED, (3, 1)), np.tile(ERROR, (3, 1)), 0.88),
    ],
    ids=["one-model", "even", "three-models"],
)
def test_centred_interval_of_corrected_errors_covers_the_truth(
    truth: np.ndarray, error: np.ndarray, least: float
) -> None:
    """Nominal 95%. Bias that is left adds up over cells: twelve errors of the size of their noise cover about 90%."""
    signed, aim = replicates(truth, error), np.abs(truth).mean()
    lo, hi = interval([np.mean([corrected(cell) for cell in cells], axis=0) for cells in signed], kind="centred")
    assert least <= ((lo <= aim) & (aim <= hi)).mean() <= 0.98


@pytest.mark.parametrize(("size", "bias"), [(0.0, 0.467), (1.5, -0.092), (5.0, 0.0)])
def test_bias_of_the_corrected_error_is_the_documented_one(size: float, bias: float) -> None:
    """In standard errors, against 100,000 samples; the plain error is off by 0.80 at zero."""
    seen = size + rng(2).standard_normal(100_000)
    # Budgets play the part of independent samples; two antithetic draws give each the standard error 1.
    step = np.sqrt(3) / 2
    draws = np.stack([seen, seen - step, seen + step, seen - step, seen + step], axis=1)
    assert corrected(draws)[0] - size == pytest.approx(bias, abs=0.02)


def test_corrected_error_without_noise_is_the_error() -> None:
    signed = np.array([[2.0] * 5, [-4.0] * 5, [90.0] * 5])
    left_out = np.array([[False], [False], [True]])
    np.testing.assert_allclose(folded(signed, np.zeros(3), left_out), 3.0)
    np.testing.assert_allclose(folded(signed, np.zeros(3)), 32.0)
    np.testing.assert_allclose(corrected(np.zeros((2, 5))), 0.0)
    np.testing.assert_allclose(corrected(np.array([[-1.0], [3.0]])), 2.0)


def test_iterated_error_of_degenerate_draws() -> None:
    """No draw chose a path; nothing below the first level; nothing varies."""
    none, zero = np.full(5, np.nan), np.zeros(5)
    np.testing.assert_array_equal(iterated(3.0, none, none, none, none), [np.nan] * 6)
    assert iterated(3.0, zero + 1, none, zero, zero).tolist() == [4.0] * 6
    assert iterated(3.0, zero, zero, zero, zero).tolist() == [3.0] * 6


def test_iterated_draws_have_the_noise_of_the_paths_of_draws() -> None:
    """Around the estimate, which is not moved; a draw without a path adds none."""
    in_draw, in_sample = np.array([3.0, 5.0, 1.0, np.nan, 3.0]), np.array([2.0, 2.0, 2.0, 2.0, 2.0])
    noise = in_draw - in_sample  # 1, 3, -1, none, 1: on average 1
    found = iterated(4.0, noise, noise / 2, in_draw, in_sample)
    estimate = 4 + 2 * 1 - 0.5
    assert found == pytest.approx([estimate, estimate, estimate + 2, estimate - 2, estimate, estimate])


def test_freedom_counts_the_questions_that_vary() -> None:
    """Normal values: about n; one question that differs: 2; equal values: 1; never above n - 1."""
    assert 700 < freedom(rng(1).standard_normal(1000)) <= 999
    assert freedom(10 * np.eye(60)[0]) == pytest.approx(2, abs=0.2)
    assert freedom(np.full(60, 3.0)) == freedom(np.array([1.0, 2.0])) == 1
    assert freedom(np.tile([-1.0, 1.0], 30)) == 59


def test_interval_with_few_degrees_of_freedom_is_wider() -> None:
    draws = np.concatenate([[0.0], rng(3).standard_normal(20_000)])
    wide, plain = interval(draws, 0.95, "centred", 4.0), interval(draws, 0.95, "centred")
    assert (plain.hi, wide.hi) == (pytest.approx(1.96, abs=0.05), pytest.approx(2.78, abs=0.1))
    assert wide.lo == pytest.approx(-wide.hi)


def test_refitted_error_of_a_path_that_no_draw_changes_is_the_corrected_one() -> None:
    signed = 1.5 + np.concatenate([[0], rng(9).standard_normal(4000)])
    fixed = corrected(signed[None])
    plain = np.abs(signed)
    np.testing.assert_allclose(refitted(fixed, plain, plain, np.full(4001, 1.5)), fixed)
    np.testing.assert_allclose(refitted(fixed, plain, plain[:1001], np.full(1001, 1.5)), fixed)
    assert np.isnan(refitted(fixed, plain, np.r_[1.5, np.full(4000, np.nan)], np.full(4001, 1.5))).all()


def test_optimism_is_the_mean_over_the_draws_by_hand() -> None:
    """Beyond the sample's path one draw gains 4 by its choice and one nothing, so 2 is added."""
    error, in_draw, in_sample = [3.0, 4.0, 5.0], [3.0, 2.0, 5.0], [3.0, 5.0, 3.0]
    assert refitted([6.0, 7.0, 8.0], error, in_draw, in_sample) == pytest.approx([8, 9, 10])


def test_corrected_interval_ends_where_errors_do() -> None:
    noise = rng(10).normal(0, 5, 400)
    for error, end, value in ((99.0, "hi_corrected", 100.0), (1.0, "lo_corrected", 0.0)):
        draws = error + np.concatenate([[0], noise])
        assert ErrorDraws(draws, draws, 50).columns(0.95)[end] == value
        few, many = (ErrorDraws(draws, draws, questions) for questions in (50, 400))
        assert ErrorDraws.mean([many, few]).questions == 50, "the width of a mean is that of its smallest benchmark"


def test_interval_leaves_the_point_out_of_the_quantiles() -> None:
    draws = np.concatenate([[1e6], np.linspace(0, 100, 1001)])
    assert interval(draws) == pytest.approx((2.5, 97.5))
    assert interval(draws, 0.9, "centred") == pytest.approx((1e6 - 45, 1e6 + 45))
    assert np.isnan(interval([3.0, 3.0])).all()
    assert interval([9.0, 1.0, 3.0], 0.5) == pytest.approx((1.5, 2.5)), "two draws are enough"


@pytest.mark.parametrize("models", [5, 7, 10])
def test_sign_flips_match_scipy(models: int) -> None:
    values = rng(models).normal(0.7, 1, models)
    theirs = stats.permutation_test(
        (values,), np.mean, permutation_type="samples", n_resamples=np.inf, alternative="two-sided"
    )
    assert sign_flip_test(values) == pytest.approx(theirs.pvalue)


def test_sign_flip_floor_and_degenerate_cases() -> None:
    assert sign_flip_test([1.0, 2, 3, 4, 5, 6, 7]) == 2 / 2**7
    assert sign_flip_test(np.zeros(4)) == 1
    assert sign_flip_test([3.0]) == 1
    assert np.isnan(sign_flip_test([]))


def test_many_models_are_sampled_and_agree_with_the_t_test() -> None:
    values = rng(5).normal(0.4, 1, 40)
    assert sign_flip_test(values) == pytest.approx(stats.ttest_1samp(values, 0).pvalue, abs=0.01)
    assert sign_flip_test(np.full(40, 1.0), flips=99) == 1 / 100
    assert sign_flip_test(np.zeros(40), flips=99) == 1


def test_over_both_is_the_t_test_where_models_share_no_noise() -> None:
    """Below the floor of sign flips; without a spread between models nothing is known of others."""
    for models in (2, 3, 7):
        values = rng(7).normal(2, 0.5, models)
        found = over_both([[value, value, value] for value in values])
        expected = stats.ttest_1samp(values, 0)
        assert found.p == pytest.approx(expected.pvalue)
        assert (found.lo, found.hi) == pytest.approx(tuple(expected.confidence_interval(0.95)))
        assert found.spread == pytest.approx(values.std(ddof=1))
    assert found.p < sign_flip_test(values) / 6
    assert over_both(np.zeros((4, 3))) == (0, 0, 1, 0)
    for unknown in ([3.0], [2.0, 2.0, 2.0 + 1e-6], [1.0, np.nan, 2.0]):
        assert np.isnan(over_both([[value] * 3 for value in unknown])).all()


def test_over_both_by_hand_where_models_share_all_noise() -> None:
    """S^2 = 2, M = 2, C = 1: the variance 2 / 2 + 1 is twice its first term: 1 * 2^2 degrees of freedom."""
    found = over_both([[1.0, 4.0, 5.0, 6.0], [3.0, 7.0, 8.0, 9.0]])
    reach = stats.t.ppf(0.975, 4) * np.sqrt(2)
    assert found == pytest.approx((2 - reach, 2 + reach, 2 * stats.t.sf(np.sqrt(2), 4), np.sqrt(2)))


def test_model_bootstrap_is_the_interval_of_the_mean() -> None:
    values = rng(6).normal(2, 1, 200)
    half = 1.96 * values.std() / np.sqrt(200)
    assert model_bootstrap(values) == pytest.approx((values.mean() - half, values.mean() + half), abs=0.02)
    assert np.isnan(model_bootstrap([1.0])).all()


def test_holm_passes_over_nan_and_keeps_the_order() -> None:
    """By hand: 5 x .01, 4 x .012, 3 x .03, 2 x .04, 1 x .5, none below an earlier one; a NaN is no hypothesis."""
    np.testing.assert_allclose(holm([0.01, 0.04, np.nan, 0.03, 0.5, 0.012]), [0.05, 0.09, np.nan, 0.09, 0.5, 0.05])
    assert holm([0.6, 0.7]).tolist() == [1.0, 1.0]
    assert np.isnan(holm([np.nan, np.nan])).all() and holm([]).shape == (0,)


def test_permutation_p_counts_the_true_pairing_and_ties() -> None:
    assert permutation_p([1.0, 2, 3, 4]) == 1 / 4
    assert permutation_p([2.0, 2, 1, 4, np.nan]) == 3 / 4
    assert np.isnan(permutation_p([np.nan, 1.0]))


def test_contrast_of_rows_is_paired() -> None:
    shared = rng(7).normal(0, 5, 2001)
    own = rng(8).normal(0, 0.5, (3, 2001))
    a = {(f"m{i}", "x"): 6 + shared + own[i] - own[i, 0] - shared[0] for i in range(3)}
    gaps = {cell: error - (5 + shared - shared[0]) for cell, error in a.items()}
    difference, (lo, hi) = paired(gaps, 0.95)
    assert differing(gaps) == 3
    assert difference == pytest.approx(1)
    assert hi - lo == pytest.approx(2 * 1.96 * 0.5 / np.sqrt(3), rel=0.1)
    same = {cell: error - error for cell, error in a.items()}
    difference, ends = paired(same, 0.95)
    assert (difference, differing(same)) == (0, 0)
    assert np.isnan(ends).all()
