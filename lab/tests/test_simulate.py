"""The simulator: its truth is what its samples converge to, and its draws depend on names alone."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from planted_landscapes import budget_path
from searchlens.boptr.cohort import PLAN_FILE, Cohort, read_cohort, read_plan
from searchlens.cli.main import main
from searchlens.config.check import DEFAULT_FILES, load
from searchlens.errors import InputError
from searchlens.search.kinds import is_search
from searchlens_lab.simulate import (
    PAPER24,
    Design,
    Mode,
    Planted,
    Truth,
    fitted_design,
    paper_design,
    power_law,
    simulate,
    small_design,
    write,
)
from searchlens_lab.simulate._truth import groups

ANCHOR, MATH, DEFAULT = "qwen25_7b", "math500", "topp0.95_t1.0"


def same_cohort(one: Cohort, other: Cohort) -> bool:
    pairs = [(one.landscapes[key], other.landscapes[key]) for key in one.landscapes.keys() & other.landscapes.keys()]
    return one.landscapes.keys() == other.landscapes.keys() and all(
        list(mine.points.items()) == list(theirs.points.items())
        and all(np.array_equal(mine.credit[m], theirs.credit[m], equal_nan=True) for m in mine.credit)
        and mine.tokens == pytest.approx(theirs.tokens)
        for mine, theirs in pairs
    )


def large(mode: Mode, questions: int = 8_000, **changes: object) -> Design:
    """One model on the anchor benchmark with many questions, two policies."""
    part = small_design(mode).part((ANCHOR,), (MATH,), questions)
    return replace(part, policies=("topp0.8_t0.9", DEFAULT), **changes)


def test_pool_is_the_papers_24() -> None:
    assert tuple(PAPER24) == load(list(DEFAULT_FILES)).pools["paper24"]


def test_same_seed_same_study_another_seed_another() -> None:
    design = small_design()
    assert same_cohort(simulate(design, 1), simulate(design, 1))
    assert not same_cohort(simulate(design, 1), simulate(design, 2))


@pytest.mark.parametrize("mode", ["transform", "unrelated", "planted", "ceiling"])
def test_draws_depend_on_names_alone(mode: Mode) -> None:
    """Another benchmark, model, policy or batch in the design leaves every other cell as it was."""
    design = small_design(mode)
    whole = fitted_design(mode)
    more = replace(
        design,
        bases=whole.bases,
        models={"qwen25_1.5b": design.models["qwen25_1.5b"], ANCHOR: design.models[ANCHOR]},
        benchmarks={"aime": whole.benchmarks["aime"], **design.benchmarks},
        policies=("temp_0.9", *design.policies),
        batches={"123": ("base",)},
    )
    small, grown = simulate(design, 3), simulate(more, 3)
    assert grown.landscapes.keys() > small.landscapes.keys()
    for key, landscape in small.landscapes.items():
        ours = landscape.block("P", design.policies, design.budgets)
        assert np.array_equal(ours, grown.landscapes[key].block("P", design.policies, design.budgets))


def test_a_larger_pool_continues_the_smaller() -> None:
    design = small_design()
    longer = replace(design, extension={MATH: 64})
    ours, theirs = (simulate(each, 1, "first_k").base(ANCHOR, MATH) for each in (design, longer))
    for metric in ("P", "Q", "T"):
        block = theirs.block(metric, design.policies, design.budgets)
        assert np.array_equal(ours.block(metric, design.policies, design.budgets), block)
    assert theirs.complete((1, 2, 4, 8, 16, 32, 64)) == design.policies


@pytest.mark.parametrize("mode", ["transform", "planted", "continuous", "ceiling", "unrelated", "equal"])
def test_samples_converge_to_the_truth(mode: Mode) -> None:
    """Means over 8,000 questions lie within 4.5 standard errors of the population, both sides, every budget."""
    design = large(mode)
    cohort, truth = simulate(design, 5, "first_k"), Truth(design, 5)
    for side, landscape in (("base", cohort.base(ANCHOR, MATH)), ("rl", cohort.rl(ANCHOR, MATH))):
        expected = truth.P(ANCHOR, side, MATH, design.policies, design.budgets)
        found = landscape.block("P", design.policies, design.budgets).mean(axis=2, dtype=float)
        error = np.sqrt(expected * (1 - expected) / 8_000)
        assert (np.abs(found - expected) < 4.5 * error).all()


def test_planted_law_is_exact_in_the_population() -> None:
    """alpha 2.639 and beta 0.6 round to the paper's 2/4/8/8/16, and RL is Base there."""
    design = paper_design("planted")
    truth = Truth(design, 1)
    rl = truth.P(ANCHOR, "rl", MATH, [DEFAULT], design.budgets)
    base = truth.P(ANCHOR, "base", MATH, ["topp0.8_t0.9"], [2, 4, 8, 8, 16])
    assert np.array_equal(rl, base)
    path = [("topp0.8_t0.9", n) for n in (2, 4, 8, 8, 16)]
    assert truth.mech_p(ANCHOR, MATH, path) == 0
    assert truth.mech_p(ANCHOR, MATH, [("topp0.8_t0.9", n) for n in (1, 2, 4, 8, 16)]) > 3


