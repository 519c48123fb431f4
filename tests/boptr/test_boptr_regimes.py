"""Exponents of cells and of the cohort, three regimes against two, what a fit identifies, and large budgets."""

from itertools import product

import numpy as np
import pytest

from planted_landscapes import BUDGETS, DEFAULT, QUESTIONS, along, cohort, views
from searchlens.analysis.uncertainty import wilson
from searchlens.boptr.cohort import Benchmark
from searchlens.boptr.extension import crossing, extension, large_budget, n_hat
from searchlens.boptr.regimes import (
    TWO_REGIMES,
    beta_sensitivity,
    beta_stability,
    formula_same,
    identified_scale,
    identified_set,
    overlap,
    regime_betas,
    two_regimes,
)
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


def every_error(rl, pool):
    """(alpha, beta, policy, path) to mean absolute error in questions, one by one."""
    found = {}
    for k, tenth in product(range(-10, 21), range(13)):
        alpha, beta = 2 ** (k / 5), tenth / 10
        path = tuple(2 ** nearest(alpha * b**beta) for b in BUDGETS)
        for name, curve in pool.items():
            found[alpha, beta, name, path] = np.abs(np.array(along(curve, path)) - np.array(rl)).mean()
    return found


def betas_at_best(rl, pool, margin=0.0, *, free=False):
    """Exponents that reach the smallest error; free: the nearest policy at each budget."""
    error = {}
    for (_, beta, _, path), locked in every_error(rl, pool).items():
        every = [along(curve, path) for curve in pool.values()] if free else []
        gap = np.abs(np.array(every) - np.array(rl)).min(axis=0).mean() if free else locked
        error[beta] = min(gap, error.get(beta, np.inf))
    return [beta for beta in error if error[beta] <= min(error.values()) + margin + 1e-6]


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
    found = rows(regime_betas(*study()), "benchmark", "constraint")
    row = found["tiny", "R1"]
    assert (row["a_priori"], row["reason"], row["beta"], row["assigned"]) == (True, "held_out", None, 1.0)
    assert found["math", "R1"]["a_priori"] is False


def test_own_exponent_without_a_model_is_that_of_the_others():
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


# ---- what a fit identifies


def test_planted_scale_is_found_with_the_interval_that_predicts_the_same():
    """At beta 0.6 the path 2/4/8/8/16 needs log2 alpha in [1.3, 1.5): 2.5 - 1.2 and 1.5 - 0, by hand."""
    rule, _ = views(cohort({("m", "math"): (POOL, PLANTED)}, MATH))
    row = identified_scale(rule).row(0, named=True)
    assert row["alpha"] == pytest.approx(2**1.4)
    assert row["alpha_lo"] == pytest.approx(2**1.3) and row["alpha_hi"] == pytest.approx(2**1.5)
    assert row["boundary"] == pytest.approx(0.1)
    assert (row["policy"], row["path"], row["error"]) == ("topp0.9_t0.7", "2/4/8/8/16", 0)


def test_implied_offsets_allow_for_the_models_own_part_in_mu():
    """Of M cohort models each moves mu by 1/M of itself; alone it has no offset; a new model moves nothing."""
    cells = {("a", "math"): (POOL, PLANTED), ("b", "math"): (POOL, PLANTED), ("new", "math"): (POOL, PLANTED)}
    down, up = -0.1 * np.log(2), 0.1 * np.log(2)
    rows = {r["model"]: r for r in identified_scale(views(cohort(cells, MATH, new=["new"]))[0]).rows(named=True)}
    assert [rows["a"][name] for name in ("delta_lo", "delta_hi")] == pytest.approx([down / 2, up / 2])
    assert [rows["new"][name] for name in ("delta_lo", "delta_hi")] == pytest.approx([down, up])
    alone = identified_scale(views(cohort(dict([next(iter(cells.items()))]), MATH))[0]).row(0, named=True)
    assert (alone["delta_lo"], alone["delta"], alone["delta_hi"]) == (None, 0, None)


def test_open_ended_scale_is_shown_as_open_ended():
    """RL at Base's last budget throughout: all larger alphas give the same path, so the interval ends at infinity."""
    rule, _ = views(cohort({("m", "math"): (POOL, [47] * 5), ("n", "math"): (POOL, PLANTED)}, MATH))
    row = identified_scale(rule).row(0, named=True)
    assert row["path"] == "16/16/16/16/16"
    assert row["alpha_lo"] == pytest.approx(2**3.5) and row["alpha_hi"] == row["delta_hi"] == np.inf


