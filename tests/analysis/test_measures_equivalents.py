"""What is read off curves of pass@k: N*(b), the samples of Base worth b of RL, crossings, extrapolation."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl
import pytest
from scipy import integrate, stats

from searchlens.analysis.claims import EQUIVALENT, located
from searchlens.analysis.classes import Pool, knots
from searchlens.analysis.equivalents import (
    crossing,
    equivalents,
    inverse,
    joint_confidence,
    last_positive,
    summary,
    tails,
)
from searchlens.analysis.extrapolation import EXTRAPOLATED, MODELS, REACH, extrapolated, fit, judged
from searchlens.analysis.uncertainty import Resamples
from searchlens_lab.simulate import power_law

DRAWS = Resamples.draw(40, 200, 1)


def pool(correct: np.ndarray, samples: int, name: str = "default") -> Pool:
    classes = np.array([f"{c}+ 1x{samples - c}" if c else f"1x{samples}" for c in correct])
    full = np.full(len(correct), samples)
    return Pool(name, samples, np.arange(len(correct), dtype=np.uint32), correct, full, classes)


def drawn(rng: np.random.Generator, samples: int, a: float = 0.6, b: float = 1.5) -> np.ndarray:
    return rng.binomial(samples, rng.beta(a, b, 40))


def test_equal_pools_are_worth_the_same_number_of_samples() -> None:
    """In the sample and in every draw, at every budget that is a knot; at the whole pool N* cannot be read."""
    same = pool(drawn(np.random.default_rng(0), 16), 16)
    read = equivalents([same], same, [1, 2, 4, 8, 16], DRAWS)
    assert np.allclose(2 ** read.log2_n[:4], np.array([[1], [2], [4], [8]]))
    assert np.isposinf(read.log2_n[4]).all()


def test_pools_that_are_no_power_of_two_are_read_to_their_end() -> None:
    """2^(log2 n) may be above n by rounding, as for 20; a model beyond the whole pool is read there."""
    for samples in range(2, 70):
        base, rl = pool(np.zeros(40, int), samples), pool(np.full(40, samples), samples)
        read = equivalents([base], rl, [1, 2], DRAWS)
        assert np.isposinf(read.log2_n).all() and read.largest == samples


def test_the_best_of_several_policies_needs_no_more_samples_than_any() -> None:
    rng = np.random.default_rng(1)
    policies, rl = [pool(drawn(rng, 16), 16) for _ in range(3)], pool(drawn(rng, 16), 16)
    alone = [equivalents([one], rl, [1, 2, 4], DRAWS).log2_n[:, 0] for one in policies]
    assert (equivalents(policies, rl, [1, 2, 4], DRAWS).log2_n[:, 0] <= np.min(alone, axis=0) + 1e-12).all()


def test_inverse_says_on_which_side_of_the_curve_a_target_lies() -> None:
    curve, position = np.array([[0.1], [0.3], [0.3], [0.7]]), np.arange(4.0)
    found = inverse(curve, position, np.array([[0.05], [0.1], [0.2], [0.3], [0.5], [0.7], [0.9]]))
    assert found.ravel().tolist() == pytest.approx([-math.inf, 0.0, 0.5, 1.0, 2.5, math.inf, math.inf])


def test_knots_are_quarters_of_octaves_and_the_pool() -> None:
    assert knots(1) == [1]
    assert knots(64) == pytest.approx([2 ** (j / 4) for j in range(25)])
    assert knots(10)[-2:] == pytest.approx([2**3.25, 10])


def test_a_model_worth_one_and_a_half_samples_is_found_to_be_worth_that() -> None:
    """On hard questions pass@1.5 is not halfway between pass@1 and pass@2 in log2 k: that would give 1.41."""
    hard = np.random.default_rng(4).beta(0.5, 12, 40_000)
    rng = np.random.default_rng(5)
    base, rl = (pool(rng.binomial(64, p), 64) for p in (hard, 1 - (1 - hard) ** 1.5))
    read = equivalents([base], rl, [1, 2, 4], Resamples.draw(40_000, 1, 0))
    assert 2 ** read.log2_n[:, 0] == pytest.approx([1.5, 3, 6], rel=0.015)


def test_summary_states_what_the_pool_cannot_show() -> None:
    """RL that solves everything is above the pool, RL that solves nothing below 1; neither has a number."""
    rng = np.random.default_rng(2)
    base = pool(drawn(rng, 16), 16)
    for correct, state in ((np.full(40, 16), "above"), (np.zeros(40, int), "below")):
        rows = summary(equivalents([base], pool(correct, 16), [1, 2], DRAWS), 0.95).to_dicts()
        assert [row["state"] for row in rows] == [state, state]
        assert all(row["n"] is None and row["slope"] is None for row in rows)


def test_bands_contain_the_intervals_and_are_open_only_where_draws_or_intervals_are() -> None:
    """Few questions decide at the last budgets of small pools; the band must not leave what the draws show there."""
    wider = 0
    for seed in range(40):
        rng = np.random.default_rng(seed)
        difficulty = rng.beta(12, 18, 60)
        base, rl = (pool(rng.binomial(16, p), 16) for p in (difficulty, 1 - (1 - difficulty) ** 1.3))
        read = equivalents([base], rl, [1, 2, 4, 8], Resamples.draw(60, 200, seed))
        rows = summary(read, 0.95).rows(named=True)
        draws = np.clip(read.log2_n[:, 1:], 0, 4)
        for row, each in zip(rows, draws, strict=True):
            if row["n"] is not None:
                assert row["band_lo"] <= row["lo"] <= row["n"] <= row["hi"] <= row["band_hi"]
                low, high = np.log2([row["band_lo"], row["band_hi"]])
                assert low >= min(each.min(), np.log2(row["n"])) - 1e-9
                assert row["hi_open"] or high <= max(each.max(), np.log2(row["n"])) + 1e-9
                wider += row["band_lo"] < row["lo"]
    assert wider > 40


def test_joint_confidence_is_the_share_of_draws_within_all_intervals() -> None:
    """Of independent places it is near the root of the nominal one, of equal places the nominal one itself."""
    draws = np.random.default_rng(0).normal(size=(5, 20_000))
    level = joint_confidence(draws, draws, 0.95)
    assert level == pytest.approx(0.95 ** (1 / 5), abs=0.003)
    low, high = np.quantile(draws, [(1 - level) / 2, (1 + level) / 2], axis=1)
    assert ((low[:, None] <= draws) & (draws <= high[:, None])).all(axis=0).mean() == pytest.approx(0.95, abs=0.003)
    same = np.repeat(draws[:1], 3, axis=0)
    assert joint_confidence(same, same, 0.95) == pytest.approx(0.95, abs=0.001)
    assert joint_confidence(draws[:1], draws[:1], 0.9) == 0.9


def covered(rows: list[dict[str, Any]], truth: Sequence[float]) -> list[bool]:
    """Whether the intervals contain these numbers; an open end contains everything beyond it."""
    return [
        (row["lo_open"] or row["lo"] <= n) and (row["hi_open"] or n <= row["hi"])
        for row, n in zip(rows, truth, strict=True)
    ]


@pytest.mark.parametrize(("alpha", "beta"), [(2.0, 0.5), (1.4, 0.8)])
def test_intervals_contain_the_samples_of_a_law_without_rounding(alpha: float, beta: float) -> None:
    """Coverage where N*(b) = alpha b^beta for every b, at few questions and samples."""
    found = []
    for world in range(60):
        rng = np.random.default_rng(300 + world)
        difficulty = rng.beta(0.6, 1.5, 100)
        rl = power_law(difficulty, alpha, beta, rng.random(100), rng.exponential(size=100))
        pools = pool(rng.binomial(16, difficulty), 16), pool(rng.binomial(16, rl), 16)
        read = equivalents([pools[0]], pools[1], [1, 2, 4, 8], Resamples.draw(100, 200, world))
        found.append(covered(summary(read, 0.95).to_dicts(), [alpha * b**beta for b in (1, 2, 4, 8)]))
    assert (np.mean(found, axis=0) > 0.87).all()


def test_the_best_of_equal_policies_is_not_taken_for_better_than_they_are() -> None:
    """The largest of 12 noisy curves is too high; percentiles of such largest curves hardly ever contain the truth."""
    found = []
    for world in range(30):
        rng = np.random.default_rng(world)
        difficulty = rng.beta(0.6, 1.5, 100)
        policies = [pool(rng.binomial(16, difficulty), 16) for _ in range(12)]
        rl = pool(rng.binomial(16, 1 - (1 - difficulty) ** 2), 16)
        rows = summary(equivalents(policies, rl, [1, 2, 4], Resamples.draw(100, 200, world)), 0.95).to_dicts()
        found.append(covered(rows, [2, 4, 8]))
    assert (np.mean(found, axis=0) > 0.8).all()


def test_intervals_are_wider_where_few_questions_decide() -> None:
    """Student's quantile of that many questions in place of the normal one; with many there is no difference."""
    share = tails(0.95, np.array([1.0, 2.0, 6.0, 1e9]))
    assert share[0] == share[1] < share[2] < share[3]
    assert share[2:] == pytest.approx([stats.norm.cdf(stats.t.ppf(0.025, 5) * np.sqrt(1.2)), 0.025], rel=1e-5)
    solved = np.full(200, 64)
    solved[:3] = 20
    few = equivalents([pool(solved, 64)], pool(np.where(solved == 20, 30, 64), 64), [1], Resamples.draw(200, 200, 0))
    assert few.questions == pytest.approx([3])


