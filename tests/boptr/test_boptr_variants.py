"""Rule variants against their definitions in docs/rule-variants.md."""

from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from scipy import stats

from budget_paths import budget_path
from searchlens.boptr.cohort import Benchmark, Cohort, CohortPlan, DenseLandscape, Model
from searchlens.boptr.rows import ROWS, At
from searchlens.boptr.rule import Path, Reason, Rule, attempt
from searchlens.boptr.variants import VARIANT_ROWS, ranks, signed_axis, variant_heads, variant_scales, variant_table
from searchlens.boptr.view import sample_view
from searchlens.config.boptr import BoptrOptions

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
    scales = variant_scales(rule).filter(model="two")
    assert scales["reason"].to_list() == ["no_calibration"] * 2
    heads = variant_heads(rule).filter(model="two", benchmark="gpqa")
    assert heads.filter(rule="v7")["reason"].to_list() == ["no_calibration"] * 2
    assert heads.filter(rule="v7-anchor")["path"].null_count() == 0


def test_table_names_rows_that_exist():
    table = variant_table()
    named = [key for column in ("rule", "rule_anchor") for key in table[column].drop_nulls()]
    assert sorted(named) == sorted(ROW)


@pytest.mark.parametrize(("name", "scale"), [("percentile", _ranks), ("zscore", stats.zscore)])
def test_signed_axis_is_on_the_scale_of_the_selector(name, scale):
    cohort = _cohort(9)
    rule = Rule(sample_view(cohort), BoptrOptions(selector_rank=name))
    axis = signed_axis(ranks(rule, "one", "math"))[:, :, 0]
    P, Q = (_counts(cohort, "one", "math", metric).astype(float) for metric in "PQ")
    np.testing.assert_allclose(axis, scale(Q) - scale(P), atol=1e-5)
    assert (axis[:, 0] == 0).all()
