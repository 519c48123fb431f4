"""Do the exponent sets reject the truth in 5% of all worlds, and what else do they reject?

    python validation/exponents.py --output docs/exponents.csv
    python validation/exponents.py --best-of-two 200 --output docs/best_of_two.csv

A world is a simulated study on one benchmark. Its questions are those of the zoo cohort: for each of the eight Bases,
the probability that a sample is right is drawn once from Beta(c + .5, n - c + .5), c right of the n recorded samples
of the default policy. Each world draws questions with replacement, the same for all Bases, 16 samples of each Base,
and the samples of an RL model of known law (``LAWS``) for each of them.

* size: share of (world, Base) in which the true (policy, alpha, beta) is rejected;
* power: share in which beta - .2 and beta + .2 are rejected at every alpha;
* the same of the joint set of one beta for the seven fitted pairs;
* missed: share in which the true beta is not in the set, at any alpha, be it rejected or not tested;
* untested: share in which the true law is not tested, because too few of its moments rest on enough questions.

Column ``policy``: under ``given`` the policy of the true law is known. Under ``any`` all policies that every Base was
sampled with are tried, 16 samples each, and size is the share in which the true beta is in the set under none of them
at any alpha, that is rejected or not tested. The chances of a question under them are draws at the same quantile
of their Beta distributions, which keeps policies alike; RL follows the default policy. To find the powers there takes
all policies, so fewer worlds serve it, and the joint set is not tried.

``--best-of-two``: the worlds of docs/api.md instead. Difficulty is Beta(.6, 1.5), RL is the best of two samples of
Base, so that N = 2b; few questions, and pools (``POOLS``) in which N lies up to their end, or beyond.
"""

from __future__ import annotations

import argparse
import functools
import time
import zlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import polars as pl
from scipy import stats

from searchlens.analysis.classes import Pool, independent_pools, recorded_classes
from searchlens.analysis.exponents import FEWEST_MOMENTS, GRID, Lattice, exponent_set, profile, test, undecided
from searchlens.analysis.uncertainty import Floats
from searchlens.config.measures import ANY
from searchlens.store import recorded_counts
from searchlens_lab.simulate import power_law

COUNTS = Path("resources/zoo/cohort/recorded_counts")
BENCHMARKS = ("aime", "amc", "gpqa", "ifeval", "math", "minerva", "olympiad", "stem", "tinymmlu")
BASES = ("anchor", "large", "small", "math", "tiny", "llama", "mistral", "dsmath")
FITTED = 7
"""The first of them are the fitted pairs."""
DEFAULT = "topp0.95_t1.0"
SAMPLES = 16
LEVEL = 0.95
STEP = 0.2
WORLDS, POWER = 250, 25
"""Draws of the questions, each of which serves eight Bases; and those under any policy in which power is measured."""


GIVEN = "given"
"""The set of the policy of the true law."""


class Law(NamedTuple):
    """N = alpha b^beta, and the RL side on which it is tested."""

    log2_alpha: float
    beta: float
    samples: int
    budgets: tuple[int, ...]

    def draw(self, solved: Floats, rng: np.random.Generator) -> Pool:
        """The samples of RL."""
        draws = rng.random(len(solved)), rng.exponential(size=len(solved))
        return pool(power_law(solved, 2**self.log2_alpha, self.beta, *draws), self.samples, rng)


LAWS = {
    "RL is Base": Law(0.0, 1.0, 64, (1, 2, 4, 8, 16)),
    "best of two": Law(1.0, 1.0, 32, (1, 2, 4, 8)),
    "2 b^0.5": Law(1.0, 0.5, 64, (1, 2, 4, 8, 16)),
    "1.5 b^0.8": Law(0.6, 0.8, 64, (1, 2, 4, 8, 16)),
}


@functools.cache
def lattice(beta: float) -> Lattice:
    """Every alpha of the grid at the true beta and ``STEP`` below and above it."""
    return Lattice(GRID.log2_alpha, np.array([beta - STEP, beta, beta + STEP]))


