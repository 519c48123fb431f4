"""The selector, against numbers worked out by hand and a loss written out policy by policy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest
from scipy import stats

import planted_landscapes
from budget_paths import budget_path
from planted_landscapes import BUDGETS, along
from searchlens import catalogue
from searchlens.boptr import fit
from searchlens.boptr.cohort import Benchmark, Cohort, DenseLandscape
from searchlens.boptr.fit import Features
from searchlens.boptr.rule import Path, Rule
from searchlens.boptr.view import Readouts, bootstrap_view, sample_view
from searchlens.config.boptr import BoptrOptions
from small_cohort import DEFAULT, cohort, dense_landscape, hits


def column(*values: float) -> np.ndarray:
    return np.array(values, np.float32)[:, None]


def cell(
    P: Sequence[Sequence[int]], Q: Sequence[Sequence[int]] | None = None, tokens: Sequence[float] = (), search: int = 0
) -> Readouts:
    """Rows of policies ``a``, ``b``, ..., the last ``search`` of which are controllers; Q is P unless given."""
    names = "abcdefg"[: len(P)]
    counts = [np.array(part, np.float32)[:, :, None] for part in (P, P if Q is None else Q)]
    controllers = ("autoregressive",) * (len(P) - search) + ("mcts",) * search
    return Readouts(tuple(names), controllers, *counts, np.array(tokens or [100.0] * len(P)))


# ---- ranks


@pytest.mark.parametrize(
    ("values", "percentile", "integer", "zscore"),
    [
        ((4, 1, 2, 2), (1, 0, 0.5, 0.5), (3, 0, 1.5, 1.5), (1.6059, -1.1471, -0.2294, -0.2294)),
        ((7, 7, 7), (0.5, 0.5, 0.5), (1, 1, 1), (0, 0, 0)),
        ((1, 1, 5), (0.25, 0.25, 1), (0.5, 0.5, 2), (-0.7071, -0.7071, 1.4142)),
        ((9,), (0.5,), (0,), (0,)),
    ],
)
def test_scales_by_hand(values: Any, percentile: Any, integer: Any, zscore: Any) -> None:
    """Ascending from 0, ties averaged; a pool that is all alike, or of one, says nothing."""
    pool = column(*values)
    assert fit.percentile_rank(pool, pool)[:, 0].tolist() == list(percentile)
    assert fit.integer_rank(pool, pool)[:, 0].tolist() == list(integer)
    assert fit.zscore(pool, pool)[:, 0] == pytest.approx(zscore, abs=1e-4)


def test_scales_are_those_of_scipy_in_every_draw() -> None:
    values = np.random.default_rng(1).integers(0, 6, (9, 3, 4)).astype(np.float32)
    ranks = stats.rankdata(values, axis=0) - 1
    np.testing.assert_allclose(fit.percentile_rank(values, values), ranks / 8)
    np.testing.assert_allclose(fit.integer_rank(values, values), ranks)
    np.testing.assert_allclose(fit.zscore(values, values), stats.zscore(values, axis=0), atol=1e-5)


def test_policies_outside_the_ranked_pool_move_nobody_in_it() -> None:
    """A controller with the same count as a policy has its rank; between two policies it lies halfway."""
    pool = column(10, 20, 40)
    everybody = column(10, 20, 40, 20, 30, 5)
    assert fit.percentile_rank(everybody, pool)[:, 0].tolist() == [0, 0.5, 1, 0.5, 0.75, 0]
    assert fit.integer_rank(everybody, pool)[:3, 0].tolist() == [0, 1, 2]


# ---- features


def test_features_by_hand() -> None:
    """P 10/30/20, Q 10/15/15, so P - Q 0/15/5; tokens 100/400/200 are 0/1/0.5 on the log scale."""
    found = fit.features(cell([[10], [30], [20]], [[10], [15], [15]], [100, 400, 200]), BoptrOptions())
    assert found.ranks[0][:, 0, 0].tolist() == [0, 1, 0.5]
    assert found.ranks[1][:, 0, 0].tolist() == [0, 1, 0.5]
    assert found.ranks[2][:, 0, 0].tolist() == [0, 0.75, 0.75]
    assert found.fixed[0].tolist() == [0, 0, 0]
    assert found.fixed[1] == pytest.approx([0, 1, 0.5])
    assert found.weights == (1, 1, 1, 0.5, 0.2)


def test_ranks_are_taken_at_each_budget() -> None:
    """A policy that leads at one sample may trail at two."""
    found = fit.features(cell([[3, 4], [1, 8], [2, 6]]), BoptrOptions())
    assert found.ranks[0][:, :, 0].tolist() == [[1, 0], [0, 1], [0.5, 0.5]]


@pytest.mark.parametrize(("pool", "ranks"), [("ar", [0, 1]), ("all", [0, 0.5])])
def test_the_ranked_pool_is_an_option(pool: Any, ranks: list[float]) -> None:
    """A controller at the top, with four times the tokens: it takes part in the ranks and the scale, or it does not."""
    controlled = cell([[10], [20], [50]], tokens=[100, 200, 400], search=1)
    found = fit.features(controlled, BoptrOptions(selector_rank_pool=pool))
    assert found.ranks[0][:2, 0, 0].tolist() == ranks
    assert found.fixed[1, :2] == pytest.approx(ranks)


@pytest.mark.parametrize("tokens", [[100.0, np.nan, 300.0], [0.0, 0.0, 0.0]])
def test_unknown_costs_are_no_costs(tokens: list[float]) -> None:
    """Where any is unknown, or all are nothing, cost tells no policy from another."""
    found = cell([[1], [2], [3]], tokens=tokens)
    with np.errstate(all="raise"):  # nothing is divided by nothing
        assert fit.relative_cost(found).tolist() == [0, 0, 0]
    assert fit.log_cost(found, np.arange(3)).tolist() == [0, 0, 0]


def test_costs_by_hand() -> None:
    found = cell([[1], [2], [3]], tokens=[100, 250, 1000], search=1)
    assert fit.relative_cost(found).tolist() == [
        0.4,
        1,
        4,
    ]  # relative to the AR pool, without the expensive search
    unknown = cell([[1], [2], [3]], tokens=[100, 250, np.nan], search=1)
    assert fit.relative_cost(unknown)[:2].tolist() == [0.4, 1]
    assert fit.log_cost(unknown, np.array([0, 1]))[:2] == pytest.approx([0, 1])
    assert fit.log_cost(found, np.array([0, 1, 2])) == pytest.approx([0, np.log10(2.5), 1])
    assert fit.log_cost(found, np.array([0, 1]))[:2] == pytest.approx([0, 1])
    assert fit.log_cost(cell([[1], [2]]), np.arange(2)).tolist() == [0, 0]


def test_every_controller_has_an_index() -> None:
    """Taken from the policy, not from its name; a controller that declares none has the largest."""
    indices = {item.options["index"] for item in catalogue.declared("controller").values()}
    assert indices == set(range(fit.FARTHEST + 1))
    names = ("t", "thought_tree_b4", "step_beam_b4", "mcts_16", "mine", "temp_0.3")
    own = {"t": {"controller": "thought_tree"}, "mcts_16": {"controller": "power"}}
    table = dense_landscape({name: [hits(1, 4), hits(2, 4)] for name in names})
    plain = cohort({("base", "math"): table, ("rl", "math"): table})
    found = sample_view(replace(plain, plan=replace(plain.plan, policies=own))).base("m", "math")
    assert found is not None and found.controllers[3:] == ("power", "search", "autoregressive")
    assert fit.fixed_coordinates(found, BoptrOptions())[0].tolist() == [0.6, 0.6, 0.2, 1.0, 1.0, 0.0]


# ---- prototype, distance, loss


RANKS = tuple(np.array([[[0, 1, 0.5], [1, 0, 1]], [[0.2, 0.4, 0.6], [0.8, 0.6, 0.4]]])[..., None])
"""Two coordinates of two policies at three budgets."""
FOUND = Features(RANKS, np.array([[0.3, 0.9]]), (1.0, 4.0, 0.5))


@pytest.mark.parametrize(
    ("proto", "expected"),
    [
        ("mean_over_b", [[2.5 / 3], [1.4 / 3], [0.3]]),
        ("per_b", [[1, 1, 0.5], [0.4, 0.4, 0.6], [0.3, 0.3, 0.3]]),
    ],
)
def test_prototype_by_hand(proto: Any, expected: list[list[float]]) -> None:
    """Policy 0 along 2/2/4: first coordinate 1, 1, .5, second .4, .4, .6; the fixed one does not vary."""
    path = np.array([[1], [1], [2]])
    found = fit.prototype(FOUND, np.array([0]), path, BoptrOptions(selector_proto=proto))
    np.testing.assert_allclose(found[:, :, 0], expected)


def test_prototype_follows_policy_and_path_of_each_draw() -> None:
    path = np.array([[0, 2], [1, 2], [2, 2]])
    found = fit.prototype(FOUND, np.array([0, 1]), path, BoptrOptions())
    np.testing.assert_allclose(found[:, 0], [[0.5, 1], [0.4, 0.4], [0.3, 0.9]])


@pytest.mark.parametrize(
    ("norm", "expected"),
    [
        # Squared gaps to (0, .2, .3): first 0, 1, .25; second 0, .04, .16, four times over; third 0.
        ("l2", [[0, 1.16**0.5, 0.89**0.5], [(1 + 1.44 + 0.18) ** 0.5, (0.64 + 0.18) ** 0.5, (1 + 0.16 + 0.18) ** 0.5]]),
        ("l1", [[0, 1 + 0.8, 0.5 + 1.6], [1 + 2.4 + 0.3, 0 + 1.6 + 0.3, 1 + 0.8 + 0.3]]),
    ],
)
def test_distances_by_hand(norm: Any, expected: list[list[float]]) -> None:
    proto = np.array([0.0, 0.2, 0.3])[:, None, None]
    found = fit.distances(FOUND, proto, BoptrOptions(selector_norm=norm))
    assert found.shape == (3, 1, 1, 2)
    np.testing.assert_allclose(found[:, 0, 0].T, expected, rtol=1e-6, atol=1e-6)


def test_a_prototype_per_budget_is_compared_budget_by_budget() -> None:
    """Along 1/1/4 the losses are .1 + .2 + .6 and .3 + .1 + .4; a mean prototype would not tell budgets apart."""
    distance = np.full((3, 3, 1, 2), 9.0)
    distance[[0, 0, 2], [0, 1, 2], 0, 0] = 0.1, 0.2, 0.6
    distance[[0, 0, 2], [0, 1, 2], 0, 1] = 0.3, 0.1, 0.4
    path = np.array([[0], [0], [2]])
    chosen = fit.select(distance, path, np.zeros(2), np.arange(2), ("a", "b"))
    assert chosen.tolist() == [1]


def test_loss_is_summed_over_the_path_and_costs_little() -> None:
    """Along 1/1 the first policy is nearer by .004; a cost that is larger by .005 turns that, .003 does not."""
    distance = np.array([0.2, 0.202])[None, None, None]
    path = np.array([[0], [0]])
    for cost, expected in ((0.0, 0), (0.003, 0), (0.005, 1)):
        assert fit.select(distance, path, np.array([cost, 0.0]), np.arange(2), ("a", "b")).tolist() == [expected]


def test_ties_go_by_name() -> None:
    """Not by place in the pool, and only among candidates."""
    distance = np.full((1, 1, 3, 4), 0.5, np.float32)
    distance[..., 0] -= 1e-6  # what single precision may leave of a tie
    distance[0, 0, 2, 0] = 0.4
    path, names = np.zeros((2, 3), int), ("d", "b", "a", "c")
    for candidates, expected in (([0, 1, 2, 3], [2, 2, 0]), ([0, 1, 3], [1, 1, 0]), ([3], [3, 3, 3])):
        found = fit.select(distance, path, np.zeros(4), np.array(candidates), names)
        assert found.tolist() == expected


# ---- the whole rule


POOL = (DEFAULT, "temp_0.3", "temp_0.7", "topk20_t0.7", "minp0.1_t0.9", "topp0.8_t0.9")
TREES = ("entropy_tree_b4", "mcts_16")
TOKENS = dict(zip(POOL + TREES, (520.0, 300.0, 350.0, 330.0, 430.0, 390.0, 1500.0, 4000.0), strict=True))
STUDY = {"math": Benchmark("math"), "gpqa": Benchmark("nonmath")}
LOG2_ALPHA = 1.4
PROTOTYPE = "topk20_t0.7"


def study(seed: int) -> Cohort:
    """One model with random landscapes, ties included; its RL on the anchor benchmark is a policy's planted path."""
    rng = np.random.default_rng(seed)
    landscapes = {}
    for benchmark in STUDY:
        P, Q = {}, {}
        for name in POOL + TREES:
            order = rng.permutation(40)
            counts = np.sort(rng.choice(np.arange(2, 38), 5, replace=False))
            P[name] = [hits(int(k), 40)[order] for k in counts]
            Q[name] = [hits(int(rng.integers(0, k + 1)), 40)[order] for k in counts]
        landscapes["base", benchmark] = dense_landscape(P, Q, tokens=TOKENS, budgets=BUDGETS)
        target = along(P[PROTOTYPE], budget_path(2**LOG2_ALPHA, 0.6, BUDGETS))
        landscapes["rl", benchmark] = dense_landscape({DEFAULT: target}, budgets=BUDGETS)
    return cohort(landscapes, benchmarks=STUDY, budgets=BUDGETS)