# ---- hard questions that a sample lacks


@pytest.mark.parametrize(("questions", "is_open"), [(0.0, True), (3.83, True), (3.85, False)])
def test_an_interval_with_fewer_than_four_unsolved_questions_has_no_upper_end(questions: float, is_open: bool) -> None:
    """z^2 is 3.84 at 95%, and 2.7 at 90%; the band is open where the interval is.

    A local exponent has no interval either, nor where Base and RL differ on fewer than four questions.
    """
    rng = np.random.default_rng(0)
    difficulty = rng.beta(4, 6, 40)
    base, rl = (pool(rng.binomial(16, p), 16) for p in (difficulty, 1 - (1 - difficulty) ** 1.3))
    read = replace(equivalents([base], rl, [1], DRAWS), unsolved=np.array([questions]))
    row = summary(read, 0.95).row(0, named=True)
    assert [row["hi_open"], row["hi"] == 16, row["band_hi"] == 16] == [is_open] * 3
    assert summary(read, 0.9)["hi_open"].item() is (questions < 2.7)
    assert row["lo"] > 1, "the lower end is kept"
    for name in ("questions", "unsolved"):
        two = replace(equivalents([base], rl, [1, 2], DRAWS), **{name: np.array([20.0, questions])})
        assert (summary(two, 0.95)["slope_lo"][0] is None) is is_open and summary(two, 0.95)["slope"][0] is not None


