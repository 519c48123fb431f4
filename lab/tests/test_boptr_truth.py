"""The analysis on simulated cohorts whose truth is known: it finds a law that is there, and none that is not.

Small versions of ``validation/convergence.py`` and ``validation/nulls.py`` (numbers: ``docs/validation.md``).
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

import numpy as np
import pytest
from scipy import stats

from searchlens.boptr.evaluate import Constants, Evaluation, Task, evaluate
from searchlens.boptr.fit import identified_alpha
from searchlens.boptr.inference import permutation_p
from searchlens.boptr.protocol import checklist, protocol_flags
from searchlens.boptr.rows import ROWS, At, Row, calibrated, smooth
from searchlens.boptr.rule import Path, Rule
from searchlens.boptr.study import contrasts, decided, mismatched
from searchlens.boptr.transfer import errors_frame
from searchlens.boptr.view import sample_view
from searchlens.config.boptr import BoptrOptions
from searchlens_lab.simulate import Design, Mode, Truth, fitted_design, simulate, small_design
from small_cohort import part_of_paper

ANCHOR, MATH = "qwen25_7b", "math500"
APART = ("temp_0.3", "topp0.8_t0.9", "topp0.95_t1.0")
"""Policies whose curves differ; the planted one is the second."""
MODELS = ("qwen25_7b", "qwen25_1.5b", "qwen25_0.5b")


def rows(*keys: str) -> tuple[Row, ...]:
    return tuple(row for row in ROWS if row.key in keys)


# ---- a planted law


@cache
def planted(questions: int, seed: int = 1) -> tuple[Truth, Rule]:
    design = part_of_paper(MODELS, (MATH, "gpqa"), APART, questions, mode="planted")
    return Truth(design, 0), Rule(sample_view(simulate(design, seed, "first_k")))


def fits(truth: Truth, rule: Rule) -> Iterator[tuple[dict[str, object], list[int], str, float]]:
    """Every cell's own fit: what was planted, then its budgets, its policy and its true error."""
    for place, law in truth.record()["planted"]["cells"].items():
        model, benchmark = place.split("/")
        found, base = smooth(rule, At(model, benchmark)), rule.view.base(model, benchmark)
        path = [truth.design.budgets[n] for n in found.budget[:, 0]]
        name = base.policies[int(found.policy[0, 0])]
        yield law, path, name, truth.mech_p(model, benchmark, [(name, n) for n in path])


def shares(questions: int) -> tuple[float, float, float]:
    """Share of budgets with the planted N(b), share of planted policies, mean true error, over four cohorts."""
    found = [fit for seed in range(1, 5) for fit in fits(*planted(questions, seed))]
    right = [n == m for law, path, _, _ in found for n, m in zip(path, law["path"].values(), strict=True)]
    return (
        float(np.mean(right)),
        float(np.mean([name == law["policy"] for law, _, name, _ in found])),
        float(np.mean([e for *_, e in found])),
    )


def test_fits_converge_to_the_planted_law() -> None:
    """Right budgets and policies become more frequent, true errors smaller; every N(b) is right with 3,000."""
    few, more, many = shares(50), shares(400), shares(3000)
    assert few[0] < more[0] < many[0] == 1
    assert few[1] < many[1]
    assert many[1] > 0.75
    assert few[2] > 2 * more[2] > 4 * many[2]
    assert many[2] < 0.25


def test_planted_scale_lies_in_the_identified_interval_wherever_the_path_is_right() -> None:
    """The data identify alpha no further; the offsets of the models are found within that interval, too."""
    inside = 0
    for seed in range(1, 5):
        truth, rule = planted(400, seed)
        for place, law in truth.record()["planted"]["cells"].items():
            model, benchmark = place.split("/")
            found = rule.scale(model, benchmark, law["beta"])
            path = [truth.design.budgets[n] for n in found.path[:, 0]]
            low, high = identified_alpha(float(found.alpha[0]), law["beta"], len(path))
            assert (low <= law["alpha"] < high) == (path == list(law["path"].values()))
            inside += path == list(law["path"].values())
    assert inside >= 20


def test_offsets_converge_to_the_planted_ones() -> None:
    """delta_m against the mean of these models' own: within the half step of the grid of alpha with 3,000 questions."""
    truth, rule = planted(3000)
    known = {name: model.delta for name, model in truth.design.models.items()}
    centre = np.mean(list(known.values()))
    for model, delta in known.items():
        found = rule.delta(model)
        assert float(found[0]) == pytest.approx(delta - centre, abs=np.log(2) / 10)


# ---- pairs and mismatched pairs


SEVEN = tuple(fitted_design().models)


