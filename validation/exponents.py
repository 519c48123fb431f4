"""Do the exponent sets reject the truth in 5% of all worlds, and what else do they reject?

    python validation/exponents.py --worlds 150 --output docs/exponents.csv

A world is a simulated study on one benchmark. Its questions are those of the zoo cohort: for each of the eight Bases,
the probability that a sample is right is drawn once from Beta(c + .5, n - c + .5), c right of the n recorded samples
of the default policy. Each world draws questions with replacement, the same for all Bases, 16 samples of each Base,
and the samples of an RL model of known law (``LAWS``) for each of them.

* size: share of (world, Base) in which the true (policy, alpha, beta) is rejected;
* power: share in which beta - .2 and beta + .2 are rejected at every alpha;
* the same of the joint set of one beta for the seven fitted pairs.
"""

from __future__ import annotations

import argparse
import functools
import time
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import polars as pl

from searchlens.landscape.classes import recorded_classes
from searchlens.readings.exponents import GRID, Lattice, profile, test
from searchlens.readings.pool import Pool, read_pools
from searchlens.simulate import power_law
from searchlens.store import readouts
from searchlens.uncertainty import Floats

READOUTS = Path("resources/zoo/cohort/readouts")
BENCHMARKS = ("aime", "amc", "gpqa", "ifeval", "math", "minerva", "olympiad", "stem", "tinymmlu")
BASES = ("anchor", "large", "small", "math", "tiny", "llama", "mistral", "dsmath")
FITTED = 7
"""The first of them are the fitted pairs."""
DEFAULT = "topp0.95_t1.0"
SAMPLES = 16
LEVEL = 0.95
STEP = 0.2


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


def population(base: str, benchmark: str) -> Floats:
    """Probabilities that a sample of a Base is right, one for each question."""
    recorded = recorded_classes(readouts.read(READOUTS / f"{base}-base" / f"zoo-{benchmark}.arrow.xz"))
    kept = read_pools(recorded, {})[DEFAULT]
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
    joint_below, joint_true, joint_above = (profiles[:FITTED].min(axis=0) < (1 - LEVEL) / FITTED).astype(float)
    return {
        "size": float(np.mean([np.exp(one.log_p[at, 1]) < 1 - LEVEL for one in tests])),
        "moments": float(np.mean([one.moments[at, 1] for one in tests])),
        "below": below,
        "above": above,
        "joint_size": joint_true,
        "joint_below": joint_below,
        "joint_above": joint_above,
    }


def rows(worlds: int, seed: int) -> Iterator[dict[str, object]]:
    """Means over worlds and their standard errors."""
    for benchmark in BENCHMARKS:
        bases = [population(base, benchmark) for base in BASES]
        for name, law in LAWS.items():
            started = time.monotonic()
            rng = np.random.default_rng([seed, zlib.crc32(f"{benchmark}/{name}".encode())])
            found = pl.DataFrame([world(bases, law, rng) for _ in range(worlds)])
            errors = found.select((pl.all().std() / worlds**0.5).name.suffix("_se")).row(0, named=True)
            means = found.mean().row(0, named=True)
            paired = {key: value for column in means for key, value in _with_error(column, means, errors)}
            yield {
                "benchmark": benchmark,
                "questions": len(bases[0]),
                "law": name,
                "worlds": worlds * len(bases),
                **paired,
            }
            print(f"{benchmark}, {name}: {means['size']:.3f}, {time.monotonic() - started:.0f} s", flush=True)


def _with_error(column: str, means: dict[str, float], errors: dict[str, float]) -> Iterator[tuple[str, float]]:
    yield column, means[column]
    if column != "moments":
        yield f"{column}_se", errors[f"{column}_se"]


def main() -> None:
    """Write one row per benchmark and law."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--worlds", type=int, default=150, help="draws of the questions; each serves eight Bases")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", type=Path, required=True)
    args = parser.parse_args()
    pl.DataFrame(list(rows(args.worlds, args.seed))).write_csv(args.output, float_precision=4)


if __name__ == "__main__":
    main()
