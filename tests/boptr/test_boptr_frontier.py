"""Scales from Base features: the priors, their rows, and the regression."""

from dataclasses import replace

import numpy as np
import pytest
import statsmodels.api as sm
from statsmodels.stats.proportion import proportion_confint

import fingerprint_data as data
from fingerprint_data import PLAIN, Pair, Planted, pool, varied
from planted_landscapes import BUDGETS, DEFAULT, budget_path, cohort, views
from searchlens.boptr.cohort import Benchmark
from searchlens.boptr.frontier import (
    FEATURES,
    FRONTIER_ROWS,
    PRIORS,
    Prior,
    descriptive,
    fingerprint,
    knee,
    one_anchor,
    probe,
)
from searchlens.boptr.offsets import SCALES, SHUFFLES, V5B_ROWS, loo_score, offset, offsets, ridge, v4
from searchlens.boptr.rows import ROWS, At, path_text
from searchlens.boptr.rule import Path, Reason, attempt
from searchlens.boptr.view import View, bootstrap_view
from searchlens.config.boptr import BoptrOptions

FRONTIER = {row.key: row for row in FRONTIER_ROWS}
B0 = next(row for row in ROWS if row.key == "B0")

KNOWN = {
    "anchor": Pair(pool((200, 320, 440, 520, 560), 600), np.log(2.639)),  # u = sqrt(.8 * .4), N* = 2^3.5
    "early": Pair(pool((500, 700, 700, 700, 700), 700), 0.7),  # u = sqrt(.5 * .2), N* = 2^0.9
    "done": Pair(pool((1000,) * 5), 0.2),  # u = 0, N* = 1
}
LOG2_F = {
    "u": {"anchor": 4 * np.sqrt(0.32), "early": 4 * np.sqrt(0.1), "done": 0.0},
    "N*": {"anchor": 3.5, "early": 0.9, "done": 0.0},
}


def alpha(prediction: object) -> float:
    return float(prediction.alpha[0])


@pytest.mark.parametrize("prior", PRIORS)
def test_z0_reads_no_rl_for_alpha(prior: Prior) -> None:
    """f in math, f over its geometric mean elsewhere, twice that on the floor; RL scales change nothing."""
    row, mean = FRONTIER[f"Z0-{prior}"], np.mean(list(LOG2_F[prior].values()))
    other = Planted({name: replace(pair, log_alpha=3.0) for name, pair in KNOWN.items()})
    for name, log2_f in LOG2_F[prior].items():
        expected = {"math": log2_f, "gpqa": log2_f - mean, "aime": 1 + log2_f - mean}
        for benchmark, value in expected.items():
            for rule in (Planted(KNOWN), other):
                path = row.predict(rule, At(name, benchmark))
                assert np.log2(alpha(path)) == pytest.approx(value, abs=1e-6)
        path = row.predict(Planted(KNOWN), At(name, "math"))
        assert path_text(path, BUDGETS) == "/".join(map(str, budget_path(2**log2_f, 0.6, BUDGETS)))


@pytest.mark.parametrize("prior", PRIORS)
def test_z1_without_weight_is_b0(prior: Prior) -> None:
    pairs = varied(5)
    view = bootstrap_view(Planted(pairs).view.cohort, 8, seed=1)
    rule = Planted(pairs, BoptrOptions(), view)
    for name in pairs:
        for benchmark in ("math", "gpqa", "aime"):
            ours, theirs = one_anchor(rule, At(name, benchmark), prior, 0.0), B0.predict(rule, At(name, benchmark))
            for part in ("policy", "budget", "alpha", "beta"):
                assert np.array_equal(getattr(ours, part), getattr(theirs, part))


@pytest.mark.parametrize("prior", PRIORS)
def test_z1_moves_the_anchor_by_the_ratio_of_priors(prior: Prior) -> None:
    rule = Planted(KNOWN)
    for benchmark, scale in (("math", 2.639), ("gpqa", 1.0), ("aime", 2.0)):
        for name, log2_f in LOG2_F[prior].items():
            ratio = 2 ** (log2_f - LOG2_F[prior]["anchor"])
            assert alpha(FRONTIER[f"Z1-{prior}"].predict(rule, At(name, benchmark))) == pytest.approx(scale * ratio)
            half = one_anchor(rule, At(name, benchmark), prior, 0.5)
            assert alpha(half) == pytest.approx(scale * np.sqrt(ratio))