def p_value(design: Design, seed: int, permutations: int, row: str = "V3") -> tuple[float, int]:
    """p of the true pairing, and the number of pairings."""
    cohort = simulate(design, seed, "first_k")
    task = Task(Constants(), rows(row), tuple(design.benchmarks))
    _, means = mismatched(cohort, BoptrOptions(permutations=permutations), task)
    return permutation_p(means[row]), len(means[row])


@pytest.mark.parametrize("mode", ["transform", "planted"])
def test_true_pairs_beat_mismatched_pairs(mode: Mode) -> None:
    """Seven models: p < .01 over all 5,040 pairings, and over the 1,000 drawn ones that are the default."""
    design = part_of_paper(SEVEN, (MATH, "gpqa"), APART, 150, mode=mode)
    p, pairings = p_value(design, 1, 5040)
    assert pairings == 5040
    assert 1 / 5040 <= p < 0.01
    p, pairings = p_value(design, 1, BoptrOptions().permutations)
    assert pairings == 1000
    assert 1 / 1000 <= p < 0.01


FOUR = ("qwen25_7b", "qwen25_14b", "qwen25_1.5b", "mistral7b_v01")


def p_values(mode: Mode, cohorts: int) -> np.ndarray:
    """p of the calibrated rule over all 24 pairings of four models, spread at random within its steps."""
    design = part_of_paper(FOUR, (MATH,), APART, 60, mode=mode)
    found = np.array([p_value(design, seed, 24)[0] for seed in range(cohorts)])
    return found - np.random.default_rng(0).random(cohorts) / 24


def test_p_is_uniform_where_rl_has_nothing_to_do_with_base() -> None:
    found = p_values("unrelated", 200)
    assert stats.kstest(found, "uniform").pvalue > 0.05
    low, high = stats.binom.ppf([0.005, 0.995], len(found), 1 / 12)
    assert low <= (found <= 1 / 12).sum() <= high


def test_p_is_not_uniform_where_rl_comes_from_base() -> None:
    """The test above can fail: twenty cohorts suffice to see a law."""
    assert stats.kstest(p_values("transform", 20), "uniform").pvalue < 1e-6


# ---- no law at all


@cache
def equal() -> tuple[Truth, Evaluation, BoptrOptions]:
    """Three models whose RL samples from Base's own distribution."""
    design = part_of_paper(MODELS, (MATH, "gpqa"), small_design().policies, 400, mode="equal")
    options = BoptrOptions(draws=300, reselect=0)
    task = Task(Constants(), ROWS, tuple(design.benchmarks))
    return Truth(design, 0), evaluate(simulate(design, 1), options, [task]), options


def test_a_study_without_a_law_says_that_the_same_policy_is_better() -> None:
    """H2 is exact there, the paper's exponents bend N(b) on mathematics: contrasts and checklist say so."""
    truth, found, options = equal()
    rule = found.rules[Constants()]
    for model in MODELS:
        law = calibrated(rule, At(model, MATH))
        assert law.budget[:, 0].tolist() != [0, 1, 2, 3, 4]
        assert truth.mech_p(model, MATH, [(truth.design.default_policy, n) for n in truth.design.budgets]) == 0
    questions = dict.fromkeys(truth.design.benchmarks, 400)
    rows = decided(contrasts(found, rule.plan, Constants(), options, questions), options.confidence)
    verdicts = dict(rows.filter(scope="cohort", second="V3").select("first", "verdict").iter_rows())
    assert verdicts["H2"] == verdicts["A3"] == "first lower"
    assert verdicts["mean RL"] == "second lower"
    errors = errors_frame(found, rule.plan, {row.key: row for row in ROWS}, options.confidence)
    claim = checklist(rule, errors, protocol_flags(rule), rows).row(1, named=True)
    assert claim["status"] == "attention"
    assert "H2" in claim["detail"].partition("better than V3: ")[2].partition(";")[0].split(", ")


def test_cells_without_a_law_are_fitted_by_n_equals_b() -> None:
    """With 400 questions, five of six cells' own fits at least."""
    truth, found, _ = equal()
    paths = [smooth(found.rules[Constants()], At(model, d)) for model in MODELS for d in truth.design.benchmarks]
    kept = [isinstance(path, Path) and path.budget[:, 0].tolist() == [0, 1, 2, 3, 4] for path in paths]
    assert sum(kept) >= 5


def test_corrected_error_of_the_exact_predictor_is_nearer_to_zero() -> None:
    """H2, whose true error is 0: measured it cannot be, and the correction takes a third off at least."""
    _, found, _ = equal()
    scores = [score for key, score in found.scores.items() if key.row == "H2" and key.constants == Constants()]
    plain, corrected = np.mean([score.error for score in scores]), np.mean([score.corrected[0] for score in scores])
    assert 0 < corrected < 2 / 3 * plain
