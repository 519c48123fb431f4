"""Recovery on landscapes small enough to know the answer."""

import itertools
import json

import numpy as np
import polars as pl
import pytest
from polars import selectors
from polars.testing import assert_frame_equal

import landscape_oracle as oracle
from searchlens import catalogue
from searchlens.analysis import recovery
from searchlens.analysis.points import Landscape, operating_points
from searchlens.analysis.recovery import recover
from searchlens.analysis.uncertainty import Resamples, wilson
from searchlens.config.general import General
from searchlens.config.landscape import LandscapeOptions
from searchlens.config.recovery import RecoveryOptions
from searchlens.errors import InputError
from searchlens.store import columns as schemas
from searchlens.store import recorded_counts as metric_schemas

RL = "rl"
OPTIONS, GENERAL = RecoveryOptions(), General(default_policy=RL, draws=200)
NAMES = {
    "same_policy": schemas.SAME_POLICY,
    "counts": schemas.COUNTS,
    "support": schemas.SUPPORT,
    "near_match": schemas.NEAR_MATCH,
    "path": schemas.PATH,
    "geometry": schemas.GEOMETRY,
}


def made(curves, questions=100, cost=100.0):
    """A landscape in which point (policy, budget) solves the first N questions; P = Q = B = T, both estimates."""
    hits, points = [], []
    for (policy, budget), solved in curves.items():
        row = [i < solved for i in range(questions)] if isinstance(solved, int) else list(map(bool, solved))
        width = len(metric_schemas.hits()) - 3
        hits += [(policy, i, budget, *[ok] * width) for i, ok in enumerate(row)]
        lo, hi = wilson(sum(row), len(row))
        for metric, value in {**dict.fromkeys("PQBT", sum(row) / len(row)), "D": 0.0, "C": cost * budget}.items():
            rest = (None, len(row), value, float(lo), float(hi))
            points += [(policy, budget, metric, estimator, *rest) for estimator in ("first_k", "unbiased")]
    return Landscape(
        points=pl.DataFrame(points, schemas.POINTS, orient="row"),
        hits=pl.DataFrame(hits, metric_schemas.hits(), orient="row"),
    )


def components(*policies):
    """Policies that differ in the local policy alone."""
    return {policy: (policy, "ar", "lp", "append", "iid") for policy in policies}


def first_k(frame, metric="P"):
    rows = frame.filter(metric=metric)
    return rows.filter(estimator="first_k") if "estimator" in frame.columns else rows


def test_identical_models_have_no_gap():
    """Pairing: the same samples on both sides differ nowhere, and the interval is what 60 questions leave open."""
    policies = [f"p{i:02d}" for i in range(23)] + [RL]
    rng = np.random.default_rng(0)
    model = made({(p, n): rng.random(60) < 0.5 for p in policies for n in (1, 2)})
    same = recovery.same_policy(model, model, GENERAL)
    assert same["rl_minus_base"].abs().max() == 0
    half = float(wilson(0, 60).hi)
    np.testing.assert_allclose(same.select("lo", "hi").to_numpy(), [[-half, half]] * same.height)
    counts = recovery.counts(same, RL)
    assert set(counts.select("ahead", "ahead_or_level", "policies").iter_rows()) == {(0, 24, 24)}
    rest = ("ahead_without_default", "ahead_or_level_without_default", "policies_without_default")
    assert set(counts.select(rest).iter_rows()) == {(0, 23, 23)}


def test_same_policy_counts_over_24_and_over_23_policies():
    """The paper prints 24 in one figure, 23 in another: the RL default makes the difference. It counts ties."""
    policies = [*(f"p{i:02d}" for i in range(22)), RL, "z"]
    ahead = {"p03": 50, "z": 51, RL: 80}
    base = made({(p, n): ahead.get(p, 49) if n == 8 else 10 for p in policies for n in (1, 8)})
    rl = made({(p, n): 50 for p in policies for n in (1, 8)})
    counts = first_k(recovery.counts(recovery.same_policy(base, rl, GENERAL), RL))
    assert counts.drop("metric", "estimator").rows() == [(1, 0, 0, 24, 0, 0, 23, 0, 0), (8, 2, 3, 24, 1, 2, 23, 0, 0)]