@pytest.mark.parametrize(
    ("mu", "beta", "path"), [(0.0, 1.0, (1, 2, 4, 8, 16)), (0.6931, 0.0, (2,) * 5), (2.0, 1.0, (8, 16, 16, 16, 16))]
)
def test_planted_hits_of_a_question_are_those_of_so_many_base_samples(
    mu: float, beta: float, path: tuple[int, ...]
) -> None:
    """Also if RL has more samples than its Base stream, and if it has fewer."""
    law = Planted({"math": mu}, {"math": beta}, policy=DEFAULT)
    design = large("planted", planted=law)
    model = replace(design.models[ANCHOR], delta=0.0)
    design = replace(design, models={ANCHOR: model})
    rl = simulate(design, 2, "first_k").rl(ANCHOR, MATH)
    found = rl.values("P", DEFAULT, design.budgets)
    expected = Truth(design, 2).P(ANCHOR, "base", MATH, [DEFAULT], path)[0]
    assert np.abs(found - expected).max() < 4.5 * 0.5 / np.sqrt(8_000)
    assert [found[i] == found[i + 1] for i in range(4)] == [path[i] == path[i + 1] for i in range(4)]


@pytest.mark.parametrize(
    "path", [{1: 2, 2: 4, 4: 8, 8: 8, 16: 16}, {1: 1, 2: 1, 4: 2}, {1: 16, 2: 16}, {1: 3, 2: 4, 4: 9}]
)
def test_rl_samples_cover_the_base_samples_behind_them(path: dict[int, int]) -> None:
    """The first b groups are the Base samples 0 .. N(b)-1, each new one used once."""
    made = groups(path, 20)
    assert len(made) == 20
    assert all(made)
    for budget, n in path.items():
        assert {i for part in made[:budget] for i in part} == set(range(n))


def test_planted_paths_are_those_of_the_rule() -> None:
    """The truth states the rounding of the law by itself; the analysis must round the same way."""
    design = paper_design("planted")
    cells = Truth(design, 1).record()["planted"]["cells"]
    assert len(cells) == 10 * 8 - 1
    for cell in cells.values():
        path = [cell["path"][str(b)] for b in design.budgets]
        assert path == list(budget_path(cell["alpha"], cell["beta"], design.budgets))


@pytest.mark.parametrize(("alpha", "beta"), [(2.0, 0.5), (3.0, 0.2), (1.5, 1.0), (2.0, 0.0)])
def test_a_power_law_holds_for_every_question(alpha: float, beta: float) -> None:
    """The chance that b samples of RL all fail is that of alpha b^beta samples of Base, for every real b."""
    rng = np.random.default_rng(1)
    for p in (0.0, 0.01, 0.3, 0.9):
        q = power_law(np.full(200_000, p), alpha, beta, rng.random(200_000), rng.exponential(size=200_000))
        for b in (1, 2.5, 16):
            failed = (1 - q) ** b
            error = failed.std() / np.sqrt(200_000) + 1e-12
            assert abs(failed.mean() - (1 - p) ** (alpha * b**beta)) < 4 * error


