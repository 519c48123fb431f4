"""Errors and their bootstrap draws against cohorts whose questions really are resampled, one draw after the other."""

from collections.abc import Iterator
from dataclasses import replace
from functools import cache, partial
from itertools import permutations, product
from math import erf, pi

import numpy as np
import pytest

from searchlens.boptr import evaluate as evaluation
from searchlens.boptr.cohort import Cohort, DenseLandscape
from searchlens.boptr.evaluate import Constants, Evaluation, Key, Score, Task, evaluate, has_expanded_pool
from searchlens.boptr.rows import ROWS, At, Blend, Curve, Prediction, Row
from searchlens.boptr.rule import Reason, Rule, attempt, defined
from searchlens.boptr.study import mismatched
from searchlens.boptr.variants import VARIANT_ROWS
from searchlens.boptr.view import bootstrap_view, sample_view
from searchlens.config.boptr import BoptrOptions
from searchlens_lab.simulate import Design, paper_design, simulate
from small_cohort import lacking, part_of_paper

ANCHOR, SMALL, LLAMA = "qwen25_7b", "qwen25_1.5b", "llama31_8b"
MODELS, BENCHMARKS = (ANCHOR, SMALL, LLAMA), ("math500", "aime", "gpqa")
DEFAULT, BUDGETS = "topp0.95_t1.0", (1, 2, 4, 8, 16)
AR = ("temp_0.3", "temp_0.7", "topp0.8_t0.9", "topk20_t0.7", DEFAULT)
QUESTIONS, DRAWS = 30, 20
Cell = tuple[str, str]
OPTIONS = BoptrOptions(draws=DRAWS, reselect=DRAWS, mu_without=(SMALL,))
PAPER, OWN, WITHOUT = Constants(), Constants("own"), Constants("paper", "without")
ROW = {row.key: row for row in (*ROWS, *VARIANT_ROWS)}
RULES = tuple(ROW[key] for key in ("H5", "V3", "A1", "A3", "B0", "cell-fit"))
TASKS = (Task(PAPER, tuple(ROW.values()), BENCHMARKS), Task(OWN, RULES, BENCHMARKS), Task(WITHOUT, RULES, BENCHMARKS))


def design() -> Design:
    """Three pairs, three regimes, a search policy on the anchor's math; Llama without GPQA."""
    searches = {"math500": {"mcts16_temp_0.7": paper_design().searches["math500"]["mcts16_temp_0.7"]}}
    missing = frozenset({(LLAMA, "gpqa")})
    return part_of_paper(MODELS, BENCHMARKS, AR, QUESTIONS, searches=searches, missing=missing)


@cache
def cohort() -> Cohort:
    """A policy of the anchor is not sampled on the smaller model's AIME, so that copied paths lose budgets there."""
    whole = simulate(design(), 4)
    return lacking(whole, [(whole.plan.models[SMALL].base, "aime")], ["temp_0.7"])


@cache
def scores() -> Evaluation:
    return evaluate(cohort(), OPTIONS, TASKS)


# ---- a draw of the bootstrap as a study of its own


@cache
def resampled(draw: int) -> Cohort:
    """The cohort in which every question occurs as often as the draw says; draw 0 is the sample."""
    weights = bootstrap_view(cohort(), DRAWS, OPTIONS.seed).weights

    def again(landscape: DenseLandscape, benchmark: str) -> DenseLandscape:
        chosen = [q for q, times in enumerate(weights[benchmark][:, draw]) for _ in range(int(times))]
        credit = {metric: part[:, chosen] for metric, part in landscape.credit.items()}
        return replace(landscape, questions=np.arange(len(chosen), dtype=np.uint32), credit=credit)

    return Cohort(cohort().plan, {key: again(found, key[1]) for key, found in cohort().landscapes.items()})


@cache
def rule(draw: int, constants: Constants) -> Rule:
    without = (SMALL,) if constants == WITHOUT else ()
    return Rule(sample_view(resampled(draw)), OPTIONS, constants.exponents, without)


def predicted(draw: int, key: Key) -> Prediction:
    return ROW[key.row].predict(rule(draw, key.constants), At(key.model, key.benchmark, key.pool))


Steps = list[list[tuple[str, int] | None]]
"""Every path of a prediction: policy and budget at each b, or nothing where it is left out."""