@pytest.mark.parametrize(("of_base", "of_rl"), [(513, 513), (2, 513), (513, 2)])
def test_votes_of_large_pools_are_compared_by_their_first_samples(of_base, of_rl):
    """Beyond 512 samples no expected vote is known: recovery of all else goes on, and leaves that one out."""

    def pool(samples):
        rows = [{"policy": RL, "question": q, "sample": s} for q in range(6) for s in range(samples)]
        right = pl.col("sample") % 6 < pl.col("question")
        scores = pl.DataFrame(rows).with_columns(
            correct=right, answer=right.not_().cast(pl.Int32), run=pl.col("sample")
        )
        rest = {name: None for name in schemas.SCORES.names() if name not in scores.columns}
        scores = scores.with_columns(**rest).select(schemas.SCORES.names()).cast(schemas.SCORES)
        return operating_points(scores, budgets=(1, 2), options=LandscapeOptions(draws=100))

    found = recover(pool(of_base), pool(of_rl), components(RL), OPTIONS, GENERAL)
    for name in ("same_policy", "counts", "support"):
        keys = found[name].select("metric", "estimator").unique().rows()
        assert sorted(keys) == [("P", "first_k"), ("P", "unbiased"), ("Q", "first_k")], name
    assert set(found["path"]["metric"]) == {"P", "Q"}


def test_policies_under_which_both_models_solve_nothing_are_counted_apart():
    """0 against 0 is a tie, which the paper counts, but nobody can tell what it says."""
    base = made({("a", 1): 0, ("b", 1): 0, ("c", 1): 3, (RL, 1): 0})
    rl = made({("a", 1): 0, ("b", 1): 2, ("c", 1): 3, (RL, 1): 0})
    (row,) = first_k(recovery.counts(recovery.same_policy(base, rl, GENERAL), RL)).rows(named=True)
    assert (row["ahead"], row["ahead_or_level"], row["policies"]) == (0, 3, 4)
    assert (row["both_zero"], row["both_zero_without_default"]) == (2, 1)


def test_same_policy_difference_is_rl_minus_base_where_both_exist():
    """Sign, matching by policy and budget, and the paired interval of the difference."""
    rng = np.random.default_rng(1)
    left, right = rng.random(80) < 0.6, rng.random(80) < 0.4
    base = made({("a", 1): left, ("a", 2): left, ("b", 1): left})
    rl = made({("c", 1): right, ("a", 2): right, (RL, 1): right})
    same = first_k(recovery.same_policy(base, rl, GENERAL), "Q")
    assert same.select("policy", "budget").rows() == [("a", 2)]
    row = same.row(0, named=True)
    lo, hi = Resamples.draw(80, 200, 0).interval((right.astype(float) - left)[:, None])
    assert row["rl_minus_base"] == pytest.approx(right.mean() - left.mean())
    assert (row["lo"], row["hi"]) == (lo[0], hi[0])


def test_envelope_is_the_best_of_all_smaller_budgets():
    """Known answer: the maximum may sit at a smaller budget; ties go to the smaller budget, then to the first name."""
    base = made({("b", 1): 30, ("a", 1): 30, ("a", 2): 60, ("b", 2): 55, ("a", 4): 58, ("b", 4): 60})
    rl = made({(RL, 1): 40, (RL, 2): 60, (RL, 4): 50})
    support = first_k(recovery.support(base, rl, OPTIONS, GENERAL))
    columns = ("budget", "envelope", "envelope_policy", "envelope_budget", "inside")
    assert support.select(columns).rows() == [(1, 0.3, "a", 1, False), (2, 0.6, "a", 2, True), (4, 0.6, "a", 2, False)]
    assert support["rl_minus_best"].to_list() == pytest.approx([0.1, 0.0, -0.1])
    assert support["low"].to_list() == pytest.approx([0.3, 0.555, 0.582])


def test_support_region_includes_its_ends():
    """RL exactly on the lower quantile (an interpolated float) or the envelope is inside; one question more is not."""
    base = made({(f"p{i:02d}", 1): 10 * i for i in range(1, 10)})
    for solved, inside in ((17, False), (18, True), (90, True), (91, False)):
        support = first_k(recovery.support(base, made({(RL, 1): solved}), OPTIONS, GENERAL))
        assert support["inside"].to_list() == [inside], solved
        assert support["low"].to_list() == pytest.approx([0.18])


