"""Means of errors over cells and contrasts of rows, on errors that are written down."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from scipy import stats

from planted_landscapes import BUDGETS, DEFAULT, along, cohort
from searchlens.boptr.cohort import Benchmark, CohortPlan, Model
from searchlens.boptr.evaluate import Constants, Evaluation, Key, Score, Task, evaluate
from searchlens.boptr.rows import ROWS, Curve, Row
from searchlens.boptr.rule import Reason
from searchlens.boptr.study import contrasts, decided
from searchlens.boptr.transfer import Column, Scope, average, errors_frame, grid, means_frame, scopes
from searchlens.config.boptr import BoptrOptions

PAPER, OWN = Constants(), Constants("own")
ROW = {row.key: row for row in ROWS}
V1, V2, V3, RIVAL = (ROW[key] for key in ("V1", "V2", "V3", "mean RL"))
CURVE = Curve(np.zeros((2, 1), np.float32))
DRAWS = np.array([0.0, -1, 1, -2, 2])
"""What the bootstrap adds to every error; the sample first."""
CellErrors = Mapping[tuple[str, str], float | str]
"""(model, benchmark) to an error, or to the reason why there is none."""


def score(error: float, scale: float = 1.0, again: float | None = 0.5, fixed: float = 0.25, draws: int = 4) -> Score:
    """An error whose draws spread by ``scale``; chosen again it is larger by ``again``, corrected by ``fixed``."""
    found = (error + scale * DRAWS).astype(np.float32)
    chosen = None if again is None else found + np.float32(again)
    corrected = (found + np.float32(fixed))[: draws + 1]
    return Score(plain=found, corrected=corrected, questions=60, prediction=CURVE, error=error, reselected=chosen)


def scores(rows: Mapping[str | tuple[str, str], CellErrors], constants: Constants = PAPER) -> Evaluation:
    """Errors by the key of a row, or by key and pool."""
    defined, reasons = {}, {}
    for name, cells in rows.items():
        row, pool = (name, "ar") if isinstance(name, str) else name
        for cell, value in cells.items():
            key = Key(constants, row, "full" if pool == "full" else "ar", *cell)
            if isinstance(value, str):
                reasons[key] = Reason(value)
            else:
                defined[key] = score(value)
    return Evaluation(defined, reasons, {})


def mean_rows(found: Evaluation, rows: tuple[Row, ...], *columns: Column, apart: tuple[str, ...] = ()) -> Any:
    """(row, pool, column) to its row."""
    frame = means_frame(found, [Scope("table", rows, columns, apart)], [PAPER], 0.5)
    assert frame["scope"].unique().to_list() == ["table"]
    return {(row["rule"], row["pool"], row["column"]): row for row in frame.iter_rows(named=True)}


A_HALF: CellErrors = {("a", "x"): 1.0, ("a", "y"): 3.0, ("b", "x"): 8.0, ("b", "y"): "no_rl"}
CELLS = grid(["a", "b"], ["x", "y"])


def test_macro_is_over_models_and_micro_over_cells() -> None:
    """Model a has 1 and 3, model b 8 alone: 5 and 4; what is undefined counts in ``of`` only."""
    found = mean_rows(scores({"V3": A_HALF}), (V3,), Column("macro", CELLS, "macro"), Column("micro", CELLS))
    macro, micro = found["V3", "ar", "macro"], found["V3", "ar", "micro"]
    assert (macro["error"], micro["error"]) == pytest.approx(((2 + 8) / 2, (1 + 3 + 8) / 3))
    for row in (macro, micro):
        assert (row["cells"], row["of"], row["reason"]) == (3, 4, None)


def test_intervals_are_those_of_the_mean_draw_by_draw() -> None:
    """Draws are shared, so they are averaged before their quantiles are taken: spreads of 1 and 3 make 2, not less."""
    keys = {("a", "x"): 10.0, ("b", "x"): 20.0}
    spread = {("a", "x"): 1.0, ("b", "x"): 3.0}
    found = Evaluation({Key(PAPER, "V3", "ar", *c): score(e, spread[c]) for c, e in keys.items()}, {}, {})
    row = mean_rows(found, (V3,), Column("all", tuple(keys)))["V3", "ar", "all"]
    lo, hi = np.quantile([15 - 4, 15 - 2, 15 + 2, 15 + 4], [0.25, 0.75])
    assert (row["error"], row["lo"], row["hi"]) == pytest.approx((15, lo, hi))
    assert (row["lo_reselected"], row["hi_reselected"]) == pytest.approx((lo + 0.5, hi + 0.5))
    assert (row["corrected"], row["lo_corrected"], row["hi_corrected"]) == pytest.approx((15.25, 15.25 - 3, 15.25 + 3))


def test_macro_weighs_the_draws_as_it_weighs_the_cells() -> None:
    found = average([score(1, 4.0), score(3, 0.0), score(8, 2.0)], [("a", "x"), ("a", "y"), ("b", "x")], "macro")
    np.testing.assert_allclose(found.plain, 5 + (4 / 4 + 2 / 2) * DRAWS)
    assert found.error == pytest.approx(5)


def test_measures_that_a_cell_lacks_are_lacking_in_the_mean() -> None:
    """No mean of different numbers of cells under one error; corrected draws go as far as the shortest."""
    parts = [score(1.0), score(3.0, again=None), score(5.0, draws=2)]
    found = average(parts, [("a", "x"), ("b", "x"), ("c", "x")], "micro")
    assert found.reselected is None and found.error == 3
    np.testing.assert_allclose(found.corrected, 3.25 + DRAWS[:3])
    keys = {Key(PAPER, "V3", "ar", name, "x"): part for name, part in zip("abc", parts, strict=True)}
    row = mean_rows(Evaluation(keys, {}, {}), (V3,), Column("all", grid("abc", ["x"])))["V3", "ar", "all"]
    assert (row["lo_reselected"], row["hi_reselected"]) == (None, None)
    assert row["lo"] is not None and row["lo_corrected"] is not None


def test_matched_columns_keep_the_cells_of_every_row() -> None:
    """V2 is undefined in b/y, V3 in a/y: both are averaged over a/x and b/x, and only so can they be compared."""
    v3 = {("a", "x"): 1.0, ("a", "y"): "no_rl", ("b", "x"): 8.0, ("b", "y"): 90.0}
    v2 = {("a", "x"): 2.0, ("a", "y"): 70.0, ("b", "x"): 4.0, ("b", "y"): "policy_missing"}
    columns = (Column("micro", CELLS), Column("matched", CELLS, matched=True))
    found = mean_rows(scores({"V3": v3, "V2": v2}), (V2, V3), *columns)
    assert [found[row, "ar", "matched"]["error"] for row in ("V2", "V3")] == pytest.approx([3, 4.5])
    assert [found[row, "ar", "micro"]["error"] for row in ("V2", "V3")] == pytest.approx([76 / 3, 33])
    for row in ("V2", "V3"):
        assert (found[row, "ar", "matched"]["cells"], found[row, "ar", "matched"]["of"]) == (2, 4)


def test_rows_apart_do_not_shrink_the_matched_cells() -> None:
    rival = {("a", "x"): 6.0, ("a", "y"): "no_other_models", ("b", "x"): "no_other_models", ("b", "y"): 8.0}
    whole = dict.fromkeys(CELLS, 2.0)
    column = Column("matched", CELLS, matched=True)
    found = mean_rows(scores({"V3": whole, "mean RL": rival}), (V3, RIVAL), column, apart=("mean RL",))
    assert (found["V3", "ar", "matched"]["error"], found["V3", "ar", "matched"]["cells"]) == (2, 4)
    assert (found["mean RL", "ar", "matched"]["error"], found["mean RL", "ar", "matched"]["cells"]) == (7, 2)
    deciding = mean_rows(scores({"V3": whole, "mean RL": rival}), (V3, RIVAL), column)
    assert deciding["V3", "ar", "matched"]["cells"] == 2


def test_means_of_nothing_have_a_reason() -> None:
    v3 = {("a", "x"): 1.0, ("b", "x"): "no_calibration"}
    v2 = {("a", "x"): "policy_missing", ("b", "x"): 2.0}
    cells = grid("ab", ["x"])
    columns = (Column("b", (("b", "x"),)), Column("matched", cells, matched=True), Column("none", ()))
    found = mean_rows(scores({"V3": v3, "V2": v2}), (V2, V3), *columns)
    b, matched, none = (found["V3", "ar", name] for name in ("b", "matched", "none"))
    assert (b["error"], b["cells"], b["of"], b["reason"]) == (None, 0, 1, "no_calibration")
    assert (matched["error"], matched["cells"], matched["of"], matched["reason"]) == (None, 0, 2, "no_matched_cells")
    assert (none["of"], none["reason"]) == (0, "no_matched_cells")


def test_pools_are_averaged_apart() -> None:
    """Their own rows, their own matched cells; a row without a full pool has no full mean."""
    ar, full = {("a", "x"): 1.0, ("b", "x"): 3.0}, {("a", "x"): 0.5, ("b", "x"): "no_expanded_pool"}
    columns = (Column("all", grid("ab", ["x"])), Column("matched", grid("ab", ["x"]), matched=True))
    found = mean_rows(scores({"V1": ar, ("V1", "full"): full, "V3": ar}), (V1, V3), *columns)
    assert found.keys() == {
        (t, p, c) for t, p in (("V1", "ar"), ("V1", "full"), ("V3", "ar")) for c in ("all", "matched")
    }
    assert [found["V1", "ar", c]["error"] for c in ("all", "matched")] == [2, 2]
    assert [found["V1", "full", c]["error"] for c in ("all", "matched")] == [0.5, 0.5]
    assert found["V1", "full", "matched"]["cells"] == 1


def test_variants_are_averaged_apart() -> None:
    paper, own = scores({"V3": {("a", "x"): 1.0}}), scores({"V3": {("a", "x"): 9.0}}, OWN)
    both = Evaluation({**paper.scores, **own.scores}, {}, {})
    frame = means_frame(both, [Scope("table", (V3,), (Column("all", (("a", "x"),)),))], [PAPER, OWN], 0.95)
    assert dict(frame.select("exponents", "error").iter_rows()) == {"paper": 1, "own": 9}


BENCHMARKS = {
    "math": Benchmark("math"),
    "floor": Benchmark("floor"),
    "non": Benchmark("nonmath"),
    "amc": Benchmark("math", "held_out"),
    "tiny": Benchmark("nonmath", "held_out"),
    "train": Benchmark("math", "rltrain"),
    "stem": Benchmark("nonmath", "descriptive"),
}
GROUPS = {"a": "upper", "b": "upper", "c": "lower", "n": "new"}
PLAN = CohortPlan("a", "math", {m: Model(f"{m}-base", f"{m}-rl", g) for m, g in GROUPS.items()}, BENCHMARKS)  # type: ignore[arg-type]
ERRORS = {
    "a": {"math": 1.0, "floor": 2.0, "non": 6.0, "amc": 10.0, "tiny": 20.0},
    "b": {"math": 4.0, "floor": 8.0, "amc": 30.0},
    "c": {"math": 9.0, "floor": 15.0, "non": 30.0, "tiny": 70.0},
    "n": {"math": 400.0, "floor": 500.0, "non": 600.0, "amc": 700.0, "tiny": 800.0},
}


def everywhere() -> CellErrors:
    """The errors above, and a reason in every other cell."""
    places = [(m, d) for m in PLAN.models for d in PLAN.with_role("fitted", "held_out")]
    return {(m, d): ERRORS[m].get(d, "no_rl") for m, d in places}


def table(name: str, row: str = "V3") -> dict[str, float | None]:
    """Column to error, in one row of a table of the study."""
    frame = means_frame(scores({row: everywhere()}), scopes(PLAN), [PAPER], 0.95)
    return dict(frame.filter(scope=name, rule=row, pool="ar").select("column", "error").iter_rows())


def test_vertical_means_by_hand() -> None:
    """Model means over fitted benchmarks; upper and lower means are over models; new models are in none of them."""
    found = table("vertical")
    a, b, c = (1 + 2 + 6) / 3, (4 + 8) / 2, (9 + 15 + 30) / 3
    expected = {"a": a, "b": b, "upper mean": (a + b) / 2, "c": c, "lower mean": c, "macro": (a + b + c) / 3}
    expected["micro"] = (1 + 2 + 6 + 4 + 8 + 9 + 15 + 30) / 8
    assert {name: found[name] for name in expected} == pytest.approx(expected)
    assert found["matched macro"] is None and "n" not in found


def test_horizontal_means_by_hand() -> None:
    assert table("horizontal/a", "H5") == pytest.approx(
        {"math": 1, "floor": 2, "non": 6, "mean": 3, "matched mean": None, "amc": 10, "tiny": 20, "held-out mean": 15}
    )
    assert table("horizontal/b", "H5")["mean"] == pytest.approx(6)
    assert table("horizontal/n", "H5")["held-out mean"] == pytest.approx(750)


def test_held_out_means_by_hand() -> None:
    expected = {"amc": 20, "tiny": 45, "a": 15, "b": 30, "c": 70, "all cells": (10 + 20 + 30 + 70) / 4}
    assert table("held out") == pytest.approx(expected)


def test_regime_means_by_hand() -> None:
    for name, row in (("ablation", "A1"), ("variants", "v5")):
        expected = {"math": 14 / 3, "nonmath": 18, "floor": 25 / 3, "all cells": 75 / 8}
        assert table(name, row) == pytest.approx(expected)


def test_new_models_have_their_own_means() -> None:
    assert table("new models") == pytest.approx({"n": 500})


def contrast(
    rows: Mapping[str | tuple[str, str], CellErrors], scope: str = "cohort"
) -> dict[tuple[str, str], dict[str, Any]]:
    frame = decided(contrasts(scores(rows), PLAN, PAPER, BoptrOptions(draws=50), QUESTIONS), 0.95).filter(scope=scope)
    return {(row["first"], row["second"]): row for row in frame.iter_rows(named=True)}


QUESTIONS = {"math": 500, "floor": 60, "non": 200, "amc": 40, "tiny": 100}
SOME: CellErrors = {
    ("a", "math"): 3.0,
    ("a", "floor"): 6.0,
    ("b", "math"): 5.0,
    ("b", "non"): 99.0,
    ("c", "math"): "no_rl",
    ("a", "amc"): 99.0,
    ("n", "math"): 99.0,
}
"""Off V3's errors by 2 and 4 in model a, by 1 in model b, and in cells that do not count."""