def test_unsolved_questions_count_by_what_is_left_of_them() -> None:
    """Three questions that neither side solves are three, and more if the others are not always solved."""
    base, rl = np.full(60, 64), np.full(60, 64)
    base[:3] = rl[:3] = 0
    read = equivalents([pool(base, 64)], pool(rl, 64), [1], Resamples.draw(60, 20, 0))
    assert read.unsolved == pytest.approx([3])
    base[3:], rl[3:] = 40, 50
    assert (equivalents([pool(base, 64)], pool(rl, 64), [1], Resamples.draw(60, 20, 0)).unsolved > 4).all()
    solved = np.full(60, 64)
    read = equivalents([pool(solved, 64)], pool(solved, 64), [1], Resamples.draw(60, 20, 0))
    assert read.unsolved == [0] and summary(read, 0.95)["hi_open"].item()


# ---- N* itself


def test_n_is_where_the_curves_meet_even_where_they_are_flat() -> None:
    """Beside a chord, up to 13% off where nearly all is solved: found here by steps of 0.05% on the curve itself."""
    solved = np.full(60, 64)
    solved[:6] = [58, 40, 30, 20, 12, 3]
    worse = np.full(60, 64)
    worse[:6] = [60, 44, 32, 24, 16, 5]
    base, rl, others = pool(solved, 64), pool(worse, 64), pool(solved[::-1].copy(), 64, "other")
    ks = np.exp2(np.arange(0, 6, np.log2(1.0005)))
    curve = base.solved(ks.tolist()).mean(axis=0)
    budgets = [1, 2, 4, 8, 16, 24]
    for sides in ([base], [base, others]):
        found = equivalents(sides, rl, budgets, Resamples.draw(60, 10, 0)).log2_n[:, 0]
        truth = [ks[np.abs(curve - target).argmin()] for target in rl.solved(budgets).mean(axis=0)]
        assert 2**found == pytest.approx(truth, rel=0.002)


