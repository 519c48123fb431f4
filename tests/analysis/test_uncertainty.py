"""Intervals: against scipy's own, and in the cases where they are undefined or must be exact."""

from dataclasses import FrozenInstanceError

import numpy as np
import pytest
from scipy import stats

from searchlens.analysis.uncertainty import Interval, Resamples, quantiles, unseen, wilson, with_width


def test_wilson_equals_scipy():
    """Protects the formula and the meaning of ``confidence``."""
    for confidence in (0.8, 0.95):
        lo, hi = wilson(np.arange(61), 60, confidence)
        for hits in range(61):
            wanted = stats.binomtest(hits, 60).proportion_ci(confidence, method="wilson")
            assert lo[hits] == pytest.approx(wanted.low, abs=1e-12)
            assert hi[hits] == pytest.approx(wanted.high, abs=1e-12)


def test_wilson_ends_are_exact_at_the_boundaries():
    """0 hits start at 0 (not 1e-19) and n hits end at 1, for every number of questions; no trials, no interval."""
    trials = np.arange(1, 2000)
    assert (wilson(trials, trials).hi == 1).all() and (wilson(np.zeros(1999), trials).lo == 0).all()
    assert np.isnan(wilson([0], [0])).all()


def test_bootstrap_agrees_with_scipy():
    """Protects the percentile interval; the tolerance is the Monte Carlo error of two sets of 4000 draws."""
    values = np.random.default_rng(3).beta(0.5, 1.0, (120, 4))
    lo, hi = Resamples.draw(120, 4000, 1).interval(values)
    wanted = stats.bootstrap(
        (values,), np.mean, axis=0, n_resamples=4000, method="percentile", batch=200, rng=np.random.default_rng(5)
    ).confidence_interval
    assert lo == pytest.approx(wanted.low, abs=4e-3)
    assert hi == pytest.approx(wanted.high, abs=4e-3)


def test_draws_are_shared_and_depend_on_the_arguments_alone():
    """Pairing across tables and processes rests on this."""
    again = Resamples(Resamples.draw(40, 100, 9).weights.copy())
    assert Resamples.draw(40, 100, 9) is Resamples.draw(40, 100, 9)
    assert (again.weights == Resamples.draw(40, 100, 9).weights).all()
    assert (Resamples.draw(40, 100, 8).weights != again.weights).any()
    with pytest.raises(ValueError, match="read-only"):
        Resamples.draw(40, 100, 9).weights[0, 0] = 5
    with pytest.raises(FrozenInstanceError):
        again.weights = again.weights  # whoever has the same object would get other draws
    assert len({again, Resamples.draw(40, 100, 9), Resamples.draw(40, 100, 9)}) == 2


def test_values_have_one_column_for_each_statistic():
    """A third dimension would be averaged with the wrong questions; of another benchmark there are no draws."""
    for shape, says in (((20,), "values have shape"), ((20, 3, 2), "values have shape"), ((21, 1), "20 questions")):
        with pytest.raises(ValueError, match=says):
            Resamples.draw(20, 10, 0).means(np.zeros(shape))


def test_draws_that_differ_by_rounding_are_flat_in_any_unit():
    """In percentage points rounding is a hundred times as large as in proportions."""
    for most in (1.0, 100.0):
        ends = Interval(np.array([0.0]), np.array([0.5e-7 * most]))
        _, hi = with_width([0.0], ends, 50, limits=(-most, most))
        assert hi[0] == pytest.approx(most * unseen(50))
        wider = Interval(np.array([0.0]), np.array([2e-7 * most]))
        assert with_width([0.0], wider, 50, limits=(-most, most)).hi[0] == 2e-7 * most


def test_a_difference_of_proportions_stays_within_its_limits():
    """Without a width, -1 and 1 get one on the inside alone."""
    ends = np.array([-1.0, 1.0])
    lo, hi = with_width(ends, Interval(ends, ends), 60)
    assert lo == pytest.approx([-1, 1 - unseen(60)])
    assert hi == pytest.approx([unseen(60) - 1, 1])


def test_draws_do_not_change_between_versions():
    """Published intervals can be recomputed: the stream is fixed by the seed."""
    assert Resamples.draw(5, 3, 42).weights.T.tolist() == [[1, 0, 0, 2, 2], [2, 1, 1, 1, 0], [1, 2, 1, 0, 1]]


@pytest.mark.parametrize("unit", [1, 100, 1e12])
def test_an_interval_that_ends_at_zero_ends_at_exactly_zero(unit):
    """One model is ahead on one question of 198, in single precision by less than nothing: that is no lead."""
    differences = np.zeros((198, 2))
    differences[7, 0], differences[11:13, 1] = unit, (-unit, unit / 3)
    lo, hi = Resamples.draw(198, 1000, 1).interval(differences)
    assert lo[0] == 0 < hi[0] and lo[1] < 0 < hi[1]
    lo, hi = Resamples.draw(198, 1000, 1).interval(-differences)
    assert hi[0] == 0 > lo[0]


def test_interval_stays_within_the_data_and_around_the_mean():
    """Single precision must not push a proportion above 1 or a constant off its value."""
    values = np.column_stack([np.full(30, 0.1), np.r_[np.ones(29), 0], np.ones(30), np.zeros(30)])
    lo, hi = Resamples.draw(30, 300, 0).interval(values)
    assert lo[[0, 2, 3]].tolist() == [0.1, 1, 0]
    assert hi.tolist() == [0.1, 1, 1, 0]
    assert lo[1] < values[:, 1].mean() < hi[1]


def test_undefined_intervals_are_nan():
    """One question says nothing about the spread over questions; an unknown value leaves its own column unknown."""
    lo, hi = Resamples.draw(1, 100, 0).interval([[0.5, 1.0]])
    assert np.isnan([lo, hi]).all()
    values = np.random.default_rng(0).random((20, 2))
    values[3, 0] = np.nan
    lo, _ = Resamples.draw(20, 100, 0).interval(values)
    assert np.isnan(lo).tolist() == [True, False]


@pytest.mark.parametrize(("questions", "draws"), [(0, 10), (10, 0)])
def test_nothing_to_draw_is_refused(questions, draws):
    with pytest.raises(ValueError, match="at least one"):
        Resamples.draw(questions, draws, 0)


def test_quantiles_equal_numpy():
    """Protects the hand-written interpolation."""
    draws = np.random.default_rng(1).normal(size=(6, 173)).astype(np.float32)
    wanted = np.quantile(draws, [0.05, 0.95], axis=1)
    assert quantiles(draws.copy(), 0.9) == (pytest.approx(wanted[0], abs=1e-6), pytest.approx(wanted[1], abs=1e-6))


def test_intervals_contain_their_estimate_and_have_a_width():
    """Draws that repeat one value are opened and cut at the limits; the others are only moved up to the estimate."""
    half = float(unseen(60))
    ends = Interval(np.array([0.0, 0.1, 0.3, 1.0, np.nan]), np.array([0.0, 0.2, 0.4, 1.0, np.nan]))
    lo, hi = with_width([0.0, 0.25, 0.2, 1.0, 0.5], ends, 60, limits=(-1.0, 1.0))
    np.testing.assert_allclose(lo, [-half, 0.1, 0.2, 1 - half, np.nan])
    np.testing.assert_allclose(hi, [half, 0.25, 0.4, 1.0, np.nan])
    lo, hi = with_width(0.0, Interval(np.array(0.0), np.array(0.0)), 60, limits=(0.0, 100.0))
    assert (lo, hi) == pytest.approx((0, 100 * half))
