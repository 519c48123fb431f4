"""Two sampling batches of one checkpoint, and the rule's error over several."""

import itertools

import numpy as np
import polars as pl
import pytest

from searchlens.analysis.uncertainty import unseen
from searchlens.boptr.cohort import Benchmark, Cohort, DenseLandscape, Model
from searchlens.boptr.extension import readout_consistency, seed_replication, seed_summary
from searchlens.boptr.rows import At, boptr
from searchlens.boptr.rule import Rule
from searchlens.boptr.view import bootstrap_view, sample_view
from searchlens.config.boptr import BoptrOptions
from searchlens.errors import InputError
from small_cohort import DEFAULT, cohort, dense_landscape, hits, views

N = 50


def consistency(main: DenseLandscape, again: DenseLandscape) -> pl.DataFrame:
    models = {"m": Model(base="base", rl="rl", batches={"second": {"rl": "rl2"}})}
    base = dense_landscape({DEFAULT: [hits(5, N), hits(6, N)]})
    study = cohort({("base", "math"): base, ("rl", "math"): main, ("rl2", "math"): again}, models)
    return readout_consistency(*views(study))


def test_differences_of_two_batches_by_hand() -> None:
    """Two temperatures; a controller has none and counts in ``all`` only; unshared points are left out."""
    main = dense_landscape(
        {
            DEFAULT: [hits(10, N), hits(20, N)],
            "temp_0.3": [hits(10, N), hits(11, N)],
            "mcts_16": [hits(30, N), hits(30, N)],
            "temp_0.9": [hits(1, N)] * 2,
        }
    )
    again = dense_landscape(
        {
            DEFAULT: [hits(14, N), hits(21, N)],
            "temp_0.3": [hits(9, N), hits(11, N)],
            "mcts_16": [hits(31, N), hits(28, N)],
        }
    )
    found = {row["group"]: row for row in consistency(main, again).iter_rows(named=True)}
    assert list(found) == ["all", "T=0.3", "T=1.0"]
    assert {name: row["points"] for name, row in found.items()} == {"all": 6, "T=0.3": 2, "T=1.0": 2}
    # In questions of 50, that is 2 pp each: 4, 1; -1, 0; 1, -2.
    assert [row["mean_abs"] for row in found.values()] == pytest.approx([2 * 9 / 6, 2 * 1 / 2, 2 * 5 / 2])
    assert [row["mean_signed"] for row in found.values()] == pytest.approx([2 * 3 / 6, -2 * 1 / 2, 2 * 5 / 2])
    assert [row["largest"] for row in found.values()] == pytest.approx([8, -2, 8])
    assert (found["all"]["policy"], found["all"]["budget"]) == (DEFAULT, 1)
    assert [row["meets_criterion"] for row in found.values()] == [False, True, False]


def test_signed_mean_is_resampled_by_question_with_both_batches_together() -> None:
    """Against a loop over draws; resampling the batches apart would be far wider."""
    main = dense_landscape({DEFAULT: [hits(25, N), hits(30, N)], "temp_0.3": [hits(20, N), hits(22, N)]})
    again = dense_landscape({DEFAULT: [hits(28, N), hits(31, N)], "temp_0.3": [hits(20, N), hits(24, N)]})
    row = consistency(main, again).row(0, named=True)
    moved = (again.credit["P"] - main.credit["P"]).sum(axis=0) / 4
    weights = bootstrap_view(cohort({("base", "math"): main, ("rl", "math"): main}), 2000, 42).weights["math"]
    means = [100 * float(moved @ weight) / N for weight in weights.T[1:]]
    assert (row["lo"], row["hi"]) == pytest.approx(tuple(np.quantile(means, [0.025, 0.975])), abs=1e-4)


def test_a_batch_that_repeats_the_main_one_has_not_moved() -> None:
    side = dense_landscape({DEFAULT: [hits(10, N), hits(20, N)]})
    row = consistency(side, side).row(0, named=True)
    assert [row[key] for key in ("mean_abs", "mean_signed", "chance", "largest")] == [0.0] * 4
    assert (row["lo"], row["hi"]) == pytest.approx((-100 * unseen(N), 100 * unseen(N)))