def test_contrasts_are_on_common_cells_alone() -> None:
    """Mean over models of each one's mean: 3 and 1. Cells of one row alone, held-out and new ones are left out."""
    row = contrast({"V3": everywhere(), "V1": SOME})["V1", "V3"]
    assert row["difference"] == pytest.approx((3 + 1) / 2)
    assert (row["models"], row["cells"], row["differing"], row["reason"]) == (2, 3, 3, None)
    assert (row["lo"], row["hi"]) == pytest.approx((2, 2))
    assert row["verdict"] == "second lower"
    assert row["p"] == pytest.approx(2 / 4)
    assert row["p_both"] == pytest.approx(stats.ttest_1samp([3, 1], 0).pvalue)
    assert row["questions"] == 560, "of math and floor, each once"


def test_copied_path_is_compared_off_the_anchor() -> None:
    """On the anchor it is the cell's own fit, which no rule can beat."""
    row = contrast({"V3": everywhere(), "V2": SOME})["V2", "V3"]
    assert (row["difference"], row["models"], row["cells"]) == (pytest.approx(1), 1, 1)


def test_verdict_is_that_of_the_corrected_errors() -> None:
    """A row that looks better for having chosen on its questions is not called better for that."""
    cells = [(model, "math") for model in "abc"]
    looks = {Key(PAPER, "V1", "ar", *cell): score(4.0, fixed=3.0) for cell in cells}
    other = {Key(PAPER, "V3", "ar", *cell): score(5.0, fixed=0.0) for cell in cells}
    frame = contrasts(Evaluation({**looks, **other}, {}, {}), PLAN, PAPER, BoptrOptions(draws=50), QUESTIONS)
    (row,) = frame.filter(scope="cohort", first="V1").iter_rows(named=True)
    assert (row["difference"], row["corrected"], row["verdict"]) == (
        pytest.approx(-1),
        pytest.approx(2),
        "second lower",
    )
    assert (row["lo_corrected"], row["hi_corrected"]) == pytest.approx((2, 2))
    assert (row["lo_models"], row["hi_models"]) == pytest.approx((2, 2))


