"""Predicted power against studies simulated question by question."""

from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from scipy import stats
from statsmodels.stats.power import TTestPower

from searchlens.boptr.rows import ROWS, At, Curve, mech
from searchlens.boptr.rule import Path as TierPath
from searchlens.boptr.rule import Rule
from searchlens.boptr.view import sample_view
from searchlens.cli.main import main
from searchlens.cli.sample_size import (
    TYPICAL,
    Components,
    Design,
    contribution,
    estimate_components,
    landscape_contributions,
    power,
    required,
    row_contributions,
)
from searchlens.config.boptr import BoptrOptions, Estimator
from searchlens.errors import InputError
from searchlens_lab.simulate import simulate, small_design, write

BUDGETS = np.array([1, 2, 4, 8, 16])
PLANNED = np.array([1, 2, 4, 8, 16]), np.array([1, 2, 4, 12, 16])
"""N(b) of two rows: the same Base samples, read at other budgets."""


def estimates(
    rng: np.random.Generator, studies: int, models: int, questions: int, seeds: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Hits (studies, models, questions, seeds, budgets) under both rows and RL: prefixes of one pool each side.

    Questions have their own difficulty, half of it shared by the models; models differ in skill and in what RL adds.
    """
    size = (studies, models, questions)
    shared = rng.normal(0, 1.2, (studies, 1, questions))
    skill, gain = rng.normal(-1.2, 1.2, (studies, models, 1)), rng.normal(1.8, 0.3, (studies, models, 1))
    difficulty = skill + shared + rng.normal(0, 1.2, size)
    base = 1 / (1 + np.exp(-difficulty))
    rl = 1 / (1 + np.exp(-(difficulty + gain + rng.normal(0, 0.6, size))))
    first = [rng.geometric(p[..., None], (*size, seeds))[..., None] for p in (base, rl)]
    return first[0] <= PLANNED[0], first[0] <= PLANNED[1], first[1] <= BUDGETS


def differences(rng: np.random.Generator, studies: int, design: Design) -> np.ndarray:
    """Difference of the two rows' errors, percentage points, for every model of every study."""
    cells = []
    for questions in design.questions:
        one, two, rl = (
            hits.mean(axis=(2, 3)) for hits in estimates(rng, studies, design.models, questions, design.seeds)
        )
        cells.append(100 * (np.abs(one - rl) - np.abs(two - rl)).mean(axis=-1))
    return np.mean(cells, axis=0)


@cache
def pilot() -> tuple[Components, float]:
    """That population from one study of many models with four seeds: components and gap."""
    rng = np.random.default_rng(1)
    parts = {}
    for benchmark in ("x", "y"):
        one, two, rl = (np.moveaxis(hits[0], -1, 1) for hits in estimates(rng, 1, 60, 1500, 4))
        for model in range(60):
            cell = contribution(one[model], rl[model]) - contribution(two[model], rl[model])
            parts[f"m{model}", benchmark] = cell
    return estimate_components(parts), float(np.mean([cell.mean() for cell in parts.values()]))


@pytest.mark.parametrize(
    ("design", "contrasts"),
    [
        (Design((60, 40), 3), 3),
        (Design((50, 50), 4), 2),
        (Design((20, 20), 4, seeds=3), 1),
        (Design((40, 40), 5), 1),
        (Design((80, 60), 7), 10),
    ],
    ids=str,
)
def test_predicted_power_is_that_of_simulated_studies(design: Design, contrasts: int) -> None:
    """Within .05 (the tool's promise), 1,500 studies each: real hits, real absolute errors, a real t test."""
    components, gap = pilot()
    found = differences(np.random.default_rng(3), 1500, design)
    spread = found.std(axis=1, ddof=1) / np.sqrt(design.models)
    t = np.abs(found.mean(axis=1)) / np.maximum(spread, 1e-9)
    seen = float((t > stats.t.ppf(1 - 0.05 / contrasts / 2, design.models - 1)).mean())
    assert power(design, components, gap, contrasts=contrasts) == pytest.approx(seen, abs=0.05)


def test_power_is_that_of_the_paired_t_test() -> None:
    """One benchmark without shared variance, against statsmodels."""
    components, design = Components(30, 20, 0.8), Design((400,), 7, seeds=2)
    effect = 1.5 / np.sqrt(0.8**2 + (30**2 + 20**2 / 2) / 400)
    theirs = TTestPower().power(effect, 7, 0.05 / 3)
    assert power(design, components, -1.5, contrasts=3) == pytest.approx(theirs, abs=2e-3)


def test_no_gap_is_found_at_the_level_unless_models_move_together() -> None:
    assert power(Design((400,), 7), Components(30, 20, 0.8), 0) == pytest.approx(0.05, abs=1e-6)
    assert power(Design((400,), 7), Components(30, 20, 0.8, shared=0.5), 0) > 0.1


def test_more_models_never_find_less() -> None:
    """For some sizes scipy's series of the far tail have no value, which counted as power below every goal."""
    components = Components(16.7, 0, 2.61, 0.0742)
    found = [power(Design((500, 60, 198, 541), models), components, 1.4, contrasts=12) for models in range(2, 400)]
    assert np.all(np.diff(found) > -1e-9)
    smallest = required(Design((500, 60, 198, 541), 7), components, 1.4, contrasts=12)
    assert smallest is not None and smallest.models == 58


def test_required_is_the_smallest_sufficient_design() -> None:
    components, design = Components(10, 30, 0.4), Design((500, 60, 198, 541), 4)
    for free in ("models", "questions", "seeds"):
        found = required(design, components, 1.2, 0.6, free)
        assert power(found, components, 1.2) >= 0.6
    models = required(design, components, 1.2, 0.9)
    assert power(Design(design.questions, models.models - 1), components, 1.2) < 0.9


def test_questions_cannot_replace_models_that_differ() -> None:
    assert required(Design((500,), 5), Components(20, 20, 1.5), 1.0, 0.9, "questions") is None


def test_components_are_recovered_from_planted_ones() -> None:
    rng = np.random.default_rng(5)
    effect, common = rng.normal(0, 1.5, 40), rng.normal(0, 10, (3, 800, 1))
    cells = {
        (f"m{i}", f"d{j}"): effect[i] + common[j] + rng.normal(0, 15, (800, 1)) + rng.normal(0, 12, (800, 3))
        for i in range(40)
        for j in range(3)
    }
    found = estimate_components(cells)
    assert found.question_sd == pytest.approx(np.hypot(10, 15), rel=0.05)
    assert found.sample_sd == pytest.approx(12, rel=0.05)
    assert found.model_sd == pytest.approx(effect.std(ddof=1), rel=0.15)
    assert found.shared == pytest.approx(100 / 325, abs=0.05)


@pytest.mark.parametrize(("first", "second"), [("H2", "H4"), ("V3", "mean RL"), ("V3", "Base+gain")])
@pytest.mark.parametrize("estimator", ["unbiased", "first_k"])
def test_parts_of_questions_of_a_cohort_average_to_the_difference_of_its_errors(
    first: str, second: str, estimator: Estimator
) -> None:
    """Also for rivals, which predict a curve from other models instead of Base operating points."""
    rule = Rule(sample_view(simulate(small_design(), 3, estimator)), BoptrOptions(estimator=estimator))
    rows = {row.key: row for row in ROWS}
    found = row_contributions(rule, rows[first], rows[second])
    assert len(found) == 4
    for (model, benchmark), cell in found.items():
        errors = []
        for name in (first, second):
            path, target = rows[name].predict(rule, At(model, benchmark)), rule.view.target(model, benchmark)
            assert isinstance(path, TierPath | Curve) and target is not None
            errors.append(mech(path, rule.view.base(model, benchmark), target, 40, 1)[0])
        assert cell.mean() == pytest.approx(errors[0] - errors[1], abs=1e-4)


def test_landscapes_of_a_study_give_the_parts_of_its_questions(tmp_path: Path) -> None:
    """Read back from the folder of a study: the cells of the cohort in memory, one seed, in the order of questions."""
    design = small_design()
    write(design, 3, tmp_path)
    rule = Rule(sample_view(simulate(design, 3)), BoptrOptions())
    rows = {row.key: row for row in ROWS}
    wanted = row_contributions(rule, rows["H2"], rows["H4"])
    found = landscape_contributions(tmp_path, design.plan(), BoptrOptions(), "H2", "H4")
    assert len(found) == 4
    for (model, benchmark), parts in found.items():
        np.testing.assert_allclose(parts, wanted[model, benchmark])
    with pytest.raises(InputError, match=r"row 'V9' is unknown\. Known: A1, A2,"):
        landscape_contributions(tmp_path, design.plan(), BoptrOptions(), "V9", "H4")
    plan = design.plan()
    alone = replace(plan, models={plan.anchor_model: plan.models[plan.anchor_model]})
    with pytest.raises(InputError, match="no cell in which both mean RL and H4 predict question by question"):
        landscape_contributions(tmp_path, alone, BoptrOptions(), "mean RL", "H4")


def test_one_model_does_not_tell_how_models_differ() -> None:
    parts = np.random.default_rng(8).normal(0, 9, (300, 1))
    found = estimate_components({("a", "d"): parts, ("a", "e"): -parts})
    assert (found.model_sd, found.shared) == (TYPICAL.model_sd, TYPICAL.shared)
    assert found.question_sd == pytest.approx(parts.std(ddof=1))


def test_command_prints_what_would_suffice(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = "sample-size --gap 1.5 --models 7 --questions 500 60"
    arguments += " --question-sd 10 --sample-sd 10 --model-sd 1 --shared 0"
    assert main(arguments.split()) == 0
    text = capsys.readouterr().out
    expected = power(Design((500, 60), 7), Components(10, 10, 1, 0), 1.5)
    assert f"power {expected:.2f}" in text
    assert "80%" in text and "90%" in text


def test_what_no_number_of_questions_reaches_is_said_in_words(capsys: pytest.CaptureFixture[str]) -> None:
    """Models differ by three points: neither questions nor seeds make up for that."""
    assert main(["sample-size", "--gap", "1", "--models", "3", "--questions", "50", "--model-sd", "3"]) == 0
    text = capsys.readouterr().out
    for name in ("questions", "seeds"):
        assert f"-: 4,096 times as many {name} do not reach 80% or 90%\n" in text
    assert "never" not in text and "times as many models" not in text


def test_command_reads_components_from_landscapes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A folder that ``simulate`` wrote says itself what is in it; the rows are those that were named."""
    monkeypatch.chdir(tmp_path)
    size = ["--gap", "1", "--models", "5", "--questions", "50"]
    assert main(["simulate", "--seed", "3", "--size", "small", "--output", "study"]) == 0
    assert main(["sample-size", "study", *size, "--rows", "H2", "H4"]) == 0
    parts = landscape_contributions(tmp_path / "study", small_design().plan(), BoptrOptions(), "H2", "H4")
    assert f"question_sd {estimate_components(parts).question_sd:.3g}, sample_sd 0," in capsys.readouterr().out
    assert main(["sample-size", "nowhere", *size]) == 2
    assert "nowhere: must be a folder of landscapes, found nothing" in capsys.readouterr().err


def test_wrong_input_is_named() -> None:
    with pytest.raises(InputError, match="at least 2"):
        Design((10,), 1)
    with pytest.raises(InputError, match="at least one"):
        Design((), 3)
