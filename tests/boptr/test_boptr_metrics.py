"""The Q channel on hand-made cells of 20 questions at budgets 1, 2, 4; the signatures of such cells."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import polars as pl
import pytest

from searchlens.boptr.cohort import Benchmark, Cohort, DenseLandscape, Model, votes_fall
from searchlens.boptr.metrics import PATTERNS, q_channel, q_policy, q_summary, signature_table, signatures
from searchlens.boptr.rule import Rule
from searchlens.boptr.view import CellCounts, bootstrap_view, sample_view
from searchlens.config.boptr import BoptrOptions
from searchlens.errors import InputError
from small_cohort import DEFAULT, cohort, dense_landscape, hits, views

N = 20
BUDGETS = (1, 2, 4)
RL = "topp0.95_t1.0"
Curves = Mapping[str, tuple[Sequence[int], Sequence[int]]]
"""Policy to its counts of P and of Q at the budgets."""


def _dense_landscape(curves: Curves) -> DenseLandscape:
    """Counts of solved questions at each point: always the first questions."""
    P, Q = ({name: [hits(count, N) for count in pair[i]] for name, pair in curves.items()} for i in (0, 1))
    found = dense_landscape(P, Q, budgets=BUDGETS)
    return replace(found, votes_fall=votes_fall(found.points, found.credit["Q"]))


def _cohort(base: Curves, rl: Sequence[int], **more: tuple[Curves, Sequence[int]]) -> Cohort:
    """Benchmark ``math`` with these Q curves, and further benchmarks."""
    cells = {"math": (base, rl), **more}
    benchmarks = {name: Benchmark("math" if name == "math" else "nonmath") for name in [*cells, "absent"]}
    landscapes = {}
    for name, (ours, target) in cells.items():
        landscapes["base", name] = _dense_landscape(ours)
        landscapes["rl", name] = _dense_landscape({RL: ((N, N, N), target)})
    return cohort(landscapes, benchmarks=benchmarks, budgets=BUDGETS)


def _frame(cohort: Cohort, draws: int = 50, **options: object) -> pl.DataFrame:
    chosen = BoptrOptions(**options)  # type: ignore[arg-type]
    return q_channel(Rule(sample_view(cohort), chosen), bootstrap_view(cohort, draws, 1))


def _row(frame: pl.DataFrame, benchmark: str = "math", pool: str = "ar") -> dict[str, object]:
    return frame.row(by_predicate=(pl.col("benchmark") == benchmark) & (pl.col("pool") == pool), named=True)


def _cell_counts(P: Sequence[int], Q: Sequence[int], tokens: Sequence[float], search: Sequence[bool]) -> CellCounts:
    counts = [np.repeat(np.array(part, np.float32)[:, None, None], len(BUDGETS), axis=1) for part in (P, Q)]
    controllers = tuple("mcts" if each else "autoregressive" for each in search)
    return CellCounts(("c", "b", "a"), controllers, *counts, np.array(tokens))


@pytest.mark.parametrize(
    ("P", "Q", "tokens", "search", "expected"),
    [
        pytest.param((16, 12, 12), (10, 11, 8), (1, 1, 1), (0, 0, 0), "b", id="0.35, 0.525, 0.3 before the equal cost"),
        pytest.param((12, 12, 12), (10, 10, 10), (1, 1, 1), (0, 0, 0), "a", id="tie by name, not by pool order"),
        pytest.param((12, 12, 12), (10, 10, 10), (5, 5, 10), (0, 0, 0), "b", id="the dearest loses a tie"),
        pytest.param((12, 12, 12), (10, 10, 12), (1, 1, 1), (0, 0, 1), "b", id="searches are no candidates"),
        pytest.param((12, 20, 12), (10, 11, 9), (1, 1, 1), (0, 0, 0), "c", id="a large P - Q outweighs one more vote"),
    ],
)
def test_policy_by_hand(P, Q, tokens, search, expected):
    base = _cell_counts(P, Q, tokens, [bool(s) for s in search])
    assert base.policies[int(q_policy(base, N)[0])] == expected


def test_policy_reads_the_largest_budget():
    base = _cell_counts((12, 12, 12), (10, 10, 10), (1, 1, 1), (False, False, False))
    base.Q[0, 0] = 12
    assert base.policies[int(q_policy(base, N)[0])] == "a"
    base.Q[0, -1] = 11
    assert base.policies[int(q_policy(base, N)[0])] == "c"


def test_constant_path_is_fitted_with_its_interval():
    """beta^Q = 0: the RL curve lies at Base's N = 2 throughout, and every alpha in [sqrt 2, sqrt 8) says so."""
    row = _row(_frame(_cohort({"temp_0.7": ((12, 14, 16), (9, 11, 15))}, (11, 11, 11))))
    assert row["path"] == "2/2/2"
    assert row["mech_q"] == pytest.approx(0)
    assert row["beta_q"] == 0
    assert (row["alpha_lo"], row["alpha_hi"]) == pytest.approx((2**0.5, 2**1.5))
    assert row["alpha_lo"] <= row["alpha_q"] < row["alpha_hi"]
    assert row["rl"].startswith("own cell")


