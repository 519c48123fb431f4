"""Where Base overtakes RL, at equal samples and at equal tokens."""

import math

import numpy as np
import pytest

from searchlens.analysis.equivalents import crossing, last_positive
from searchlens.analysis.uncertainty import Resamples
from searchlens_lab.simulate import power_law
from test_measures_equivalents import pool


def test_last_positive_says_where_a_curve_falls_below_zero_for_good() -> None:
    x = np.arange(4.0)
    gaps = np.array([[1, 1, -1, 1], [-1, 3, -1, 1], [1, -1, -1, 1], [-3, -1, -1, 1.0]])
    assert last_positive(x, gaps).tolist() == [2.25, 1.75, -math.inf, math.inf]


@pytest.mark.parametrize(("exchange", "truth"), [(1.0, 4.0), (0.7, 4 / 0.49)])
def test_the_crossing_of_a_law_is_found(exchange: float, truth: float) -> None:
    """N*(b) = 2 b^0.5: RL is worth b samples of Base at b = 4, and 0.7 b at b = (2 / 0.7)^2."""
    rng = np.random.default_rng(0)
    difficulty = rng.beta(0.6, 1.5, 20_000)
    rl = power_law(difficulty, 2, 0.5, rng.random(20_000), rng.exponential(size=20_000))
    sides = pool(rng.binomial(32, difficulty), 32), pool(rng.binomial(32, rl), 32)
    row = crossing(*sides, Resamples.draw(20_000, 100, 0), 0.95, exchange=exchange).row(0, named=True)
    assert row["crossing"] == pytest.approx(truth, rel=0.05)
    assert row["lo"] <= truth <= row["hi"] and row["hi"] < 1.3 * row["lo"]
    assert (row["first"], row["last"]) == (pytest.approx(max(1, 1 / exchange)), 32)


def test_intervals_contain_the_crossing_of_a_law() -> None:
    """Coverage with 100 questions, for which the interval is neither open nor empty of information."""
    covered, closed = 0, 0
    for world in range(60):
        rng = np.random.default_rng(world)
        difficulty = rng.beta(0.6, 1.5, 100)
        rl = power_law(difficulty, 2, 0.5, rng.random(100), rng.exponential(size=100))
        sides = pool(rng.binomial(64, difficulty), 64), pool(rng.binomial(64, rl), 64)
        row = crossing(*sides, Resamples.draw(100, 200, world), 0.95).row(0, named=True)
        covered += (row["lo_open"] or row["lo"] <= 4) and (row["hi_open"] or row["hi"] >= 4)
        closed += not (row["lo_open"] or row["hi_open"])
    assert covered >= 52 and closed >= 30


def test_what_the_pools_cannot_show_is_said() -> None:
    """RL that solves everything is never overtaken; RL that solves nothing is behind from the first sample."""
    base = pool(np.random.default_rng(2).binomial(16, 0.3, 40), 16)
    draws = Resamples.draw(40, 200, 1)
    for correct, state in ((np.full(40, 16), "above"), (np.zeros(40, int), "below")):
        row = crossing(base, pool(correct, 16), draws, 0.95).row(0, named=True)
        assert (row["state"], row["crossing"]) == (state, None)
        assert row["hi_open"] if state == "above" else row["lo_open"]
    assert crossing(base, base, draws, 0.95, exchange=32).is_empty()


def test_curves_that_end_level_have_no_upper_end() -> None:
    rng = np.random.default_rng(3)
    base, rl = (pool(rng.binomial(64, p, 100), 64) for p in (0.4, 0.5))
    assert crossing(base, rl, Resamples.draw(100, 200, 1), 0.95).row(0, named=True)["hi_open"]
