"""Compact readouts of a landscape (``store.metrics.COMPACT``), from which it is rebuilt without the samples.

Whatever is read question by question is stored question by question: the prefix readouts as bits, and the sizes of the
answer classes, which determine the expectations of P, Q and ``distinct``. All else is stored as means over questions
with their intervals, in single precision: enough to recover the whole number that a mean of counts comes from. The
expectations of B and T of single questions are not stored. docs/data.md describes the columns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
import polars as pl

from searchlens.analysis.classes import lucky_counts, to_text
from searchlens.analysis.points import Landscape, in_order, read, with_budgets
from searchlens.analysis.pool import SamplePool
from searchlens.analysis.readouts import metrics
from searchlens.config.landscape import DEFAULTS, LandscapeOptions
from searchlens.errors import InputError
from searchlens.store.columns import PLAIN
from searchlens.store.metrics import COMPACT, COMPACT_POINT, recorded

OF_CLASSES = ("P", "Q", "distinct")
"""Metrics whose expectations over independent samples follow from the sizes of the answer classes."""

_MOST_BUDGETS = 16  # bits of the prefix readouts


def compact(
    scores: pl.DataFrame, votes: pl.DataFrame | None, *, budgets: Sequence[int], options: LandscapeOptions = DEFAULTS
) -> pl.DataFrame:
    """What ``expand`` needs to rebuild the landscape without the samples: ``store.metrics.COMPACT``.

    ``votes`` is what ``plain_votes`` returns; None if the scores have no plain strings. Metrics that are not declared
    as ``recorded`` are left out. An InputError, beside those of ``operating_points``: more than 16 budgets; or ties are
    shared, so that a vote is more than one bit.
    """
    if options.ties != "first":
        raise InputError(
            f"landscape.ties: {options.ties}; compact readouts store a vote as one bit and need ties: first"
        )
    parts, luck = [], _luck(scores)
    for pool, reached in with_budgets(scores, budgets):
        if len(reached) > _MOST_BUDGETS:
            raise InputError(f"budgets: there are {len(reached)}; compact readouts hold at most {_MOST_BUDGETS}")
        parts.append(_compact_pool(pool, reached, read(pool, reached, options), votes, luck))
    return in_order(parts, scores["policy"].unique(maintain_order=True).to_list())


def _luck(scores: pl.DataFrame) -> dict[str, list[int]]:
    """Lucky samples of each question, in increasing order of questions, of the policies for which they are known."""
    return dict(lucky_counts(scores).drop_nulls().sort("question").group_by("policy").agg("lucky").iter_rows())


def _compact_pool(
    pool: SamplePool,
    budgets: Sequence[int],
    landscape: Landscape,
    votes: pl.DataFrame | None,
    luck: Mapping[str, list[int]],
) -> pl.DataFrame:
    shape = (len(pool.policies), len(pool.questions), len(budgets))
    by_question = landscape.hits.drop("policy", "question", "budget")
    credit = {column.name: column.cast(pl.Float32).to_numpy().reshape(shape) for column in by_question}
    classes, implied = to_text(pool).reshape(shape[:2]), OF_CLASSES if pool.width == 1 else ()
    points = _stored_points(pool, landscape.points, votes).partition_by("policy", include_key=False, as_dict=True)
    rows = [
        {
            "policy": name,
            "samples": pool.samples,
            "width": pool.width,
            "budgets": list(budgets),
            "question": pool.questions.tolist(),
            **{metric: _bits(credit[metric][i]) for metric in recorded(hits=True)},
            "classes": classes[i].tolist(),
            "lucky": luck.get(name),
            **{
                f"{metric}_expected": None if metric in implied else credit[f"{metric}_expected"][i].ravel().tolist()
                for metric in recorded(compared=True)
            },
            "points": points[(name,)].to_dicts(),
        }
        for i, name in enumerate(pool.policies)
    ]
    return pl.DataFrame(rows, COMPACT)


def _bits(credit: npt.NDArray[np.float32]) -> list[int] | None:
    """One number for each question; None if the readout is unknown."""
    if np.isnan(credit).any():
        return None
    bits: list[int] = (credit.astype(int) @ (1 << np.arange(credit.shape[1]))).tolist()
    return bits


def _stored_points(pool: SamplePool, points: pl.DataFrame, votes: pl.DataFrame | None) -> pl.DataFrame:
    """Points that cannot be computed from the other columns, and the vote by plain string."""
    computed = [f"{metric} {readout}" for metric, readout in _computed(pool.width)]
    key = pl.concat_str("metric", "readout", separator=" ")
    stored = points.filter(pl.col("metric").is_in(recorded()), ~key.is_in(computed))
    if votes is not None:
        plain = votes.select("policy", "budget", "readout", metric=pl.lit(PLAIN), value=PLAIN)
        stored = pl.concat([stored, plain.filter(pl.col("policy").is_in(pool.policies))], how="diagonal")
    columns = stored.select("policy", *COMPACT_POINT)
    return columns.sort("metric", "readout", "budget", maintain_order=True)  # equal neighbours compress better


def _computed(width: int) -> list[tuple[str, str]]:
    """Metric and readout of what ``expand`` computes: what is stored by question or follows from it, affine metrics."""
    of_classes = OF_CLASSES if width == 1 else ()
    by_question = {"prefix": {*recorded(hits=True)}, "expected": {*recorded(compared=True), *of_classes}}
    return [
        (metric.name, readout)
        for readout, names in by_question.items()
        for metric in metrics()
        if metric.name in names or metric.affine or (metric.of and names.issuperset(metric.of))
    ]