def test_chance_is_the_mean_absolute_difference_under_exchange() -> None:
    """Four questions that changed at one point: against all sixteen ways to exchange them."""
    main, again = (dense_landscape({DEFAULT: [side, side]}) for side in (hits(4, N), hits(0, N)))
    exact = np.mean([abs(sum(signs)) for signs in itertools.product((-1, 1), repeat=4)]) / N
    row = consistency(main, again).row(0, named=True)
    assert row["chance"] == pytest.approx(100 * exact, rel=0.15)
    assert row["mean_abs"] == pytest.approx(8.0)


def test_cells_without_a_second_batch_say_so() -> None:
    models = {
        "m": Model(base="base", rl="rl", batches={"second": {"rl": "rl2"}}),
        "once": Model(base="base", rl="rl"),
    }
    side = dense_landscape({DEFAULT: [hits(10, N), hits(20, N)]})
    benchmarks = {"math": Benchmark(regime="math"), "gpqa": Benchmark(regime="nonmath")}
    places = [("base", "math"), ("rl", "math"), ("rl2", "math"), ("base", "gpqa"), ("rl", "gpqa")]
    found = readout_consistency(*views(cohort(dict.fromkeys(places, side), models, benchmarks)))
    reasons = {(row["model"], row["benchmark"]): row["reason"] for row in found.iter_rows(named=True)}
    assert reasons == {
        ("m", "math"): None,
        ("m", "gpqa"): "no_batches",
        ("once", "math"): "no_batches",
        ("once", "gpqa"): "no_batches",
    }


def test_a_batch_on_other_questions_is_refused() -> None:
    main, again = (dense_landscape({DEFAULT: [hits(10, n), hits(20, n)]}) for n in (N, N + 1))
    with pytest.raises(InputError, match="/math has 50 questions, rl2/math has 51, and they are not the same"):
        consistency(main, again)


# ---- seeds


POLICIES = ("temp_0.3", "temp_0.7", "topk20_t0.7", "minp0.1_t0.9", DEFAULT)
BUDGETS = (1, 2, 4)
BENCHMARKS = {"math": Benchmark(regime="math"), "gpqa": Benchmark(regime="nonmath"), "aime": Benchmark(regime="floor")}


def sampled(seed: int, gain: float = 0.0) -> DenseLandscape:
    """Random pools; policies differ in skill and in how much their samples agree."""
    rng = np.random.default_rng(seed)
    skill = rng.beta(0.6, 0.9, N)
    P, Q = {}, {}
    for i, name in enumerate(POLICIES):
        right = rng.random((4, N)) < np.clip(skill + gain - 0.04 * i, 0.02, 0.98)
        P[name] = [right[:n].any(axis=0) for n in BUDGETS]
        Q[name] = [right[:n].sum(axis=0) > n / 2 for n in BUDGETS]
    return dense_landscape(P, Q, tokens={name: 100.0 + 7 * i for i, name in enumerate(POLICIES)}, budgets=BUDGETS)


def replicated(batches: dict[str, int]) -> Cohort:
    """The anchor on three benchmarks, with batches of its Base from other seeds."""
    model = Model(base="base", rl="rl", batches={name: {"base": f"base-{name}"} for name in batches})
    landscapes = {}
    for j, name in enumerate(BENCHMARKS):
        landscapes["base", name] = sampled(j)
        landscapes["rl", name] = sampled(100 + j, gain=0.1)
        for batch, seed in batches.items():
            landscapes[f"base-{batch}", name] = sampled(seed + j)
    return cohort(landscapes, {"m": model}, BENCHMARKS, BUDGETS)


def h5(rule: Rule, benchmark: str) -> tuple[str, list[int]]:
    """Policy and budgets of H5 on the sample."""
    path, base = boptr(rule, At("m", benchmark)), rule.view.base("m", benchmark)
    return base.policies[path.policy[0, 0]], [BUDGETS[n] for n in path.budget[:, 0]]


def error(base: DenseLandscape, rl: DenseLandscape, policy: str, budgets: list[int]) -> float:
    """mech_P from proportions, budget by budget."""
    predicted, target = base.values("P", policy, budgets), rl.values("P", DEFAULT, BUDGETS)
    return 100 * float(np.mean([abs(p - r) for p, r in zip(predicted, target, strict=True)]))


