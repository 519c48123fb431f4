"""Confidence sets of the exponents: valid where the law holds, empty where it does not, wide where nothing is known."""

import numpy as np
import pytest
from scipy import stats

from searchlens.analysis import exponents
from searchlens.analysis.classes import effective, knots
from searchlens.analysis.exponents import GRID, Lattice, exponent_set, joint_sets, least_error, profile
from searchlens_lab.simulate import power_law
from test_measures_equivalents import pool

BUDGETS = (1, 2, 4, 8, 16)


def world(seed: int, questions: int = 400) -> tuple[np.ndarray, np.random.Generator]:
    rng = np.random.default_rng(seed)
    return rng.beta(0.8, 2.5, questions), rng


def test_statistic_is_that_of_the_moments_written_out() -> None:
    difficulty, rng = world(0)
    base, rl = pool(rng.binomial(16, difficulty), 16), pool(rng.binomial(64, difficulty), 64)
    grid = Lattice(np.array([0.3]), np.array([0.7]))
    found = exponents.test(base, rl, BUDGETS, grid=grid)
    x = np.clip(0.3 + 0.7 * np.log2(BUDGETS), 0, 4)
    below = np.floor(4 * x)
    share = 4 * x - below
    ours = (1 - share) * base.solved(2 ** (below / 4)) + share * base.solved(2 ** np.minimum((below + 1) / 4, 4))
    moments = ours - rl.solved(BUDGETS)
    variance = (np.cov(moments.T) + 1e-5 * np.eye(5)) / len(moments)
    j = moments.mean(axis=0) @ np.linalg.solve(variance, moments.mean(axis=0))
    assert found.j[0, 0] == pytest.approx(j, rel=1e-6)
    assert found.moments[0, 0] == 5
    assert found.log_p[0, 0] == pytest.approx(stats.f.logsf(j * 395 / (5 * 399), 5, 395), rel=1e-6)
    fitted = stats.f.logsf(j * 396 / (4 * 399), 4, 396)
    assert found.log_p_fitted[0, 0] == pytest.approx(fitted, rel=1e-6)
    assert np.log(profile([found])) == pytest.approx([fitted], rel=1e-6)


def test_points_of_the_lattice_with_the_same_law_share_their_result() -> None:
    """Laws that are clipped to the pool are computed once; each point still has the weights of its own x_b."""
    weights, outside, law = GRID.weights(BUDGETS, 16)
    assert len(weights) < len(law) == 121 * 81
    positions = np.log2(knots(16))
    for alpha, beta in ((0, 0), (20, 50), (37, 41), (120, 80)):
        x = np.clip(GRID.log2_alpha[alpha] + GRID.beta[beta] * np.log2(BUDGETS), 0, 4)
        found = weights[law[alpha * 81 + beta]]
        assert np.allclose(found.sum(axis=1), 1)
        assert np.allclose(found @ positions, x)
        whole = GRID.log2_alpha[alpha] + GRID.beta[beta] * np.log2(BUDGETS)
        assert outside[law[alpha * 81 + beta]].tolist() == [int(at > 4 + 1e-9) - int(at < -1e-9) for at in whole]


def test_a_ceiling_is_no_power_law() -> None:
    difficulty, rng = world(4)
    base = pool(rng.binomial(32, difficulty), 32)
    rl = pool(np.where(difficulty > np.median(difficulty), rng.binomial(64, 0.5, len(difficulty)), 0), 64)
    tested = exponents.test(base, rl, BUDGETS)
    assert exponent_set([tested], 0.95)["empty"]
    assert tested.misfit.min() > 0.005


def saturated() -> exponents.Test:
    """Base and RL that solve all questions but one."""
    correct = np.full(60, 16)
    correct[0] = 0
    return exponents.test(pool(correct, 16), pool(correct, 16), BUDGETS)


def test_few_questions_say_nothing() -> None:
    """A handful of unsolved questions cannot identify an exponent: no law is tested, none is accepted or rejected."""
    found = exponent_set([saturated()], 0.95)
    assert (found["testable"], found["empty"], found["untested"]) == (False, False, 1.0)
    assert {found[name] for name in ("beta_lo", "beta_hi", "p", "best_policy")} == {None}
    assert np.isnan(profile([saturated()])).all()