def named(fitted: Rule, cell: Cell, prediction: Prediction) -> Steps | Curve:
    """Paths by the names of their points; a curve as it is."""
    base = fitted.view.base(*cell)
    if isinstance(prediction, Curve) and not isinstance(prediction, Blend):
        return prediction
    return [
        [
            None if path.skip is not None and path.skip[b, 0] else (base.policies[path.policy[b, 0]], BUDGETS[n])
            for b, n in enumerate(path.budget[:, 0])
        ]
        for path in (prediction.paths if isinstance(prediction, Blend) else [prediction])
    ]


def gaps(there: Cohort, cell: Cell, what: Steps | Curve) -> list[float]:
    """Predicted minus RL at each budget that counts, in percentage points, question by question."""
    base, rl = there.base(*cell), there.rl(*cell)
    found = []
    for i, b in enumerate(BUDGETS):
        target = sum(rl.credit["P"][rl.points[DEFAULT, b]].tolist())
        if isinstance(what, Curve):
            found.append(100 * (float(what.counts[i, 0]) - target) / QUESTIONS)
            continue
        points = [path[i] for path in what]
        hits = [sum(base.credit["P"][base.points[point]].tolist()) for point in points if point is not None]
        if hits:
            found.append(100 * (sum(hits) / len(hits) - target) / QUESTIONS)
    return found


def error(there: Cohort, cell: Cell, what: Steps | Curve) -> float:
    distances = [abs(gap) for gap in gaps(there, cell, what)]
    return sum(distances) / len(distances)


def cell_of(key: Key) -> Cell:
    return key.model, key.benchmark


@cache
def chosen(draw: int, key: Key) -> Steps | Curve:
    """What the draw predicts by itself."""
    return named(rule(draw, key.constants), cell_of(key), predicted(draw, key))


def followed(draw: int, key: Key) -> Steps | Curve:
    """What the sample's prediction is in a draw: its path stays, a curve follows the data."""
    path = chosen(0, key)
    return chosen(draw, key) if isinstance(path, Curve) else path


def numbers(*rows: str) -> Iterator[tuple[Key, Score]]:
    for key, score in scores().scores.items():
        if not rows or key.row in rows:
            yield key, score


# ---- what is there


def test_full_pool_is_asked_where_there_is_one() -> None:
    assert has_expanded_pool(cohort(), ANCHOR, "math500")
    assert not has_expanded_pool(cohort(), SMALL, "math500") and not has_expanded_pool(cohort(), ANCHOR, "gpqa")
    full = {key: reason.code for key, reason in scores().reasons.items() if key.pool == "full"}
    for row, cell in product(("H6", "H7", "V1", "ORACLE-1D"), product(MODELS, BENCHMARKS)):
        code = full.get(Key(PAPER, row, "full", *cell))
        expected = {(ANCHOR, "math500"): None, (LLAMA, "gpqa"): "no_base"}.get(cell, "no_expanded_pool")
        assert code == expected, (row, cell)
    assert Key(PAPER, "H3", "full", SMALL, "gpqa") not in full
    assert {full.get(Key(PAPER, "V2", "full", m, "gpqa")) for m in (ANCHOR, SMALL)} == {"no_expanded_pool"}
    assert full.get(Key(PAPER, "V2", "full", ANCHOR, "math500")) is None


# ---- the sample's path in every draw


def test_fixed_draws_follow_the_samples_path_question_by_question() -> None:
    for key, score in numbers():
        expected = [error(resampled(draw), cell_of(key), followed(draw, key)) for draw in range(DRAWS + 1)]
        np.testing.assert_allclose(score.plain, expected, atol=2e-4, err_msg=str(key))
        assert score.error == pytest.approx(expected[0], abs=2e-4)


# ---- paths chosen again


def test_reselected_draws_are_studies_of_their_own() -> None:
    moved = 0
    for key, score in numbers():
        if any(isinstance(attempt(predicted, draw, key), Reason) for draw in range(DRAWS + 1)):
            continue
        expected = [error(resampled(draw), cell_of(key), chosen(draw, key)) for draw in range(DRAWS + 1)]
        np.testing.assert_allclose(score.reselected, expected, atol=2e-4, err_msg=str(key))
        moved += not np.allclose(score.reselected, score.plain, atol=2e-4)
    assert moved > len(scores().scores) / 2


