"""Rule variants against their definitions in docs/rule-variants.md."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from scipy import stats

from budget_paths import budget_path
from searchlens.boptr.cohort import Benchmark, Cohort, CohortPlan, DenseLandscape, Model
from searchlens.boptr.rows import ROWS, At, Blend, Curve, mech, path_text
from searchlens.boptr.rule import Path, Reason, Rule, attempt
from searchlens.boptr.variants import VARIANT_ROWS, ranks, signed_axis, variant_heads, variant_scales, variant_table
from searchlens.boptr.view import bootstrap_view, sample_view
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
    """v6 and both heads of v7, with the anchor planted on known policies and scales."""
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


def test_v6_is_v5_where_votes_and_first_finish_are_pass_at_k():
    """Q = P gives A = 0 and a constant rank of P - Q; T = P then stands in for v5's rank of Q."""
    cohort = _cohort(3)
    for (checkpoint, benchmark), found in list(cohort.landscapes.items()):
        cohort = _changed(cohort, checkpoint, benchmark, Q=found.credit["P"], T=found.credit["P"])
    rule = Rule(bootstrap_view(cohort, 20, 1))
    for at in CELLS:
        for level in ("", "-anchor"):
            v5, v6 = (ROW[name + level].predict(rule, at) for name in ("v5", "v6"))
            np.testing.assert_array_equal(v6.policy, v5.policy)
            np.testing.assert_array_equal(v6.budget, v5.budget)


def test_v6_reads_first_finish():
    """Where T alone changes, some pick of v6 changes and none of v5 does."""
    cohort = _cohort(3)
    turned = cohort
    for pair in PLAN.models.values():
        for benchmark in ("aime", "gpqa"):
            turned = _changed(turned, pair.base, benchmark, T=1 - cohort.landscapes[pair.base, benchmark].credit["T"])
    rules = [Rule(sample_view(c)) for c in (cohort, turned)]
    picks = {
        key: [[int(ROW[key].predict(rule, at).policy[0, 0]) for at in CELLS] for rule in rules] for key in ("v5", "v6")
    }
    assert picks["v5"][0] == picks["v5"][1]
    assert picks["v6"][0] != picks["v6"][1]


def test_heads_of_v7_part_and_their_curves_are_averaged():
    """The anchor's P follows one policy and its Q another: each head returns to its own, and P-hat is the mean of P."""
    cohort = _planted(_planted(_cohort(1), "P", "topk20_t0.7", 2.0**1.4), "Q", "temp_0.3", 2.0**2.4)
    rule = Rule(sample_view(cohort))
    found = ROW["v7-anchor"].predict(rule, At("one", "math"))
    assert isinstance(found, Blend)
    assert POLICIES[found.paths[0].policy[0, 0]] == "topk20_t0.7"
    assert POLICIES[found.paths[1].policy[0, 0]] == "temp_0.3"
    assert path_text(found.paths[0], BUDGETS) == "2/4/8/8/16"
    assert path_text(found.paths[1], BUDGETS) == "/".join(map(str, budget_path(2.0**2.4, 0.6, BUDGETS)))
    P = _counts(cohort, "one", "math", "P")
    parts = [P[head.policy[:, 0], head.budget[:, 0]] for head in (found.paths[0], found.paths[1])]
    np.testing.assert_allclose(found.counts[:, 0], (parts[0] + parts[1]) / 2)


def test_scales_are_fitted_on_their_own_readout():
    """alpha on P and on Q come back from planted curves, each within its printed interval."""
    cohort = _planted(_planted(_cohort(1), "P", "topk20_t0.7", 2.0**1.4), "Q", "temp_0.3", 2.0**2.4)
    scales = {row["readout"]: row for row in variant_scales(Rule(sample_view(cohort))).filter(model="one").to_dicts()}
    for readout, alpha in (("P", 2.0**1.4), ("Q", 2.0**2.4)):
        row = scales[readout]
        assert row["alpha_lo"] - 1e-9 <= alpha <= row["alpha_hi"] + 1e-9
        assert row["alpha_lo"] <= row["alpha"] <= row["alpha_hi"]
    moved = _planted(cohort, "P", "temp_0.7", 2.0**2.8)
    again = variant_scales(Rule(sample_view(moved))).filter(model="one", readout="Q")
    assert again["alpha"].item() == scales["Q"]["alpha"]