def test_fixed_policy_is_the_main_path_read_from_each_batch() -> None:
    study = replicated({"a": 10, "b": 20})
    rule, boot = views(study, 500)
    found = seed_replication(rule, boot).filter(pl.col("benchmark") != "mean", variant="fixed_pi")
    assert found.height == 9
    for row in found.iter_rows(named=True):
        batch, benchmark = row["batch"], row["benchmark"]
        source = study.landscapes["base" if batch == "main" else f"base-{batch}", benchmark]
        policy, budgets = h5(rule, benchmark)
        assert row["policy"] == policy
        assert row["error"] == pytest.approx(error(source, study.landscapes["rl", benchmark], policy, budgets))
        assert row["lo"] <= row["hi"]


def test_full_rule_is_the_rule_on_a_cohort_whose_base_is_the_batch() -> None:
    """Off the anchor benchmark a batch changes neither prototype nor N-hat, so H5 on such a cohort must agree."""
    batches = {"a": 10, "b": 20, "c": 30}
    study = replicated(batches)
    rule, boot = views(study, 200)
    found = seed_replication(rule, boot).filter(variant="full_rule")
    moved = 0
    for benchmark in ("gpqa", "aime"):
        for batch in batches:
            again = study.landscapes[f"base-{batch}", benchmark]
            swapped = Cohort(study.plan, {**study.landscapes, ("base", benchmark): again})
            policy, budgets = h5(Rule(sample_view(swapped), BoptrOptions()), benchmark)
            row = found.filter(benchmark=benchmark, batch=batch).row(0, named=True)
            assert row["policy"] == policy
            assert row["error"] == pytest.approx(error(again, study.landscapes["rl", benchmark], policy, budgets))
            moved += policy != h5(rule, benchmark)[0]
    assert moved  # otherwise the selector was never asked


def test_replication_is_scored_on_policies_that_every_batch_has() -> None:
    """A batch without the rule's policy leaves the fixed reading undefined and the selector a smaller choice."""
    study = replicated({"a": 10})
    rule, boot = views(study, 200)
    policy, _ = h5(rule, "gpqa")
    whole = study.landscapes["base-a", "gpqa"]
    points = {point: row for point, row in whole.points.items() if point[0] != policy}
    smaller = DenseLandscape(whole.questions, points, whole.credit, whole.tokens, whole.rates)
    rule, boot = views(Cohort(study.plan, {**study.landscapes, ("base-a", "gpqa"): smaller}), 200)
    found = seed_replication(rule, boot)
    at_gpqa = found.filter(benchmark="gpqa")
    assert at_gpqa.filter(variant="fixed_pi")["reason"].to_list() == ["policy_missing"] * 2
    full = at_gpqa.filter(variant="full_rule")
    assert full["reason"].is_null().all()
    assert policy not in full["policy"].to_list()
    kept = found.filter(pl.col("benchmark").is_in(["math", "aime"]), variant="fixed_pi", batch="a")["error"]
    mean = found.filter(benchmark="mean", variant="fixed_pi", batch="a")["error"].item()
    assert mean == pytest.approx(kept.to_numpy().mean())


def test_means_over_benchmarks_keep_to_those_of_every_batch() -> None:
    """A batch without an easy or a hard benchmark must not look worse or better for it."""
    study = replicated({"a": 10, "b": 20})
    rule, boot = views(Cohort(study.plan, {k: v for k, v in study.landscapes.items() if k != ("base-b", "aime")}), 200)
    found = seed_replication(rule, boot).filter(variant="fixed_pi")
    assert found.filter(benchmark="aime")["batch"].to_list() == ["main", "a"]
    for batch in ("main", "a", "b"):
        rows = found.filter(pl.col("benchmark").is_in(["math", "gpqa"]), batch=batch)
        assert found.filter(benchmark="mean", batch=batch)["error"].item() == pytest.approx(
            rows["error"].to_numpy().mean()
        )
    assert found.filter(pl.col("error").is_null() != pl.col("reason").is_not_null()).is_empty(), "a reason or a number"


def test_without_batches_there_is_no_replication() -> None:
    rule, boot = views(replicated({}), 50)
    found = seed_replication(rule, boot)
    assert found["reason"].unique().to_list() == ["no_batches"]
    assert found.height == 2 * (len(BENCHMARKS) + 1)
    assert seed_summary(found).select("mean", "sd", "reason").unique().rows() == [(None, None, "no_batches")]
