"""BOPTR-P1: regime exponents, mu and delta by hand, what a left-out model may touch, and what is undefined why.

Every model is planted: its RL is one Base policy read along a path of budgets that a single alpha of the grid gives. In
log2: m 1.4, b 1.8, c 0.6, and the new model n 1.6. Their mean without n is 3.8 / 3.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np
import pytest

import small_cohort
from planted_landscapes import BUDGETS, DEFAULT, along, cohort, dense_landscape
from searchlens.boptr.cohort import Benchmark, Cohort
from searchlens.boptr.fit import identified_alpha
from searchlens.boptr.rows import ROWS, At, path_text
from searchlens.boptr.rule import REASONS, Path, Reason, Rule, attempt
from searchlens.boptr.view import bootstrap_view, sample_view
from searchlens.config.boptr import BoptrOptions

STUDY = {"math": Benchmark("math"), "gpqa": Benchmark("nonmath"), "aime": Benchmark("floor")}
OTHER = "topp0.9_t0.7"
POOL = {DEFAULT: (2, 9, 17, 31, 40), OTHER: (11, 20, 29, 38, 47), "temp_0.3": (23, 26, 28, 30, 33)}
PLANTED = {
    "m": {"math": (2, 4, 8, 8, 16), "gpqa": BUDGETS, "aime": (2,) * 5},
    "b": {"math": (4, 4, 8, 16, 16), "gpqa": (2, 4, 8, 16, 16), "aime": (8,) * 5},
    "c": {"math": (2, 2, 4, 4, 8), "gpqa": BUDGETS, "aime": (4,) * 5},
    "n": {"math": (4, 4, 8, 8, 16), "gpqa": BUDGETS, "aime": (1,) * 5},
}
LOG2 = {"m": 1.4, "b": 1.8, "c": 0.6, "n": 1.6}
MEAN = 3.8 / 3
ROW = {row.key: row for row in ROWS}


def study(models: Iterable[str] = PLANTED, benchmarks: Mapping[str, Benchmark] = STUDY) -> Cohort:
    cells = {(m, d): (POOL, along(POOL[OTHER], PLANTED[m][d])) for m in models for d in benchmarks}
    return cohort(cells, benchmarks, new=["n"])


def rule(found: Cohort | None = None, **arguments: Any) -> Rule:
    return Rule(sample_view(found or study()), **arguments)


def log2(value: Any) -> float:
    """Of the sample, from a natural logarithm."""
    return float(value[0] / np.log(2))


def text(path: Any) -> str:
    return path_text(path, BUDGETS)


def test_scales_offsets_and_means_by_hand() -> None:
    """Natural logarithms; the new model has an offset and no part in the mean; nonmath 0, floor ln 2."""
    found = rule()
    for model, value in LOG2.items():
        assert log2(found.log_alpha(model, "math")) == pytest.approx(value)
        assert log2(found.delta(model)) == pytest.approx(value - MEAN)
    assert found.mu("math")[0] == pytest.approx(MEAN * np.log(2))
    assert (found.mu("gpqa")[0], found.mu("aime")[0]) == (0, np.log(2))
    assert [found.beta(d).tolist() for d in STUDY] == [[0.6], [1.0], [0.0]]


def test_paths_round_in_log2() -> None:
    """log2 alpha .533 at beta 1: 1.447 is nearer to 2, although it is nearer to 1 on the linear scale."""
    assert text(rule().path("b", "gpqa", np.array([0.533 * np.log(2)]))) == "2/4/8/16/16"


def test_own_means_are_fitted_at_own_exponents() -> None:
    """Nonmath alone in its regime fits on itself: m and c N = b, b one doubling above it."""
    found = rule(exponents="own")
    beta = found.beta("gpqa")[0]
    assert {beta} < {t / 10 for t in range(13)}
    scales = []
    for model in "mbc":
        value = found.log_alpha(model, "gpqa")
        scales.append(log2(value))
        low, high = identified_alpha(float(np.exp(value[0])), beta, 5)  # type: ignore[index]
        paths = [
            [min(max(int(np.floor(a + beta * i + 0.5)), 0), 4) for i in range(5)] for a in np.log2([low, 0.999 * high])
        ]
        assert paths == [[BUDGETS.index(n) for n in PLANTED[model]["gpqa"]]] * 2
    assert log2(found.mu("gpqa")) == pytest.approx(np.mean(scales))
    assert log2(found.mu("aime")) == pytest.approx(2)


def counts(found: Rule, model: str, benchmark: str, draw: int) -> tuple[list[list[int]], list[int]]:
    """Counts of a cell in a draw: of every policy, and of RL."""
    base, target = found.view.base(model, benchmark), found.view.target(model, benchmark)
    draws = np.broadcast_to(base.P, (*base.P.shape[:2], found.view.draws))
    return draws[:, :, draw].astype(int).tolist(), target[:, draw].astype(int).tolist()


def errors_at(tenth: int, P: list[list[int]], R: list[int]) -> dict[int, int]:
    """Sum of errors of the best policy for every k of alpha = 2^(k/5); positions in whole tenths."""
    paths = {k: [min(max((2 * k + tenth * i + 5) // 10, 0), 4) for i in range(5)] for k in range(-10, 21)}
    return {k: min(sum(abs(p[n] - r) for n, r in zip(path, R, strict=True)) for p in P) for k, path in paths.items()}


def pooled(cells: Sequence[tuple[list[list[int]], list[int]]], questions: Sequence[int]) -> dict[float, Fraction]:
    """At every exponent the sum over cells of the best error, each as a share of its questions."""
    found = dict.fromkeys((t / 10 for t in range(13)), Fraction())
    for (P, R), n in zip(cells, questions, strict=True):
        for t in range(13):
            found[t / 10] += Fraction(min(errors_at(t, P, R).values()), n)
    return found


def scattered(seed: int) -> Cohort:
    """Two models on two math benchmarks of different sizes and one of another regime; nothing follows a law."""
    rng = np.random.default_rng(seed)
    sizes = {"math": 60, "extra": 25, "gpqa": 40}
    landscapes = {}
    for checkpoint, (benchmark, n) in product(("m-base", "m-rl", "b-base", "b-rl"), sizes.items()):
        names = (DEFAULT,) if checkpoint.endswith("rl") else tuple(POOL)
        solved = {name: np.maximum.accumulate(rng.random((5, n)) < rng.uniform(0.05, 0.4), axis=0) for name in names}
        landscapes[checkpoint, benchmark] = small_cohort.dense_landscape(solved, budgets=BUDGETS)  # type: ignore[arg-type]
    plan = study("mb").plan
    benchmarks = {name: Benchmark("nonmath" if name == "gpqa" else "math") for name in sizes}
    return Cohort(replace(plan, benchmarks={**benchmarks, "amc": Benchmark("math", "held_out")}), landscapes)


@pytest.mark.parametrize(("without", "seed", "draws"), [("", 0, 60), ("b", 1, 12)])
def test_own_exponents_are_the_pooled_optimum_in_every_draw(seed: int, without: str, draws: int) -> None:
    """Models count alike and so do benchmarks, whatever their size; each draw chooses for itself among the models that
    are not left out. Exact ties go to the exponent nearest to the regime's constant, then to the smaller.
    """
    found = Rule(bootstrap_view(scattered(seed), draws, seed), exponents="own", without=[without])
    models = [name for name in "mb" if name != without]
    sources = {"math": {"extra": 25}, "extra": {"math": 60}, "gpqa": {"gpqa": 40}, "amc": {"math": 60, "extra": 25}}
    for benchmark, sizes in sources.items():
        beta, constant = found.beta(benchmark), 1.0 if benchmark == "gpqa" else 0.6
        for draw in range(draws + 1):
            pairs = list(product(models, sizes))
            errors = pooled([counts(found, *pair, draw) for pair in pairs], [sizes[source] for _, source in pairs])
            order = {beta: (error, round(abs(beta - constant), 6), beta) for beta, error in errors.items()}
            assert beta[draw] == min(order, key=order.__getitem__)
    assert any(len(set(found.beta(benchmark))) > 1 for benchmark in sources)


def test_left_out_models_leave_the_mean_and_keep_their_offset() -> None:
    """Without b mu is 1.0, and delta .4, .8 and -.4 for m, b and c: by hand."""
    found = rule(without=["b"])
    assert log2(found.mu("math")) == pytest.approx(1.0)
    assert [log2(found.delta(m)) for m in "mbcn"] == pytest.approx([0.4, 0.8, -0.4, 0.6])
    assert text(ROW["V2-δ0"].predict(found, At("c", "math"))) == "2/4/4/8/8"
    assert text(ROW["V3"].predict(found, At("b", "math"))) == "4/4/8/16/16"
    assert text(ROW["V3"].predict(found, At("c", "gpqa"))) == "1/2/4/8/16"
    assert log2(rule(without=["m"]).delta("m")) == pytest.approx(1.4 - 1.2)


def test_nobody_left_means_no_mean() -> None:
    """mu is 0 where no model of the cohort was sampled, as documented; the offset is then the whole scale."""
    found = rule(without=["m", "b", "c"])
    assert found.mu("math").tolist() == [0]
    assert log2(found.delta("m")) == pytest.approx(1.4)


def moved(found: Cohort, model: str) -> Cohort:
    """The cohort with other data of one model in every cell, Base and RL."""
    landscapes = dict(found.landscapes)
    pool = {name: tuple(sorted(60 - n for n in curve)) for name, curve in POOL.items()}
    for benchmark in found.plan.benchmarks:
        landscapes[f"{model}-base", benchmark] = dense_landscape(pool)
        landscapes[f"{model}-rl", benchmark] = dense_landscape({DEFAULT: [55, 56, 57, 58, 59]})
    return Cohort(found.plan, landscapes)


def snapshot(found: Rule, models: str) -> list[Any]:
    """Every constant of the rule, and the prediction of every row that is made with them, for some models."""
    values: list[Any] = [found.beta(d).tolist() + found.mu(d).tolist() for d in STUDY]
    values += [np.asarray(found.delta(m)).tolist() for m in models]
    for key in ("H4", "H5", "V2-δ0", "V3", "A1", "A3", "B0", "cell-fit", "V1", "V2"):
        for model, benchmark in product(models, STUDY):
            path = ROW[key].predict(found, At(model, benchmark))
            values.append((path.policy.tolist(), path.budget.tolist()))
    return values


@pytest.mark.parametrize("exponents", ["paper", "own"])
@pytest.mark.parametrize("draws", [0, 10])
def test_left_out_models_are_really_out(exponents: Any, draws: int) -> None:
    """Other data of b moves nothing of the other models in a rule without b; with b it does. Variants that share what
    was computed before do not share that.
    """
    before, after = (bootstrap_view(c, draws, 1) if draws else sample_view(c) for c in (study(), moved(study(), "b")))
    options = BoptrOptions()
    out = [Rule(view, options, exponents, ["b"]) for view in (before, after)]
    assert snapshot(out[0], "mcn") == snapshot(out[1], "mcn")
    whole = [Rule(view, options, exponents) for view in (before, after)]
    assert snapshot(whole[0], "mcn") != snapshot(whole[1], "mcn")
    shared = whole[1].with_constants(exponents, ["b"])
    assert snapshot(shared, "mcn") == snapshot(out[1], "mcn")
    assert snapshot(shared.with_constants(exponents), "mcnb") == snapshot(whole[1], "mcnb")


def test_new_models_move_nothing() -> None:
    for exponents in ("paper", "own"):
        before, after = (rule(c, exponents=exponents) for c in (study(), moved(study(), "n")))
        assert snapshot(before, "mbc") == snapshot(after, "mbc")
        assert log2(before.delta("n")) != log2(after.delta("n"))


def lacking(*gone: tuple[str, str], short: Sequence[tuple[str, str]] = ()) -> Cohort:
    """The study without some landscapes, and with the last budget missing in others."""
    whole = study()
    landscapes = {key: part for key, part in whole.landscapes.items() if key not in gone}
    for key in short:
        points = {point: row for point, row in landscapes[key].points.items() if point[1] < 16}
        landscapes[key] = replace(landscapes[key], points=points)
    return Cohort(whole.plan, landscapes)


def code(make: Callable[..., Any], *args: Any) -> str | None:
    value = attempt(make, *args)
    return value.code if isinstance(value, Reason) else None


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (lacking(("b-rl", "math")), "no_rl"),
        (lacking(short=[("b-rl", "math")]), "no_rl"),
        (lacking(("b-base", "math"), ("b-rl", "math")), "no_base"),
        (lacking(("b-base", "math")), "no_base"),
        (lacking(short=[("b-base", "math")]), "no_base"),
    ],
)
def test_models_without_a_pair_have_no_offset_and_no_part_in_the_mean(found: Cohort, expected: str) -> None:
    """A side that is missing, wholly or at a budget: the cell says which, the offset that it cannot be calibrated, and
    the others' mean is 1.0. What needs no RL of the model is predicted wherever there is Base.
    """
    fitted = rule(found)
    assert code(fitted.cell, "b", "math") == code(fitted.smooth, "b", "math") == expected
    assert code(fitted.log_alpha, "b", "math") == code(fitted.scale, "b", "math", 0.6) == expected
    assert attempt(fitted.delta, "b") == Reason("no_calibration")
    assert log2(fitted.mu("math")) == pytest.approx(1.0)
    assert code(ROW["V3"].predict, fitted, At("b", "gpqa")) == "no_calibration"
    assert text(ROW["H5"].predict(fitted, At("b", "gpqa"))) == "1/2/4/8/16"
    assert code(ROW["V2-δ0"].predict, fitted, At("b", "math")) == (None if expected == "no_rl" else "no_base")


def test_cells_without_base_have_no_path() -> None:
    fitted = rule(lacking(("c-base", "gpqa"), ("c-rl", "gpqa")))
    assert attempt(fitted.path, "c", "gpqa", np.zeros(1)) == Reason("no_base")
    assert attempt(fitted.select, "c", "gpqa", np.zeros((5, 1), int)) == Reason("no_base")
    assert text(fitted.path("c", "math", np.zeros(1), np.ones(1))) == "1/2/4/8/16"


@pytest.mark.parametrize("side", ["m-base", "m-rl"])
def test_an_anchor_that_cannot_be_fitted_leaves_no_selector(side: str) -> None:
    """With a budget of the anchor cell missing there is no prototype: nothing is selected anywhere, and no row that
    does without the selector is lost.
    """
    fitted = rule(lacking(short=[(side, "math")]))
    assert code(fitted.prototype)
    for benchmark in STUDY:
        assert code(ROW["V3"].predict, fitted, At("b", benchmark))
        assert isinstance(ROW["V1"].predict(fitted, At("b", benchmark)), Path)
        assert isinstance(ROW["A1"].predict(fitted, At("b", benchmark)), Path)
    assert code(ROW["V3"].predict, fitted, At("b", "gpqa")) == "no_prototype", "the anchor's reason, not the cell's"
    assert code(ROW["H5"].predict, fitted, At("b", "gpqa")) == "no_calibration"
    assert log2(fitted.mu("math")) == pytest.approx(1.2)


def test_missing_cells_of_a_regime_leave_its_constants_defined() -> None:
    """Nothing on the floor was sampled with RL: the paper's constants stand, under the cohort's own exponents, too."""
    found = lacking(*((f"{m}-rl", "aime") for m in PLANTED))
    for exponents in ("paper", "own"):
        fitted = rule(found, exponents=exponents)
        assert (fitted.beta("aime")[0], fitted.mu("aime")[0]) == (0, np.log(2))
        assert text(fitted.path("b", "aime", fitted.mu("aime"))) == "2/2/2/2/2"


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_scales_that_are_no_numbers_have_a_reason(value: float) -> None:
    """In one draw of many it is enough: a row is defined in all its draws or in none."""
    many = Rule(bootstrap_view(study(), 3, 1))
    for scale in (np.full(4, value), np.array([0, 0, value, 0])):
        assert attempt(many.path, "m", "math", scale) == Reason("non_finite_alpha")


def test_reasons_are_known_codes_with_a_sentence() -> None:
    assert Reason("no_rl").code in REASONS
    with pytest.raises(ValueError, match="unknown reason 'no_such'"):
        Reason("no_such")


def test_a_cell_with_controllers_alone_is_no_cell_of_the_rule() -> None:
    """Nothing to lock and nothing to select: a reason in every row, no exponent from it, no failure."""
    searched = {"mcts_16": POOL[OTHER]}
    cells = {("m", d): (POOL if d == "math" else searched, along(POOL[OTHER], PLANTED["m"][d])) for d in STUDY}
    for exponents in ("paper", "own"):
        fitted = rule(cohort(cells, STUDY), exponents=exponents)
        for row in ROWS:
            assert code(row.predict, fitted, At("m", "gpqa"))
        assert fitted.beta("gpqa")[0] == 1.0
