"""Do intervals and bands of budget equivalents contain the true N*(b), and do exponent sets tell a law from a ceiling?

    python validation/equivalents.py    # writes docs/equivalents.csv

Worlds follow laws without rounding (``simulate.power_law``), so that N*(b) = alpha b^beta is known for every b, or a
law with a ceiling, where N*(b) follows from the two curves.

* ``interval``: questions of the zoo's anchor, as in exponents.py, or drawn from a Beta distribution; 64 or 16 samples.
  Also local exponents, the band at all b at once, and the crossing at equal samples and where a sample of RL costs
  ``EXCHANGE`` samples of Base.
* ``hard``: N* where a share of the questions is hard, ``HARD``: Base solves them with 1% of its samples, RL with 3%,
  and the log-odds of the others are normal around 1 and 1.6; 64 samples.
* ``best``: the upper edge of 24 policies, whose log-odds are spread evenly over ``SPREADS``; ``plain`` takes the
  largest curve of each draw, ``directional`` is ``measures.equivalents.upper_edge``.
* ``exponents``: share of worlds with an empty set, and with a set that contains the true alpha and beta.

One record per experiment, case, number of questions, b (0: none) and quantity.
"""

from __future__ import annotations

import time
import zlib
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from exponents import LEVEL, pool, population
from scipy.optimize import brentq
from scipy.special import expit, logit

from searchlens.analysis.classes import Pool, knots
from searchlens.analysis.equivalents import SAME, Equivalents, crossing, equivalents, inverse, summary
from searchlens.analysis.exponents import GRID, exponent_set, profile, test
from searchlens.analysis.uncertainty import Floats, Resamples
from searchlens_lab.simulate import power_law

POLICIES = 24
SPREADS = {"24 equal policies": 0.0, "24 policies, 0.15 logits": 0.15, "24 policies, 0.6 logits": 0.6}
HARD = ((0.01, 100), (0.01, 300), (0.03, 100), (0.03, 500))
"""Share of hard questions, and questions in all."""
DRAWS = 500
EXCHANGE = 0.7
Record = tuple[str, str, int, int, str, float, int]
COLUMNS = ("experiment", "case", "questions", "budget", "quantity", "value", "worlds")


class Law(NamedTuple):
    """RL solves a share ``ceiling`` of what alpha b^beta samples of Base solve."""

    alpha: float
    beta: float
    ceiling: float = 1.0

    def rl(self, solved: Floats, rng: np.random.Generator) -> Floats:
        """Probabilities of RL."""
        count = len(solved)
        right = power_law(solved, self.alpha, self.beta, rng.random(count), rng.exponential(size=count))
        return np.where(rng.random(count) < self.ceiling, right, 0)

    def equivalent(self, solved: Floats, budget: int) -> float:
        """N*(b) in the population of these questions."""

        def curve(n: float) -> float:
            return float(1 - ((1 - solved) ** n).mean())

        target = self.ceiling * curve(self.alpha * budget**self.beta)
        return float(2 ** brentq(lambda x: curve(2**x) - target, -20, 30))

    def crossing(self, solved: Floats, exchange: float) -> float:
        """The b from which on Base solves as much at the same cost: inf if beyond 256 or never, NaN if always."""
        x = np.linspace(0, 8, 128)  # no point is an exact crossing of these laws
        ahead = np.array([self.lead(solved, at, exchange) > SAME for at in x])
        if not ahead.any():
            return float("nan")
        last = int(np.flatnonzero(ahead)[-1])
        if last == len(x) - 1 or self.lead(solved, x[last + 1], exchange) >= 0:  # both solve everything there
            return float("inf")
        return float(2 ** brentq(lambda at: self.lead(solved, at, exchange), x[last], x[last + 1]))

    def lead(self, solved: Floats, x: float, exchange: float) -> float:
        """What RL solves with 2^x samples more than Base at the same cost."""
        rl = self.ceiling * float(1 - ((1 - solved) ** (self.alpha * 2 ** (x * self.beta))).mean())
        return rl - float(1 - ((1 - solved) ** (exchange * 2**x)).mean())


LAWS = {
    "RL is Base": Law(1, 1),
    "1.5 b^0.8": Law(1.5, 0.8),
    "2 b^0.5": Law(2, 0.5),
    "ceiling": Law(3, 0.8, 0.75),
}


class World(NamedTuple):
    """Whether the truth is covered and the upper end open, by budget; of the band, at all budgets at once.

    ``slope``: the same of slopes, NaN without an interval.
    ``edge``: whether an end of the band is 1 or the pool where that of the interval is not.
    """

    covered: list[bool]
    open: list[bool]
    band: bool
    error: list[float]
    length: list[float]
    slope: list[float]
    edge: bool