def test_contrasts_on_the_anchor_are_of_its_cells() -> None:
    """No other model; one model has no test over models."""
    h5, h1 = everywhere(), {cell: value + 1.0 for cell, value in everywhere().items() if isinstance(value, float)}
    row = contrast({"H5": h5, "H1": h1}, "anchor")["H5", "H1"]
    assert row["difference"] == pytest.approx(-1)
    assert (row["models"], row["cells"], row["verdict"]) == (1, 3, "first lower")
    assert (row["p"], row["p_holm"], row["lo_models"]) == (None, None, None)
    assert (row["p_both"], row["p_both_holm"], row["verdict_models"]) == (None, None, None)


def test_verdict_over_models_is_its_own() -> None:
    """Three models that differ by 1 with little spread show it, after Holm; one against two others does not."""

    def verdicts(gaps: tuple[float, float, float]) -> tuple[object, ...]:
        other = {(model, "math"): 5.0 + gap for model, gap in zip("abc", gaps, strict=True)}
        row = contrast({"V3": dict.fromkeys(other, 5.0), "V1": other})["V1", "V3"]
        assert row["p_both_holm"] == pytest.approx(stats.ttest_1samp(gaps, 0).pvalue, rel=1e-4), "the only comparison"
        return row["verdict"], row["verdict_models"]

    assert verdicts((1.0, 1.1, 0.9)) == ("second lower", "second lower")
    assert verdicts((-1.0, -1.1, -0.9)) == ("first lower", "first lower")
    assert verdicts((3.0, -0.4, 0.1)) == ("second lower", "not shown")


