"""What docs/findings.md says RL is worth in samples of Base, from the committed counts.

    python validation/page_numbers.py

Four tables. The first three have the default policy on both sides: N*(b) of the anchor; N*(b) and the local exponents
of log N* in log b of every pair on math and AIME, and of the anchor on all; where Base passes RL, at equal samples and
tokens. The last one has the exponents that are not rejected. Brackets are 95% over questions.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import polars as pl
import yaml

from searchlens.analysis.claims import EQUIVALENT, MEETING, interval, located
from searchlens.analysis.classes import Pool, independent_pools, recorded_classes
from searchlens.analysis.equivalents import crossing, equivalents, summary
from searchlens.analysis.pair_measures import PairPools
from searchlens.analysis.pair_measures import exponent_sets as study_sets
from searchlens.analysis.uncertainty import Resamples
from searchlens.config.general import General
from searchlens.store import recorded_counts

ROOT = Path(__file__).parents[1]
COUNTS = ROOT / "resources/zoo/cohort/recorded_counts"
DEFAULT = "topp0.95_t1.0"
ANCHOR = "anchor"
BENCHMARKS = ("math", "aime", "gpqa", "ifeval")
WORTH = (1, 2, 4, 8, 16, 32, 64, 256)
STEPS = (1, 4, 16)
"""Budgets between which local exponents are read."""
CONFIDENCE = 0.95


def recorded(checkpoint: str, benchmark: str) -> pl.DataFrame:
    """The estimates of a cell."""
    return recorded_counts.read(COUNTS / checkpoint / f"zoo-{benchmark}.arrow.xz")


def pool(checkpoint: str, benchmark: str) -> Pool:
    """The recorded samples of the default policy, with their mean tokens."""
    rows = recorded(checkpoint, benchmark)
    points = rows.filter(policy=DEFAULT)["points"].item()
    tokens = next(point["value"] for point in points if point["metric"] == "C" and point["budget"] == 1)
    return independent_pools(recorded_classes(rows), {DEFAULT: float(tokens)})[DEFAULT]


def draws(rl: Pool) -> Resamples:
    """Those of the study: config/zoo.yaml has the seed and their number."""
    return Resamples.draw(len(rl.questions), 2000, 42)


def worth(base: Pool, rl: Pool, budgets: tuple[int, ...]) -> Iterator[str]:
    """N* at some budgets, as pages print it."""
    there = [b for b in budgets if b <= rl.samples]
    found = {row["budget"]: row for row in summary(equivalents([base], rl, there, draws(rl)), CONFIDENCE).to_dicts()}
    for budget in budgets:
        row = found.get(budget)
        yield "—" if row is None else located(EQUIVALENT, row)


def exponents(base: Pool, rl: Pool) -> Iterator[str]:
    """Local exponents, and the second minus the first."""
    read = equivalents([base], rl, STEPS, draws(rl))
    for row in summary(read, CONFIDENCE).to_dicts()[:-1]:
        yield interval(row["slope"], row["slope_lo"], row["slope_hi"], digits=2)
    with np.errstate(invalid="ignore"):
        first, second = np.diff(read.log2_n, axis=0) / 2
        change = second - first
    known = change[1:][np.isfinite(change[1:])]
    ends = np.quantile(known, [0.025, 0.975]) if np.isfinite(change[0]) else (None, None)
    yield interval(change[0] if np.isfinite(change[0]) else None, *ends, digits=2, sign="+")


def crossings(base: Pool, rl: Pool) -> Iterator[str]:
    """Where Base passes RL, at equal samples and tokens, as budgets of RL."""
    for exchange in (1.0, rl.tokens / base.tokens):
        (row,) = crossing(base, rl, draws(rl), CONFIDENCE, exchange=exchange).to_dicts()
        yield located(MEETING, row)


def exponent_sets(pair: dict[str, str], benchmark: str) -> Iterator[str]:
    """Sets and exponents of least error, under any policy of Base and under the default one."""
    base, rl = (independent_pools(recorded_classes(recorded(pair[role], benchmark)), {}) for role in ("base", "rl"))
    sampled = {name: pool for name, pool in base.items() if name != "greedy"}
    frames = study_sets(PairPools("", "", sampled, rl), General(default_policy=DEFAULT, seed=42))
    for row in frames["exponents"].to_dicts():
        yield "empty" if row["empty"] else f"{row['beta_lo']:.2f}–{row['beta_hi']:.2f}{', hardly' * row['hardly']}"
        yield f"{row['untested']:.0%}"
        yield interval(row["beta_l1"], row["beta_l1_lo"], row["beta_l1_hi"], digits=2)


def table(title: str, columns: tuple[object, ...], lines: Iterator[list[str]]) -> None:
    """Print a Markdown table."""
    print(f"\n{title}\n\n| {' | '.join(map(str, columns))} |\n{'|---' * len(columns)}|")
    for line in lines:
        print(f"| {' | '.join(line)} |", flush=True)


def main() -> None:
    """Print the tables."""
    pairs = yaml.safe_load((ROOT / "config/zoo.yaml").read_text())["pairs"]
    sides = {
        (name, benchmark): (pool(pair["base"], benchmark), pool(pair["rl"], benchmark))
        for name, pair in pairs.items()
        for benchmark in BENCHMARKS
    }
    anchor = ([name, *worth(*sides[ANCHOR, name], WORTH)] for name in BENCHMARKS)
    table("N*(b) of the anchor", ("benchmark", *WORTH), anchor)
    pairs_shown = [each for each in sides.items() if each[0][0] == ANCHOR or each[0][1] in BENCHMARKS[:2]]
    by_pair = ([*key, *worth(*both, STEPS), *exponents(*both)] for key, both in pairs_shown)
    heads = ("pair", "benchmark", *(f"N*({b})" for b in STEPS), "1 to 4", "4 to 16", "second − first")
    table("Every pair", heads, by_pair)
    passed = ([*key, *crossings(*both)] for key, both in pairs_shown)
    table("Base passes RL at", ("pair", "benchmark", "equal samples", "equal tokens"), passed)
    sets = ([*key, *exponent_sets(pairs[key[0]], key[1])] for key in sides)
    of_any = ("any policy: set", "not tested", "least error", "default policy: set", "not tested", "least error")
    table("Exponents", ("pair", "benchmark", *of_any), sets)


if __name__ == "__main__":
    main()
