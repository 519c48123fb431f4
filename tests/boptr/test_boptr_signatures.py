"""The four same-policy signatures on cells whose answer is known."""

import numpy as np
import polars as pl
import pytest

from searchlens.boptr.cohort import Benchmark, DenseLandscape, Model
from searchlens.boptr.metrics import PATTERNS, signature_table, signatures
from searchlens.boptr.view import bootstrap_view
from small_cohort import DEFAULT, cohort, dense_landscape, hits, views

N = 100


def one(counts: tuple[int, int], q: int | None = None, **extra: object) -> DenseLandscape:
    """Counts of questions that the default policy solves at budgets 1 and 2, with ``q`` of them by vote at 2."""
    P = [hits(count, N) for count in counts]
    Q = {DEFAULT: [P[0], hits(counts[1] if q is None else q, N)]}
    return dense_landscape({DEFAULT: P}, Q, **extra)  # type: ignore[arg-type]


def found(base: DenseLandscape, rl: DenseLandscape) -> pl.DataFrame:
    return signatures(*views(cohort({("base", "math"): base, ("rl", "math"): rl})))


def row(frame: pl.DataFrame, signature: str, metric: str) -> dict[str, object]:
    return frame.filter(signature=signature, metric=metric).rows(named=True)[-1]


@pytest.mark.parametrize(
    ("base", "rl", "decision", "detail"),
    [
        ((10, 80), (50, 60), "yes", "ahead"),
        ((10, 60), (50, 60), "undecided", "reached"),
        ((50, 60), (50, 60), "undecided", "level"),
        ((10, 40), (50, 60), "no", "behind"),
    ],
)
def test_base_recovery_is_told_apart_from_never_having_lost(
    base: tuple[int, int], rl: tuple[int, int], decision: str, detail: str
) -> None:
    recovery = row(found(one(base), one(rl)), "base_recovery", "P")
    assert recovery["rl_minus_base"] == pytest.approx((rl[1] - base[1]) / N)
    assert (recovery["decision"], recovery["detail"]) == (decision, detail)
    assert recovery["lo"] <= recovery["rl_minus_base"] <= recovery["hi"]  # type: ignore[operator]


def test_a_gain_is_no_gain_when_rl_is_worse() -> None:
    assert row(found(one((50, 60)), one((10, 60))), "low_budget_gain", "P")["decision"] == "no"


def test_concentration_is_a_difference_of_ratios_redrawn_together() -> None:
    """Against a loop over draws that divides counts made question by question."""
    base, rl = one((30, 80), q=40), one((40, 60), q=50)
    study = cohort({("base", "math"): base, ("rl", "math"): rl})
    frame = signatures(*views(study))
    concentration, gain = row(frame, "concentration_gain", "Q/P"), row(frame, "low_budget_gain", "P")
    weights = bootstrap_view(study, 2000, 42).weights["math"].astype(float)
    ratios = [
        (w[:50].sum() / w[:60].sum()) - (w[:40].sum() / w[:80].sum()) for w in weights.T[1:]
    ]  # solved by vote over solved at all
    assert concentration["rl_minus_base"] == pytest.approx(50 / 60 - 40 / 80)
    assert (concentration["lo"], concentration["hi"]) == pytest.approx(tuple(np.quantile(ratios, [0.025, 0.975])))
    assert concentration["decision"] == "yes"
    gains = weights[30:40, 1:].sum(axis=0) / N
    assert (gain["lo"], gain["hi"]) == pytest.approx(tuple(np.quantile(gains, [0.025, 0.975])))


def test_ratio_without_a_solved_question_is_undefined_and_hardly_any_is_undecided() -> None:
    """A single solved question makes the largest possible difference of ratios, and shows nothing."""
    none = row(found(one((0, 0)), one((10, 20))), "concentration_gain", "Q/P")
    assert (none["rl_minus_base"], none["decision"], none["reason"]) == (None, None, "no_support")
    few = row(found(one((0, 1), q=0), one((1, 1))), "concentration_gain", "Q/P")
    assert few["rl_minus_base"] == 1.0
    assert (few["lo"], few["hi"], few["decision"]) == (-1.0, 1.0, "undecided")


