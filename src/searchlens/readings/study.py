"""Every reading of every pair: the frames of stage ``readings`` (``catalogue.READING_FRAMES``)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import polars as pl

from searchlens.readings.equivalents import equivalents, summary
from searchlens.readings.options import ReadingsOptions
from searchlens.readings.pool import Pool
from searchlens.uncertainty import Resamples

BEST = "best"
"""In place of a policy: the one of Base that solves most at each number of samples."""


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


Reading = Callable[[PairPools, ReadingsOptions], pl.DataFrame]


def read_study(cells: Iterable[PairPools], options: ReadingsOptions) -> dict[str, pl.DataFrame]:
    """All frames, rows in the order of the cells, with their pair and benchmark first.

    Parameters
    ----------
    cells : iterable of PairPools
        RL has samples of the default policy in each.
    options : ReadingsOptions
    """
    parts: dict[str, list[pl.DataFrame]] = {name: [] for name in READINGS}
    for cell in cells:
        for name, read in READINGS.items():
            parts[name].append(_named(cell, read(cell, options)))
    return {name: pl.concat(frames) for name, frames in parts.items()}


def _named(cell: PairPools, frame: pl.DataFrame) -> pl.DataFrame:
    return frame.select(pl.lit(cell.pair).alias("pair"), pl.lit(cell.benchmark).alias("benchmark"), pl.all())


def budget_equivalents(cell: PairPools, options: ReadingsOptions) -> pl.DataFrame:
    """N*(b) under the default policy, under every other policy of Base, and under the best."""
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
    return pl.concat(parts)


def powers_of_two(largest: int) -> list[int]:
    """1, 2, 4, ... up to ``largest``."""
    return [2**i for i in range(largest.bit_length()) if 2**i <= largest]


READINGS: Mapping[str, Reading] = {"equivalents": budget_equivalents}
"""Frame to the function that makes its rows for one pair on one benchmark."""
