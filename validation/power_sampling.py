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
from pathlib import Path
from typing import Any

import yaml

from searchlens.landscape.class_sizes import from_text
from searchlens.landscape.subsets import missed
from searchlens.store import readouts
from searchlens.uncertainty import Floats, Resamples

ROOT = Path(__file__).parents[1]
DEFAULT = "topp0.95_t1.0"
SAMPLERS = ("power", "smc")
COLUMNS = (
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


def main() -> None:
    """Print one Markdown table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--readouts", type=Path, default=ROOT / "resources/zoo/cohort/readouts")
    folder = parser.parse_args().readouts
    pairs = yaml.safe_load((ROOT / "config/zoo.yaml").read_text())["pairs"]
    print("| " + " | ".join(COLUMNS) + " |")
    print("|" + "---|" * len(COLUMNS))
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
    return {row["policy"]: row for row in readouts.read(file).to_dicts()}


def line(names: tuple[str, ...], row: dict[str, Any], rl: dict[str, Any]) -> str:
    """One row of the table."""
    shared, equal = min(row["samples"], rl["samples"]), round(tokens(row) / tokens(rl))
    shown = [difference(solved(row, b), solved(rl, b)) if b <= shared else "" for b in (1, 4, 16)]
    level = difference(solved(row, 1), solved(rl, equal)) if equal <= rl["samples"] else ""
    cells = [*names, f"{tokens(row):.0f}", f"{100 * solved(row, 1).mean():.1f}", *shown, str(equal), level]
    return "| " + " | ".join(cells) + " |"


def tokens(row: dict[str, Any]) -> float:
    """Mean tokens drawn for one text of a question."""
    return next(float(point["value"]) for point in row["points"] if point["metric"] == "C" and point["budget"] == 1)


def solved(row: dict[str, Any], k: int) -> Floats:
    """Chance that k samples, drawn without replacement, have a right one; shape (questions, 1)."""
    sizes, is_right = from_text(row["classes"])
    return 1 - missed(row["samples"], [k])[(sizes * is_right).sum(1)]


def difference(ours: Floats, theirs: Floats) -> str:
    """Mean difference in percentage points with its interval, such as ``+3.7 [2.4, 5.0]``."""
    gap = 100 * (ours - theirs)
    ends = Resamples.draw(len(gap), draws=4000, seed=0).interval(gap)
    return f"{gap.mean():+z.1f} [{ends.lo[0]:z.1f}, {ends.hi[0]:z.1f}]"


if __name__ == "__main__":
    main()