@pytest.mark.parametrize(
    ("first_finish", "valid", "stopped", "holds"),
    [(80, 0.9, 0.9, 1), (80, 0.9, 0.6, 1), (40, 0.9, 0.9, 0), (80, 0.6, 0.9, 0)],
    ids=["all three", "without stopping", "without first finish", "without validity"],
)
def test_stopping_more_often_decides_no_termination_gain(
    first_finish: int, valid: float, stopped: float, holds: int
) -> None:
    rates = {name: (rate, rate - 0.02, rate + 0.02) for name, rate in (("valid", valid), ("stopped", stopped))}
    base = one((10, 40), rates=dict.fromkeys(rates, (0.60, 0.58, 0.62)))
    table = signature_table(found(base, one((50, first_finish), rates=rates)))
    assert table.filter(pattern="Termination gain")["holds"].item() == holds


def test_unknown_parts_have_reasons_and_leave_the_rest() -> None:
    unknown = {DEFAULT: [np.full(N, np.nan)] * 2}
    P = {DEFAULT: [hits(10, N), hits(20, N)]}
    frame = found(dense_landscape(P, T=unknown), one((30, 40)))
    assert row(frame, "termination_gain", "T")["reason"] == "unknown_tokens"
    assert row(frame, "termination_gain", "valid")["reason"] == "no_rates"
    assert row(frame, "low_budget_gain", "P")["decision"] == "yes"
    assert signature_table(frame).filter(pattern="Termination gain")["defined"].item() == 0


def test_a_single_question_decides_nothing() -> None:
    sides = [dense_landscape({DEFAULT: [[value], [value]]}) for value in (0, 1)]
    assert row(found(*sides), "low_budget_gain", "P")["reason"] == "one_question"


def test_every_cell_has_every_row() -> None:
    models = {
        "m": Model(base="base", rl="rl"),
        "base only": Model(base="base"),
        "other": Model(base="base2", rl="rl"),
        "absent": Model(base="base3", rl="rl"),
    }
    landscapes = {
        ("base", "math"): one((10, 20)),
        ("rl", "math"): one((30, 40)),
        ("base2", "math"): dense_landscape({"temp_0.3": [hits(10, N)] * 2}),
    }
    benchmarks = {"math": Benchmark(regime="math"), "shown": Benchmark(regime="nonmath", role="descriptive")}
    frame = signatures(*views(cohort(landscapes, models, benchmarks)))
    reasons = frame.filter(metric="P", signature="low_budget_gain").select("model", "reason").rows()
    assert dict(reasons) == {"m": None, "base only": "no_rl", "other": "policy_missing", "absent": "no_base"}
    assert frame.group_by("model").len()["len"].n_unique() == 1
    assert frame["benchmark"].unique().to_list() == ["math"]


def test_table_counts_the_cells_in_which_a_signature_holds() -> None:
    models = {"m": Model(base="base", rl="rl"), "flat": Model(base="base", rl="base")}
    landscapes = {("base", "math"): one((10, 80), q=20), ("rl", "math"): one((50, 60))}
    table = signature_table(signatures(*views(cohort(landscapes, models))))
    assert table["pattern"].to_list() == [name for name, *_ in PATTERNS.values()]
    assert dict(table.select("pattern", "cells").rows()) == {
        "Low-budget RL gain": "m/math",
        "Base high-budget recovery": "m/math",
        "Concentration gain": "m/math",
        "Termination gain": "",
    }
    assert table["holds"].to_list() == [1, 1, 1, 0]
    assert table["defined"].to_list() == [2, 2, 2, 0]