def test_missing_splits_and_undefined_priors() -> None:
    """Without the anchor's split there is no Z1; Z0 goes on with the others. A pool that falls leaves no headroom."""
    lacking = Planted(KNOWN | {"anchor": Pair(None)})
    assert attempt(FRONTIER["Z1-N*"].predict, lacking, At("early", "math")) == Reason("no_rltrain")
    assert attempt(FRONTIER["Z0-N*"].predict, lacking, At("anchor", "math")) == Reason("no_rltrain")
    delta = np.log2(alpha(FRONTIER["Z0-N*"].predict(lacking, At("early", "gpqa"))))
    assert delta == pytest.approx(0.9 - (0.9 + 0.0) / 2, abs=1e-6)
    falling = Planted(KNOWN | {"early": Pair(pool((500, 400, 300, 200, 100)))})
    for key in ("Z0-u", "Z1-u"):
        assert attempt(FRONTIER[key].predict, falling, At("early", "math")) == Reason("non_finite_alpha")
    assert isinstance(FRONTIER["Z0-u"].predict(falling, At("done", "gpqa")), Path)


def spread(count: int) -> dict[str, Pair]:
    """P_max alone differs, ln alpha falls with it but for some noise."""
    noise = np.random.default_rng(4).normal(0, 0.1, count)
    return {f"m{i}": Pair(pool(PLAIN, 580 + 40 * i), 3.0 - 2.5 * (0.58 + 0.04 * i) + noise[i]) for i in range(count)}


def test_probe_is_ordinary_least_squares() -> None:
    pairs = spread(7)
    row = probe(Planted(pairs, BoptrOptions(confidence=0.9))).row(0, named=True)
    x, y = 0.58 + 0.04 * np.arange(7), np.array([pair.log_alpha for pair in pairs.values()])
    line = sm.OLS(y, sm.add_constant(x)).fit()
    assert (row["n"], row["reason"]) == (7, None)
    assert [row["intercept"], row["slope"]] == pytest.approx(line.params.tolist())
    assert [row["slope_lo"], row["slope_hi"]] == pytest.approx(line.conf_int(0.1)[1].tolist())
    r = np.corrcoef(x, y)[0, 1]
    z = np.arctanh(r) + np.array([-1, 1]) * 1.6448536 / np.sqrt(4)
    assert [row["r"], row["r_lo"], row["r_hi"]] == pytest.approx([r, *np.tanh(z)])


def test_probe_of_few_models() -> None:
    """Three models have a slope but no interval of r; two have neither."""
    three, two = (probe(Planted(spread(n))).row(0, named=True) for n in (3, 2))
    assert three["slope_lo"] < three["slope"] < three["slope_hi"]
    assert (three["r_lo"], three["r_hi"]) == (None, None)
    assert (two["n"], two["slope"], two["reason"]) == (2, None, "too_few_models")


def test_probe_of_equal_models() -> None:
    flat = {name: replace(pair, log_alpha=1.0) for name, pair in spread(5).items()}
    same = {name: replace(pair, split=pool(PLAIN)) for name, pair in spread(5).items()}
    for pairs in (flat, same):
        assert probe(Planted(pairs)).row(0, named=True)["reason"] == "constant"


def test_probe_counts_models_with_both_sides_alone() -> None:
    pairs = spread(7)
    pairs["m1"], pairs["m2"] = replace(pairs["m1"], split=None), replace(pairs["m2"], log_alpha=None)
    assert probe(Planted(pairs))["n"].item() == 5


# ---- Base alone on descriptive benchmarks, and the saturation knee


BENCHMARKS = {"math": Benchmark(regime="math"), "mmlu": Benchmark(regime="nonmath", role="descriptive")}
POOL = {DEFAULT: (6, 12, 24, 30, 30), "temp_0.3": (18, 21, 24, 27, 33)}


def frame(**options):
    cells = {("a", "math"): (POOL, [9] * 5), ("a", "mmlu"): (POOL, None), ("b", "math"): (POOL, [9] * 5)}
    return descriptive(*views(cohort(cells, BENCHMARKS), **options))


def test_default_curve_with_wilson_intervals():
    found = frame().filter(model="a")
    assert found["value"].to_list() == pytest.approx([0.1, 0.2, 0.4, 0.5, 0.5])
    lo, hi = proportion_confint([6, 12, 24, 30, 30], 60, method="wilson")
    assert found["lo"].to_list() == pytest.approx(list(lo)) and found["hi"].to_list() == pytest.approx(list(hi))