def test_support_without_base_points():
    """No Base point at n <= b: no envelope; none at b itself: no cloud to take a quantile of."""
    base = made({("a", 2): 50})
    support = first_k(recovery.support(base, made({(RL, n): 40 for n in (1, 2, 4)}), OPTIONS, GENERAL))
    assert support["envelope"].to_list() == [None, 0.5, 0.5]
    assert support["low"].to_list() == [None, 0.5, None]
    assert support["inside"].to_list() == [None, False, None]
    assert support["rl_minus_best_lo"].null_count() == 1


def test_envelope_intervals():
    """Three intervals: point held fixed, the envelope of shrunk points, or chosen again in each draw.

    Their names are new strings, as those that are read from a file.
    """
    rng = np.random.default_rng(3)
    rows = {p: rng.random(90) < 0.2 + 0.1 * i for i, p in enumerate("abcdef")}
    target = rng.random(90) < 0.6
    base, rl = made({(p, 1): row for p, row in rows.items()}), made({(RL, 1): target})
    found = {
        kind: first_k(recovery.support(base, rl, OPTIONS, GENERAL, kind)).row(0, named=True)
        for kind in json.loads('["fixed", "corrected", "reselected"]')
    }
    resamples = Resamples.draw(90, 200, 0)
    drawn = resamples.means(np.array(list(rows.values())).T)
    best = list(rows).index(found["fixed"]["envelope_policy"])
    optimism = (drawn.max(axis=0) - drawn[best]).mean()
    lo, hi = resamples.interval((target.astype(float) - rows[found["fixed"]["envelope_policy"]])[:, None])
    assert optimism > 0
    assert [row["optimism"] for row in found.values()] == pytest.approx([optimism] * 3)
    assert (found["fixed"]["rl_minus_best_lo"], found["fixed"]["rl_minus_best_hi"]) == (
        pytest.approx(lo[0]),
        pytest.approx(hi[0]),
    )
    height = np.array([row.mean() for row in rows.values()])
    change = drawn - height[:, None]
    noise = np.mean([column.var() for column in change.T])
    kept = max(0, 1 - noise / height.var())
    shrunk = height.mean() + kept * (height - height.mean())
    moved = resamples.means(target[:, None])[0] - target.mean()
    moved = moved - ((shrunk[:, None] + change).max(axis=0) - shrunk.max())
    gap, least = found["corrected"]["rl_minus_best"], float(wilson(0, 90).hi)
    assert found["corrected"]["rl_minus_best_lo"] == pytest.approx(min(lo[0], gap - least), abs=1e-6)
    assert found["corrected"]["rl_minus_best_hi"] == pytest.approx(
        max(gap - np.quantile(moved, 0.025), gap + least), abs=1e-6
    )
    assert 0 < kept < 1  # at the ends, a wrong share of noise would not show
    reselected = np.quantile(resamples.means(target[:, None])[0] - drawn.max(axis=0), [0.025, 0.975])
    assert (found["reselected"]["rl_minus_best_lo"], found["reselected"]["rl_minus_best_hi"]) == pytest.approx(
        tuple(reselected), abs=1e-6
    )


def test_points_are_shrunk_to_those_of_their_own_budget():
    """Two points that only noise tells apart meet at their mean, and two without noise stay, wherever the others are.

    In the draws the first two move 0.2 against each other: noise 2 * 0.2^2, more than their spread of 2 * 0.1^2.
    """
    change = np.array([[0.2, -0.2], [-0.2, 0.2], [0.0, 0.0], [0.0, 0.0]])
    for budgets in ([1, 1, 2, 2], [2, 2, 1, 1]):
        shrunk = recovery._shrunk(np.array([0.4, 0.6, 0.9, 0.7]), change, np.array(budgets))
        assert shrunk == pytest.approx([0.5, 0.5, 0.9, 0.7])


def test_nothing_to_choose_from_is_not_optimistic():
    """With one Base point nothing is chosen: a model against itself has no gap, and the plain intervals are [0, 0]."""
    model = made({(RL, 1): np.random.default_rng(4).random(70) < 0.5})
    for kind in ("fixed", "corrected", "reselected"):
        general = General(default_policy=RL, draws=100)
        row = first_k(recovery.support(model, model, OPTIONS, general, kind)).row(0, named=True)
        assert (row["rl_minus_best"], row["optimism"], row["inside"]) == (0, 0, True)
        unseen = float(wilson(0, 70).hi) if kind == "corrected" else 0
        assert (row["rl_minus_best_lo"], row["rl_minus_best_hi"]) == pytest.approx((-unseen, unseen), abs=1e-7)


