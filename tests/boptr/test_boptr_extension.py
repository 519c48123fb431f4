"""The frozen rule beyond B, and Base against RL at equal large budgets."""

import numpy as np
import pytest

from planted_landscapes import DEFAULT, QUESTIONS, along, cohort, views
from searchlens.boptr.cohort import Benchmark
from searchlens.boptr.extension import crossing, extension, large_budget, n_hat

MATH = {"math": Benchmark(regime="math")}
STUDY = {"math": Benchmark(regime="math"), "aime": Benchmark(regime="floor"), "gpqa": Benchmark(regime="nonmath")}
PATH = (2, 4, 8, 8, 16)
LONG = (2, 9, 17, 31, 40, 44, 50)
PLANTED = along(LONG, PATH)
"""RL of the anchor: alpha is 2^1.4 and nothing else."""
ONE = {("m", "math"): ({DEFAULT: LONG}, PLANTED)}


def only(frame, **keys):
    (row,) = [r for r in frame.rows(named=True) if all(r[k] == v for k, v in keys.items())]
    return row


@pytest.mark.parametrize(
    ("alpha", "beta", "top", "path"),
    [(16, 1.0, 64, [64, 64]), (16, 1.0, 16, [16, 16]), (1, 1.0, 64, [32, 64]), (2, 0.0, 64, [2, 2])],
)
def test_budgets_are_clipped_at_the_new_maximum(alpha, beta, top, path):
    assert n_hat(alpha, beta, [32, 64], top) == path


def test_frozen_rule_is_scored_at_larger_budgets_alone():
    """log2 N is 1.4 + .6 * 5 = 4.4 and 1.4 + .6 * 6 = 5: N(32) = 16 with 40, N(64) = 32 with 44 solved."""
    found = cohort({("m", "math"): ({DEFAULT: LONG}, [*PLANTED, 43, 50])}, MATH)
    row = only(extension(*views(found)), benchmark="math")
    assert (row["policy"], row["budgets"], row["path"]) == (DEFAULT, "32/64", "16/32")
    assert row["error"] == pytest.approx(100 * (3 + 6) / 2 / QUESTIONS)
    assert row["lo"] <= row["error"] <= row["hi"]


def test_floor_stays_at_two_and_the_mean_is_over_extended_benchmarks():
    """The floor's allocation does not grow; a benchmark that was not extended is no part of the mean."""
    cells = {
        ("m", "math"): ({DEFAULT: LONG}, [*PLANTED, 43, 50]),
        ("m", "aime"): ({DEFAULT: LONG}, [9, 9, 9, 9, 9, 12, 15, 18, 21]),
        ("m", "gpqa"): ({DEFAULT: LONG}, LONG[:5]),
    }
    frame = extension(*views(cohort(cells, STUDY)))
    floor = only(frame, benchmark="aime")
    assert (floor["budgets"], floor["path"]) == ("32/64/128/256", "2/2/2/2")
    assert floor["error"] == pytest.approx(100 * (3 + 6 + 9 + 12) / 4 / QUESTIONS)
    assert only(frame, benchmark="gpqa")["reason"] == "no_extension"
    mean = (floor["error"] + only(frame, benchmark="math")["error"]) / 2
    assert only(frame, benchmark=None)["error"] == pytest.approx(mean)


def test_budget_that_base_lacks_is_not_scored_at_a_smaller_one():
    """N(64) = 32 was not sampled here, so 64 is left out instead of being read at 16."""
    found = cohort({("m", "math"): ({DEFAULT: LONG[:5]}, [*PLANTED, 43, 50])}, MATH)
    row = only(extension(*views(found)), benchmark="math")
    assert (row["budgets"], row["path"]) == ("32", "16")


def doubled(base):
    """N(b) = 2 b on gpqa: the anchor's offset is one doubling, as its scale is four times that of the other model."""
    cells = ONE | {("k", "math"): ({DEFAULT: LONG}, along(LONG, (1, 1, 2, 2, 4)))}
    cells |= {("m", "gpqa"): ({DEFAULT: base}, [*along(LONG, (2, 4, 8, 16, 32)), 43])}
    return only(extension(*views(cohort(cells, STUDY))), model="m", benchmark="gpqa")


def test_base_is_read_beyond_the_budgets_of_rl():
    """RL was sampled up to 32, Base up to 64, where the path of 32 ends."""
    row = doubled(LONG)
    assert (row["budgets"], row["path"]) == ("32", "64")
    assert row["error"] == pytest.approx(100 * 7 / QUESTIONS)


def test_base_that_ends_before_rl_is_not_read_where_it_ends():
    """N(32) is 64, cut at the 32 of RL, where Base was not sampled; 16 would be another rule's budget."""
    assert doubled(LONG[:5])["reason"] == "no_extension"


TWO = {"temp_0.3": (2, 3, 4, 8, 9), DEFAULT: (1, 5, 5, 6, 7)}
RL = [4, 6, 7, 7, 10]


def floor_study(base, rl, draws=200):
    return views(cohort(ONE | {("m", "aime"): (base, rl)}, STUDY), draws)