def test_what_belongs_to_the_cell():
    """Best policy at 16, headroom over the default policy at 1, and the knee between 4 and 8."""
    row = frame().filter(model="a").row(0, named=True)
    assert (row["p_max"], row["policy"]) == (pytest.approx(0.55), "temp_0.3")
    assert row["headroom"] == pytest.approx(0.45)
    assert row["knee"] == pytest.approx(2 ** (2 + 0.8))


def test_model_that_was_not_sampled_has_its_reason():
    assert frame().filter(model="b")["reason"].to_list() == ["no_base"]


def test_knee_of_every_draw():
    """Trailing axes are draws; an unknown value leaves its own draw undefined."""
    found = knee(np.array([[0.1, 0.5], [0.3, np.nan], [0.5, 0.5]]), [1, 2, 4], 0.1)
    assert found[0] == pytest.approx(2**1.5) and np.isnan(found[1])


# ---- V5b and V4: what they give is checked against other ways to the same number, and against planted relations


V5B = V5B_ROWS[0]


def features(rule: Planted, model: str) -> np.ndarray:
    return np.stack(fingerprint(rule, model))[:, 0]


def delta_hat(rule: Planted, model: str) -> np.ndarray:
    return offset(rule, model).value


def augmented_ridge(x: np.ndarray, y: np.ndarray, target: np.ndarray, penalty: float) -> float:
    """Ridge as least squares with one more row per feature; models in rows, intercept free."""
    mean, sd = x.mean(axis=0), x.std(axis=0)
    z = (x - mean) / sd
    rows = np.block([[np.ones((len(z), 1)), z], [np.zeros((z.shape[1], 1)), np.sqrt(penalty) * np.eye(z.shape[1])]])
    weights = np.linalg.lstsq(rows, np.concatenate([y, np.zeros(z.shape[1])]), rcond=None)[0]
    return float(weights[0] + (target - mean) / sd @ weights[1:])


def test_fingerprint_of_known_curves() -> None:
    """P0 = 0.2, Pmax = 0.6, so u = sqrt(0.8 * 0.4); 0.54 is halfway from 0.52 (8) to 0.56 (16)."""
    rule = Planted({"m": Pair(pool((200, 320, 440, 520, 560), 600))})
    assert features(rule, "m") == pytest.approx([0.6, 0.2, np.sqrt(0.32), 3.5])


def test_policies_that_search_do_not_raise_p_max() -> None:
    curves = {**pool((200, 300, 400, 500, 560)), "mcts_16": (900,) * 5}
    assert features(Planted({"m": Pair(curves)}), "m")[0] == pytest.approx(0.56)


def test_a_budget_exactly_tau_below_the_last_is_within_it() -> None:
    """And a knee exactly between two budgets is exactly there, since the rule rounds halves up."""
    pairs = {"m": Pair(pool((400, 480, 480, 480, 500))), "n": Pair(pool((200, 320, 440, 520, 560)))}
    knees = [features(Planted(pairs), name)[3] for name in pairs]
    assert knees == pytest.approx([1.0, 3.5], abs=5e-10)


def test_no_fingerprint_without_split_or_default_policy() -> None:
    rule = Planted({"m": Pair(None), "n": Pair({data.BEST: data.PLAIN})})
    assert attempt(fingerprint, rule, "m") == Reason("no_rltrain")
    assert attempt(fingerprint, rule, "n") == Reason("policy_missing")


def test_ridge_branch_is_ridge() -> None:
    pairs = varied(7)
    rule = Planted(pairs)
    found = dict(offsets(rule).select("model", "ridge").iter_rows())
    for name in pairs:
        others = [other for other in pairs if other != name]
        x = np.array([features(rule, other) for other in others])
        delta = np.array([pairs[other].log_alpha for other in others]) - np.mean([p.log_alpha for p in pairs.values()])
        expected = augmented_ridge(x, delta, features(rule, name), 1.0)
        assert found[name] == pytest.approx(expected)


def test_an_outlier_goes_to_the_tail() -> None:
    """The others' offsets are known by hand, and so is the knee: 1 for the outlier, 2^3.5 = 8 sqrt 2 for the others."""
    pairs = varied(7)
    for i, name in enumerate(pairs):
        pairs[name] = Pair(pool((200, 320, 440, 520, 560), 580 + i), log_alpha=float(i))
    pairs["odd"] = Pair(pool((990, 990, 990, 990, 990)), log_alpha=5.0)
    found = offset(Planted(pairs), "odd")
    assert not found.typical[0]
    assert np.abs(found.z).max() > 2
    mu = (sum(range(7)) + 5) / 8
    assert found.value == pytest.approx([3 - mu - np.log(8 * np.sqrt(2))])