def picks(rule: Rule, benchmark: str, log2_alpha: float = 0.0, beta: float = 1.0) -> list[str]:
    """pi-hat in every draw along the path of this law, by name."""
    draws = rule.view.draws
    path = rule.path("m", benchmark, np.full(draws, log2_alpha * np.log(2)), np.full(draws, beta))
    base = rule.view.base("m", benchmark)
    assert isinstance(path, Path) and base is not None
    assert (path.policy == path.policy[0]).all()
    return [base.policies[i] for i in path.policy[0]]


def scaled(values: np.ndarray, among: np.ndarray, rank: str) -> list[float]:
    """Values of the candidates on the scale of the option, among a pool, both at one budget."""
    if rank == "zscore":
        return [(v - among.mean()) / among.std() for v in values]
    ranks = [(among < v).sum() + ((among == v).sum() - 1) / 2 for v in values]
    return [r / (len(among) - 1) if rank == "percentile" else r for r in ranks]


def described(found: Cohort, benchmark: str, rank: str, pool: str) -> dict[tuple[str, int], np.ndarray]:
    """r(pi, n) of every autoregressive policy, one by one."""
    ranked = POOL if pool == "ar" else POOL + TREES
    table = found.landscapes["base", benchmark]
    vectors = {}
    for n in BUDGETS:
        P = {name: table.credit["P"][table.points[name, n]].sum() for name in POOL + TREES}
        Q = {name: table.credit["Q"][table.points[name, n]].sum() for name in POOL + TREES}
        columns = []
        for readout in (P, {name: P[name] - Q[name] for name in P}, Q):
            own, among = (np.array([readout[name] for name in names]) for names in (POOL, ranked))
            columns.append(scaled(own, among, rank))
        low, high = (np.log(end(TOKENS[name] for name in ranked)) for end in (min, max))
        for i, name in enumerate(POOL):
            cost = (np.log(TOKENS[name]) - low) / (high - low)
            vectors[name, n] = np.array([columns[0][i], columns[1][i], columns[2][i], 0.0, cost])
    return vectors


