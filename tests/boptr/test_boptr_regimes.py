"""Exponents of single cells and of the cohort, and three regimes against two."""

from itertools import product

import numpy as np
import pytest

from planted_landscapes import BUDGETS, DEFAULT, QUESTIONS, along, cohort, views
from searchlens.analysis.uncertainty import wilson
from searchlens.boptr.cohort import Benchmark
from searchlens.boptr.regimes import TWO_REGIMES, beta_sensitivity, beta_stability, overlap, regime_betas, two_regimes
from searchlens.boptr.rows import At, boptr, strict

MATH = {"math": Benchmark(regime="math")}
STUDY = {
    "math": Benchmark(regime="math"),
    "aime": Benchmark(regime="floor"),
    "gpqa": Benchmark(regime="nonmath"),
    "tiny": Benchmark(regime="nonmath", role="held_out"),
}
PATH = (2, 4, 8, 8, 16)
POOL = {
    DEFAULT: (2, 9, 17, 31, 40),
    "topp0.9_t0.7": (11, 20, 29, 38, 47),
    "temp_0.3": (23, 26, 28, 30, 33),
    "temp_0.5": (19, 22, 25, 27, 34),
}
PLANTED = along(POOL["topp0.9_t0.7"], PATH)
SAME_N = along(POOL["topp0.9_t0.7"], BUDGETS)
FLOOR = {
    DEFAULT: (2, 4, 7, 9, 12),
    "temp_0.3": (3, 5, 6, 8, 10),
    "temp_0.5": (1, 3, 5, 8, 11),
    "temp_0.7": (1, 2, 5, 8, 13),
}


def study(**options):
    cells = {
        ("m", "math"): (POOL, PLANTED),
        ("m", "aime"): (FLOOR, [5, 6, 6, 7, 9]),
        ("m", "gpqa"): (POOL, SAME_N),
        ("m", "tiny"): (POOL, SAME_N),
    }
    return views(cohort(cells, STUDY), **options)


def rows(frame, *keys):
    return {tuple(row[key] for key in keys): row for row in frame.rows(named=True)}


def nearest(x):
    """round_B written independently: the exponent nearest to log2 x, halves up."""
    return min(range(5), key=lambda i: (round(abs(np.log2(x) - i), 9), -i))


def betas_at_best(rl, pool, margin=0.0, *, free=False):
    """Exponents that reach the smallest error, one pair after the other; free: the nearest policy at each budget."""
    error = {}
    for k, tenth in product(range(-10, 21), range(13)):
        path = [2 ** nearest(2 ** (k / 5) * b ** (tenth / 10)) for b in BUDGETS]
        gaps = np.abs(np.array([along(curve, path) for curve in pool.values()]) - np.array(rl))
        gap = gaps.min(axis=0).mean() if free else gaps.mean(axis=1).min()
        error[tenth] = min(gap, error.get(tenth, np.inf))
    return [tenth / 10 for tenth in error if error[tenth] <= min(error.values()) + margin + 1e-6]


def test_one_locked_policy_finds_the_planted_path():
    """R1 must return the policy and the path that RL was copied from, at no error."""
    found = rows(regime_betas(*study()), "benchmark", "constraint")
    r1 = found["math", "R1"]
    assert (r1["policy"], r1["path"], r1["error"]) == ("topp0.9_t0.7", "2/4/8/8/16", 0)
    assert found["gpqa", "R1"]["path"] == "1/2/4/8/16"


def test_constraints_only_ever_cost():
    """R0 contains R1 contains R2, so errors rise; R2 knows the default policy alone."""
    found = rows(regime_betas(*study()), "benchmark", "constraint")
    for benchmark in ("math", "aime", "gpqa"):
        free, locked, default = (found[benchmark, constraint] for constraint in ("R0", "R1", "R2"))
        assert free["error"] <= locked["error"] <= default["error"]
        assert default["policy"] == DEFAULT
        assert len(free["policy"].split()) == len(BUDGETS)