def test_alpha_at_the_cap_has_no_upper_end():
    row = _row(_frame(_cohort({"temp_0.7": ((12, 14, 16), (9, 11, 12))}, (14, 14, 14))))
    assert row["path"] == "4/4/4"
    assert row["alpha_hi"] == np.inf
    assert row["mech_q"] == pytest.approx(100 * 2 / N)


def test_exponent_of_a_named_benchmark_only():
    rising = ({"temp_0.7": ((12, 14, 16), (9, 11, 15))}, (9, 11, 15))
    frame = _frame(_cohort(*rising, gpqa=rising), q_beta={"gpqa": 1.0})
    assert _row(frame, "gpqa")["path"] == "1/2/4"
    assert _row(frame, "gpqa")["mech_q"] == pytest.approx(0)
    assert _row(frame)["path"] == "2/2/2"
    assert _row(frame)["mech_q"] == pytest.approx(100 * (2 + 0 + 4) / 3 / N)


def test_unknown_benchmark_in_q_beta():
    with pytest.raises(InputError, match="gpqb"):
        _frame(_cohort({"temp_0.7": ((9, 9, 9), (9, 9, 9))}, (9, 9, 9)), q_beta={"gpqb": 0.6})


@pytest.mark.parametrize(
    ("rl", "recoverable"),
    [(14, False), (13, True), (10, True)],
    ids=["2 short", "1 short: exactly the tolerance", "2 beyond"],
)
def test_recoverable_within_one_question_of_twenty(rl, recoverable):
    """The best Base vote solves 12 of 20, the tolerance is one question."""
    cohort = _cohort({"temp_0.7": ((14, 14, 16), (9, 12, 11)), "temp_0.3": ((9, 9, 9), (9, 9, 9))}, (8, rl, rl))
    row = _row(_frame(cohort))
    assert row["recoverable"] is recoverable
    assert row["gap"] == pytest.approx(100 * (rl - 12) / N)


def test_the_expanded_pool_counts_apart():
    base = {"temp_0.7": ((14, 14, 16), (9, 10, 9)), "mcts16_temp_0.7": ((14, 14, 16), (9, 10, 15))}
    frame = _frame(_cohort(base, (15, 15, 15), gpqa=({"temp_0.7": ((9, 9, 9), (9, 9, 9))}, (9, 9, 9))))
    assert _row(frame)["recoverable"] is False
    full = _row(frame, pool="full")
    assert full["recoverable"] is True
    assert full["policy"] == "temp_0.7"
    assert (_row(frame)["policies"], full["policies"], full["questions"]) == (1, 2, N)
    assert _row(frame, "gpqa", "full")["reason"] == "no_expanded_pool"