def test_a_policy_that_tests_nothing_adds_nothing_to_the_set_of_any_policy() -> None:
    """With it among the policies the set is that of the others, not the whole grid."""
    difficulty, rng = world(0)
    chosen = difficulty[:60]
    solved = [pool(rng.binomial(n, chosen), n) for n in (32, 64)]
    tested = exponents.test(*solved, BUDGETS)
    alone, with_it = exponent_set([tested], 0.95), exponent_set([tested, saturated()], 0.95)
    assert alone["beta_lo"] > 0 and alone["beta_hi"] < 1.6
    assert {name for name in alone if alone[name] != with_it[name]} == {"untested", "misfit", "pool_min"}
    assert with_it["untested"] == pytest.approx((1 + alone["untested"]) / 2)


def test_one_moment_does_not_test_an_exponent() -> None:
    difficulty, rng = world(0)
    sides = pool(rng.binomial(32, difficulty), 32), pool(rng.binomial(64, difficulty), 64)
    assert not exponents.test(*sides, BUDGETS[:1]).tested.any()
    two = exponents.test(*sides, BUDGETS[:2])
    assert two.tested.any() and not np.isnan(two.log_p[two.tested]).any()


def test_effective_number_of_questions() -> None:
    columns = np.stack([np.ones(10), np.eye(10)[0], np.zeros(10)], axis=1)
    assert effective(columns).tolist() == [10, 1, 0]


def test_least_error_finds_the_law_that_made_the_curves() -> None:
    difficulty = np.random.default_rng(1).beta(0.8, 2.5, 4000)
    rng = np.random.default_rng(2)
    base, rl = pool(rng.binomial(64, difficulty), 64), pool(rng.binomial(64, 1 - (1 - difficulty) ** 2), 64)
    log2_alpha, beta = least_error([base], rl, (1, 2, 4, 8), np.ones((4000, 1), np.float32))
    assert (log2_alpha[0], beta[0]) == (pytest.approx(1, abs=0.15), pytest.approx(1, abs=0.05))


def test_the_joint_set_is_what_no_pair_rejects_at_its_share() -> None:
    profiles = {"a": np.where(GRID.beta < 1, 0.5, 0.03), "b": np.where(GRID.beta > 0.5, 0.5, 0.0)}
    rows = joint_sets(profiles, dict.fromkeys("ab", np.zeros(81, bool)), 0.95).to_dicts()
    assert [row["left_out"] for row in rows] == [None, "a", "b"]
    assert (rows[0]["beta_lo"], rows[0]["beta_hi"]) == (pytest.approx(0.52), pytest.approx(1.6)), "0.03 is above 0.025"
    assert rows[2]["beta_hi"] == pytest.approx(0.98), "alone, a rejects 0.03"
    assert [row["joined"] for row in rows] == [["a", "b"], ["b"], ["a"]]


def test_a_pair_that_does_not_test_a_beta_leaves_it_to_the_others() -> None:
    """It counts neither for nor against; a beta that no pair tests is in no set.

    Nor does a pair reject a beta with which it tests some laws only: one of the others may be the true one.
    """
    unknown, known = np.full(81, np.nan), np.where(GRID.beta < 1, 0.5, np.nan)
    rows = joint_sets({"a": unknown, "b": known}, dict.fromkeys("ab", np.ones(81, bool)), 0.95).to_dicts()
    rejecting = {"a": np.zeros(81), "b": known}
    half = joint_sets(rejecting, {"a": GRID.beta > 0.5, "b": np.isnan(known)}, 0.95).to_dicts()
    assert half[0]["beta_lo"] == pytest.approx(0.52) and half[0]["beta_hi"] == pytest.approx(1.6)
    assert (rows[0]["beta_lo"], rows[0]["beta_hi"]) == (0.0, pytest.approx(0.98))
    assert (rows[2]["testable"], rows[2]["empty"], rows[2]["beta_lo"]) == (False, False, None)


