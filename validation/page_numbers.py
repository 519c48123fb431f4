"""The numbers of README.md and docs/findings.md.

    python validation/page_numbers.py    # four tables of docs/findings-tables.md, from estimates
    python validation/page_numbers.py --quote results/zoo-tables    # docs/findings.csv, after `make zoo-tables`

The tables: the first three have the default policy on both sides: N*(b) of the anchor; N*(b) and the local exponents of
log N* in log b of every pair on math and AIME, and of the anchor on all; where Base passes RL, at equal samples and
tokens. The last one has the exponents that are not rejected. Brackets are 95% over questions. With ``--quote``, every
number that the pages quote, but those of power_sampling.py, and what it is.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import polars as pl
import yaml

from searchlens.analysis import measures
from searchlens.analysis.claims import EQUIVALENT, MEETING, bracket, interval, located, number
from searchlens.analysis.classes import Pool, independent_pools, recorded_classes
from searchlens.analysis.equivalents import crossing, equivalents, summary
from searchlens.analysis.pair_measures import PairPools
from searchlens.analysis.pair_measures import exponent_sets as study_sets
from searchlens.analysis.uncertainty import Resamples
from searchlens.config.general import General
from searchlens.store import recorded_counts

ROOT = Path(__file__).parents[1]
COUNTS = ROOT / "resources/zoo/cohort/recorded_counts"
PRETRAINED = ROOT / "resources/pretrained/adapters"
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


def pool(rows: pl.DataFrame) -> Pool:
    """The recorded samples of the default policy, with their mean tokens."""
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


# ---- quoted numbers

Quoted = Iterator[tuple[str, str]]
"""A number as pages print it, and what it is."""


def quoted_of_counts() -> Quoted:
    """From the committed counts alone."""
    base, rl = (pool(recorded(f"{ANCHOR}-{side}", "math")) for side in ("base", "rl"))
    yield from quoted_worth("toy math, anchor", base, rl)
    for name in ("mawps", "svamp", "gsm8k"):
        base, rl = (
            pool(recorded_counts.read(PRETRAINED / f"gemma-{side}/{name}.arrow.xz")) for side in ("warm", "rl-60")
        )
        yield from quoted_worth(name, base, rl)
        last = [base.samples]
        solved = measures.compared("pass@k", base.solved(last), rl.solved(last), draws(rl), CONFIDENCE, ks=last)
        for row in pl.concat([solved, measures.beside_wrong_key(base, rl, last, draws(rl), CONFIDENCE)]).to_dicts():
            ends = (100 * row[key] for key in ("value", "lo", "hi"))
            yield interval(*ends, digits=1), f"{name}: {row['measure']}, {row['side']}, k = {row['k']}"


def quoted_worth(name: str, base: Pool, rl: Pool) -> Quoted:
    """N* and the crossing at equal samples."""
    for budget, text in zip(STEPS, worth(base, rl, STEPS), strict=True):
        yield text, f"{name}: N*({budget})"
    yield next(crossings(base, rl)), f"{name}: Base passes RL at"


def quoted_of_tables(tables: Path) -> Quoted:
    """From what ``make zoo-tables`` writes, and the estimates."""
    study = yaml.safe_load((ROOT / "config/zoo.yaml").read_text())
    ten = {name: study["pairs"][name] for name in study["measures"]["joint_pairs"]}
    yield from quoted_envelopes(tables / "recovery", ten)
    for benchmark in ("zoo-math", "zoo-aime"):
        for pair in ten:
            frame = pl.read_parquet(tables / f"recovery/{pair}/{benchmark}/same_policy.parquet")
            (row,) = frame.filter(metric="P", estimator="unbiased", policy=DEFAULT, budget=16).to_dicts()
            ends = (-100 * row[key] for key in ("rl_minus_base", "hi", "lo"))
            yield interval(*ends, digits=1), f"{benchmark}, {pair}: Base minus RL, default policy, b = 16"
    yield from quoted_errors(tables / "boptr", list(ten))


def quoted_envelopes(recovery: Path, pairs: dict[str, dict[str, str]]) -> Quoted:
    """In how many cells RL is above every sampling policy of Base, and above its greedy answer as well."""
    files = [(pair, file) for pair in pairs for file in sorted((recovery / pair).glob("*/support.parquet"))]
    cells = pl.concat(
        pl.read_parquet(file)
        .filter(metric="P", estimator="unbiased")
        .with_columns(greedy=above_greedy(pairs[pair], file.parent.name.removeprefix("zoo-")))
        for pair, file in files
    )
    above = pl.col("rl_minus_best_lo") > 0
    both, largest = (above & pl.col("greedy")).sum().alias("both"), pl.col("rl_minus_best").max()
    counts = cells.group_by("budget", maintain_order=True).agg(above.sum(), both, largest)
    for budget, sampling, greedy, gap in counts.rows():
        yield f"{sampling} of {len(files)}", f"RL above every sampling policy of Base, b = {budget}"
        yield f"{greedy} of {len(files)}", f"and above its greedy answer, b = {budget}"
        yield number(100 * gap, 1), f"largest difference, b = {budget}"


def above_greedy(pair: dict[str, str], benchmark: str) -> pl.Series:
    """Whether RL is above Base's greedy answer, budget by budget."""
    base, rl = (independent_pools(recorded_classes(recorded(pair[side], benchmark)), {}) for side in ("base", "rl"))
    gap = rl[DEFAULT].solved([1, 2, 4, 8, 16]) - base["greedy"].solved([1])
    return pl.Series(draws(rl[DEFAULT]).interval(gap).lo > 0)