@pytest.mark.parametrize("solved", [0, 1, 7, 60])
def test_corrected_interval_contains_the_gap_where_few_questions_differ(solved):
    """RL and the envelope differ on one question or none, where others tie: moved up, the interval would miss it."""
    row = np.arange(60) < solved
    base = made({("a", 1): row, ("b", 1): np.roll(row, 3), ("c", 1): np.roll(row, 9)}, 60)
    unseen = float(wilson(0, 60).hi)
    for more in (0, 1):
        goal = np.arange(60) < min(solved + more, 60)
        found = first_k(recovery.support(base, made({(RL, 1): goal}, 60), OPTIONS, GENERAL)).row(0, named=True)
        assert found["envelope_policy"] == "a"
        assert found["rl_minus_best_lo"] == pytest.approx(max(found["rl_minus_best"] - unseen, -1))
        assert found["rl_minus_best_hi"] >= min(found["rl_minus_best"] + unseen, 1) - 1e-9
        assert -1 <= found["rl_minus_best_lo"] < found["rl_minus_best_hi"] <= 1


@pytest.mark.parametrize("kind", ["fixed", "corrected", "reselected"])
def test_an_interval_of_one_question_is_unknown(kind):
    """A single question has no spread over questions, and the allowances do not replace it."""
    one = made({(RL, 1): 1}, 1)
    row = first_k(recovery.support(one, one, OPTIONS, GENERAL, kind)).row(0, named=True)
    assert (row["rl_minus_best"], row["rl_minus_best_lo"], row["rl_minus_best_hi"]) == (0, None, None)


def test_an_interval_ends_where_a_gap_must():
    """One model solves everything, the other nothing: what 60 questions leave open goes one way only."""
    everything, nothing, unseen = {("a", 1): 60, (RL, 1): 60}, {("a", 1): 0, (RL, 1): 0}, float(wilson(0, 60).hi)
    below = first_k(recovery.support(made(everything, 60), made(nothing, 60), OPTIONS, GENERAL)).row(0, named=True)
    above = first_k(recovery.support(made(nothing, 60), made(everything, 60), OPTIONS, GENERAL)).row(0, named=True)
    assert (below["rl_minus_best_lo"], below["rl_minus_best_hi"]) == pytest.approx((-1, unseen - 1))
    assert (above["rl_minus_best_lo"], above["rl_minus_best_hi"]) == pytest.approx((1 - unseen, 1))


@pytest.mark.parametrize(("questions", "epsilon"), [(100, 0.03), (500, 0.03), (200, 0.1), (60, 0.05), (198, 1 / 99)])
def test_near_match_includes_exactly_epsilon(questions, epsilon):
    """Where k/n - j/n lands on the wrong side of 0.03 in floating point, the count still decides."""
    allowed = round(epsilon * questions)
    options = RecoveryOptions(epsilon=epsilon)
    for goal in range(allowed + 1, questions - allowed - 1, 7):
        base = made({("a", 1): goal - allowed, ("b", 1): goal + allowed, ("c", 1): goal + allowed + 1}, questions)
        near = first_k(recovery.near_match(base, made({(RL, 1): goal}, questions), options, RL))
        assert near["policy"].to_list() == ["a", "b"], goal
        assert near["rl_minus_base"].to_list() == pytest.approx([allowed / questions, -allowed / questions])


def test_near_match_may_spend_more_than_the_target():
    base = made({("a", 1): 10, ("a", 8): 42, ("b", 8): 41, ("b", 1): 39})
    near = first_k(recovery.near_match(base, made({(RL, 1): 41, (RL, 8): 90}), OPTIONS, RL))
    assert near.select("target_budget", "policy", "budget").rows() == [(1, "b", 8), (1, "a", 8), (1, "b", 1)]


def test_near_match_breaks_ties_by_budget_then_name():
    """Two points as near as each other: the cheaper one first, then by name, whatever order they were sampled in."""
    base = made({("b", 4): 42, ("c", 1): 40, ("b", 1): 42, ("a", 1): 42})
    near = first_k(recovery.near_match(base, made({(RL, 1): 41}), OPTIONS, RL))
    assert near.select("policy", "budget").rows() == [("a", 1), ("b", 1), ("c", 1), ("b", 4)]