def test_both_branches_are_seen_and_the_gate_decides() -> None:
    table = offsets(Planted(varied(9, seed=3)))
    assert set(table["branch"]) == {"ridge", "tail"}
    for row in table.iter_rows(named=True):
        assert row["branch"] == ("ridge" if row["largest_z"] <= 2 else "tail")
        assert row["delta_hat"] == row[row["branch"]]


def test_a_constant_feature_says_nothing() -> None:
    """All others have one P0 and one knee; the target has others, and is predicted as if it did not."""
    pairs = {f"m{i}": Pair(pool((200, 320, 440, 520, 560), 570 + 13 * i), float(i % 3)) for i in range(6)}
    pairs["target"] = Pair(pool((260, 320, 440, 440, 560), 600), 1.0)
    rule = Planted(pairs)
    found = offset(rule, "target")
    ridge_of_target = offsets(rule).filter(model="target")["ridge"].to_list()
    assert found.z[[1, 3], 0].tolist() == [0, 0]
    kept = [0, 2]
    x = np.array([features(rule, f"m{i}")[kept] for i in range(6)])
    delta = np.array([i % 3 for i in range(6)]) - 1
    assert ridge_of_target == pytest.approx([augmented_ridge(x, delta, features(rule, "target")[kept], 1.0)])


@pytest.mark.parametrize("log_alpha", [-1.0, 4.0])
def test_own_rl_cancels_in_math_and_leaves_its_share_of_mu_elsewhere(log_alpha: float) -> None:
    pairs = varied(6)
    before, after = Planted(pairs), Planted(pairs | {"m2": replace(pairs["m2"], log_alpha=log_alpha)})
    old, new = delta_hat(before, "m2"), delta_hat(after, "m2")
    assert before.mu("math") + old == pytest.approx(after.mu("math") + new)
    assert new - old == pytest.approx((pairs["m2"].log_alpha - log_alpha) / 6)
    clean = [delta_hat(rule.rule_without("m2"), "m2") for rule in (before, after)]
    assert clean[0] == pytest.approx(clean[1])


def test_a_new_model_is_predicted_through_its_base() -> None:
    pairs = varied(6)
    pairs |= {
        "recipe": Pair(None, log_alpha=9.0, base="m0-base", new=True),
        "family": Pair(pairs["m1"].split, log_alpha=1.0, new=True),
    }
    rule = Planted(pairs)
    assert delta_hat(rule, "recipe") == pytest.approx(delta_hat(rule, "m0"), abs=0)
    assert attempt(delta_hat, rule, "family") == Reason("outside_cohort")


def test_reasons() -> None:
    """Three others are too few and four are enough; a model without its split, or without RL, is no training model."""
    assert attempt(delta_hat, Planted(varied(4)), "m0") == Reason("too_few_models")
    assert delta_hat(Planted(varied(5)), "m0").size == 1
    pairs = varied(5)
    pairs["m4"] = replace(pairs["m4"], split=None)
    assert attempt(delta_hat, Planted(pairs), "m4") == Reason("no_rltrain")
    assert attempt(delta_hat, Planted(pairs), "m0") == Reason("too_few_models")
    pairs = varied(5)
    pairs["m4"] = replace(pairs["m4"], log_alpha=None)
    assert attempt(delta_hat, Planted(pairs), "m0") == Reason("too_few_models")
    assert delta_hat(Planted(pairs), "m4").size == 1


def test_offsets_has_a_row_for_every_model() -> None:
    pairs = varied(6)
    pairs["m5"] = replace(pairs["m5"], split=None, log_alpha=None)
    pairs["family"] = Pair(pairs["m1"].split, new=True)
    table = offsets(Planted(pairs))
    assert table["model"].to_list() == list(pairs)
    assert table["reason"].to_list() == [None] * 5 + ["no_rltrain", "outside_cohort"]
    assert table["delta_hat"].is_null().to_list() == [False] * 5 + [True, True]
    assert table["delta"].is_null().to_list() == [False] * 5 + [True, False]
    assert table.select(FEATURES).row(0) == pytest.approx(features(Planted(pairs), "m0"))


def test_every_draw_is_the_sample_of_its_own_questions() -> None:
    pairs = varied(7)
    whole = bootstrap_view(data.cohort(pairs), 4, seed=5)
    drawn = delta_hat(Planted(pairs, view=whole), "m3")
    alone = [
        delta_hat(Planted(pairs, view=View(whole.cohort, 1, {d: w[:, [j]] for d, w in whole.weights.items()})), "m3")
        for j in range(5)
    ]
    assert drawn == pytest.approx(np.concatenate(alone))
    assert len(set(np.round(drawn, 6))) > 1


