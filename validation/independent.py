"""Compute the measures again from the recorded counts, with code of its own, and compare with the frames of a run.

    python validation/independent.py --results results/zoo-tables

It uses nothing of the packages that made the frames: estimates are read as an Arrow table in an xz stream, counts taken
from the sizes of answer classes, and every number computed from its definition (docs/measures.md), by another route
than in the library where there is one:

* N*(b) and its slopes under the default policy, support counts with SRR and NDR, Cover@tau, G-Pass@k, pass@k, and
  pass@k corrected for guessing, in every cell;
* sets of exponents, the moments of each law written out question by question: under the default policy in every cell,
  under any policy in the cells of ``--any`` (two minutes a cell);
* errors of the rows H2, mean RL, Base+gain, V3 and B0 in every fitted cell (BOPTR, order-free, raw, the paper's
  exponents, default options). Curves and fits are computed here; the selector's votes and costs are taken from
  ``points.parquet``.

Prints numbers compared, equal and differing. The exit status is 1 if any differ.
"""

from __future__ import annotations

import argparse
import gzip
import io
import json
import lzma
import math
import re
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import polars as pl
import yaml
from scipy import stats

COUNTS = Path("resources/zoo/cohort/recorded_counts")
QUESTIONS = Path("resources/zoo/cohort/benchmarks")
DEFAULT = "topp0.95_t1.0"
STUDY = yaml.safe_load(Path("config/zoo.yaml").read_text())
PAIRS = {name: (pair["base"], pair["rl"]) for name, pair in STUDY["pairs"].items()}
FITTED = list(PAIRS)[:7]
BENCHMARKS = ("math", "aime", "gpqa", "ifeval", "amc", "minerva", "olympiad", "tinymmlu")
BUDGETS = (1, 2, 4, 8, 16)
TERM = re.compile(r"(\d+)(\+?)(?:x(\d+))?")
REGIMES = {"math": (0.6, None), "aime": (0.0, math.log(2)), "gpqa": (1.0, 0.0), "ifeval": (1.0, 0.0)}
"""Exponent and mu of a fitted benchmark; None is the mean over models."""
Counts = dict[str, tuple[np.ndarray, int]]
"""Policy to the right samples of each question, and the number of samples."""


def counts(checkpoint: str, benchmark: str) -> Counts:
    """Policies with independent samples, greedy left out."""
    packed = (COUNTS / checkpoint / f"zoo-{benchmark}.arrow.xz").read_bytes()
    found = {}
    for row in pl.read_ipc(io.BytesIO(lzma.decompress(packed))).iter_rows(named=True):
        if row["width"] == 1 and row["policy"] != "greedy":
            sizes = [TERM.findall(text or "") for text in row["classes"]]
            right = [sum(int(size) * int(times or 1) for size, plus, times in terms if plus) for terms in sizes]
            order = np.argsort(row["question"]) if row["question"] else np.arange(len(right))
            found[row["policy"]] = np.array(right)[order], int(row["samples"])
    return found


def passes(right: np.ndarray, n: int, k: float) -> np.ndarray:
    """pass@k of each question at real k, from the product over the right samples."""
    table = np.ones(n + 1)
    for c in range(1, n + 1):
        table[c] = table[c - 1] * max(n - k - (c - 1), 0) / (n - (c - 1))
    return 1 - table[right]


def knots(n: int) -> np.ndarray:
    """Quarters of octaves up to n, and n."""
    ks = [2 ** (j / 4) for j in range(4 * 20) if 2 ** (j / 4) < n - 1e-9]
    return np.array([*ks, n])


def equivalent(base: tuple[np.ndarray, int], rl: tuple[np.ndarray, int], b: int) -> float:
    """N*(b); NaN outside of the pool."""
    target = passes(*rl, b).mean()
    if target < passes(*base, 1).mean() - 1e-9 or target >= passes(*base, base[1]).mean() - 1e-9:
        return math.nan
    low, high = 1.0, float(base[1])
    while high - low > 1e-9 * low:
        middle = (low + high) / 2
        low, high = (low, middle) if passes(*base, middle).mean() >= target - 1e-12 else (middle, high)
    return high


# ---- exponents


