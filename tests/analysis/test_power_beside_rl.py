"""The numbers of our own studies, in README.md and docs, are those that ``make docs-numbers`` and the counts give.

python -m pytest tests/analysis/test_power_beside_rl.py
"""

import re
import subprocess
import sys
from itertools import combinations
from pathlib import Path
from types import ModuleType

import numpy as np
import polars as pl
import pytest

from scripts import loaded
from searchlens.analysis.classes import Pool, from_text, independent_pools, recorded_classes
from searchlens.analysis.measures import beside_wrong_key, compared
from searchlens.analysis.uncertainty import Resamples
from searchlens.store import recorded_counts

ROOT = Path(__file__).parents[2]
POWER = ROOT / "resources/zoo/cohort/power"
INTERVAL = r"[+−]?\d+\.\d \[[+−]?\d+\.\d, [+−]?\d+\.\d\]"

pytestmark = pytest.mark.cohort


@pytest.fixture(scope="module")
def script() -> ModuleType:
    return loaded("validation/power_sampling.py")


@pytest.fixture(scope="module")
def printed() -> str:
    """What samplers of p^alpha are worth beside RL, on every pair."""
    command = [sys.executable, str(ROOT / "validation/power_sampling.py"), "--counts", str(POWER)]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.replace("-", "−")


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


def test_the_findings_print_what_the_script_says(printed: str) -> None:
    """Every interval of the table of the twelve pairs; SMC is there on both sides of each, MH on Base."""
    pairs = re.findall(r"^\| ([a-z]+) \| zoo−math \| (base|rl) \| (smc16_t0.25|power_t0.25) ", printed, re.MULTILINE)
    assert len(pairs) == len(set(pairs)) == 12 * 3
    intervals = re.findall(INTERVAL, (ROOT / "docs/power_beside_rl.csv").read_text())
    assert len(intervals) == 13 * 7 and not [each for each in intervals if each not in printed]
    page = (ROOT / "docs/findings-tables.md").read_text()
    table = page.split("| pair | Base, default |")[1].split("\n\n")[0]
    assert len(re.findall(INTERVAL, table)) == 3 * 7 and set(re.findall(INTERVAL, table)) <= set(intervals)


Number = tuple[str, ...]
"""A value, the two ends of an interval, or all three."""
NUMBER = re.compile(r"(?:([+−]?\d*\.?\d+) )?\[([+−]?[\d.]+), ([+−]?[\d.]+)\]|([+−]?\d*\.\d+|\d+ of \d+)")
NO_NUMBERS = re.compile(r"```.*?```|`[^`]*`|\]\([^)]*\)", re.DOTALL)


def numbers(text: str) -> list[Number]:
    """Numbers with a decimal point, intervals and counts of a text, without its code and the targets of its links."""
    plain = re.sub(r"\+| or (?:less|more)| (?:pp|samples)(?= \[)", "", NO_NUMBERS.sub("", text).replace("\n", " "))
    return [tuple(part for part in found if part) for found in NUMBER.findall(plain)]


def unknown(text: str, known: list[Number]) -> list[Number]:
    """Numbers of a text that are none of those that are known, nor the value or the interval of one."""
    parts = {part for row in known for part in (row, *([row[:1], row[1:]] if len(row) == 3 else []))}
    return [each for each in numbers(text) if not any(is_same(each, part) for part in parts)]


def other_way(row: Number) -> Number:
    """The same difference, with its sides exchanged."""
    value, *ends = (part.removeprefix("−") if part.startswith("−") else f"−{part}" for part in row)
    return (value, *reversed(ends))


def is_same(shown: Number, exact: Number) -> bool:
    """With the same digits, 0.16 being .16 as well, or to whole numbers."""
    return len(shown) == len(exact) and all(
        one.removeprefix("0") == other.removeprefix("0")
        or (one.lstrip("−").isdigit() and one == f"{float(other.replace('−', '-')):.0f}".replace("-", "−"))
        for one, other in zip(shown, exact, strict=True)
    )