def test_row_puts_the_predicted_offset_into_the_rule() -> None:
    rule = Planted(varied(7))
    for benchmark, mu in (("math", rule.mu("math")), ("gpqa", 0.0), ("aime", np.log(2))):
        path = V5B.predict(rule, At("m3", benchmark))
        assert np.log(path.alpha) == pytest.approx(mu + delta_hat(rule, "m3"))
    assert attempt(V5B.predict, Planted(varied(3)), At("m0", "math")) == Reason("too_few_models")


def slow_loo_score(x: np.ndarray, y: np.ndarray, penalty: float, k: int | None) -> float:
    """Model by model; models in rows."""
    squared = 0.0
    for i in range(len(y)):
        rest = np.arange(len(y)) != i
        columns = np.arange(x.shape[1])
        if k is not None:
            r = [abs(np.corrcoef(x[rest, j], y[rest])[0, 1]) for j in columns]
            columns = np.argsort(r)[::-1][:k]
        squared += (y[i] - augmented_ridge(x[rest][:, columns], y[rest], x[i, columns], penalty)) ** 2
    return float(1 - squared / np.sum((y - y.mean()) ** 2))


def test_raw_features_are_not_scaled() -> None:
    """A feature x and ridge lambda are 10 x and 100 lambda; standardised, x and 10 x are one."""
    rng = np.random.default_rng(6)
    x, y = rng.normal(size=(1, 7)), rng.normal(size=(7, 2))
    assert loo_score(x, y, 1.0, scale="raw") == pytest.approx(loo_score(10 * x, y, 100.0, scale="raw"))
    assert loo_score(x, y, 1.0) == pytest.approx(loo_score(10 * x, y, 1.0))
    for scale in SCALES:  # both are centred: where a feature has its zero does not matter
        assert loo_score(x + 3, y, 1.0, scale=scale) == pytest.approx(loo_score(x, y, 1.0, scale=scale))
    rest, centre = x[0, 1:], x[0, 1:].mean()
    slope = (rest - centre) @ y[1:, 0] / ((rest - centre) @ (rest - centre) + 1)
    held_out = y[1:, 0].mean() + slope * (x[0, 0] - centre)
    z, at = (rest - centre)[None, :, None], x[:, :1] - centre
    assert ridge(z, y[1:, :1], at, 1.0) == pytest.approx([held_out])


def test_without_a_penalty_a_constant_feature_does_no_harm() -> None:
    rng = np.random.default_rng(7)
    z, y, target = rng.normal(size=(1, 6, 2)), rng.normal(size=(6, 2)), rng.normal(size=(1, 2))
    z -= z.mean(axis=1, keepdims=True)
    both = ridge(np.concatenate([z, 0 * z]), y, np.concatenate([target, 0 * target]), 0.0)
    lines = [np.polyval(np.polyfit(z[0, :, j], y[:, j], 1), target[0, j]) for j in range(2)]
    assert both == pytest.approx(lines)


@pytest.mark.parametrize("k", [None, 1, 2, 3])
def test_loo_score_is_that_of_explicit_folds(k: int | None) -> None:
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(5, 7)) * 3 + 1, rng.normal(size=(7, 4))
    expected = [slow_loo_score(x.T, column, 0.5, k) for column in y.T]
    assert loo_score(x, y, 0.5, k) == pytest.approx(expected)


def calibrated(count: int, seed: int = 2) -> dict[str, Pair]:
    """Models with cells and sizes of their own."""
    rng = np.random.default_rng(seed)
    pairs = {}
    for name, pair in varied(count, seed).items():
        curves = {d: np.sort(rng.integers(50, 800, 5)).tolist() for d in ("math", "gpqa", "aime")}
        cells = {d: pool(curve, curve[-1] + int(rng.integers(1, 90))) for d, curve in curves.items()}
        pairs[name] = replace(pair, cells=cells, parameters=float(rng.integers(1, 20)) * 1e9)
    return pairs