def judge(read: Equivalents, truth: list[float]) -> World:
    """Intervals against the truth; an open end contains everything beyond it."""
    rows = summary(read, LEVEL).to_dicts()
    covered, band, slope, edge = [], True, [], False
    for row, true in zip(rows, truth, strict=True):
        covered.append((row["lo_open"] or row["lo"] <= true) and (row["hi_open"] or true <= row["hi"]))
        if row["n"] is not None:
            low, high = row["band_lo"], row["band_hi"]
            band &= (low <= 1 or low <= true) and (high >= read.largest or true <= high)
            edge |= (low <= 1 and not row["lo_open"]) or (high >= read.largest and not row["hi_open"])
    for i, row in enumerate(rows[:-1]):
        true = np.log2(truth[i + 1] / truth[i]) / np.log2(read.budgets[i + 1] / read.budgets[i])
        known = row["slope_lo"] is not None
        slope.append(float(row["slope_lo"] <= true <= row["slope_hi"]) if known else float("nan"))
    end = np.log2(read.largest)
    error = (np.clip(read.log2_n[:, 0], 0, end) - np.clip(np.log2(truth), 0, end)).tolist()
    no_end = [bool(row["hi_open"]) for row in rows]
    return World(covered, no_end, band, error, [float(np.log2(row["hi"] / row["lo"])) for row in rows], slope, edge)


def judge_crossing(row: dict[str, Any], true: float) -> dict[str, bool]:
    """The interval of a crossing against the truth; an open end contains everything beyond it."""
    low = row["state"] == "below" or (row["lo_open"] and row["state"] != "above") or row["lo"] <= true
    high = row["state"] == "above" or (row["hi_open"] and row["state"] != "below") or true <= row["hi"]
    return {"covered": low and high, "open": row["lo_open"] or row["hi_open"]}


def records(experiment: str, case: str, questions: int, budgets: list[int], worlds: list[World]) -> Iterator[Record]:
    """Coverage and length by budget, and coverage of the band."""
    columns = {"coverage": "covered", "upper end open": "open", "error of log2 N": "error", "length in log2": "length"}
    for quantity, name in columns.items():
        means = np.mean([getattr(world, name) for world in worlds], axis=0)
        for budget, mean in zip(budgets, means, strict=True):
            yield experiment, case, questions, budget, quantity, float(mean), len(worlds)
    slopes = np.array([world.slope for world in worlds])
    for i, budget in enumerate(budgets[:-1]):
        known = slopes[~np.isnan(slopes[:, i]), i]
        if len(known):
            yield experiment, case, questions, budget, "slope coverage", float(known.mean()), len(known)
    yield experiment, case, questions, 0, "band", float(np.mean([world.band for world in worlds])), len(worlds)
    edge = float(np.mean([world.edge for world in worlds]))
    yield experiment, case, questions, 0, "band open where no interval is", edge, len(worlds)


# ---- one policy


def intervals(worlds: int) -> Iterator[Record]:
    """Intervals of N*(b) under one policy."""
    beta = np.random.default_rng(0).beta(0.6, 1.5, 4000)
    shapes = {
        "math": (population("anchor", "math"), 500, 64),
        "gpqa": (population("anchor", "gpqa"), 198, 64),
        "Beta(.6, 1.5)": (beta, 60, 16),
    }
    for shape, (solved, questions, samples) in shapes.items():
        budgets = [2**i for i in range(samples.bit_length() - 1)]
        for name, law in LAWS.items():
            truth = [law.equivalent(solved, b) for b in budgets]
            crossings = {exchange: law.crossing(solved, exchange) for exchange in (1.0, EXCHANGE)}
            found, met = [], {exchange: [] for exchange, true in crossings.items() if true > 0}
            for seed in range(worlds):
                rng = np.random.default_rng([seed, zlib.crc32(f"{shape}/{name}".encode())])
                p = solved[rng.integers(0, len(solved), questions)]
                base, rl = pool(p, samples, rng), pool(law.rl(p, rng), samples, rng)
                draws = Resamples.draw(questions, DRAWS, seed)
                found.append(judge(equivalents([base], rl, budgets, draws), truth))
                for exchange, each in met.items():
                    row = crossing(base, rl, draws, LEVEL, exchange=exchange).row(0, named=True)
                    each.append(judge_crossing(row, crossings[exchange]))
            yield from records("interval", f"{shape}, {name}", questions, budgets, found)
            for exchange, each in met.items():
                for quantity, mean in pl.DataFrame(each).cast(pl.Float64).mean().row(0, named=True).items():
                    case = f"{shape}, {name}, exchange {exchange}"
                    yield "crossing", case, questions, 0, quantity, mean, len(each)