@pytest.mark.parametrize(
    ("norm", "proto", "rank", "pool"),
    list(product(("l2", "l1"), ("mean_over_b", "per_b"), ("percentile", "integer", "zscore"), ("ar", "all"))),
)
def test_pick_has_the_smallest_loss(norm: Any, proto: Any, rank: Any, pool: Any) -> None:
    """The printed loss, summed term by term, under every combination of the options that the paper leaves open."""
    options = BoptrOptions(selector_norm=norm, selector_proto=proto, selector_rank=rank, selector_rank_pool=pool)
    weights = np.array([1, 1, 1, 0.5, 0.2])
    for seed in range(4):
        found = study(seed)
        rule = Rule(sample_view(found), options)
        anchor = described(found, "math", rank, pool)
        along_anchor = [anchor[PROTOTYPE, n] for n in budget_path(2**LOG2_ALPHA, 0.6, BUDGETS)]
        goal = [np.mean(along_anchor, axis=0)] * 5 if proto == "mean_over_b" else along_anchor
        for benchmark, log2_alpha, beta in product(STUDY, (0.0, LOG2_ALPHA), (0.6, 1.0)):
            vectors, loss = described(found, benchmark, rank, pool), {}
            for name in POOL:
                loss[name] = 0.01 * TOKENS[name] / TOKENS["mcts_16"]
                for b, n in enumerate(budget_path(2**log2_alpha, beta, BUDGETS)):
                    gap = np.abs(vectors[name, n] - goal[b])
                    loss[name] += np.sqrt(weights @ gap**2) if norm == "l2" else weights @ gap
            assert picks(rule, benchmark, log2_alpha, beta) == [min(loss, key=loss.__getitem__)]