def test_a_tie_at_the_end_of_the_pool_is_told_from_more() -> None:
    """RL equal to Base is level at its whole pool; RL that solves a question more is above."""
    same = pool(np.array([0, 3, 8, 8, *[5] * 36]), 8)
    more = pool(np.array([1, 3, 8, 8, *[5] * 36]), 8)
    rows = {
        name: summary(equivalents([same], rl, [4, 8], DRAWS), 0.95) for name, rl in (("same", same), ("more", more))
    }
    assert rows["same"]["state"].to_list() == ["within", "level"]
    assert rows["more"]["state"].to_list() == ["above", "above"]
    same_end, more_end = (located(EQUIVALENT, rows[name].row(1, named=True)) for name in ("same", "more"))
    assert same_end == "8 or more (both at the end of what was drawn)"
    assert more_end.startswith("more than 8 [")


# ---- where Base overtakes RL, at equal samples and at equal tokens


def test_last_positive_says_where_a_curve_falls_below_zero_for_good() -> None:
    x = np.arange(4.0)
    gaps = np.array([[1, 1, -1, 1], [-1, 3, -1, 1], [1, -1, -1, 1], [-3, -1, -1, 1.0]])
    assert last_positive(x, gaps).tolist() == [2.25, 1.75, -math.inf, math.inf]


@pytest.mark.parametrize(("exchange", "truth"), [(1.0, 4.0), (0.7, 4 / 0.49)])
def test_the_crossing_of_a_law_is_found(exchange: float, truth: float) -> None:
    """N*(b) = 2 b^0.5: RL is worth b samples of Base at b = 4, and 0.7 b at b = (2 / 0.7)^2."""
    rng = np.random.default_rng(0)
    difficulty = rng.beta(0.6, 1.5, 20_000)
    rl = power_law(difficulty, 2, 0.5, rng.random(20_000), rng.exponential(size=20_000))
    sides = pool(rng.binomial(32, difficulty), 32), pool(rng.binomial(32, rl), 32)
    row = crossing(*sides, Resamples.draw(20_000, 100, 0), 0.95, exchange=exchange).row(0, named=True)
    assert row["crossing"] == pytest.approx(truth, rel=0.05)
    assert row["lo"] <= truth <= row["hi"] and row["hi"] < 1.3 * row["lo"]
    assert (row["first"], row["last"]) == (pytest.approx(max(1, 1 / exchange)), 32)


def test_intervals_contain_the_crossing_of_a_law() -> None:
    """Coverage with 100 questions, for which the interval is neither open nor empty of information."""
    covered, closed = 0, 0
    for world in range(60):
        rng = np.random.default_rng(world)
        difficulty = rng.beta(0.6, 1.5, 100)
        rl = power_law(difficulty, 2, 0.5, rng.random(100), rng.exponential(size=100))
        sides = pool(rng.binomial(64, difficulty), 64), pool(rng.binomial(64, rl), 64)
        row = crossing(*sides, Resamples.draw(100, 200, world), 0.95).row(0, named=True)
        covered += (row["lo_open"] or row["lo"] <= 4) and (row["hi_open"] or row["hi"] >= 4)
        closed += not (row["lo_open"] or row["hi_open"])
    assert covered >= 52 and closed >= 30