def test_truth_of_the_continuous_law_is_not_rounded() -> None:
    """N*(b) is alpha b^beta; under a ceiling the curve is its multiple, and N* stays below a limit."""
    law = Planted({"math": np.log(2.6)}, {"math": 0.6}, policy=DEFAULT, ceiling=0.8)
    truths = {mode: Truth(large(mode, planted=law), 1) for mode in ("continuous", "ceiling")}
    alpha = 2.6 * np.exp(truths["continuous"].design.models[ANCHOR].delta)
    budgets = (1, 2, 4, 8, 16)
    exact = truths["continuous"].equivalent(ANCHOR, MATH, DEFAULT, budgets)
    assert exact == pytest.approx([alpha * b**0.6 for b in budgets])
    rl = [truth.P(ANCHOR, "rl", MATH, [DEFAULT], budgets)[0] for truth in truths.values()]
    assert rl[1] == pytest.approx(0.8 * rl[0])
    reached = truths["ceiling"].equivalent(ANCHOR, MATH, DEFAULT, [1, 10**6, 10**9])
    assert reached[0] < reached[1] < 1.1 * reached[2] < 20
    record = truths["ceiling"].record()["planted"]
    assert record["ceiling"] == 0.8
    assert record["cells"][f"{ANCHOR}/{MATH}"] == {"alpha": pytest.approx(alpha), "beta": 0.6, "policy": DEFAULT}


def test_equal_means_no_error_and_independent_samples() -> None:
    design = small_design("equal")
    truth, cohort = Truth(design, 1), simulate(design, 1)
    assert truth.mech_p(ANCHOR, MATH, [(DEFAULT, n) for n in design.budgets]) == 0
    base, rl = cohort.base(ANCHOR, MATH), cohort.rl(ANCHOR, MATH)
    assert not np.array_equal(base.credit["P"], rl.credit["P"])


def test_unrelated_rl_shares_no_question_difficulty_with_its_base() -> None:
    """Correlation over 8,000 questions of single-sample hits: none there, clear under the transform."""

    def correlation(mode: Mode) -> float:
        cohort = simulate(large(mode), 7, "first_k")
        sides = [cohort.base(ANCHOR, MATH), cohort.rl(ANCHOR, MATH)]
        hits = [side.block("P", [DEFAULT], [1])[0, 0] for side in sides if side is not None]
        return float(np.corrcoef(*hits)[0, 1])

    assert abs(correlation("unrelated")) < 0.03
    assert correlation("transform") > 0.3


def test_levels_are_the_papers() -> None:
    """Anchor: RL curves, and the Base default below RL at b = 1 but some Base policy above it at b = 16."""
    design = paper_design()
    truth = Truth(design, 1)
    ends = {"math500": (0.75, 0.91), "aime": (4 / 60, 7 / 60), "gpqa": (0.44, 0.93), "ifeval": (0.43, 0.70)}
    for benchmark, expected in ends.items():
        rl = truth.P(ANCHOR, "rl", benchmark, [DEFAULT], [1, 16])[0]
        assert rl == pytest.approx(expected, abs=0.025)
    base = truth.P(ANCHOR, "base", MATH, design.policies, [1, 16])
    rl = truth.P(ANCHOR, "rl", MATH, [DEFAULT], [1, 16])[0]
    assert base[:, 0].max() < rl[0]
    assert base[:, 1].max() > rl[1]


def test_paper_design_has_the_papers_cells() -> None:
    design = paper_design()
    plan = design.plan()
    fitted = [(m, b) for m in plan.fitted_models for b in plan.with_role("fitted") if (m, b) not in design.missing]
    assert len(fitted) == 27
    assert all(is_search(name) for names in design.searches.values() for name in names)
    assert not any(is_search(name) for name in design.policies)
    assert [len(design.searches[b]) for b in ("math500", "aime", "gpqa")] == [8, 10, 10]
    folders = [(cell.checkpoint, cell.benchmark) for cell in design.cells()]
    assert len(folders) == len(set(folders))
    assert ("orz_7b-base", MATH) not in folders
    assert ("orz_7b-rl", MATH) in folders
    assert ("qwen25_7b-base-20240", MATH) in folders