@pytest.mark.parametrize("rl", [PLANTED, [9, 27, 30, 36, 42], [12, 21, 27, 30, 44]])
def test_tied_exponents_are_those_that_enumeration_finds(rl):
    """A fitted beta is one of several that fit equally well; all of them must be shown, under every constraint."""
    found = rows(regime_betas(*views(cohort({("m", "math"): (POOL, rl)}, MATH))), "constraint")
    for constraint, pool in (("R0", POOL), ("R1", POOL), ("R2", {DEFAULT: POOL[DEFAULT]})):
        row = found[constraint,]
        assert row["exact"] == betas_at_best(rl, pool, free=constraint == "R0")
        assert row["tied"] == betas_at_best(rl, pool, row["se"] * QUESTIONS / 100, free=constraint == "R0")
        assert row["beta"] in row["exact"]


def test_the_standard_error_is_that_of_the_draws():
    """Of the error along the path of the sample, which is no draw itself; few draws, so that it would be seen."""
    rl = [9, 12, 20, 33, 41]
    rule, boot = views(cohort({("m", "math"): ({DEFAULT: POOL[DEFAULT]}, rl)}, MATH), draws=6)
    row = rows(regime_betas(rule, boot), "constraint")["R1",]
    path = along(POOL[DEFAULT], [int(n) for n in row["path"].split("/")])
    counts = [(np.arange(QUESTIONS) < np.array(curve)[:, None]) @ boot.weights["math"][:, 1:] for curve in (path, rl)]
    drawn = 100 / QUESTIONS * np.abs(counts[0] - counts[1]).mean(axis=0)
    assert drawn.shape == (6,) and row["se"] == pytest.approx(drawn.std(ddof=1))


def test_free_policies_tie_wherever_each_budget_has_a_match():
    """With a policy for each budget a target inside the pool's reach leaves beta open; R0 has to admit that."""
    every = {f"topp0.9_t0.{i}": (k, k, k, k, k) for i, k in enumerate((10, 20, 30))} | {DEFAULT: (5,) * 5}
    found = rows(regime_betas(*views(cohort({("m", "math"): (every, [10, 10, 20, 20, 30])}, MATH))), "constraint")
    assert found["R0",]["error"] == 0
    assert found["R0",]["exact"] == [tenth / 10 for tenth in range(13)]


def test_refitted_interval_belongs_to_the_anchor_model():
    """Every draw is fitted again for the anchor; other models have the point alone."""
    cells = {("a", "math"): (POOL, PLANTED), ("b", "math"): (POOL, SAME_N)}
    found = rows(regime_betas(*views(cohort(cells, MATH))), "model", "constraint")
    assert found["a", "R1"]["lo"] <= found["a", "R1"]["beta"] <= found["a", "R1"]["hi"]
    assert found["b", "R1"]["lo"] is None and found["b", "R1"]["beta"] is not None


def test_interval_of_draws_that_agree_reaches_to_the_next_exponents():
    """Base and RL solve none or all questions at each budget, so all draws are the sample: one step to either side."""
    curve = (0, 0, QUESTIONS, QUESTIONS, QUESTIONS)
    study = cohort({("m", "math"): ({DEFAULT: curve}, (0, 0, 0, QUESTIONS, QUESTIONS))}, MATH)
    row = rows(regime_betas(*views(study)), "constraint")["R1",]
    assert row["exact"] == betas_at_best((0, 0, 0, QUESTIONS, QUESTIONS), {DEFAULT: curve})
    assert 0.1 < row["beta"] < 1.2
    assert (row["lo"], row["hi"]) == pytest.approx((row["beta"] - 0.1, row["beta"] + 0.1))


def test_held_out_benchmark_fits_nothing():
    """Its regime was assigned beforehand: no exponent of its own may appear."""
    found = rows(regime_betas(*study()), "benchmark", "constraint")
    row = found["tiny", "R1"]
    assert (row["a_priori"], row["reason"], row["beta"], row["assigned"]) == (True, "held_out", None, 1.0)
    assert found["math", "R1"]["a_priori"] is False