def law_set(base: list[tuple[np.ndarray, int]], rl: tuple[np.ndarray, int]) -> tuple[float, float]:
    """Hull of the betas of the grid that some tested law of these policies has without being rejected; NaN if none."""
    inside = np.zeros(81, bool)
    for right, n in base:
        inside |= accepted(right, n, rl)
    betas = np.arange(81) / 50
    return (float(betas[inside].min()), float(betas[inside].max())) if inside.any() else (math.nan, math.nan)


def accepted(right: np.ndarray, n: int, rl: tuple[np.ndarray, int]) -> np.ndarray:
    """Whether each beta has a tested law under this policy that is not rejected at 5%."""
    ks = knots(n)
    ours = np.stack([passes(right, n, k) for k in ks])
    theirs = np.stack([passes(*rl, b) for b in BUDGETS])
    questions, position = len(right), np.log2(ks)
    gaps = ours[None] - theirs[:, None]
    second, fourth = (gaps**2).sum(-1) ** 2, (gaps**4).sum(-1)
    rests = np.divide(second, fourth, out=np.zeros_like(second), where=fourth > 0)
    fits, kept = np.zeros(81, bool), {}
    for j in range(81):
        for i in range(121):
            x = ((i - 20) / 20 + j / 50 * np.log2(BUDGETS)).round(9)
            key = tuple(np.clip(x, -0.01, position[-1] + 0.01))
            if key not in kept:
                kept[key] = _p_value(x, position, ours, theirs, rests >= min(20, questions / 10))
            if kept[key] >= 0.05 - 1e-12:
                fits[j] = True
                break
    return fits


def _p_value(x: np.ndarray, position: np.ndarray, ours: np.ndarray, theirs: np.ndarray, enough: np.ndarray) -> float:
    """Of the law at these positions; 0 if it is not tested."""
    moments, outside = [], []
    for i, whole in enumerate(x):
        outside.append(int(whole > position[-1] + 1e-9) - int(whole < -1e-9))
        at = float(np.clip(whole, 0, position[-1]))
        above = max(int(np.searchsorted(position, at - 1e-9)), 1)
        share = round((at - position[above - 1]) / (position[above] - position[above - 1]), 9)
        if all(enough[i, k] for k, weight in ((above - 1, 1 - share), (above, share)) if weight > 0):
            moments.append((1 - share) * ours[above - 1] + share * ours[above] - theirs[i])
        else:
            outside.pop()
    if len(moments) < 2:
        return 0.0
    binding = [g for g, side in zip(moments, outside, strict=True) if side == 0]
    for g, side in zip(moments, outside, strict=True):
        if side * (g.mean() - _expected(g, binding)) > 0:
            binding.append(g)
    m, questions = len(binding), ours.shape[1]
    if m == 0:
        return 1.0
    j = questions * sum(g.mean() * weight for g, weight in zip(binding, _weights(binding), strict=True))
    df = max(m - 1, 1)  # alpha is fitted
    return float(stats.f.sf(j * (questions - df) / (df * (questions - 1)), df, questions - df))


def _weights(moments: list[np.ndarray]) -> np.ndarray:
    """V^-1 times the means."""
    g = np.array(moments)
    return np.linalg.solve(np.cov(g).reshape(len(g), len(g)) + 1e-5 * np.eye(len(g)), g.mean(axis=1))


def _expected(moment: np.ndarray, others: list[np.ndarray]) -> float:
    """The mean of a moment, given those of the others."""
    weights = _weights(others) if others else ()
    return sum(float(np.cov(moment, g)[0, 1] * w) for g, w in zip(others, weights, strict=True))


# ---- rule


class Side:
    """Base in a cell: pass@k, votes and mean tokens of the 24 autoregressive policies."""

    def __init__(self, results: Path, checkpoint: str, benchmark: str) -> None:
        found = counts(checkpoint, benchmark)
        self.names = [name for name in found if not name.startswith("power_")]  # searches, sampled for the anchor alone
        self.P = np.array([[passes(*found[name], b).mean() for b in BUDGETS] for name in self.names])
        points = pl.read_parquet(results / "landscape" / checkpoint / f"zoo-{benchmark}" / "points.parquet")
        votes = points.filter(metric="Q", estimator="unbiased")
        by_point = {(p, n): value for p, n, value in votes.select("policy", "budget", "value").iter_rows()}
        self.Q = np.array([[by_point[name, b] for b in BUDGETS] for name in self.names])
        cost = dict(points.filter(metric="C", budget=1).select("policy", "value").iter_rows())
        self.tokens = np.array([cost[name] for name in self.names])