def test_v4_features_by_hand() -> None:
    pairs = calibrated(5)
    table = v4(Planted(pairs)).features
    curves = [pair.cells["gpqa"] for pair in pairs.values()]
    y = [pair.log_alpha for pair in pairs.values()]
    by_hand = {
        "P0_b1": [c[data.DEFAULT][0] for c in curves],
        "P0_b16": [c[data.DEFAULT][4] for c in curves],
        "Pmax_b1": [max(c[data.DEFAULT][0], c[data.BEST][0]) for c in curves],
        "Pmax_b16": [max(c[data.DEFAULT][4], c[data.BEST][4]) for c in curves],
        "Dp": [c[data.DEFAULT][4] - c[data.DEFAULT][0] for c in curves],
        "Hp": [max(c[data.DEFAULT][4], c[data.BEST][4]) - c[data.DEFAULT][4] for c in curves],
    }
    found = dict(table.select("feature", "pearson_r").iter_rows())
    for name, values in by_hand.items():
        assert found[f"gpqa__{name}"] == pytest.approx(np.corrcoef(values, y)[0, 1])
    sizes = np.log([pair.parameters for pair in pairs.values()])
    assert found["log_size"] == pytest.approx(np.corrcoef(sizes, y)[0, 1])
    assert len(found) == 3 * 6 + 1
    assert table["pearson_r"].abs().is_sorted(descending=True)
    scores = dict(table.select("feature", "loo_pseudo_r2").iter_rows())
    assert scores["log_size"] == pytest.approx(slow_loo_score(sizes[:, None], np.array(y), 1.0, None))


def test_v4_null_holds_the_choice_of_the_feature() -> None:
    """p and quantiles follow from the null frame; the observed score is that of the most correlated feature."""
    rule = Planted(calibrated(6))
    found = v4(rule)
    paper = found.summary.row(0, named=True)
    assert [paper[c] for c in ("scale", "selection", "k", "models")] == ["standardised", "all_models", 1, 6]
    assert paper["loo_pseudo_r2"] == pytest.approx(found.features["loo_pseudo_r2"][0])
    null = found.null["score"].to_numpy()
    assert found.null["shuffle"].to_list() == list(range(1, SHUFFLES + 1))
    assert paper["p"] == pytest.approx((1 + sum(s >= paper["loo_pseudo_r2"] for s in null)) / (SHUFFLES + 1))
    assert [paper[q] for q in ("q05", "q50", "q95")] == pytest.approx(np.percentile(null, [5, 50, 95]).tolist())
    assert found.summary["selection"].to_list() == (["all_models"] + ["in_fold"] * 3) * 2
    raw = found.summary.row(4, named=True)
    assert raw["loo_pseudo_r2"] == pytest.approx(found.features["loo_pseudo_r2_raw"][0])
    assert raw["q95"] == pytest.approx(np.percentile(found.null["score_raw"], 95))
    assert v4(rule).null.equals(found.null)


def test_v4_leaves_out_what_a_model_lacks() -> None:
    pairs = calibrated(5)
    pairs["m1"] = replace(pairs["m1"], cells={**pairs["m1"].cells, "gpqa": None})
    pairs["m2"] = replace(pairs["m2"], parameters=None)
    table = v4(Planted(pairs)).features
    assert "log_size" not in table["feature"].to_list()
    lacking = table.filter(table["feature"].str.starts_with("gpqa__"))
    assert lacking["reason"].to_list() == ["no_base"] * 6
    assert lacking["loo_pseudo_r2"].is_null().all()
    assert table.filter(table["feature"].str.starts_with("aime__"))["reason"].is_null().all()


def test_v4_is_undefined_where_it_has_nothing_to_fit() -> None:
    alike = {name: replace(pair, log_alpha=1.0) for name, pair in calibrated(6).items()}
    for pairs, reason in ((alike, "constant"), (calibrated(3), "too_few_models")):
        found = v4(Planted(pairs))
        assert found.summary["reason"].to_list() == [reason] * 8
        assert set(found.features["reason"]) == {reason}
        assert found.null.is_empty()


def test_v4_constant_feature_has_no_correlation() -> None:
    pairs = {name: replace(pair, parameters=7e9) for name, pair in calibrated(6).items()}
    row = v4(Planted(pairs)).features.row(-1, named=True)
    assert (row["feature"], row["pearson_r"], row["reason"]) == ("log_size", None, "constant")
    assert row["loo_pseudo_r2"] == pytest.approx(1 - (6 / 5) ** 2)


def test_v4_uses_the_models_of_the_cohort_mean_alone() -> None:
    rule = Planted(calibrated(7)).rule_without("m6")
    six = Planted({name: pair for name, pair in calibrated(7).items() if name != "m6"})
    assert v4(rule).features.equals(v4(six).features)
