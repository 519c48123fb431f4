"""Every reading of every pair: the frames of stage ``readings`` (``catalogue.READING_FRAMES``)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from searchlens.readings.equivalents import equivalents, summary
from searchlens.readings.exponents import EXPONENTS, GRID, exponent_set, joint_sets, least_error, profile, test
from searchlens.readings.options import ReadingsOptions
from searchlens.readings.pool import Pool
from searchlens.uncertainty import Resamples

BEST, ANY = "best", "any"
"""In place of a policy: the one of Base that solves most at each number of samples; whichever fits."""
LAW_BUDGETS = (1, 2, 4, 8, 16)
"""b at which the law is tested: B of the paper."""


@dataclass(frozen=True, eq=False)
class PairPools:
    """The samples of a pair on a benchmark.

    Attributes
    ----------
    pair, benchmark : str
    base, rl : mapping of str to Pool
        By policy, reference policies such as greedy left out.
    """

    pair: str
    benchmark: str
    base: Mapping[str, Pool]
    rl: Mapping[str, Pool]


Frames = dict[str, pl.DataFrame]
Reading = Callable[[PairPools, ReadingsOptions], Frames]


def read_study(cells: Iterable[PairPools], options: ReadingsOptions) -> Frames:
    """All frames, rows in the order of the cells, with their pair and benchmark first.

    Parameters
    ----------
    cells : iterable of PairPools
        RL has samples of the default policy in each.
    options : ReadingsOptions
    """
    parts: dict[str, list[pl.DataFrame]] = {}
    for cell in cells:
        for read in READINGS:
            for name, frame in read(cell, options).items():
                parts.setdefault(name, []).append(_named(cell, frame))
    frames = {name: pl.concat(each) for name, each in parts.items()}
    return {**frames, "joint_exponents": joint(frames["exponent_profiles"], options)}


def _named(cell: PairPools, frame: pl.DataFrame) -> pl.DataFrame:
    return frame.select(pl.lit(cell.pair).alias("pair"), pl.lit(cell.benchmark).alias("benchmark"), pl.all())


def budget_equivalents(cell: PairPools, options: ReadingsOptions) -> Frames:
    """N*(b) under every policy of Base, and under the best."""
    rl = cell.rl[options.default_policy]
    resamples = Resamples.draw(len(rl.questions), options.draws, options.seed)
    policies: dict[str, Sequence[Pool]] = {name: [pool] for name, pool in cell.base.items()}
    parts = []
    for name, pools in {**policies, BEST: list(cell.base.values())}.items():
        read = equivalents(pools, rl, powers_of_two(rl.samples), resamples)
        tokens = pools[0].tokens / rl.tokens if len(pools) == 1 else float("nan")
        at_equal = (pl.col("n") * tokens / pl.col("budget")).fill_nan(None).alias("token_ratio")
        frame = summary(read, options.confidence)
        parts.append(frame.select(pl.lit(name).alias("policy"), pl.all(), at_equal))
    return {"equivalents": pl.concat(parts)}


def powers_of_two(largest: int) -> list[int]:
    """1, 2, 4, ... up to ``largest``."""
    return [2**i for i in range(largest.bit_length()) if 2**i <= largest]


def exponents(cell: PairPools, options: ReadingsOptions) -> Frames:
    """Sets of exponents: under any policy of Base, and under the default policy."""
    rl = cell.rl[options.default_policy]
    budgets = [b for b in LAW_BUDGETS if b <= rl.samples]
    draws = Resamples.draw(len(rl.questions), options.exponent_draws, options.seed).weights
    weights = np.concatenate([np.ones((len(draws), 1), np.float32), draws], axis=1)
    tests = {name: test(pool, rl, budgets) for name, pool in cell.base.items()}
    scopes = {ANY: list(tests), options.default_policy: [name for name in tests if name == options.default_policy]}
    records, profiles = [], []
    for scope, names in scopes.items():
        if names:
            found = exponent_set([tests[name] for name in names], options.confidence)
            log2_alpha, beta = least_error([cell.base[name] for name in names], rl, budgets, weights)
            tail = (1 - options.confidence) / 2
            lo, hi = np.quantile(beta[1:], [tail, 1 - tail])
            least = {"beta_l1": beta[0], "beta_l1_lo": lo, "beta_l1_hi": hi, "log2_alpha_l1": log2_alpha[0]}
            records.append({"policy": scope, **found, **least})
            columns = {"beta": GRID.beta, "p": profile([tests[name] for name in names])}
            profiles.append(pl.DataFrame(columns).select(pl.lit(scope).alias("policy"), pl.all()))
    schema = {"policy": pl.String(), **EXPONENTS}
    return {"exponents": pl.DataFrame(records, schema), "exponent_profiles": pl.concat(profiles)}


def joint(profiles: pl.DataFrame, options: ReadingsOptions) -> pl.DataFrame:
    """Sets of one exponent for all pairs of a benchmark."""
    parts = []
    for (benchmark, policy), rows in profiles.group_by("benchmark", "policy", maintain_order=True):
        by_pair = {str(pair): part["p"].to_numpy() for (pair,), part in rows.group_by("pair", maintain_order=True)}
        keys = (pl.lit(benchmark).alias("benchmark"), pl.lit(policy).alias("policy"))
        parts.append(joint_sets(by_pair, options.confidence).select(*keys, pl.all()))
    return pl.concat(parts)


READINGS: Sequence[Reading] = (budget_equivalents, exponents)
"""Each makes the rows of its frames for one pair on one benchmark."""