def test_options_of_the_loss_change_some_pick() -> None:
    """Otherwise the test above could not tell them apart."""
    views = [sample_view(study(seed)) for seed in range(8)]

    def every(**options: Any) -> list[list[str]]:
        return [picks(Rule(view, BoptrOptions(**options)), benchmark) for view in views for benchmark in STUDY]

    usual = every()
    for name, value in (
        ("selector_norm", "l1"),
        ("selector_proto", "per_b"),
        ("selector_rank", "zscore"),
        ("selector_rank_pool", "all"),
    ):
        assert every(**{name: value}) != usual, name


@pytest.mark.parametrize("seed", range(4))
def test_the_anchor_selects_its_own_prototype(seed: int) -> None:
    """Budget by budget the prototype is at no distance from itself along the anchor's own path."""
    rule = Rule(sample_view(study(seed)), BoptrOptions(selector_proto="per_b"))
    assert picks(rule, "math", LOG2_ALPHA, 0.6) == [PROTOTYPE]


def test_searching_policies_and_references_are_never_chosen() -> None:
    """Neither the prototype's twin among the controllers, first in the pool and the alphabet, nor greedy, of which
    there is one sample: another policy is taken, even where none resembles the prototype.
    """
    twin, other = (5, 12, 20, 33, 47), (1, 2, 3, 4, 5)
    base = {"beam_4": twin, "greedy": twin[:1], DEFAULT: other, "topk20_t0.7": twin, "temp_0.3": (30, 40, 50, 55, 59)}
    elsewhere = {"beam_4": twin, "greedy": twin[:1], DEFAULT: other}
    cells = {("m", "math"): (base, along(twin, (2, 4, 8, 8, 16))), ("m", "gpqa"): (elsewhere, None)}
    view = sample_view(planted_landscapes.cohort(cells, STUDY))
    for pool in ("ar", "all"):
        rule = Rule(view, BoptrOptions(selector_rank_pool=pool))
        assert picks(rule, "math", LOG2_ALPHA, 0.6) == ["topk20_t0.7"]
        assert picks(rule, "gpqa") == [DEFAULT]
        known = view.base("m", "math")
        assert known is not None
        chosen = rule.candidates(known, "math")
        assert [known.policies[i] for i in chosen] == [DEFAULT, "topk20_t0.7", "temp_0.3"]


