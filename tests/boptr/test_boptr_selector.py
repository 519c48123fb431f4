"""The selector, against numbers worked out by hand and a loss written out policy by policy."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl
import pytest
from scipy import stats

import planted_landscapes
from planted_landscapes import along, budget_path
from searchlens import catalogue
from searchlens.boptr import fit
from searchlens.boptr.cohort import Benchmark, Cohort, CohortPlan, DenseLandscape, Model
from searchlens.boptr.fit import Features
from searchlens.boptr.rows import ROWS, At
from searchlens.boptr.rule import Path, Reason, Rule, attempt
from searchlens.boptr.variants import VARIANT_ROWS, ranks, signed_axis, variant_heads, variant_scales, variant_table
from searchlens.boptr.view import CellCounts, sample_view
from small_cohort import DEFAULT, cohort, dense_landscape, hits


def column(*values: float) -> np.ndarray:
    return np.array(values, np.float32)[:, None]


def cell(
    P: Sequence[Sequence[int]], Q: Sequence[Sequence[int]] | None = None, tokens: Sequence[float] = (), search: int = 0
) -> CellCounts:
    """Rows of policies ``a``, ``b``, ..., the last ``search`` of which are controllers; Q is P unless given."""
    names = "abcdefg"[: len(P)]
    counts = [np.array(part, np.float32)[:, :, None] for part in (P, P if Q is None else Q)]
    controllers = ("autoregressive",) * (len(P) - search) + ("mcts",) * search
    return CellCounts(tuple(names), controllers, *counts, np.array(tokens or [100.0] * len(P)))


@pytest.mark.parametrize(
    ("values", "ranks"),
    [
        ((4, 1, 2, 2), (1, 0, 0.5, 0.5)),
        ((7, 7, 7), (0.5, 0.5, 0.5)),
        ((1, 1, 5), (0.25, 0.25, 1)),
        ((9,), (0.5,)),
    ],
)
def test_ranks_by_hand(values: Any, ranks: Any) -> None:
    """Ascending from 0, ties averaged; a pool that is all alike, or of one, says nothing."""
    pool = column(*values)
    assert fit.percentile_rank(pool, pool)[:, 0].tolist() == list(ranks)


def test_ranks_are_those_of_scipy_in_every_draw() -> None:
    values = np.random.default_rng(1).integers(0, 6, (9, 3, 4)).astype(np.float32)
    ranks = stats.rankdata(values, axis=0) - 1
    np.testing.assert_allclose(fit.percentile_rank(values, values), ranks / 8)


def test_policies_outside_the_ranked_pool_move_nobody_in_it() -> None:
    """A controller with the same count as a policy has its rank; between two policies it lies halfway."""
    pool = column(10, 20, 40)
    everybody = column(10, 20, 40, 20, 30, 5)
    assert fit.percentile_rank(everybody, pool)[:, 0].tolist() == [0, 0.5, 1, 0.5, 0.75, 0]


def test_searches_are_not_ranked() -> None:
    """A controller at the top, with four times the tokens, takes no part in the ranks and the scale."""
    found = fit.features(cell([[10], [20], [50]], tokens=[100, 200, 400], search=1))
    assert found.ranks[0][:2, 0, 0].tolist() == [0, 1]
    assert found.fixed[1, :2] == pytest.approx([0, 1])


@pytest.mark.parametrize("tokens", [[100.0, np.nan, 300.0], [0.0, 0.0, 0.0]])
def test_unknown_costs_are_no_costs(tokens: list[float]) -> None:
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
    indices = {item.options["index"] for item in catalogue.declared("controller").values()}
    assert indices == set(range(fit.FARTHEST + 1))
    names = ("t", "thought_tree_b4", "step_beam_b4", "mcts_16", "mine", "temp_0.3")
    own = {"t": {"controller": "thought_tree"}, "mcts_16": {"controller": "power"}}
    table = dense_landscape({name: [hits(1, 4), hits(2, 4)] for name in names})
    plain = cohort({("base", "math"): table, ("rl", "math"): table})
    found = sample_view(replace(plain, plan=replace(plain.plan, policies=own))).base("m", "math")
    assert found is not None and found.controllers[3:] == ("power", "search", "autoregressive")
    assert fit.fixed_coordinates(found)[0].tolist() == [0.6, 0.6, 0.2, 1.0, 1.0, 0.0]


RANKS = tuple(np.array([[[0, 1, 0.5], [1, 0, 1]], [[0.2, 0.4, 0.6], [0.8, 0.6, 0.4]]])[..., None])
"""Two coordinates of two policies at three budgets."""
FOUND = Features(RANKS, np.array([[0.3, 0.9]]), (1.0, 4.0, 0.5))


def test_prototype_by_hand() -> None:
    """Policy 0 along 2/2/4: first coordinate 1, 1, .5, second .4, .4, .6; the fixed one does not vary."""
    found = fit.prototype(FOUND, np.array([0]), np.array([[1], [1], [2]]))
    np.testing.assert_allclose(found, [[2.5 / 3], [1.4 / 3], [0.3]])


def test_distances_by_hand() -> None:
    """Squared gaps to (0, .2, .3): first 0, 1, .25; second 0, .04, .16, four times over; third 0."""
    found = fit.distances(FOUND, np.array([[0.0], [0.2], [0.3]]))
    assert found.shape == (3, 1, 2)
    of_second = [(1 + 1.44 + 0.18) ** 0.5, (0.64 + 0.18) ** 0.5, (1 + 0.16 + 0.18) ** 0.5]
    np.testing.assert_allclose(found[:, 0].T, [[0, 1.16**0.5, 0.89**0.5], of_second], rtol=1e-6, atol=1e-6)


def test_loss_is_summed_over_the_path_and_costs_little() -> None:
    """Along 1/1 the first policy is nearer by .004; a cost that is larger by .005 turns that, .003 does not."""
    distance = np.array([0.2, 0.202])[None, None]
    path = np.array([[0], [0]])
    for cost, expected in ((0.0, 0), (0.003, 0), (0.005, 1)):
        assert fit.select(distance, path, np.array([cost, 0.0]), np.arange(2), ("a", "b")).tolist() == [expected]


def test_ties_go_by_name() -> None:
    distance = np.full((1, 3, 4), 0.5, np.float32)
    distance[..., 0] -= 1e-6  # what single precision may leave of a tie
    distance[0, 2, 0] = 0.4
    path, names = np.zeros((2, 3), int), ("d", "b", "a", "c")
    for candidates, expected in (([0, 1, 2, 3], [2, 2, 0]), ([0, 1, 3], [1, 1, 0]), ([3], [3, 3, 3])):
        found = fit.select(distance, path, np.zeros(4), np.array(candidates), names)
        assert found.tolist() == expected


STUDY = {"math": Benchmark("math"), "gpqa": Benchmark("nonmath")}
LOG2_ALPHA = 1.4


def picks(rule: Rule, benchmark: str, log2_alpha: float = 0.0, beta: float = 1.0) -> list[str]:
    """pi-hat in every draw along the path of this law, by name."""
    draws = rule.view.draws
    path = rule.path("m", benchmark, np.full(draws, log2_alpha * np.log(2)), np.full(draws, beta))
    base = rule.view.base("m", benchmark)
    assert (path.policy == path.policy[0]).all()
    return [base.policies[i] for i in path.policy[0]]


def test_searching_policies_and_references_are_never_chosen() -> None:
    """Neither the prototype's twin among the controllers, first in the pool and the alphabet, nor greedy, of which
    there is one sample: another policy is taken, even where none resembles the prototype.
    """
    twin, other = (5, 12, 20, 33, 47), (1, 2, 3, 4, 5)
    base = {"beam_4": twin, "greedy": twin[:1], DEFAULT: other, "topk20_t0.7": twin, "temp_0.3": (30, 40, 50, 55, 59)}
    elsewhere = {"beam_4": twin, "greedy": twin[:1], DEFAULT: other}
    cells = {("m", "math"): (base, along(twin, (2, 4, 8, 8, 16))), ("m", "gpqa"): (elsewhere, None)}
    rule = Rule(sample_view(planted_landscapes.cohort(cells, STUDY)))
    assert picks(rule, "math", LOG2_ALPHA, 0.6) == ["topk20_t0.7"]
    assert picks(rule, "gpqa") == [DEFAULT]


# ---- Rule variants against their definitions in docs/rule-variants.md


BUDGETS = (1, 2, 4, 8, 16)
POLICIES = ("topp0.95_t1.0", "temp_0.3", "temp_0.7", "topk20_t0.7", "minp0.1_t0.9", "topp0.8_t0.9")
TOKENS = dict(zip(POLICIES, (500.0, 300.0, 350.0, 320.0, 420.0, 380.0), strict=True))
PLAN = CohortPlan(
    "one",
    "math",
    {"one": Model("one-base", "one-rl"), "two": Model("two-base", "two-rl", "lower")},
    {"math": Benchmark("math"), "aime": Benchmark("floor"), "gpqa": Benchmark("nonmath")},
)
CELLS = [At(model, benchmark) for model in PLAN.models for benchmark in PLAN.benchmarks]
ROW = {row.key: row for row in VARIANT_ROWS}


def _dense_landscape(rng: np.random.Generator, questions: int, policies: tuple[str, ...] = POLICIES) -> DenseLandscape:
    """Sixteen samples per question; wrong answers never agree in a vote below the majority."""
    solve = rng.beta(0.6, 0.8, (1, questions, 1)) * rng.uniform(0.6, 1, (len(policies), 1, 1))
    right = rng.random((len(policies), questions, 16)) < solve
    length = rng.random(right.shape)
    credit = {"P": [], "Q": [], "T": []}
    for n in BUDGETS:
        credit["P"].append(right[:, :, :n].any(axis=2))
        credit["Q"].append(right[:, :, :n].mean(axis=2) + 0.01 * right[:, :, 0] > 0.5)
        first = length[:, :, :n].argmin(axis=2)
        credit["T"].append(np.take_along_axis(right, first[:, :, None], 2)[:, :, 0])
    arrays = {
        metric: np.stack(parts, axis=1).reshape(-1, questions).astype(np.float32) for metric, parts in credit.items()
    }
    points = {(name, n): i * len(BUDGETS) + j for i, name in enumerate(policies) for j, n in enumerate(BUDGETS)}
    return DenseLandscape(np.arange(questions, dtype=np.uint32), points, arrays, dict(TOKENS), pl.DataFrame())


def _cohort(seed: int = 0) -> Cohort:
    rng = np.random.default_rng(seed)
    sizes = {"math": 80, "aime": 30, "gpqa": 60}
    landscapes = {}
    for pair in PLAN.models.values():
        for benchmark, n in sizes.items():
            landscapes[pair.base, benchmark] = _dense_landscape(rng, n)
            landscapes[str(pair.rl), benchmark] = _dense_landscape(rng, n, POLICIES[:1])
    return Cohort(PLAN, landscapes)


def _changed(cohort: Cohort, checkpoint: str, benchmark: str, **credit: np.ndarray) -> Cohort:
    found = cohort.landscapes[checkpoint, benchmark]
    changed = replace(found, credit={**found.credit, **credit})
    return Cohort(cohort.plan, {**cohort.landscapes, (checkpoint, benchmark): changed})


def _planted(cohort: Cohort, metric: str, policy: str, alpha: float) -> Cohort:
    """RL of the anchor lies, in one metric, exactly on Base's path of one policy."""
    base = cohort.landscapes["one-base", "math"]
    path = budget_path(alpha, 0.6, BUDGETS)
    credit = base.credit[metric][[base.points[policy, n] for n in path]]
    return _changed(cohort, "one-rl", "math", **{metric: credit})