def test_model_without_a_pair_has_its_reason():
    rule, boot = views(cohort({("a", "math"): (POOL, PLANTED), ("b", "math"): (POOL, None)}, MATH))
    assert identified_scale(rule)["reason"].to_list() == [None, "no_rl"]
    assert identified_set(rule, boot)["reason"].to_list() == [None, "no_rl"]


def test_formula_same_shows_what_the_scale_does():
    rule, _ = views(cohort({("m", "math"): (POOL, PLANTED)}, MATH))
    frame = formula_same(rule)
    assert frame.rows() == identified_scale(rule).select(frame.columns).rows()


@pytest.mark.parametrize("rl", [PLANTED, [9, 27, 30, 36, 42], [9, 23, 23, 28, 33]])
def test_identified_set_is_every_triple_within_a_standard_deviation(rl):
    """Counted one by one with its own rounding, and the standard deviation from its own sums over the draws."""
    rule, boot = views(cohort({("m", "math"): (POOL, rl)}, MATH))
    row = identified_set(rule, boot).row(0, named=True)
    errors = every_error(rl, POOL)
    least = min(errors.values())
    assert row["error"] == pytest.approx(100 * least / 60)
    curve = along(POOL[row["policy"]], [int(n) for n in row["path"].split("/")])
    hits, goal = (np.arange(60) < np.array(counts)[:, None] for counts in (curve, rl))
    gaps = (hits.astype(float) - goal) @ boot.weights["math"][:, 1:]
    se = np.abs(gaps).mean(axis=0).std(ddof=1)
    assert row["se"] == pytest.approx(100 * se / 60, rel=1e-4)
    within = [key for key, error in errors.items() if error <= least + se + 1e-6]
    assert (row["triples"], row["of"]) == (len(within), len(errors))
    assert rl == PLANTED or row["triples"] > sum(error <= least + 1e-6 for error in errors.values())
    alphas, betas, names, paths = (set(values) for values in zip(*within, strict=True))
    assert (row["policies"], row["paths"]) == (len(names), len(paths))
    ends = [row[name] for name in ("alpha_min", "alpha_max", "beta_min", "beta_max")]
    assert ends == pytest.approx([min(alphas), max(alphas), min(betas), max(betas)])


def test_flat_landscape_identifies_nothing():
    flat = {DEFAULT: [6] * 5, "temp_0.3": [6] * 5}
    rule, boot = views(cohort({("m", "math"): (flat, [6] * 5)}, MATH))
    row = identified_set(rule, boot).row(0, named=True)
    assert row["triples"] == row["of"] == 2 * 31 * 13
    assert (row["alpha_min"], row["alpha_max"], row["beta_min"], row["beta_max"]) == (0.25, 16, 0, 1.2)


# ---- the frozen rule beyond B, and Base against RL at equal large budgets


OF_THREE = {"math": Benchmark(regime="math"), "aime": Benchmark(regime="floor"), "gpqa": Benchmark(regime="nonmath")}
LONG = (2, 9, 17, 31, 40, 44, 50)
TARGET = along(LONG, PATH)
"""RL of the anchor: alpha is 2^1.4 and nothing else."""
ONE = {("m", "math"): ({DEFAULT: LONG}, TARGET)}


def only(frame, **keys):
    (row,) = [r for r in frame.rows(named=True) if all(r[k] == v for k, v in keys.items())]
    return row


@pytest.mark.parametrize(
    ("alpha", "beta", "top", "path"),
    [(16, 1.0, 64, [64, 64]), (16, 1.0, 16, [16, 16]), (1, 1.0, 64, [32, 64]), (2, 0.0, 64, [2, 2])],
)
def test_budgets_are_clipped_at_the_new_maximum(alpha, beta, top, path):
    assert n_hat(alpha, beta, [32, 64], top) == path


def test_frozen_rule_is_scored_at_larger_budgets_alone():
    """log2 N is 1.4 + .6 * 5 = 4.4 and 1.4 + .6 * 6 = 5: N(32) = 16 with 40, N(64) = 32 with 44 solved."""
    found = cohort({("m", "math"): ({DEFAULT: LONG}, [*TARGET, 43, 50])}, MATH)
    row = only(extension(*views(found)), benchmark="math")
    assert (row["policy"], row["budgets"], row["path"]) == (DEFAULT, "32/64", "16/32")
    assert row["error"] == pytest.approx(100 * (3 + 6) / 2 / QUESTIONS)
    assert row["lo"] <= row["error"] <= row["hi"]