def test_planned_contrasts_meet_the_best_rival() -> None:
    """The rival with the lowest mean error, not the first of the list; six comparisons, whatever is known."""
    v3 = everywhere()
    rivals = {name: dict.fromkeys(v3, error) for name, error in (("mean RL", 3.0), ("low temp", 2.0))}
    found = contrast({"V3": v3, **rivals}, "planned")
    assert set(found) == {
        ("V3", "B0"),
        ("V3", "V2-δ0"),
        ("V3", "V2"),
        ("V3", "low temp"),
        ("V5b", "V2-δ0"),
        ("V5b", "low temp"),
    }
    assert found["V3", "low temp"]["cells"] > 0
    assert found["V5b", "low temp"]["reason"] == "no_matched_cells"


def test_equal_rows_and_rows_apart_are_told() -> None:
    """The same errors differ nowhere; rows without a common cell have a reason and no number."""
    v3 = everywhere()
    found = contrast({"V3": v3, "V1": v3, "V2": {("c", "tiny"): 1.0}})
    same, apart, absent = (found[first, "V3"] for first in ("V1", "V2", "B0"))
    assert (same["difference"], same["differing"], same["verdict"], same["p"]) == (0, 0, "not distinguishable", 1)
    for row in (apart, absent):
        assert (row["difference"], row["cells"], row["verdict"], row["reason"]) == (None, 0, None, "no_matched_cells")