def test_own_exponent_without_a_model_is_that_of_the_others():
    """Two models with one planted path each: leaving one out must give the other's exponent."""
    steep, flat = along(POOL["topp0.9_t0.7"], (1, 2, 4, 8, 16)), along(POOL["topp0.9_t0.7"], (4, 4, 4, 4, 4))
    rule, _ = views(cohort({("a", "math"): (POOL, steep), ("b", "math"): (POOL, flat)}, MATH))
    found = {row["without"]: row["beta"] for row in beta_stability(rule).rows(named=True)}
    for left, curve in (("b", steep), ("a", flat)):
        assert found[left] == min(betas_at_best(curve, POOL), key=lambda beta: (round(abs(beta - 0.6), 6), beta))
    assert found["a"] < found[None] or found[None] < found["b"]


def test_no_model_left_is_no_estimate():
    """The paper's constant must not pass for an estimate of the cohort."""
    rule, _ = study()
    found = rows(beta_stability(rule), "benchmark", "without")
    assert found["math", None]["beta"] is not None
    assert (found["math", "m"]["beta"], found["math", "m"]["reason"]) == (None, "too_few_models")


def same(one, other):
    return np.array_equal(one.policy, other.policy) and np.array_equal(one.budget, other.budget)


def test_two_regimes_are_the_rule_off_the_floor_and_math_on_it():
    """The counterfactual changes floor benchmarks alone, to the anchor's own scale and the math exponent."""
    rule, _ = study()
    for benchmark in ("math", "gpqa", "tiny"):
        assert same(two_regimes(rule, At("m", benchmark)), boptr(rule, At("m", benchmark)))
    floor = At("m", "aime")
    assert same(TWO_REGIMES.predict(rule, floor), strict(rule, floor))
    assert [2**n for n in two_regimes(rule, floor).budget[:, 0]] == list(PATH)
    assert [2**n for n in boptr(rule, floor).budget[:, 0]] == [2] * 5


def test_floor_as_math_has_the_anchors_scale_beside_other_models():
    """A second pair moves mu, and the anchor's offset moves as far back."""
    cells = {("m", "math"): (POOL, PLANTED), ("m", "aime"): (FLOOR, [5, 6, 6, 7, 9])}
    cells["n", "math"] = (POOL, along(POOL["topp0.9_t0.7"], (1, 1, 2, 2, 4)))
    rule, _ = views(cohort(cells, {name: STUDY[name] for name in ("math", "aime")}))
    assert rule.delta("m")[0] > 0.5
    assert [2**n for n in two_regimes(rule, At("m", "aime")).budget[:, 0]] == list(PATH)


def test_difference_is_three_minus_two_with_its_paired_interval():
    """Sign, errors and interval from counts and weights alone."""
    rule, boot = study(draws=400)
    found = rows(beta_sensitivity(rule, boot), "map", "benchmark")
    three, two = found["three regimes", "aime"], found["two regimes", "aime"]
    rl = np.array([5, 6, 6, 7, 9])
    assert (three["path"], two["path"]) == ("2/2/2/2/2", "2/4/8/8/16")
    draws = []
    for row in (three, two):
        curve = np.array(along(FLOOR[row["policy"]], [int(n) for n in row["path"].split("/")]))
        assert row["error"] == pytest.approx(100 * np.abs(curve - rl).mean() / QUESTIONS)
        hits, goal = (np.arange(QUESTIONS) < counts[:, None] for counts in (curve, rl))
        gaps = (hits.astype(float) - goal) @ boot.weights["aime"][:, 1:]
        draws.append(100 * np.abs(gaps).mean(axis=0) / QUESTIONS)
    difference = found["three - two", "aime"]
    assert difference["error"] == pytest.approx(three["error"] - two["error"])
    ends = np.quantile(draws[0] - draws[1], [0.025, 0.975])
    assert [difference["lo"], difference["hi"]] == pytest.approx(list(ends), abs=1e-4)
    assert found["three - two", None]["error"] == pytest.approx(difference["error"] / 3)
    assert difference["overlap"] is True
    assert ("three - two", "math") not in found


def test_overlap_must_hold_at_every_budget():
    """Wilson at 60 questions: 3 and 5 overlap, 5 and 50 do not; a single budget apart is apart."""
    assert overlap(wilson([3, 5], 60), wilson([5, 5], 60))
    assert not overlap(wilson([3, 5], 60), wilson([5, 50], 60))