def nearest(log2_alpha: float, beta: float) -> np.ndarray:
    """Position of the budget nearest to alpha b^beta, on the log2 scale; halves go up."""
    rounded = np.floor(np.clip(log2_alpha + beta * np.arange(5), 0, 4) + 0.5 + 1e-9)
    return np.asarray(rounded.clip(0, 4), int)


def fitted(curves: np.ndarray, target: np.ndarray, betas: list[float], prefer: float) -> tuple[float, np.ndarray, int]:
    """log2 alpha, path and policy of the closest law; ties by the error without rounding, then as in the library."""
    candidates = []
    for fifths in range(-10, 21):
        for beta in betas:
            path = nearest(fifths / 5, beta)
            smooth = np.clip(fifths / 5 + beta * np.arange(5), 0, 4)
            for policy, curve in enumerate(curves):
                error = np.abs(curve[path] - target).sum()
                unrounded = np.abs(np.interp(smooth, np.arange(5), curve) - target).sum()
                candidates.append((error, unrounded, round(abs(beta - prefer), 9), -fifths, policy, beta))
    least = min(candidate[0] for candidate in candidates)
    tied = [candidate for candidate in candidates if candidate[0] <= least + 2e-6]
    closest = min(candidate[1] for candidate in tied)
    best = min((c for c in tied if c[1] <= closest + 2e-7), key=lambda c: c[2:])
    return -best[3] / 5, nearest(-best[3] / 5, best[5]), best[4]


def behaviour(side: Side) -> np.ndarray:
    """Coordinates of every policy at every budget, shape (5, policies, budgets)."""

    def ranks(values: np.ndarray) -> np.ndarray:
        gaps = values[:, None] - values[None]
        below = (gaps > 2e-6).sum(axis=1) + 0.5 * ((np.abs(gaps) <= 2e-6).sum(axis=1) - 1)
        return np.asarray(below / (len(values) - 1))

    cost = np.log(side.tokens)
    scaled = ((cost - cost.min()) / np.ptp(cost))[:, None].repeat(5, axis=1)
    return np.stack([ranks(side.P), ranks(side.P - side.Q), ranks(side.Q), np.zeros_like(scaled), scaled])


def rule_errors(
    sides: dict[tuple[str, str], Side], rls: dict[tuple[str, str], np.ndarray]
) -> dict[tuple[str, str, str], float]:
    """Errors of V3 and B0 (docs/glossary.md): row, pair and benchmark to percentage points."""
    weights = np.array([1, 1, 1, 0.5, 0.2])[:, None]
    anchor = sides["anchor", "math"]
    scale = {pair: fitted(sides[pair, "math"].P, rls[pair, "math"], [0.6], 0.6)[0] for pair in FITTED}
    mean = float(np.mean(list(scale.values())))
    _, path, policy = fitted(anchor.P, rls["anchor", "math"], [i / 10 for i in range(13)], 0.6)
    prototype = behaviour(anchor)[:, policy, path].mean(axis=1)
    found = {}
    for (pair, benchmark), side in sides.items():
        beta, mu = REGIMES[benchmark]
        level = mean if mu is None else mu / math.log(2)
        own = {"V3": level + scale[pair] - mean, "B0": scale["anchor"] if mu is None else level}
        described = behaviour(side)
        for row, log2_alpha in own.items():
            path = nearest(log2_alpha, beta)
            gaps = described[:, :, path] - prototype[:, None, None]
            loss = np.sqrt((weights[:, :, None] * gaps**2).sum(axis=0)).sum(axis=1)
            loss += 0.01 * side.tokens / side.tokens.max()
            chosen = min(range(len(side.names)), key=lambda i: (round(loss[i], 5), side.names[i]))
            found[row, pair, benchmark] = float(100 * np.abs(side.P[chosen][path] - rls[pair, benchmark]).mean())
    return found