def test_other_pools_are_not_contrasted() -> None:
    v3 = everywhere()
    assert contrast({"V3": v3, ("V1", "full"): v3})["V1", "V3"]["reason"] == "no_matched_cells"


POOL = {DEFAULT: (2, 9, 17, 31, 40), "topp0.9_t0.7": (11, 20, 29, 38, 47), "temp_0.3": (23, 26, 28, 30, 33)}


def test_errors_tell_their_path_and_scale() -> None:
    """RL is one policy's curve at 2/4/8/8/16, with the second budget off by 3 of 60 questions: 1 point on average."""
    curve = along(POOL["topp0.9_t0.7"], (2, 4, 8, 8, 16))
    planted = [count + 3 * (i == 1) for i, count in enumerate(curve)]
    study = cohort({("m", "math"): (POOL, planted), ("k", "math"): (POOL, None)}, {"math": Benchmark("math")})
    rows = {key: ROW[key] for key in ("V3", "H1", "H6", "mean RL")}
    found = evaluate(study, BoptrOptions(draws=40, reselect=0), [Task(PAPER, tuple(rows.values()), ("math",))])
    frame = errors_frame(found, study.plan, rows, 0.95)
    records = {(r["rule"], r["pool"], r["model"]): r for r in frame.iter_rows(named=True)}
    assert records.keys() == {
        (row.key, pool, model) for row in rows.values() for pool in row.pools for model in ("m", "k")
    }
    row = records["V3", "ar", "m"]
    assert (row["policy"], row["path"], row["beta"]) == ("topp0.9_t0.7", "2/4/8/8/16", 0.6)
    assert row["error"] == pytest.approx(1) and row["lo"] <= 1 <= row["hi"] and row["lo_reselected"] is None
    assert (row["regime"], row["role"], row["group"], row["exponents"], row["mu"]) == (
        "math",
        "fitted",
        "upper",
        "paper",
        "cohort",
    )
    # log2 alpha + 0.6 log2 b rounds to 1, 2, 3, 3 and to 4 or more.
    low, high = max(0.5, 1.5 - 0.6, 2.5 - 1.2, 2.5 - 1.8, 3.5 - 2.4), min(1.5, 2.5 - 0.6, 3.5 - 1.2, 3.5 - 1.8)
    assert (row["alpha_lo"], row["alpha_hi"]) == pytest.approx((2**low, 2**high))
    assert row["alpha_lo"] <= row["alpha"] < row["alpha_hi"]
    assert row["boundary"] == pytest.approx(min(np.log2(row["alpha"]) - low, high - np.log2(row["alpha"])))
    assert len(records["H6", "ar", "m"]["policy"].split()) == len(BUDGETS)
    assert records["H6", "full", "m"]["reason"] == "no_expanded_pool"
    assert records["mean RL", "ar", "m"]["reason"] == "no_other_models"
    assert (records["H1", "ar", "m"]["alpha"], records["H1", "ar", "m"]["path"]) == (None, "1/2/4/8/16")
    for pool in ("ar", "full"):
        assert records["H6", pool, "k"]["reason"] == "no_rl" and records["H6", pool, "k"]["error"] is None
