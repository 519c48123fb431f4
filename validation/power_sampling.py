"""What power sampling is worth beside RL's default policy, order-free, from recorded counts.

    python validation/power_sampling.py                  # the pairs of the cohort whose Base was searched
    python validation/power_sampling.py --counts resources/zoo/cohort/power    # every pair (config/zoo-power.yaml)

For each pair and benchmark of config/zoo.yaml with a sampler of p^alpha on either side: the share of questions solved
by b samples of the sampler minus that of b samples of RL's default policy (equal samples), and the share of one text
minus that of as many samples of RL as cost the same (equal tokens). Every share is the exact mean over all subsets of
the samples; brackets are 95% percentile bootstrap intervals over questions, both sides of a question together. p is of
b = 1, from random sign flips over questions, after Holm over all rows of the table that have one. The default policy of
Base is there for comparison, without p. On the side of RL the last two columns subtract Base under the same policy.
A second table has the means over the pairs of config/zoo.yaml that are no extras: these models, other questions.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from searchlens.analysis.classes import from_text
from searchlens.analysis.pool import missed
from searchlens.analysis.uncertainty import Floats, Resamples, holm, with_width
from searchlens.boptr.inference import sign_flip_test
from searchlens.store import recorded_counts

ROOT = Path(__file__).parents[1]
DEFAULT = "topp0.95_t1.0"
SAMPLERS = ("power", "smc")
BUDGETS = (1, 4, 16)
FLIPS = 20_000
PAIRS = ("pair", "benchmark", "side", "policy", "tokens", "solved (%)", "b = 1", "b = 4", "b = 16")
MEANS = ("pairs", "benchmark", "side", "policy", "b = 1", "b = 4", "b = 16", "equal tokens")
SAME = {1: "RL − Base, b = 1", 4: "RL − Base, b = 4"}


@dataclass(frozen=True)
class Row:
    """A policy on one side of a pair, RL's default policy, and Base under the policy; all on the same questions."""

    pair: str
    benchmark: str
    side: str
    policy: str
    ours: dict[str, Any]
    theirs: dict[str, Any]
    base: dict[str, Any] | None

    @property
    def equal(self) -> int:
        """Samples of RL's default policy that cost as many tokens as one text of this."""
        return round(tokens(self.ours) / tokens(self.theirs))

    @property
    def gaps(self) -> list[Floats | None]:
        """Differences of each question, in percentage points; None where either side has too few samples.

        ``b`` samples of each; one text against ``equal`` samples of RL; on the side of RL, RL minus Base under the same
        policy.
        """
        base = self.base if self.side == "rl" else None
        return [
            *(gap(self.ours, budget, self.theirs, budget) for budget in BUDGETS),
            gap(self.ours, 1, self.theirs, max(self.equal, 1)),
            *(gap(self.ours, budget, base, budget) if base else None for budget in SAME),
        ]

    @property
    def p(self) -> float:
        """Of the difference at b = 1; NaN for the default policy."""
        at_one = self.gaps[0] if self.policy.startswith(SAMPLERS) else None
        return float("nan") if at_one is None else sign_flip_test(at_one[:, 0], FLIPS)

    def cells(self, p: float) -> list[str]:
        """The line of the first table, with the corrected p."""
        *shown, level, same, later = map(interval, self.gaps)
        solves = f"{100 * solved(self.ours, 1).mean():.1f}"
        names = [self.pair, self.benchmark, self.side, self.policy, f"{tokens(self.ours):.0f}", solves]
        return [*names, *shown, "" if np.isnan(p) else f"{p:.3f}", str(self.equal), level, same, later]