# ---- the selectors, written again


def _counts(cohort: Cohort, model: str, benchmark: str, metric: str) -> np.ndarray:
    return cohort.landscapes[PLAN.models[model].base, benchmark].credit[metric].sum(axis=1).reshape(len(POLICIES), -1)


def _ranks(values: np.ndarray) -> np.ndarray:
    return (stats.rankdata(values, axis=0) - 1) / (len(POLICIES) - 1)


def _coordinates(cohort: Cohort, model: str, benchmark: str, head: str) -> np.ndarray:
    """Shape (coordinates, policies, budgets)."""
    P, Q, T = (_ranks(_counts(cohort, model, benchmark, metric)) for metric in "PQT")
    cost = np.log([TOKENS[name] for name in POLICIES])
    cost = np.repeat(((cost - cost.min()) / np.ptp(cost))[:, None], len(BUDGETS), axis=1)
    chosen = {"v6": [P, Q - P, T, 0 * P, cost], "support": [P, 0 * P, cost], "concentration": [Q - P, T]}
    return np.stack(chosen[head])


WEIGHTS = {"v6": (1, 1, 1, 0.5, 0.2), "support": (1, 0.5, 0.2), "concentration": (1, 1)}


def _best(cohort: Cohort, at: At, head: str, path: list[int], anchor_policy: int, anchor_path: list[int]) -> str:
    weights = np.array(WEIGHTS[head])
    anchor = _coordinates(cohort, "one", "math", head)
    proto = np.mean([anchor[:, anchor_policy, n] for n in anchor_path], axis=0)
    cell = _coordinates(cohort, at.model, at.benchmark, head)
    loss = {}
    for i, name in enumerate(POLICIES):
        gaps = [np.sqrt(weights @ (cell[:, i, n] - proto) ** 2) for n in path]
        loss[name] = round(sum(gaps) + 0.01 * TOKENS[name] / max(TOKENS.values()), 5)
    return min(sorted(loss), key=loss.__getitem__)


