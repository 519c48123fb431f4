"""Small, realistic inputs for figures and tables: simulated samples, read out as docs/data.md says.

Base answers broadly; RL puts its mass on what Base already does well and loses a little elsewhere. So RL leads at small
budgets, and Base catches up at 16.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl
from scipy.special import expit

from searchlens import policies

BUDGETS = (1, 2, 4, 8, 16)
DEFAULT = "topp0.95_t1.0"
PARAMETERS = {"topp": ("0.8", "0.9", "0.95"), "topk": ("10", "20", "40"), "minp": ("0.05", "0.1", "0.2")}
PAPER24 = (
    *(f"temp_{t}" for t in ("0.3", "0.5", "0.7", "0.9", "1.0")),
    *(f"{key}{value}_t{t}" for key, values in PARAMETERS.items() for value in values for t in ("0.7", "0.9")),
    DEFAULT,
)
Hits = dict[str, npt.NDArray[np.bool_]]


@dataclass(frozen=True)
class Cell:
    """One pair on one benchmark: the frames that landscape and recovery write."""

    base: pl.DataFrame
    rl: pl.DataFrame
    same_policy: pl.DataFrame
    counts: pl.DataFrame
    support: pl.DataFrame
    near_match: pl.DataFrame
    path: pl.DataFrame


def cell(questions: int = 200, names: tuple[str, ...] = PAPER24, seed: int = 7, ability: float = 0.2) -> Cell:
    """Simulate one cell."""
    rng = np.random.default_rng(seed)
    base_logit = rng.normal(ability, 2.2, questions)
    lost = rng.random(questions) < 0.08
    rl_logit = np.where(lost, base_logit - 3, base_logit * 1.5 + 1.5)
    base = {name: _readouts(rng, base_logit, name, 1.0) for name in names}
    rl = {name: _readouts(rng, rl_logit, name, 0.3) for name in names}
    greedy = {metric: np.repeat((base_logit > 0.3)[:, None], len(BUDGETS), axis=1) for metric in "PQ"}
    base_points, rl_points = _points({**base, "greedy": greedy}), _points(rl)
    same = pl.concat(_same_policy(metric, base, rl, rng) for metric in "PQ")
    support = pl.concat(_support(metric, base, rl, rng) for metric in "PQ")
    near = _near_match(base_points, support)
    return Cell(base_points, rl_points, same, _counts(same), support, near, _path(near))


def _readouts(rng: np.random.Generator, ability: npt.NDArray[np.float64], name: str, spread: float) -> Hits:
    local = policies.parse(name).local
    cut = 1 - 0.35 * (local.top_p < 0.9) - 0.4 * (local.min_p > 0.05) - 0.2 * (0 < local.top_k < 20)
    heat = spread * (local.temperature - 0.8) * cut
    chance = expit(ability * (1 - 0.6 * heat) - 0.5 * heat + rng.normal(0, 0.08))
    common = expit(rng.normal(-0.2, 1, len(ability)))[:, None]
    samples = rng.random((len(ability), BUDGETS[-1]))
    correct = samples < chance[:, None]
    rival = ~correct & (rng.random(samples.shape) < common)
    at = np.array(BUDGETS) - 1
    votes = correct.cumsum(1) - rival.cumsum(1)
    return {"P": correct.cumsum(1)[:, at] > 0, "Q": (votes[:, at] > 0) | ((votes[:, at] == 0) & correct[:, :1])}


def _wilson(hits: float, n: int) -> tuple[float, float]:
    z, p = 1.96, hits / n
    centre, half = p + z * z / (2 * n), z * np.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    return float((centre - half) / (1 + z * z / n)), float((centre + half) / (1 + z * z / n))


def _points(readouts: dict[str, Hits]) -> pl.DataFrame:
    rows = []
    for name, hits in readouts.items():
        for metric, matrix in hits.items():
            for budget, column in zip(BUDGETS[:1] if name == "greedy" else BUDGETS, matrix.T, strict=False):
                n, solved = len(column), int(column.sum())
                rows.append((name, budget, metric, "prefix", solved, n, solved / n, *_wilson(solved, n)))
    columns = ["policy", "budget", "metric", "readout", "hits", "questions", "value", "lo", "hi"]
    return pl.DataFrame(rows, columns, orient="row").cast(
        {"budget": pl.UInt32, "hits": pl.UInt32, "questions": pl.UInt32}
    )


def _paired(difference: npt.NDArray[np.float64], rng: np.random.Generator) -> tuple[float, float]:
    draws = rng.choice(difference, (300, len(difference))).mean(1)
    low, high = np.percentile(draws, [2.5, 97.5])
    return float(low), float(high)


def _same_policy(metric: str, base: dict[str, Hits], rl: dict[str, Hits], rng: np.random.Generator) -> pl.DataFrame:
    rows = []
    for name in base:
        for i, budget in enumerate(BUDGETS):
            b, r = base[name][metric][:, i].astype(float), rl[name][metric][:, i].astype(float)
            rows.append((metric, "prefix", name, budget, b.mean(), r.mean(), b.mean() - r.mean(), *_paired(b - r, rng)))
    columns = ["metric", "readout", "policy", "budget", "base", "rl", "gap", "lo", "hi"]
    return pl.DataFrame(rows, columns, orient="row").cast({"budget": pl.UInt32})


def _counts(same: pl.DataFrame) -> pl.DataFrame:
    ahead, other = pl.col("gap") >= 0, pl.col("policy") != DEFAULT
    return same.group_by("metric", "readout", "budget", maintain_order=True).agg(
        ahead=ahead.sum(),
        policies=pl.len(),
        ahead_without_default=(ahead & other).sum(),
        policies_without_default=other.sum(),
    )


def _support(metric: str, base: dict[str, Hits], rl: dict[str, Hits], rng: np.random.Generator) -> pl.DataFrame:
    rows = []
    for i, budget in enumerate(BUDGETS):
        target = rl[DEFAULT][metric][:, i].astype(float)
        reach = [(m[metric][:, j].mean(), name, j) for name, m in base.items() for j in range(i + 1)]
        envelope, policy, j = max(reach)
        low = np.quantile([m[metric][:, i].mean() for m in base.values()], 0.1)
        gap = _paired(target - base[policy][metric][:, j], rng)
        value = float(target.mean())
        inside = bool(low <= value <= envelope)
        band = _wilson(target.sum(), len(target))
        rows.append(
            (metric, "prefix", budget, value, *band, envelope, policy, BUDGETS[j], low, value - envelope, *gap, inside)
        )
    columns = ["metric", "readout", "budget", "rl", "rl_lo", "rl_hi", "envelope", "envelope_policy", "envelope_budget"]
    columns += ["low", "gap", "gap_lo", "gap_hi", "inside"]
    return pl.DataFrame(rows, columns, orient="row").cast({"budget": pl.UInt32, "envelope_budget": pl.UInt32})


def _near_match(points: pl.DataFrame, support: pl.DataFrame) -> pl.DataFrame:
    targets = support.select("metric", target_budget="budget", target="rl")
    pool = points.filter(pl.col("policy") != "greedy").select("metric", "policy", "budget", "value")
    joined = targets.join(pool, on="metric").with_columns(error=pl.col("value") - pl.col("target"))
    return joined.filter(pl.col("error").abs() <= 0.03)


def _path(near: pl.DataFrame) -> pl.DataFrame:
    keys = ["metric", "target_budget"]
    closest = near.sort(*keys, pl.col("error").abs(), "budget", "policy").unique(
        keys, keep="first", maintain_order=True
    )
    smooth = near.sort(
        *keys, pl.col("budget").cast(pl.Int64) - pl.col("target_budget"), pl.col("error").abs(), "policy"
    )
    monotone = smooth.unique(keys, keep="last", maintain_order=True)
    parts = [frame.with_columns(kind=pl.lit(kind)) for kind, frame in (("closest", closest), ("monotone", monotone))]
    return pl.concat(parts).select("metric", "kind", "target_budget", "target", "policy", "budget", "value", "error")
