"""What a fit identifies, on landscapes where the answer is known."""

from itertools import product

import numpy as np
import pytest

from planted_landscapes import BUDGETS, DEFAULT, along, cohort, views
from searchlens.boptr.cohort import Benchmark
from searchlens.boptr.regimes import formula_same, identified_scale, identified_set

MATH = {"math": Benchmark(regime="math")}
PATH = (2, 4, 8, 8, 16)
POOL = {DEFAULT: (2, 9, 17, 31, 40), "topp0.9_t0.7": (11, 20, 29, 38, 47), "temp_0.3": (23, 26, 28, 30, 33)}
PLANTED = along(POOL["topp0.9_t0.7"], PATH)


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
            gaps = np.abs(np.array(along(curve, path)) - np.array(rl))
            found[alpha, beta, name, path] = gaps.mean()
    return found


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
    """Absent data is said, not skipped."""
    cells = {("a", "math"): (POOL, PLANTED), ("b", "math"): (POOL, None)}
    rule, boot = views(cohort(cells, MATH))
    assert identified_scale(rule)["reason"].to_list() == [None, "no_rl"]
    assert identified_set(rule, boot)["reason"].to_list() == [None, "no_rl"]


def test_formula_same_shows_what_the_scale_does():
    """The paper's table is a part of the other one, not a second computation."""
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
    """Where no budget changes anything every pair fits, and the set is the whole grid."""
    flat = {DEFAULT: [6] * 5, "temp_0.3": [6] * 5}
    rule, boot = views(cohort({("m", "math"): (flat, [6] * 5)}, MATH))
    row = identified_set(rule, boot).row(0, named=True)
    assert row["triples"] == row["of"] == 2 * 31 * 13
    assert (row["alpha_min"], row["alpha_max"], row["beta_min"], row["beta_max"]) == (0.25, 16, 0, 1.2)