@pytest.mark.parametrize(("alpha", "beta"), [(2, 1), (2, 0.5), (1.5, 0.8)])
def test_fitting_alpha_costs_one_degree_of_freedom(alpha: float, beta: float) -> None:
    """The smallest J over alpha rejects the true beta in about 5% of worlds; at most 4 of 20 here."""
    grid, rejected = Lattice(GRID.log2_alpha, np.array([beta])), 0
    for seed in range(20):
        difficulty, rng = world(3000 + seed, 100)
        law = power_law(difficulty, alpha, beta, rng.random(100), rng.exponential(size=100))
        sides = pool(rng.binomial(32, difficulty), 32), pool(rng.binomial(32, law), 32)
        rejected += int(profile([exponents.test(*sides, BUDGETS, grid=grid)])[0] < 0.05)
    assert rejected <= 4


# ---- how far N can be read


def test_n_beyond_the_pool_counts_only_against_a_law_that_it_contradicts() -> None:
    """N = 4b with 16 samples of Base and of RL: 32 and 64 cannot be read, and do not speak against the law.

    N = 64 at every b does: RL would have to solve with one sample what Base solves with all 16.
    """
    difficulty, rng = world(5)
    base, rl = pool(rng.binomial(16, difficulty), 16), pool(rng.binomial(16, 1 - (1 - difficulty) ** 4), 16)
    tested = exponents.test(base, rl, BUDGETS, grid=Lattice(np.array([2.0, 5.0]), np.array([0.0, 1.0])))
    p = np.exp(tested.log_p)
    assert p[0, 1] > 0.05 and p[1, 0] < 1e-6
    assert tested.moments[0, 1] == 5


def test_a_model_beyond_the_whole_pool_identifies_nothing() -> None:
    """RL solves more with one sample than Base with all 16: a law with N beyond them agrees, whatever its exponent."""
    difficulty, rng = world(7)
    base, rl = pool(rng.binomial(16, difficulty / 40), 16), pool(rng.binomial(16, 1 - difficulty / 40), 16)
    found = exponent_set([exponents.test(base, rl, BUDGETS)], 0.95)
    assert (found["beta_lo"], found["beta_hi"], found["p"]) == (0.0, 1.6, 1.0)


@pytest.mark.parametrize(("questions", "tested"), [(1, False), (2, False), (4, False), (5, False), (6, True)])
def test_as_many_moments_as_questions_test_nothing(questions: int, tested: bool) -> None:
    """Five budgets leave no degree of freedom to five questions."""
    rng = np.random.default_rng(questions)
    chance = rng.uniform(0.1, 0.6, questions)
    one = exponents.test(pool(rng.binomial(16, chance), 16), pool(rng.binomial(16, chance), 16), BUDGETS)
    found = exponent_set([one], 0.95)
    assert (found["testable"], found["empty"], found["hardly"]) == (tested, False, False)
    assert (found["p"] is None) is not tested


def test_a_set_that_is_small_because_hardly_any_law_fits_says_so() -> None:
    """Below twice the level of rejection, and not if nothing is left."""
    found = {p: exponent_set([fake(p)], 0.95) for p in (0.04, 0.06, 0.0999, 0.1001, 0.5)}
    assert [each["hardly"] for each in found.values()] == [False, True, True, False, False]
    assert [each["empty"] for each in found.values()] == [True, False, False, False, False]
    assert exponent_set([fake(0.15)], 0.9)["hardly"]


def fake(p: float) -> exponents.Test:
    """A test in which one law has this p-value, and all others nearly none."""
    log_p = np.full(GRID.shape, -50.0)
    log_p[20, 50] = np.log(p)
    flat = np.zeros(GRID.shape)
    return exponents.Test("default", 16, flat, np.full(GRID.shape, 5), log_p, log_p, flat)


def test_pools_of_policies_are_named_from_the_smallest_to_the_largest() -> None:
    difficulty, rng = world(1, 40)
    rl = pool(rng.binomial(16, difficulty), 16)
    tests = [exponents.test(pool(rng.binomial(n, difficulty), n), rl, BUDGETS) for n in (64, 16)]
    found = exponent_set(tests, 0.95)
    assert (found["pool_min"], found["pool_max"]) == (16, 64)