# ---- comparison

TOLERANCE = 5e-5
"""Relative and absolute; BOPTR sums in float32."""
ANY = ("anchor/gpqa", "overtrained/math")
"""Pairs on benchmarks whose exponents are compared under any policy."""


class Comparison:
    """Counts of numbers that are equal and that differ, by kind."""

    def __init__(self) -> None:
        self.equal: Counter[str] = Counter()
        self.different: list[str] = []

    def add(self, kind: str, place: str, ours: float, theirs: float | None) -> None:
        """NaN and None are equal: there is no such number."""
        other = math.nan if theirs is None else float(theirs)
        same = math.isnan(ours) and math.isnan(other)
        if same or math.isclose(ours, other, rel_tol=TOLERANCE, abs_tol=TOLERANCE):
            self.equal[kind] += 1
        else:
            self.different.append(f"{kind}, {place}: here {ours:.6g}, there {other:.6g}")


def options_of(benchmark: str) -> np.ndarray | None:
    """Number of lettered options of each question, if all have some."""
    lines = gzip.decompress((QUESTIONS / f"{benchmark}.jsonl.gz").read_bytes()).decode().splitlines()
    numbers = np.array([len(set(re.findall(r"\(([A-Z])\)", line))) for line in map(_text, lines)])
    return numbers if (numbers > 1).all() else None


def _text(line: str) -> str:
    entry = json.loads(line)
    return str(next(entry[key] for key in ("question", "problem", "prompt") if key in entry))


def compare_cell(
    found: Comparison, frames: dict[str, pl.DataFrame], pair: str, benchmark: str, base: Counts, rl: Counts
) -> None:
    """All measures of a cell but the exponents under any policy."""
    place, one, two = f"{pair} {benchmark}", base[DEFAULT], rl[DEFAULT]
    cell = {"pair": pair, "benchmark": f"zoo-{benchmark}"}
    rows = frames["equivalents"].filter(policy=DEFAULT, **cell).rows(named=True)
    mine = {row["budget"]: equivalent(one, two, row["budget"]) for row in rows}
    for row in rows:
        found.add("N*", f"{place} b = {row['budget']}", mine[row["budget"]], row["n"])
        if (after := mine.get(2 * row["budget"])) is not None:
            found.add("slope", f"{place} b = {row['budget']}", math.log2(after / mine[row["budget"]]), row["slope"])
    has, gains = one[0] > 0, two[0] > 0
    kept, shrunk, expanded = (int(x.sum()) for x in (has & gains, has & ~gains, ~has & gains))
    row = frames["support"].filter(**cell).row(0, named=True)
    numbers = {"kept": kept, "shrunk": shrunk, "expanded": expanded, "out": len(has) - kept - shrunk - expanded}
    numbers |= {"srr": kept / (kept + shrunk) if kept + shrunk else math.nan}
    numbers |= {"ndr": expanded / (kept + expanded) if kept + expanded else math.nan}
    for name, value in numbers.items():
        found.add("support", f"{place} {name}", value, row[name])
    choices = options_of(benchmark)
    for row in frames["measures"].filter(**cell).iter_rows(named=True):
        side = {"Base": one, "RL": two}.get(row["side"])
        if side and (value := measured(row, side, choices)) is not None:
            found.add(row["measure"], f"{place} {row['side']} {row['k']} {row['tau']}", value, row["value"])
    rows = frames["exponents"].filter(policy=DEFAULT, **cell).iter_rows(named=True)
    for row in rows:
        for value, name in zip(law_set([one], two), ("beta_lo", "beta_hi"), strict=True):
            found.add("set, default policy", f"{place} {name}", value, row[name])


def measured(row: dict[str, object], side: tuple[np.ndarray, int], choices: np.ndarray | None) -> float | None:
    """One measure of one side; None if it is not computed here."""
    (right, n), k, tau = side, row["k"], row["tau"]
    if row["measure"] == "pass@k":
        return float(np.mean([1 - math.comb(n - int(c), int(k)) / math.comb(n, int(k)) for c in right]))
    if row["measure"] == "Cover@tau":
        return float((right >= tau * n - 1e-9).mean())
    if row["measure"] == "G-Pass@k":
        return float(stats.hypergeom.sf(math.ceil(tau * k - 1e-9) - 1, n, right, k).mean())
    if row["measure"] == "guess-corrected pass@k" and choices is not None:
        missed = np.array([math.comb(n - int(c), int(k)) / math.comb(n, int(k)) for c in right])
        return float((1 - missed / (1 - 1 / choices) ** k).mean())
    return None


