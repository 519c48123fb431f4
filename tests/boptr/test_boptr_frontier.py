"""Scales from Base features: the priors, their rows, and the regression."""

from dataclasses import replace

import numpy as np
import pytest
import statsmodels.api as sm
from statsmodels.stats.proportion import proportion_confint

from budget_paths import budget_path
from fingerprint_data import PLAIN, Pair, Planted, pool, varied
from planted_landscapes import DEFAULT, cohort, views
from searchlens.boptr.cohort import Benchmark
from searchlens.boptr.frontier import (
    FRONTIER_ROWS,
    PRIORS,
    Prior,
    descriptive,
    knee,
    log_prior,
    one_anchor,
    probe,
)
from searchlens.boptr.rows import ROWS, At, path_text
from searchlens.boptr.rule import Path, Reason, attempt
from searchlens.boptr.view import bootstrap_view
from searchlens.config.boptr import BoptrOptions

FRONTIER = {row.key: row for row in FRONTIER_ROWS}
B0 = next(row for row in ROWS if row.key == "B0")
BUDGETS = (1, 2, 4, 8, 16)

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
    assert isinstance(prediction, Path)
    assert prediction.alpha is not None
    return float(prediction.alpha[0])


@pytest.mark.parametrize("prior", PRIORS)
def test_priors_of_known_curves(prior: Prior) -> None:
    rule = Planted(KNOWN)
    for name, expected in LOG2_F[prior].items():
        assert log_prior(rule, name, prior) == pytest.approx([expected * np.log(2)], abs=1e-6)


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


@pytest.mark.parametrize("b0", ["anchor_alpha", "cohort_mu"])
@pytest.mark.parametrize("prior", PRIORS)
def test_z1_without_weight_is_b0(prior: Prior, b0: str) -> None:
    pairs = varied(5)
    view = bootstrap_view(Planted(pairs).view.cohort, 8, seed=1)
    rule = Planted(pairs, BoptrOptions(b0=b0), view)  # type: ignore[arg-type]
    for name in pairs:
        for benchmark in ("math", "gpqa", "aime"):
            ours, theirs = one_anchor(rule, At(name, benchmark), prior, 0.0), B0.predict(rule, At(name, benchmark))
            assert isinstance(ours, Path)
            assert isinstance(theirs, Path)
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


def test_u_spans_the_budgets_of_b() -> None:
    """Nothing solved at once and everything with the most samples: u = 1, and alpha is the largest budget."""
    rule = Planted({"m": Pair(pool((0, 100, 200, 500, 1000)))})
    assert alpha(FRONTIER["Z0-u"].predict(rule, At("m", "math"))) == pytest.approx(16)


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


# ---- probe


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
    assert frame(headroom="one_minus_p0")["headroom"][0] == pytest.approx(0.9)


def test_model_that_was_not_sampled_has_its_reason():
    assert frame().filter(model="b")["reason"].to_list() == ["no_base"]


def test_knee_of_every_draw():
    """Trailing axes are draws; an unknown value leaves its own draw undefined."""
    found = knee(np.array([[0.1, 0.5], [0.3, np.nan], [0.5, 0.5]]), [1, 2, 4], 0.1)
    assert found[0] == pytest.approx(2**1.5) and np.isnan(found[1])