def test_what_the_pools_cannot_show_is_said() -> None:
    """RL that solves everything is never overtaken; RL that solves nothing is behind from the first sample."""
    base = pool(np.random.default_rng(2).binomial(16, 0.3, 40), 16)
    draws = Resamples.draw(40, 200, 1)
    for correct, state in ((np.full(40, 16), "above"), (np.zeros(40, int), "below")):
        row = crossing(base, pool(correct, 16), draws, 0.95).row(0, named=True)
        assert (row["state"], row["crossing"]) == (state, None)
        assert row["hi_open"] if state == "above" else row["lo_open"]
    assert crossing(base, base, draws, 0.95, exchange=32).is_empty()


def test_curves_that_end_level_have_no_upper_end() -> None:
    rng = np.random.default_rng(3)
    base, rl = (pool(rng.binomial(64, p, 100), 64) for p in (0.4, 0.5))
    assert crossing(base, rl, Resamples.draw(100, 200, 1), 0.95).row(0, named=True)["hi_open"]


# ---- extrapolated pass@k: right where its model holds, refused elsewhere


def test_the_fit_is_that_of_the_beta_binomial() -> None:
    """No other parameters nearby have a larger likelihood by scipy's own distribution."""
    rng = np.random.default_rng(0)
    counts = rng.binomial(16, rng.beta(0.6, 2.0, 300))
    found = fit(counts, 16)
    best = stats.betabinom.logpmf(counts, 16, *np.exp(found.theta)).sum()
    for step in (-0.05, 0.05):
        for i in range(2):
            near = found.theta + step * np.eye(2)[i]
            assert stats.betabinom.logpmf(counts, 16, *np.exp(near)).sum() < best


def test_prediction_is_the_integral_over_difficulty() -> None:
    rng = np.random.default_rng(1)
    found = fit(rng.binomial(16, rng.beta(0.6, 2.0, 300)), 16)
    a, b = np.exp(found.theta)
    reached = integrate.quad(lambda p: stats.beta.pdf(p, a, b) * (1 - (1 - p) ** 64), 0, 1)[0]
    value, lo, hi = found.solved(64, 0.95)
    assert value == pytest.approx(reached, abs=1e-6)
    assert lo < value < hi


def test_a_share_without_any_chance_is_found() -> None:
    rng = np.random.default_rng(2)
    chance = np.where(rng.random(2000) < 0.3, 0, rng.beta(2.0, 3.0, 2000))
    found = fit(rng.binomial(32, chance), 32, zero_inflated=True)
    assert found.solved(10_000, 0.95)[0] == pytest.approx(0.7, abs=0.03)


@pytest.mark.parametrize("counts", [[0, 0, 0], [8, 8, 8], [3, 3, 3], [0, 0, 1]])
def test_counts_that_determine_nothing_have_no_fit(counts: list[int]) -> None:
    assert fit(np.array(counts), 8) is None
    rows = extrapolated("Base", pool(np.array(counts), 8), trials=3, seed=0)
    assert rows["value"].null_count() == len(MODELS)
    assert set(counts) not in ({0}, {8}) or rows["trial_error"].null_count() == len(MODELS), "nor has any trial"


def test_trials_cover_where_the_model_holds_and_fail_where_it_does_not() -> None:
    """Beta-distributed difficulty is predicted with about the nominal coverage; two groups of questions are not."""
    rng = np.random.default_rng(3)
    good = pool(rng.binomial(64, rng.beta(1.0, 2.0, 400)), 64)
    bad = pool(rng.binomial(64, np.where(rng.random(400) < 0.5, 0.02, 0.6)), 64)
    tried, failed = (extrapolated("Base", each, trials=60, seed=1).row(0, named=True) for each in (good, bad))
    assert tried["inside"] >= 0.85 * 60 and failed["inside"] < 0.5 * 60
    assert abs(tried["trial_error"]) < 0.02 < -failed["trial_error"], "predicted minus found"


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