def test_closest_path_breaks_ties_by_budget_then_distance_then_name():
    """Target 1: smaller budget wins, then the name. Target 2: the policy just used beats an earlier name."""
    base = made({("c", 1): 30, ("b", 1): 30, ("a", 4): 30, ("a", 2): 50, ("b", 2): 50, ("c", 4): 71})
    rl = made({(RL, 1): 30, (RL, 2): 50, (RL, 4): 70})
    path = first_k(recovery.path(base, rl, components("a", "b", "c"), OPTIONS, RL)).filter(kind="closest")
    assert path.select("policy", "budget").rows() == [("b", 1), ("b", 2), ("c", 4)]
    assert path["rl_minus_base"].to_list() == pytest.approx([0, 0, -0.01])
    assert path["target"].to_list() == [0.3, 0.5, 0.7]


def test_closest_path_prefers_the_smaller_budget_to_the_nearer_point():
    """Both hit the second target; (b, 8) is nearer to the previous (b, 4), but (a, 1) is cheaper."""
    base = made({("b", 4): 50, ("a", 1): 70, ("b", 8): 70})
    path = first_k(recovery.path(base, made({(RL, 1): 50, (RL, 2): 70}), components("a", "b"), OPTIONS, RL))
    assert path.filter(kind="closest").select("policy", "budget").rows() == [("b", 4), ("a", 1)]


@pytest.mark.parametrize("seed", range(8))
def test_monotone_path_is_the_best_of_all_monotone_paths(seed):
    """The dynamic programme against every path; few distinct values, so ties occur and must go to the first path."""
    rng = np.random.default_rng(seed)
    policies, budgets = "cab", (1, 2, 4)
    base = made({(p, n): int(rng.integers(2, 7)) for p in policies for n in budgets}, 10)
    rl = made({(RL, n): int(rng.integers(2, 7)) for n in budgets}, 10)
    lam = float(rng.choice([0.0, 0.01, 0.05]))
    place = recovery.geometry(base, rl).filter(model="base")
    apart = recovery.distance(place, components(*policies), OPTIONS)
    points = place.select("policy", "budget").rows()
    value = dict(zip(points, place["P"], strict=True))
    goals = [rl.points.filter(budget=n, metric="P", estimator="first_k")["value"][0] for n in budgets]

    def cost(path):
        miss = sum(abs(value[points[i]] - goal) for i, goal in zip(path, goals, strict=True))
        return miss + lam * sum(apart[i, j] for i, j in itertools.pairwise(path))

    order = sorted(range(len(points)), key=lambda i: (points[i][1], points[i][0]))
    every = (p for p in itertools.product(order, repeat=3) if points[p[0]][1] <= points[p[1]][1] <= points[p[2]][1])
    best = min(every, key=lambda path: round(cost(path), 10))
    found = first_k(recovery.path(base, rl, components(*policies), OPTIONS, RL, lam)).filter(kind="monotone")
    assert found.select("policy", "budget").rows() == [points[i] for i in best]


def test_distance_adds_components_behaviour_and_budget():
    """One known pair: two of five components differ, P = Q = T differ by 0.2, cost spans its scale, n by a factor 4."""
    base = made({("a", 1): 30, ("b", 4): 50})
    place = recovery.geometry(base, base).filter(model="base")
    assert place["C"].to_list() == pytest.approx([0, 1])
    parts = {"a": (("top-p", 0.9), "ar", 1, 2, 3), "b": (("top-p", 0.8), "mcmc", 1, 2, 3)}
    apart = recovery.distance(place, parts, OPTIONS)
    assert apart[0, 1] == pytest.approx(2 / 5 + (3 * 0.2 + 1) + np.log(4))
    assert (apart == apart.T).all()
    assert (np.diag(apart) == 0).all()
    weighted = recovery.distance(place, parts, RecoveryOptions(l_comp=10, l_z=0, l_b=2))
    assert weighted[0, 1] == pytest.approx(10 * 2 / 5 + 2 * np.log(4))


def test_geometry_scales_cost_by_base():
    """RL is scaled like Base and may lie outside [0, 1]; equal costs have no scale and get 0."""
    base, rl = made({("a", 1): 5, ("a", 4): 5}), made({(RL, 1): 5, (RL, 2): 5}, cost=200.0)
    place = recovery.geometry(base, rl)
    assert place["C"].to_list() == pytest.approx([0, 1, 0.5, 1])
    assert place["model"].to_list() == ["base", "base", "rl", "rl"]
    close = recovery.geometry(made({("a", 1): 5, ("a", 2): 5}), rl)
    assert close["C"].to_list() == pytest.approx([0, 1, 1, 2])
    least = recovery.geometry(made({("a", 1): 5, ("a", 2): 5}, cost=1.0), made({(RL, 1): 5}, cost=0.0))
    assert least["C"].to_list() == pytest.approx([0, 1, 0]), "the logarithm of no token counts as that of one"
    assert recovery.geometry(made({("a", 1): 5}), rl)["C"].to_list() == [0, 0, 0]