@pytest.mark.parametrize("chunk", [1, 7])
@pytest.mark.long
def test_chunks_of_draws_do_not_show(chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evaluation, "CHUNK", chunk)
    some = tuple(ROW[key] for key in ("H3", "V2", "V3", "H7", "mean RL", "v7"))
    task = Task(OWN, some, BENCHMARKS)
    found = evaluate(cohort(), OPTIONS, [task])
    monkeypatch.undo()
    whole = evaluate(cohort(), OPTIONS, [task])
    assert found.scores.keys() == whole.scores.keys()
    for key, score in found.scores.items():
        assert score.error == whole.scores[key].error
        for name in ("plain", "reselected", "corrected"):
            np.testing.assert_allclose(getattr(score, name), getattr(whole.scores[key], name), rtol=1e-5, atol=1e-5)


def test_fewer_draws_are_chosen_again_than_drawn() -> None:
    task = Task(PAPER, (ROW["V3"], ROW["mean RL"]), BENCHMARKS)
    some = evaluate(cohort(), replace(OPTIONS, reselect=8), [task])
    none = evaluate(cohort(), replace(OPTIONS, reselect=0), [task])
    skipped = evaluate(cohort(), OPTIONS, [replace(task, reselect=False)])
    for key, score in some.scores.items():
        whole = scores().scores[key]
        np.testing.assert_allclose(score.reselected, whole.reselected[:9], atol=1e-5)
        for other in (score, none.scores[key], skipped.scores[key]):
            np.testing.assert_allclose(other.plain, whole.plain, atol=1e-5)
        assert none.scores[key].reselected is None and skipped.scores[key].reselected is None


def test_number_that_a_draw_leaves_undefined_has_no_reselected_draws() -> None:
    """A copied path whose policy is missing in the cell in some draw, but not in the sample."""
    key = Key(PAPER, "V2", "ar", SMALL, "math500")
    fits = [rule(draw, PAPER).smooth(ANCHOR, "math500") for draw in range(DRAWS + 1)]
    policies = [AR[fit.policy[0]] for fit in fits]
    other = next(name for name in policies if name != policies[0])
    task = Task(PAPER, (ROW["V2"],), ("math500",))
    base = cohort().plan.models[SMALL].base
    found = evaluate(lacking(cohort(), [(base, "math500")], [other]), OPTIONS, [task]).scores[key]
    whole = scores().scores[key]
    assert found.reselected is None and whole.reselected is not None
    np.testing.assert_allclose(found.plain, whole.plain, atol=1e-5)
    np.testing.assert_allclose(found.corrected, corrected(key), atol=2e-4)


# ---- corrected errors


def corrected(key: Key) -> list[float]:
    """2 |d| - E|d + noise| at each budget, in every draw; noise is normal, its error that of the signed gaps."""
    signed = np.array([gaps(resampled(draw), cell_of(key), followed(draw, key)) for draw in range(DRAWS + 1)])
    spread = signed[1:].std(axis=0, ddof=1)
    return [unfolded(row, spread) for row in signed]


def test_corrected_error_without_choosing_again_is_that_of_absolute_values() -> None:
    for key, score in evaluate(cohort(), replace(OPTIONS, reselect=0), TASKS).scores.items():
        np.testing.assert_allclose(score.corrected, corrected(key), atol=5e-4, err_msg=str(key))


def unfolded(signed: np.ndarray, spread: np.ndarray) -> float:
    """2 |d| - E|d + noise|, mean over the budgets."""
    size = np.abs(signed)
    with np.errstate(invalid="ignore", divide="ignore"):
        folds = spread * (2 / pi) ** 0.5 * np.exp(-(size**2) / (2 * spread**2)) + size * np.vectorize(erf)(
            size / (spread * 2**0.5)
        )
    return float(np.mean(2 * size - np.where(spread > 0, folds, size)))