def pool(solved: Floats, samples: int, rng: np.random.Generator) -> Pool:
    """Samples that are right with these probabilities."""
    count = len(solved)
    correct = rng.binomial(samples, solved)
    return Pool(DEFAULT, samples, np.arange(count, dtype=np.uint32), correct, correct, np.full(count, ""))


def recorded(base: str, benchmark: str) -> dict[str, Pool]:
    """The recorded pools of a Base."""
    return independent_pools(
        recorded_classes(recorded_counts.read(COUNTS / f"{base}-base" / f"zoo-{benchmark}.arrow.xz")), {}
    )


def population(base: str, benchmark: str) -> Floats:
    """Probabilities that a sample of a Base is right, one for each question."""
    kept = recorded(base, benchmark)[DEFAULT]
    rng = np.random.default_rng(zlib.crc32(f"{base}/{benchmark}".encode()))
    return rng.beta(kept.correct + 0.5, kept.samples - kept.correct + 0.5)


def world(bases: list[Floats], law: Law, rng: np.random.Generator) -> dict[str, float]:
    """One draw of the questions and all samples: shares over Bases, and the joint set."""
    chosen = rng.integers(0, len(bases[0]), len(bases[0]))
    tests = [
        test(pool(p[chosen], SAMPLES, rng), law.draw(p[chosen], rng), law.budgets, grid=lattice(law.beta))
        for p in bases
    ]
    at = int(np.abs(GRID.log2_alpha - law.log2_alpha).argmin())
    profiles = np.array([profile([one]) for one in tests])
    below, _, above = (profiles < 1 - LEVEL).mean(axis=0)
    rejected = (profiles < (1 - LEVEL) / FITTED) & ~np.array([undecided([one]) for one in tests])
    joint_below, joint_true, joint_above = rejected[:FITTED].any(axis=0).astype(float)
    return {
        "size": float(np.mean([np.exp(one.log_p[at, 1]) < 1 - LEVEL for one in tests])),
        "missed": float(np.mean(~(profiles[:, 1] >= 1 - LEVEL))),
        "untested": float(np.mean([not one.tested[at, 1] for one in tests])),
        "moments": float(np.mean([one.moments[at, 1] for one in tests])),
        "below": below,
        "above": above,
        "joint_size": joint_true,
        "joint_below": joint_below,
        "joint_above": joint_above,
    }


def populations(base: str, benchmark: str, policies: list[str]) -> Floats:
    """Chances of every question under several policies, the default policy first, shape (policies, questions)."""
    kept = recorded(base, benchmark)
    rng = np.random.default_rng(zlib.crc32(f"{base}/{benchmark}".encode()))
    quantile = rng.random(len(kept[DEFAULT].correct))
    pools = [kept[name] for name in (DEFAULT, *(name for name in policies if name != DEFAULT))]
    return np.array([stats.beta.ppf(quantile, one.correct + 0.5, one.samples - one.correct + 0.5) for one in pools])


def any_policy(bases: list[Floats], law: Law, rng: np.random.Generator, power: bool) -> dict[str, float | None]:
    """One draw of the questions and all samples: shares over Bases of the sets under any policy."""
    chosen = rng.integers(0, bases[0].shape[1], bases[0].shape[1])
    at = int(np.abs(GRID.log2_alpha - law.log2_alpha).argmin())
    accepted, moments = [], []
    for base in bases:
        rl = law.draw(base[0, chosen], rng)
        inside = np.zeros(3, bool)
        for i, solved in enumerate(base):
            one = test(pool(solved[chosen], SAMPLES, rng), rl, law.budgets, grid=lattice(law.beta))
            inside |= profile([one]) >= 1 - LEVEL
            if i == 0:
                moments.append(one.moments[at, 1])
            if inside.all() or (inside[1] and not power):
                break
        accepted.append(inside)
    below, true, above = np.mean(accepted, axis=0)
    shown = {"below": 1 - below, "above": 1 - above} if power else dict.fromkeys(("below", "above"))
    untested = float(np.mean(np.array(moments) < FEWEST_MOMENTS))
    return {"size": 1 - true, "missed": 1 - true, "untested": untested, "moments": float(np.mean(moments)), **shown}