def quoted_errors(folder: Path, ten: list[str]) -> Quoted:
    """How far paths and rules are from RL's curve."""
    errors, means, contrasts, nulls = (
        pl.read_parquet(folder / f"{name}.parquet") for name in ("errors", "means", "contrasts", "nulls")
    )
    paths = errors.filter(rule="V1", pool="ar", exponents="paper")
    yield number(paths.filter(pl.col("model").is_in(ten))["error"].max(), 1), "V1, ten pairs: largest"
    control = paths.filter(model="control", benchmark="zoo-math")["error"].item()
    yield number(control, 1), "V1, control, math"
    for row in means.filter(exponents="paper", pool="ar", scope="vertical", column="macro").to_dicts():
        if row["rule"] in ("V1", "V2-δ0", "V3", "Base+gain", "H1"):
            ends = (row[key] for key in ("corrected", "lo_corrected", "hi_corrected"))
            yield interval(*ends, digits=1), f"{row['rule']}: error, {row['cells']} fitted cells"
    for row in contrasts.filter(exponents="paper", scope="planned", first="V3").to_dicts():
        ends = (row[key] for key in ("corrected", "lo_corrected", "hi_corrected"))
        yield interval(*ends, digits=1), f"V3 minus {row['second']}: over questions"
        yield bracket(row["lo_both"], row["hi_both"], 1), f"V3 minus {row['second']}: over models"
        yield number(row["p_both_holm"]), f"V3 minus {row['second']}: p over models, after Holm"
    for row in nulls.filter(pl.col("rule").is_in(["V1", "V3", "Base+gain"])).to_dicts():
        yield number(row["error"]), f"{row['rule']}: raw error, own RL"
        yield number(row["null_mean"]), f"{row['rule']}: raw error, RL of another model"
        yield number(row["p"], 3), f"{row['rule']}: p of the two"


def main() -> None:
    """Print the tables, or write the quoted numbers."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quote", type=Path, metavar="TABLES")
    tables = parser.parse_args().quote
    if tables is None:
        print_tables()
        return
    found = {"recorded counts": quoted_of_counts(), "zoo-tables": quoted_of_tables(tables)}
    rows = [(*row, source) for source, quoted in found.items() for row in quoted]
    pl.DataFrame(rows, ["number", "what", "from"], orient="row").write_csv(ROOT / "docs/findings.csv")


def print_tables() -> None:
    """Four Markdown tables."""
    pairs = yaml.safe_load((ROOT / "config/zoo.yaml").read_text())["pairs"]
    sides = {
        (name, benchmark): (pool(recorded(pair["base"], benchmark)), pool(recorded(pair["rl"], benchmark)))
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