def test_controllers_change_nobodys_rank_unless_they_are_ranked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without their costs in the loss a pool with or without controllers gives the same pick, in every draw."""
    found = study(3)
    plain = {key: trimmed(part) for key, part in found.landscapes.items()}
    both = [bootstrap_view(c, 100, 1) for c in (found, cohort(plain, benchmarks=STUDY, budgets=BUDGETS))]
    monkeypatch.setattr(fit, "COST_WEIGHT", 0.0)
    for pool, same in (("ar", True), ("all", False)):
        options = BoptrOptions(selector_rank_pool=pool)
        first, second = (picks(Rule(view, options), "gpqa") for view in both)
        assert (first == second) == same


def trimmed(part: DenseLandscape) -> DenseLandscape:
    """The same readouts without controllers."""
    return replace(part, points={point: row for point, row in part.points.items() if point[0] not in TREES})


def test_default_policy_may_be_left_out_on_the_anchor_benchmark_alone() -> None:
    """The default policy is the prototype here: chosen, or, with the option, replaced by the next best."""
    base = {DEFAULT: (5, 12, 20, 33, 47), "temp_0.3": (30, 31, 32, 34, 35)}
    cells = {("m", benchmark): (base, along(base[DEFAULT], (2, 4, 8, 8, 16))) for benchmark in STUDY}
    for exclude, expected in ((False, [DEFAULT] * 2), (True, ["temp_0.3", DEFAULT])):
        rule, _ = planted_landscapes.views(planted_landscapes.cohort(cells, STUDY), exclude_default_on_anchor=exclude)
        assert [*picks(rule, "math", LOG2_ALPHA, 0.6), *picks(rule, "gpqa", LOG2_ALPHA, 0.6)] == expected


def drawn(part: DenseLandscape, times: np.ndarray) -> DenseLandscape:
    """A landscape whose questions are the drawn ones, as often as they were drawn."""
    credit = {metric: np.repeat(values, times.astype(int), axis=1) for metric, values in part.credit.items()}
    return replace(part, credit=credit)


def test_every_draw_selects_for_itself() -> None:
    """In a draw the pick, prototype included, is that of a rule whose sample is the drawn questions."""
    found = study(2)
    view = bootstrap_view(found, 25, 7)
    chosen = picks(Rule(view), "gpqa")
    assert len(set(chosen)) > 1
    for draw, name in enumerate(chosen):
        parts = {key: drawn(part, view.weights[key[1]][:, draw]) for key, part in found.landscapes.items()}
        alone = Rule(sample_view(cohort(parts, benchmarks=STUDY, budgets=BUDGETS)))
        assert picks(alone, "gpqa") == [name]
