"""Every measure of every pair: the frames of stage ``measures`` (``catalogue.MEASURE_FRAMES``)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any
from zlib import crc32

import numpy as np
import polars as pl

from searchlens.analysis import exponents, measures
from searchlens.analysis.classes import Pool
from searchlens.analysis.equivalents import CROSSINGS, crossing, equivalents, summary
from searchlens.analysis.extrapolation import EXTRAPOLATED, extrapolated, judged
from searchlens.analysis.measures import BASE, DIFFERENCE, GUESS_NULL, MEASURES, PASS, RL, VARIANCE
from searchlens.analysis.pool import Ints
from searchlens.analysis.uncertainty import Floats, Resamples
from searchlens.config.general import General
from searchlens.config.measures import ANY, BEST, MeasuresOptions

LAW_BUDGETS = (1, 2, 4, 8, 16)
"""b at which the law is tested: B of the paper."""
EXPONENT_DRAWS = 200
"""Draws of the least-error fit of alpha and beta, each of which searches all policies again."""
COVER_TAU = (0.05, 0.25, 0.5, 0.75, 0.9)
"""Thresholds of Cover@tau: the share of samples that must be right."""
G_PASS_K = (16,)
"""Numbers of samples k of G-Pass@k, mG-Pass@k and pass^k; those above a pool are left out."""
G_PASS_TAU = (0.25, 0.5, 0.75, 1.0)
"""Thresholds of G-Pass@k; 1 is pass^k."""
CORRECTED_K = (1, 4)
"""Numbers of samples k of pass@k corrected for guessing; its noise grows like 1 / (1 - g)^k."""
TRIALS = 20
"""Trials, of each side of a pair on a benchmark, in which a quarter of the samples predicts pass@k of them all."""


@dataclass(frozen=True, eq=False)
class PairPools:
    """The samples of a pair on a benchmark."""

    pair: str
    benchmark: str
    base: Mapping[str, Pool]
    rl: Mapping[str, Pool]
    """``base``, ``rl``: by policy, reference policies such as greedy left out."""
    options: Ints | None = None
    """Lettered options of each question, 0 for an open one; None if no question has any. Shape (questions,)."""
    base_batches: Sequence[Mapping[str, Pool]] = ()
    rl_batches: Sequence[Mapping[str, Pool]] = ()
    """``base_batches``, ``rl_batches``: the same checkpoints, sampled again with other seeds."""


Frames = dict[str, pl.DataFrame]


def read_study(cells: Iterable[PairPools], options: MeasuresOptions, general: General) -> Frames:
    """All frames, rows in the order of the cells, with their pair and benchmark first."""
    parts: dict[str, list[pl.DataFrame]] = {}
    for cell in cells:
        named = (pl.lit(cell.pair).alias("pair"), pl.lit(cell.benchmark).alias("benchmark"))
        for name, frame in read_pair(cell, options, general).items():
            parts.setdefault(name, []).append(frame.select(*named, pl.all()))
    frames = {name: pl.concat(each) for name, each in parts.items()}
    return {
        **frames,
        "joint_exponents": joint(frames["exponent_profiles"], options.joint_pairs, general.confidence),
        "extrapolated": judged(frames["extrapolated"], general.confidence),
    }


def read_pair(cell: PairPools, options: MeasuresOptions, general: General) -> Frames:
    """The frames of one pair on one benchmark."""
    return {
        "equivalents": budget_equivalents(cell, general),
        "crossings": crossings(cell, general),
        **exponent_sets(cell, general),
        **supports(cell, general),
        "measures": both_sides(cell, options.null_k, general),
        "variance": variances(cell, general),
        "extrapolated": extrapolations(cell, general),
    }


def budget_equivalents(cell: PairPools, general: General) -> pl.DataFrame:
    """N*(b) under every policy of Base, and under the best."""
    rl = cell.rl[general.default_policy]
    resamples = _draws(cell, general)
    policies: dict[str, Sequence[Pool]] = {name: [pool] for name, pool in cell.base.items()}
    parts = []
    for name, pools in {**policies, BEST: list(cell.base.values())}.items():
        read = equivalents(pools, rl, powers_of_two(rl.samples), resamples)
        tokens = pools[0].tokens / rl.tokens if len(pools) == 1 else float("nan")
        at_equal = (pl.col("n") * tokens / pl.col("budget")).fill_nan(None).alias("token_ratio")
        parts.append(summary(read, general.confidence).select(pl.lit(name).alias("policy"), pl.all(), at_equal))
    return pl.concat(parts)


COSTS = ("samples", "tokens")
"""What is equal at a crossing."""


def crossings(cell: PairPools, general: General) -> pl.DataFrame:
    """Where Base overtakes RL at equal cost, both under the default policy."""
    frame = pl.DataFrame(schema={"cost": pl.String(), **CROSSINGS})
    sides = _default(cell, general)
    if sides is None:
        return frame
    base, rl = sides
    known = math.isfinite(rl.tokens / base.tokens) and rl.tokens > 0 if base.tokens else False
    exchanges = dict(zip(COSTS, (1.0, rl.tokens / base.tokens), strict=True)) if known else {COSTS[0]: 1.0}
    draws = _draws(cell, general)
    found = [
        crossing(base, rl, draws, general.confidence, exchange=exchange).select(pl.lit(cost).alias("cost"), pl.all())
        for cost, exchange in exchanges.items()
    ]
    return pl.concat([frame, *found])


def powers_of_two(largest: int) -> list[int]:
    """1, 2, 4, ... up to ``largest``."""
    return [2**i for i in range(largest.bit_length()) if 2**i <= largest]


def exponent_sets(cell: PairPools, general: General) -> Frames:
    """Sets of exponents: under any policy of Base, and under the default policy."""
    rl = cell.rl[general.default_policy]
    budgets = [b for b in LAW_BUDGETS if b <= rl.samples]
    draws = Resamples.draw(len(rl.questions), EXPONENT_DRAWS, general.seed).weights
    weights = np.concatenate([np.ones((len(draws), 1), np.float32), draws], axis=1)
    tests = {name: exponents.test(pool, rl, budgets) for name, pool in cell.base.items()}
    default = {general.default_policy: [general.default_policy]} if general.default_policy in tests else {}
    tail = (1 - general.confidence) / 2
    records, profiles = [], []
    for scope, names in {ANY: list(tests), **default}.items():
        chosen = [tests[name] for name in names]
        log2_alpha, beta = exponents.least_error([cell.base[name] for name in names], rl, budgets, weights)
        lo, hi = np.quantile(beta[1:], [tail, 1 - tail])
        least = {"beta_l1": beta[0], "beta_l1_lo": lo, "beta_l1_hi": hi, "log2_alpha_l1": log2_alpha[0]}
        records.append({"policy": scope, **exponents.exponent_set(chosen, general.confidence), **least})
        p = pl.Series(exponents.profile(chosen), nan_to_null=True)
        columns = {"beta": exponents.GRID.beta, "p": p, "undecided": exponents.undecided(chosen)}
        profiles.append(pl.DataFrame(columns).select(pl.lit(scope).alias("policy"), pl.all()))
    schema = {"policy": pl.String(), **exponents.EXPONENTS}
    return {"exponents": pl.DataFrame(records, schema), "exponent_profiles": pl.concat(profiles)}


def joint(profiles: pl.DataFrame, pairs: Sequence[str], confidence: float) -> pl.DataFrame:
    """Sets of one exponent for several pairs of a benchmark; all pairs if none is named."""
    joined = pl.col("pair").is_in(list(pairs)) if pairs else pl.lit(value=True)
    parts = [pl.DataFrame(schema={"benchmark": pl.String(), "policy": pl.String(), **exponents.JOINT})]
    for (benchmark, policy), rows in profiles.filter(joined).group_by("benchmark", "policy", maintain_order=True):
        by_pair = {str(pair): part["p"].to_numpy() for (pair,), part in rows.group_by("pair", maintain_order=True)}
        open_betas = {str(pair): part["undecided"].to_numpy() for (pair,), part in rows.group_by("pair")}
        keys = (pl.lit(benchmark).alias("benchmark"), pl.lit(policy).alias("policy"))
        parts.append(exponents.joint_sets(by_pair, open_betas, confidence).select(*keys, pl.all()))
    return pl.concat(parts)


def supports(cell: PairPools, general: General) -> Frames:
    """What RL keeps, loses and adds of the questions that Base solves, under the default policy."""
    sides = _default(cell, general)
    if sides is None or _unequal(sides):
        return {
            "support": pl.DataFrame(schema=measures.SUPPORT),
            "support_changes": pl.DataFrame(schema=measures.CHANGES),
        }
    found, changes = measures.support(*sides, _draws(cell, general), confidence=general.confidence)
    return {"support": found, "support_changes": changes}


def both_sides(cell: PairPools, null_k: Sequence[int], general: General) -> pl.DataFrame:
    """pass@k, Cover@tau, G-Pass@k, pass^k, guessing and entropies of both sides under the default policy."""
    sides = _default(cell, general)
    if sides is None:
        return pl.DataFrame(schema=MEASURES)
    draws, level = _draws(cell, general), general.confidence
    found = [
        measures.compared(measure, read(sides[0]), read(sides[1]), draws, level, **named)
        for measure, read, named in _means(cell, null_k, min(pool.samples for pool in sides))
        if measure not in NEED_EQUAL or not _unequal(sides)
    ]
    found.append(measures.beside_wrong_key(*sides, null_k, draws, level))
    value, lo, hi = measures.beats(*sides, draws, level)
    again = {"measure": "P(RL beats Base)", "k": 1, "side": DIFFERENCE, "value": value, "lo": lo, "hi": hi}
    known = pl.concat(found).filter((pl.col("measure") != GUESS_NULL) | (pl.col("side") != DIFFERENCE))
    last = pl.DataFrame([again], MEASURES).with_columns(pl.selectors.float().fill_nan(None))
    return pl.concat([known, last])


NEED_EQUAL = ("Cover@tau", "entropy", "entropy, Miller-Madow")
"""Measures of counts, which compare only where every question has as many samples."""


def _means(
    cell: PairPools, null_k: Sequence[int], smallest: int
) -> Iterator[tuple[str, Callable[[Pool], Floats], dict[str, Any]]]:
    """Each measure that is a mean over questions: its name, how a pool is read, and arguments of ``compared``."""
    ks, taus = powers_of_two(smallest), list(COVER_TAU)
    yield PASS, lambda pool: pool.solved(ks), {"ks": ks}
    yield "Cover@tau", lambda pool: measures.cover(pool, taus), {"taus": taus}
    levels = list(G_PASS_TAU)
    for k in (k for k in G_PASS_K if k <= smallest):
        yield "G-Pass@k", partial(measures.g_pass, k=k, taus=levels), {"ks": [k] * len(levels), "taus": levels}
        yield "mG-Pass@k", partial(measures.mg_pass, k=k), {"ks": [k]}
    if cell.options is not None:
        guess = measures.guess_chance(cell.options)
        read = [k for k in CORRECTED_K if k <= smallest]
        yield GUESS_NULL, lambda _: measures.guess_null(guess, null_k), {"ks": list(null_k)}
        yield "guess-corrected pass@k", lambda pool: measures.guess_corrected(pool, guess, read), {"ks": read}
    most = {"most": math.log(smallest + 1)}
    yield "entropy", lambda pool: measures.entropy(pool)[:, :1], most
    yield "entropy, Miller-Madow", lambda pool: measures.entropy(pool)[:, 1:], most


def variances(cell: PairPools, general: General) -> pl.DataFrame:
    """Parts of the variance of pass@1 of both sides under the default policy."""
    name, draws = general.default_policy, _draws(cell, general)
    found = [
        measures.variance_parts(
            side,
            pools[name],
            draws,
            batches=[batch[name] for batch in batches if name in batch],
            confidence=general.confidence,
        )
        for side, pools, batches in ((BASE, cell.base, cell.base_batches), (RL, cell.rl, cell.rl_batches))
        if name in pools
    ]
    return pl.concat([pl.DataFrame(schema=VARIANCE), *found])


def extrapolations(cell: PairPools, general: General) -> pl.DataFrame:
    """pass@k beyond the pools of both sides under the default policy, with trials of how often that is right."""
    seed = crc32(f"{general.seed} {cell.pair} {cell.benchmark}".encode())
    sides = {side: pools.get(general.default_policy) for side, pools in ((BASE, cell.base), (RL, cell.rl))}
    sampled = {side: pool for side, pool in sides.items() if pool is not None}
    found = [
        extrapolated(side, pool, trials=TRIALS, seed=seed, confidence=general.confidence)
        for side, pool in sampled.items()
        if not _unequal(sampled.values())
    ]
    return pl.concat([pl.DataFrame(schema=EXTRAPOLATED), *found])


def _default(cell: PairPools, general: General) -> tuple[Pool, Pool] | None:
    """Base and RL under the default policy; None if Base has no samples under it."""
    name = general.default_policy
    return (cell.base[name], cell.rl[name]) if name in cell.base else None


def _unequal(pools: Iterable[Pool]) -> bool:
    """Whether questions differ in their numbers of samples."""
    return any(pool.drawn is not None for pool in pools)


def _draws(cell: PairPools, general: General) -> Resamples:
    return Resamples.draw(len(cell.rl[general.default_policy].questions), general.draws, general.seed)