def test_the_pages_quote_no_other_number(printed: str) -> None:
    """Of README.md, the study's results and the figure above them; of docs/findings.md, all but its code."""
    listed = pl.read_csv(ROOT / "docs/findings.csv", infer_schema=False)["number"]
    rows = [line for line in printed.splitlines() if line.startswith(("| 10 ", "| control "))]
    known = [each for text in (*listed, *rows) for each in numbers(text)]
    known += [other_way(each) for each in known if len(each) == 3]
    assert unknown("4.7, 81 of 80 and 80.4 [75.0, 85.5], not 4.6, 80.5 or 43 [28, 72]", known) == [
        ("4.7",),
        ("81 of 80",),
        ("80.4", "75.0", "85.5"),
    ]
    front = (ROOT / "README.md").read_text()
    found = front.split("## What we found")[1].split("\n## ")[0]
    caption = front.split("![pass@k")[1].split("\n\n")[1]
    page = (ROOT / "docs/findings.md").read_text()
    assert len(numbers(found + caption)) > 5 and len(numbers(page)) > 30
    assert not unknown("\n".join((found, caption, page)), known)


def test_the_list_of_numbers_is_that_of_the_committed_counts() -> None:
    """The rest of it needs `make zoo-tables`."""
    listed = pl.read_csv(ROOT / "docs/findings.csv", infer_schema=False).filter(pl.col("from") == "recorded counts")
    quoted = loaded("validation/page_numbers.py").quoted_of_counts()
    assert listed["number"].to_list() == [number for number, _ in quoted]


# ---- docs/pretrained.md: its differences with their wrong-key rate, from the committed counts


PAGE = (ROOT / "docs/pretrained.md").read_text()
MEASURES = ("pass@k", "wrong_key", "wrong_key-corrected pass@k")


def pool(model: str, benchmark: str) -> Pool:
    path = ROOT / "resources/pretrained" / model / f"{benchmark}.arrow.xz"
    return independent_pools(recorded_classes(recorded_counts.read(path)), {})["topp0.95_t1.0"]


def differences(base: Pool, rl: Pool, k: int) -> list[str]:
    draws = Resamples.draw(len(base.questions), 2000, 42)
    passed = compared("pass@k", base.solved([k]), rl.solved([k]), draws, 0.95, ks=[k])
    rows = passed.vstack(beside_wrong_key(base, rl, [k], draws, 0.95)).filter(side="RL - Base")
    found = {row["measure"]: [100 * row[key] for key in ("value", "lo", "hi")] for row in rows.to_dicts()}
    numbers = ([f"{x + 0.0:.1f}".replace("-0.0", "0.0").replace("-", "−") for x in found[name]] for name in MEASURES)
    return [f"{value} [{lo}, {hi}]" for value, lo, hi in numbers]


@pytest.mark.parametrize("benchmark", ["mawps", "svamp", "gsm8k"])
def test_differences_stand_on_the_page_with_their_wrong_key(benchmark: str) -> None:
    base, rl = (pool(f"adapters/{model}", benchmark) for model in ("gemma-warm", "gemma-rl-60"))
    for k in (1, 16, 64, 256):
        assert f"| {k} | {' | '.join(differences(base, rl, k))} |" in PAGE


@pytest.mark.parametrize("step", [5, 10, 20, 40, 60])
def test_steps_stand_on_the_page_with_their_wrong_key(step: int) -> None:
    base, rl = (pool(f"steps/{model}", "mawps") for model in ("gemma-warm", f"gemma-rl-{step}"))
    passed, wrong_key, known = differences(base, rl, 64)
    (line,) = (line for line in PAGE.splitlines() if line.startswith(f"| {step} | "))
    assert passed in line and line.endswith(f"| {wrong_key} | {known} |")
