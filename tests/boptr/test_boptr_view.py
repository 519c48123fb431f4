"""Estimates along draws: the sample, the bootstrap over questions and the re-pairings, against counts by hand."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import permutations, product

import numpy as np
import pytest

import planted_landscapes
from planted_landscapes import BUDGETS
from searchlens.boptr.cohort import Benchmark, Cohort, DenseLandscape, Model
from searchlens.boptr.evaluate import has_expanded_pool
from searchlens.boptr.rows import temperatures
from searchlens.boptr.view import View, bootstrap_view, nested_view, pairing_view, sample_view
from small_cohort import DEFAULT, cohort, dense_landscape, hits

TWO = {"m": Model("m-base", "m-rl"), "n": Model("n-base", "n-rl")}
STUDY = {"math": Benchmark("math"), "gpqa": Benchmark("nonmath")}
QUESTIONS = 40
"""On both benchmarks, so that draws could be mistaken for each other."""


def scattered(seed: int, policies: Sequence[str] = (DEFAULT, "temp_0.3")) -> DenseLandscape:
    """Solved at random; Q apart from P."""
    rng = np.random.default_rng(seed)
    P, Q = ({name: rng.random((2, QUESTIONS)) < 0.4 for name in policies} for _ in range(2))
    return dense_landscape(P, Q)


def study() -> Cohort:
    """Two models on two benchmarks; RL of m on math is Base of n there, question by question."""
    landscapes = {
        (checkpoint, benchmark): scattered(10 * i + j)
        for i, checkpoint in enumerate(("m-base", "m-rl", "n-base", "n-rl"))
        for j, benchmark in enumerate(STUDY)
    }
    landscapes["m-rl", "math"] = landscapes["n-base", "math"]
    return cohort(landscapes, TWO, STUDY)


def test_draw_from_a_draw_takes_its_questions() -> None:
    """As many, only those of its parent, twice as scattered as the parent, and the same for the same seed."""
    parent = bootstrap_view(study(), 300, 5)
    nested = nested_view(parent, 5)
    for name, of_parent in parent.weights.items():
        weights = nested.weights[name]
        assert weights.shape == of_parent.shape and (weights[:, 0] == 1).all()
        assert (weights.sum(axis=0) == QUESTIONS).all() and (weights[of_parent == 0] == 0).all()
        assert weights[:, 1:].var() / of_parent[:, 1:].var() == pytest.approx(2, abs=0.1)
        np.testing.assert_array_equal(weights, nested_view(parent, 5).weights[name])
    assert not np.array_equal(nested.weights["math"], nested.weights["gpqa"])


def test_single_points_are_counted_at_any_budget() -> None:
    """Pools that reach further than B, and credits below 1 (a mean over batches)."""
    longer = dense_landscape({DEFAULT: [hits(2, 10), hits(3, 10), 0.5 * hits(9, 10)]}, budgets=(1, 2, 64))
    view = sample_view(cohort({("base", "math"): longer, ("rl", "math"): longer}))
    assert view.count(longer, "math", "P", DEFAULT, (64, 1)).tolist() == [[4.5], [2]]


def test_policies_count_where_they_were_sampled_at_every_budget() -> None:
    """A policy without some budget is in no pool; searches are only in the full one; a pool may be empty."""
    whole = dense_landscape({name: [hits(1, 10), hits(2, 10)] for name in (DEFAULT, "mcts_16", "temp_0.3", "greedy")})
    gone = {("greedy", 2), ("temp_0.3", 1)}
    points = {point: row for point, row in whole.points.items() if point not in gone}
    base = replace(whole, points=points)
    view = sample_view(cohort({("base", "math"): base, ("rl", "math"): whole}))
    found = view.base("m", "math")
    assert found.policies == (DEFAULT, "mcts_16")
    assert (found.pool("ar").tolist(), found.pool("full").tolist()) == ([0], [0, 1])
    none = replace(whole, points={point: row for point, row in whole.points.items() if point[1] == 1})
    assert view.cell_counts(none, "math") is None


def test_a_named_policy_belongs_to_the_pool_that_its_definition_says() -> None:
    """Without a definition its name spells no policy, so it counts as a search."""
    landscape = dense_landscape({name: [hits(1, 10), hits(2, 10)] for name in (DEFAULT, "warm", "wide")})
    undefined = cohort({("base", "math"): landscape, ("rl", "math"): landscape})
    definitions = {
        "warm": {"local": {"temperature": 0.8}},
        "wide": {"controller": {"name": "step_beam"}},
    }
    defined = Cohort(replace(undefined.plan, policies=definitions), undefined.landscapes)
    for study, autoregressive in ((undefined, [DEFAULT]), (defined, [DEFAULT, "warm"])):
        base = sample_view(study).base("m", "math")
        assert base is not None and [base.policies[i] for i in base.autoregressive] == autoregressive
    assert temperatures(("warm", "wide"), defined.plan.configured) == {"warm": 0.8}
    only_warm = dense_landscape({name: [hits(1, 10), hits(2, 10)] for name in (DEFAULT, "warm")})
    for plan, expanded in ((undefined.plan, True), (defined.plan, False)):
        study = Cohort(plan, {("base", "math"): only_warm, ("rl", "math"): only_warm})
        assert has_expanded_pool(study, "m", "math") is expanded


def test_what_was_not_sampled_is_none() -> None:
    here, other = scattered(1), scattered(2, ["temp_0.3"])
    short = replace(here, points={point: row for point, row in here.points.items() if point != (DEFAULT, 2)})
    landscapes = {("m-base", "math"): here, ("m-rl", "math"): here, ("m-base", "gpqa"): other, ("m-rl", "gpqa"): short}
    view = sample_view(cohort(landscapes | {("n-base", "math"): short}, TWO, STUDY))
    assert view.base("n", "gpqa") is None and view.target("n", "math") is None and view.default("n", "gpqa") is None
    assert view.target("m", "gpqa") is None
    for cell in (("m", "gpqa"), ("n", "math")):
        base = view.base(*cell)
        assert view.default(*cell) is None and base is not None and base.policies == ("temp_0.3",)


def test_benchmarks_are_drawn_independently() -> None:
    weights = bootstrap_view(study(), 2000, 3).weights
    first, second = (weights[name][:, 1:] for name in ("math", "gpqa"))
    assert (first != second).any(axis=0).all()
    products = (first - 1) * (second - 1)
    assert abs(products.mean()) < 4 * products.std() / np.sqrt(products.size)


def test_seed_decides_the_draws() -> None:
    """On every benchmark, the first one included."""
    once, again, other = (bootstrap_view(study(), 30, seed) for seed in (3, 3, 4))
    for benchmark in STUDY:
        np.testing.assert_array_equal(once.base("m", benchmark).P, again.base("m", benchmark).P)
        assert (once.base("m", benchmark).P != other.base("m", benchmark).P).any()


def test_bootstrap_counts_are_binomial() -> None:
    """k of n solved: mean k and variance k (n - k) / n; two policies covary by the questions that both solve."""
    draws, n, k, other, both = 8000, QUESTIONS, 10, 16, 8
    counts = {DEFAULT: [hits(k, n), hits(n, n)], "temp_0.3": [hits(0, n), hits(other, n, first=k - both)]}
    base = dense_landscape(counts)
    view = bootstrap_view(cohort({("base", "math"): base, ("rl", "math"): base}), draws, 11)
    P = view.base("m", "math").P[:, :, 1:].astype(float)
    assert (P[0, 1] == n).all() and (P[1, 0] == 0).all()
    first, second = P[0, 0], P[1, 1]
    variances = [k * (n - k) / n, other * (n - other) / n]
    for found, mean, variance in zip((first, second), (k, other), variances, strict=True):
        assert abs(found.mean() - mean) < 4 * np.sqrt(variance / draws)
        assert found.var() == pytest.approx(variance, rel=4 * np.sqrt(2 / draws))
    covariance = both - k * other / n
    products = (first - k) * (second - other)
    assert abs(products.mean() - covariance) < 4 * products.std() / np.sqrt(draws) < covariance / 4


def test_other_models_do_not_change_the_draws() -> None:
    found = study()
    alone = {key: part for key, part in found.landscapes.items() if key[0].startswith("m-")}
    before, after = (bootstrap_view(c, 40, 1) for c in (cohort(alone, {"m": TWO["m"]}, STUDY), found))
    for benchmark in STUDY:
        np.testing.assert_array_equal(before.target("m", benchmark), after.target("m", benchmark))


CURVES = {name: [3 * i + b for b in range(5)] for i, name in enumerate("abcd")}
MATH = {"math": Benchmark("math"), "gpqa": Benchmark("nonmath"), "tiny": Benchmark("nonmath", "held_out")}


def paired(absent: Sequence[tuple[str, str]] = (), new: Sequence[str] = ()) -> Cohort:
    """Four models whose RL curves tell whose they are; gpqa has 20 more of each than math."""
    base = {DEFAULT: (1, 5, 9, 20, 30)}
    cells = {
        (name, benchmark): (base, None if (name, benchmark) in absent else [c + 20 * i for c in curve])
        for name, curve in CURVES.items()
        for i, benchmark in enumerate(MATH)
    }
    return planted_landscapes.cohort(cells, MATH, new)


def owners(view: View, model: str, benchmark: str) -> list[str]:
    """Whose RL the model has in each draw."""
    known = {tuple(np.add(curve, 20 * list(MATH).index(benchmark))): name for name, curve in CURVES.items()}
    return [known[tuple(column)] for column in view.target(model, benchmark).T.astype(int).tolist()]


def test_all_pairings_are_enumerated_where_they_are_few() -> None:
    """4! = 24 pairings, each once, the true one first, the same on every benchmark; Base stays."""
    view = pairing_view(paired(), 24, 9)
    orders = list(zip(*(owners(view, name, "math") for name in CURVES), strict=True))
    assert orders[0] == tuple(CURVES)
    assert len(orders) == view.draws == 24 and set(orders) == set(permutations(CURVES))
    for name, benchmark in product(CURVES, MATH):
        assert owners(view, name, benchmark) == owners(view, name, "math")
        assert view.base(name, benchmark).P[0, :, 0].tolist() == [1, 5, 9, 20, 30]


def test_pairings_are_drawn_where_they_are_many() -> None:
    """The true one first, then permutations at random, decided by the seed and without a preferred partner."""
    view = pairing_view(paired(), 23, 9)
    assert view.draws == 23 and [owners(view, name, "gpqa")[0] for name in CURVES] == list(CURVES)
    orders = list(zip(*(owners(view, name, "gpqa") for name in CURVES), strict=True))
    assert all(sorted(order) == list(CURVES) for order in orders) and len(set(orders)) > 8
    again, other = (pairing_view(paired(), 23, seed) for seed in (9, 10))
    assert orders == list(zip(*(owners(again, name, "gpqa") for name in CURVES), strict=True))
    assert orders != list(zip(*(owners(other, name, "gpqa") for name in CURVES), strict=True))


def test_random_pairings_are_uniform() -> None:
    """Eight models are too many to enumerate: each is paired with each equally often."""
    curves = {f"m{i}": [i] * 5 for i in range(8)}
    cells = {(name, "math"): ({DEFAULT: BUDGETS}, curve) for name, curve in curves.items()}
    view = pairing_view(planted_landscapes.cohort(cells, {"math": Benchmark("math")}), 4001, 2)
    for name in curves:
        times = np.bincount(view.target(name, "math")[0, 1:].astype(int), minlength=8)
        assert np.abs(times - 500).max() < 4.5 * np.sqrt(4000 / 8 * 7 / 8)


def test_incomplete_and_new_models_keep_their_own_rl() -> None:
    view = pairing_view(paired(absent=[("b", "gpqa"), ("c", "tiny")], new=["d"]), 100, 9)
    assert view.partners == ("a", "c") and view.draws == 2
    assert owners(view, "a", "math") == ["a", "c"] and owners(view, "c", "gpqa") == ["c", "a"]
    assert owners(view, "b", "math") == ["b", "b"] and owners(view, "d", "gpqa") == ["d", "d"]
    assert view.target("b", "gpqa") is None
    assert owners(view, "a", "tiny") == ["a", "a"]


def test_nothing_to_exchange_is_the_sample() -> None:
    view = pairing_view(paired(new=["b", "c", "d"]), 100, 9)
    assert view.draws == 1 and owners(view, "a", "math") == ["a"]