def test_crossing_budget_by_hand():
    """E is 2, 5, 5, 8, 9 and RL 4, 6, 7, 7, 10: level or ahead at 8 for the first time, and lower again at 16."""
    frame = large_budget(*floor_study(TWO, RL)).filter(pool="ar")
    assert (frame["envelope"] * QUESTIONS).round().to_list() == [2, 5, 5, 8, 9]
    assert frame["n"].to_list() == [1, 2, 2, 8, 16]
    assert frame["policy"].to_list() == ["temp_0.3", DEFAULT, DEFAULT, "temp_0.3", "temp_0.3"]
    assert (frame["rl_minus_best"] * QUESTIONS).round().to_list() == [2, 1, 2, -1, 1]
    assert (frame["lo"] <= frame["rl_minus_best"]).all() and (frame["rl_minus_best"] <= frame["hi"]).all()
    row = only(crossing(*floor_study(TWO, RL)), benchmark="aime", pool="ar")
    assert (row["crossing"], row["tie"], row["reason"]) == (None, 8, None)


def test_crossing_is_where_base_overtakes_for_good():
    base, rl = {DEFAULT: (4, 5, 6, 9, 12)}, (4, 6, 8, 8, 10)
    frame = crossing(*floor_study(base, rl))
    row = only(frame, benchmark="aime", pool="ar")
    assert (row["crossing"], row["tie"]) == (8, 1)
    curves = large_budget(*floor_study(base, rl)).filter(pool="ar")
    shares = {b: (k, tie) for b, k, tie in curves.select("b", "crossing_share", "tie_share").iter_rows()}
    assert (row["share"], row["tie_share"]) == (shares[8][0], shares[1][1])
    assert row["tie_share"] == 1.0
    assert 0.5 < row["share"] < 1.0


def test_equal_curves_cross_nowhere():
    """Nobody solves anything: k* = 1 in all draws would look like a result."""
    row = only(crossing(*floor_study({DEFAULT: (0,) * 5}, (0,) * 5)), benchmark="aime", pool="ar")
    assert (row["reason"], row["crossing"], row["tie"], row["largest"]) == ("no_difference", None, None, 16)


def test_envelope_keeps_what_smaller_budgets_reached():
    """A policy that was sampled up to 4 alone still counts at 8: 9 solved there against RL's 8."""
    short = {"temp_0.3": (2, 3, 9), DEFAULT: (1, 2, 3, 4, 5)}
    study = floor_study(short, [12, 12, 12, 8, 12])
    assert only(crossing(*study), pool="ar")["tie"] == 8
    row = only(large_budget(*study), pool="ar", b=8)
    assert (row["policy"], row["n"]) == ("temp_0.3", 4)


def test_crossing_is_taken_anew_in_each_draw():
    rule, boot = floor_study(TWO, RL, draws=300)
    weights = boot.weights["aime"][:, 1:]
    curves = {name: (np.arange(QUESTIONS) < np.array(c)[:, None]) @ weights for name, c in {**TWO, "rl": RL}.items()}
    envelope = np.maximum.accumulate(np.maximum(curves["temp_0.3"], curves[DEFAULT]), axis=0)
    caught = envelope >= curves["rl"]
    expected = [next((i for i in range(5) if caught[i:, d].all()), 5) for d in range(300)]
    first = [next((i for i in range(5) if caught[i, d]), 5) for d in range(300)]
    assert expected != first
    frame = large_budget(rule, boot).filter(pool="ar")
    assert frame["crossing_share"].to_list() == pytest.approx([expected.count(i) / 300 for i in range(5)])
    assert frame["tie_share"].to_list() == pytest.approx([first.count(i) / 300 for i in range(5)])
    row = only(crossing(rule, boot), benchmark="aime", pool="ar")
    assert row["never"] == pytest.approx(expected.count(5) / 300)
    budgets = [1, 2, 4, 8, 16, None]
    assert row["median"] == budgets[sorted(expected)[149]]
    assert (row["lo"], row["hi"]) == (budgets[sorted(expected)[7]], budgets[sorted(expected)[292]])


def test_wilson_intervals_are_the_printed_ones():
    """AIME at b = 256: 25.0% [15.8, 37.2] against 20.0% [11.8, 31.8], which overlap (paper)."""
    base, rl = (2, 3, 5, 6, 7, 8, 10, 12, 15), (4, 4, 4, 5, 6, 7, 9, 11, 12)
    frame = large_budget(*floor_study({DEFAULT: base}, rl)).filter(pool="ar")
    row = only(frame, b=256)
    assert [round(100 * row[f"envelope{end}"], 1) for end in ("", "_lo", "_hi")] == [25.0, 15.8, 37.2]
    assert [round(100 * row[f"rl{end}"], 1) for end in ("", "_lo", "_hi")] == [20.0, 11.8, 31.8]
    assert row["overlap"] is True


def test_pools_are_kept_apart():
    searched = TWO | {"mcts_i16": (20, 21, 22, 23, 24)}
    frame = large_budget(*floor_study(searched, RL))
    assert set(frame.filter(pool="full")["policy"]) == {"mcts_i16"}
    assert "mcts_i16" not in frame.filter(pool="ar")["policy"].to_list()
    assert only(large_budget(*floor_study(TWO, RL)), pool="full")["reason"] == "no_expanded_pool"


def test_budgets_of_one_side_are_left_out():
    """Equal budgets or no comparison: RL reaches 32, Base does not."""
    frame = large_budget(*floor_study(TWO, [*RL, 12])).filter(pool="ar")
    assert frame["b"].to_list() == [1, 2, 4, 8, 16]
