"""Stage ``likelihood``: samples of a pair to their log p under both checkpoints, and what these say."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl

from searchlens.analysis.bounds import Precision, bounds
from searchlens.analysis.handover import HANDOVER, SPLITS, curve, splits
from searchlens.analysis.likelihood import SIDES, positions, summary
from searchlens.grading.score import Rules, found_answers
from searchlens.sampling import scored_texts
from searchlens.sampling.handover import beginnings, continued
from searchlens.store import provenance
from searchlens.store.columns import SCORED_TEXTS
from searchlens.store.frames import read_frame, write_frame
from searchlens.store.layout import SIGNATURE

if TYPE_CHECKING:
    from searchlens.plan import Grid, needs

log = logging.getLogger(__name__)

_GROUP = 512
"""Rows of a group of texts: the explorer unpacks the group of the text that it shows."""
_LISTS = [name for name, kind in SCORED_TEXTS.items() if isinstance(kind, pl.List)]


def likelihood(grid: Grid, cell: needs.Likelihood, output: Path, *, fingerprint: str, threads: int = 1) -> None:
    """Score the texts of one pair on one benchmark under both of its checkpoints, and let Base continue some.

    The folder gets the files of ``catalogue.LIKELIHOOD_FRAMES``. Checkpoints and questions are read as for sampling. An
    InputError: a side is not sampled or scored, or both tokenizers differ.
    """
    graded = {
        side: read_frame(grid.scores(checkpoint, cell.benchmark), "score").filter(policy=cell.policy)
        for side, (checkpoint, _) in cell.sides.items()
    }
    verdict = pl.when(~pl.col("unknown")).then("correct")
    right = {side: rows.select("question", "sample", "wrong_key", right=verdict) for side, rows in graded.items()}
    texts = scored_texts(grid, cell, right, threads)
    own, general = texts.filter(side="base"), (cell.confidence, cell.draws, cell.seed)
    differences = (own["logp_base"] - own["recorded"]).abs()
    checkpoint, _ = cell.sides["base"]
    spread = float(differences.filter(differences.is_finite()).max() or 0.0)  # type: ignore[arg-type]
    precision = Precision(spread, grid.config.checkpoints[checkpoint].dtype)
    ids = pl.Series([question.id for question in grid.inputs.questions(cell.benchmark)])
    counts = _counts(graded).filter(pl.col("question") < cell.questions)
    counts = counts.with_columns(id=ids.gather(counts["question"]))
    handover, split = HANDOVER.to_frame(), SPLITS.to_frame()
    if cell.handover and (starts := beginnings(texts, cell.handover)).height:
        judged = _judged(grid, cell, starts, threads)
        handover, split = curve(judged, counts, *general), splits(judged, spread, cell.confidence)
    kept = texts if cell.tokens else texts.with_columns(pl.lit(None, SCORED_TEXTS[name]).alias(name) for name in _LISTS)
    frames = {
        "texts": kept.drop("recorded"),
        "summary": summary(texts, *general),
        "positions": positions(texts, *general),
        "bounds": bounds(texts, counts, precision, cell.confidence),
        "handover": handover,
        "splits": split,
    }
    for name, frame in frames.items():
        write_frame(frame, output / f"{name}.parquet", _GROUP if name == "texts" else None)
    provenance.sign(output / SIGNATURE, fingerprint, None)
    log.info("%s/%s: %d texts scored under both checkpoints", cell.pair, cell.benchmark, texts.height)


def _counts(graded: dict[str, pl.DataFrame]) -> pl.DataFrame:
    """Samples, and right ones, of each question and side."""
    sides = [
        graded[side]
        .group_by("question")
        .agg(pl.len().alias(f"{side}_samples"), pl.col("correct").sum().alias(f"{side}_right"))
        for side in SIDES
    ]
    return sides[0].join(sides[1], on="question").sort("question")


def _judged(grid: Grid, cell: needs.Likelihood, starts: pl.DataFrame, threads: int) -> pl.DataFrame:
    """Beginnings with ``continuations`` and how many of them are ``right``."""
    assert cell.handover is not None, "there are beginnings"
    samples = continued(grid, cell, starts, threads)
    rules = Rules(
        grid.inputs.questions(cell.benchmark), cell.grader, grid.layout.verdicts(cell.benchmark), workers=threads
    )
    scored = rules.scored(found_answers(samples, cell.grader)).scores if samples.height else None
    drawn = pl.DataFrame(schema={"row": pl.UInt32, "drawn": pl.UInt32})
    if scored is not None:
        drawn = scored.group_by(pl.col("policy").cast(pl.UInt32).alias("row")).agg(drawn=pl.col("correct").sum())
    given = pl.col("kind").str.ends_with("right").cast(pl.UInt32) * cell.handover.continuations
    return (
        starts.with_row_index("row")
        .join(drawn, on="row", how="left", maintain_order="left")
        .with_columns(
            continuations=pl.lit(cell.handover.continuations),
            right=pl.when("whole").then(given).otherwise(pl.col("drawn")),
        )
        .drop("row", "drawn")
    )