def test_levels_of_information():
    """With the anchor alone no other pair's RL is read; with own pairs the offset is the model's."""
    cohort = _cohort(2)
    found = cohort.landscapes["two-rl", "math"]
    other = _changed(cohort, "two-rl", "math", P=found.credit["P"] * 0, Q=found.credit["Q"] * 0)
    for key in ("v5-anchor", "v6-anchor", "v7-anchor"):
        first, second = (ROW[key].predict(Rule(sample_view(c)), At("two", "gpqa")) for c in (cohort, other))
        for ours, theirs in zip(_paths(first), _paths(second), strict=True):
            np.testing.assert_array_equal(ours.budget, theirs.budget)
            np.testing.assert_array_equal(ours.policy, theirs.policy)
    before, after = (ROW["v5"].predict(Rule(sample_view(c)), At("two", "math")).alpha for c in (cohort, other))
    assert before[0] != after[0]


def _paths(prediction: object) -> list[Path]:
    return list(prediction.paths) if isinstance(prediction, Blend) else [prediction]


def test_v5_is_the_rule_of_the_other_tables():
    rule, rows = Rule(sample_view(_cohort(4))), {row.key: row for row in ROWS}
    for ours, theirs in (("v5", "V3"), ("v5-anchor", "B0"), ("per-budget oracle", "H6"), ("smooth path", "H7")):
        for at in CELLS:
            first, second = ROW[ours].predict(rule, at), rows[theirs].predict(rule, at)
            np.testing.assert_array_equal(first.policy, second.policy)
            np.testing.assert_array_equal(first.budget, second.budget)


@pytest.mark.parametrize("exponents", ["paper", "own"])
def test_first_draw_of_a_bootstrap_is_the_sample(exponents):
    cohort = _cohort(5)
    sample, boot = (Rule(view, exponents=exponents) for view in (sample_view(cohort), bootstrap_view(cohort, 8, 1)))
    for row in VARIANT_ROWS:
        for at in CELLS:
            one, many = row.predict(sample, at), row.predict(boot, at)
            if isinstance(one, Curve):
                np.testing.assert_allclose(many.counts[:, 0], one.counts[:, 0])
            for ours, theirs in zip(_paths(one), _paths(many), strict=True):
                np.testing.assert_array_equal(theirs.policy[:, 0], ours.policy[:, 0])
                np.testing.assert_array_equal(theirs.budget[:, 0], ours.budget[:, 0])


def test_oracles_bound_the_single_path_variants():
    """Per-budget oracle <= smooth path <= v5 and v6, in every draw (docs/rule-variants.md)."""
    cohort = _cohort(6)
    rule = Rule(bootstrap_view(cohort, 10, 1))
    for at in CELLS:
        base, target = rule.cell(*at.cell)
        error = {
            key: mech(ROW[key].predict(rule, at), base, target, rule.view.total(at.benchmark), rule.view.draws)
            for key in ("per-budget oracle", "smooth path", "v5", "v6")
        }
        assert (error["per-budget oracle"] <= error["smooth path"] + 1e-4).all()
        assert (error["smooth path"] <= error["v5"] + 1e-4).all()
        assert (error["smooth path"] <= error["v6"] + 1e-4).all()


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
    assert heads.filter(tier="v7")["reason"].to_list() == ["no_calibration"] * 2
    assert heads.filter(tier="v7-anchor")["path"].null_count() == 0


def test_table_names_rows_that_exist():
    table = variant_table()
    named = [key for column in ("tier", "tier_anchor") for key in table[column].drop_nulls()]
    assert sorted(named) == sorted(ROW)


@pytest.mark.parametrize(("name", "scale"), [("percentile", _ranks), ("zscore", stats.zscore)])
def test_signed_axis_is_on_the_scale_of_the_selector(name, scale):
    """Q minus P on that scale; zero at one sample, where the vote is the sample."""
    cohort = _cohort(9)
    rule = Rule(sample_view(cohort), BoptrOptions(selector_rank=name))
    axis = signed_axis(ranks(rule, "one", "math"))[:, :, 0]
    P, Q = (_counts(cohort, "one", "math", metric).astype(float) for metric in "PQ")
    np.testing.assert_allclose(axis, scale(Q) - scale(P), atol=1e-5)
    assert (axis[:, 0] == 0).all()
