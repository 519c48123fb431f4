"""What Base makes of beginnings of texts: how often it ends right, and what follows for its chance of a question."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import polars as pl

from searchlens.analysis.uncertainty import Interval, Resamples, clopper_pearson, with_width

HANDOVER = pl.Schema(
    {
        **dict.fromkeys(("among", "kind", "unit"), pl.String()),
        **dict.fromkeys(("at", "value", "lo", "hi"), pl.Float64()),
        **dict.fromkeys(("questions", "texts"), pl.UInt32()),
    }
)
"""One row per place (``unit``, ``at``) and ``kind`` of beginning: ``value``, the mean over questions of the share of
right continuations. ``kind`` alone: Base's own samples, ``unit`` and ``at`` null. ``among``: all questions with such a
beginning (``all``), those with every kind (``common``), or those that none of Base's samples solves (``expanded``)."""

SPLITS = pl.Schema(
    {
        **dict.fromkeys(("question", "at", "beginnings"), pl.UInt32()),
        **dict.fromkeys(("reached", "through", "lo", "hi"), pl.Float64()),
    }
)
"""One row per question and number of tokens: Base's chance by splitting at that length. ``beginnings``: distinct ones;
``reached``: the sum of their probabilities under Base; ``through``: the unbiased estimate of Base's chance to begin so
and to end right, which is at most its chance to be right. ``lo``, ``hi``: limits of the latter, of this question alone
at the configured level."""


def curve(
    starts: pl.DataFrame, counts: pl.DataFrame, confidence: float = 0.95, draws: int = 2000, seed: int = 0
) -> pl.DataFrame:
    """How often Base ends right after each kind of beginning: ``HANDOVER``.

    Parameters
    ----------
    starts : DataFrame
        ``store.columns.BEGINNINGS`` with ``continuations`` and how many of them are ``right``.
    counts : DataFrame
        ``question``, ``base_samples`` and ``base_right``: all samples of the policy.
    confidence, draws, seed
        Of the percentile bootstrap over questions; texts and continuations of a question stay together.

    Notes
    -----
    Kinds are compared among ``common`` questions alone: others have other questions. A beginning of a right text tells
    also that the text ended right, so a right text of Base is the control of a right text of RL.
    """
    alone = counts.filter(pl.col("question").is_in(starts["question"].unique().implode())).select(
        "question",
        kind=pl.lit("alone"),
        unit=pl.lit(None, pl.String),
        at=pl.lit(None, pl.Float64),
        share=pl.col("base_right") / pl.col("base_samples"),
        texts=pl.lit(0, pl.UInt32),
    )
    share = (pl.col("right") / pl.col("continuations")).mean()
    alone = alone.cast({"question": starts["question"].dtype})
    each = starts.group_by("question", "kind", "unit", "at", maintain_order=True).agg(
        share=share, texts=pl.len().cast(pl.UInt32)
    )
    every = pl.concat([alone, each.select(alone.columns)])
    kinds = starts.group_by("question").agg(pl.col("kind").n_unique())
    unsolved = counts.filter(pl.col("base_right") == 0)["question"]
    among = {
        "all": starts["question"].unique(),
        "common": kinds.filter(pl.col("kind") == starts["kind"].n_unique())["question"],
        "expanded": unsolved,
    }
    rows = list(_rows(every, among, confidence, draws, seed))
    return pl.DataFrame(rows, HANDOVER)


def _rows(
    every: pl.DataFrame, among: dict[str, pl.Series], confidence: float, draws: int, seed: int
) -> Iterator[dict[str, object]]:
    tails = [(1 - confidence) / 2, (1 + confidence) / 2]
    for name, questions in among.items():
        chosen = every.filter(pl.col("question").is_in(questions.implode()))
        for (kind, unit, at), part in chosen.group_by("kind", "unit", "at", maintain_order=True):
            values, count = part["share"].to_numpy(), part.height
            value, lo, hi = float(values.mean()), None, None
            if count > 1:
                drawn = values @ Resamples.draw(count, draws, seed).weights / count
                ends = with_width(value, Interval(*np.quantile(drawn, tails)), count, confidence, (0.0, 1.0))
                lo, hi = float(ends.lo), float(ends.hi)
            of = {"among": name, "kind": kind, "unit": unit, "at": at, "questions": count, "texts": part["texts"].sum()}
            yield of | {"value": value, "lo": lo, "hi": hi}


def splits(starts: pl.DataFrame, spread: float, confidence: float = 0.95) -> pl.DataFrame:
    """Base's chance of each question by splitting at a number of tokens: ``SPLITS``.

    Parameters
    ----------
    starts : DataFrame
        As for ``curve``; beginnings of all kinds count, equal ones together.
    spread : float
        By how much log p of a beginning is lowered in the limits (``bounds.Precision``).
    confidence : float
        Nominal coverage of the limits, in (0, 1).

    Notes
    -----
    Distinct beginnings of as many tokens are disjoint, so Base's chance is the sum over them of p times its chance to
    end right from there, and what it does after other beginnings. Limits add up Clopper-Pearson limits, with the error
    divided among the beginnings; after other beginnings Base may be right never or always.
    """
    rows = []
    equal = starts.filter(unit="tokens").group_by("question", "at", "prefix", maintain_order=True)
    pooled = equal.agg(pl.col("logp_base", "whole").first(), pl.col("right", "continuations").sum())
    for (question, at), part in pooled.group_by("question", "at", maintain_order=True):
        p, right, count = (
            part.select(p=pl.col("logp_base").exp(), right="right", count="continuations").to_numpy().T.astype(float)
        )
        ends = clopper_pearson(right, count, 1 - (1 - confidence) / len(p))
        share, whole = right / count, part["whole"].to_numpy()
        lo, hi = np.where(whole, share, ends.lo), np.where(whole, share, ends.hi)
        sure = p * np.exp(-spread)
        limits = float(sure @ lo), float(min(1.0, sure @ hi + 1 - sure.sum()))
        rows.append((question, at, len(p), min(1.0, float(p.sum())), min(1.0, float(p @ share)), *limits))
    return pl.DataFrame(rows, SPLITS, orient="row")