@pytest.mark.parametrize("seed", [0, 1, 3])
def test_policies_minimise_the_losses_of_the_page(seed):
    alpha, votes = 2.0**1.4, 2.0**2.2
    cohort = _planted(_planted(_cohort(seed), "P", POLICIES[2], alpha), "Q", POLICIES[3], votes)
    rule = Rule(sample_view(cohort))
    fitted = rule.smooth("one", "math")
    scales = variant_scales(rule).filter(model="one")
    assert fitted.policy[0] == 2
    assert scales["alpha"].to_list() == pytest.approx([alpha, votes])
    anchor = {h: [BUDGETS.index(n) for n in budget_path(a, 0.6, BUDGETS)] for h, a in (("P", alpha), ("Q", votes))}
    for at in CELLS:
        v6, v7 = ROW["v6"].predict(rule, at), ROW["v7"].predict(rule, at)
        for head, path, source in (
            ("v6", v6, (2, anchor["P"])),
            ("support", v7.paths[0], (2, anchor["P"])),
            ("concentration", v7.paths[1], (3, anchor["Q"])),
        ):
            assert POLICIES[path.policy[0, 0]] == _best(cohort, at, head, path.budget[:, 0].tolist(), *source)


def test_v5_is_the_rule_of_the_other_tables():
    rule, rows = Rule(sample_view(_cohort(4))), {row.key: row for row in ROWS}
    for ours, theirs in (("v5", "V3"), ("v5-anchor", "B0"), ("per-budget oracle", "H6"), ("smooth path", "H7")):
        for at in CELLS:
            first, second = ROW[ours].predict(rule, at), rows[theirs].predict(rule, at)
            np.testing.assert_array_equal(first.policy, second.policy)
            np.testing.assert_array_equal(first.budget, second.budget)