def compare_rows(found: Comparison, errors: pl.DataFrame, benchmark: str) -> None:
    """Errors of three rows of BOPTR in the fitted cells of a benchmark."""
    curves = {}
    for pair in FITTED:
        sides = [counts(name, benchmark)[DEFAULT] for name in PAIRS[pair]]
        curves[pair] = [np.array([passes(*side, b).mean() for b in BUDGETS]) for side in sides]
    for pair, (base, rl) in curves.items():
        others = [curves[name] for name in FITTED if name != pair]
        predicted = {
            "H2": base,
            "mean RL": np.mean([one[1] for one in others], axis=0),
            "Base+gain": np.clip(base + np.mean([one[1] - one[0] for one in others], axis=0), 0, 1),
        }
        for row, curve in predicted.items():
            theirs = errors.filter(model=pair, benchmark=f"zoo-{benchmark}", rule=row)
            for value in theirs["error"].drop_nulls().to_list()[:1]:
                found.add(f"error of {row}", f"{pair} {benchmark}", float(100 * np.abs(curve - rl).mean()), value)


def compare_rule(found: Comparison, errors: pl.DataFrame, results: Path) -> None:
    """Errors of V3 and B0 in every fitted cell."""
    cells = [(pair, benchmark) for pair in FITTED for benchmark in REGIMES]
    sides = {(pair, benchmark): Side(results, PAIRS[pair][0], benchmark) for pair, benchmark in cells}
    rls = {
        (pair, benchmark): np.array([passes(*counts(PAIRS[pair][1], benchmark)[DEFAULT], b).mean() for b in BUDGETS])
        for pair, benchmark in cells
    }
    for (row, pair, benchmark), value in rule_errors(sides, rls).items():
        theirs = errors.filter(model=pair, benchmark=f"zoo-{benchmark}", rule=row, exponents="paper", mu="cohort")
        found.add(f"error of {row}", f"{pair} {benchmark}", value, theirs.filter(pool="ar")["error"].item())


def main() -> None:
    """Compare everything and print what differs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, default=Path("results/zoo-tables"))
    args = parser.parse_args()
    names = ("equivalents", "support", "measures", "exponents")
    frames = {name: pl.read_parquet(args.results / "measures" / f"{name}.parquet") for name in names}
    errors = pl.read_parquet(args.results / "boptr" / "errors.parquet")
    found = Comparison()
    for benchmark in BENCHMARKS:
        for pair, (base, rl) in PAIRS.items():
            sides = counts(base, benchmark), counts(rl, benchmark)
            compare_cell(found, frames, pair, benchmark, *sides)
            if f"{pair}/{benchmark}" in ANY:
                cell = {"pair": pair, "benchmark": f"zoo-{benchmark}", "policy": "any"}
                row = frames["exponents"].filter(**cell).row(0, named=True)
                ends = law_set(list(sides[0].values()), sides[1][DEFAULT])
                for value, name in zip(ends, ("beta_lo", "beta_hi"), strict=True):
                    found.add("set, any policy", f"{pair} {benchmark} {name}", value, row[name])
        if benchmark in BENCHMARKS[:4]:
            compare_rows(found, errors, benchmark)
        print(f"{benchmark}: {found.equal.total()} equal, {len(found.different)} differ", flush=True)
    compare_rule(found, errors, args.results)
    for kind in sorted({*found.equal, *(text.split(",")[0] for text in found.different)}):
        print(f"{kind}: {found.equal[kind]} equal")
    equal, differ = found.equal.total(), len(found.different)
    print(f"{equal + differ} compared, {equal} equal, {differ} differ")
    print("\n".join(found.different[:50]))
    sys.exit(bool(found.different))


if __name__ == "__main__":
    main()