def test_floor_stays_at_two_and_the_mean_is_over_extended_benchmarks():
    """The floor's allocation does not grow; a benchmark that was not extended is no part of the mean."""
    cells = {
        ("m", "math"): ({DEFAULT: LONG}, [*TARGET, 43, 50]),
        ("m", "aime"): ({DEFAULT: LONG}, [9, 9, 9, 9, 9, 12, 15, 18, 21]),
        ("m", "gpqa"): ({DEFAULT: LONG}, LONG[:5]),
    }
    frame = extension(*views(cohort(cells, OF_THREE)))
    floor = only(frame, benchmark="aime")
    assert (floor["budgets"], floor["path"]) == ("32/64/128/256", "2/2/2/2")
    assert floor["error"] == pytest.approx(100 * (3 + 6 + 9 + 12) / 4 / QUESTIONS)
    assert only(frame, benchmark="gpqa")["reason"] == "no_extension"
    mean = (floor["error"] + only(frame, benchmark="math")["error"]) / 2
    assert only(frame, benchmark=None)["error"] == pytest.approx(mean)


def test_budget_that_base_lacks_is_not_scored_at_a_smaller_one():
    """N(64) = 32 was not sampled here, so 64 is left out instead of being read at 16."""
    found = cohort({("m", "math"): ({DEFAULT: LONG[:5]}, [*TARGET, 43, 50])}, MATH)
    row = only(extension(*views(found)), benchmark="math")
    assert (row["budgets"], row["path"]) == ("32", "16")


def doubled(base):
    """N(b) = 2 b on gpqa: the anchor's offset is one doubling, as its scale is four times that of the other model."""
    cells = ONE | {("k", "math"): ({DEFAULT: LONG}, along(LONG, (1, 1, 2, 2, 4)))}
    cells |= {("m", "gpqa"): ({DEFAULT: base}, [*along(LONG, (2, 4, 8, 16, 32)), 43])}
    return only(extension(*views(cohort(cells, OF_THREE))), model="m", benchmark="gpqa")


def test_base_is_read_beyond_the_budgets_of_rl():
    """RL was sampled up to 32, Base up to 64, where the path of 32 ends."""
    row = doubled(LONG)
    assert (row["budgets"], row["path"]) == ("32", "64")
    assert row["error"] == pytest.approx(100 * 7 / QUESTIONS)


def test_base_that_ends_before_rl_is_not_read_where_it_ends():
    """N(32) is 64, cut at the 32 of RL, where Base was not sampled; 16 would be another rule's budget."""
    assert doubled(LONG[:5])["reason"] == "no_extension"


TWO = {"temp_0.3": (2, 3, 4, 8, 9), DEFAULT: (1, 5, 5, 6, 7)}
RL = [4, 6, 7, 7, 10]


def floor_study(base, rl, draws=200):
    return views(cohort(ONE | {("m", "aime"): (base, rl)}, OF_THREE), draws)


def test_crossing_budget_by_hand():
    """E is 2, 5, 5, 8, 9 and RL 4, 6, 7, 7, 10: level or ahead at 8 for the first time, and lower again at 16."""
    frame = large_budget(*floor_study(TWO, RL)).filter(pool="ar")
    assert (frame["envelope"] * QUESTIONS).round().to_list() == [2, 5, 5, 8, 9]
    assert frame["n"].to_list() == [1, 2, 2, 8, 16]
    assert frame["policy"].to_list() == ["temp_0.3", DEFAULT, DEFAULT, "temp_0.3", "temp_0.3"]
    assert (frame["rl_minus_best"] * QUESTIONS).round().to_list() == [2, 1, 2, -1, 1]
    assert (frame["lo"] <= frame["rl_minus_best"]).all() and (frame["rl_minus_best"] <= frame["hi"]).all()
    row = only(crossing(*floor_study(TWO, RL)), benchmark="aime", pool="ar")
    assert (row["crossing"], row["tie"], row["reason"]) == (None, 8, None)


