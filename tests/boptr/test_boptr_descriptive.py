"""Base alone on descriptive benchmarks, and the saturation knee."""

import numpy as np
import pytest
from statsmodels.stats.proportion import proportion_confint

from planted_landscapes import DEFAULT, cohort, views
from searchlens.boptr.cohort import Benchmark
from searchlens.boptr.frontier import descriptive, knee

BENCHMARKS = {"math": Benchmark(regime="math"), "mmlu": Benchmark(regime="nonmath", role="descriptive")}
POOL = {DEFAULT: (6, 12, 24, 30, 30), "temp_0.3": (18, 21, 24, 27, 33)}


def frame(**options):
    cells = {("a", "math"): (POOL, [9] * 5), ("a", "mmlu"): (POOL, None), ("b", "math"): (POOL, [9] * 5)}
    return descriptive(*views(cohort(cells, BENCHMARKS), **options))


def test_default_curve_with_wilson_intervals():
    found = frame().filter(model="a")
    assert found["value"].to_list() == pytest.approx([0.1, 0.2, 0.4, 0.5, 0.5])
    lo, hi = proportion_confint([6, 12, 24, 30, 30], 60, method="wilson")
    assert found["lo"].to_list() == pytest.approx(list(lo)) and found["hi"].to_list() == pytest.approx(list(hi))


def test_what_belongs_to_the_cell():
    """Best policy at 16, headroom over the default policy at 1, and the knee between 4 and 8."""
    row = frame().filter(model="a").row(0, named=True)
    assert (row["p_max"], row["policy"]) == (pytest.approx(0.55), "temp_0.3")
    assert row["headroom"] == pytest.approx(0.45)
    assert row["knee"] == pytest.approx(2 ** (2 + 0.8))
    assert frame(headroom="one_minus_p0")["headroom"][0] == pytest.approx(0.9)


def test_model_that_was_not_sampled_has_its_reason():
    assert frame().filter(model="b")["reason"].to_list() == ["no_base"]


def test_knee_of_every_draw():
    """Trailing axes are draws; an unknown value leaves its own draw undefined."""
    found = knee(np.array([[0.1, 0.5], [0.3, np.nan], [0.5, 0.5]]), [1, 2, 4], 0.1)
    assert found[0] == pytest.approx(2**1.5) and np.isnan(found[1])
