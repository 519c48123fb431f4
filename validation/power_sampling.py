"""What power sampling is worth beside RL's default policy, order-free, from compact readouts.

    python validation/power_sampling.py                  # the pairs of the cohort whose Base was searched
    python validation/power_sampling.py --readouts DIR   # other readouts, such as those of config/zoo-power.yaml

For each pair and benchmark of config/zoo.yaml with a sampler of p^alpha on either side: the share of questions solved
by b samples of the sampler minus that of b samples of RL's default policy (equal samples), and the share of one text
minus that of as many samples of RL as cost the same (equal tokens). Every share is the exact mean over all subsets of
the samples; brackets are 95% percentile bootstrap intervals over questions, both sides of a question together.
"""

from __future__ import annotations

import argparse
import io
import lzma
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl
import yaml
from scipy.special import gammaln

from searchlens.landscape.class_sizes import from_text
from searchlens.seeds import generator

ROOT = Path(__file__).parents[1]
DEFAULT = "topp0.95_t1.0"
SAMPLERS = ("power", "smc")
DRAWS = 4000
Floats = npt.NDArray[np.float64]


def main() -> None:
    """Print one Markdown table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--readouts", type=Path, default=ROOT / "resources/zoo/cohort/readouts")
    folder = parser.parse_args().readouts
    pairs = yaml.safe_load((ROOT / "config/zoo.yaml").read_text())["pairs"]
    titles = (
        "pair",
        "benchmark",
        "side",
        "policy",
        "tokens",
        "solved (%)",
        "b = 1",
        "b = 4",
        "b = 16",
        "RL samples",
        "minus RL",
    )
    print("| " + " | ".join(titles) + " |")
    print("|" + "---|" * len(titles))
    for name, pair in pairs.items():
        for file in sorted((folder / pair["rl"]).glob("*.arrow.xz")):
            rl = cell(file)[DEFAULT]
            for side in ("base", "rl"):
                for policy, row in cell(folder / pair[side] / file.name).items():
                    if policy.startswith(SAMPLERS):
                        print(line((name, file.name.partition(".")[0], side, policy), row, rl))


def cell(file: Path) -> dict[str, dict[str, Any]]:
    """The rows of a cell by policy; none if the cell has no readouts."""
    if not file.is_file():
        return {}
    frame = pl.read_ipc(io.BytesIO(lzma.decompress(file.read_bytes())))
    return {row["policy"]: row for row in frame.to_dicts()}


def line(names: tuple[str, ...], row: dict[str, Any], rl: dict[str, Any]) -> str:
    """One row of the table."""
    right, other = right_samples(row), right_samples(rl)
    n, m = row["samples"], rl["samples"]
    shown = [difference(solved(right, n, b), solved(other, m, b)) if b <= min(n, m) else "" for b in (1, 4, 16)]
    equal = round(tokens(row) / tokens(rl))
    level = difference(solved(right, n, 1), solved(other, m, equal)) if equal <= m else ""
    cells = [*names, f"{tokens(row):.0f}", f"{100 * solved(right, n, 1).mean():.1f}", *shown, str(equal), level]
    return "| " + " | ".join(cells) + " |"


def right_samples(row: dict[str, Any]) -> npt.NDArray[np.int64]:
    """Right samples of each question."""
    sizes, is_right = from_text(row["classes"])
    return np.asarray((sizes * is_right).sum(1))


def tokens(row: dict[str, Any]) -> float:
    """Mean tokens drawn for one text of a question."""
    return next(float(point["value"]) for point in row["points"] if point["metric"] == "C" and point["budget"] == 1)


def solved(right: npt.NDArray[np.int64], n: int, k: int) -> Floats:
    """Chance that k of n samples, drawn without replacement, have a right one; shape (questions,)."""
    wrong = n - right
    log_none = gammaln(wrong + 1) + gammaln(n - k + 1) - gammaln(n + 1) - gammaln(np.maximum(wrong - k, 0) + 1)
    return np.where(wrong < k, 1.0, 1 - np.exp(log_none))


def difference(ours: Floats, theirs: Floats) -> str:
    """Mean difference in percentage points with its interval, such as ``+3.7 [2.4, 5.0]``."""
    gap = 100 * (ours - theirs)
    chosen = generator("validation/power_sampling", len(gap)).integers(len(gap), size=(DRAWS, len(gap)))
    low, high = np.quantile(gap[chosen].mean(1), (0.025, 0.975))
    return f"{gap.mean():+.1f} [{low:.1f}, {high:.1f}]"


if __name__ == "__main__":
    main()