def test_corrected_error_adds_what_choosing_hid() -> None:
    """The first level of the bias twice, less the second; noise is each draw's error around that of its own path."""
    tried, nested = 0, evaluation._nested(cohort(), OPTIONS, [Task(PAPER, tuple(ROW.values()), BENCHMARKS)])
    for key, score in numbers("H6", "H7", "V3", "V2", "cell-fit", "H2"):
        draws = [attempt(predicted, draw, key) for draw in range(1, DRAWS + 1)]
        if key not in nested or any(isinstance(found, Reason) for found in draws):
            continue
        cell, here = cell_of(key), followed(0, key)
        paths = [chosen(draw, key) for draw in range(1, DRAWS + 1)]
        inside = [gaps(resampled(draw), cell, path) for draw, path in enumerate(paths, start=1)]
        outside = [gaps(cohort(), cell, path) for path in paths]
        if any(len(gap) != 5 for gap in (*inside, *outside, gaps(cohort(), cell, here))):
            continue
        shift = np.mean([np.abs(o).mean() - np.abs(i).mean() for i, o in zip(inside, outside, strict=True)])
        assert score.corrected[0] == pytest.approx(score.error + 2 * shift - nested[key], abs=1e-3), key
        spread = np.std([gaps(resampled(draw), cell, here) for draw in range(1, DRAWS + 1)], axis=0, ddof=1)
        pairs = zip(inside, outside, strict=True)
        noise = np.array([unfolded(np.array(i), spread) - unfolded(np.array(o), spread) for i, o in pairs])
        np.testing.assert_allclose(
            score.corrected[1:] - score.corrected[0], noise - noise.mean(), atol=2e-3, err_msg=str(key)
        )
        tried += 1
    assert tried > 30


def test_curves_choose_nothing() -> None:
    for key, score in numbers("mean RL", "Base+gain"):
        np.testing.assert_allclose(score.corrected, corrected(key), atol=5e-4)


# ---- the mismatched null


def exchanged(given: Cohort, models: tuple[str, ...], order: tuple[str, ...]) -> Cohort:
    """Base of the models in turn, paired with the RL of ``order``."""
    landscapes = dict(given.landscapes)
    for (model, other), benchmark in product(zip(models, order, strict=True), given.plan.benchmarks):
        landscapes[f"{model}-rl", benchmark] = given.landscapes[f"{other}-rl", benchmark]
    return Cohort(given.plan, landscapes)


def mean_error(there: Cohort, row: Row, models: tuple[str, ...], constants: Constants) -> float:
    """Over the models' cells, with a rule fitted on this cohort."""
    fitted = Rule(sample_view(there), OPTIONS, constants.exponents)
    cells = product(models, there.plan.benchmarks)
    found = defined((cell, partial(row.predict, fitted, At(*cell))) for cell in cells)
    errors = [error(there, cell, named(fitted, cell, given)) for cell, given in found.items()]
    return sum(errors) / len(errors)


def everywhere() -> Cohort:
    """The benchmarks on which all models were sampled."""
    plan = cohort().plan
    kept = {name: plan.benchmarks[name] for name in ("math500", "aime")}
    landscapes = {key: found for key, found in cohort().landscapes.items() if key[1] in kept}
    return Cohort(replace(plan, benchmarks=kept), landscapes)


@pytest.mark.parametrize("constants", [PAPER, OWN], ids=["paper", "own"])
@pytest.mark.parametrize("kept", [MODELS, (ANCHOR, SMALL)], ids=["all-models", "a-cell-missing"])
def test_null_is_the_study_of_every_re_pairing(constants: Constants, kept: tuple[str, ...]) -> None:
    """All orders of the RL sides, each with a rule of its own; a model with a cell missing keeps its RL and counts
    in the rule alone."""
    given = everywhere() if kept == MODELS else cohort()
    rows = [ROW[key] for key in ("H2", "H5", "H7", "V3", "A1", "B0", "cell-fit", "mean RL", "Base+gain", "v7")]
    partners, means = mismatched(given, OPTIONS, Task(constants, tuple(rows), tuple(given.plan.benchmarks)))
    assert partners == kept
    assert list(means) == [row.key for row in rows]
    for row in rows:
        expected = [mean_error(exchanged(given, kept, order), row, kept, constants) for order in permutations(kept)]
        np.testing.assert_allclose(means[row.key], expected, atol=2e-4, err_msg=row.key)
        # The mean RL curve knows nothing of Base: whom it belongs to makes no difference.
        assert (len(set(np.round(expected, 6))) > 1) == (row.key != "mean RL")