def main() -> None:
    """Print two Markdown tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--counts", type=Path, default=ROOT / "resources/zoo/cohort/recorded_counts")
    folder = parser.parse_args().counts
    study = yaml.safe_load((ROOT / "config/zoo.yaml").read_text())
    rows = list(rows_of(folder, study["pairs"]))
    corrected = holm([row.p for row in rows])
    lines = [row.cells(float(p)) for row, p in zip(rows, corrected, strict=True)]
    print(markdown((*PAIRS, "p, Holm", "RL samples", "equal tokens", *SAME.values()), lines))
    print()
    print(markdown((*MEANS, *SAME.values()), means(rows, study["measures"]["joint_pairs"])))


def rows_of(folder: Path, pairs: dict[str, Any]) -> Iterator[Row]:
    """The samplers of each pair, and Base's default policy where Base has a sampler."""
    for name, pair in pairs.items():
        for file in sorted((folder / pair["rl"]).glob("*.arrow.xz")):
            sides = {side: cell(folder / pair[side] / file.name) for side in ("base", "rl")}
            for side, policies in sides.items():
                if any(policy.startswith(SAMPLERS) for policy in policies):
                    shown = {DEFAULT} if side == "base" else set()
                    for policy, row in policies.items():
                        if policy in shown or policy.startswith(SAMPLERS):
                            names = (name, file.name.partition(".")[0], side, policy)
                            yield Row(*names, row, sides["rl"][DEFAULT], sides["base"].get(policy))


def means(rows: Sequence[Row], names: Sequence[str]) -> Iterator[list[str]]:
    """One line for each benchmark, side and policy: the mean over the pairs that have it, question by question."""
    by_key: dict[tuple[str, str, str], list[Row]] = {}
    for row in rows:
        if row.pair in names:
            by_key.setdefault((row.benchmark, row.side, row.policy), []).append(row)
    for (benchmark, side, policy), group in sorted(by_key.items()):
        columns = zip(*(row.gaps for row in group), strict=True)
        yield [str(len(group)), benchmark, side, policy, *(interval(mean(column)) for column in columns)]


def mean(gaps: Iterable[Floats | None]) -> Floats | None:
    """Mean over pairs of the differences of each question; None if a pair has none."""
    found = list(gaps)
    known = [each for each in found if each is not None]
    return np.mean(known, axis=0) if known and len(known) == len(found) else None


def cell(file: Path) -> dict[str, dict[str, Any]]:
    """The rows of a cell by policy; none if the cell has no counts."""
    if not file.is_file():
        return {}
    return {row["policy"]: row for row in recorded_counts.read(file).to_dicts()}


def tokens(row: dict[str, Any]) -> float:
    """Mean tokens drawn for one text of a question."""
    return next(float(point["value"]) for point in row["points"] if point["metric"] == "C" and point["budget"] == 1)


def solved(row: dict[str, Any], k: int) -> Floats:
    """Chance that k samples, drawn without replacement, have a right one; shape (questions, 1)."""
    sizes, is_right = from_text(row["classes"])
    chance: Floats = 1 - missed(row["samples"], [k])[(sizes * is_right).sum(1)]
    return chance


def gap(ours: dict[str, Any], our_budget: int, theirs: dict[str, Any], their_budget: int) -> Floats | None:
    """Ours minus theirs for each question, in percentage points; None if either has too few samples."""
    if our_budget > ours["samples"] or their_budget > theirs["samples"]:
        return None
    return 100 * (solved(ours, our_budget) - solved(theirs, their_budget))


def interval(values: Floats | None) -> str:
    """Mean over questions with its interval, such as ``+3.7 [2.4, 5.0]``; empty for None."""
    if values is None:
        return ""
    drawn = Resamples.draw(len(values), draws=4000, seed=0).interval(values)
    ends = with_width(values.mean(0), drawn, len(values), limits=(-100, 100))
    return f"{values.mean():+z.1f} [{ends.lo[0]:z.1f}, {ends.hi[0]:z.1f}]"


def markdown(columns: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    """A table with a line for each of ``lines``."""
    rule = "|" + "---|" * len(columns)
    return "\n".join(["| " + " | ".join(columns) + " |", rule, *("| " + " | ".join(line) + " |" for line in lines)])


if __name__ == "__main__":
    main()