def test_disk_is_memory(tmp_path: Path) -> None:
    """Votes, ties, intervals and tokens of the folder, read by the landscape itself, are those in memory."""
    design = replace(
        small_design("planted"),
        benchmarks={**small_design().benchmarks, "ifeval": replace(fitted_design().benchmarks["ifeval"], questions=30)},
        searches={MATH: paper_design().searches[MATH]},
        extension={MATH: 32},
        batches={"123": ("base",), "extension": ("rl",)},
    )
    write(design, 4, tmp_path)
    memory = simulate(design, 4)
    disk = read_cohort(tmp_path, read_plan(tmp_path / PLAN_FILE))
    assert disk.plan == memory.plan
    assert same_cohort(disk, memory)
    for key, landscape in memory.landscapes.items():
        theirs = disk.landscapes[key].rates
        assert landscape.rates.select("policy", "metric").equals(theirs.select("policy", "metric"))
        for column in ("value", "lo", "hi"):
            assert landscape.rates[column].to_list() == pytest.approx(theirs[column].to_list(), abs=1e-6)
    record = json.loads((tmp_path / "truth.json").read_text())
    law = record["planted"]["cells"][f"{ANCHOR}/{MATH}"]
    assert law["path"] == {"1": 2, "2": 4, "4": 8, "8": 8, "16": 16, "32": 16}
    assert law["alpha"] == pytest.approx(2.639, abs=1e-3)


@pytest.mark.parametrize("mode", ["equal", "ceiling"])
def test_command_line_writes_a_small_study(tmp_path: Path, mode: Mode) -> None:
    assert main(["simulate", "--seed", "1", "--output", str(tmp_path), "--size", "small", "--mode", mode]) == 0
    cohort = read_cohort(tmp_path, read_plan(tmp_path / PLAN_FILE))
    assert same_cohort(cohort, simulate(small_design(mode), 1))


def test_designs_that_cannot_be_sampled_are_refused() -> None:
    steep = Planted({"math": 0, "nonmath": 0}, {"math": 1.1, "nonmath": 1})
    for says, changes in (
        ("no base for", {"bases": {}}),
        ("fewer than the largest budget", {"samples": 8}),
        ("mode", {"mode": "nonsense"}),
        ("no mu or no beta for nonmath", {"mode": "planted", "planted": Planted({"math": 0.0}, {"math": 0.6})}),
        ("at most 1", {"mode": "continuous", "planted": steep}),
        ("default policy", {"policies": ("temp_0.5",)}),
    ):
        with pytest.raises(InputError, match=says):
            replace(small_design(), **changes)
    for says, beta, ceiling in (("ceiling", 0.1, 0.0), ("at least 0", -0.1, 0.5)):
        with pytest.raises(InputError, match=says):
            Planted({"math": 0.0}, {"math": beta}, ceiling=ceiling)


def test_truth_refuses_what_was_not_sampled() -> None:
    design = paper_design("planted")
    truth = Truth(design, 1)
    with pytest.raises(InputError, match="no RL side"):
        truth.P(ANCHOR, "rl", "rltrain", [DEFAULT], [1])
    with pytest.raises(InputError, match="no law is planted"):
        truth.P(ANCHOR, "rl", MATH, [DEFAULT], [3])


def test_votes_on_open_text_are_the_first_sample() -> None:
    design = replace(
        small_design(),
        benchmarks={MATH: small_design().benchmarks[MATH], "ifeval": fitted_design().benchmarks["ifeval"]},
    )
    landscape = simulate(design, 1).base(ANCHOR, "ifeval")
    block = landscape.block("Q", [DEFAULT], [1, 16])[0]
    answered = block[0] == 1
    assert (block[1][answered] == 1).all()
