"""``validation/power_sampling.py``: samplers of p^alpha beside RL, from committed counts.

python -m pytest tests/analysis/test_power_beside_rl.py
"""

import importlib.util
import re
import subprocess
import sys
from itertools import combinations
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from searchlens.analysis.classes import from_text

ROOT = Path(__file__).parents[2]
POWER = ROOT / "resources/zoo/cohort/power"
INTERVAL = r"[+−]?\d+\.\d \[[+−]?\d+\.\d, [+−]?\d+\.\d\]"

pytestmark = pytest.mark.cohort


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("power_sampling", ROOT / "validation/power_sampling.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # where dataclasses look up their annotations
    spec.loader.exec_module(module)
    return module


def test_shares_are_means_over_all_subsets(script: ModuleType) -> None:
    """Of a committed cell, counted subset by subset; too few samples give no difference."""
    row = script.cell(POWER / "anchor-rl/zoo-math.arrow.xz")["smc16_t0.25"]
    sizes, is_right = from_text(row["classes"])
    right = (sizes * is_right).sum(1)
    pairs = list(combinations(range(row["samples"]), 2))
    wanted = [np.mean([min(pair) < count for pair in pairs]) for count in right]
    np.testing.assert_allclose(script.solved(row, 2)[:, 0], wanted)
    assert script.gap(row, row["samples"] + 1, row, 1) is None
    assert not script.gap(row, 1, row, 1).any()


def test_mean_over_pairs_keeps_questions_together(script: ModuleType) -> None:
    one, other = np.array([[0.0], [10.0]]), np.array([[20.0], [30.0]])
    np.testing.assert_array_equal(script.mean([one, other]), [[10.0], [20.0]])
    assert script.mean([one, None]) is None and script.mean([]) is None


def test_the_findings_print_what_the_script_says() -> None:
    """Every interval of the table of the twelve pairs; SMC is there on both sides of each, MH on Base."""
    command = [sys.executable, str(ROOT / "validation/power_sampling.py"), "--counts", str(POWER)]
    printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout.replace("-", "−")
    pairs = re.findall(r"^\| ([a-z]+) \| zoo−math \| (base|rl) \| (smc16_t0.25|power_t0.25) ", printed, re.MULTILINE)
    assert len(pairs) == len(set(pairs)) == 12 * 3
    page = (ROOT / "docs/findings.md").read_text()
    table = page.split("| pair | Base, default |")[1].split("\n\n")[0]
    intervals = re.findall(INTERVAL, table)
    assert len(intervals) == 13 * 7 and not [each for each in intervals if each not in printed]