def test_crossing_is_where_base_overtakes_for_good():
    base, rl = {DEFAULT: (4, 5, 6, 9, 12)}, (4, 6, 8, 8, 10)
    row = only(crossing(*floor_study(base, rl)), benchmark="aime", pool="ar")
    assert (row["crossing"], row["tie"]) == (8, 1)
    curves = large_budget(*floor_study(base, rl)).filter(pool="ar")
    shares = {b: (k, tie) for b, k, tie in curves.select("b", "crossing_share", "tie_share").iter_rows()}
    assert (row["share"], row["tie_share"]) == (shares[8][0], shares[1][1])
    assert row["tie_share"] == 1.0
    assert 0.5 < row["share"] < 1.0


def test_equal_curves_cross_nowhere():
    """Nobody solves anything: k* = 1 in all draws would look like a result."""
    row = only(crossing(*floor_study({DEFAULT: (0,) * 5}, (0,) * 5)), benchmark="aime", pool="ar")
    assert (row["reason"], row["crossing"], row["tie"], row["largest"]) == ("no_difference", None, None, 16)


def test_envelope_keeps_what_smaller_budgets_reached():
    """A policy that was sampled up to 4 alone still counts at 8: 9 solved there against RL's 8."""
    short = {"temp_0.3": (2, 3, 9), DEFAULT: (1, 2, 3, 4, 5)}
    study = floor_study(short, [12, 12, 12, 8, 12])
    assert only(crossing(*study), pool="ar")["tie"] == 8
    row = only(large_budget(*study), pool="ar", b=8)
    assert (row["policy"], row["n"]) == ("temp_0.3", 4)


def test_crossing_is_taken_anew_in_each_draw():
    rule, boot = floor_study(TWO, RL, draws=300)
    weights = boot.weights["aime"][:, 1:]
    curves = {name: (np.arange(QUESTIONS) < np.array(c)[:, None]) @ weights for name, c in {**TWO, "rl": RL}.items()}
    envelope = np.maximum.accumulate(np.maximum(curves["temp_0.3"], curves[DEFAULT]), axis=0)
    caught = envelope >= curves["rl"]
    expected = [next((i for i in range(5) if caught[i:, d].all()), 5) for d in range(300)]
    first = [next((i for i in range(5) if caught[i, d]), 5) for d in range(300)]
    assert expected != first
    frame = large_budget(rule, boot).filter(pool="ar")
    assert frame["crossing_share"].to_list() == pytest.approx([expected.count(i) / 300 for i in range(5)])
    assert frame["tie_share"].to_list() == pytest.approx([first.count(i) / 300 for i in range(5)])
    row = only(crossing(rule, boot), benchmark="aime", pool="ar")
    assert row["never"] == pytest.approx(expected.count(5) / 300)
    budgets = [1, 2, 4, 8, 16, None]
    assert row["median"] == budgets[sorted(expected)[149]]
    assert (row["lo"], row["hi"]) == (budgets[sorted(expected)[7]], budgets[sorted(expected)[292]])


def test_wilson_intervals_are_the_printed_ones():
    """AIME at b = 256: 25.0% [15.8, 37.2] against 20.0% [11.8, 31.8], which overlap (paper)."""
    base, rl = (2, 3, 5, 6, 7, 8, 10, 12, 15), (4, 4, 4, 5, 6, 7, 9, 11, 12)
    row = only(large_budget(*floor_study({DEFAULT: base}, rl)).filter(pool="ar"), b=256)
    assert [round(100 * row[f"envelope{end}"], 1) for end in ("", "_lo", "_hi")] == [25.0, 15.8, 37.2]
    assert [round(100 * row[f"rl{end}"], 1) for end in ("", "_lo", "_hi")] == [20.0, 11.8, 31.8]
    assert row["overlap"] is True


def test_pools_are_kept_apart():
    searched = TWO | {"mcts_i16": (20, 21, 22, 23, 24)}
    frame = large_budget(*floor_study(searched, RL))
    assert set(frame.filter(pool="full")["policy"]) == {"mcts_i16"}
    assert "mcts_i16" not in frame.filter(pool="ar")["policy"].to_list()
    assert only(large_budget(*floor_study(TWO, RL)), pool="full")["reason"] == "no_expanded_pool"


def test_budgets_of_one_side_are_left_out():
    """Equal budgets or no comparison: RL reaches 32, Base does not."""
    frame = large_budget(*floor_study(TWO, [*RL, 12])).filter(pool="ar")
    assert frame["b"].to_list() == [1, 2, 4, 8, 16]
