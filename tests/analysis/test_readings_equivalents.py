"""Budget equivalents: N*(b), the samples of Base that solve as much as b samples of RL."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from scipy import stats

from searchlens.analysis.claims import EQUIVALENT, located
from searchlens.analysis.classes import Pool, answer_classes, independent_pools, knots
from searchlens.analysis.equivalents import equivalents, inverse, joint_confidence, summary, tails
from searchlens.analysis.uncertainty import Resamples
from searchlens_lab.simulate import Mode, Truth, power_law, small_design
from searchlens_lab.simulate._draw import scores

DRAWS = Resamples.draw(40, 200, 1)


def pool(correct: np.ndarray, samples: int, name: str = "default") -> Pool:
    classes = np.array([f"{c}+ 1x{samples - c}" if c else f"1x{samples}" for c in correct])
    full = np.full(len(correct), samples)
    return Pool(name, samples, np.arange(len(correct), dtype=np.uint32), correct, full, classes)


def drawn(rng: np.random.Generator, samples: int, a: float = 0.6, b: float = 1.5) -> np.ndarray:
    return rng.binomial(samples, rng.beta(a, b, 40))


def test_pass_at_k_is_the_mean_over_all_subsets() -> None:
    marks = np.array([True, False, False, True, False, False])
    subsets = [any(marks[list(chosen)]) for chosen in combinations(range(6), 3)]
    assert pool(np.array([2]), 6).solved([3])[0, 0] == pytest.approx(np.mean(subsets))


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


def test_a_tie_at_the_end_of_the_pool_is_level() -> None:
    """The same samples on both sides: with all of them RL solves as much as Base, and no more."""
    base = pool(drawn(np.random.default_rng(2), 16), 16)
    rows = summary(equivalents([base], base, [1, 8, 16], DRAWS), 0.95).to_dicts()
    assert [row["state"] for row in rows] == ["within", "within", "level"]
    assert rows[-1]["n"] is None and rows[-1]["hi_open"]


def test_intervals_contain_the_estimate_and_bands_are_wider() -> None:
    rng = np.random.default_rng(3)
    difficulty = rng.beta(0.6, 1.5, 40)
    base, rl = (pool(rng.binomial(32, p), 32) for p in (difficulty, 1 - (1 - difficulty) ** 2))
    for row in summary(equivalents([base], rl, [1, 2, 4, 8], DRAWS), 0.95).iter_rows(named=True):
        assert row["lo"] <= row["n"] <= row["hi"]
        assert row["band_lo"] <= row["lo"] * 1.05 and row["band_hi"] >= row["hi"] / 1.05


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


def test_a_model_worth_two_samples_is_found_to_be_worth_two() -> None:
    """Coverage: if RL draws the better of two samples of Base, 95% intervals of N*(b) contain 2b in most worlds."""
    covered = []
    for world in range(60):
        rng = np.random.default_rng(100 + world)
        difficulty = rng.beta(0.6, 1.5, 200)
        base, rl = (pool(rng.binomial(32, p), 32) for p in (difficulty, 1 - (1 - difficulty) ** 2))
        resamples = Resamples.draw(200, 300, world)
        rows = summary(equivalents([base], rl, [1, 2, 4], resamples), 0.95).rows(named=True)
        covered.append([row["lo"] <= 2 * row["budget"] <= row["hi"] for row in rows])
    assert (np.mean(covered, axis=0) > 0.87).all()


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


@pytest.mark.parametrize("mode", ["continuous", "ceiling"])
def test_a_simulated_study_has_the_samples_that_its_truth_names(mode: Mode) -> None:
    """From graded samples to N*(b), with 6,000 questions, against the population."""
    whole = small_design(mode)
    model, policy = "qwen25_7b", whole.default_policy
    design = replace(
        whole,
        models={model: whole.models[model]},
        benchmarks={"math500": replace(whole.benchmarks["math500"], questions=6000)},
        policies=(policy,),
        planted=replace(whole.planted, policy=policy, ceiling=0.95),
        samples=32,
    )
    sides = [independent_pools(answer_classes(scores(design, 3, cell)), {})[policy] for cell in design.cells()]
    read = equivalents([sides[0]], sides[1], [1, 2, 4, 8, 16], Resamples.draw(6000, 1, 0))
    truth = Truth(design, 3).equivalent(model, "math500", policy, [1, 2, 4, 8, 16])
    assert 2 ** read.log2_n[:, 0] == pytest.approx(truth, rel=0.08)


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


def hard_tail(seed: int, questions: int, share: float) -> tuple[Pool, Pool]:
    """64 samples of questions that are solved sooner or later, but for a share of which Base solves 1%, RL 3%."""
    rng = np.random.default_rng(seed)
    logit, hard = rng.normal(size=questions), rng.random(questions) < share
    base, rl = (np.where(hard, rare, 1 / (1 + np.exp(-shift - logit))) for rare, shift in ((0.01, 1), (0.03, 1.6)))
    return pool(rng.binomial(64, base), 64), pool(rng.binomial(64, rl), 64)


@pytest.mark.parametrize(("questions", "share", "truth"), [(100, 0.01, (15.7, 45.9)), (100, 0.03, (19.3, 47.6))])
def test_the_upper_end_allows_for_hard_questions_that_the_sample_lacks(
    questions: int, share: float, truth: tuple[float, float]
) -> None:
    """At b = 8 and 16 one to three hard questions decide, or none was drawn; 39 of 40 intervals contain N* then."""
    found = []
    for seed in range(40):
        base, rl = hard_tail(seed, questions, share)
        rows = summary(equivalents([base], rl, [8, 16], Resamples.draw(questions, 200, seed)), 0.95).to_dicts()
        found.append(covered(rows, list(truth)))
    assert (np.sum(found, axis=0) >= 37).all()


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


def test_questions_that_nearly_always_are_solved_leave_an_upper_end() -> None:
    """GPQA at b = 16: no question is unsolved, all are now and then. No hard one is missing, so N* has an upper end."""
    is_open = []
    for seed in range(20):
        rng = np.random.default_rng(seed)
        chance = rng.uniform(0.1, 0.6, 198)
        base, rl = (pool(rng.binomial(64, chance), 64) for _ in range(2))
        is_open.append(summary(equivalents([base], rl, [16], Resamples.draw(198, 200, seed)), 0.95)["hi_open"].item())
    assert sum(is_open) <= 2


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
