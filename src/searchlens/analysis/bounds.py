"""How likely Base solves a question: bounds from scored texts, and an estimate by importance sampling.

Every text was scored under the decoding policy of both sides, so its probability is known, whoever drew it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl

from searchlens.analysis.likelihood import SIDES
from searchlens.analysis.uncertainty import Floats, Interval, clopper_pearson

Ints = npt.NDArray[np.int64]
_NOTHING = 1e-12  # a variance that is rounding
_HUGE = 700.0  # the largest exponent whose exponential is a number

BOUNDS = pl.Schema(
    {
        "question": pl.UInt32(),
        "id": pl.String(),
        **dict.fromkeys(("base_samples", "base_right", "rl_samples", "rl_right", "right_texts"), pl.UInt32()),
        **dict.fromkeys(("at_least", "at_most", "wrong_key"), pl.Float64()),
        **dict.fromkeys(("estimate", "lo", "hi", "effective"), pl.Float64()),
        "spread": pl.Float64(),
        "dtype": pl.String(),
    }
)
"""One row per question: the chance that one sample of Base is right, under the policy of the scored texts.

``base_samples`` to ``rl_right``: all samples of that policy. ``right_texts``: distinct right texts that Base can draw.
``at_least``: the sum of their probabilities under Base, rounded down; it has no sampling error. ``at_most``: 1 minus
the same sum over wrong texts, or the Clopper-Pearson limit of Base's samples if that is lower; the limits of all
questions hold together at the configured level. ``wrong_key``: the sum of ``at_least`` under the key of another
question; null if that was not judged. ``estimate``, ``lo``, ``hi``: importance sampling, null if its ``effective``
number of texts is below ``FEWEST``. ``spread``: by how much log p of each text was lowered.
``dtype``: that of Base's weights."""

FEWEST = 10.0
"""Effective number of texts from which on an estimate by importance sampling is given."""


@dataclass(frozen=True)
class Precision:
    """How exact log p under Base is."""

    spread: float
    """The largest difference of log p of a text of Base between two computations: while drawing, and scored."""
    dtype: str


class _Mass(NamedTuple):
    right: Floats
    wrong: Floats
    wrong_key: Floats
    texts: Floats


def bounds(texts: pl.DataFrame, counts: pl.DataFrame, precision: Precision, confidence: float = 0.95) -> pl.DataFrame:
    """Bounds and estimates of the chance that Base solves each question: ``BOUNDS``.

    Parameters
    ----------
    texts : DataFrame
        ``store.columns.SCORED_TEXTS``: as many texts of every question on each side, drawn independently.
    counts : DataFrame
        ``question``, ``id``, and ``base_samples`` to ``rl_right`` of ``BOUNDS``; one row per question.
    precision : Precision
    confidence : float
        Nominal coverage, in (0, 1): of ``at_most`` for all questions together, of ``lo`` and ``hi`` for each.

    Returns
    -------
    DataFrame
        ``BOUNDS``, in the order of ``counts``.

    Notes
    -----
    Distinct texts are disjoint outcomes, so the probabilities of some of them add up to a lower bound of the chance of
    any of them, however they were found. Only texts that are whole under Base count (``SCORED_TEXTS``).

    Importance sampling draws from the mixture of both pools (balance heuristic): a text counts
    w = p_B / (n_B p_B + n_R p_R), which is at most 1 / n_B. Its interval is that of Clopper and Pearson for the
    effective number of texts: (Σ w)² / Σ w² (``effective``), or P (1 - P) by the variance of the estimate P if that is
    less. Both are cut at the sure bounds, which brings them nearer to the chance; they are then not quite unbiased.

    References
    ----------
    Veach and Guibas (1995), SIGGRAPH, 419-428, section 3. Clopper and Pearson (1934), Biometrika 26, 404-413. Korn and
    Graubard (1998), Survey Methodology 24, 193-201.

    Examples
    --------
    A text of Base with probability 1/4 is right, so Base solves the question at least a quarter of the time:

    >>> text = {"question": 0, "sample": 0, "side": "base", "text": 0, "right": True, "wrong_key": False}
    >>> log_p = {"logp_base": np.log(0.25), "logp_rl": np.log(0.5), "whole_base": True, "whole_rl": True}
    >>> texts = pl.DataFrame([text | log_p, text | log_p | {"side": "rl"}])
    >>> ones = dict.fromkeys(["base_samples", "base_right", "rl_samples", "rl_right"], 1)
    >>> counts = pl.DataFrame({"question": [0], "id": "a"} | ones)
    >>> bounds(texts, counts, Precision(0.0, "float32")).select("at_least", "at_most").row(0)
    (0.25, 1.0)
    """
    order = counts["question"].to_list()
    place = texts["question"].replace_strict(order, range(len(order)), return_dtype=pl.Int64).to_numpy()
    mass = _masses(texts, place, len(order), precision.spread)
    samples, right = (counts[name].to_numpy().astype(float) for name in ("base_samples", "base_right"))
    at_most = np.minimum(1 - mass.wrong, clopper_pearson(right, samples, 1 - 2 * (1 - confidence) / len(order)).hi)
    estimate, ends, effective = _importance(texts, place, len(order), confidence)
    limits = mass.right, 1 - mass.wrong
    known = {
        name: np.where(effective >= FEWEST, np.clip(values, *limits), np.nan)
        for name, values in {"estimate": estimate, "lo": ends.lo, "hi": ends.hi}.items()
    }
    columns = {
        "right_texts": mass.texts,
        "at_least": mass.right,
        "at_most": np.maximum(at_most, mass.right),
        "wrong_key": mass.wrong_key,
        **known,
        "effective": effective,
    }
    frame = counts.with_columns(
        *(pl.Series(name, values, nan_to_null=True) for name, values in columns.items()),
        spread=precision.spread,
        dtype=pl.lit(precision.dtype),
    )
    return frame.select(BOUNDS.names()).cast(BOUNDS)  # type: ignore[arg-type]