def test_every_table_of_a_sampled_pair():
    rng = np.random.default_rng(5)
    sizes = {"a": 4, "greedy": 1, RL: 4}
    base, rl = (
        operating_points(
            oracle.frame({name: [oracle.random_pool(rng, size) for _ in range(30)] for name, size in sizes.items()}),
            budgets=[1, 2, 4],
            options=LandscapeOptions(draws=100, ties=ties),
        )
        for ties in ("first", "fractional")
    )
    parts = components(*sizes)
    tables = recover(base, rl, parts, OPTIONS, GENERAL)
    assert {name: table.schema for name, table in tables.items()} == NAMES
    assert tuple(tables) == catalogue.RECOVERY_FRAMES
    for name in ("same_policy", "counts", "support"):
        assert set(tables[name].select("metric", "estimator").iter_rows()) == set(
            itertools.product("PQ", ["first_k", "unbiased"])
        )
    assert first_k(tables["counts"])["policies"].to_list() == [3, 2, 2]
    assert tables["path"].height == 2 * 2 * 3
    assert tables["geometry"].height == 2 * 7
    monotone = first_k(tables["path"]).filter(kind="monotone")["budget"]
    assert monotone.to_list() == sorted(monotone)
    band = first_k(tables["support"], "Q").select("rl_lo", "rl_hi")
    wanted = rl.points.filter(policy=RL, metric="Q", estimator="first_k").select(rl_lo="lo", rl_hi="hi")
    assert_frame_equal(band, wanted)
    for name, table in recover(base, rl, parts, OPTIONS, GENERAL).items():
        assert_frame_equal(table, tables[name], check_exact=True)


def test_mismatched_pairs_are_refused():
    base, rl = made({("a", 1): 5}), made({(RL, 1): 5})
    with pytest.raises(InputError, match="question 100 is in only one of them"):
        recovery.same_policy(base, made({(RL, 1): 5}, 101), GENERAL)
    with pytest.raises(InputError, match="RL has no samples of the default policy 'rl'; it has a"):
        recovery.support(base, base, OPTIONS, GENERAL)
    with pytest.raises(InputError, match="policy 'a' has no components"):
        recovery.path(made({("b", 1): 5, ("a", 1): 5}), rl, components("c"), OPTIONS, RL)


def test_a_metric_is_compared_only_where_both_sides_have_it():
    """Whichever side lacks it, such as a vote that nobody recorded."""
    whole = made({("a", 1): 5, (RL, 1): 5})
    part = Landscape(whole.points.filter(pl.col("metric") != "Q"), whole.hits)
    for base, rl, metrics in ((whole, whole, {"P", "Q"}), (whole, part, {"P"}), (part, whole, {"P"})):
        assert set(recovery.same_policy(base, rl, GENERAL)["metric"]) == metrics


def test_points_without_an_expectation_are_left_out():
    """A search of width 3 has none at 4 and more: the envelope there is that of what is left, and it is known."""
    rng, budgets = np.random.default_rng(1), [1, 2, 3, 4, 8, 16]
    default, tree, of_rl = (
        oracle.searched(rng, 30, runs, width)[0].with_columns(policy=pl.lit(name))
        for name, runs, width in ((RL, 16, 1), ("thought_tree_b3", 6, 3), (RL, 16, 1))
    )
    base = operating_points(pl.concat([default, tree]), budgets=budgets)
    alone, rl = (operating_points(frame, budgets=budgets) for frame in (default, of_rl))
    found, plain = (
        recovery.support(side, rl, OPTIONS, GENERAL).filter(pl.col("budget") >= 4, metric="P", estimator="unbiased")
        for side in (base, alone)
    )
    assert found.height == 3
    assert found["inside"].null_count() == found["low"].null_count() == 0
    assert (found["envelope"] >= plain["envelope"]).all()
    for frame in (recovery.same_policy(base, rl, GENERAL), recovery.near_match(base, rl, OPTIONS, RL)):
        assert not any(frame.select(selectors.float().is_nan().any()).row(0))