@pytest.mark.parametrize(("benchmark", "lost"), [("gpqa", {"gpqa"}), ("math", {"math", "aime", "gpqa"})])
def test_unknown_tokens_leave_v6_and_v7_undefined(benchmark, lost):
    """In a cell for that cell, on the anchor for all: there is no T to compare with. v5 does not need it."""
    cohort = _cohort(7)
    unknown = np.full_like(cohort.landscapes["one-base", benchmark].credit["T"], np.nan)
    rule = Rule(sample_view(_changed(cohort, "one-base", benchmark, T=unknown)))
    for at in (At("one", name) for name in PLAN.benchmarks):
        for key in ("v6", "v7", "v6-anchor", "v7-anchor"):
            found = attempt(ROW[key].predict, rule, at)
            assert isinstance(found, Reason) == (at.benchmark in lost)
            assert not isinstance(found, Reason) or found.code == "unknown_tokens"
        assert isinstance(ROW["v5"].predict(rule, at), Path)


def test_missing_pair_is_a_reason():
    """No RL on the anchor benchmark: no offset; the anchor's scale still serves."""
    cohort = _cohort(8)
    landscapes = {key: found for key, found in cohort.landscapes.items() if key != ("two-rl", "math")}
    rule = Rule(sample_view(Cohort(PLAN, landscapes)))
    for name in ("v5", "v6", "v7"):
        assert attempt(ROW[name].predict, rule, At("two", "gpqa")) == Reason("no_calibration")
        assert ROW[name + "-anchor"].predict(rule, At("two", "gpqa"))
    assert variant_scales(rule).filter(model="two")["reason"].to_list() == ["no_calibration"] * 2
    heads = variant_heads(rule).filter(model="two", benchmark="gpqa")
    assert heads.filter(rule="v7")["reason"].to_list() == ["no_calibration"] * 2
    assert heads.filter(rule="v7-anchor")["path"].null_count() == 0


def test_table_names_rows_that_exist():
    table = variant_table()
    named = [key for column in ("rule", "rule_anchor") for key in table[column].drop_nulls()]
    assert sorted(named) == sorted(ROW)


def test_signed_axis_is_a_difference_of_ranks():
    cohort = _cohort(9)
    rule = Rule(sample_view(cohort))
    axis = signed_axis(ranks(rule, "one", "math"))[:, :, 0]
    P, Q = (_counts(cohort, "one", "math", metric).astype(float) for metric in "PQ")
    np.testing.assert_allclose(axis, _ranks(Q) - _ranks(P), atol=1e-5)
    assert (axis[:, 0] == 0).all()