def _masses(texts: pl.DataFrame, place: Ints, questions: int, spread: float) -> _Mass:
    """Sums of Base's probabilities over distinct texts, rounded down."""
    kept = (
        texts.with_columns(place=place)
        .filter("whole_base")
        .unique(["place", "text"], keep="first", maintain_order=True)
    )
    p = np.exp(kept["logp_base"].to_numpy() - spread)
    right, wrong_key = (kept[name].fill_null(value=False).to_numpy() for name in ("right", "wrong_key"))
    wrong = kept["right"].not_().fill_null(value=False).to_numpy()
    parts = p * right, p * wrong, p * wrong_key, (right & (p > 0)).astype(float)
    sums = [np.bincount(kept["place"].to_numpy(), part, questions) for part in parts]
    if texts["wrong_key"].null_count() == texts.height:
        sums[2][:] = np.nan
    mass_right, mass_wrong, mass_key = (np.minimum(mass, 1.0) for mass in sums[:3])
    return _Mass(mass_right, mass_wrong, mass_key, sums[3].astype(float))


def _importance(texts: pl.DataFrame, place: Ints, questions: int, confidence: float) -> tuple[Floats, Interval, Floats]:
    """The estimate of each question, its interval, and the effective number of texts by their weights."""
    base, rl = (texts[f"logp_{side}"].to_numpy() for side in SIDES)
    is_base, right = (texts["side"] == "base").to_numpy(), texts["right"].fill_null(value=False).to_numpy()
    of_base, of_rl = (np.bincount(place, side, questions)[place] for side in (is_base, ~is_base))
    can = texts["whole_base"].to_numpy() & np.isfinite(base)
    ratio = np.where(texts["whole_rl"].to_numpy(), np.exp(np.minimum(rl - np.where(can, base, 0.0), _HUGE)), 0.0)
    weight = np.where(can, 1 / np.maximum(of_base + of_rl * ratio, 1e-300), 0.0)
    total, squares, value = (np.bincount(place, each, questions) for each in (weight, weight**2, weight * right))
    estimate = np.clip(value, 0.0, 1.0).astype(float)
    variance = np.zeros(questions)
    for side in (is_base, ~is_base):
        part = (weight * right)[side]
        count, first, second = (np.bincount(place[side], each, questions) for each in (None, part, part**2))
        variance += count / np.maximum(count - 1, 1) * (second - first**2 / np.maximum(count, 1))
    with np.errstate(invalid="ignore", divide="ignore"):
        of_weights = np.where(squares > 0, total**2 / squares, 0.0)
        of_variance = estimate * (1 - estimate) / variance
    usable = (estimate > 0) & (estimate < 1) & (variance > _NOTHING)
    known_by = np.where(usable, np.minimum(of_weights, of_variance), of_weights).astype(float)
    return estimate, clopper_pearson(estimate * known_by, known_by, confidence), of_weights