def test_intervals_keep_policy_path_and_maxima():
    """Against the bootstrap weights themselves: points (temp_0.7, 2) and RL's b = 2 stay where the sample put them."""
    cohort = _cohort({"temp_0.7": ((14, 14, 16), (9, 12, 11))}, (12, 14, 13))
    row = _row(_frame(cohort, 200))
    weights = bootstrap_view(cohort, 200, 1).weights["math"][:, 1:].astype(float)
    solved = {count: (np.arange(N) < count) @ weights for count in (12, 13, 14)}
    assert row["path"] == "2/2/2"
    mech = np.mean([np.abs(solved[12] - solved[b]) for b in (12, 14, 13)], axis=0) * 100 / N
    assert (row["lo"], row["hi"]) == pytest.approx(np.quantile(mech, [0.025, 0.975]))
    gap = (solved[14] - solved[12]) * 100 / N
    assert (row["gap_lo"], row["gap_hi"]) == pytest.approx(np.quantile(gap, [0.025, 0.975]))


@pytest.mark.parametrize("draws", [1, 50])
def test_scale_that_every_draw_finds_again_needs_no_correction(draws):
    """RL is far above Base in every draw: alpha stays at its end, and the gaps of 6 of 20 have one sign."""
    cohort = _cohort({"temp_0.7": ((2, 6, 12), (2, 6, 12))}, (18, 18, 18))
    rule = Rule(sample_view(cohort), BoptrOptions(draws=draws))
    row = _row(q_channel(rule, bootstrap_view(cohort, draws, 1)))
    assert (row["path"], row["mech_q"]) == ("4/4/4", pytest.approx(30))
    assert row["corrected"] == pytest.approx(30, abs=0.5)


def test_benchmarks_without_a_vote_are_diagnostic():
    """Later valid answers may appear (9 to 11); a vote that takes one back tells that there is a vote."""
    unvoted = ({"temp_0.7": ((9, 14, 16), (9, 11, 11))}, (10, 10, 10))
    voted = ({"temp_0.7": ((9, 14, 16), (9, 8, 11))}, (10, 10, 10))
    frame = _frame(_cohort(*voted, ifeval=unvoted))
    assert _row(frame)["diagnostic"] is False
    assert _row(frame, "ifeval")["diagnostic"] is True


def test_summary_counts_and_means_recoverable_cells():
    good = ({"temp_0.7": ((14, 14, 16), (12, 10, 11))}, (12, 12, 12))
    far = ({"temp_0.7": ((14, 14, 16), (12, 10, 11))}, (18, 18, 18))
    unvoted = ({"temp_0.7": ((9, 14, 16), (9, 9, 9))}, (10, 10, 10))
    frame = _frame(_cohort(*good, gpqa=far, ifeval=unvoted))
    summary = q_summary(frame).filter(pool="ar")
    by = {(row["scope"], row["regime"]): row for row in summary.iter_rows(named=True)}
    assert (by["all", "all"]["recoverable"], by["all", "all"]["cells"]) == (2, 3)
    assert by["all", "all"]["mech_q"] == pytest.approx((0 + 100 / N) / 2)
    assert (by["voted", "nonmath"]["recoverable"], by["voted", "nonmath"]["cells"]) == (0, 1)
    assert by["voted", "nonmath"]["mech_q"] is None
    assert _row(frame, "absent")["reason"] == "no_base"
    assert set(frame["benchmark"]) == {"math", "gpqa", "ifeval", "absent"}


# ---- the four same-policy signatures


ASKED = 100


def one(counts: tuple[int, int], q: int | None = None, **extra: object) -> DenseLandscape:
    """Counts of questions that the default policy solves at budgets 1 and 2, with ``q`` of them by vote at 2."""
    P = [hits(count, ASKED) for count in counts]
    Q = {DEFAULT: [P[0], hits(counts[1] if q is None else q, ASKED)]}
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
    assert recovery["rl_minus_base"] == pytest.approx((rl[1] - base[1]) / ASKED)
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
    gains = weights[30:40, 1:].sum(axis=0) / ASKED
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
    unknown = {DEFAULT: [np.full(ASKED, np.nan)] * 2}
    P = {DEFAULT: [hits(10, ASKED), hits(20, ASKED)]}
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
        ("base2", "math"): dense_landscape({"temp_0.3": [hits(10, ASKED)] * 2}),
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
