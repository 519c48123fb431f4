"""What cross-likelihoods say: divergences, perplexities, entropies, numbers of samples, and a regression."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from searchlens.analysis.uncertainty import Floats, Resamples

SIDES = ("base", "rl")
BOTH = "both"
QUANTILES = (0.1, 0.5, 0.9)
_TINY = 1e-9  # a within-question sum of squares below this share of the number of texts is rounding

SUMMARY = pl.Schema(
    {
        "texts": pl.String(),
        "measure": pl.String(),
        "value": pl.Float64(),
        "lo": pl.Float64(),
        "hi": pl.Float64(),
        "count": pl.UInt32(),
    }
)
"""One row per measure of the texts of ``base``, ``rl`` or ``both``; ``count``: how many texts. Null: not defined."""


@dataclass(frozen=True, eq=False)
class Texts:
    """The texts of one side, or of both, with log p of each under both checkpoints, in nats."""

    question: npt.NDArray[np.int64]
    """Numbers from 0 to ``questions - 1``. Shape (texts,)."""
    tokens: Floats
    """Tokens of each text, at least 1. Of float64."""
    base: Floats
    rl: Floats
    """``base``, ``rl``: log p under each checkpoint; minus infinity if it cannot draw the text. Of float64."""
    right: npt.NDArray[np.bool_]
    questions: int

    @classmethod
    def of(cls, frame: pl.DataFrame) -> Texts:
        """The texts of a frame (``store.columns.SCORED_TEXTS``); a text without a verdict is not right."""
        _, question = np.unique(frame["question"].to_numpy(), return_inverse=True)
        tokens, base, rl = (frame[name].cast(pl.Float64).to_numpy() for name in ("tokens", "logp_base", "logp_rl"))
        right = frame["right"].fill_null(value=False).to_numpy()
        return cls(question, tokens, base, rl, right, int(question.max()) + 1)

    def sums(self, *values: Floats) -> Floats:
        """Sums of values over the texts of each question, shape (values, questions)."""
        return np.stack([np.bincount(self.question, each, self.questions) for each in values])


def summary(frame: pl.DataFrame, confidence: float = 0.95, draws: int = 2000, seed: int = 0) -> pl.DataFrame:
    """Every measure, with percentile intervals over questions: ``SUMMARY``.

    The frame is ``store.columns.SCORED_TEXTS``, with as many texts of every question, on both sides. Of the texts y
    that a side draws, p being its own distribution and p' that of the other side:

    - ``kl_text``, ``kl_token``: mean of log p(y) - log p'(y), and the same for each token (ratio of the means); an
      estimate of KL(p || p') over whole texts, in nats. Infinite if p' cannot draw one of the texts (``impossible``:
      their share).
    - ``entropy_text``, ``entropy_token``: mean of -log p(y), and the same for each token.
    - ``perplexity_base``, ``perplexity_rl``: exp(-sum of log p / sum of tokens) under each checkpoint.
    - ``log10_samples_q10``, ``_q50``, ``_q90``: quantiles of log10 1/p'(y): how many samples of the other side such a
      text takes on average.
    - ``tokens``: mean tokens of a text; ``right``: share of right ones.

    Of the texts of ``base``, ``rl`` and ``both`` that both can draw, within questions: ``alpha``, ``gamma``, ``r2`` of
    the regression; ``alpha_power``, ``r2_power`` with gamma = 0; ``gamma_tilt``, ``r2_tilt`` with alpha = 1. An r2
    below 0: worse than a constant for each question. Left out if a question has no such text.

    Intervals are null for a single question, and if the value is infinite or not defined, also in a draw.

    log p_R(y) = c_x + alpha log p_B(y) + gamma right(y), least squares with a constant c_x for each question x.
    Sharpening to a power, p_R = p_B^alpha / Z_x, has gamma = 0 and alpha > 1. The optimum of a reward r with a KL
    penalty, p_R = p_B exp(r / tau) / Z_x, has alpha = 1 and gamma = 1 / tau. Texts of Base are chosen by the regressor,
    which leaves the coefficients unbiased if the relation is linear; texts of RL are chosen by the outcome, which does
    not. Power: Karan and Du (2025), arXiv:2510.14901. Tilt: arXiv:2510.20817.
    """
    questions = frame["question"].n_unique()
    weights = np.concatenate([np.ones((questions, 1)), Resamples.draw(questions, draws, seed).weights], axis=1)
    rows: list[dict[str, object]] = []
    for side in SIDES:
        texts = Texts.of(frame.filter(side=side))
        rows += [{"texts": side, **row} for row in _rows(_likelihoods(texts, side, weights), texts, confidence)]
    for name in (*SIDES, BOTH):
        drawable = pl.col("logp_base").is_finite() & pl.col("logp_rl").is_finite()
        chosen = frame.filter(drawable) if name == BOTH else frame.filter(drawable, side=name)
        if chosen["question"].n_unique() == questions:
            texts = Texts.of(chosen)
            rows += [{"texts": name, **row} for row in _rows(_regression(texts, weights), texts, confidence)]
    return pl.DataFrame(rows, SUMMARY)


POSITIONS = pl.Schema(
    {
        "texts": pl.String(),
        "tenth": pl.UInt32(),
        **{f"{name}{end}": pl.Float64() for name in ("moved", "first") for end in ("", "_lo", "_hi")},
        "tokens": pl.UInt32(),
    }
)
"""One row per tenth of the texts of a side, and one for whole texts (``tenth`` 0). ``moved``: share of tokens whose
probability is at least twice as high or low under the other side; ``first``: share that are its most likely token."""
_MOVED = float(np.log(2))


def positions(frame: pl.DataFrame, confidence: float = 0.95, draws: int = 2000, seed: int = 0) -> pl.DataFrame:
    """Where the tokens of texts differ between the sides: ``POSITIONS``, with percentile intervals over questions.

    The frame is ``store.columns.SCORED_TEXTS`` with its lists; tokens of unknown rank are left out. Compare "Sparse but
    critical", arXiv:2603.22446.
    """
    lists = ["logps_base", "logps_rl", "ranks_base", "ranks_rl"]
    place = pl.int_ranges(pl.col("tokens")).alias("place")
    tokens = frame.select("question", "side", "tokens", place, *lists).explode("place", *lists)
    moved = (pl.col("logps_base") - pl.col("logps_rl")).abs() >= _MOVED
    other = pl.when(side="base").then("ranks_rl").otherwise("ranks_base")
    tenth = pl.col("place") * 10 // pl.col("tokens") + 1
    each = tokens.with_columns(moved=moved, first=other == 1, tenth=tenth).filter(other > 0)
    each = pl.concat([each, each.with_columns(tenth=pl.lit(0, pl.Int64))])
    sums = each.group_by("side", "tenth", "question").agg(pl.col("moved", "first").sum(), pl.len())
    number = {question: i for i, question in enumerate(frame["question"].unique().sort())}
    weights = Resamples.draw(len(number), draws, seed).weights if len(number) > 1 else None
    rows = []
    for (side, part_of), part in sums.sort("side", "tenth", "question").group_by("side", "tenth", maintain_order=True):
        row: dict[str, object] = {"texts": side, "tenth": part_of, "tokens": part["len"].sum()}
        chosen = [number[question] for question in part["question"]]
        for name in ("moved", "first"):
            row[name] = float(part[name].sum() / part["len"].sum())  # type: ignore[operator,arg-type]
            if weights is not None:
                count = np.maximum(part["len"].to_numpy() @ weights[chosen], 1)
                drawn = part[name].to_numpy() @ weights[chosen] / count
                lo, hi = np.quantile(drawn, [(1 - confidence) / 2, (1 + confidence) / 2])
                row |= {f"{name}_lo": float(lo), f"{name}_hi": float(hi)}
        rows.append(row)
    return pl.DataFrame(rows, POSITIONS)


Measure = tuple[str, Floats]
"""A name, and its value with all questions, then in each draw."""


def _rows(measures: Iterator[Measure], texts: Texts, confidence: float) -> Iterator[dict[str, object]]:
    tail = (1 - confidence) / 2
    for name, values in measures:
        value, drawn = float(values[0]), values[1:]
        ends: list[float | None] = [None, None]
        if texts.questions > 1 and np.isfinite(values).all():
            ends = [min(value, float(np.quantile(drawn, tail))), max(value, float(np.quantile(drawn, 1 - tail)))]
        shown = None if np.isnan(value) else value
        yield {"measure": name, "value": shown, "lo": ends[0], "hi": ends[1], "count": len(texts.tokens)}


def _likelihoods(texts: Texts, side: str, weights: Floats) -> Iterator[Measure]:
    own, other = (texts.base, texts.rl) if side == "base" else (texts.rl, texts.base)
    possible = np.isfinite(other)
    ones = np.ones_like(own)
    finite = np.where(possible, other, 0.0)
    parts = texts.sums(ones, texts.tokens, own, finite, (~possible).astype(float), texts.right.astype(float)) @ weights
    count, tokens, own_sum, other_sum, impossible, right = parts
    other_sum = np.where(impossible > 0, -np.inf, other_sum)
    yield "tokens", tokens / count
    yield "right", right / count
    yield "impossible", impossible / count
    yield "kl_text", (own_sum - other_sum) / count
    yield "kl_token", (own_sum - other_sum) / tokens
    yield "entropy_text", -own_sum / count
    yield "entropy_token", -own_sum / tokens
    sums = (own_sum, other_sum) if side == "base" else (other_sum, own_sum)
    for name, total in zip(SIDES, sums, strict=True):
        yield f"perplexity_{name}", np.exp(-total / tokens)
    for level, values in zip(QUANTILES, _quantiles(-other / np.log(10), weights[texts.question]), strict=True):
        yield f"log10_samples_q{100 * level:.0f}", values


def _quantiles(values: Floats, weights: Floats) -> Floats:
    """Weighted quantiles, shape (quantiles, draws): the least value with at least that share of the weight up to it."""
    order = np.argsort(values)
    share = np.cumsum(weights[order], axis=0)
    share /= share[-1]
    return np.stack([values[order[(share >= level - 1e-12).argmax(axis=0)]] for level in QUANTILES])


def _regression(texts: Texts, weights: Floats) -> Iterator[Measure]:
    """Within-question least squares, from the sums of squares and products of each question."""
    counts = texts.sums(np.ones_like(texts.base))[0]
    columns = [texts.base, texts.right.astype(float), texts.rl]
    x, z, y = (each - (texts.sums(each)[0] / counts)[texts.question] for each in columns)
    products = texts.sums(x * x, z * z, x * z, x * y, z * y, y * y, (y - x) * z) @ weights
    xx, zz, xz, xy, zy, yy, tilt = np.where(np.abs(products) < _TINY * len(x), 0.0, products)
    with np.errstate(divide="ignore", invalid="ignore"):
        determinant = xx * zz - xz**2
        identified = determinant > _TINY * xx * zz
        alpha = np.where(identified, (xy * zz - zy * xz) / determinant, np.nan)
        gamma = np.where(identified, (zy * xx - xy * xz) / determinant, np.nan)
        yield "alpha", alpha
        yield "gamma", gamma
        yield "r2", (alpha * xy + gamma * zy) / yy
        yield "alpha_power", xy / xx
        yield "r2_power", xy**2 / (xx * yy)
        gamma_tilt = tilt / zz
        yield "gamma_tilt", gamma_tilt
        yield "r2_tilt", 1 - (yy - 2 * xy + xx - gamma_tilt * tilt) / yy