POOLS = ((32, 16), (16, 16), (64, 64))
"""Samples of Base and of RL."""
FEW = (40, 60, 200)
"""Questions."""


def best_of_two(questions: int, samples: tuple[int, int], seed: int) -> dict[str, float]:
    """One world in which N = 2b, under one policy."""
    rng = np.random.default_rng([seed, questions, *samples])
    solved = rng.beta(0.6, 1.5, questions)
    base, rl = pool(solved, samples[0], rng), pool(1 - (1 - solved) ** 2, samples[1], rng)
    tested = test(base, rl, (1, 2, 4, 8, 16))
    found, allowed = exponent_set([tested], LEVEL), profile([tested]) >= 1 - LEVEL
    one, half = (int(np.abs(GRID.beta - beta).argmin()) for beta in (1, 0.5))
    law = tested.log_p[int(np.abs(GRID.log2_alpha - 1).argmin()), one]
    return {
        "beta_in_set": float(allowed[one]),
        "law_rejected": float(np.exp(law) < 1 - LEVEL),
        "width": float(np.ptp(GRID.beta[allowed])) if allowed.any() else 0.0,
        "half_rejected": float(not allowed[half]),
        "empty": float(bool(found["empty"])),
        "hardly": float(bool(found["hardly"])),
    }


def few_questions(seeds: int) -> Iterator[dict[str, object]]:
    """Shares over seeds 0, 1, ..., and the median width of the set."""
    for samples in POOLS:
        for questions in FEW:
            worlds = pl.DataFrame([best_of_two(questions, samples, seed) for seed in range(seeds)])
            means = worlds.select(pl.col("width").median(), pl.exclude("width").mean()).row(0, named=True)
            yield {"base": samples[0], "rl": samples[1], "questions": questions, "worlds": seeds, **means}


def row(
    benchmark: str, questions: int, law: str, policy: str, worlds: Sequence[Mapping[str, object]]
) -> dict[str, object]:
    """Means over worlds and their standard errors."""
    found = pl.DataFrame(worlds, infer_schema_length=None)
    record: dict[str, object] = {"benchmark": benchmark, "questions": questions, "law": law, "policy": policy}
    record["worlds"] = found.height * len(BASES)
    for name in found.columns:
        values = found[name].drop_nulls()
        record[name] = values.mean()
        if name != "moments":
            record[f"{name}_se"] = values.std() / values.len() ** 0.5 if values.len() > 1 else None
    return record


def rows() -> Iterator[dict[str, object]]:
    """A row per benchmark and law under the given policy, then one under any."""
    for benchmark in BENCHMARKS:
        bases = [population(base, benchmark) for base in BASES]
        names = sorted(set.intersection(*(set(recorded(base, benchmark)) for base in BASES)) - {"greedy"})
        under_all = [populations(base, benchmark, names) for base in BASES]
        for name, law in LAWS.items():
            started = time.monotonic()
            rng = np.random.default_rng([0, zlib.crc32(f"{benchmark}/{name}".encode())])
            given = row(benchmark, len(bases[0]), name, GIVEN, [world(bases, law, rng) for _ in range(WORLDS)])
            tried = [any_policy(under_all, law, rng, i < POWER) for i in range(WORLDS)]
            found = [given, row(benchmark, len(bases[0]), name, ANY, tried)]
            yield from found
            sizes = ", ".join(f"{one['size']:.3f}" for one in found)
            print(f"{benchmark}, {name}: {sizes}, {time.monotonic() - started:.0f} s", flush=True)


def main() -> None:
    """Write one row per benchmark, law and kind of set."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--best-of-two", type=int, metavar="SEEDS", help="the worlds of docs/api.md alone")
    parser.add_argument("--output", type=Path, required=True)
    args = parser.parse_args()
    found = list(few_questions(args.best_of_two) if args.best_of_two else rows())
    pl.DataFrame(found, infer_schema_length=None).write_csv(args.output, float_precision=4)


if __name__ == "__main__":
    main()