def hard(worlds: int) -> Iterator[Record]:
    """Intervals of N*(b) where hard questions are rare, so that some samples have none."""
    budgets, normal = [1, 2, 4, 8, 16], np.random.default_rng(0).normal(size=40000)
    sides = (expit(1 + normal), 0.01), (expit(1.6 + normal), 0.03)
    for share, questions in HARD:
        truth = [_equal(share, sides, b) for b in budgets]
        found = []
        for seed in range(worlds):
            rng = np.random.default_rng([seed, questions, round(100 * share)])
            chosen, rare = rng.integers(0, len(normal), questions), rng.random(questions) < share
            base, rl = (pool(np.where(rare, chance, usual[chosen]), 64, rng) for usual, chance in sides)
            found.append(judge(equivalents([base], rl, budgets, Resamples.draw(questions, DRAWS, seed)), truth))
        yield from records("hard", f"{share} of the questions", questions, budgets, found)


def _equal(share: float, sides: tuple[tuple[Floats, float], tuple[Floats, float]], budget: int) -> float:
    """N*(b) in the population."""

    def solved(side: tuple[Floats, float], k: float) -> float:
        return float(1 - (1 - share) * ((1 - side[0]) ** k).mean() - share * (1 - side[1]) ** k)

    target = solved(sides[1], budget)
    return float(brentq(lambda k: solved(sides[0], k) - target, 0.1, 1000))


# ---- the best of many policies


def plain(base: list[Pool], rl: Pool, budgets: list[int], resamples: Resamples) -> Equivalents:
    """The largest curve of each draw."""
    ks = knots(base[0].samples)
    weights = np.concatenate([np.ones((resamples.questions, 1)), resamples.weights], axis=1) / resamples.questions
    curve = np.max([one.solved(ks).T @ weights for one in base], axis=0)
    log2_n = inverse(curve, np.log2(ks), rl.solved(budgets).T @ weights)
    never, many = np.zeros(len(budgets), bool), np.full(len(budgets), 1e9)
    return Equivalents(tuple(budgets), base[0].samples, log2_n, never, log2_n, many, many)


def best(worlds: int) -> Iterator[Record]:
    """The upper edge of policies of which RL is the best of two samples of the best."""
    hardest = np.random.default_rng(0).beta(0.6, 1.5, 4000)
    budgets, law = [1, 2, 4], Law(2, 1)
    for name, spread in SPREADS.items():
        for questions in (60, 200, 500):
            found: dict[str, list[World]] = {"plain": [], "directional": []}
            for seed in range(worlds):
                rng = np.random.default_rng([seed, questions])
                p = hardest[rng.integers(0, len(hardest), questions)]
                sides = [pool(expit(logit(p) + shift), 16, rng) for shift in np.linspace(-spread, 0, POLICIES)]
                rl, draws = pool(law.rl(p, rng), 16, rng), Resamples.draw(questions, DRAWS, seed)
                truth = [2.0 * b for b in budgets]
                found["plain"].append(judge(plain(sides, rl, budgets, draws), truth))
                found["directional"].append(judge(equivalents(sides, rl, budgets, draws), truth))
            for kind, each in found.items():
                yield from records("best", f"{name}, {kind}", questions, budgets, each)


# ---- exponents


def laws(worlds: int) -> Iterator[Record]:
    """Exponent sets of one policy, 16 samples of Base and 64 of RL."""
    hardest = np.random.default_rng(0).beta(0.6, 1.5, 4000)
    budgets = (1, 2, 4, 8, 16)
    for name, law in {"1.5 b^0.8": Law(2**0.6, 0.8), "2 b^0.5": Law(2, 0.5), "ceiling": LAWS["ceiling"]}.items():
        at = np.abs(GRID.log2_alpha - np.log2(law.alpha)).argmin(), np.abs(GRID.beta - law.beta).argmin()
        for questions in (60, 200, 500, 1000, 2000):
            found = []
            for seed in range(worlds):
                rng = np.random.default_rng([seed, questions])
                p = hardest[rng.integers(0, len(hardest), questions)]
                tested = test(pool(p, 16, rng), pool(law.rl(p, rng), 64, rng), budgets)
                inside = GRID.beta[profile([tested]) >= 1 - LEVEL]
                one = {
                    "empty": exponent_set([tested], LEVEL)["empty"],
                    "width of beta": np.ptp(inside) if len(inside) else 0,
                }
                if law.ceiling == 1:
                    one["alpha and beta covered"] = np.exp(tested.log_p[at]) >= 1 - LEVEL
                found.append(one)
            for quantity, value in pl.DataFrame(found).cast(pl.Float64).mean().row(0, named=True).items():
                yield "exponents", name, questions, 0, quantity, value, worlds


def main() -> None:
    """Run the experiments and write one table."""
    rows: list[Record] = []
    for name, experiment, worlds in (
        ("interval", intervals, 500),
        ("hard", hard, 500),
        ("best", best, 300),
        ("exponents", laws, 300),
    ):
        started = time.monotonic()
        rows += experiment(worlds)
        print(f"{name}: {time.monotonic() - started:.0f} s", flush=True)
    pl.DataFrame(rows, COLUMNS, orient="row").write_csv("docs/equivalents.csv", float_precision=4)


if __name__ == "__main__":
    main()
